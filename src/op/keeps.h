/* SPDX-License-Identifier: Apache-2.0 */
/* op/keeps.h - which elements dropout keeps: the same for its reference and for every kernel. */
#ifndef TM_OP_KEEPS_H
#define TM_OP_KEEPS_H

#include "base/random.h"
#include "op/attrs.h"

#include <stdbool.h>

/* The number of row r of `rows` among those of all ranks that have parts of the same sequences. */
static inline uint64_t tm_dropout_row(const tm_dropout_attr *attr, int64_t rows, int64_t r)
{
    if (attr->parts > 1) r += attr->part * rows, rows *= attr->parts;
    if (attr->chunk == 0) return (uint64_t)r;
    int64_t half = rows / 2, at = r % half, first = r < half ? attr->first : attr->second;
    return (uint64_t)(at / attr->chunk * attr->seq + first + at % attr->chunk);
}

/* The number of column c of a row among the elements of all rows. */
static inline uint64_t tm_dropout_element(const tm_dropout_attr *attr, uint64_t row, int64_t columns, int64_t c)
{
    return row * (uint64_t)(attr->width > 0 ? attr->width : columns) + (uint64_t)(attr->column + c);
}

/* Two elements share 64 random bits. */
static inline bool tm_dropout_keeps(const tm_dropout_attr *attr, uint64_t element)
{
    uint64_t bits = tm_random_u64(attr->seed, attr->stream, element / 2);
    uint32_t own = (uint32_t)(element % 2 ? bits >> 32 : bits);
    return (double)own * 0x1p-32 >= attr->rate;
}

#endif
