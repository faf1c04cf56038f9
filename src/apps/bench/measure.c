/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/measure.c - what every workload says of a series of samples, random inputs, and the physics guards. */
#include "base/random.h"
#include "apps/bench/bench.h"
#include "graph/value.h"

#include <math.h>
#include <stdio.h>

void tm_bench_summarize(const tm_samples *samples, double work, tm_measurement *out)
{
    *out = (tm_measurement){
        .summary = tm_stats_summarize(samples->seconds, NULL, work, samples->n),
        .calls = samples->warmup,
        .loops = samples->loops,
        .stop = samples->stop,
        .verdict = samples->verdict,
        .reason = samples->reason,
    };
}

static const tm_column columns[] = {
    { "median_ms", 5 }, { "p5_ms", 5 },    { "p95_ms", 5 },         { "cv", 3 },           { "n", 0 },
    { "warmup", 0 },    { "outliers", 0 }, { "half_width_pct", 3 }, { "calls_before", 0 }, { "loops", 0 },
    { "stop", 0 },      { "verdict", 0 },  { "reason", 0 },
};

void tm_bench_columns(tm_table *table)
{
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
}

/* Why sampling ended: the precision was reached, the time (--rep-ms x TM_MOST_REPS, --duration) was over, the samples
 * that
 * --rep-ms makes were taken, or the budget of the command was spent. */
static const char *stop_name(tm_stop stop)
{
    return stop == TM_STOP_PRECISE   ? "precise"
           : stop == TM_STOP_SECONDS ? "time"
           : stop == TM_STOP_SAMPLES ? "samples"
                                     : "budget";
}

void tm_bench_put(tm_table *table, const tm_measurement *m)
{
    const tm_sample_summary *s = &m->summary;
    tm_table_f64(table, "median_ms", s->median * 1e3);
    tm_table_f64(table, "p5_ms", s->p5 * 1e3);
    tm_table_f64(table, "p95_ms", s->p95 * 1e3);
    tm_table_f64(table, "cv", s->n > 1 ? s->variation : (double)NAN); /* of one sample there is none */
    tm_table_i64(table, "n", s->n);
    tm_table_i64(table, "warmup", s->warmup);
    tm_table_i64(table, "outliers", s->outliers);
    tm_table_f64(table, "half_width_pct", s->half_width * 100);
    tm_table_i64(table, "calls_before", m->calls);
    tm_table_i64(table, "loops", m->loops);
    tm_table_text(table, "stop", stop_name(m->stop));
    tm_table_text(table, "verdict", tm_verdict_name(m->verdict));
    tm_table_text(table, "reason", *m->reason ? m->reason : NULL);
}

double tm_bench_share(double left, const double *least, int n)
{
    double all = 0;
    for (int i = 0; i < n; i++) all += least[i];
    return fmin(left, least[0] + fmax(0, left - all) / n);
}

void tm_bench_normal(const tm_bench *bench, const char *stream, void *data, tm_dtype dtype, int64_t n)
{
    tm_bench_normal_part(bench, stream, 0, data, dtype, n);
}

void tm_bench_normal_part(const tm_bench *bench, const char *stream, int64_t first, void *data, tm_dtype dtype,
                          int64_t n)
{
    enum { BLOCK = 4096 };
    int64_t  blocks = (n + BLOCK - 1) / BLOCK;
    uint64_t number = tm_random_stream(stream);
#pragma omp parallel for schedule(static) num_threads(bench->threads)
    for (int64_t block = 0; block < blocks; block++) {
        float   values[BLOCK];
        int64_t from = block * BLOCK, count = n - from < BLOCK ? n - from : BLOCK;
        tm_random_normals(bench->seed, number, (uint64_t)(first + from), count, values);
        for (int64_t k = 0; k < count; k++) tm_value_set(data, dtype, from + k, (double)values[k]);
    }
}

/* --- physics --------------------------------------------------------------------------------- */

static const double ceiling_seconds = 0.2;

bool tm_bench_on_gpu(const tm_bench *bench)
{
    return tm_device_describe(bench->device)->kind == TM_DEVICE_GPU;
}

static void take_sheet(tm_bench *bench)
{
    const tm_gpu_sheet *sheet = tm_device_describe(bench->device)->sheet;
    bench->ceilings = (tm_ceilings){ .flops = sheet ? sheet->tflops_f32 * 1e12 : 0,
                                     .flops_bf16 = sheet ? sheet->tflops_bf16 * 1e12 : 0 };
}

tm_status tm_bench_ceilings(tm_bench *bench, const tm_ceilings **out, tm_error *err)
{
    *out = &bench->ceilings;
    if (tm_bench_on_gpu(bench)) {
        take_sheet(bench);
        return TM_OK;
    }
    if (bench->ceilings.flops > 0) return TM_OK;
    return tm_device_ceilings(bench->device, ceiling_seconds, &bench->ceilings, err);
}

static void note_gpu(tm_bench *bench)
{
    const tm_device_info *d = tm_device_describe(bench->device);
    tm_bench_note(bench, "device %s, %.1f GiB", d->text, (double)d->memory_bytes / (1 << 30));
    if (d->sheet)
        tm_bench_note(
            bench,
            "peak of peak_pct, by the data sheet: %.4g TFLOP/s float32, %.4g of 16 bits, %.4g of 8 bits, dense (%s)",
            d->sheet->tflops_f32, d->sheet->tflops_bf16, d->sheet->tflops_fp8, d->sheet->source);
    else
        tm_bench_note(bench, "peak: no data sheet of '%s' is known, so there is no peak_pct", d->model);
}

/* results/roofs.c reads the measured ones again, for the roofline of a report. */
tm_status tm_bench_note_ceilings(tm_bench *bench, tm_error *err)
{
    const tm_ceilings *c;
    if (tm_bench_on_gpu(bench)) {
        note_gpu(bench);
        return TM_OK;
    }
    char   how[160];
    double datasheet = tm_device_datasheet_flops(bench->device, how);
    TM_TRY(tm_bench_ceilings(bench, &c, err));
    tm_bench_note(bench, "peak: %.4g GFLOP/s float32 measured (%s)", c->flops * 1e-9, c->flops_how);
    if (datasheet > 0)
        tm_bench_note(bench, "peak by the data sheet: %.4g GFLOP/s (%s)", datasheet * 1e-9, how);
    else
        tm_bench_note(bench, "peak by the data sheet: unknown (%s)", how);
    if (c->flops_bf16 > c->flops)
        tm_bench_note(bench, "peak of bfloat16 products: %.4g GFLOP/s measured", c->flops_bf16 * 1e-9);
    tm_bench_note(bench, "memory: %.4g GB/s measured (%s)", c->bytes * 1e-9, c->bytes_how);
    return TM_OK;
}

double tm_bench_peak(const tm_bench *bench, tm_dtype dtype)
{
    const tm_gpu_sheet *sheet = tm_device_describe(bench->device)->sheet;
    const size_t        bytes = tm_dtype_bytes(dtype);
    if (!tm_bench_on_gpu(bench)) return dtype == TM_BF16 ? bench->ceilings.flops_bf16 : bench->ceilings.flops;
    if (!sheet) return 0;
    return 1e12 * (bytes == 1 ? sheet->tflops_fp8 : bytes == 2 ? sheet->tflops_bf16 : sheet->tflops_f32);
}

/* Fails if a rate is above what the machine does at most. */
static tm_status check_rates(const tm_ceilings *ceilings, const char *what, tm_dtype dtype, double flops, double bytes,
                             tm_error *why)
{
    tm_peaks peaks = tm_ceilings_peaks(ceilings, dtype);
    TM_TRY(tm_guard_flops(&peaks, flops, what, why));
    return tm_guard_bytes(&peaks, bytes, what, why);
}

/* The better of two measurements of a peak, with its spread. */
static void keep_better(double *peak, double *spread, double other, double other_spread)
{
    if (other <= *peak) return;
    *peak = other;
    *spread = other_spread;
}

static void guard_by_sheet(tm_bench *bench, const char *what, tm_dtype dtype, double flops)
{
    const double        tolerance = 1.05;
    const tm_gpu_sheet *sheet = tm_device_describe(bench->device)->sheet;
    double              peak = tm_bench_peak(bench, dtype);
    if (peak > 0 && flops > tolerance * peak)
        tm_bench_invalid(bench,
                         "%s: %.4g FLOP/s are %.3g times what the data sheet says (%.4g, %s): the time or the count of "
                         "work is wrong, and this is not a result",
                         what, flops, flops / peak, peak, sheet->source);
}

tm_status tm_bench_guard(tm_bench *bench, const char *what, tm_dtype dtype, double flops, double bytes, tm_error *err)
{
    if (tm_bench_on_gpu(bench)) {
        guard_by_sheet(bench, what, dtype, flops);
        return TM_OK;
    }
    const tm_ceilings *known;
    tm_ceilings       *c = &bench->ceilings, again;
    tm_error           why = { 0 };
    TM_TRY(tm_bench_ceilings(bench, &known, err));
    if (check_rates(known, what, dtype, flops, bytes, &why) == TM_OK) return TM_OK;
    /* Others may have used the machine while its ceilings were measured. One thread finds a calm moment. */
    tm_device_arithmetic(bench->device, 1, ceiling_seconds, &again);
    keep_better(&c->flops, &c->flops_spread, again.flops * bench->threads, again.flops_spread);
    if (c->flops_bf16 > 0)
        keep_better(&c->flops_bf16, &c->flops_bf16_spread, again.flops_bf16 * bench->threads, again.flops_bf16_spread);
    TM_TRY(tm_device_ceilings(bench->device, 3 * ceiling_seconds, &again, err));
    if (c->flops_bf16 > 0)
        keep_better(&c->flops_bf16, &c->flops_bf16_spread, again.flops_bf16, again.flops_bf16_spread);
    keep_better(&c->flops, &c->flops_spread, again.flops, again.flops_spread);
    keep_better(&c->bytes, &c->bytes_spread, again.bytes, again.bytes_spread);
    why = (tm_error){ 0 };
    if (check_rates(c, what, dtype, flops, bytes, &why) != TM_OK) tm_bench_invalid(bench, "%s", why.text);
    return TM_OK;
}
