/* SPDX-License-Identifier: Apache-2.0 */
/* base/json.h - a JSON writer. Reading is jansson's job.
 *
 * Numbers are printed shortest-round-trip; nan and infinities, which JSON lacks, become null.
 * Keys and nesting are the caller's duty; commas and escapes are the writer's.
 *
 *     tm_json j = { .out = &text };
 *     tm_json_open(&j, NULL, '{');
 *     tm_json_i64(&j, "step", 3);
 *     tm_json_close(&j, '}');
 */
#ifndef TM_BASE_JSON_H
#define TM_BASE_JSON_H

#include "base/text.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    tm_text *out;
    bool     indent; /* one member per line */
    int      depth;
    bool     follows; /* a member was written at this depth: a comma is due */
} tm_json;

/* `key` is NULL inside an array and at the top. */
void tm_json_open(tm_json *json, const char *key, char bracket);        /* '{' or '[' */
void tm_json_close(tm_json *json, char bracket);                        /* '}' or ']' */
void tm_json_string(tm_json *json, const char *key, const char *value); /* NULL value becomes null */
void tm_json_i64(tm_json *json, const char *key, int64_t value);
void tm_json_f64(tm_json *json, const char *key, double value);
void tm_json_bool(tm_json *json, const char *key, bool value);

/* Appends `string` quoted and escaped; bytes that are not UTF-8 become U+FFFD. */
void tm_json_quote(tm_text *out, const char *string);

#endif
