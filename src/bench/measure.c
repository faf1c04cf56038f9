/* SPDX-License-Identifier: Apache-2.0 */
/* bench/measure.c - what every workload says of a series of samples, random inputs, and the physics guards. */
#include "base/random.h"
#include "bench/bench.h"
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
    };
}

static const tm_column columns[] = {
    { "median_ms", 5 }, { "p5_ms", 5 },          { "p95_ms", 5 },       { "cv", 3 },    { "n", 0 },    { "warmup", 0 },
    { "outliers", 0 },  { "half_width_pct", 3 }, { "calls_before", 0 }, { "loops", 0 }, { "stop", 0 }, { "verdict", 0 },
};

void tm_bench_columns(tm_table *table)
{
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
}

void tm_bench_put(tm_table *table, const tm_measurement *m)
{
    const tm_sample_summary *s = &m->summary;
    tm_table_f64(table, "median_ms", s->median * 1e3);
    tm_table_f64(table, "p5_ms", s->p5 * 1e3);
    tm_table_f64(table, "p95_ms", s->p95 * 1e3);
    tm_table_f64(table, "cv", s->variation);
    tm_table_i64(table, "n", s->n);
    tm_table_i64(table, "warmup", s->warmup);
    tm_table_i64(table, "outliers", s->outliers);
    tm_table_f64(table, "half_width_pct", s->half_width * 100);
    tm_table_i64(table, "calls_before", m->calls);
    tm_table_i64(table, "loops", m->loops);
    tm_table_text(table, "stop", m->stop == TM_STOP_NO ? "budget spent" : tm_stop_text(m->stop));
    tm_table_text(table, "verdict", m->verdict);
}

void tm_bench_normal(const tm_bench *bench, const char *stream, void *data, tm_dtype dtype, int64_t n)
{
    enum { BLOCK = 4096 };
    int64_t  blocks = (n + BLOCK - 1) / BLOCK;
    uint64_t number = tm_random_stream(stream);
#pragma omp parallel for schedule(static) num_threads(bench->threads)
    for (int64_t block = 0; block < blocks; block++) {
        float four[4] = { 0 };
        for (int64_t i = block * BLOCK; i < n && i < (block + 1) * BLOCK; i++) {
            if (i % 4 == 0) tm_random_normal4(bench->seed, number, (uint64_t)i / 4, four);
            tm_value_set(data, dtype, i, (double)four[i % 4]);
        }
    }
}

/* --- physics --------------------------------------------------------------------------------- */

#define CEILING_SECONDS 0.2
/* The clock of a processor changes by the second: what is beyond a ceiling by less is put down to that. */
#define MARGIN 1.05

tm_status tm_bench_ceilings(tm_bench *bench, const tm_ceilings **out, tm_error *err)
{
    *out = &bench->ceilings;
    if (bench->ceilings.flops > 0) return TM_OK;
    return tm_device_ceilings(bench->device, CEILING_SECONDS, &bench->ceilings, err);
}

static double flops_of(const tm_ceilings *c, tm_dtype dtype)
{
    return dtype == TM_BF16 ? c->flops_bf16 : c->flops;
}

static bool beyond(double found, double ceiling)
{
    return ceiling > 0 && !(found <= ceiling * MARGIN);
}

tm_status tm_bench_guard(tm_bench *bench, const char *what, tm_dtype dtype, double flops, double bytes, tm_error *err)
{
    const tm_ceilings *known;
    tm_ceilings        again;
    TM_TRY(tm_bench_ceilings(bench, &known, err));
    if (!beyond(flops, flops_of(known, dtype)) && !beyond(bytes, known->bytes)) return TM_OK;
    TM_TRY(tm_device_ceilings(bench->device, 3 * CEILING_SECONDS, &again, err));
    bench->ceilings.flops = fmax(known->flops, again.flops);
    bench->ceilings.flops_bf16 = fmax(known->flops_bf16, again.flops_bf16);
    bench->ceilings.bytes = fmax(known->bytes, again.bytes);
    if (beyond(flops, flops_of(known, dtype)))
        tm_bench_invalid(bench, "%s: %.4g GFLOP/s is more than the processor's peak of %.4g (%s)", what, flops * 1e-9,
                         flops_of(known, dtype) * 1e-9, known->flops_how);
    if (beyond(bytes, known->bytes))
        tm_bench_invalid(bench, "%s: %.4g GB/s is more than the memory's %.4g (%s)", what, bytes * 1e-9,
                         known->bytes * 1e-9, known->bytes_how);
    return TM_OK;
}
