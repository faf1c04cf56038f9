/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/draw.c - random numbers made on the GPU (source/draw.cu): initial values of weights, outside any program.
 */
#include "device/gpu/own.h"

#include <math.h>

enum { NONE, NORMAL, UNIFORM };

static tm_status start(const tm_call *call, tm_address to, const tm_random_rows *rows, int64_t from, int64_t n,
                       tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, (const void *)to.at); // NOLINT(performance-no-int-to-ptr): of the device
    tm_gpu_pass_i64(&a, (int64_t)tm_random_key(rows->seed));
    tm_gpu_pass_i64(&a, (int64_t)rows->stream);
    tm_gpu_pass_i64(&a, rows->first);
    tm_gpu_pass_i64(&a, rows->columns);
    tm_gpu_pass_i64(&a, rows->ld);
    tm_gpu_pass_i64(&a, from);
    tm_gpu_pass_i64(&a, n);
    tm_gpu_pass_double(&a, rows->mean);
    tm_gpu_pass_double(&a, rows->uniform ? rows->std * sqrt(3) : rows->std);
    tm_gpu_pass_double(&a, rows->cut);
    tm_gpu_pass_int(&a, !(rows->std > 0) ? NONE : rows->uniform ? UNIFORM : NORMAL);
    return tm_gpu_start_each(call, 0, n, &a, err);
}

void tm_gpu_note_draw(const void *device, tm_dtype dtype, void **state)
{
    tm_gpu_defines d = { .n = 0 };
    tm_gpu_define_format(&d, "Y", dtype);
    tm_gpu_note(device, "draw", tm_gpu_text_draw, &d, "draw", state);
}

tm_status tm_gpu_draw(tm_queue *queue, tm_address to, tm_dtype dtype, const tm_random_rows *rows, int64_t from,
                      int64_t n, bool *drawn, tm_error *err)
{
    tm_device *device = tm_gpu_device_of(queue);
    tm_call    call = { .queue = queue };
    *drawn = (dtype == TM_F32 || dtype == TM_BF16) && !tm_gpu_near_at(device->own, to);
    if (!*drawn) return TM_OK;
    tm_gpu_note_draw(device, dtype, &call.state);
    tm_status st = tm_gpu_modules_load(device, err);
    if (st == TM_OK) st = start(&call, to, rows, from, n, err);
    tm_gpu_forget(call.state);
    return st;
}
