/* SPDX-License-Identifier: Apache-2.0 */
/* base/json_input.h - JSON as other programs write it.
 *
 * Python's json module writes and reads what the standard does not have, and what jansson refuses wherever it stands:
 * NaN and Infinity (here null), integers beyond 64 bits (here numbers with a fraction), numbers beyond 1e308 (null) and
 * half a surrogate pair ("\ud83d"). What nobody reads must not matter, so these are read, too.
 */
#ifndef TM_BASE_JSON_INPUT_H
#define TM_BASE_JSON_INPUT_H

#include "base/arena.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

/* As json_loadb, with these flags; NULL: it is no JSON even so, *error says where. In values half a surrogate pair is
 * the three bytes that it would have, which are no UTF-8. */
json_t *tm_json_input(const char *bytes, size_t size, size_t flags, json_error_t *error);
/* The same of a file; NULL with error->line -1: it cannot be read. */
json_t *tm_json_input_file(const char *path, size_t flags, json_error_t *error);
/* What is wrong with a text for those who read it: half a surrogate pair, or ("\u0000", where `nul` does not allow it)
 * an end in the middle. In words for behind its name; NULL: nothing. */
const char *tm_json_text_problem(const json_t *text, bool nul);

/* A value as text: numbers in their shortest form, objects and lists as "{...}", "[]". Of the value or of the arena. */
const char *tm_json_value_text(tm_arena *arena, const json_t *value);

#endif
