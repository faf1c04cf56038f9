/* SPDX-License-Identifier: Apache-2.0 */
/* graph/lend.h - what lies where gradients come later (private to graph/).
 *
 * A program that writes a gradient before it reads it does not care what was there: until then the memory is free. The
 * activations of a layer die when its gradients come, so those of most layers have room where the gradients of the
 * layers before them come: a step of one micro-batch needs hardly more than its parameters, gradients and moments.
 * Gradients that are added to are never lent; nor are any with slots, or where ranks talk meanwhile, who share the
 * memory of their gradients.
 */
#ifndef TM_GRAPH_LEND_H
#define TM_GRAPH_LEND_H

#include "graph/place.h"
#include "graph/plan.h"

/* Finds tm_program.written. */
void tm_lend_find(tm_plan *plan, int32_t program);

/* The gradients as the program lends them, in `items` (room for all tensors). Offsets begin with the first gradient. */
tm_lenders tm_lend_lenders(const tm_plan *plan, int32_t program, tm_interval *items);

#endif
