/* SPDX-License-Identifier: Apache-2.0 */
/* plan/their_model.h - the products of a model's layers, and its parameters, for the model of other trainers. Private
 * to this room. */
#ifndef TM_PLAN_THEIR_MODEL_H
#define TM_PLAN_THEIR_MODEL_H

#include "plan/theirs.h"

/* A product with a matrix (out, in) of every token. */
typedef struct {
    double in, out;
} tm_their_linear;
enum { TM_THEIR_LINEARS = 8 };

/* A layer as a rank of `tp` has it. */
typedef struct {
    tm_their_linear linear[TM_THEIR_LINEARS];
    int             n;
    double          heads, key_width, value_width, key_heads; /* of attention */
    double          inner;                                    /* width of the feed-forward layer; 0: experts */
} tm_their_layer;

/* with_experts: of a layer that has them; else of a dense one. */
tm_their_layer tm_their_layer_of(const tm_model_shape *shape, bool with_experts, int tp);
/* Of all layers: so many have experts. */
double tm_their_expert_layers(const tm_model_shape *shape);
bool   tm_their_gated(const tm_model_shape *shape);
/* Parameters of all but experts, with two tables; and of experts. */
double tm_their_dense_parameters(const tm_model_shape *shape);
double tm_their_expert_parameters(const tm_model_shape *shape);
/* The largest layer's. */
double tm_their_layer_parameters(const tm_model_shape *shape);
/* Keys that a token sees on average. */
double tm_their_keys(const tm_model_shape *shape, double seq);

#endif
