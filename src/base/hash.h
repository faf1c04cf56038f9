/* SPDX-License-Identifier: Apache-2.0 */
/* base/hash.h - XXH3-64 (seed 0): finds damage, is no protection against malice. The value of a buffer is the same on
 * every machine and does not depend on how the bytes were cut into pieces.
 */
#ifndef TM_BASE_HASH_H
#define TM_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t tm_hash(const void *data, size_t bytes); /* data may be NULL when bytes is 0 */

/* The same value, piece by piece. A hasher can be used again after tm_hasher_restart. One thread per hasher. */
typedef struct tm_hasher tm_hasher;

tm_hasher *tm_hasher_create(void);               /* never NULL */
void       tm_hasher_destroy(tm_hasher *hasher); /* NULL is fine */
void       tm_hasher_restart(tm_hasher *hasher);
void       tm_hasher_add(tm_hasher *hasher, const void *data, size_t bytes);
uint64_t   tm_hasher_value(const tm_hasher *hasher); /* of everything added so far; more may be added */

#endif
