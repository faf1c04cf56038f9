/* SPDX-License-Identifier: Apache-2.0 */
/* graph/gradient.h - reverse-mode differentiation of a segment: every op's gradient rule emits nodes.
 *
 * Rules run in reverse order of the forward nodes. There is no other autodiff.
 */
#ifndef TM_GRAPH_GRADIENT_H
#define TM_GRAPH_GRADIENT_H

#include "graph/graph.h"

typedef struct tm_gradient tm_gradient;

/* A result and its cotangent: for the loss, the tensor of scalars (TM_SCALAR_LOSS_SCALE); elsewhere a tensor of the
 * result's shape. */
typedef struct {
    tm_tensor_id result, cotangent;
} tm_seed;

/* Appends the backward nodes of the current segment. Gradients of trained parameters go to their persistent GRADIENT
 * tensors (made here when missing): overwritten by their first contribution when `accumulate` is false, added to when
 * it is true. `inputs`: further tensors whose gradients are wanted; their ids are stored in `input_gradients` (TM_NONE
 * when nothing depends on them). */
void tm_gradient_pass(tm_graph *graph, bool accumulate, const tm_seed *seeds, size_t n_seeds,
                      const tm_tensor_id *inputs, tm_tensor_id *input_gradients, size_t n_inputs);

/* ---- for gradient rules (the `gradient` member of a tm_op) ---- */

/* The cotangent of an output of the node (contributions summed), or TM_NONE when nothing flowed back; of a view, a view
 * of its base's. */
tm_tensor_id tm_gradient_of(tm_gradient *gradient, tm_tensor_id output);
/* Does anything need the gradient of this input? False for TM_NONE, integers, constants and frozen weights. */
bool tm_gradient_wanted(const tm_gradient *gradient, tm_tensor_id input);
/* Contributes `value` to the gradient of an activation, or of a parameter that is read like one. The same tensor may be
 * contributed to several inputs. */
void tm_gradient_add(tm_gradient *gradient, tm_tensor_id input, tm_tensor_id value);
/* Where the node about to be emitted is to write its contribution to the gradient of an input that is a view: the same
 * columns of its base's gradient (made here, one for all views of the base), which the node then has in `strided_out`.
 * TM_NONE: the input is no view, or something is in those columns already: the node makes a tensor of its own. Either
 * way the rule contributes what the node gave with tm_gradient_add. Columns that nobody wrote are filled with zeros
 * when the producer of the base is reached. */
tm_tensor_id tm_gradient_out(tm_gradient *gradient, tm_tensor_id input);
/* A tensor like an input, in its role and format, for a gradient that an op's own role of results would not fit. */
tm_tensor_id tm_gradient_like(tm_gradient *gradient, tm_tensor_id input);
/* Takes back the contributions so far (TM_NONE if there are none), for an op that adds its own on top: its optional
 * `addend` input. The op's result is then contributed with tm_gradient_add. */
tm_tensor_id tm_gradient_take(tm_gradient *gradient, tm_tensor_id input);
/* The tensor for the gradient of a weight, to be output `k` of the node about to be emitted: of a trained parameter the
 * persistent one (sets bit k of *accumulate when it already holds something); of a weight that is computed a new one,
 * which is contributed as by tm_gradient_add once the node is there. TM_NONE when nothing needs it. */
tm_tensor_id tm_gradient_parameter(tm_gradient *gradient, tm_tensor_id weight, int k, unsigned *accumulate);
/* Emits a backward node; like tm_graph_add. */
void tm_gradient_emit(tm_gradient *gradient, tm_op_id op, const void *attr, size_t attr_bytes, const tm_tensor_id *in,
                      tm_tensor_id *out, unsigned accumulate);
/* The node emitted last also computes the outputs of the forward node under differentiation (it was given the same
 * output tensors): the forward node is dropped from the segment. */
void tm_gradient_replaces_forward(tm_gradient *gradient);

#endif
