/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/stream.c - bandwidth of memory; of main memory by the five kernels of STREAM and BabelStream
 * (docs/bench-stream.md). */
#include "base/cpu.h"
#include "apps/bench/stream.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* clang-format off */
static const tm_key options[] = {
    { .name = "elements", .kind = TM_KEY_I64, .fallback = "0", .lo = 0, .hi = 1e12,
      .help = "elements of each of the three arrays (float64, on GPUs float32); 0: four times the "
              "last cache" },
    { .name = "repetitions", .kind = TM_KEY_I64, .fallback = "0", .lo = 0, .hi = 100000,
      .help = "samples of each kernel; 0: as many as rep-ms or duration gives, at least three" },
};
/* clang-format on */

static const tm_column columns[] = {
    { "host", 0 },      { "kernel", 0 },    { "stores", 0 },      { "by", 0 },      { "threads", 0 }, { "elements", 0 },
    { "array_mib", 5 }, { "best_mbps", 6 }, { "median_mbps", 6 }, { "correct", 0 }, { "skipped", 0 },
};
static const char *const brief[] = { "kernel", "stores",  "best_mbps", "skipped",     "correct",
                                     "by",     "threads", "array_mib", "median_mbps", "half_width_pct" };

typedef struct {
    tm_bench        *bench;
    tm_stream_kernel kernel;
    bool             streaming;
    double          *a, *b, *c;
    int64_t          n;
    double           sum; /* of DOT */
} work;

/* Values before every kernel: powers of two and small integers, so that all results are exact. */
enum { A = 1, B = 2, C = 4, SCALAR = 3 };

static void call(void *context, int64_t turn)
{
    work *w = context;
    (void)turn;
    w->sum = tm_device_stream(w->bench->device, w->kernel, w->streaming, SCALAR, w->a, w->b, w->c, w->n);
}

/* Every element must hold what the kernel makes of A, B and C, in all three arrays. */
static bool right(const work *w)
{
    double  a = w->kernel == TM_STREAM_TRIAD ? B + SCALAR * C : A;
    double  b = w->kernel == TM_STREAM_MUL ? SCALAR * C : B;
    double  c = w->kernel == TM_STREAM_COPY ? A : w->kernel == TM_STREAM_ADD ? A + B : C;
    int64_t wrong = 0;
    for (int64_t i = 0; i < w->n; i++) wrong += !(w->a[i] == a) + !(w->b[i] == b) + !(w->c[i] == c);
    /* Partial sums of 2 are whole numbers below 2^53: exact in any order. */
    return wrong == 0 && (w->kernel != TM_STREAM_DOT || w->sum == 2. * (double)w->n);
}

void tm_stream_put(tm_bench *bench, const tm_stream_row *row, const tm_samples *samples)
{
    tm_table   *table = bench->table;
    const char *name = tm_stream_name(row->kernel);
    tm_table_row(table);
    tm_table_text(table, "host", bench->host);
    tm_table_text(table, "kernel", name);
    tm_table_text(table, "stores", row->stores);
    if (row->by) tm_table_text(table, "by", row->by);
    if (!row->by) tm_table_i64(table, "threads", bench->threads);
    tm_table_i64(table, "elements", row->n);
    tm_table_f64(table, "array_mib", (double)(row->n * row->element) / 1048576);
    if (samples->n == 0) {
        tm_table_text(table, "skipped", "the budget ended before a sample (--budget)");
        return;
    }
    double         bytes = (double)(row->arrays * row->element * row->n), least = samples->seconds[0];
    tm_measurement m;
    tm_bench_summarize(samples, bytes, &m);
    for (int64_t i = 1; i < samples->n; i++) least = fmin(least, samples->seconds[i]);
    tm_table_f64(table, "best_mbps", bytes / least * 1e-6);
    tm_table_f64(table, "median_mbps", bytes / m.summary.median * 1e-6);
    tm_table_bool(table, "correct", row->correct);
    tm_bench_put(table, &m);
    if (!row->correct) tm_bench_invalid(bench, "stream %s: the arrays do not hold what the kernel computes", name);
}

static tm_status measure(work *w, tm_error *err)
{
    tm_bench  *bench = w->bench;
    tm_timing  timing = bench->timing;
    tm_samples samples;
    tm_timed   timed = { call, w };
    int64_t    repetitions = tm_config_i64(bench->options, "repetitions");
    if (repetitions > 0) timing.min_samples = repetitions, timing.rep_ms = timing.duration_s = timing.precision = 0;
    tm_device_stream_fill(bench->device, w->a, A, w->b, B, w->c, C, w->n);
    tm_status     st = tm_time(&timing, &timed, 1, &samples, err);
    tm_stream_row row = { .kernel = w->kernel,
                          .stores = w->kernel == TM_STREAM_DOT ? "none"
                                    : w->streaming             ? "streaming"
                                                               : "ordinary",
                          .n = w->n,
                          .element = sizeof(double),
                          .arrays = (int)(tm_stream_bytes(w->kernel) / (int64_t)sizeof(double)),
                          .correct = samples.n > 0 && right(w) };
    tm_stream_put(bench, &row, &samples);
    tm_samples_fini(&samples);
    return st;
}

static void begin_table(tm_bench *bench)
{
    tm_table_columns(bench->table, columns, sizeof columns / sizeof columns[0]);
    tm_bench_columns(bench->table);
    tm_table_brief(bench->table, brief, sizeof brief / sizeof brief[0]);
}

static tm_status run_on_gpu(tm_bench *bench, tm_error *err)
{
    begin_table(bench);
    TM_TRY(tm_stream_on_gpu(bench, tm_config_i64(bench->options, "elements"), err));
    return tm_bench_note_ceilings(bench, err);
}

static tm_status run(tm_bench *bench, tm_error *err)
{
    bool known;
    if (tm_bench_on_gpu(bench)) return run_on_gpu(bench, err);
    int64_t cache = tm_last_level_bytes(&known), n = tm_config_i64(bench->options, "elements");
    work    w = { .bench = bench };
    if (n == 0) n = 4 * cache / (int64_t)sizeof(double);
    n = (n + 7) / 8 * 8;
    if (n * (int64_t)sizeof(double) < 4 * cache)
        tm_bench_note(bench,
                      "arrays of %.1f MiB are smaller than four times the last-level cache (%.1f MiB): this is "
                      "not the bandwidth of main memory",
                      (double)n * 8 / 1048576, (double)cache / 1048576);
    char   want[32], have[32];
    double needed = 24. * (double)n, available = (double)tm_memory_available_bytes("");
    void  *memory;
    if (available > 0 && needed > available)
        return tm_fail(err, TM_NOMEM,
                       "three arrays of %lld elements need %s and %s are available; give fewer --elements",
                       (long long)n, tm_format_bytes(want, needed), tm_format_bytes(have, available));
    TM_TRY(tm_device_alloc_host(bench->device, (size_t)n * 3 * sizeof(double), &memory, err));
    w.a = memory;
    w.b = w.a + n;
    w.c = w.b + n;
    w.n = n;
    begin_table(bench);
    tm_status st = TM_OK;
    for (int streaming = 0; streaming <= tm_device_streams(bench->device) && st == TM_OK; streaming++)
        for (int kernel = 0; kernel < TM_STREAM_COUNT && st == TM_OK; kernel++) {
            if (streaming && kernel == TM_STREAM_DOT) continue; /* it stores nothing */
            w.kernel = (tm_stream_kernel)kernel;
            w.streaming = streaming;
            st = measure(&w, err);
        }
    tm_device_release_host(bench->device, memory, (size_t)n * 3 * sizeof(double));
    if (st == TM_OK) st = tm_bench_note_ceilings(bench, err);
    return st;
}

const tm_workload tm_workload_stream = {
    .name = "stream",
    .summary = "measure the bandwidth of memory: copy, mul, add, triad, dot",
    .options = options,
    .n_options = sizeof options / sizeof options[0],
    .gpus = true,
    .run = run,
};
