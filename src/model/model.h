/* SPDX-License-Identifier: Apache-2.0 */
/* model/model.h - builders: from a shape to the forward nodes of a graph. One file per family.
 *
 * A builder names axes, module paths and layers and knows no pass: no gradient, recomputation, precision or sharding.
 */
#ifndef TM_MODEL_MODEL_H
#define TM_MODEL_MODEL_H

#include "graph/graph.h"
#include "model/shape.h"

enum { TM_MAX_LAYERS = 1024 };

/* The parameters and constants of a model inside a graph; made once, used by every segment. */
typedef struct {
    tm_tensor_id norm1_w, norm1_b, qkv_w, qkv_b, out_w, out_b, norm2_w, norm2_b, up_w, up_b, down_w, down_b;
} tm_block_weights; /* llama: up_w holds gate and up; biases are TM_NONE */

typedef struct {
    const tm_model_shape *shape;
    int64_t               seq;
    tm_tensor_id          embedding, positions, norm_w, norm_b, head; /* head == embedding when tied */
    tm_tensor_id          rope_table; /* llama */
    tm_block_weights     *blocks;     /* (n_layers), in the graph's arena */
} tm_model;

/* Declares the parameters with their initial values, and the constants, for sequences of `seq` tokens. */
void tm_model_declare(tm_graph *graph, const tm_model_shape *shape, int64_t seq, tm_model *out);

/* Appends the blocks: tokens (N) -> final normed hidden state (N, C). */
tm_tensor_id tm_model_hidden(tm_graph *graph, const tm_model *model, tm_tensor_id tokens);

/* Appends hidden state and loss: adds the summed cross entropy over `targets` (N) to `loss` (); logits in chunks of
 * `chunk` rows. `accumulate`: loss += (further micro-batches). */
void tm_model_loss(tm_graph *graph, const tm_model *model, tm_tensor_id tokens, tm_tensor_id targets, tm_tensor_id loss,
                   int64_t chunk, bool accumulate);

/* Rotary frequencies after scaling, in radians per position; i in 0 .. head_dim / 2 - 1. */
double tm_model_rope_frequency(const tm_model_shape *shape, int64_t i);

#endif
