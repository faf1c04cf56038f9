/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/quantize_split.h - private to the pass for products in low precision: factors of which ranks that divide
 * matrices (tensor parallel) have parts. Scales are those of the whole tensor, blocks lie within a part. */
#ifndef TM_GRAPH_PASSES_QUANTIZE_SPLIT_H
#define TM_GRAPH_PASSES_QUANTIZE_SPLIT_H

#include "graph/passes/quantize.h"

static inline bool quantize_of_weight(tm_factor factor)
{
    return factor == TM_FACTOR_W || factor == TM_FACTOR_W_DX;
}
static inline bool quantize_of_x(tm_factor factor)
{
    return factor == TM_FACTOR_X || factor == TM_FACTOR_X_DW;
}

/* How many experts a weight has, whoever has them; the first that is here, and how many are. Of other weights 1. */
int quantize_experts(const tm_tensor *weight, int *first, int *here);
/* Linear layers in a product with the weight of one expert, or with one that is nobody's. Runs of rows of one name are
 * one layer. */
int quantize_parts(const tm_tensor *weight);
/* The first run of layer `part`, counted through all experts that are here; NULL: the weight has no names but its own.
 */
const tm_piece *quantize_piece(const tm_tensor *weight, int part);
/* Inputs and outputs of that layer, whoever has them. */
int64_t quantize_inputs(const tm_tensor *weight);
int64_t quantize_outputs(const tm_tensor *weight, int part);

/* Where the parts of a factor end, and what random numbers go by; recipe, `down` and `cut_columns` are there. */
void quantize_describe_parts(const tm_quantize *policy, const tm_tensor *weight, tm_factor factor, tm_shape shape,
                             tm_quantize_attr *attr);
/* Does the recipe fit a factor of this shape, whole and divided? TM_UNSUPPORTED names what does not. `recipe`: for the
 * message. */
TM_MUST_USE tm_status quantize_check_parts(const tm_quantize *policy, const tm_tensor *weight, tm_factor factor,
                                           tm_shape shape, const tm_quantize_attr *attr, int which, const char *recipe,
                                           tm_error *err);
/* Appends what finds the largest magnitudes of all ranks, where scales go by them; else TM_NONE. in: the inputs of the
 * node `quantize`. */
tm_tensor_id quantize_emit_largest(tm_graph *graph, const tm_quantize *policy, const tm_tensor *weight,
                                   tm_factor factor, tm_quantize_attr *attr, const tm_tensor_id *in, const char *name);

#endif
