/* SPDX-License-Identifier: Apache-2.0 */
/* bench/measure.c - what every workload says of a series of samples, and the columns for it. */
#include "bench/bench.h"
#include "stats/summary.h"

#include <math.h>
#include <stdio.h>

void tm_bench_summarize(const tm_samples *samples, tm_measurement *out)
{
    const double *x = samples->seconds;
    int64_t       n = samples->n;
    TM_ASSERT(n >= 1);
    tm_interval interval = tm_stats_median_interval(x, n);
    *out = (tm_measurement){
        .median = tm_stats_median(x, n),
        .p5 = tm_stats_percentile(x, n, 0.05),
        .p95 = tm_stats_percentile(x, n, 0.95),
        .variation = tm_stats_variation(x, n),
        .n = n,
        .warmup = samples->warmup,
        .loops = samples->loops,
    };
    out->half_width = (interval.hi - interval.lo) / 2 / out->median;
}

static const tm_column columns[] = {
    { "median_ms", 5 }, { "p5_ms", 5 }, { "p95_ms", 5 },         { "cv", 3 },      { "n", 0 },
    { "warmup", 0 },    { "loops", 0 }, { "half_width_pct", 3 }, { "verdict", 0 },
};

void tm_bench_columns(tm_table *table)
{
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
}

void tm_bench_put(tm_table *table, const tm_measurement *m)
{
    if (!m) return;
    tm_table_f64(table, "median_ms", m->median * 1e3);
    tm_table_f64(table, "p5_ms", m->p5 * 1e3);
    tm_table_f64(table, "p95_ms", m->p95 * 1e3);
    tm_table_f64(table, "cv", m->variation);
    tm_table_i64(table, "n", m->n);
    tm_table_i64(table, "warmup", m->warmup);
    tm_table_i64(table, "loops", m->loops);
    tm_table_f64(table, "half_width_pct", m->half_width * 100);
    tm_table_text(table, "verdict", m->verdict);
}
