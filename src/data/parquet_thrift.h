/* SPDX-License-Identifier: Apache-2.0 */
/* data/parquet_thrift.h - the compact protocol of Thrift, as far as parquet's headers need it; private to this room.
 *
 * A struct is fields (difference of the number << 4 | kind), ended by a 0; numbers are varints, zigzag. Reading beyond
 * the end sets `bad`, and everything after it is 0. */
#ifndef TM_DATA_PARQUET_THRIFT_H
#define TM_DATA_PARQUET_THRIFT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct {
    const uint8_t *at, *end;
    bool           bad;
    int16_t        field; /* of the struct being read; begin one with 0 */
    int            kind;  /* of that field */
} tm_thrift;

enum {
    TM_THRIFT_TRUE = 1,
    TM_THRIFT_FALSE = 2,
    TM_THRIFT_BYTE = 3,
    TM_THRIFT_I16 = 4,
    TM_THRIFT_I32 = 5,
    TM_THRIFT_I64 = 6,
    TM_THRIFT_DOUBLE = 7,
    TM_THRIFT_BINARY = 8,
    TM_THRIFT_LIST = 9,
    TM_THRIFT_SET = 10,
    TM_THRIFT_MAP = 11,
    TM_THRIFT_STRUCT = 12
};

/* The next field of the struct; false at its end (or when bad). What it holds must be read or skipped. */
bool           tm_thrift_next(tm_thrift *t);
int64_t        tm_thrift_number(tm_thrift *t);                /* of I16, I32, I64 */
const uint8_t *tm_thrift_binary(tm_thrift *t, size_t *bytes); /* of BINARY */
size_t         tm_thrift_list(tm_thrift *t, int *kind);       /* of LIST: how many of which kind follow */
void           tm_thrift_skip(tm_thrift *t);                  /* whatever the field is */
void           tm_thrift_skip_kind(tm_thrift *t, int kind);   /* an element of a list */

#endif
