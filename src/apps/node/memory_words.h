/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/memory_words.h - patterns of words in memory, written and looked for. Private to the room. */
#ifndef TM_NODE_MEMORY_WORDS_H
#define TM_NODE_MEMORY_WORDS_H

#include <stddef.h>
#include <stdint.h>

/* What a word holds, by its number i: a hash of the seed and i, or its inverse (both: each bit was 0 and 1, and no two
 * places can be one); one bit that walks; every second bit, and the others; zeros; ones. */
typedef enum {
    TM_MEMORY_HASH,
    TM_MEMORY_INVERSE,
    TM_MEMORY_WALK,
    TM_MEMORY_EVEN,
    TM_MEMORY_ODD,
    TM_MEMORY_ZEROS,
    TM_MEMORY_ONES,
    TM_MEMORY_PATTERNS
} tm_memory_pattern;

/* What word i of a block holds. */
uint64_t tm_memory_word(uint64_t i, int pattern, uint64_t seed);
/* Fills words[n]. */
void tm_memory_fill(uint64_t *words, size_t n, int pattern, uint64_t seed);
/* How many of words[n] are not what tm_memory_fill wrote; *first_bad: the first of them. */
size_t tm_memory_check(const uint64_t *words, size_t n, int pattern, uint64_t seed, size_t *first_bad);
/* All words, xor'ed: reads them as fast as memory gives them. */
uint64_t tm_memory_read(const uint64_t *words, size_t n);

#endif
