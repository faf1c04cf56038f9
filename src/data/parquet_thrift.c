/* SPDX-License-Identifier: Apache-2.0 */
#include "data/parquet_thrift.h"

enum { MAX_DEPTH = 32 };

static uint8_t byte(tm_thrift *t)
{
    if (t->at < t->end) return *t->at++;
    t->bad = true;
    return 0;
}

static uint64_t varint(tm_thrift *t)
{
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        uint8_t b = byte(t);
        value |= (uint64_t)(b & 0x7F) << shift;
        if (b < 0x80) return value;
    }
    t->bad = true;
    return 0;
}

int64_t tm_thrift_number(tm_thrift *t)
{
    uint64_t value = varint(t);
    return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

bool tm_thrift_next(tm_thrift *t)
{
    uint8_t head = byte(t);
    if (t->bad || head == 0) return false;
    t->kind = head & 15;
    t->field = head >> 4 ? (int16_t)(t->field + (head >> 4)) : (int16_t)tm_thrift_number(t);
    if (t->kind > TM_THRIFT_STRUCT || t->kind == 0) t->bad = true;
    return !t->bad;
}

const uint8_t *tm_thrift_binary(tm_thrift *t, size_t *bytes)
{
    uint64_t n = varint(t);
    if (t->bad || n > (uint64_t)(t->end - t->at)) {
        t->bad = true;
        n = 0;
    }
    const uint8_t *p = t->at;
    t->at += n;
    *bytes = (size_t)n;
    return p;
}

size_t tm_thrift_list(tm_thrift *t, int *kind)
{
    uint8_t  head = byte(t);
    uint64_t n = head >> 4 == 15 ? varint(t) : head >> 4;
    *kind = head & 15;
    if (n > (uint64_t)(t->end - t->at)) t->bad = true; /* an element takes a byte at least */
    return t->bad ? 0 : (size_t)n;
}

static void skip(tm_thrift *t, int kind, int depth)
{
    size_t bytes, n;
    int    inner;
    if (depth > MAX_DEPTH) t->bad = true;
    if (t->bad) return;
    switch (kind) {
    case TM_THRIFT_TRUE:
    case TM_THRIFT_FALSE: /* of a field: in its head */
        return;
    case TM_THRIFT_BYTE:
        byte(t);
        return;
    case TM_THRIFT_I16:
    case TM_THRIFT_I32:
    case TM_THRIFT_I64:
        varint(t);
        return;
    case TM_THRIFT_DOUBLE:
        for (int i = 0; i < 8; i++) byte(t);
        return;
    case TM_THRIFT_BINARY:
        tm_thrift_binary(t, &bytes);
        return;
    case TM_THRIFT_LIST:
    case TM_THRIFT_SET:
        n = tm_thrift_list(t, &inner);
        for (size_t i = 0; i < n && !t->bad; i++) {
            if (inner <= TM_THRIFT_FALSE)
                byte(t);
            else
                skip(t, inner, depth + 1);
        }
        return;
    case TM_THRIFT_STRUCT: {
        int16_t field = t->field;
        t->field = 0;
        while (tm_thrift_next(t)) skip(t, t->kind, depth + 1);
        t->field = field;
        return;
    }
    default: /* maps: not in parquet's headers */
        t->bad = true;
    }
}

void tm_thrift_skip(tm_thrift *t)
{
    skip(t, t->kind, 0);
}

void tm_thrift_skip_kind(tm_thrift *t, int kind)
{
    skip(t, kind, 0);
}
