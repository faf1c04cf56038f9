/* SPDX-License-Identifier: Apache-2.0 */
/* data/rows.h - files of records, one after another: lines of JSON, an array of JSON objects, parquet; private to this
 * room. What a file is, is seen by its content; .gz and .zst are unpacked. */
#ifndef TM_DATA_ROWS_H
#define TM_DATA_ROWS_H

#include "base/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tm_rows tm_rows;

/* `path` is a file, a pattern ("train-*.parquet"), or a folder: its files that end in .jsonl, .ndjson, .json, .parquet
 * (and .gz or .zst), by name. Of parquet the columns `wanted` (n) are read, those that hold texts, lists of texts or
 * lists of records of texts; of JSON all. TM_INVALID: there is no such file. */
TM_MUST_USE tm_status tm_rows_open(const char *path, const char *const *wanted, size_t n, tm_rows **out, tm_error *err);
/* The same from memory that outlives it. */
TM_MUST_USE tm_status tm_rows_parse(const char *name, const uint8_t *bytes, size_t size, const char *const *wanted,
                                    size_t n, tm_rows **out, tm_error *err);
void                  tm_rows_close(tm_rows *rows); /* NULL is fine */

/* The next row, an object that the caller releases; NULL behind the last. Blank lines are passed over. TM_FORMAT with
 * the place: not JSON, not UTF-8, not an object, damaged. */
TM_MUST_USE tm_status tm_rows_next(tm_rows *rows, json_t **row, tm_error *err);

/* Of the row that was read last: "'train.jsonl', line 7" or "'train.parquet', row 7". Valid until the next call. */
const char *tm_rows_place(tm_rows *rows);
/* Its number in its file, from 1: of lines of JSON the line. */
int64_t tm_rows_number(const tm_rows *rows);

#endif
