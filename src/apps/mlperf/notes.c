/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/mlperf/notes.h"

#include "base/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void tm_notes_add(tm_notes *notes, tm_arena *arena, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    size_t length = (size_t)vsnprintf(NULL, 0, format, args);
    va_end(args);
    char *text = tm_arena_take(arena, length + 1);
    va_start(args, format);
    vsnprintf(text, length + 1, format, args);
    va_end(args);
    for (char *c = text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = '?';
    if (notes->n == notes->room) { /* what is left behind dies with the arena */
        size_t       room = notes->room ? 2 * notes->room : 8;
        const char **items = tm_arena_take(arena, room * sizeof *items);
        if (notes->n > 0) memcpy(items, notes->items, notes->n * sizeof *items);
        notes->items = items;
        notes->room = room;
    }
    notes->items[notes->n++] = text;
}
