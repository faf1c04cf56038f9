/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/bench/pictures.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/random.h"
#include "device/prepared.h"
#include "graph/value.h"
#include "op/attrs.h"
#include "stats/summary.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Lines and columns of x, its channels, outputs; kernel, stride, upsample. */
static const struct {
    int64_t side, channels, outputs, kernel, stride, upsample;
} convolutions[] = { { 256, 128, 128, 3, 1, 1 }, { 128, 256, 256, 3, 1, 1 }, { 64, 512, 512, 3, 1, 1 },
                     { 32, 512, 512, 3, 1, 1 },  { 256, 128, 128, 3, 2, 1 }, { 32, 512, 512, 3, 1, 2 },
                     { 128, 128, 256, 1, 1, 1 }, { 256, 3, 128, 3, 1, 1 } };
static const struct {
    int64_t side, channels, silu;
} norms[] = { { 256, 128, 1 }, { 128, 256, 1 }, { 64, 512, 1 }, { 32, 512, 1 }, { 32, 512, 0 } };
enum { GROUPS = 32 };
enum { CONVOLUTIONS = sizeof convolutions / sizeof convolutions[0], NORMS = sizeof norms / sizeof norms[0] };
enum { CASES = CONVOLUTIONS + NORMS };

typedef union {
    tm_convolution_attr convolution;
    tm_group_norm_attr  norm;
} any_attr;

static tm_view view_of(tm_dtype dtype, tm_shape shape)
{
    return (tm_view){ .dtype = dtype, .shape = shape };
}

static void convolution_case(int i, tm_dtype dtype, any_attr *attr, tm_call *call)
{
    int64_t side = convolutions[i].side, channels = convolutions[i].channels, outputs = convolutions[i].outputs;
    int64_t kernel = convolutions[i].kernel, stride = convolutions[i].stride;
    attr->convolution = (tm_convolution_attr){ .samples = 1,
                                               .height = side,
                                               .width = side,
                                               .kernel = kernel,
                                               .stride = stride,
                                               .pad_before = stride == 1 ? kernel / 2 : 0,
                                               .pad_after = kernel / 2,
                                               .upsample = convolutions[i].upsample };
    int64_t made = tm_convolution_extent(&attr->convolution, side);
    call->op = &tm_op_convolution;
    call->in[0] = view_of(dtype, tm_shape_2(side * side, channels));
    call->in[1] = view_of(dtype, tm_shape_2(outputs, kernel * kernel * channels));
    call->in[2] = view_of(dtype, tm_shape_1(outputs));
    call->out[0] = view_of(dtype, tm_shape_2(made * made, outputs));
}

static void norm_case(int i, tm_dtype dtype, any_attr *attr, tm_call *call)
{
    int64_t rows = norms[i].side * norms[i].side, channels = norms[i].channels;
    attr->norm = (tm_group_norm_attr){ .eps = 1e-6, .samples = 1, .groups = GROUPS, .silu = norms[i].silu };
    call->op = &tm_op_group_norm;
    call->in[0] = call->out[0] = view_of(dtype, tm_shape_2(rows, channels));
    call->in[1] = call->in[2] = view_of(dtype, tm_shape_1(channels));
}

static void make_case(int i, tm_dtype dtype, any_attr *attr, tm_call *call)
{
    memset(attr, 0, sizeof *attr);
    *call = (tm_call){ .attr = attr, .threads = 1 };
    for (int k = 0; k < TM_MAX_IN; k++) call->in[k].shape.rank = -1;
    for (int k = 0; k < TM_MAX_OUT; k++) call->out[k].shape.rank = -1;
    if (i < CONVOLUTIONS)
        convolution_case(i, dtype, attr, call);
    else
        norm_case(i - CONVOLUTIONS, dtype, attr, call);
}

/* --- operands ------------------------------------------------------------------------------------------------------
 */

typedef struct {
    tm_device *device;
    tm_address in[TM_MAX_IN], out[TM_MAX_OUT];
    size_t     in_bytes[TM_MAX_IN], out_bytes[TM_MAX_OUT];
} operands;

static size_t bytes_of(const tm_view *view)
{
    return tm_view_present(view) ? (size_t)tm_shape_elements(view->shape) * tm_dtype_bytes(view->dtype) : 0;
}

/* Numbers in [-0.5, 0.5), the same again and again. */
static tm_status fill(operands *o, int k, const tm_view *view, uint64_t seed, tm_error *err)
{
    enum { PERIOD = 1 << 16 };
    size_t piece = PERIOD * tm_dtype_bytes(view->dtype);
    char  *values = tm_alloc(piece);
    for (int64_t i = 0; i < PERIOD; i++)
        tm_value_set(values, view->dtype, i, tm_random_uniform(seed, (uint64_t)k, (uint64_t)i) - 0.5);
    tm_status st = TM_OK;
    for (size_t at = 0; at < o->in_bytes[k] && st == TM_OK; at += piece) {
        size_t left = o->in_bytes[k] - at;
        st = tm_device_write(o->device, tm_address_add(o->in[k], at), values, left < piece ? left : piece, err);
    }
    if (st == TM_OK) st = tm_device_wait(o->device, err);
    free(values);
    return st;
}

static tm_status take(operands *o, const tm_call *call, uint64_t seed, tm_error *err)
{
    for (int k = 0; k < TM_MAX_IN; k++) {
        size_t bytes = bytes_of(&call->in[k]);
        if (!bytes) continue;
        TM_TRY(tm_device_alloc(o->device, bytes, &o->in[k], err));
        o->in_bytes[k] = bytes;
        TM_TRY(fill(o, k, &call->in[k], seed, err));
    }
    for (int k = 0; k < TM_MAX_OUT; k++) {
        size_t bytes = bytes_of(&call->out[k]);
        if (!bytes) continue;
        TM_TRY(tm_device_alloc(o->device, bytes, &o->out[k], err));
        o->out_bytes[k] = bytes;
    }
    return TM_OK;
}

static void give(operands *o)
{
    for (int k = 0; k < TM_MAX_IN; k++)
        if (o->in_bytes[k]) tm_device_release(o->device, o->in[k], o->in_bytes[k]);
    for (int k = 0; k < TM_MAX_OUT; k++)
        if (o->out_bytes[k]) tm_device_release(o->device, o->out[k], o->out_bytes[k]);
}

/* --- time ----------------------------------------------------------------------------------------------------------
 */

/* Of one thread its processor time counts: other work on the machine does not. */
static double seconds_now(bool one_thread)
{
    struct timespec t;
    if (!one_thread) return 1e-9 * (double)tm_now_ns();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct {
    tm_bench *bench;
    size_t    least, most;
    double    end; /* of the budget: seconds that are left then */
} limits;

static tm_status time_call(const limits *l, tm_prepared *prepared, const operands *o, double *median, tm_error *err)
{
    double   *seconds = tm_alloc(l->most * sizeof *seconds);
    size_t    n = 0;
    tm_status st = tm_prepared_run(prepared, o->in, o->out, err);
    if (st == TM_OK) st = tm_device_wait(o->device, err);
    while (st == TM_OK && n < l->most && (n < l->least || tm_bench_left(l->bench) > l->end)) {
        double begin = seconds_now(l->bench->threads == 1);
        st = tm_prepared_run(prepared, o->in, o->out, err);
        if (st == TM_OK) st = tm_device_wait(o->device, err);
        seconds[n++] = seconds_now(l->bench->threads == 1) - begin;
        if (st == TM_OK && l->bench->stop && *l->bench->stop) st = tm_fail(err, TM_INTERRUPTED, "stopped while timing");
    }
    if (st == TM_OK) *median = tm_stats_median(seconds, (int64_t)n);
    free(seconds);
    return st;
}

tm_status tm_pictures_time(tm_bench *bench, tm_dtype dtype, size_t least, size_t most, double share,
                           tm_picture_sample *sample, void *context, tm_error *err)
{
    const tm_device_info *device = tm_device_describe(bench->device);
    double                left = tm_bench_left(bench);
    tm_status             st = TM_OK;
    if (!device->computes || device->float64_only) return TM_OK;
    for (int i = 0; i < CASES && st == TM_OK; i++) {
        any_attr     attr;
        tm_call      call;
        tm_prepared *prepared = NULL;
        tm_error     own = { 0 };
        operands     o = { .device = bench->device };
        limits       l = { bench, least, most, left - share * (i + 1) / CASES };
        double       seconds = 0;
        make_case(i, dtype, &attr, &call);
        if (tm_prepared_open(bench->device, &call, &prepared, &own) == TM_UNSUPPORTED) continue;
        st = own.status == TM_OK ? take(&o, &call, bench->seed, err) : tm_fail(err, own.status, "%s", own.text);
        if (st == TM_OK) st = time_call(&l, prepared, &o, &seconds, err);
        if (st == TM_OK) sample(context, &call, call.op->cost(&call), seconds);
        give(&o);
        tm_prepared_close(prepared);
    }
    return st;
}
