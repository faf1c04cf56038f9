/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/rounding.h - float32 to bfloat16 by chance: x between two neighbours a < x < b becomes b with the
 * probability (x - a) / (b - a), so that the mean of many roundings is x. 16 random bits are added below the bits that
 * stay, and the sum is cut off.
 *
 * The bits are f(key, element): a hash of 32 bits of the element's index and the key, which is made of seed, step and
 * tensor. Neither threads nor the order of elements matter.
 */
#ifndef TM_DEVICE_CPU_ROUNDING_H
#define TM_DEVICE_CPU_ROUNDING_H

#include "base/random.h"
#include "device/cpu/simd/common.h"
#include "op/attrs.h"

/* on == false: to nearest even. */
typedef struct {
    bool     on;
    uint32_t low, high;
} tm_chance;

/* The chance of a call: `scalars` are those of the step. */
TM_INLINE tm_chance tm_chance_of(tm_rounding_stream stream, const double *scalars)
{
    if (stream == 0) return (tm_chance){ .on = false };
    uint64_t key = tm_random_u64((uint64_t)scalars[TM_SCALAR_ROUNDING], (uint64_t)stream, 0);
    return (tm_chance){ .on = true, .low = (uint32_t)key, .high = (uint32_t)(key >> 32) };
}

/* The finalizer of MurmurHash3: every bit of x moves every bit of the result. */
TM_INLINE uint32_t tm_mix32(uint32_t x)
{
    x ^= x >> 16;
    x *= 0x85ebca6bu;
    x ^= x >> 13;
    x *= 0xc2b2ae35u;
    return x ^ x >> 16;
}

/* Random words of elements i .. i + 15; `which`: independent ones of the same elements. */
TM_INLINE void tm_chance_lanes(const tm_chance *chance, uint32_t which, int64_t i, uint32_t out[TM_LANES])
{
    uint32_t high = (uint32_t)((uint64_t)i >> 32), salt = chance->high + which * 0x9e3779b9u;
    uint32_t far = tm_mix32(high + salt), beyond = tm_mix32(high + 1 + salt);
    uint32_t low = (uint32_t)i,
             left = UINT32_MAX - low; /* lanes behind the first one before the low half begins anew */
    for (uint32_t l = 0; l < TM_LANES; l++)
        out[l] = tm_mix32(tm_mix32((low + l) ^ chance->low) + (l > left ? beyond : far));
}

/* v16_put, by chance where the format is bfloat16; `words` of tm_chance_lanes, shifted down by `shift`. Infinity and
 * NaN stay what they are. */
TM_INLINE void tm_put_by_chance(void *p, tm_dtype dtype, int64_t i, v16 x, int64_t n, const uint32_t words[TM_LANES],
                                int shift)
{
    uint32_t u[TM_LANES];
    float    f[TM_LANES];
    if (dtype != TM_BF16) {
        v16_put(p, dtype, i, x, n);
        return;
    }
    v16_store(f, x);
    memcpy(u, f, sizeof u);
    for (int l = 0; l < TM_LANES; l++) {
        bool number = (u[l] & 0x7f800000u) != 0x7f800000u;
        u[l] = (number ? u[l] + (words[l] >> shift & 0xffffu) : u[l]) & 0xffff0000u;
    }
    memcpy(f, u, sizeof f);
    v16_put(p, dtype, i, v16_load(f), n); /* exact */
}

/* n elements from i on, by chance if that is on, with the words of stream 0 from bit `shift` on, otherwise to the
 * nearest. */
TM_INLINE void tm_put_rounded(const tm_chance *chance, void *p, tm_dtype dtype, int64_t i, v16 x, int64_t n, int shift)
{
    uint32_t words[TM_LANES];
    if (!chance->on) {
        v16_put(p, dtype, i, x, n);
        return;
    }
    tm_chance_lanes(chance, 0, i, words);
    tm_put_by_chance(p, dtype, i, x, n, words, shift);
}

#endif
