/* SPDX-License-Identifier: Apache-2.0 */
/* data/parquet.h - one column of texts of a parquet file, row by row; private to this room.
 *
 * Read: BYTE_ARRAY columns, flat, required or optional; data pages 1 and 2; encodings PLAIN, PLAIN_DICTIONARY,
 * RLE_DICTIONARY, DELTA_LENGTH_BYTE_ARRAY; codecs UNCOMPRESSED, SNAPPY, GZIP, ZSTD. Anything else is TM_UNSUPPORTED by
 * its name. */
#ifndef TM_DATA_PARQUET_H
#define TM_DATA_PARQUET_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tm_parquet tm_parquet;

/* Reads the footer and finds the column. TM_INVALID: unreadable or no such column (those that are there are named);
 * TM_FORMAT: damaged; TM_UNSUPPORTED. */
TM_MUST_USE tm_status tm_parquet_open(const char *path, const char *column, tm_parquet **out, tm_error *err);
/* The same from memory that outlives it. */
TM_MUST_USE tm_status tm_parquet_parse(const char *name, const uint8_t *bytes, int64_t size, const char *column,
                                       tm_parquet **out, tm_error *err);
/* The text of the next row that has one (nulls are passed over), valid until the next call; *more is false behind the
 * last. */
TM_MUST_USE tm_status tm_parquet_next(tm_parquet *parquet, const char **text, size_t *bytes, bool *more, tm_error *err);
int64_t               tm_parquet_place(const tm_parquet *parquet); /* in the file */
void                  tm_parquet_close(tm_parquet *parquet);       /* NULL is fine */

#endif
