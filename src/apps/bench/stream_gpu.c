/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/stream_gpu.c - bandwidth of a GPU's memory: by the driver's copy and by kernels that a training step has
 * too (docs/bench-stream.md). */
#include "apps/bench/stream.h"

#include "base/arena.h"
#include "device/prepared.h"

#include <stdio.h>
#include <stdlib.h>

enum { GPU_TICK_NS = 1000 }; /* as bench gemm */
enum { ARRAYS = 3, SCALAR = 3, PIECE = 4 << 20 /* elements that are compared at a time */ };

/* Small whole numbers: every result is exact. */
static const double begins[ARRAYS] = { 1, 2, 4 };

/* A call: of an op, or the driver's copy (NULL). */
typedef struct {
    tm_stream_kernel kernel;
    const tm_op     *op;
    int              in[2], n_in, out; /* arrays; out ARRAYS: the sum */
} task;
static const task tasks[] = {
    { TM_STREAM_COPY, NULL, { 0 }, 1, 2 },
    { TM_STREAM_MUL, &tm_op_scale, { 2 }, 1, 1 },
    { TM_STREAM_ADD, &tm_op_add, { 0, 1 }, 2, 2 },
    { TM_STREAM_DOT, &tm_op_square_sum, { 1 }, 1, ARRAYS },
};

typedef struct {
    tm_bench     *bench;
    const task   *task;
    int64_t       n;
    size_t        bytes; /* of an array */
    tm_address    there; /* the arrays, then the sum */
    tm_prepared  *prepared;
    tm_stopwatch *watch;
} work;

static tm_address array(const work *w, int i)
{
    return tm_address_add(w->there, (size_t)i * w->bytes);
}

static tm_status run_once(const work *w, tm_error *err)
{
    tm_address in[TM_MAX_IN] = { { 0 } }, out[TM_MAX_OUT] = { array(w, w->task->out) };
    for (int i = 0; i < w->task->n_in; i++) in[i] = array(w, w->task->in[i]);
    if (!w->task->op) return tm_device_copy(w->bench->device, out[0], in[0], w->bytes, err);
    return tm_prepared_run(w->prepared, in, out, err);
}

static tm_status series(void *context, int64_t turn, int64_t calls, double *seconds, tm_error *err)
{
    const work *w = context;
    (void)turn;
    TM_TRY(tm_stopwatch_start(w->watch, err));
    for (int64_t c = 0; c < calls; c++) TM_TRY(run_once(w, err));
    return tm_stopwatch_stop(w->watch, seconds, err);
}

/* --- one op --------------------------------------------------------------------------------------------------- */

static tm_status prepare(work *w, const tm_op *op, tm_error *err)
{
    static const tm_fill_attr attr = { .value = SCALAR }; /* it stays as long as what is prepared */
    tm_view                   whole = { .dtype = TM_F32, .shape = tm_shape_1(w->n) };
    tm_call                   call = { .op = op, .attr = op->attributes ? &attr : NULL };
    for (int i = 0; i < TM_MAX_IN; i++) call.in[i].shape.rank = -1;
    for (int k = 0; k < TM_MAX_OUT; k++) call.out[k].shape.rank = -1;
    for (int i = 0; i < op->n_in; i++) call.in[i] = whole;
    call.out[0] = op == &tm_op_square_sum ? (tm_view){ .dtype = TM_F64 } : whole;
    return tm_prepared_open(w->bench->device, &call, &w->prepared, err);
}

/* Array i holds one number everywhere. */
static tm_status fill(const work *w, int i, double value, float *room, tm_error *err)
{
    tm_device *device = w->bench->device;
    for (int64_t k = 0; k < PIECE && k < w->n; k++) room[k] = (float)value;
    for (int64_t at = 0; at < w->n; at += PIECE) {
        int64_t count = w->n - at < PIECE ? w->n - at : PIECE;
        TM_TRY(tm_device_write(device, tm_address_add(array(w, i), (size_t)at * sizeof *room), room,
                               (size_t)count * sizeof *room, err));
    }
    return tm_device_wait(device, err);
}

/* *right: it does. */
static tm_status holds(const work *w, int i, double value, float *room, bool *right, tm_error *err)
{
    tm_device *device = w->bench->device;
    for (int64_t at = 0; at < w->n; at += PIECE) {
        int64_t count = w->n - at < PIECE ? w->n - at : PIECE;
        TM_TRY(tm_device_read(device, room, tm_address_add(array(w, i), (size_t)at * sizeof *room),
                              (size_t)count * sizeof *room, err));
        TM_TRY(tm_device_wait(device, err));
        for (int64_t k = 0; k < count; k++) *right = *right && !((double)room[k] < value) && !((double)room[k] > value);
    }
    return TM_OK;
}

static double wanted(const task *t, int i)
{
    if (i != t->out) return begins[i];
    switch (t->kernel) {
    case TM_STREAM_COPY:
        return begins[t->in[0]];
    case TM_STREAM_MUL:
        return SCALAR * begins[t->in[0]];
    default:
        return begins[t->in[0]] + begins[t->in[1]];
    }
}

static tm_status check(const work *w, float *room, bool *right, tm_error *err)
{
    double sum = 0, of = begins[w->task->in[0]];
    *right = true;
    for (int i = 0; i < ARRAYS; i++) TM_TRY(holds(w, i, wanted(w->task, i), room, right, err));
    if (w->task->out < ARRAYS) return TM_OK;
    TM_TRY(tm_device_read(w->bench->device, &sum, array(w, ARRAYS), sizeof sum, err));
    TM_TRY(tm_device_wait(w->bench->device, err));
    *right = *right && !(sum < of * of * (double)w->n) && !(sum > of * of * (double)w->n);
    return TM_OK;
}

static tm_status measure(work *w, float *room, tm_error *err)
{
    tm_bench     *bench = w->bench;
    tm_timing     timing = bench->timing;
    tm_timed      timed = { NULL, w };
    tm_samples    samples = { 0 };
    tm_stream_row row = { .kernel = w->task->kernel,
                          .stores = w->task->out < ARRAYS ? "ordinary" : "none",
                          .by = w->task->op ? tm_prepared_kernel(w->prepared) : "driver",
                          .n = w->n,
                          .element = sizeof(float),
                          .arrays = w->task->n_in + (w->task->out < ARRAYS) };
    int64_t       repetitions = tm_config_i64(bench->options, "repetitions");
    if (repetitions > 0) timing.min_samples = repetitions, timing.rep_ms = timing.duration_s = timing.precision = 0;
    timing.series = series, timing.tick_ns = GPU_TICK_NS;
    for (int i = 0; i < ARRAYS; i++) TM_TRY(fill(w, i, begins[i], room, err));
    tm_status st = tm_time(&timing, &timed, 1, &samples, err);
    if (samples.n > 0) {
        tm_status inner = check(w, room, &row.correct, err);
        if (st == TM_OK) st = inner;
    }
    if (st == TM_OK || st == TM_INTERRUPTED) tm_stream_put(bench, &row, &samples);
    tm_samples_fini(&samples);
    return st;
}

/* --- all of them ---------------------------------------------------------------------------------------------- */

/* Arrays of four times the last cache, and of no more than a quarter of the memory. */
static int64_t default_elements(const tm_device_info *info)
{
    const int64_t unknown = (int64_t)256 << 20; /* as large as any GPU's that is known */
    int64_t       bytes = 4 * (info->cache_bytes > 0 ? info->cache_bytes : unknown);
    if (info->memory_bytes > 0 && bytes > info->memory_bytes / 4) bytes = info->memory_bytes / 4;
    return bytes / (int64_t)sizeof(float);
}

tm_status tm_stream_on_gpu(tm_bench *bench, int64_t n, tm_error *err)
{
    const tm_device_info *info = tm_device_describe(bench->device);
    work                  w = { .bench = bench, .n = n > 0 ? n : default_elements(info) };
    if (info->cache_bytes > 0 && w.n * (int64_t)sizeof(float) < 4 * info->cache_bytes)
        tm_bench_note(bench,
                      "arrays of %.1f MiB are smaller than four times the last cache (%.1f MiB): this is not the "
                      "bandwidth of the GPU's memory",
                      (double)w.n * sizeof(float) / 1048576, (double)info->cache_bytes / 1048576);
    w.bytes = ((size_t)w.n * sizeof(float) + 255) / 256 * 256;
    const size_t all = ARRAYS * w.bytes + 256;
    TM_TRY(tm_device_alloc(bench->device, all, &w.there, err));
    float    *room = tm_alloc(PIECE * sizeof *room);
    tm_status st = tm_stopwatch_open(bench->device, &w.watch, err);
    for (size_t i = 0; i < sizeof tasks / sizeof tasks[0] && st == TM_OK; i++) {
        w.task = &tasks[i];
        w.prepared = NULL;
        if (w.task->op) st = prepare(&w, w.task->op, err);
        if (st == TM_OK) st = measure(&w, room, err);
        tm_prepared_close(w.prepared);
    }
    tm_stopwatch_close(w.watch);
    free(room);
    tm_device_release(bench->device, w.there, all);
    return st;
}
