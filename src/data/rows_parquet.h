/* SPDX-License-Identifier: Apache-2.0 */
/* data/rows_parquet.h - rows of a parquet file as JSON objects; private to this room. */
#ifndef TM_DATA_ROWS_PARQUET_H
#define TM_DATA_ROWS_PARQUET_H

#include "base/status.h"

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tm_parquet_rows tm_parquet_rows;

/* From memory that outlives it; columns that are not wanted, or hold no texts, are left out. TM_FORMAT,
 * TM_UNSUPPORTED. */
TM_MUST_USE tm_status tm_parquet_rows_open(const char *name, const uint8_t *bytes, int64_t size,
                                           const char *const *wanted, size_t n, tm_parquet_rows **out, tm_error *err);
/* The next row, or NULL: a member for each column, null, a text, an array of texts or an array of objects. */
TM_MUST_USE tm_status tm_parquet_rows_next(tm_parquet_rows *rows, json_t **row, tm_error *err);
void                  tm_parquet_rows_close(tm_parquet_rows *rows); /* NULL is fine */

#endif
