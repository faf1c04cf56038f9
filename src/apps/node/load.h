/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/load.h - private to the room: matrix products of a place, again and again, timed and verified.
 */
#ifndef TM_NODE_LOAD_H
#define TM_NODE_LOAD_H

#include "apps/node/places.h"

/* A product y = x w^T of one format and shape. */
typedef struct {
    char     name[TM_NODE_NAME]; /* "float32 product 256x256x256" */
    tm_dtype dtype;
    int64_t  m, n, k;
    double   flops;
} tm_node_product;

enum { TM_NODE_PRODUCTS = 8 };
/* Of a CPU's core, or those of a GPU, which takes larger ones. Returns how many. */
int tm_node_products(bool gpu, tm_node_product out[TM_NODE_PRODUCTS]);

typedef struct tm_node_load tm_node_load;

/* Operands drawn from `seed`, the same everywhere. TM_UNSUPPORTED: the device has no kernel for it. */
TM_MUST_USE tm_status tm_node_load_open(tm_device *device, const tm_node_product *product, uint64_t seed,
                                        tm_node_load **out, tm_error *err);
void                  tm_node_load_close(tm_node_load *load); /* NULL is fine */
/* So many calls. *seconds that they took: of a core processor time of this thread, of a GPU by its clock. */
TM_MUST_USE tm_status tm_node_load_run(tm_node_load *load, int64_t calls, double *seconds, tm_error *err);

/* Puts the operands elsewhere in memory: where they lie decides about some percent of a rate, so it must not stay. The
 * next call is slow. */
TM_MUST_USE tm_status tm_node_load_move(tm_node_load *load, tm_error *err);

/* Were the results right since the last question? Each (of a GPU the last of a run) must have the bits of the first
 * one, which is held against sums in float64 (the bounds of apps/bench/product.h). "": yes; else what is wrong. */
TM_MUST_USE tm_status tm_node_load_verify(tm_node_load *load, char wrong[TM_NODE_TEXT], tm_error *err);

#endif
