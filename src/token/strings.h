/* SPDX-License-Identifier: Apache-2.0 */
/* token/strings.h - tables of a tokenizer: text to id, and pairs of ids to what they join to. Filled once, then
 * constant. Private to this room. */
#ifndef TM_TOKEN_STRINGS_H
#define TM_TOKEN_STRINGS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef struct {
    const char *bytes; /* NULL: a free place */
    uint32_t    length, hash;
    int32_t     id;
} tm_string;

typedef struct {
    tm_string *places; /* size is 0 or a power of two, at most half of them used */
    size_t     size, count;
} tm_strings;

static inline uint64_t tm_mix(uint64_t a, uint64_t b)
{
    uint64_t h = (a ^ 0x9E3779B97F4A7C15u) * (b ^ 0xD6E8FEB86659FD93u);
    return h ^ h >> 29;
}

/* Of short strings, many times: eight bytes a turn. */
static inline uint64_t tm_short_hash(const char *bytes, size_t n)
{
    uint64_t h = n, part;
    while (n >= 8) {
        memcpy(&part, bytes, 8);
        h = tm_mix(h ^ part, 0xA0761D6478BD642Fu);
        bytes += 8;
        n -= 8;
    }
    part = 0;
    for (size_t i = 0; i < n; i++) part |= (uint64_t)(unsigned char)bytes[i] << 8 * i;
    h = tm_mix(h ^ part, 0xE7037ED1A0B428DBu);
    return h ^ h >> 32;
}

/* The bytes stay the caller's and must outlive the table. A string that is there gets the new id; returns the old, or
 * -1. */
int32_t tm_strings_put(tm_strings *strings, const char *bytes, size_t n, int32_t id);
int32_t tm_strings_get(const tm_strings *strings, const char *bytes, size_t n); /* -1: not there */
void    tm_strings_fini(tm_strings *strings);

typedef struct {
    uint64_t key; /* left << 32 | right; TM_NO_PAIR: a free place */
    uint32_t rank;
    int32_t  id;
} tm_pair;

typedef struct {
    tm_pair *places;
    size_t   size, count;
} tm_pairs;

#define TM_NO_PAIR UINT64_MAX
#define TM_NO_RANK UINT32_MAX

static inline uint64_t tm_pair_key(int32_t left, int32_t right)
{
    return (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
}

static inline size_t tm_pair_place(uint64_t key)
{
    uint64_t h = key * 0x9E3779B97F4A7C15u;
    h = (h ^ h >> 32) * 0xD6E8FEB86659FD93u;
    return (size_t)(h >> 20);
}

/* NULL: they do not join. */
static inline const tm_pair *tm_pairs_get(const tm_pairs *pairs, int32_t left, int32_t right)
{
    uint64_t key = tm_pair_key(left, right);
    for (size_t i = tm_pair_place(key) & (pairs->size - 1);; i = (i + 1) & (pairs->size - 1)) {
        if (pairs->places[i].key == key) return &pairs->places[i];
        if (pairs->places[i].key == TM_NO_PAIR) return NULL;
    }
}

void tm_pairs_init(tm_pairs *pairs); /* an empty table can be asked */
/* A pair that is there gets the new rank and id. */
void tm_pairs_put(tm_pairs *pairs, int32_t left, int32_t right, uint32_t rank, int32_t id);
void tm_pairs_fini(tm_pairs *pairs);

#endif
