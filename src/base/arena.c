/* SPDX-License-Identifier: Apache-2.0 */
#include "base/arena.h"

#include "base/status.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 64 * 1024, ALIGN = 16 };

typedef struct block {
    struct block *next;
    size_t        used, size; /* bytes of payload behind the header */
} block;

struct tm_arena {
    block *head;
};

static atomic_ullong alloc_count;

unsigned long long tm_alloc_count(void)
{
    return atomic_load(&alloc_count);
}

void *tm_realloc(void *old, size_t bytes)
{
    atomic_fetch_add(&alloc_count, 1);
    void *p = realloc(old, bytes ? bytes : 1);
    if (!p) {
        fprintf(stderr, "trainmark: out of memory: cannot allocate %zu bytes\n", bytes);
        exit(tm_status_exit_code(TM_INTERNAL));
    }
    return p;
}

void *tm_alloc(size_t bytes)
{
    void *p = tm_realloc(NULL, bytes);
    memset(p, 0, bytes);
    return p;
}

void *tm_grow(void *items, size_t *capacity, size_t count, size_t item_bytes)
{
    if (count < *capacity) return items;
    *capacity = *capacity ? *capacity * 2 : 16;
    if (*capacity <= count) *capacity = count + 1;
    TM_ASSERT(*capacity <= SIZE_MAX / item_bytes);
    return tm_realloc(items, *capacity * item_bytes);
}

tm_arena *tm_arena_create(void)
{
    return tm_alloc(sizeof(tm_arena));
}

void tm_arena_destroy(tm_arena *arena)
{
    if (!arena) return;
    for (block *b = arena->head; b;) {
        block *next = b->next;
        free(b);
        b = next;
    }
    free(arena);
}

void *tm_arena_take(tm_arena *arena, size_t bytes)
{
    const size_t header = (sizeof(block) + ALIGN - 1) / ALIGN * ALIGN;
    TM_ASSERT(bytes < SIZE_MAX / 2);
    bytes = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    if (!arena->head || arena->head->size - arena->head->used < bytes) {
        size_t size = bytes > BLOCK_BYTES ? bytes : BLOCK_BYTES;
        block *b = tm_realloc(NULL, header + size);
        *b = (block){ .next = arena->head, .used = 0, .size = size };
        arena->head = b;
    }
    char *p = (char *)arena->head + header + arena->head->used;
    arena->head->used += bytes;
    memset(p, 0, bytes);
    return p;
}

char *tm_arena_text_n(tm_arena *arena, const char *text, size_t length)
{
    char *p = tm_arena_take(arena, length + 1);
    memcpy(p, text, length);
    return p;
}

char *tm_arena_text(tm_arena *arena, const char *text)
{
    return tm_arena_text_n(arena, text, strlen(text));
}

char *tm_arena_format(tm_arena *arena, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, format, args);
    va_end(args);
    TM_ASSERT(n >= 0);
    char *p = tm_arena_take(arena, (size_t)n + 1);
    vsnprintf(p, (size_t)n + 1, format, again);
    va_end(again);
    return p;
}
