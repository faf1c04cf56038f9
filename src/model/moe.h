/* SPDX-License-Identifier: Apache-2.0 */
/* model/moe.h - a mixture of experts in the place of a block's FFN (private to model/).
 *
 *   logits = Wr b [+ br] in float32;  ids, w = route(logits);  x = x + shared(b) + sum_j w_j expert_ids(j)(b)
 *   expert(b) = W2 act(W1 b, W3 b), act as in the FFN;  shared: one FFN of n_shared experts' width
 *
 * Names of parameters are torchtitan's, every expert's its own: "layers.3.moe.experts.7.w1.weight". The experts' w1 and
 * w3 are rows of one tensor (E, 2 F, C). Where experts are divided among ranks (tm_parallel.experts) a rank has E / R
 * of them; rows are sent to them and back (op/exchange.c), all else is computed for the rank's own rows.
 *
 * Where ranks divide matrices (tm_parallel.tensor) they all route the tokens of all of them, and each has some of the F
 * of every expert: what it computes is one term of a sum over the ranks, and so is its gradient of the router. Where
 * they divide experts, too, a mixture stands between the matrices: each rank has its own rows and whole experts; only
 * the shared experts are divided.
 */
#ifndef TM_MODEL_MOE_H
#define TM_MODEL_MOE_H

#include "model/model.h"

/* TM_NONE: has none. */
typedef struct {
    tm_tensor_id router_w, router_b, up_w, up_b, down_w, down_b, shared_up_w, shared_down_w;
    tm_tensor_id bias; /* (E) STATE: moves the choice */
} tm_moe_weights;

/* Reads the keys about experts and checks them against each other. */
TM_MUST_USE tm_status tm_moe_read(const tm_config *config, tm_model_shape *shape, tm_error *err);

/* Why a shape is not one whose every block has experts, chosen by softmax alone: for tm_hf_form.lacks. NULL: it is. */
const char *tm_moe_lacks_plain(const tm_model_shape *shape);

/* Can a mixture be divided like this among parallel->tensor? */
TM_MUST_USE tm_status tm_moe_check_tensor(const tm_model_shape *shape, const tm_parallel *parallel, tm_error *err);

/* Is the FFN of this block a mixture? */
bool tm_moe_in_layer(const tm_model_shape *shape, int layer);
/* How many of the first `layer` blocks have experts; do any have the plain FFN? */
int64_t tm_moe_layers_below(const tm_model_shape *shape, int64_t layer);
bool    tm_moe_has_plain_layers(const tm_model_shape *shape);
/* Does the parameter hold what each expert has of its own? */
bool tm_moe_has_experts(const tm_tensor *parameter);
/* What all blocks share: the counts and the balance loss of `out`. Does nothing for a model without experts. */
void tm_moe_declare_model(tm_graph *graph, const tm_model_shape *shape, tm_model *out);
void tm_moe_declare(tm_graph *graph, const tm_model *model, int layer, tm_moe_weights *out);
/* b (N, C), normed; x (N, C): the residual stream -> x with the mixture added. Also counts what model->account says. */
tm_tensor_id tm_moe_emit(tm_graph *graph, const tm_model *model, int layer, const tm_moe_weights *w, tm_tensor_id b,
                         tm_tensor_id x);
/* Appends to the update: the bias of every mixture follows its counts. weights[layer], `stride` bytes apart. */
void tm_moe_update(tm_graph *graph, const tm_model *model, const tm_moe_weights *weights, size_t stride);

#endif
