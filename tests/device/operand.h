/* SPDX-License-Identifier: Apache-2.0 */
/* tests/device/operand.h - an operand of a kernel between guards, with rows apart. */
#ifndef TM_TESTS_DEVICE_OPERAND_H
#define TM_TESTS_DEVICE_OPERAND_H

#include "support/test.h"

#include "graph/value.h"
#include "op/op.h"

enum { GUARD = 64 };

/* Element i lies at data[i / columns * pitch + i % columns]: rows are `columns` long and `pitch` apart. Gaps between
 * rows are filled and watched like the guards. */
typedef struct {
    tm_dtype       dtype;
    tm_shape       shape;
    int64_t        count, columns, pitch;
    size_t         bytes;          /* from the first to the last guard byte */
    unsigned char *memory, *image; /* what lies there, and what lay there before the run */
    unsigned char *data;           /* of `memory` */
    int            around;         /* the byte of guards and gaps */
} operand;

static int64_t place(const operand *o, int64_t i)
{
    return i / o->columns * o->pitch + i % o->columns;
}

static double value_of(const operand *o, int64_t i)
{
    return tm_value_get(o->data, o->dtype, place(o, i));
}

static size_t bytes_of(tm_dtype dtype, int64_t n)
{
    return ((size_t)n * tm_dtype_bits(dtype) + 7) / 8;
}

/* `shift` elements past an aligned address, whole bytes. around: 0xff is NaN in every format. */
static operand operand_new(tm_dtype dtype, tm_shape shape, int gap, int shift, int around)
{
    operand o = { .dtype = dtype, .shape = shape, .count = tm_shape_elements(shape), .around = around };
    size_t  before = GUARD + bytes_of(dtype, tm_dtype_bits(dtype) < 8 ? 2 * shift : shift);
    o.columns = shape.rank > 0 && shape.n[shape.rank - 1] > 0 ? shape.n[shape.rank - 1] : 1;
    o.pitch = o.columns + gap;
    o.bytes = before + bytes_of(dtype, o.count / o.columns * o.pitch) + GUARD;
    o.memory = malloc(o.bytes);
    o.image = malloc(o.bytes);
    assert_true(o.memory && o.image);
    o.data = o.memory + before;
    memset(o.image, around, o.bytes);
    return o;
}

static void *image_data(const operand *o)
{
    return o->image + (o->data - o->memory);
}

/* values NULL: NaN */
static void operand_fill(operand *o, const double *values)
{
    for (int64_t r = 0; !values && r < o->count / o->columns; r++)
        memset((char *)image_data(o) + bytes_of(o->dtype, r * o->pitch), 0xff, bytes_of(o->dtype, o->columns));
    for (int64_t r = 0, i = 0; values && i < o->count; r++)
        for (int64_t c = 0; c < o->columns; c++, i++)
            tm_value_set(image_data(o), o->dtype, r * o->pitch + c, values[i]);
}

static void operand_free(operand *o)
{
    free(o->memory), free(o->image);
    *o = (operand){ .memory = NULL };
}

/* Nothing but elements has changed. */
static bool operand_guarded(const operand *o)
{
    size_t row = bytes_of(o->dtype, o->columns), pitch = bytes_of(o->dtype, o->pitch);
    size_t begin = (size_t)(o->data - o->memory), end = o->bytes - GUARD;
    for (size_t at = 0; at < o->bytes; at++) {
        if (at >= begin && at < end && (at - begin) % pitch < row) {
            at += row - 1 - (at - begin) % pitch;
            continue;
        }
        if (o->memory[at] != o->around) return false;
    }
    return true;
}

static tm_view operand_view(const operand *o)
{
    if (!o->memory) return tm_view_absent();
    return (
        tm_view){ .dtype = o->dtype, .shape = o->shape, .data = o->data, .ld = o->pitch > o->columns ? o->pitch : 0 };
}

#endif
