/* SPDX-License-Identifier: Apache-2.0 */
/* data/parquet.h - columns of texts of a parquet file, row by row; private to this room.
 *
 * Read: BYTE_ARRAY columns, required or optional, flat or of a list (of texts, or of records); data pages 1 and 2;
 * encodings PLAIN, PLAIN_DICTIONARY, RLE_DICTIONARY, DELTA_LENGTH_BYTE_ARRAY; codecs UNCOMPRESSED, SNAPPY, GZIP, ZSTD.
 * Anything else is TM_UNSUPPORTED by its name. */
#ifndef TM_DATA_PARQUET_H
#define TM_DATA_PARQUET_H

#include "base/status.h"
#include "data/parquet_footer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tm_parquet tm_parquet;

/* Reads the footer and finds a flat column. TM_INVALID: unreadable or no such column (those that are there are named);
 * TM_FORMAT: damaged; TM_UNSUPPORTED. */
TM_MUST_USE tm_status tm_parquet_open(const char *path, const char *column, tm_parquet **out, tm_error *err);
/* The same from memory that outlives it. */
TM_MUST_USE tm_status tm_parquet_parse(const char *name, const uint8_t *bytes, int64_t size, const char *column,
                                       tm_parquet **out, tm_error *err);
/* The text of the next row that has one (nulls are passed over), valid until the next call; *more is false behind the
 * last. */
TM_MUST_USE tm_status tm_parquet_next(tm_parquet *parquet, const char **text, size_t *bytes, bool *more, tm_error *err);
/* The next value is the first of a row group. */
void    tm_parquet_seek(tm_parquet *parquet, size_t group);
int64_t tm_parquet_place(const tm_parquet *parquet); /* in the file */
void    tm_parquet_close(tm_parquet *parquet);       /* NULL is fine */

/* A column as it is stored, of tm_parquet_read_leaves, from memory that outlives it. Of one that is no texts, or out of
 * form, values are "" where they are there. */
TM_MUST_USE tm_status tm_parquet_parse_leaf(const char *name, const uint8_t *bytes, int64_t size,
                                            const tm_parquet_leaf *leaf, tm_parquet **out, tm_error *err);

/* Of a stored column: a null, a text, or an empty list. */
typedef struct {
    int         repetition; /* 0: the first of a row */
    int         definition; /* against tm_parquet_leaf: is there an element, is there a text? */
    const char *text;       /* NULL: none; valid until the next call */
    size_t      bytes;
} tm_parquet_value;
TM_MUST_USE tm_status tm_parquet_next_value(tm_parquet *parquet, tm_parquet_value *out, bool *more, tm_error *err);

#endif
