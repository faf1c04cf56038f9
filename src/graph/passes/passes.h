/* SPDX-License-Identifier: Apache-2.0 */
/* graph/passes/passes.h - passes rewrite the current segment of a graph. Order: (builder), adapt, head_rope, gradient,
 * lookup, chunks, recompute, ring, quantize (graph/passes/quantize.h), precision, uncast, codes and both (codes.h),
 * offload, columns, of all segments resident; then graph/plan.h places the buffers. A builder knows none of them. */
#ifndef TM_GRAPH_PASSES_H
#define TM_GRAPH_PASSES_H

#include "graph/graph.h"
#include "graph/plan.h"

/* Puts the adapters of matrices (tm_tensor.adapter) beside their products: y = x w^T becomes
 *     base = x w^T,  u = drop(x) a^T,  y = base + scale u b^T
 * and where the adapter has lengths m (DoRA), with n = || w + scale b a || by rows, which counts as a constant:
 *     base = x w^T,  u = drop(x) a^T,  z = base + scale u b^T,  y = m / n z + bias + residual
 * Where ranks have some of the columns of w, each finds the norms of its parts of the rows, and gathers those of all.
 * The loss, which multiplies with the output layer itself, gets u and b as operands.
 * `first_row`: () float64, the number of the program's first row among all rows of the run, which dropout depends on;
 * TM_NONE: nothing is dropped (evaluation, samples). */
void tm_adapt_pass(tm_graph *graph, tm_tensor_id first_row);

/* Where the device wants it (tm_chooser.fuses) and has a kernel for it: norms of heads, a join of the rows of two
 * streams and rope become head_rope. In front of the gradient pass, whose nodes are then fused, too. */
void tm_head_rope_pass(tm_graph *graph, const tm_chooser *chooser);

/* What the backward pass recomputes instead of keeping. */
typedef struct {
    bool    cheap;   /* outputs of ops marked cheap: norms, activation functions */
    int64_t every_n; /* 0: no layer; 1: every layer; n: layers with index % n == 0 keep their input only */
    int64_t layers;  /* > 0: only layers below this one do */
    /* Exempt from every_n, by op: 0: none of its results; n: those of the first, (n + 1)th, (2n + 1)th ... in a layer's
     * forward order. A product with a fused weight counts as its parts and is kept if the first of them is. */
    uint8_t save[TM_OP_COUNT];
} tm_recompute;

/* A table that is looked up and is a factor of a product, too (a tied head), has a gradient of each. Each is summed
 * over all rows of a step before one is added to the other: the order of the additions, and so the bits, must not
 * depend on where micro-batches end. In a step of one micro-batch the kernel of embedding_grad does that (its
 * attribute `apart`); with `several`, the look-up's part has memory of its own, `accumulate`d to in further
 * micro-batches, until tm_lookup_join, which appends the additions to the current segment. After the gradient pass. */
void tm_lookup_pass(tm_graph *graph, bool several, bool accumulate);
/* The same in a segment that writes a table's gradient by look-ups only, where another one writes the rest. */
void tm_lookup_apart(tm_graph *graph, tm_tensor_id table, bool accumulate);
void tm_lookup_join(tm_graph *graph);

/* Of a loss in chunks (op/vocabulary.c): puts the forward nodes of each right in front of its gradient, so that the
 * logits of one chunk exist at a time. `accumulate`: the loss is added to. After the gradient pass. */
void tm_chunks_pass(tm_graph *graph, bool accumulate);

/* Copies forward nodes in front of their first use in the backward pass; backward nodes then read the copies. */
void tm_recompute_pass(tm_graph *graph, const tm_recompute *policy);

/* Makes attention of chunks and messages of ring_attention and its gradient. */
void tm_ring_pass(tm_graph *graph);

/* Inserts casts of parameters to the compute format in front of their first use in a layer's forward and again in its
 * backward, so that copies live for a layer only. Parameters that are stored in the compute format need none, nor do
 * those that an op reads in their own format, unless it is smaller than bfloat16's. */
void tm_precision_pass(tm_graph *graph);

/* Takes casts of float32 weights out again where every kernel that would read the copy rounds to the same bits on its
 * way (tm_kernel.rounds): no memory, less traffic. Not where these become copies from step to step. Behind the
 * precision pass; `chooser`: who will choose the kernels. */
void tm_uncast_pass(tm_graph *graph, const tm_chooser *chooser);

/* Where the device wants it (tm_chooser.weight_copies), of all finished segments: a float32 weight that a segment casts
 * gets a copy in the compute format from step to step (TM_ROLE_COPY), and the casts are gone. A segment that writes the
 * weight writes the copy: by the op of the optimizer (tm_op.copy) where the device has a kernel for that, else by a
 * cast at its end. Appends the segment "copies", which casts them all: after weights were written from outside. Weights
 * that are gathered for their use (passes/units.h) are cast as before. Same bits. */
void tm_resident_pass(tm_graph *graph, const tm_chooser *chooser);

/* What lies in another space while it is not used. */
typedef struct {
    bool        optimizer;   /* moments */
    bool        activations; /* what the forward pass keeps for the backward pass */
    tm_space    space;       /* where to */
    const char *folder;      /* of the file, if space is TM_SPACE_DISK: where a run makes it; a plan needs none */
    bool        apart;       /* forward and backward become programs of their own, between which others run */
} tm_offload;

/* Puts copies on the stream for copies around the uses of what is offloaded; nodes then use what was fetched. Nothing
 * is computed otherwise: same bits. */
void tm_offload_pass(tm_graph *graph, const tm_offload *policy);

/* Where the device wants it (tm_chooser.fuses): the sum of a bias's gradient is made on the way by gelu's, and parts of
 * matrices that are joined or split by columns are made and read in place, as far as kernels take views. Of finished
 * forward and backward nodes of one segment. */
void tm_columns_pass(tm_graph *graph, const tm_chooser *chooser);

/* Every rank rounds float32 gradients to bfloat16 before they are added to those of the others; the sum is in float32
 * and rounded once more (tm_group_attr.narrow). Half of the bytes are sent. Of all finished segments; sums of anything
 * but gradients (counts, squares, activations) stay as they are. */
void tm_narrow_pass(tm_graph *graph);

#endif
