/* SPDX-License-Identifier: Apache-2.0 */
#include "token/strings.h"

#include "base/arena.h"

#include <stdlib.h>

static tm_string *place_of(tm_string *places, size_t size, const char *bytes, size_t n, uint32_t hash)
{
    size_t i = hash & (size - 1);
    while (places[i].bytes &&
           !(places[i].hash == hash && places[i].length == n && memcmp(places[i].bytes, bytes, n) == 0))
        i = (i + 1) & (size - 1);
    return &places[i];
}

static void grow_strings(tm_strings *s)
{
    size_t     size = s->size ? 2 * s->size : 1024;
    tm_string *places = tm_alloc(size * sizeof *places);
    for (size_t i = 0; i < s->size; i++)
        if (s->places[i].bytes) {
            const tm_string *old = &s->places[i];
            *place_of(places, size, old->bytes, old->length, old->hash) = *old;
        }
    free(s->places);
    s->places = places;
    s->size = size;
}

int32_t tm_strings_put(tm_strings *strings, const char *bytes, size_t n, int32_t id)
{
    if (2 * (strings->count + 1) > strings->size) grow_strings(strings);
    uint32_t   hash = (uint32_t)tm_short_hash(bytes, n);
    tm_string *place = place_of(strings->places, strings->size, bytes, n, hash);
    int32_t    old = place->bytes ? place->id : -1;
    if (!place->bytes) {
        *place = (tm_string){ bytes, (uint32_t)n, hash, id };
        strings->count++;
    }
    place->id = id;
    return old;
}

int32_t tm_strings_get(const tm_strings *strings, const char *bytes, size_t n)
{
    if (strings->size == 0 || n > UINT32_MAX) return -1;
    const tm_string *place = place_of(strings->places, strings->size, bytes, n, (uint32_t)tm_short_hash(bytes, n));
    return place->bytes ? place->id : -1;
}

void tm_strings_fini(tm_strings *strings)
{
    free(strings->places);
    *strings = (tm_strings){ 0 };
}

static void make_places(tm_pairs *pairs, size_t size)
{
    pairs->places = tm_realloc(NULL, size * sizeof *pairs->places);
    for (size_t i = 0; i < size; i++) pairs->places[i] = (tm_pair){ .key = TM_NO_PAIR };
    pairs->size = size;
}

void tm_pairs_init(tm_pairs *pairs)
{
    pairs->count = 0;
    make_places(pairs, 16);
}

static tm_pair *pair_place(tm_pairs *pairs, uint64_t key)
{
    size_t i = tm_pair_place(key) & (pairs->size - 1);
    while (pairs->places[i].key != key && pairs->places[i].key != TM_NO_PAIR) i = (i + 1) & (pairs->size - 1);
    return &pairs->places[i];
}

void tm_pairs_put(tm_pairs *pairs, int32_t left, int32_t right, uint32_t rank, int32_t id)
{
    if (2 * (pairs->count + 1) > pairs->size) {
        tm_pairs old = *pairs;
        make_places(pairs, 2 * old.size);
        for (size_t i = 0; i < old.size; i++)
            if (old.places[i].key != TM_NO_PAIR) *pair_place(pairs, old.places[i].key) = old.places[i];
        free(old.places);
    }
    uint64_t key = tm_pair_key(left, right);
    tm_pair *place = pair_place(pairs, key);
    if (place->key == TM_NO_PAIR) pairs->count++;
    *place = (tm_pair){ key, rank, id };
}

void tm_pairs_fini(tm_pairs *pairs)
{
    free(pairs->places);
    *pairs = (tm_pairs){ 0 };
}
