/* SPDX-License-Identifier: Apache-2.0 */
/* graph/place.h - offsets for buffers whose lifetimes are known (private to graph/). */
#ifndef TM_GRAPH_PLACE_H
#define TM_GRAPH_PLACE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
    size_t  bytes;       /* a multiple of the alignment */
    int32_t first, last; /* instruction numbers, both included */
    size_t  offset;      /* out */
} tm_interval;

/* Largest sum of bytes alive at one instruction: the lower bound of any placement. */
size_t tm_place_lower_bound(const tm_interval *items, size_t n, int32_t n_instructions);

/* Sets the offsets; returns the bytes needed. Tries several orders of first-fit and keeps the best; deterministic. Time
 * O(n log n_instructions) for each order, a bounded number of them. */
size_t tm_place_intervals(tm_interval *items, size_t n, int32_t n_instructions);

/* Bytes that others have, at offsets of their own below `bytes`: what is free of them when may be used. */
typedef struct {
    const tm_interval *items;
    size_t             n, bytes;
} tm_lenders;

/* The lower bound, and the offsets, beside these; both are `bytes` of theirs at least. */
size_t tm_place_bound_beside(const tm_lenders *lenders, const tm_interval *items, size_t n, int32_t n_instructions);
size_t tm_place_beside(const tm_lenders *lenders, tm_interval *items, size_t n, int32_t n_instructions);

#endif
