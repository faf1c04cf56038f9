/* SPDX-License-Identifier: Apache-2.0 */
/* token/charsmap.h - the normalization that a SentencePiece model brings with it (precompiled_charsmap): a double array
 * of strings (Aoe 1989) whose values are places in a list of replacements. Private to this room.
 *
 *   bytes 0-3   size of the array in bytes, little-endian, a multiple of 1024
 *   units       32 bits: a leaf's value in bits 0-30; else label bits 0-7 (and 31), bit 8: a leaf hangs here,
 *               bit 9: offset is shifted by 8, offset from bit 10 on
 *   then        replacements, each ended by a NUL
 */
#ifndef TM_TOKEN_CHARSMAP_H
#define TM_TOKEN_CHARSMAP_H

#include "base/arena.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tm_charsmap tm_charsmap;

/* The bytes are copied into the arena, where *out lives. TM_FORMAT. */
TM_MUST_USE tm_status tm_charsmap_read(tm_arena *arena, const uint8_t *bytes, size_t size, const char *name,
                                       tm_charsmap **out, tm_error *err);

/* What replaces a beginning of text[0..n), *bytes long; NULL: none is replaced. *used is how much of the text it stands
 * for: of the longest such beginning, or (`shortest`) of the shortest. */
const char *tm_charsmap_find(const tm_charsmap *map, const char *text, size_t n, bool shortest, size_t *used,
                             size_t *bytes);

#endif
