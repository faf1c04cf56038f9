/* SPDX-License-Identifier: Apache-2.0 */
/* base/random.h - random values are f(seed, stream, index), never "the next one": threads, ranks and resuming do not
 * change them. Philox-4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): the key is the
 * seed mixed with the stream, the counter is the index.
 */
#ifndef TM_BASE_RANDOM_H
#define TM_BASE_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

uint64_t tm_random_u64(uint64_t seed, uint64_t stream, uint64_t index);
/* The key that a seed becomes, for those who compute Philox themselves: kernels of GPUs. */
uint64_t tm_random_key(uint64_t seed);
/* Uniform in [0, 1), a multiple of 2^-53. */
double tm_random_uniform(uint64_t seed, uint64_t stream, uint64_t index);
/* Standard normal, by Box-Muller on the four words of one counter. */
double tm_random_normal(uint64_t seed, uint64_t stream, uint64_t index);
/* Standard normals in float32, first .. first + n - 1 of a stream: number i is lane i % 4 of counter i / 4. Box-Muller
 * on the upper 24 bits of each word; logarithm and sines are computed here in float64, by additions, products and one
 * division, so that every C library and the GPUs' kernel (device/gpu/source/draw.cu) leave the same bits. Not the
 * values of tm_random_normal. */
void tm_random_normals(uint64_t seed, uint64_t stream, uint64_t first, int64_t n, float *out);

/* Initial values of rows: element i of them is number first + i / columns * ld + i % columns of the stream. */
typedef struct {
    uint64_t seed, stream;
    double   mean, std; /* std 0: all are the mean */
    double   cut;       /* > 0: what is further from the mean is drawn again, from streams of its own; not if uniform */
    bool     uniform;   /* of that mean and std; else normal */
    int64_t  first, columns, ld;
} tm_random_rows;
/* Elements from .. from + n - 1, rounded to float32. */
void tm_random_make(const tm_random_rows *rows, int64_t from, int64_t n, float *out);

/* Uniform integer in [0, n), n >= 1, by multiply-shift: bias below n / 2^64. */
uint64_t tm_random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n);
/* A stream number from a name ("layers.0.attention.wq.weight"): 64-bit FNV-1a. */
uint64_t tm_random_stream(const char *name);
/* The place of i in a seeded permutation of 0..n-1 (a Feistel network with cycle walking): O(1), no table. */
uint64_t tm_random_permute(uint64_t seed, uint64_t stream, uint64_t i, uint64_t n);

#endif
