/* SPDX-License-Identifier: Apache-2.0 */
/* data/parquet_footer.h - what the footer of a parquet file says: its columns and where their pages are; private to
 * this room. */
#ifndef TM_DATA_PARQUET_FOOTER_H
#define TM_DATA_PARQUET_FOOTER_H

#include "base/status.h"
#include "base/text.h"
#include "data/parquet_thrift.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A column as it is stored: a member of the top level, or something below one. */
typedef struct {
    char *column;      /* the name at the top level */
    char *member;      /* below a list of records: the member of a record; else "" */
    char *part;        /* below a list of records that is such a member: the member of one of those; else "" */
    char *field;       /* below a record outside of a list, one level deep: its member; else "" */
    int   index;       /* among all that are stored */
    bool  flat;        /* a value a row */
    bool  text;        /* its values are texts */
    int   definition;  /* highest level: a value is there */
    int   repetition;  /* highest level: 0, 1 below a list, 2 below a list in a list */
    int   list;        /* from this definition level on a list has an element; 0: no list */
    int   parts;       /* from this definition level on the list in it has one; 0: there is none in it */
    bool  out_of_form; /* other lists in lists, or a record outside of a list */
} tm_parquet_leaf;

typedef struct {
    tm_parquet_leaf *data;
    size_t           count, capacity;
    tm_text          names; /* of the top level: "id, text" */
} tm_parquet_leaves;

/* TM_FORMAT with `name`; *out is to be freed in any case. */
TM_MUST_USE tm_status tm_parquet_read_leaves(const char *name, const uint8_t *bytes, int64_t size,
                                             tm_parquet_leaves *out, tm_error *err);
void                  tm_parquet_leaves_fini(tm_parquet_leaves *leaves); /* a zeroed one is fine */

/* The pages of a column in one row group. */
typedef struct {
    int64_t begin, bytes, values, codec;
} tm_parquet_chunk;

typedef struct {
    tm_parquet_chunk *data;
    size_t            count, capacity;
} tm_parquet_chunks;

/* Those of leaf `index`, appended. TM_FORMAT, TM_UNSUPPORTED with `name`. */
TM_MUST_USE tm_status tm_parquet_read_chunks(const char *name, const uint8_t *bytes, int64_t size, int64_t index,
                                             tm_parquet_chunks *out, tm_error *err);

TM_MUST_USE tm_status tm_parquet_damaged(const char *name, const char *what, tm_error *err);
TM_MUST_USE tm_status tm_parquet_refuse(const char *name, const char *what, long long which, tm_error *err);
/* By its name in the format's definition, with what is read instead. */
TM_MUST_USE tm_status tm_parquet_refuse_codec(const char *name, int64_t codec, tm_error *err);
TM_MUST_USE tm_status tm_parquet_refuse_encoding(const char *name, int64_t encoding, tm_error *err);

/* A struct inside of the one being read, and back. */
tm_thrift tm_thrift_inner(const tm_thrift *t);
void      tm_thrift_leave(tm_thrift *t, const tm_thrift *inner);

enum { TM_PARQUET_UNCOMPRESSED = 0, TM_PARQUET_SNAPPY = 1, TM_PARQUET_GZIP = 2, TM_PARQUET_ZSTD = 6 };

#endif
