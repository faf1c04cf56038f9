/* SPDX-License-Identifier: Apache-2.0 */
/* The microscope's records on the devices cuda and hip: what is infinite, no number or zero is counted where the double
 * reference counts it, sums of small whole numbers are exact, and other rows of the record stay as they were. */
#include "device/backend.h"
#include "device/gpu/gpu.h"
#include "gpu/emulated.h"
#include "graph/value.h"
#include "op/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { ROWS = 37, COLUMNS = 41, GAP = 3, LD = COLUMNS + GAP, RECORDS = 3 };

static void *placed(tm_device *device, const void *from, size_t bytes)
{
    tm_address at;
    tm_error   err = { 0 };
    if (tm_device_alloc(device, bytes, &at, &err) != TM_OK) fail_msg("%s", err.text);
    if (from && tm_device_write(device, at, from, bytes, &err) != TM_OK) fail_msg("%s", err.text);
    return (void *)at.at; // NOLINT(performance-no-int-to-ptr)
}

/* Element (r, c) of either tensor; every fifth is special. */
static double value_of(int which, int64_t r, int64_t c)
{
    static const double special[2][11] = { { 0, 0, 1, INFINITY, -INFINITY, NAN, 2, 0x1p-60, -0x1p-48, 0x1p15, -0x1p20 },
                                           { 0, 5, 0, 1, INFINITY, -2, NAN, 0, -0x1p-48, 0x1p15, -0x1p20 } };
    int64_t             i = r * COLUMNS + c;
    return i % 5 == 2 ? special[which][i / 5 % 11] : (double)(i * (which ? 7 : 3) % 11 - 5);
}

/* Runs the call, whose views have no memory yet, on the device. */
static void run(tm_device *device, tm_call *call, double record[RECORDS][TM_COMPARED])
{
    const tm_kernel *kernel = &tm_gpu_compare[0];
    tm_error         err = { 0 };
    char            *image = malloc((size_t)ROWS * LD * sizeof(float));
    assert_null(kernel->refuse(call));
    for (int k = 0; k < 2; k++) {
        memset(image, 0xff, (size_t)ROWS * LD * sizeof(float)); /* between the rows: no numbers */
        for (int64_t i = 0; i < (int64_t)ROWS * COLUMNS; i++)
            tm_value_set(image, call->in[k].dtype, i / COLUMNS * LD + i % COLUMNS,
                         value_of(k, i / COLUMNS, i % COLUMNS));
        call->in[k].data = placed(device, image, (size_t)ROWS * LD * tm_dtype_bytes(call->in[k].dtype));
    }
    call->out[0].data = placed(device, record, sizeof(double[RECORDS][TM_COMPARED]));
    call->workspace_bytes = kernel->workspace(call);
    call->workspace = placed(device, NULL, call->workspace_bytes);
    call->device = device;
    call->queue = device->queues[TM_ON_COMPUTE];
    tm_status st = kernel->prepare(device, call, &call->state, &err);
    if (st == TM_OK) st = device->backend->prepared(device, &err);
    if (st == TM_OK) st = kernel->launch(call, &err);
    if (st == TM_OK)
        st = tm_device_read(device, record, (tm_address){ (uintptr_t)call->out[0].data },
                            sizeof(double[RECORDS][TM_COMPARED]), &err);
    if (st == TM_OK) st = tm_device_wait(device, &err);
    if (st != TM_OK) fail_msg("%s", err.text);
    kernel->release(call->state);
    free(image);
}

static void counts_as_the_reference(const char *name)
{
    static const tm_compare_attr attr = { .row = 1, .rows = RECORDS };
    static double                values[2][ROWS * COLUMNS], wanted[RECORDS][TM_COMPARED], found[RECORDS][TM_COMPARED];
    tm_device                   *device;
    tm_error                     err = { 0 };
    if (!emulated_device(name)) skip();
    if (tm_device_open(name, 1, &device, &err) != TM_OK) fail_msg("%s", err.text);
    for (int which = 0; which < 2; which++) {
        tm_shape shape = tm_shape_2(ROWS, COLUMNS), of_record = tm_shape_2(RECORDS, TM_COMPARED);
        tm_dtype formats[2] = { which ? TM_BF16 : TM_F32, which ? TM_F32 : TM_BF16 };
        tm_call  reference = { .op = &tm_op_compare, .attr = &attr }, call = reference;
        for (int k = 0; k < 2; k++) {
            for (int64_t i = 0; i < (int64_t)ROWS * COLUMNS; i++) values[k][i] = value_of(k, i / COLUMNS, i % COLUMNS);
            reference.in[k] = (tm_view){ .dtype = TM_F64, .shape = shape, .data = values[k] };
            call.in[k] = (tm_view){ .dtype = formats[k], .shape = shape, .ld = LD };
        }
        memset(wanted, 0, sizeof wanted), memset(found, 0, sizeof found);
        reference.out[0] = (tm_view){ .dtype = TM_F64, .shape = of_record, .data = wanted };
        call.out[0] = (tm_view){ .dtype = TM_F64, .shape = of_record };
        tm_op_compare.reference(&reference);
        assert_true(wanted[1][TM_COMPARED_OVERFLOW] > 0 && wanted[1][TM_COMPARED_BROKEN] > 0);
        assert_true(wanted[1][TM_COMPARED_UNDERFLOW] > 0 && wanted[1][TM_COMPARED_OWN_MOST] == 0x1p20);
        run(device, &call, found);
        for (int r = 0; r < RECORDS; r++)
            for (int c = 0; c < TM_COMPARED; c++)
                if (fabs(found[r][c] - wanted[r][c]) > 1e-12 * fabs(wanted[r][c]))
                    fail_msg("%s, row %d, column %d: %.17g, wanted %.17g", name, r, c, found[r][c], wanted[r][c]);
    }
    tm_device_close(device);
}

TEST(cuda_counts_as_the_reference)
{
    counts_as_the_reference("cuda");
}

TEST(hip_counts_as_the_reference)
{
    counts_as_the_reference("hip");
}
