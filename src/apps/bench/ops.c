/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/ops.c - what every op takes: instructions of training steps of small models, timed one by one, and ops of
 * pictures, which no such step has (docs/hardware-files.md). */
#include "base/arena.h"
#include "base/log.h"
#include "apps/bench/bench.h"
#include "apps/bench/part.h"
#include "apps/bench/pictures.h"
#include "plan/rates.h"
#include "stats/nonnegative.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const tm_key options[] = {
    { .name = "dtype", .kind = TM_KEY_CHOICE, .fallback = "float32", .choices = "float32=fp32|bfloat16=bf16",
      .help = "number format of the computation" },
    { .name = "passes", .kind = TM_KEY_I64, .fallback = "9", .lo = 1, .hi = 1000,
      .help = "steps of each model, at most; the budget may end before" },
    { .name = "case", .kind = TM_KEY_TEXT,
      .help = "a model and keys instead of the built-in ones: \"tiny-llama --model.dim 128\"; pictures: the calls of an "
              "autoencoder" },
};
static const tm_column columns[] = {
    { "host", 0 }, { "op", 0 }, { "calls", 0 }, { "time_pct", 3 }, { "call_us", 4 }, { "tflops", 4 }, { "gbps", 4 },
    { "error_pct", 3 }, { "worst_pct", 3 }, { "threads", 0 }, { "device", 0 }, { "skipped", 0 },
};
static const char *const brief[] = { "op", "calls", "time_pct", "call_us", "tflops", "gbps", "error_pct", "skipped" };

/* Small ones of several families: widths of 128 to 768, 128 to 512 tokens. */
#define COMMON " --model.max_seq_len 512 --training.local_batch_size "
static const char *const built_in[] = {
    "gpt-small --model.n_layers 2 --model.dim 128 --model.n_heads 2 --model.ffn_dim 512 --model.vocab_size 512 --training.seq_len 128" COMMON "4",
    "gpt-small --model.n_layers 2 --model.dim 256 --model.n_heads 4 --model.ffn_dim 1024 --model.vocab_size 1024 --training.seq_len 256" COMMON "2",
    "gpt-small --model.n_layers 1 --model.dim 512 --model.n_heads 8 --model.ffn_dim 2048 --model.vocab_size 4096 --training.seq_len 256" COMMON "2",
    "gpt-small --model.n_layers 1 --model.dim 768 --model.n_heads 12 --model.ffn_dim 3072 --model.vocab_size 8192 --training.seq_len 512" COMMON "1",
    "tiny-llama --model.n_layers 2 --model.dim 128 --model.n_heads 4 --model.n_kv_heads 2 --model.ffn_dim 384 --training.seq_len 128" COMMON "2",
    "tiny-llama --model.n_layers 2 --model.dim 256 --model.n_heads 4 --model.n_kv_heads 2 --model.ffn_dim 768 --training.seq_len 512" COMMON "1",
    "tiny-llama --model.n_layers 2 --model.dim 384 --model.n_heads 6 --model.n_kv_heads 6 --model.ffn_dim 1024 --model.vocab_size 2048 --training.seq_len 256" COMMON "4",
    "tiny-llama --model.n_layers 1 --model.dim 768 --model.n_heads 6 --model.n_kv_heads 2 --model.ffn_dim 2048 --model.vocab_size 4096 --training.seq_len 256" COMMON "2",
    "qwen3_debugmodel --model.n_layers 2 --model.dim 256 --model.n_heads 4 --model.n_kv_heads 2 --model.head_dim 64 --model.ffn_dim 768 --model.vocab_size 1024 --training.seq_len 256" COMMON "2",
    "qwen3_debugmodel --model.n_layers 1 --model.dim 512 --model.n_heads 8 --model.n_kv_heads 4 --model.head_dim 64 --model.ffn_dim 1536 --model.vocab_size 2048 --training.seq_len 128" COMMON "2",
    "qwen3_debugmodel --model.n_layers 1 --model.dim 128 --model.n_heads 2 --model.n_kv_heads 1 --model.head_dim 64 --model.ffn_dim 384 --model.vocab_size 512 --training.seq_len 256" COMMON "4",
    "mixtral_8x7B --model.n_layers 2 --model.dim 256 --model.n_heads 4 --model.n_kv_heads 2 --model.ffn_dim 512 --model.moe_ffn_dim 512 --model.n_experts 4 --model.vocab_size 512 --training.seq_len 256" COMMON "2",
    "mixtral_8x7B --model.n_layers 1 --model.dim 128 --model.n_heads 2 --model.n_kv_heads 1 --model.ffn_dim 256 --model.moe_ffn_dim 256 --model.n_experts 8 --model.vocab_size 512 --training.seq_len 128" COMMON "4",
    "mixtral_8x7B --model.n_layers 1 --model.dim 512 --model.n_heads 8 --model.n_kv_heads 2 --model.ffn_dim 768 --model.moe_ffn_dim 768 --model.n_experts 4 --model.vocab_size 2048 --training.seq_len 128" COMMON "4",
};
/* clang-format on */
enum { MODELS = sizeof built_in / sizeof built_in[0], LEAST_PASSES = 3, TERMS = 3 };

typedef struct {
    char    name[TM_OP_NAME_BYTES];
    double *rows, *seconds; /* (n, TERMS): 1, FLOPs, bytes; (n) */
    size_t  n, capacity, seconds_capacity;
} op_samples;

typedef struct {
    tm_bench   *bench;
    op_samples *ops;
    size_t      n, capacity;
    double      seconds; /* of all ops */
} work;

static op_samples *samples_of(work *w, const char *name)
{
    for (size_t i = 0; i < w->n; i++)
        if (strcmp(w->ops[i].name, name) == 0) return &w->ops[i];
    w->ops = tm_grow(w->ops, &w->capacity, w->n, sizeof *w->ops);
    op_samples *new = &w->ops[w->n++];
    *new = (op_samples){ 0 };
    snprintf(new->name, sizeof new->name, "%s", name);
    return new;
}

static void add(void *work_, const tm_call *call, tm_cost cost, double seconds)
{
    work *w = work_;
    char  name[TM_OP_NAME_BYTES];
    tm_hardware_op_name(call, name);
    op_samples *s = samples_of(w, name);
    s->rows = tm_grow(s->rows, &s->capacity, s->n, TERMS * sizeof *s->rows);
    s->seconds = tm_grow(s->seconds, &s->seconds_capacity, s->n, sizeof *s->seconds);
    s->rows[TERMS * s->n] = 1;
    s->rows[TERMS * s->n + 1] = cost.flops;
    s->rows[TERMS * s->n + 2] = cost.bytes;
    s->seconds[s->n++] = seconds;
    w->seconds += seconds;
}

/* --- a model ---------------------------------------------------------------------------------- */

/* The median of its passes for each instruction. */
static void add_all(work *w, const tm_step_schedule *schedule, const double *seconds, size_t n, size_t passes)
{
    double *one = tm_alloc(passes * sizeof *one);
    size_t  at = 0;
    for (size_t k = 0; k < schedule->n; k++)
        for (size_t i = 0; i < schedule->work[k].program->count; i++, at++) {
            for (size_t p = 0; p < passes; p++) one[p] = seconds[p * n + at];
            const tm_instruction *x = &schedule->work[k].program->instructions[i];
            add(w, &x->call, x->cost, tm_stats_median(one, (int64_t)passes));
        }
    free(one);
}

/* Passes until the share of the budget is used up, LEAST_PASSES at least. */
static tm_status take_passes(work *w, tm_live_part *live, double share, tm_error *err)
{
    const tm_step_schedule *schedule = &tm_part_step_of(live)->training;
    size_t                  most = (size_t)tm_config_i64(w->bench->options, "passes"), n = 0, passes = 0;
    double                  whole, end = tm_bench_left(w->bench) - share;
    for (size_t i = 0; i < schedule->n; i++) n += schedule->work[i].program->count;
    double   *seconds = tm_alloc(most * n * sizeof *seconds);
    tm_status st = tm_part_step(live, &whole, err); /* also judges the loss */
    while (st == TM_OK && passes < most && (passes < LEAST_PASSES || tm_bench_left(w->bench) > end)) {
        st = tm_part_step_apart(live, seconds + passes * n, err);
        if (st == TM_OK) passes++;
        if (w->bench->stop && *w->bench->stop) st = tm_fail(err, TM_INTERRUPTED, "stopped while timing");
    }
    if (st == TM_OK) add_all(w, schedule, seconds, n, passes);
    free(seconds);
    return st;
}

static tm_status measure(work *w, const char *line, double share, tm_error *err)
{
    tm_config     *config;
    tm_run_options run;
    tm_part        part;
    tm_live_part  *live = NULL;
    tm_status      st = tm_bench_model_config(line, &config, err);
    if (st == TM_OK) st = tm_run_options_read(config, &run, err);
    if (st == TM_OK) {
        bool bf16 = strcmp(tm_config_text(w->bench->options, "dtype"), "bfloat16") == 0;
        run.seed = w->bench->seed;
        run.step.precision = bf16 ? &tm_precision_bf16 : &tm_precision_f32;
        st = tm_part_plan(&run, run.step.shape.n_layers, w->bench->device, &part, err);
    }
    if (st == TM_OK) st = tm_part_open(&part, w->bench->device, &live, err);
    if (st == TM_OK) st = take_passes(w, live, share, err);
    tm_part_close(live);
    tm_config_destroy(config);
    return st;
}

static tm_status take_pictures(work *w, tm_error *err)
{
    bool   bf16 = strcmp(tm_config_text(w->bench->options, "dtype"), "bfloat16") == 0;
    size_t most = (size_t)tm_config_i64(w->bench->options, "passes");
    return tm_pictures_time(w->bench, bf16 ? TM_BF16 : TM_F32, most < LEAST_PASSES ? most : LEAST_PASSES, most,
                            tm_bench_left(w->bench), add, w, err);
}

/* --- all of them ------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    double x = 0, y = 0;
    for (size_t i = 0; i < ((const op_samples *)a)->n; i++) x += ((const op_samples *)a)->seconds[i];
    for (size_t i = 0; i < ((const op_samples *)b)->n; i++) y += ((const op_samples *)b)->seconds[i];
    return x < y ? 1 : x > y ? -1 : 0;
}

/* Rates fitted to the samples: errors count relative to the time, long calls a little more. */
static void put_op(work *w, const op_samples *s)
{
    tm_table *t = w->bench->table;
    double   *weights = tm_alloc(s->n * sizeof *weights), each[TERMS], sum = 0, worst = 0;
    for (size_t i = 0; i < s->n; i++) weights[i] = 1 / fmax(s->seconds[i], 1e-9);
    tm_stats_nonnegative(s->rows, s->seconds, weights, (int64_t)s->n, TERMS, each);
    for (size_t i = 0; i < s->n; i++) {
        const double *row = s->rows + TERMS * i;
        double        told = row[0] * each[0] + row[1] * each[1] + row[2] * each[2];
        sum += s->seconds[i];
        weights[i] = 100 * fabs(told / fmax(s->seconds[i], 1e-9) - 1);
        worst = fmax(worst, weights[i]);
    }
    tm_table_row(t);
    tm_table_text(t, "host", w->bench->host);
    tm_table_text(t, "op", s->name);
    tm_table_i64(t, "calls", (int64_t)s->n);
    tm_table_f64(t, "time_pct", 100 * sum / w->seconds);
    if (each[0] > 0) tm_table_f64(t, "call_us", each[0] * 1e6);
    if (each[1] > 0) tm_table_f64(t, "tflops", 1e-12 / each[1]);
    if (each[2] > 0) tm_table_f64(t, "gbps", 1e-9 / each[2]);
    tm_table_f64(t, "error_pct", tm_stats_median(weights, (int64_t)s->n));
    tm_table_f64(t, "worst_pct", worst);
    tm_table_i64(t, "threads", w->bench->threads);
    tm_table_text(t, "device", tm_config_text(w->bench->options, "device"));
    free(weights);
}

static tm_status run(tm_bench *bench, tm_error *err)
{
    work        w = { .bench = bench };
    const char *given = tm_config_text(bench->options, "case");
    bool        pictures = !given || strcmp(given, "pictures") == 0;
    int         models = !given ? MODELS : pictures ? 0 : 1;
    tm_status   st = TM_OK;
    tm_table_columns(bench->table, columns, sizeof columns / sizeof columns[0]);
    tm_table_brief(bench->table, brief, sizeof brief / sizeof brief[0]);
    for (int i = 0; i < models && st == TM_OK; i++)
        st = measure(&w, given ? given : built_in[i], tm_bench_left(bench) / (models - i + pictures), err);
    if (st == TM_OK && pictures) st = take_pictures(&w, err);
    if (w.n > 0) qsort(w.ops, w.n, sizeof *w.ops, by_time);
    for (size_t i = 0; i < w.n && st == TM_OK; i++) put_op(&w, &w.ops[i]);
    for (size_t i = 0; i < w.n; i++) {
        free(w.ops[i].rows);
        free(w.ops[i].seconds);
    }
    free(w.ops);
    char steps[64] = "";
    if (models) snprintf(steps, sizeof steps, "training steps of %d model(s)%s", models, pictures ? " and " : "");
    tm_bench_note(
        bench,
        "time of a call = call_us + FLOPs / tflops + bytes / gbps, fitted to %s%s; error_pct: of the fit, median",
        steps, pictures ? "calls of an autoencoder" : "");
    return st;
}

const tm_workload tm_workload_ops = {
    .name = "ops",
    .summary = "measure every op, as training steps of small models call it",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .gpus = true,
    .run = run,
};
