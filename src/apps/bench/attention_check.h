/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/attention_check.h - is attention right? Rows of outputs and gradients, recomputed in float64 without
 * fusion: all scores of a row, then its softmax, then the sums (private to bench/; docs/bench-attention.md). */
#ifndef TM_BENCH_ATTENTION_CHECK_H
#define TM_BENCH_ATTENTION_CHECK_H

#include "op/attrs.h"

#include "graph/tensor.h"

/* One call's tensors, all of one format but lse, which is float32 (float64 on the reference device): qkv, dqkv
 * (B T, (H + 2J) D), o, d_o (B T, H D), lse (B, H, T). */
typedef struct {
    tm_attention_attr attr;
    int64_t           batch;
    tm_dtype          dtype, lse_dtype;
    void             *qkv, *o, *lse, *d_o, *dqkv;
} tm_attention_tensors;

typedef struct {
    bool        correct;
    double      worst;                /* largest error as a part of its bound; above 1 is wrong; infinite for NaN */
    const char *what;                 /* "o", "lse", "dq", "dk", "dv": where that was */
    int64_t     rows;                 /* checked, of each */
    double      found, wanted, bound; /* there */
} tm_attention_check;

/* Sampled queries and keys of sampled heads, first and last among them. Gradients are held against the formula with the
 * o and lse that the forward pass left, as the backward op is given them. Costs about rows x T x D x 20 operations. */
void tm_attention_verify(const tm_attention_tensors *tensors, uint64_t seed, tm_attention_check *out);

#endif
