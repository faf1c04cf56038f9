/* SPDX-License-Identifier: Apache-2.0 */
/* The microscope's records on the devices cuda and hip: what is infinite, no number or zero is counted where the double
 * reference counts it, sums of small whole numbers are exact, and other rows of the record stay as they were. */
#include "gpu/called.h"
#include "gpu/emulated.h"
#include "graph/value.h"
#include "op/compare.h"

#include "support/test.h"

enum { ROWS = 37, COLUMNS = 41, GAP = 3, LD = COLUMNS + GAP, RECORDS = 3 };

/* Element (r, c) of either tensor; every fifth is special. */
static double value_of(int which, int64_t r, int64_t c)
{
    static const double special[2][11] = { { 0, 0, 1, INFINITY, -INFINITY, NAN, 2, 0x1p-60, -0x1p-48, 0x1p15, -0x1p20 },
                                           { 0, 5, 0, 1, INFINITY, -2, NAN, 0, -0x1p-48, 0x1p15, -0x1p20 } };
    int64_t             i = r * COLUMNS + c;
    return i % 5 == 2 ? special[which][i / 5 % 11] : (double)(i * (which ? 7 : 3) % 11 - 5);
}

/* Rows of a tensor, with no numbers between them. */
static char *image_of(const tm_view *view, int which)
{
    char *image = memset(malloc(called_bytes(view)), 0xff, called_bytes(view));
    for (int64_t i = 0; i < (int64_t)ROWS * COLUMNS; i++)
        tm_value_set(image, view->dtype, i / COLUMNS * LD + i % COLUMNS, value_of(which, i / COLUMNS, i % COLUMNS));
    return image;
}

static void counts_as_the_reference(const char *name)
{
    static const tm_compare_attr attr = { .row = 1, .rows = RECORDS };
    static double                values[2][ROWS * COLUMNS], wanted[RECORDS][TM_COMPARED];
    if (!emulated_device(name)) skip();
    tm_device *device = emulated_open(name);
    for (int which = 0; which < 2; which++) {
        tm_shape shape = tm_shape_2(ROWS, COLUMNS), of_record = tm_shape_2(RECORDS, TM_COMPARED);
        tm_dtype formats[2] = { which ? TM_BF16 : TM_F32, which ? TM_F32 : TM_BF16 };
        tm_call  reference = { .op = &tm_op_compare, .attr = &attr }, call = reference;
        char    *image[TM_MAX_IN + TM_MAX_OUT] = { NULL }, *out[TM_MAX_OUT];
        for (int k = 0; k < TM_MAX_IN; k++) call.in[k].shape.rank = -1;
        for (int k = 0; k < TM_MAX_OUT; k++) call.out[k].shape.rank = -1;
        for (int k = 0; k < 2; k++) {
            for (int64_t i = 0; i < (int64_t)ROWS * COLUMNS; i++) values[k][i] = value_of(k, i / COLUMNS, i % COLUMNS);
            reference.in[k] = (tm_view){ .dtype = TM_F64, .shape = shape, .data = values[k] };
            call.in[k] = (tm_view){ .dtype = formats[k], .shape = shape, .ld = LD };
            image[k] = image_of(&call.in[k], k);
        }
        memset(wanted, 0, sizeof wanted);
        reference.out[0] = (tm_view){ .dtype = TM_F64, .shape = of_record, .data = wanted };
        call.out[0] = (tm_view){ .dtype = TM_F64, .shape = of_record };
        tm_op_compare.reference(&reference);
        assert_true(wanted[1][TM_COMPARED_OVERFLOW] > 0 && wanted[1][TM_COMPARED_BROKEN] > 0);
        assert_true(wanted[1][TM_COMPARED_UNDERFLOW] > 0 && wanted[1][TM_COMPARED_OWN_MOST] == 0x1p20);
        image[TM_MAX_IN] = calloc(1, sizeof wanted);
        call_on(device, &call, image, 0, out);
        double(*found)[TM_COMPARED] = (void *)out[0];
        for (int r = 0; r < RECORDS; r++)
            for (int c = 0; c < TM_COMPARED; c++)
                if (fabs(found[r][c] - wanted[r][c]) > 1e-12 * fabs(wanted[r][c]))
                    fail_msg("%s, row %d, column %d: %.17g, wanted %.17g", name, r, c, found[r][c], wanted[r][c]);
        free(image[0]), free(image[1]), free(image[TM_MAX_IN]), free(out[0]);
    }
    tm_device_close(device);
}

ON_BOTH(TEST, counts_as_the_reference, counts_as_the_reference(on))
