/* SPDX-License-Identifier: Apache-2.0 */
/* op/ring.h - which chunks of keys the chunks of a rank's queries see, step by step (op/ring_attention.c). */
#ifndef TM_OP_RING_H
#define TM_OP_RING_H

#include "op/attrs.h"

#include <stdbool.h>

/* A sequence is cut into 2 R chunks, of which a rank has two (model/parallel.h); h: 0, 1. */
static inline int64_t tm_ring_chunk(const tm_ring_attr *ring, int64_t rank, int h)
{
    return h == 0 ? rank : 2 * ring->ranks - 1 - rank;
}

/* In step `step` a rank has the keys of the rank that is so many before it. Do the queries of its chunk `h` see any of
 * the keys of that one's chunk `of`? Then *out is the call for them. */
static inline bool tm_ring_sees(const tm_ring_attr *ring, int64_t step, int h, int of, tm_attention_attr *out)
{
    int64_t from = (ring->rank - step + ring->ranks) % ring->ranks;
    int64_t queries = tm_ring_chunk(ring, ring->rank, h), keys = tm_ring_chunk(ring, from, of);
    *out = ring->attention;
    out->q_offset = (queries - keys) * out->seq_k;
    out->key0 = keys * out->seq_k;
    if (keys > queries) return false;
    return out->window == 0 || out->q_offset - out->window + 1 < out->seq_k;
}

#endif
