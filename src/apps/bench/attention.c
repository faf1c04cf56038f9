/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/attention.c - our attention op, forward and backward (docs/bench-attention.md). */
#include "base/cpu.h"
#include "apps/bench/attention_check.h"
#include "apps/bench/bench.h"
#include "device/prepared.h"
#include "op/fused.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const tm_key options[] = {
    { .name = "model", .kind = TM_KEY_TEXT, .help = "take heads and length from this model (a preset or a file), unless given" },
    { .name = "batch", .kind = TM_KEY_I64, .fallback = "1", .lo = 1, .hi = 1 << 20, .help = "sequences" },
    { .name = "seq", .kind = TM_KEY_I64, .fallback = "2048", .lo = 1, .hi = 1 << 24, .help = "tokens of a sequence" },
    { .name = "heads", .kind = TM_KEY_I64, .fallback = "16", .lo = 1, .hi = 1 << 16, .help = "query heads" },
    { .name = "kv_heads", .kind = TM_KEY_I64, .fallback = "0", .lo = 0, .hi = 1 << 16,
      .help = "number of key/value heads, a divisor of heads; 0: as many as heads" },
    { .name = "head_dim", .kind = TM_KEY_I64, .fallback = "64", .lo = 1, .hi = 4096, .help = "elements of a head" },
    { .name = "causal", .kind = TM_KEY_BOOL, .fallback = "true", .help = "a query sees no later key" },
    { .name = "window", .kind = TM_KEY_I64, .fallback = "0", .lo = 0, .hi = 1 << 24,
      .help = "keys that a query sees, its own and those before it; 0: all; needs causal" },
    { .name = "dtype", .kind = TM_KEY_CHOICE, .fallback = "float32", .choices = "float32=fp32|bfloat16=bf16",
      .help = "number format" },
    { .name = "cache", .kind = TM_KEY_CHOICE, .fallback = "cold", .choices = "cold|warm",
      .help = "cold: operands come from memory; warm: from the cache, as far as they fit" },
};

static const tm_column columns[] = {
    { "host", 0 }, { "world", 0 }, { "rank", 0 }, { "model", 0 }, { "batch_size", 0 }, { "seqlen_q", 0 },
    { "seqlen_kv", 0 }, { "num_head_q", 0 }, { "num_head_kv", 0 }, { "head_dim_qk", 0 }, { "head_dim_v", 0 },
    { "causal", 0 }, { "window", 0 }, { "fwd_tflops", 4 }, { "fwd_time", 5 }, { "bwd_tflops", 4 }, { "bwd_time", 5 },
    { "backend", 0 }, { "dtype", 0 }, { "convention", 0 }, { "fwd_tflops_executed", 4 }, { "bwd_tflops_executed", 4 },
    { "cache", 0 }, { "threads", 0 }, { "correct", 0 }, { "error_of_bound", 3 }, { "fwd_median", 5 },
    { "fwd_half_width_pct", 3 }, { "bwd_median", 5 }, { "bwd_half_width_pct", 3 }, { "n", 0 }, { "verdict", 0 },
    { "reason", 0 }, { "skipped", 0 },
};
static const char *const brief[] = { "model", "batch_size", "seqlen_q", "causal", "backend", "fwd_tflops", "bwd_tflops", "skipped", "correct", "num_head_q", "head_dim_qk" };
/* clang-format on */

enum { FORWARD, BACKWARD, DIRECTIONS };

typedef struct work work;
typedef struct {
    const work   *w;
    int           number;
    tm_call       call; /* of no set */
    tm_prepared  *prepared;
    tm_stopwatch *watch;
    double        flops, executed; /* by convention; by the op's own count */
} direction;

struct work {
    tm_bench         *bench;
    const char       *model;
    tm_attention_attr attr;
    int64_t           batch, sets;
    tm_dtype          dtype, lse_dtype;
    size_t            qkv_bytes, o_bytes, lse_bytes, set_bytes, bytes; /* padded; of all sets */
    char             *memory;                                          /* of the host: one set */
    tm_address        there;                                           /* all sets, in the device's memory */
    tm_view           qkv;
    direction         direction[DIRECTIONS];
    const char       *convention;
};

/* --- what is computed ------------------------------------------------------------------------ */

/* The host's set. */
static tm_attention_tensors tensors_of(const work *w)
{
    char                *p = w->memory;
    tm_attention_tensors t = { w->attr, w->batch, w->dtype, w->lse_dtype, NULL, NULL, NULL, NULL, NULL };
    t.qkv = p, p += w->qkv_bytes;
    t.d_o = p, p += w->o_bytes;
    t.dqkv = p, p += w->qkv_bytes;
    t.o = p, p += w->o_bytes;
    t.lse = p;
    return t;
}

/* q, k and v of a fused matrix at an address. */
static void parts_at(const work *w, tm_address at, tm_address out[3])
{
    tm_view qkv = w->qkv, parts[3];
    qkv.data = (void *)at.at; // NOLINT(performance-no-int-to-ptr): the device's
    tm_fused_qkv(&w->attr, qkv, parts);
    for (int i = 0; i < 3; i++) out[i] = (tm_address){ (uintptr_t)parts[i].data };
}

/* Puts a call on a set into the queue. */
static tm_status run_set(const direction *d, int64_t turn, tm_error *err)
{
    const work *w = d->w;
    tm_address  in[TM_MAX_IN] = { { 0 } }, out[TM_MAX_OUT] = { { 0 } };
    tm_address  qkv = tm_address_add(w->there, (size_t)(turn % w->sets) * w->set_bytes);
    tm_address  d_o = tm_address_add(qkv, w->qkv_bytes), dqkv = tm_address_add(d_o, w->o_bytes);
    tm_address  o = tm_address_add(dqkv, w->qkv_bytes), lse = tm_address_add(o, w->o_bytes);
    if (d->number == FORWARD) {
        parts_at(w, qkv, in);
        out[0] = o, out[1] = lse;
    } else {
        parts_at(w, qkv, &in[1]);
        parts_at(w, dqkv, out);
        in[0] = d_o, in[4] = o, in[5] = lse;
    }
    return tm_prepared_run(d->prepared, in, out, err);
}

/* On a device that computes at once, whose kernels do not fail. */
static void call(void *context, int64_t turn)
{
    tm_error  err = { 0 };
    tm_status st = run_set(context, turn, &err);
    TM_ASSERT(st == TM_OK);
}

/* On a GPU, by its own clock. */
static tm_status call_series(void *context, int64_t turn, int64_t calls, double *seconds, tm_error *err)
{
    const direction *d = context;
    TM_TRY(tm_stopwatch_start(d->watch, err));
    for (int64_t c = turn; c < turn + calls; c++) TM_TRY(run_set(d, c, err));
    return tm_stopwatch_stop(d->watch, seconds, err);
}

/* TM_UNSUPPORTED with the reasons of the kernels. */
static tm_status describe_calls(work *w, tm_error *err)
{
    int64_t rows = w->batch * w->attr.seq_q, width = (w->attr.heads + 2 * w->attr.kv_heads) * w->attr.dim_qk;
    tm_view qkv = { w->dtype, tm_shape_2(rows, width), NULL, 0 };
    tm_view o = { w->dtype, tm_shape_2(rows, w->attr.heads * w->attr.dim_qk), NULL, 0 };
    tm_view lse = { w->lse_dtype, tm_shape_3(w->batch, w->attr.heads, w->attr.seq_q), NULL, 0 };
    tm_call forward = { .op = &tm_op_attention, .out = { o, lse } };
    tm_call backward = { .op = &tm_op_attention_grad, .in = { o, [4] = o, lse } };
    w->qkv = qkv;
    tm_fused_qkv(&w->attr, qkv, forward.in);
    tm_fused_qkv(&w->attr, qkv, &backward.in[1]);
    tm_fused_qkv(&w->attr, qkv, backward.out);
    for (int n = 0; n < DIRECTIONS; n++) {
        direction *d = &w->direction[n];
        tm_call   *one = &d->call;
        *d = (direction){ .w = w, .number = n, .call = n == FORWARD ? forward : backward };
        one->attr = &w->attr;
        one->threads = w->bench->threads;
        for (int k = n == FORWARD ? 3 : 6; k < TM_MAX_IN; k++) one->in[k].shape.rank = -1;
        for (int k = n == FORWARD ? 2 : 3; k < TM_MAX_OUT; k++) one->out[k].shape.rank = -1;
        d->executed = one->op->cost(one).flops;
        TM_TRY(tm_prepared_open(w->bench->device, one, &d->prepared, err));
        TM_TRY(tm_stopwatch_open(w->bench->device, &d->watch, err));
    }
    return TM_OK;
}

/* forward 2 B Sq Skv A (dqk + dv), half of it if causal; with a window Skv is the window, not halved; backward 2.5
 * times that (docs/bench-attention.md). */
static void count_by_convention(work *w)
{
    const tm_attention_attr *a = &w->attr;
    bool                     window = a->window > 0 && a->window < a->seq_q;
    double                   keys = (double)(window ? a->window : a->seq_q), half = a->causal && !window ? 0.5 : 1;
    w->direction[FORWARD].flops =
        half * 2 * (double)w->batch * (double)a->seq_q * keys * (double)a->heads * 2 * (double)a->dim_qk;
    w->direction[BACKWARD].flops = 2.5 * w->direction[FORWARD].flops;
    w->convention = window ? "window" : a->causal ? "causal-half" : "full";
}

static size_t padded(int64_t elements, tm_dtype dtype)
{
    return ((size_t)elements * tm_dtype_bytes(dtype) + 4095) / 4096 * 4096;
}

/* Together more than twice the last cache of what computes. */
static int64_t sets_of(const work *w)
{
    const int64_t         unknown = (int64_t)256 << 20; /* as large as any GPU's that is known */
    const tm_device_info *info = tm_device_describe(w->bench->device);
    if (!info->own_memory) return tm_rotation((int64_t)w->set_bytes);
    int64_t cache = info->cache_bytes > 0 ? info->cache_bytes : unknown, sets = 2 * cache / (int64_t)w->set_bytes + 1;
    return sets < 2 ? 2 : sets;
}

static tm_status plan(work *w, tm_error *err)
{
    int64_t rows = w->batch * w->attr.seq_q;
    bool    cold = strcmp(tm_config_text(w->bench->options, "cache"), "cold") == 0;
    w->qkv_bytes = padded(rows * (w->attr.heads + 2 * w->attr.kv_heads) * w->attr.dim_qk, w->dtype);
    w->o_bytes = padded(rows * w->attr.heads * w->attr.dim_qk, w->dtype);
    w->lse_bytes = padded(rows * w->attr.heads, w->lse_dtype);
    w->set_bytes = 2 * (w->qkv_bytes + w->o_bytes) + w->lse_bytes;
    w->sets = cold ? sets_of(w) : 1;
    w->bytes = (size_t)w->sets * w->set_bytes;
    TM_TRY(describe_calls(w, err));
    count_by_convention(w);
    return TM_OK;
}

/* Queries, keys, values and output gradients standard normal, the same in all sets; results full of NaN. */
static tm_status fill(const work *w, tm_error *err)
{
    int64_t              rows = w->batch * w->attr.seq_q;
    tm_attention_tensors t = tensors_of(w);
    int64_t              qkv = rows * (w->attr.heads + 2 * w->attr.kv_heads) * w->attr.dim_qk;
    tm_device           *device = w->bench->device;
    tm_bench_normal(w->bench, "attention.qkv", t.qkv, w->dtype, qkv);
    tm_bench_normal(w->bench, "attention.do", t.d_o, w->dtype, rows * w->attr.heads * w->attr.dim_qk);
    memset(t.dqkv, 0xff, w->qkv_bytes + w->o_bytes + w->lse_bytes);
    TM_TRY(tm_device_write(device, w->there, w->memory, w->set_bytes, err));
    for (int64_t done = 1; done < w->sets; done *= 2) { /* twice as many with each copy */
        int64_t n = w->sets - done < done ? w->sets - done : done;
        TM_TRY(tm_device_copy(device, tm_address_add(w->there, (size_t)done * w->set_bytes), w->there,
                              (size_t)n * w->set_bytes, err));
    }
    for (int64_t set = 0; set < w->sets; set++) /* what the backward calls read */
        TM_TRY(run_set(&w->direction[FORWARD], set, err));
    return tm_device_wait(device, err);
}

/* --- the row --------------------------------------------------------------------------------- */

static void start_row(const work *w)
{
    tm_table                *t = w->bench->table;
    const tm_attention_attr *a = &w->attr;
    tm_table_row(t);
    tm_table_text(t, "host", w->bench->host);
    tm_table_i64(t, "world", 1);
    tm_table_i64(t, "rank", 0);
    tm_table_text(t, "model", w->model);
    tm_table_i64(t, "batch_size", w->batch);
    tm_table_i64(t, "seqlen_q", a->seq_q);
    tm_table_i64(t, "seqlen_kv", a->seq_q);
    tm_table_i64(t, "num_head_q", a->heads);
    tm_table_i64(t, "num_head_kv", a->kv_heads);
    tm_table_i64(t, "head_dim_qk", a->dim_qk);
    tm_table_i64(t, "head_dim_v", a->dim_v);
    tm_table_bool(t, "causal", a->causal != 0);
    tm_table_i64(t, "window", a->window);
    tm_table_text(t, "backend", tm_prepared_kernel(w->direction[FORWARD].prepared));
    tm_table_text(t, "dtype", tm_dtype_name(w->dtype));
    tm_table_text(t, "convention", w->convention);
    tm_table_text(t, "cache", w->sets > 1 ? "cold" : "warm");
    tm_table_i64(t, "threads", w->bench->threads);
}

static tm_status put_direction(const direction *d, const tm_samples *samples, tm_error *err)
{
    static const char *const names[DIRECTIONS][5] = {
        { "fwd_tflops", "fwd_time", "fwd_tflops_executed", "fwd_median", "fwd_half_width_pct" },
        { "bwd_tflops", "bwd_time", "bwd_tflops_executed", "bwd_median", "bwd_half_width_pct" },
    };
    tm_bench      *bench = d->w->bench;
    tm_table      *t = bench->table;
    tm_measurement m;
    char           what[64];
    tm_bench_summarize(samples, 1, &m);
    double calls = m.summary.rate; /* per second: all calls over all their time */
    tm_table_f64(t, names[d->number][0], d->flops * calls * 1e-12);
    tm_table_f64(t, names[d->number][1], 1e3 / calls);
    tm_table_f64(t, names[d->number][2], d->executed * calls * 1e-12);
    tm_table_f64(t, names[d->number][3], m.summary.median * 1e3);
    tm_table_f64(t, names[d->number][4], m.summary.half_width * 100);
    tm_table_text(t, "verdict", tm_verdict_name(samples->verdict));
    tm_table_text(t, "reason", *samples->reason ? samples->reason : NULL);
    tm_table_i64(t, "n", m.summary.n);
    snprintf(what, sizeof what, "attention %s", d->number == FORWARD ? "forward" : "backward");
    return tm_bench_guard(bench, what, d->w->dtype, d->executed * calls, 0, err);
}

static tm_status check(const work *w, tm_error *err)
{
    tm_attention_check   result;
    tm_attention_tensors t = tensors_of(w);
    tm_device           *device = w->bench->device;
    size_t               given = w->qkv_bytes + w->o_bytes;
    tm_address           results = tm_address_add(w->there, given);
    memset(t.dqkv, 0xff, w->set_bytes - given);
    TM_TRY(tm_device_write(device, results, t.dqkv, w->set_bytes - given, err));
    for (int n = 0; n < DIRECTIONS; n++) TM_TRY(run_set(&w->direction[n], 0, err));
    TM_TRY(tm_device_read(device, t.dqkv, results, w->set_bytes - given, err));
    TM_TRY(tm_device_wait(device, err));
    tm_attention_verify(&t, w->bench->seed, &result);
    tm_table_bool(w->bench->table, "correct", result.correct);
    if (isfinite(result.worst)) tm_table_f64(w->bench->table, "error_of_bound", result.worst);
    if (!result.correct)
        tm_bench_invalid(w->bench, "attention: wrong result: an element of %s is %.9g, wanted %.9g within %.3g",
                         result.what, result.found, result.wanted, result.bound);
    return TM_OK;
}

static tm_status measure(work *w, tm_error *err)
{
    enum { GPU_TICK_NS = 1000 }; /* as bench gemm */
    tm_bench  *bench = w->bench;
    tm_timing  timing = bench->timing;
    tm_timed   timed[DIRECTIONS] = { { call, &w->direction[FORWARD] }, { call, &w->direction[BACKWARD] } };
    tm_samples samples[DIRECTIONS];
    bool       gpu = tm_device_describe(bench->device)->own_memory;
    timing.cold = w->sets > 1 && !gpu;
    if (gpu) timing.series = call_series, timing.tick_ns = GPU_TICK_NS;
    TM_TRY(fill(w, err));
    tm_status st = tm_time(&timing, timed, DIRECTIONS, samples, err), inner = TM_OK;
    start_row(w);
    for (int n = 0; n < DIRECTIONS && inner == TM_OK; n++)
        if (samples[n].n > 0) inner = put_direction(&w->direction[n], &samples[n], err);
    if (samples[0].n == 0) tm_table_text(bench->table, "skipped", "the budget ended before a sample");
    for (int n = 0; n < DIRECTIONS; n++) tm_samples_fini(&samples[n]);
    if (st == TM_OK) st = inner;
    return st == TM_OK ? check(w, err) : st;
}

/* On the device and the host; a set that does not fit is a row that says so. */
static tm_status measure_there(work *w, tm_error *err)
{
    tm_device *device = w->bench->device;
    tm_error   own = { 0 };
    tm_status  st = tm_device_alloc(device, w->bytes, &w->there, &own);
    if (st == TM_NOMEM) {
        start_row(w);
        tm_table_text(w->bench->table, "skipped", own.text);
        return TM_OK;
    }
    if (st != TM_OK) return tm_fail(err, st, "%s", own.text);
    w->memory = aligned_alloc(4096, w->set_bytes);
    st = w->memory ? measure(w, err) : tm_fail(err, TM_NOMEM, "the host has no memory for %zu bytes", w->set_bytes);
    free(w->memory);
    tm_device_release(device, w->there, w->bytes);
    return st;
}

/* --- options --------------------------------------------------------------------------------- */

static tm_status read_options(work *w, tm_error *err)
{
    const tm_config *o = w->bench->options;
    tm_model_shape   shape;
    int64_t          seq = tm_config_i64(o, "seq");
    w->model = tm_config_text(o, "model");
    w->batch = tm_config_i64(o, "batch");
    w->attr.heads = tm_config_i64(o, "heads");
    w->attr.kv_heads = tm_config_i64(o, "kv_heads");
    w->attr.dim_qk = w->attr.dim_v = tm_config_i64(o, "head_dim");
    if (w->model) {
        int64_t own;
        TM_TRY(tm_bench_model(w->model, &shape, &own, err));
        if (!tm_config_is_set(o, "seq")) seq = own;
        if (!tm_config_is_set(o, "heads")) w->attr.heads = shape.n_heads;
        if (!tm_config_is_set(o, "kv_heads")) w->attr.kv_heads = shape.n_kv_heads;
        if (!tm_config_is_set(o, "head_dim")) w->attr.dim_qk = w->attr.dim_v = shape.head_dim;
    }
    if (w->attr.kv_heads == 0) w->attr.kv_heads = w->attr.heads;
    w->attr.seq_q = w->attr.seq_k = seq;
    w->attr.causal = tm_config_bool(o, "causal");
    w->attr.window = tm_config_i64(o, "window");
    w->attr.scale = 1 / sqrt((double)w->attr.dim_qk);
    bool in_double = tm_device_describe(w->bench->device)->float64_only;
    w->dtype = in_double ? TM_F64 : strcmp(tm_config_text(o, "dtype"), "bfloat16") == 0 ? TM_BF16 : TM_F32;
    w->lse_dtype = in_double ? TM_F64 : TM_F32;
    if (w->attr.window > 0 && !w->attr.causal)
        return tm_fail(err, TM_INVALID, "--window %lld needs causal attention; leave out --causal false",
                       (long long)w->attr.window);
    if (w->attr.heads % w->attr.kv_heads != 0)
        return tm_fail(err, TM_INVALID, "--heads %lld is not a multiple of --kv-heads %lld", (long long)w->attr.heads,
                       (long long)w->attr.kv_heads);
    return TM_OK;
}

/* Elements that an index can count, with room to spare: what else is asked for cannot be planned. */
static tm_status check_size(const work *w, tm_error *err)
{
    double elements = (double)w->batch * (double)w->attr.seq_q * (double)(w->attr.heads + 2 * w->attr.kv_heads) *
                      (double)w->attr.dim_qk;
    if (elements <= 0x1p42) return TM_OK;
    return tm_fail(err, TM_INVALID, "queries, keys and values have %.3g elements; 4.4e12 is the most", elements);
}

/* A row that says why nothing is measured; false: it is. */
static bool skips(work *w, double flops)
{
    tm_bench *bench = w->bench;
    bool      gpu = tm_device_describe(bench->device)->own_memory;
    char      want[32], have[32];
    double    available = gpu ? 0 : (double)tm_memory_available_bytes(""), needed = (double)(w->bytes + w->set_bytes);
    double    seconds = flops > 0 ? 4 * (w->direction[FORWARD].executed + w->direction[BACKWARD].executed) / flops : 0;
    if (available > 0 && needed > available) {
        start_row(w);
        tm_table_printf(bench->table, "skipped", "needs %s, %s are available", tm_format_bytes(want, needed),
                        tm_format_bytes(have, available));
        return true;
    }
    if (seconds <= tm_bench_left(bench)) return false;
    start_row(w);
    tm_table_printf(bench->table, "skipped", "four calls take at least %.0f s, the budget has %.0f s", seconds,
                    tm_bench_left(bench));
    return true;
}

static tm_status run(tm_bench *bench, tm_error *err)
{
    work               w = { .bench = bench };
    const tm_ceilings *ceilings;
    TM_TRY(read_options(&w, err));
    TM_TRY(check_size(&w, err));
    tm_table_columns(bench->table, columns, sizeof columns / sizeof columns[0]);
    tm_table_brief(bench->table, brief, sizeof brief / sizeof brief[0]);
    tm_status st = plan(&w, err);
    if (st == TM_OK) st = tm_bench_ceilings(bench, &ceilings, err);
    if (st == TM_OK && !skips(&w, ceilings->flops)) st = measure_there(&w, err);
    for (int n = 0; n < DIRECTIONS; n++) {
        tm_prepared_close(w.direction[n].prepared);
        tm_stopwatch_close(w.direction[n].watch);
    }
    return st;
}

const tm_workload tm_workload_attention = {
    .name = "attention",
    .summary = "measure attention, forward and backward: causal or not, grouped heads, window",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .gpus = true,
    .run = run,
};
