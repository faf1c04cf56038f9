/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/memory_words.c - patterns of words in memory, written and looked for. */
#include "apps/node/memory_words.h"

/* The finalizer of MurmurHash3 (A. Appleby, public domain), which maps words one to one. */
static uint64_t mix(uint64_t x)
{
    x ^= x >> 33, x *= 0xff51afd7ed558ccdu;
    x ^= x >> 33, x *= 0xc4ceb9fe1a85ec53u;
    return x ^ x >> 33;
}

uint64_t tm_memory_word(uint64_t i, int pattern, uint64_t seed)
{
    switch ((tm_memory_pattern)pattern) {
    case TM_MEMORY_HASH:
        return mix(i + seed);
    case TM_MEMORY_INVERSE:
        return ~mix(i + seed);
    case TM_MEMORY_WALK:
        return UINT64_C(1) << (i + seed) % 64;
    case TM_MEMORY_EVEN:
        return 0x5555555555555555u;
    case TM_MEMORY_ODD:
        return 0xaaaaaaaaaaaaaaaau;
    case TM_MEMORY_ONES:
        return ~UINT64_C(0);
    case TM_MEMORY_ZEROS:
    case TM_MEMORY_PATTERNS:
        break;
    }
    return 0;
}

void tm_memory_fill(uint64_t *words, size_t n, int pattern, uint64_t seed)
{
    for (size_t i = 0; i < n; i++) words[i] = tm_memory_word(i, pattern, seed);
}

size_t tm_memory_check(const uint64_t *words, size_t n, int pattern, uint64_t seed, size_t *first_bad)
{
    size_t bad = 0;
    for (size_t i = 0; i < n; i++)
        if (words[i] != tm_memory_word(i, pattern, seed) && bad++ == 0) *first_bad = i;
    return bad;
}

uint64_t tm_memory_read(const uint64_t *words, size_t n)
{
    uint64_t sum[4] = { 0 };
    size_t   i = 0;
    for (; i + 4 <= n; i += 4)
        for (size_t k = 0; k < 4; k++) sum[k] ^= words[i + k];
    for (; i < n; i++) sum[0] ^= words[i];
    return sum[0] ^ sum[1] ^ sum[2] ^ sum[3];
}
