/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/gemm.c - matrix products: our kernel, and the libraries of the machine (docs/bench-gemm.md). */
#include "base/arena.h"
#include "base/cpu.h"
#include "apps/bench/engine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* clang-format off */
static const tm_key options[] = {
    { .name = "M", .kind = TM_KEY_I64, .fallback = "4096", .lo = 1, .hi = 1 << 24, .help = "rows of C" },
    { .name = "N", .kind = TM_KEY_I64, .fallback = "4096", .lo = 1, .hi = 1 << 24, .help = "columns of C" },
    { .name = "K", .kind = TM_KEY_I64, .fallback = "4096", .lo = 1, .hi = 1 << 24, .help = "terms of every sum" },
    { .name = "trans_a", .kind = TM_KEY_BOOL, .fallback = "false", .help = "A is stored as (K, M)" },
    { .name = "trans_b", .kind = TM_KEY_BOOL, .fallback = "false", .help = "B is stored as (N, K)" },
    { .name = "dtype", .kind = TM_KEY_CHOICE, .fallback = "float32",
      .choices = "float32=fp32|tf32|bfloat16=bf16|float16=fp16|float8_e4m3=fp8|float8_e5m2|float8_e4m3fnuz|float8_e5m2fnuz",
      .help = "number format of A and B; on GPUs also of 8 bits (MI300: FNUZ), and float32 rounded to TF32" },
    { .name = "c-dtype", .kind = TM_KEY_CHOICE, .choices = "float32=fp32|bfloat16=bf16|float16=fp16",
      .help = "number format of C; null: that of A and B (8 bits: bfloat16), float32 with libraries of a CPU" },
    { .name = "shapes", .kind = TM_KEY_TEXT,
      .help = "instead of M, N, K: llama70b, or MxNxK separated by commas, optionally MxNxK:nt" },
    { .name = "model", .kind = TM_KEY_TEXT,
      .help = "measure the products of a training step of this model (a preset or a file)" },
    { .name = "batch", .kind = TM_KEY_I64, .fallback = "1", .lo = 1, .hi = 1 << 20, .help = "sequences, with --model" },
    { .name = "seq", .kind = TM_KEY_I64, .fallback = "0", .lo = 0, .hi = 1 << 24,
      .help = "tokens of a sequence, with --model; 0: the model's own" },
    { .name = "scale", .kind = TM_KEY_F64, .fallback = "1", .lo = 1, .hi = 1000,
      .help = "divide every dimension by this: these are different shapes with different names" },
    { .name = "cache", .kind = TM_KEY_CHOICE, .fallback = "cold", .choices = "cold|warm|both",
      .help = "cold: operands come from memory; warm: from the cache, as far as they fit" },
    { .name = "libraries", .kind = TM_KEY_BOOL, .fallback = "false",
      .help = "measure our kernel, every matrix library and (CPU) the reference in turns" },
    { .name = "library", .kind = TM_KEY_TEXT,
      .help = "one library instead: oneDNN, OpenBLAS, BLIS, MKL; cublasLt, hipBLASLt" },
};
/* clang-format on */

static const tm_column columns[] = {
    { "host", 0 },
    { "world", 0 },
    { "rank", 0 },
    { "case", 0 },
    { "name", 0 },
    { "engine", 0 },
    { "M", 0 },
    { "N", 0 },
    { "K", 0 },
    { "trans_a", 0 },
    { "trans_b", 0 },
    { "dtype", 0 },
    { "c_dtype", 0 },
    { "cache", 0 },
    { "threads", 0 },
    { "device", 0 },
    { "avg_time_ms", 5 },
    { "tflop", 5 },
    { "tflops", 5 },
    { "bandwidth_gbps", 4 },
    { "arith_intensity", 5 },
    { "peak_pct", 3 },
    { "time_ratio", 4 },
    { "correct", 0 },
    { "error_of_bound", 2 },
    { "skipped", 0 },
};
static const char *const brief[] = { "case",    "engine",         "tflops",   "skipped", "median_ms",  "dtype",
                                     "correct", "half_width_pct", "peak_pct", "cache",   "time_ratio", "name" };

enum { GPU_TICK_NS = 1000 }; /* CUDA's events count in steps of about half a microsecond */

typedef struct {
    tm_bench       *bench;
    tm_engine_list  engines;
    tm_product_list products;
} work;

/* An engine with operands: what is timed. */
typedef struct {
    tm_engine         *engine;
    const tm_operands *operands;
} job;

static void call(void *context, int64_t turn)
{
    const job *j = context;
    j->engine->run(j->engine, j->operands, turn);
}

static tm_status call_series(void *context, int64_t turn, int64_t calls, double *seconds, tm_error *err)
{
    const job *j = context;
    return j->engine->series(j->engine, j->operands, turn, calls, seconds, err);
}

/* --- rows ------------------------------------------------------------------------------------ */

static void start_row(tm_bench *bench, const tm_product *p, const tm_engine *engine, bool cold)
{
    tm_table *t = bench->table;
    tm_table_row(t);
    tm_table_text(t, "host", bench->host);
    tm_table_i64(t, "world", 1);
    tm_table_i64(t, "rank", 0);
    tm_table_printf(t, "case", "%lldx%lldx%lld", (long long)p->m, (long long)p->n, (long long)p->k);
    tm_table_text(t, "name", *p->name ? p->name : NULL);
    tm_table_text(t, "engine", engine ? engine->name : NULL);
    tm_table_i64(t, "M", p->m);
    tm_table_i64(t, "N", p->n);
    tm_table_i64(t, "K", p->k);
    tm_table_bool(t, "trans_a", p->trans_a);
    tm_table_bool(t, "trans_b", p->trans_b);
    tm_table_text(t, "dtype", p->tf32 ? "tf32" : tm_dtype_name(p->dtype));
    tm_table_text(t, "c_dtype", tm_dtype_name(p->c_dtype));
    tm_table_text(t, "cache", cold ? "cold" : "warm");
    if (engine && engine->threads > 0) tm_table_i64(t, "threads", engine->threads);
    tm_table_text(t, "device", tm_config_text(bench->options, "device"));
    tm_table_f64(t, "tflop", tm_product_flops(p) / 1e12);
    tm_table_f64(t, "arith_intensity", tm_product_flops(p) / tm_product_bytes(p));
}

/* "oneDNN 512 x 768 x 64 nt" */
static void describe(char out[192], const tm_product *p, const tm_engine *engine)
{
    snprintf(out, 192, "%s %lldx%lldx%lld:%c%c", engine->name, (long long)p->m, (long long)p->n, (long long)p->k,
             p->trans_a ? 't' : 'n', p->trans_b ? 't' : 'n');
}

static void put_check(tm_bench *bench, const tm_product *p, const tm_engine *engine, const tm_product_check *check)
{
    char name[192];
    tm_table_bool(bench->table, "correct", check->correct);
    if (isfinite(check->worst)) tm_table_f64(bench->table, "error_of_bound", check->worst);
    if (check->correct) return;
    describe(name, p, engine);
    tm_bench_invalid(bench, "%s: wrong result: C[%lld][%lld] is %.9g, wanted %.9g within %.3g", name,
                     (long long)check->row, (long long)check->column, check->found, check->wanted, check->bound);
}

static tm_status put_rates(tm_bench *bench, const tm_product *p, tm_engine *engine, bool cold, const tm_measurement *m,
                           tm_error *err)
{
    const tm_ceilings *ceilings;
    char               name[192];
    tm_table          *t = bench->table;
    double             rate = m->summary.rate, bytes = rate / tm_product_flops(p) * tm_product_bytes(p);
    TM_TRY(tm_bench_ceilings(bench, &ceilings, err));
    double peak = p->tf32 ? 0 : tm_bench_peak(bench, p->dtype); /* that of TF32 is in no table */
    tm_table_f64(t, "avg_time_ms", tm_product_flops(p) / rate * 1e3);
    tm_table_f64(t, "tflops", rate / 1e12);
    tm_table_f64(t, "bandwidth_gbps", bytes * 1e-9);
    if (peak > 0) tm_table_f64(t, "peak_pct", rate / peak * 100);
    engine->rate = rate;
    /* What may stay in the cache between calls need not move: then the memory is no limit. */
    bool from_memory = cold && tm_product_bytes(p) > 2. * (double)tm_last_level_bytes(NULL);
    describe(name, p, engine);
    return tm_bench_guard(bench, name, p->tf32 ? TM_BF16 : p->dtype, rate, from_memory ? bytes : 0, err);
}

/* --- measuring ------------------------------------------------------------------------------- */

/* Median over the rounds of time / time of the first engine. */
static double time_ratio(const tm_samples *first, const tm_samples *other)
{
    int64_t n = first->n < other->n ? first->n : other->n;
    if (n < 1) return (double)NAN;
    double *ratios = tm_alloc((size_t)n * sizeof *ratios);
    for (int64_t i = 0; i < n; i++) ratios[i] = other->seconds[i] / first->seconds[i];
    double median = tm_stats_median(ratios, n);
    free(ratios);
    return median;
}

/* C of set 0, into the host's memory. */
static tm_status compute(tm_engine *engine, tm_operands *o, tm_error *err)
{
    double seconds;
    if (!engine->series) {
        engine->run(engine, o, 0);
        return TM_OK;
    }
    TM_TRY(tm_operands_send_c(o, err));
    TM_TRY(engine->series(engine, o, 0, 1, &seconds, err));
    return tm_operands_fetch_c(o, err);
}

static tm_status time_jobs(work *w, tm_operands *o, tm_engine *const *engines, int count, bool cold, tm_error *err)
{
    tm_samples samples[TM_ENGINES];
    tm_timed   timed[TM_ENGINES] = { { 0 } };
    job        jobs[TM_ENGINES];
    tm_timing  timing = w->bench->timing;
    timing.settle = count > 1 && !o->device;
    timing.cold = cold && o->sets == 1; /* otherwise turns make them cold, and wake no thread beside a library's */
    if (o->device) timing.series = call_series, timing.tick_ns = GPU_TICK_NS;
    if (engines[0]->slow) timing.min_samples = 1, timing.warmup_ms = 0, timing.precision = 0;
    for (int i = 0; i < count; i++) {
        jobs[i] = (job){ engines[i], o };
        timed[i] = (tm_timed){ call, &jobs[i] };
    }
    tm_status st = tm_time(&timing, timed, count, samples, err);
    for (int i = 0; i < count; i++) {
        tm_status        inner = TM_OK;
        tm_product_check check;
        start_row(w->bench, &o->product, engines[i], cold);
        if (samples[i].n > 0) {
            tm_measurement m;
            tm_bench_summarize(&samples[i], tm_product_flops(&o->product), &m);
            tm_bench_put(w->bench->table, &m);
            inner = put_rates(w->bench, &o->product, engines[i], cold, &m, err);
            if (count > 1) tm_table_f64(w->bench->table, "time_ratio", time_ratio(&samples[0], &samples[i]));
        } else {
            tm_table_text(w->bench->table, "skipped", "the budget ended before a sample");
        }
        if (st == TM_OK && inner == TM_OK) {
            /* Onto NaN: a product that leaves elements out is found, too. */
            tm_operands_clear(o, 0, w->bench->threads);
            inner = compute(engines[i], o, err);
            if (inner == TM_OK) tm_product_verify(o, 0, w->bench->seed, w->bench->threads, &check);
            if (inner == TM_OK) put_check(w->bench, &o->product, engines[i], &check);
        }
        if (st == TM_OK) st = inner;
    }
    for (int i = 0; i < count; i++) tm_samples_fini(&samples[i]);
    return st;
}

/* Seconds for the calls of these engines and their checks, by the rates seen so far. */
static double predict(const work *w, const tm_product *p, tm_engine *const *engines, int count)
{
    double seconds = 0, calls = 2. * (double)w->bench->timing.min_samples + 2;
    for (int i = 0; i < count; i++) {
        double rate = engines[i]->rate > 0 ? engines[i]->rate : w->bench->ceilings.flops / 2;
        if (rate > 0) seconds += (engines[i]->slow ? 3 : calls) * tm_product_flops(p) / rate;
        seconds += tm_product_verify_seconds(p, w->bench->threads);
    }
    return seconds;
}

/* Why these engines cannot measure the product now; empty: they can. */
static void why_not(const work *w, const tm_operands *o, tm_engine *const *engines, int count, char out[192])
{
    char   want[32], have[32];
    double available = (double)tm_memory_available_bytes(""), left = tm_bench_left(w->bench);
    double needed = (double)o->bytes + 4. * (double)tm_last_level_bytes(NULL), seconds;
    double there = o->device ? (double)tm_device_describe(o->device)->memory_bytes : 0;
    out[0] = '\0';
    if (there > 0 && (double)o->bytes > there) {
        snprintf(out, 192, "needs %s of the GPU's memory, it has %s", tm_format_bytes(want, (double)o->bytes),
                 tm_format_bytes(have, there));
        return;
    }
    if (o->device) needed = (double)(o->bytes / (size_t)o->sets);
    if (available > 0 && needed > 0.9 * available) {
        snprintf(out, 192, "needs %s of memory, %s are available", tm_format_bytes(want, needed),
                 tm_format_bytes(have, available));
        return;
    }
    seconds = predict(w, &o->product, engines, count);
    if (seconds > left)
        snprintf(out, 192, "needs about %.3g s, but only %.3g s of the budget is left for it; raise --budget", seconds,
                 left);
}

static void skip_all(work *w, const tm_product *p, tm_engine *const *engines, int count, bool cold, const char *reason)
{
    for (int i = 0; i < count; i++) {
        start_row(w->bench, p, engines[i], cold);
        tm_table_text(w->bench->table, "skipped", reason);
    }
}

/* With operands in the device's memory, of which others may have a part. */
static tm_status measure_there(work *w, tm_operands *o, tm_engine *const *engines, int count, bool cold, tm_error *err)
{
    tm_error  own = { 0 };
    tm_status st = tm_operands_fill_there(o, w->bench, &own);
    if (st == TM_OK)
        st = time_jobs(w, o, engines, count, cold, err);
    else if (st == TM_NOMEM)
        skip_all(w, &o->product, engines, count, cold, own.text), st = TM_OK;
    else
        st = tm_fail(err, st, "%s", own.text);
    tm_operands_release_there(o);
    return st;
}

static tm_status measure(work *w, const tm_product *p, tm_engine *const *engines, int count, bool cold, tm_error *err)
{
    tm_operands o;
    char        reason[192];
    bool        rotates = cold;
    if (w->bench->stop && *w->bench->stop)
        return tm_fail(err, TM_INTERRUPTED, "stopped before all shapes were measured");
    if (count == 1 && !engines[0]->library && !engines[0]->series)
        rotates = cold && tm_product_bytes(p) <= 2. * (double)tm_last_level_bytes(NULL); /* else the overwriting does */
    if (tm_bench_on_gpu(w->bench))
        tm_operands_plan_there(&o, p, cold, w->bench->device);
    else
        tm_operands_plan(&o, p, rotates);
    why_not(w, &o, engines, count, reason);
    if (*reason) {
        skip_all(w, p, engines, count, cold, reason);
        return TM_OK;
    }
    if (o.device) return measure_there(w, &o, engines, count, cold, err);
    TM_TRY(tm_operands_fill(&o, w->bench, err));
    tm_status st = time_jobs(w, &o, engines, count, cold, err);
    tm_operands_release(&o, w->bench);
    return st;
}

/* All engines that can do it in turns; those that cannot, and the slow one, have rows of their own. */
static tm_status measure_all(work *w, const tm_product *p, bool cold, tm_error *err)
{
    tm_engine *able[TM_ENGINES];
    int        count = 0;
    for (size_t i = 0; i < w->engines.count; i++) {
        tm_engine  *engine = &w->engines.items[i];
        const char *why = engine->refuse(engine, p);
        if (!why && engine->prepare) TM_TRY(engine->prepare(engine, p, &why, err));
        if (why) {
            start_row(w->bench, p, engine, cold);
            tm_table_text(w->bench->table, "skipped", why);
        } else if (!engine->slow) {
            able[count++] = engine;
        }
    }
    if (count > 0) TM_TRY(measure(w, p, able, count, cold, err));
    for (size_t i = 0; i < w->engines.count; i++) {
        tm_engine *engine = &w->engines.items[i];
        if (engine->slow) TM_TRY(measure(w, p, &engine, 1, cold, err));
    }
    return TM_OK;
}

/* --- what to measure ------------------------------------------------------------------------- */

static tm_dtype format_named(const char *name)
{
    static const tm_dtype formats[] = { TM_BF16, TM_F16, TM_E4M3, TM_E5M2, TM_E4M3FNUZ, TM_E5M2FNUZ };
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(name, tm_dtype_name(formats[i])) == 0) return formats[i];
    return TM_F32;
}

/* Codes of 8 bits are summed along rows: matrix units take them so, and training makes transposed copies. */
static tm_status read_codes(const work *w, tm_product *like, tm_error *err)
{
    const tm_config *c = w->bench->options;
    if (!tm_bench_on_gpu(w->bench))
        return tm_fail(err, TM_INVALID, "--dtype %s: products of 8 bits are a GPU's; add --device cuda or --device hip",
                       tm_dtype_name(like->dtype));
    if (like->trans_a || (tm_config_is_set(c, "trans_b") && !like->trans_b))
        return tm_fail(err, TM_INVALID,
                       "--dtype %s: A is stored as (M, K) and B as (N, K); leave --trans_a and --trans_b out",
                       tm_dtype_name(like->dtype));
    like->trans_b = true;
    return TM_OK;
}

/* For a hardware file: its numbers need several K. */
static const char several[] = "1024x1024x2048,1024x1024x1024,1024x1024x256,1024x1024x64,1024x1024x32",
                  several_on_gpu[] = "8192x8192x16384,8192x8192x8192,8192x8192x2048,8192x8192x512,8192x8192x128";

static tm_status read_products(work *w, bool libraries, tm_error *err)
{
    const tm_config *c = w->bench->options;
    const char      *shapes = tm_config_text(c, "shapes"), *model = tm_config_text(c, "model");
    const char      *c_dtype = tm_config_text(c, "c-dtype");
    tm_product       like = { .m = tm_config_i64(c, "M"), .n = tm_config_i64(c, "N"), .k = tm_config_i64(c, "K") };
    like.trans_a = tm_config_bool(c, "trans_a"), like.trans_b = tm_config_bool(c, "trans_b");
    like.dtype = format_named(tm_config_text(c, "dtype"));
    const bool codes = tm_dtype_bytes(like.dtype) == 1;
    like.c_dtype = c_dtype ? format_named(c_dtype) : libraries ? TM_F32 : codes ? TM_BF16 : like.dtype;
    if (codes) TM_TRY(read_codes(w, &like, err));
    like.tf32 = strcmp(tm_config_text(c, "dtype"), "tf32") == 0;
    if (like.tf32 && !tm_bench_on_gpu(w->bench))
        return tm_fail(err, TM_INVALID,
                       "--dtype tf32: a GPU's library rounds to TF32; add --device cuda or --device hip");
    bool sizes = tm_config_is_set(c, "M") || tm_config_is_set(c, "N") || tm_config_is_set(c, "K");
    if ((shapes != NULL) + (model != NULL) + sizes > 1)
        return tm_fail(err, TM_INVALID, "--M, --N, --K, --shapes and --model each say what to multiply; give one");
    if (!model && (tm_config_is_set(c, "batch") || tm_config_is_set(c, "seq")))
        return tm_fail(err, TM_INVALID, "--batch and --seq belong to --model, which is not given");
    if (!shapes && !model && !sizes && tm_config_text(c, "write-hardware"))
        shapes = tm_bench_on_gpu(w->bench) ? several_on_gpu : several;
    if (shapes) {
        TM_TRY(tm_products_parse(shapes, &like, &w->products, err));
    } else if (model) {
        tm_model_shape shape;
        int64_t        seq;
        TM_TRY(tm_bench_model(model, &shape, &seq, err));
        if (tm_config_i64(c, "seq") > 0) seq = tm_config_i64(c, "seq");
        tm_products_of_model(&shape, tm_config_i64(c, "batch"), seq, &like, &w->products);
        for (size_t i = 0; i < w->products.count && codes; i++)
            w->products.items[i].trans_a = false, w->products.items[i].trans_b = true;
    } else {
        w->products.items[w->products.count++] = like;
    }
    double scale = tm_config_f64(c, "scale");
    for (size_t i = 0; i < w->products.count && scale > 1; i++)
        w->products.items[i] = tm_product_scaled(&w->products.items[i], scale);
    return TM_OK;
}

static tm_status open_engines(work *w, bool libraries, const char *library, tm_error *err)
{
    tm_engine_list *list = &w->engines;
    if (tm_bench_on_gpu(w->bench)) return tm_engines_gpu(w->bench, libraries, library, list, err);
    if (library) return tm_engine_libraries(w->bench, library, list, err);
    TM_TRY(tm_engine_own(w->bench, &list->items[0], err));
    list->count = 1;
    if (!libraries) return TM_OK;
    TM_TRY(tm_engine_libraries(w->bench, NULL, list, err));
    tm_engine_reference(w->bench, &list->items[list->count++]);
    return TM_OK;
}

static tm_status measure_products(work *w, tm_error *err)
{
    const char        *cache = tm_config_text(w->bench->options, "cache");
    const tm_ceilings *ceilings; /* predictions start from them */
    if (tm_bench_on_gpu(w->bench))
        TM_TRY(tm_bench_ceilings(w->bench, &ceilings, err));
    else
        TM_TRY(tm_bench_note_ceilings(w->bench, err));
    tm_table_columns(w->bench->table, columns, sizeof columns / sizeof columns[0]);
    tm_bench_columns(w->bench->table);
    tm_table_brief(w->bench->table, brief, sizeof brief / sizeof brief[0]);
    for (size_t i = 0; i < w->products.count; i++) {
        if (strcmp(cache, "warm") != 0) TM_TRY(measure_all(w, &w->products.items[i], true, err));
        if (strcmp(cache, "cold") != 0) TM_TRY(measure_all(w, &w->products.items[i], false, err));
    }
    return tm_bench_on_gpu(w->bench) ? tm_bench_note_ceilings(w->bench, err) : TM_OK;
}

static tm_status run(tm_bench *bench, tm_error *err)
{
    work       *w = tm_alloc(sizeof *w);
    bool        libraries = tm_config_bool(bench->options, "libraries");
    const char *library = tm_config_text(bench->options, "library");
    *w = (work){ .bench = bench };
    tm_status st = TM_OK;
    if (libraries && library)
        st = tm_fail(err, TM_INVALID, "--libraries takes all of them, --library one; give one of both options");
    bool narrow = (libraries || library) && !tm_bench_on_gpu(bench); /* such libraries give float32 only */
    if (st == TM_OK) st = read_products(w, narrow, err);
    if (st == TM_OK) st = open_engines(w, libraries, library, err);
    if (st == TM_OK) st = measure_products(w, err);
    for (size_t i = 0; i < w->engines.count; i++) tm_engine_close(&w->engines.items[i]);
    free(w);
    return st;
}

const tm_workload tm_workload_gemm = {
    .name = "gemm",
    .summary = "measure matrix products: any shape or those of a model, with our kernel or a library",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .gpus = true,
    .run = run,
};
