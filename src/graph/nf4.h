/* SPDX-License-Identifier: Apache-2.0 */
/* graph/nf4.h - weights in 4 bits: NF4 in blocks of 64 with scales that are themselves quantized (Dettmers et al. 2023,
 * "QLoRA", sections 3 and 3.1; the numbers are those of bitsandbytes).
 *
 *     w_i = code[c_i] s_b,   s_b = map[q_b] S_g + m       each operation rounded to float32
 *
 * c_i: 4 bits, b: its block of 64 elements, g: its group of 256 blocks. code: 16 quantiles of a normal distribution,
 * map: 256 numbers of dynamic exponent, m: mean of the blocks' largest magnitudes over the whole matrix, S_g: the
 * largest magnitude of (s - m) in the group. The format TM_NF4_BLOCKS keeps a group (16,384 elements) together:
 *
 *     float32 m, float32 S_g, 256 bytes q_b, codes: two elements a byte, the first in the high half
 *
 * The last group ends with its last code. 8 (264 + 8192) / 16384 = 4.129 bits a weight. */
#ifndef TM_GRAPH_NF4_H
#define TM_GRAPH_NF4_H

#include "base/status.h"

#include <stddef.h>
#include <stdint.h>

enum { TM_NF4_BLOCK = 64, TM_NF4_GROUP = 16384, TM_NF4_HEAD = 264, TM_NF4_GROUP_BYTES = TM_NF4_HEAD + 8192 };

/* Bytes of n elements. */
size_t tm_nf4_bytes(int64_t n);
/* The sixteen values of a code, ascending; those of a scale's. */
void tm_nf4_codes(float out[16]);
void tm_nf4_map(float out[256]);
/* Element i. */
float tm_nf4_value(const void *data, int64_t i);
/* s of the block that element i is in. */
float tm_nf4_scale(const void *data, int64_t i);
/* A group of n <= TM_NF4_GROUP elements from its parts: codes (n + 1) / 2 bytes, q one a block. */
void tm_nf4_pack(float mean, float scale, const uint8_t *q, const uint8_t *codes, int64_t n, void *out);

/* What a matrix is quantized from and where it goes. Values are asked for twice, in runs of whole groups. */
typedef struct {
    void (*values)(void *context, int64_t first, int64_t n, float *out);
    tm_status (*write)(void *context, size_t offset, const void *bytes, size_t n, tm_error *err);
    void *context;
    int   threads;
} tm_nf4_io;

/* Quantizes n elements: codes and q are those of the nearest values, the lower one of two as near. The bits do not
 * depend on `threads`. */
TM_MUST_USE tm_status tm_nf4_store(const tm_nf4_io *io, int64_t n, tm_error *err);

#endif
