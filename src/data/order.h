/* SPDX-License-Identifier: Apache-2.0 */
/* data/order.h - in which order a run reads the samples of an indexed data set: the order of Megatron-LM's GPT data
 * set, to the last sample; private to this room.
 *
 * A sample is T + 1 consecutive tokens of the documents (here: sequences of the index) in a shuffled order; neighbours
 * share one token. For n wanted samples and N tokens of one epoch:
 *
 *   E        least number of epochs with E N >= n T + 1
 *   a        ((E - 1) N - 1) / T, the samples before the last epoch; the last epoch is shuffled on its own if
 *            n - a < floor(0.8 ((N - 1) / T)) and E > 1
 *   documents  0 .. D-1 E times, shuffled as one array (or E - 1 times, then once more)
 *   samples    (E N - 1) / T; each begins at the last token of the one before
 *   shuffle    of the samples as one array (or of the first a, then of the rest); sample i of the run is shuffle[i]
 *
 * One generator for all shuffles, in this order: MT19937 (Matsumoto & Nishimura 1998) seeded with the seed as one word;
 * a shuffle swaps i = L-1 .. 1 with a j of 0 .. i drawn by masking and rejecting.
 */
#ifndef TM_DATA_ORDER_H
#define TM_DATA_ORDER_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* The generator and its shuffle, for themselves. */
typedef struct {
    uint32_t state[624];
    int      used;
} tm_mt19937;

void     tm_mt19937_seed(tm_mt19937 *generator, uint32_t seed);
uint32_t tm_mt19937_next(tm_mt19937 *generator);
void     tm_mt19937_shuffle(tm_mt19937 *generator, uint32_t *items, int64_t n);

typedef struct {
    int64_t documents, tokens, seq; /* D, N, T */
    int64_t epochs, samples;        /* E; all samples, at least those wanted */
    int64_t before_last;            /* a, when the last epoch is separate */
    bool    separate;
    int64_t document_bytes, sample_bytes, shuffle_bytes; /* of the three tables */
} tm_order_plan;

/* What the order of `wanted` >= 1 samples takes; no memory. TM_INVALID when a sample does not fit into the data, or
 * when the tables need more than 2^32 - 1 entries. */
TM_MUST_USE tm_status tm_order_plan_make(int64_t documents, int64_t tokens, int64_t seq, int64_t wanted,
                                         tm_order_plan *out, tm_error *err);
int64_t               tm_order_plan_bytes(const tm_order_plan *plan);

typedef struct {
    uint32_t position; /* in tm_order.documents */
    int32_t  offset;   /* tokens into that document */
} tm_order_sample;

typedef struct {
    tm_order_plan    plan;
    uint32_t        *documents; /* (E D) */
    tm_order_sample *samples;   /* (samples + 1): where each begins */
    uint32_t        *shuffle;   /* (samples) */
} tm_order;

/* Builds the tables in place, each once: nothing is held twice. `lengths` are the tokens of each document as in an
 * index: int32, little-endian, at any address; they must add up to plan->tokens. TM_NOMEM when the memory that is
 * available is less than the plan's. */
TM_MUST_USE tm_status tm_order_build(const tm_order_plan *plan, const uint8_t *lengths, uint32_t seed, tm_order *out,
                                     tm_error *err);
void                  tm_order_free(tm_order *order); /* a zeroed one is fine */

#endif
