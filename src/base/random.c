/* SPDX-License-Identifier: Apache-2.0 */
#include "base/random.h"

#include "base/status.h"

#include <math.h>

__extension__ typedef unsigned __int128 u128;

static uint64_t mix64(uint64_t x) /* finaliser of splitmix64 */
{
    x ^= x >> 30;
    x *= 0xBF58476D1CE4E5B9u;
    x ^= x >> 27;
    x *= 0x94D049BB133111EBu;
    return x ^ x >> 31;
}

uint64_t tm_random_key(uint64_t seed)
{
    return mix64(seed + 0x9E3779B97F4A7C15u);
}

static void philox(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    uint64_t key = tm_random_key(seed);
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    uint32_t c[4] = { (uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream, (uint32_t)(stream >> 32) };
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c[0], p1 = (uint64_t)0xCD9E8D57u * c[2];
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c[1] ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c[3] ^ k1;
        c[1] = (uint32_t)p1;
        c[3] = (uint32_t)p0;
        c[0] = n0;
        c[2] = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < 4; i++) out[i] = c[i];
}

uint64_t tm_random_u64(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t r[4];
    philox(seed, stream, index, r);
    return (uint64_t)r[1] << 32 | r[0];
}

double tm_random_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    return (double)(tm_random_u64(seed, stream, index) >> 11) * 0x1p-53;
}

double tm_random_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t r[4];
    philox(seed, stream, index, r);
    double u = ((double)((((uint64_t)r[1] << 32) | r[0]) >> 11) + 1) * 0x1p-53; /* (0, 1] */
    double v = (double)((((uint64_t)r[3] << 32) | r[2]) >> 11) * 0x1p-53;
    return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

void tm_random_normal4(uint64_t seed, uint64_t stream, uint64_t block, float out[4])
{
    uint32_t r[4];
    philox(seed, stream, block, r);
    for (int pair = 0; pair < 2; pair++) {
        float u = ((float)(r[2 * pair] >> 8) + 0.5f) * 0x1p-24f; /* (0, 1) */
        float angle = (float)(r[2 * pair + 1] >> 8) * (6.2831853f * 0x1p-24f);
        float radius = sqrtf(-2.f * logf(u));
        out[2 * pair] = radius * cosf(angle);
        out[2 * pair + 1] = radius * sinf(angle);
    }
}

uint64_t tm_random_below(uint64_t seed, uint64_t stream, uint64_t index, uint64_t n)
{
    TM_ASSERT(n > 0);
    return (uint64_t)(((u128)tm_random_u64(seed, stream, index) * n) >> 64);
}

uint64_t tm_random_stream(const char *name)
{
    uint64_t h = 0xCBF29CE484222325u;
    for (const unsigned char *s = (const unsigned char *)name; *s; s++) h = (h ^ *s) * 0x100000001B3u;
    return h;
}

uint64_t tm_random_permute(uint64_t seed, uint64_t stream, uint64_t i, uint64_t n)
{
    TM_ASSERT(i < n);
    int half = 1;
    while (half < 32 && (uint64_t)1 << (2 * half) < n) half++;
    uint64_t mask = ((uint64_t)1 << half) - 1, key = mix64(seed ^ mix64(stream));
    do { /* a permutation of 0 .. 4^half - 1; values beyond n walk on along their cycle */
        uint64_t left = i >> half, right = i & mask;
        for (uint64_t round = 0; round < 6; round++) {
            uint64_t next = left ^ (mix64(right + mix64(key + round)) & mask);
            left = right;
            right = next;
        }
        i = left << half | right;
    } while (i >= n);
    return i;
}
