/* SPDX-License-Identifier: Apache-2.0 */
/* base/random.h - random values are f(seed, stream, index), never "the next one": threads, ranks and resuming do not
 * change them. Philox-4x32-10 (Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3"): the key is the
 * seed mixed with the stream, the counter is the index.
 */
#ifndef TM_BASE_RANDOM_H
#define TM_BASE_RANDOM_H

#include <stdint.h>

/* What Philox has of a seed, for kernels that count themselves; the counter is the index, then the stream. */
uint64_t tm_random_key(uint64_t seed);
uint64_t tm_random_u64(uint64_t seed, uint64_t stream, uint64_t index);
/* The key that a seed becomes, for those who compute Philox themselves: kernels of GPUs. */
uint64_t tm_random_key(uint64_t seed);
/* Uniform in [0, 1), a multiple of 2^-53. */
double tm_random_uniform(uint64_t seed, uint64_t stream, uint64_t index);
/* Standard normal, by Box-Muller on the four words of one counter. */
double tm_random_normal(uint64_t seed, uint64_t stream, uint64_t index);
/* Four standard normals in single precision from one counter: element i of a tensor is lane i % 4 of block i / 4. Not
 * the values of tm_random_normal; several times faster, for the initial values of large models. */
void tm_random_normal4(uint64_t seed, uint64_t stream, uint64_t block, float out[4]);
/* Uniform integer in [0, n), n >= 1, by multiply-shift: bias below n / 2^64. */
uint64_t tm_random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n);
/* A stream number from a name ("layers.0.attention.wq.weight"): 64-bit FNV-1a. */
uint64_t tm_random_stream(const char *name);
/* The place of i in a seeded permutation of 0..n-1 (a Feistel network with cycle walking): O(1), no table. */
uint64_t tm_random_permute(uint64_t seed, uint64_t stream, uint64_t i, uint64_t n);

#endif
