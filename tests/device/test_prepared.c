/* SPDX-License-Identifier: Apache-2.0 */
/* One call of an op, prepared and run without a plan, gives what the op is; what no kernel takes is said. */
#include "device/prepared.h"

#include "support/test.h"

enum { ROWS = 5, COLUMNS = 7, DEPTH = 3 };

static tm_call call_of(tm_dtype dtype)
{
    tm_call call = { .op = &tm_op_linear };
    for (int i = 0; i < TM_MAX_IN; i++) call.in[i].shape.rank = -1;
    for (int k = 0; k < TM_MAX_OUT; k++) call.out[k].shape.rank = -1;
    call.in[0] = (tm_view){ .dtype = dtype, .shape = tm_shape_2(ROWS, DEPTH) };
    call.in[1] = (tm_view){ .dtype = dtype, .shape = tm_shape_2(COLUMNS, DEPTH) };
    call.out[0] = (tm_view){ .dtype = dtype, .shape = tm_shape_2(ROWS, COLUMNS) };
    return call;
}

/* Twice, with the output in two places. */
static void linear_on(const char *name)
{
    float         x[ROWS * DEPTH], w[COLUMNS * DEPTH], y[2][ROWS * COLUMNS];
    tm_call       call = call_of(TM_F32);
    tm_device    *device;
    tm_prepared  *prepared;
    tm_stopwatch *watch;
    tm_address    memory, in[TM_MAX_IN] = { { 0 } }, out[TM_MAX_OUT] = { { 0 } };
    double        seconds = -1;
    size_t        bytes = sizeof x + sizeof w + sizeof y;
    for (int i = 0; i < ROWS * DEPTH; i++) x[i] = (float)(i % 5 - 2);
    for (int i = 0; i < COLUMNS * DEPTH; i++) w[i] = (float)(i % 7 - 3);
    assert_ok(tm_device_open(name, 1, &device, err));
    assert_ok(tm_device_alloc(device, bytes, &memory, err));
    in[0] = memory, in[1] = tm_address_add(memory, sizeof x);
    assert_ok(tm_device_write(device, in[0], x, sizeof x, err));
    assert_ok(tm_device_write(device, in[1], w, sizeof w, err));
    assert_ok(tm_prepared_open(device, &call, &prepared, err));
    assert_int_equal(strncmp(tm_prepared_kernel(prepared), "linear/", 7), 0);
    assert_false(tm_prepared_by_library(prepared));
    assert_ok(tm_stopwatch_open(device, &watch, err));
    assert_ok(tm_stopwatch_start(watch, err));
    for (size_t k = 0; k < 2; k++) {
        out[0] = tm_address_add(memory, sizeof x + sizeof w + k * sizeof y[0]);
        assert_ok(tm_prepared_run(prepared, in, out, err));
        assert_ok(tm_stopwatch_stop(watch, &seconds, err));
        assert_true(seconds > 0);
        assert_ok(tm_device_read(device, y[k], out[0], sizeof y[k], err));
    }
    assert_ok(tm_device_wait(device, err));
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < COLUMNS; j++) {
            float sum = 0;
            for (int k = 0; k < DEPTH; k++) sum += x[i * DEPTH + k] * w[j * DEPTH + k];
            for (int k = 0; k < 2; k++)
                if (fabsf(y[k][i * COLUMNS + j] - sum) > 0) fail_msg("%s: y[%d][%d]", name, i, j);
        }
    tm_stopwatch_close(watch);
    tm_prepared_close(prepared);
    tm_device_release(device, memory, bytes);
    tm_device_close(device);
}

TEST(a_linear_layer)
{
    linear_on("cpu");
    linear_on("late");
}

TEST(what_is_refused)
{
    tm_device   *device;
    tm_prepared *prepared = NULL;
    tm_error     err = { 0 };
    tm_call      call = call_of(TM_F64);
    assert_int_equal(tm_device_open("cpu", 1, &device, &err), TM_OK);
    assert_int_equal(tm_prepared_open(device, &call, &prepared, &err), TM_UNSUPPORTED);
    assert_null(prepared);
    assert_int_equal(strncmp(err.text, "device cpu has no fast kernel for it: linear/", 45), 0);
    assert_null(strchr(err.text, '\n'));
    tm_device_close(device);
    err = (tm_error){ 0 };
    call = call_of(TM_F32);
    assert_int_equal(tm_device_open_planning("hip", 1, &device, &err), TM_OK);
    assert_int_equal(tm_prepared_open(device, &call, &prepared, &err), TM_UNSUPPORTED);
    assert_non_null(strstr(err.text, "was opened to plan for it and cannot run"));
    tm_device_close(device);
}
