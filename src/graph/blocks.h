/* SPDX-License-Identifier: Apache-2.0 */
/* graph/blocks.h - formats of frozen weights whose codes have scales for blocks of 64: written as a whole, then only
 * read. NF4_BLOCKS is graph/nf4.h; E4M3_BLOCKS is here:
 *
 *     w_i = e4m3(c_i) s_b,   s_b = max |w| of the block / 448        each operation rounded to float32
 *
 * c_i is the nearest code of w_i / s_b, to even where two are as near. A group of 16,384 elements is kept together:
 * 256 float32 s_b, then its codes, a byte each; the last group ends with its last code. 8.5 bits a weight.
 *
 * NF4_SCALED is what a rank has of a matrix in NF4_BLOCKS that ranks divide: its blocks are of other groups than the
 * whole one's, so they keep the scales that those give them. 256 float32 s_b, then codes, two a byte: 4.5 bits a
 * weight, and the values of the whole, bit for bit. */
#ifndef TM_GRAPH_BLOCKS_H
#define TM_GRAPH_BLOCKS_H

#include "graph/nf4.h"
#include "graph/tensor.h"

enum {
    TM_E4M3_BLOCK = TM_NF4_BLOCK,
    TM_E4M3_GROUP = TM_NF4_GROUP, /* so that both are cut at the same places (tm_nf4_run_end) */
    TM_E4M3_HEAD = TM_E4M3_GROUP / TM_E4M3_BLOCK * 4,
    TM_E4M3_GROUP_BYTES = TM_E4M3_HEAD + TM_E4M3_GROUP,
    TM_SCALED_HEAD = TM_E4M3_HEAD, /* of NF4_SCALED */
    TM_SCALED_GROUP_BYTES = TM_SCALED_HEAD + TM_NF4_GROUP / 2
};

/* Is it one of them? */
static inline bool tm_dtype_blocked(tm_dtype dtype)
{
    return dtype == TM_NF4_BLOCKS || dtype == TM_E4M3_BLOCKS || dtype == TM_NF4_SCALED;
}

/* Codes of NF4, whoever has the scales. */
static inline bool tm_dtype_nf4(tm_dtype dtype)
{
    return dtype == TM_NF4_BLOCKS || dtype == TM_NF4_SCALED;
}

/* Bytes of n elements. */
size_t tm_blocked_bytes(tm_dtype dtype, int64_t n);
/* Element i. */
float tm_blocked_value(tm_dtype dtype, const void *data, int64_t i);
/* Elements i .. i + n - 1, whole blocks, to elements j ... of what may be in another format of the same codes:
 * NF4_BLOCKS to NF4_SCALED, or to its own. The last block may be a part of one, where `out` ends. */
void tm_blocked_copy(tm_dtype from, const void *data, int64_t i, tm_dtype to, void *out, int64_t j, int64_t n);
/* Quantizes n elements; as tm_nf4_store. Not for NF4_SCALED. */
TM_MUST_USE tm_status tm_blocked_store(tm_dtype dtype, const tm_nf4_io *io, int64_t n, tm_error *err);

/* The code of the nearest number of E4M3, to even where two are as near; beyond 448: 448. What tm_value_encode gives,
 * in a ninth of its time: models have billions of weights. */
uint8_t tm_e4m3_code(float value);

#endif
