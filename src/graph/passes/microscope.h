/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/microscope.h - one program that computes forward and backward twice, in two number formats, step by step
 * beside each other, and compares what both hold. */
#ifndef TM_GRAPH_PASSES_MICROSCOPE_H
#define TM_GRAPH_PASSES_MICROSCOPE_H

#include "graph/graph.h"
#include "op/compare.h"

/* FACTOR: of a product, as a recipe of low precision leaves it, beside the tensor that it was. */
typedef enum { TM_LOOK_FORWARD, TM_LOOK_BACKWARD, TM_LOOK_FACTOR, TM_LOOK_GRADIENT } tm_look_kind;
const char *tm_look_kind_name(tm_look_kind kind); /* "forward", "backward", "factor", "gradient" */

/* Row r of the record. */
typedef struct {
    const char  *name; /* "layers.3.attention.linear": of the own tensor; several may have the same */
    tm_look_kind kind;
    tm_tensor_id own, reference;
    int          layer;
    int          part; /* of the segment: see tm_microscope.ends */
} tm_look_row;

typedef struct {
    tm_tensor_id record; /* (R, TM_COMPARED) SCALAR; TM_NONE: there is no such program */
    tm_look_row *rows;   /* in the order of the program */
    size_t       n_rows;
    /* Where the parts of the own segment end, by numbers of nodes: of stages the forward passes, then the backward
     * passes; set before the pass. n_ends 0: it is one part. */
    const size_t *ends;
    size_t        n_ends;
} tm_microscope;

/* A gradient of both. */
typedef struct {
    tm_tensor_id own, reference;
} tm_look_pair;

/* Puts the nodes of `reference`, the same forward and backward in another format, beside those of the current segment,
 * and behind the last write of each pair of tensors a `compare`. What only one of them has (casts, quantized factors)
 * finds its place; any other difference is TM_UNSUPPORTED. Not compared: whole numbers, what is computed again, factors
 * that a recipe rotates, what another stage sent (it has compared it), what balances experts before it is added. */
TM_MUST_USE tm_status tm_microscope_pass(tm_graph *graph, const tm_segment *reference, const tm_look_pair *gradients,
                                         size_t n_gradients, tm_microscope *out, tm_error *err);
void                  tm_microscope_fini(tm_microscope *microscope);

#endif
