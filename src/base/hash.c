/* SPDX-License-Identifier: Apache-2.0 */
#include "base/hash.h"

#include "base/arena.h"
#include "base/status.h"

#include <stdlib.h>
#include <xxhash.h>

struct tm_hasher {
    XXH3_state_t *state; /* the library's, because its size differs between versions */
};

uint64_t tm_hash(const void *data, size_t bytes)
{
    return XXH3_64bits(bytes ? data : "", bytes);
}

tm_hasher *tm_hasher_create(void)
{
    tm_hasher *hasher = tm_alloc(sizeof *hasher);
    hasher->state = XXH3_createState();
    TM_ASSERT(hasher->state); /* half a kilobyte: without it nothing else works either */
    tm_hasher_restart(hasher);
    return hasher;
}

void tm_hasher_destroy(tm_hasher *hasher)
{
    if (!hasher) return;
    XXH3_freeState(hasher->state);
    free(hasher);
}

void tm_hasher_restart(tm_hasher *hasher)
{
    XXH3_64bits_reset(hasher->state);
}

void tm_hasher_add(tm_hasher *hasher, const void *data, size_t bytes)
{
    if (bytes > 0) XXH3_64bits_update(hasher->state, data, bytes);
}

uint64_t tm_hasher_value(const tm_hasher *hasher)
{
    return XXH3_64bits_digest(hasher->state);
}
