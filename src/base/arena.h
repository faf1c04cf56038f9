/* SPDX-License-Identifier: Apache-2.0 */
/* base/arena.h - small objects that die together (a graph, a configuration) are taken together and released once.
 *
 * This is not the arena of a step: that one is sized by graph/plan and taken from the device.
 */
#ifndef TM_BASE_ARENA_H
#define TM_BASE_ARENA_H

#include <stddef.h>

typedef struct tm_arena tm_arena;

/* Never NULL: running out of memory for small objects ends the program (exit 1) with a message. */
tm_arena *tm_arena_create(void);
void      tm_arena_destroy(tm_arena *arena); /* NULL is fine */

/* Zeroed, aligned to 16 bytes, valid until the arena is destroyed. */
void *tm_arena_take(tm_arena *arena, size_t bytes);
char *tm_arena_text(tm_arena *arena, const char *text);
char *tm_arena_text_n(tm_arena *arena, const char *text, size_t length);
char *tm_arena_format(tm_arena *arena, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* malloc, calloc and realloc that end the program (exit 1, with a message) instead of returning NULL. */
void *tm_alloc(size_t bytes);
void *tm_realloc(void *old, size_t bytes);

/* Calls of tm_alloc, tm_realloc and of arena blocks so far: a step must not move it. */
unsigned long long tm_alloc_count(void);

/* Grows *items (each `item_bytes`) so that index `count` exists; for "append" loops. */
void *tm_grow(void *items, size_t *capacity, size_t count, size_t item_bytes);

#endif
