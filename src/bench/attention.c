/* SPDX-License-Identifier: Apache-2.0 */
/* bench/attention.c - our attention op, forward and backward (docs/bench-attention.md). */
#include "base/cpu.h"
#include "bench/attention_check.h"
#include "bench/bench.h"
#include "op/fused.h"

#include <math.h>
#include <stdio.h>
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

typedef struct {
    tm_bench         *bench;
    const char       *model;
    tm_attention_attr attr;
    int64_t           batch, sets;
    tm_dtype          dtype, lse_dtype;
    size_t            qkv_bytes, o_bytes, lse_bytes, set_bytes, workspace_bytes, bytes; /* padded; of all */
    char             *memory;
    tm_view           qkv;
    tm_call           call[DIRECTIONS]; /* of set 0 */
    const tm_kernel  *kernel[DIRECTIONS];
    double            flops[DIRECTIONS], executed[DIRECTIONS]; /* by convention; by the op's own count */
    const char       *convention;
} work;

/* --- what is computed ------------------------------------------------------------------------ */

static tm_attention_tensors tensors_of(const work *w, int64_t set)
{
    char                *p = w->memory + (size_t)set * w->set_bytes;
    tm_attention_tensors t = { w->attr, w->batch, w->dtype, w->lse_dtype, NULL, NULL, NULL, NULL, NULL };
    t.qkv = p, p += w->qkv_bytes;
    t.dqkv = p, p += w->qkv_bytes;
    t.o = p, p += w->o_bytes;
    t.d_o = p, p += w->o_bytes;
    t.lse = p;
    return t;
}

static void bind(const work *w, int direction, int64_t set, tm_call *call)
{
    tm_attention_tensors t = tensors_of(w, set);
    tm_view              qkv = w->qkv;
    *call = w->call[direction];
    qkv.data = t.qkv;
    call->workspace = w->memory + (size_t)w->sets * w->set_bytes;
    if (direction == FORWARD) {
        tm_fused_qkv(&w->attr, qkv, call->in);
        call->out[0].data = t.o;
        call->out[1].data = t.lse;
    } else {
        tm_fused_qkv(&w->attr, qkv, &call->in[1]);
        qkv.data = t.dqkv;
        tm_fused_qkv(&w->attr, qkv, call->out);
        call->in[0].data = t.d_o, call->in[4].data = t.o, call->in[5].data = t.lse;
    }
}

static void run_set(const work *w, int direction, int64_t set)
{
    tm_call call;
    bind(w, direction, set, &call);
    w->kernel[direction]->run(&call);
}

static void call_forward(void *context, int64_t turn)
{
    const work *w = context;
    run_set(w, FORWARD, turn % w->sets);
}

static void call_backward(void *context, int64_t turn)
{
    const work *w = context;
    run_set(w, BACKWARD, turn % w->sets);
}

/* TM_UNSUPPORTED with the reason of the first kernel. */
static tm_status choose_kernel(work *w, const tm_call *call, const tm_kernel **out, tm_error *err)
{
    tm_chooser chooser = tm_device_chooser(w->bench->device);
    tm_text    refusals = { 0 };
    *out = chooser.choose(chooser.context, call, &refusals);
    if (refusals.length > 0) refusals.data[strcspn(refusals.data, "\n")] = '\0'; /* the first that says why */
    tm_status st = *out ? TM_OK
                        : tm_fail(err, TM_UNSUPPORTED, "no fast kernel for op '%s' with heads of %lld elements: %s",
                                  call->op->name, (long long)w->attr.dim_qk,
                                  refusals.length ? refusals.data : "the device has none");
    tm_text_fini(&refusals);
    return st;
}

static tm_status describe_calls(work *w, tm_error *err)
{
    int64_t rows = w->batch * w->attr.seq_q, width = (w->attr.heads + 2 * w->attr.kv_heads) * w->attr.dim_qk;
    tm_view qkv = { w->dtype, tm_shape_2(rows, width), NULL, 0 };
    tm_view o = { w->dtype, tm_shape_2(rows, w->attr.heads * w->attr.dim_qk), NULL, 0 };
    tm_view lse = { w->lse_dtype, tm_shape_3(w->batch, w->attr.heads, w->attr.seq_q), NULL, 0 };
    w->qkv = qkv;
    w->call[FORWARD] = (tm_call){ .op = &tm_op_attention, .out = { o, lse } };
    w->call[BACKWARD] = (tm_call){ .op = &tm_op_attention_grad, .in = { o, [4] = o, lse } };
    tm_fused_qkv(&w->attr, qkv, w->call[FORWARD].in);
    tm_fused_qkv(&w->attr, qkv, &w->call[BACKWARD].in[1]);
    tm_fused_qkv(&w->attr, qkv, w->call[BACKWARD].out);
    for (int d = 0; d < DIRECTIONS; d++) {
        tm_call *call = &w->call[d];
        call->attr = &w->attr;
        call->threads = w->bench->threads;
        for (int k = d == FORWARD ? 3 : 6; k < TM_MAX_IN; k++) call->in[k].shape.rank = -1;
        for (int k = d == FORWARD ? 2 : 3; k < TM_MAX_OUT; k++) call->out[k].shape.rank = -1;
        TM_TRY(choose_kernel(w, call, &w->kernel[d], err));
        call->workspace_bytes = w->kernel[d]->workspace ? w->kernel[d]->workspace(call) : 0;
        if (call->workspace_bytes > w->workspace_bytes) w->workspace_bytes = call->workspace_bytes;
        w->executed[d] = call->op->cost(call).flops;
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
    w->flops[FORWARD] =
        half * 2 * (double)w->batch * (double)a->seq_q * keys * (double)a->heads * 2 * (double)a->dim_qk;
    w->flops[BACKWARD] = 2.5 * w->flops[FORWARD];
    w->convention = window ? "window" : a->causal ? "causal-half" : "full";
}

static size_t padded(int64_t elements, tm_dtype dtype)
{
    return ((size_t)elements * tm_dtype_bytes(dtype) + 4095) / 4096 * 4096;
}

static tm_status plan(work *w, tm_error *err)
{
    int64_t rows = w->batch * w->attr.seq_q;
    bool    cold = strcmp(tm_config_text(w->bench->options, "cache"), "cold") == 0;
    w->qkv_bytes = padded(rows * (w->attr.heads + 2 * w->attr.kv_heads) * w->attr.dim_qk, w->dtype);
    w->o_bytes = padded(rows * w->attr.heads * w->attr.dim_qk, w->dtype);
    w->lse_bytes = padded(rows * w->attr.heads, w->lse_dtype);
    w->set_bytes = 2 * (w->qkv_bytes + w->o_bytes) + w->lse_bytes;
    w->sets = cold ? tm_rotation((int64_t)w->set_bytes) : 1;
    TM_TRY(describe_calls(w, err));
    count_by_convention(w);
    w->bytes = (size_t)w->sets * w->set_bytes + w->workspace_bytes;
    return TM_OK;
}

/* Queries, keys, values and output gradients standard normal, the same in all sets; results full of NaN. */
static void fill(const work *w)
{
    int64_t              rows = w->batch * w->attr.seq_q;
    tm_attention_tensors first = tensors_of(w, 0);
    int64_t              qkv = rows * (w->attr.heads + 2 * w->attr.kv_heads) * w->attr.dim_qk;
    tm_bench_normal(w->bench, "attention.qkv", first.qkv, w->dtype, qkv);
    tm_bench_normal(w->bench, "attention.do", first.d_o, w->dtype, rows * w->attr.heads * w->attr.dim_qk);
    for (int64_t set = 0; set < w->sets; set++) {
        tm_attention_tensors t = tensors_of(w, set);
        memset(t.dqkv, 0xff, w->qkv_bytes);
        memset(t.o, 0xff, w->o_bytes);
        memset(t.lse, 0xff, w->lse_bytes);
        if (set == 0) continue;
        memcpy(t.qkv, first.qkv, w->qkv_bytes);
        memcpy(t.d_o, first.d_o, w->o_bytes);
    }
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
    tm_table_text(t, "backend", w->kernel[FORWARD]->name);
    tm_table_text(t, "dtype", tm_dtype_name(w->dtype));
    tm_table_text(t, "convention", w->convention);
    tm_table_text(t, "cache", w->sets > 1 ? "cold" : "warm");
    tm_table_i64(t, "threads", w->bench->threads);
}

static tm_status put_direction(const work *w, int direction, const tm_samples *samples, tm_error *err)
{
    static const char *const names[DIRECTIONS][5] = {
        { "fwd_tflops", "fwd_time", "fwd_tflops_executed", "fwd_median", "fwd_half_width_pct" },
        { "bwd_tflops", "bwd_time", "bwd_tflops_executed", "bwd_median", "bwd_half_width_pct" },
    };
    tm_table      *t = w->bench->table;
    tm_measurement m;
    char           what[64];
    tm_bench_summarize(samples, 1, &m);
    double calls = m.summary.rate; /* per second: all calls over all their time */
    tm_table_f64(t, names[direction][0], w->flops[direction] * calls * 1e-12);
    tm_table_f64(t, names[direction][1], 1e3 / calls);
    tm_table_f64(t, names[direction][2], w->executed[direction] * calls * 1e-12);
    tm_table_f64(t, names[direction][3], m.summary.median * 1e3);
    tm_table_f64(t, names[direction][4], m.summary.half_width * 100);
    tm_table_text(t, "verdict", tm_verdict_name(samples->verdict));
    tm_table_text(t, "reason", *samples->reason ? samples->reason : NULL);
    tm_table_i64(t, "n", m.summary.n);
    snprintf(what, sizeof what, "attention %s", direction == FORWARD ? "forward" : "backward");
    return tm_bench_guard(w->bench, what, w->dtype, w->executed[direction] * calls, 0, err);
}

static void check(const work *w)
{
    tm_attention_check   result;
    tm_attention_tensors t = tensors_of(w, 0);
    run_set(w, FORWARD, 0);
    memset(t.dqkv, 0xff, w->qkv_bytes);
    run_set(w, BACKWARD, 0);
    tm_attention_verify(&t, w->bench->seed, &result);
    tm_table_bool(w->bench->table, "correct", result.correct);
    if (isfinite(result.worst)) tm_table_f64(w->bench->table, "error_of_bound", result.worst);
    if (!result.correct)
        tm_bench_invalid(w->bench, "attention: wrong result: an element of %s is %.9g, wanted %.9g within %.3g",
                         result.what, result.found, result.wanted, result.bound);
}

static tm_status measure(work *w, tm_error *err)
{
    tm_bench  *bench = w->bench;
    tm_timing  timing = bench->timing;
    tm_timed   timed[DIRECTIONS] = { { call_forward, w }, { call_backward, w } };
    tm_samples samples[DIRECTIONS];
    timing.cold = w->sets > 1;
    fill(w);
    for (int64_t set = 0; set < w->sets; set++) run_set(w, FORWARD, set); /* what the backward calls read */
    tm_status st = tm_time(&timing, timed, DIRECTIONS, samples, err), inner = TM_OK;
    start_row(w);
    for (int d = 0; d < DIRECTIONS && inner == TM_OK; d++)
        if (samples[d].n > 0) inner = put_direction(w, d, &samples[d], err);
    if (samples[0].n == 0) tm_table_text(bench->table, "skipped", "the budget ended before a sample");
    for (int d = 0; d < DIRECTIONS; d++) tm_samples_fini(&samples[d]);
    if (st == TM_OK) st = inner;
    if (st == TM_OK) check(w);
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

static tm_status run(tm_bench *bench, tm_error *err)
{
    work   w = { .bench = bench };
    double available = (double)tm_memory_available_bytes("");
    char   want[32], have[32];
    TM_TRY(read_options(&w, err));
    TM_TRY(check_size(&w, err));
    TM_TRY(plan(&w, err));
    tm_table_columns(bench->table, columns, sizeof columns / sizeof columns[0]);
    tm_table_brief(bench->table, brief, sizeof brief / sizeof brief[0]);
    const tm_ceilings *ceilings;
    TM_TRY(tm_bench_ceilings(bench, &ceilings, err));
    double seconds = ceilings->flops > 0 ? 4 * (w.executed[FORWARD] + w.executed[BACKWARD]) / ceilings->flops : 0;
    if (available > 0 && (double)w.bytes > available) {
        start_row(&w);
        tm_table_printf(bench->table, "skipped", "needs %s, %s are available", tm_format_bytes(want, (double)w.bytes),
                        tm_format_bytes(have, available));
        return TM_OK;
    }
    if (seconds > tm_bench_left(bench)) {
        start_row(&w);
        tm_table_printf(bench->table, "skipped", "four calls take at least %.0f s, the budget has %.0f s", seconds,
                        tm_bench_left(bench));
        return TM_OK;
    }
    void *memory;
    TM_TRY(tm_device_alloc_host(bench->device, w.bytes, &memory, err));
    w.memory = memory;
    tm_status st = measure(&w, err);
    tm_device_release_host(bench->device, memory, w.bytes);
    return st;
}

const tm_workload tm_workload_attention = {
    .name = "attention",
    .summary = "measure attention, forward and backward: causal or not, grouped heads, window",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .run = run,
};
