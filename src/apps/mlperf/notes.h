/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/notes.h - a list of sentences, for reports that name everything that is wrong. */
#ifndef TM_MLPERF_NOTES_H
#define TM_MLPERF_NOTES_H

#include "base/arena.h"

#include <stddef.h>

/* Zero-initialise; list and sentences live in the arena that they are added with. */
typedef struct {
    const char **items; /* (n) */
    size_t       n, room;
} tm_notes;

/* Control characters become '?': names come from other people's folders. */
void tm_notes_add(tm_notes *notes, tm_arena *arena, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
