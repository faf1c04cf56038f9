/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/mlp.c - a network of three linear layers, 4096-8192-8192-4096, trained (docs/bench-mlp.md). */
#include "base/arena.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "apps/bench/mlp_net.h"
#include "system/validity.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const tm_key options[] = {
    { .name = "dims", .kind = TM_KEY_TEXT, .fallback = "4096-8192-8192-4096",
      .help = "widths of the input and of every layer" },
    { .name = "batch", .kind = TM_KEY_I64, .fallback = "256", .lo = 1, .hi = 1 << 24, .help = "samples of an iteration" },
    { .name = "iterations", .kind = TM_KEY_I64, .fallback = "100", .lo = 1, .hi = 1e7, .help = "measured iterations" },
    { .name = "warmup", .kind = TM_KEY_I64, .fallback = "3", .lo = 0, .hi = 1e6, .help = "iterations before them" },
    { .name = "activation", .kind = TM_KEY_CHOICE, .fallback = "relu", .choices = "relu|gelu", .help = "activation between the layers" },
    { .name = "bias", .kind = TM_KEY_BOOL, .fallback = "true", .help = "layers have biases" },
    { .name = "optimizer", .kind = TM_KEY_CHOICE, .fallback = "adamw", .choices = "adamw|none",
      .help = "none: forward and backward only" },
    { .name = "dtype", .kind = TM_KEY_CHOICE, .fallback = "float32", .choices = "float32=fp32|bfloat16=bf16",
      .help = "number format of the computation" },
    { .name = "lr", .kind = TM_KEY_F64, .fallback = "0.0001", .lo = 0, .hi = 1, .help = "learning rate" },
};

static const tm_column columns[] = {
    { "host", 0 }, { "case", 0 }, { "parameters", 0 }, { "batch", 0 }, { "activation", 0 }, { "loss", 0 },
    { "optimizer", 0 }, { "dtype", 0 }, { "threads", 0 }, { "samples_per_second", 5 }, { "samples_per_second_lo", 5 },
    { "samples_per_second_hi", 5 }, { "step_ms", 5 }, { "fwd_ms", 4 }, { "bwd_ms", 4 }, { "loss_ms", 3 },
    { "update_ms", 4 }, { "tflops_6n", 4 }, { "tflops_executed", 4 }, { "memory_gb", 4 }, { "loss_first", 5 },
    { "loss_last", 5 }, { "correct", 0 }, { "error_of_bound", 3 }, { "skipped", 0 },
};
static const char *const brief[] = { "case", "batch", "dtype", "samples_per_second", "half_width_pct", "step_ms", "tflops_6n", "loss_first", "loss_last", "correct", "skipped" };
/* clang-format on */

typedef struct {
    tm_bench          *bench;
    tm_mlp_options     options;
    tm_mlp            *net;
    tm_sampling       *sampling;
    tm_ledger          ledger;      /* of the counted iterations */
    double             first, last; /* loss */
    int64_t            counted, warmed;
    tm_mlp_check       forward;
    tm_validity_report validity; /* of the machine while they ran */
} work;

/* "a-b-c" */
static tm_status read_dims(const char *text, tm_mlp_options *o, tm_error *err)
{
    const char *p = text;
    for (int k = 0; k <= TM_MLP_LAYERS; k++) {
        char *end;
        o->width[k] = strtoll(p, &end, 10);
        if (end == p || o->width[k] < 1 || o->width[k] > 1 << 24 || (*end && *end != '-')) break;
        o->layers = k;
        if (!*end && k > 0) return TM_OK;
        if (!*end) break;
        p = end + 1;
    }
    return tm_fail(err, TM_USAGE,
                   "--dims is '%.100s'; wanted 2 to %d widths of 1 to 16777216 with - between: "
                   "4096-8192-8192-4096",
                   text, TM_MLP_LAYERS + 1);
}

static tm_status read_options(work *w, tm_error *err)
{
    const tm_config *o = w->bench->options;
    bool             in_double = tm_device_describe(w->bench->device)->float64_only;
    w->options.batch = tm_config_i64(o, "batch");
    w->options.activation = strcmp(tm_config_text(o, "activation"), "gelu") == 0 ? TM_OP_gelu : TM_OP_relu;
    w->options.bias = tm_config_bool(o, "bias");
    w->options.update = strcmp(tm_config_text(o, "optimizer"), "adamw") == 0;
    w->options.learning_rate = tm_config_f64(o, "lr");
    w->options.precision = in_double                                             ? &tm_precision_f64
                           : strcmp(tm_config_text(o, "dtype"), "bfloat16") == 0 ? &tm_precision_bf16
                                                                                 : &tm_precision_f32;
    return read_dims(tm_config_text(o, "dims"), &w->options, err);
}

/* --- measuring ------------------------------------------------------------------------------- */

static bool stopped(const work *w)
{
    return w->bench->stop && *w->bench->stop;
}

/* One iteration; *seconds: how long it took. The first is followed by the check of the forward pass: its biases are no
 * longer zero, and what the check takes is a part of the budget. */
static tm_status take_step(work *w, tm_ledger *ledger, double *seconds, tm_error *err)
{
    int64_t begin = tm_now_ns();
    TM_TRY(tm_mlp_step(w->net, ledger, &w->last, err));
    *seconds = (double)(tm_now_ns() - begin) * 1e-9;
    if (w->warmed + w->counted > 0) return TM_OK;
    w->first = w->last;
    return tm_mlp_verify(w->net, &w->forward, err);
}

/* At least one iteration counts; no other begins that would not end within the budget, by the time of the last one.
 * Warm-up leaves room for half of the measured iterations that there could be. */
static tm_status take_steps(work *w, tm_error *err)
{
    int64_t warmup = tm_config_i64(w->bench->options, "warmup");
    tm_stop stop = TM_STOP_NO;
    double  seconds = 0;
    while (w->warmed < warmup && tm_bench_left(w->bench) > (double)(w->warmed + 1) * seconds && !stopped(w)) {
        TM_TRY(take_step(w, NULL, &seconds, err));
        w->warmed++;
    }
    tm_validity *validity = tm_validity_start("");
    tm_status    st = TM_OK;
    while (stop == TM_STOP_NO && !stopped(w) && (w->counted == 0 || tm_bench_left(w->bench) > seconds)) {
        st = take_step(w, &w->ledger, &seconds, err);
        if (st != TM_OK) break;
        w->counted++;
        stop = tm_sampling_add(w->sampling, seconds, (double)w->options.batch);
        tm_validity_sample(validity);
    }
    tm_validity_stop(validity, 0, &w->validity);
    tm_validity_destroy(validity);
    return st;
}

static double phase(const work *w, const char *prefix)
{
    double sum = 0;
    for (size_t i = 0; i < w->ledger.count; i++)
        if (strncmp(w->ledger.lines[i].name, prefix, strlen(prefix)) == 0) sum += w->ledger.lines[i].value;
    return sum / (double)w->counted;
}

/* --- the row --------------------------------------------------------------------------------- */

static void start_row(const work *w)
{
    const tm_config *o = w->bench->options;
    tm_table        *t = w->bench->table;
    tm_table_row(t);
    tm_table_text(t, "host", w->bench->host);
    tm_table_text(t, "case", tm_config_text(o, "dims"));
    tm_table_i64(t, "parameters", tm_mlp_parameters(w->net));
    tm_table_i64(t, "batch", w->options.batch);
    tm_table_text(t, "activation", tm_config_text(o, "activation"));
    tm_table_text(t, "loss", "mean square error");
    tm_table_text(t, "optimizer", tm_config_text(o, "optimizer"));
    tm_table_text(t, "dtype", w->options.precision->name);
    tm_table_i64(t, "threads", w->bench->threads);
    tm_table_f64(t, "memory_gb", (double)tm_mlp_bytes(w->net) * 1e-9);
}

static tm_status put_row(work *w, tm_error *err)
{
    tm_table      *t = w->bench->table;
    tm_measurement m = { .summary = tm_sampling_summary(w->sampling), .loops = 1 };
    double         rate = m.summary.rate, samples = (double)w->options.batch;
    double         executed = tm_mlp_flops(w->net) / samples * rate;
    m.stop = m.summary.stop;
    m.verdict = w->validity.verdict;
    m.reason = w->validity.reason;
    m.calls = w->warmed;
    tm_bench_put(t, &m);
    tm_table_f64(t, "samples_per_second", rate);
    tm_table_f64(t, "samples_per_second_lo", m.summary.rate_lo);
    tm_table_f64(t, "samples_per_second_hi", m.summary.rate_hi);
    tm_table_f64(t, "step_ms", 1e3 * samples / rate);
    tm_table_f64(t, "fwd_ms", 1e3 * phase(w, "forward"));
    tm_table_f64(t, "bwd_ms", 1e3 * phase(w, "backward"));
    tm_table_f64(t, "loss_ms", 1e3 * phase(w, "loss"));
    if (w->options.update) tm_table_f64(t, "update_ms", 1e3 * phase(w, "optimizer"));
    tm_table_f64(t, "tflops_6n", 6 * (double)tm_mlp_parameters(w->net) * rate * 1e-12);
    tm_table_f64(t, "tflops_executed", executed * 1e-12);
    tm_table_f64(t, "loss_first", w->first);
    if (w->warmed + w->counted > 1) tm_table_f64(t, "loss_last", w->last);
    return tm_bench_guard(w->bench, "mlp", w->options.precision->compute, executed, 0, err);
}

/* The forward pass was held against float64; training learns its one batch, where there are enough iterations. */
static void judge(work *w)
{
    enum { ENOUGH = 10 };
    tm_mlp_check result = w->forward;
    bool         trains = w->options.update && w->options.learning_rate > 0;
    bool         learns = !trains || w->counted < ENOUGH || w->last < w->first;
    if (trains && w->counted < ENOUGH)
        tm_bench_note(w->bench,
                      "mlp: %lld iteration%s: outputs are judged, but whether it learns takes %d; raise --budget or "
                      "--iterations",
                      (long long)w->counted, w->counted == 1 ? "" : "s", ENOUGH);
    tm_table_bool(w->bench->table, "correct", result.correct && learns);
    if (isfinite(result.worst)) tm_table_f64(w->bench->table, "error_of_bound", result.worst);
    if (!result.correct)
        tm_bench_invalid(w->bench, "mlp: wrong result: an output is %.9g, wanted %.9g within %.3g", result.found,
                         result.wanted, result.bound);
    if (!learns || !isfinite(w->last))
        tm_bench_invalid(w->bench, "mlp: the loss of the one batch went from %.6g to %.6g in %lld iterations", w->first,
                         w->last, (long long)w->counted);
}

static tm_status measure(work *w, tm_error *err)
{
    tm_sampling_options limits = { .max_samples = tm_config_i64(w->bench->options, "iterations") };
    TM_TRY(tm_mlp_open(w->net, w->bench, err));
    double left = tm_bench_left(w->bench);
    limits.max_seconds = left > 1e-3 ? left : 1e-3;
    w->sampling = tm_sampling_create(&limits);
    tm_status st = take_steps(w, err);
    if (st == TM_OK) start_row(w);
    if (st == TM_OK && w->counted == 0) tm_table_text(w->bench->table, "skipped", "stopped before the first iteration");
    if (st == TM_OK && w->counted > 0) {
        st = put_row(w, err);
        judge(w);
    }
    tm_sampling_destroy(w->sampling);
    return st;
}

static tm_status run(tm_bench *bench, tm_error *err)
{
    const double default_budget = 300;
    char         want[32], have[32];
    work         w = { .bench = bench };
    TM_TRY(read_options(&w, err));
    if (!tm_config_is_set(bench->options, "budget")) bench->end_ns = tm_now_ns() + (int64_t)(default_budget * 1e9);
    TM_TRY(tm_mlp_create(&w.options, bench->device, &w.net, err));
    tm_table_columns(bench->table, columns, sizeof columns / sizeof columns[0]);
    tm_bench_columns(bench->table);
    tm_table_brief(bench->table, brief, sizeof brief / sizeof brief[0]);
    double    available = (double)tm_memory_available_bytes("");
    tm_status st = TM_OK;
    if (available > 0 && (double)tm_mlp_bytes(w.net) > available) {
        start_row(&w);
        tm_table_printf(bench->table, "skipped", "needs %s, %s are available",
                        tm_format_bytes(want, (double)tm_mlp_bytes(w.net)), tm_format_bytes(have, available));
    } else {
        st = measure(&w, err);
    }
    tm_mlp_destroy(w.net);
    if (st == TM_OK && stopped(&w))
        return tm_fail(err, TM_INTERRUPTED, "stopped after %lld iterations", (long long)w.counted);
    return st;
}

const tm_workload tm_workload_mlp = {
    .name = "mlp",
    .summary = "train a multilayer perceptron, 4096-8192-8192-4096; budget 300 s unless given",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .gpus = true,
    .run = run,
};
