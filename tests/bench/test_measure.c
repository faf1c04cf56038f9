/* SPDX-License-Identifier: Apache-2.0 */
/* What a workload says of its samples. */

#include "support/test.h"

#include "bench/bench.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const tm_cell *cell(const tm_table *table, const char *column)
{
    return tm_table_cell(table, tm_table_n_rows(table) - 1, (size_t)tm_table_find(table, column));
}

TEST(columns_hold_the_measurement)
{
    double seconds[24];
    for (int i = 0; i < 24; i++) seconds[i] = i % 2 ? 2e-3 : 4e-3;
    tm_samples     samples = { .seconds = seconds,
                               .n = 24,
                               .warmup = 5,
                               .loops = 7,
                               .stop = TM_STOP_PRECISE,
                               .verdict = TM_VERDICT_NOISY,
                               .reason = "a reason" };
    tm_measurement m;
    tm_bench_summarize(&samples, 6e3, &m);
    tm_table *table = tm_table_create("x");
    tm_bench_columns(table);
    tm_table_row(table);
    tm_bench_put(table, &m);
    int64_t n = cell(table, "n")->i64;
    assert_int_equal(n + cell(table, "warmup")->i64, 24);
    assert_true(n % 2 || fabs(m.summary.rate - 6e3 / 3e-3) < 1); /* all work by all time: 2e6, not the mean of rates */
    assert_true(cell(table, "median_ms")->f64 >= 2 && cell(table, "median_ms")->f64 <= 4);
    assert_true(fabs(cell(table, "p5_ms")->f64 - 2) < 1e-9 && fabs(cell(table, "p95_ms")->f64 - 4) < 1e-9);
    assert_int_equal(cell(table, "calls_before")->i64, 5);
    assert_int_equal(cell(table, "loops")->i64, 7);
    assert_string_equal(cell(table, "stop")->text, "precise");
    assert_string_equal(cell(table, "verdict")->text, "noisy");
    assert_string_equal(cell(table, "reason")->text, "a reason");
    tm_table_destroy(table);
}

TEST(too_few_samples_have_no_interval)
{
    double         seconds[] = { 1e-3, 2e-3 };
    tm_samples     samples = { .seconds = seconds, .n = 2, .loops = 1, .verdict = TM_VERDICT_NOT_JUDGED };
    tm_measurement m;
    tm_table      *table = tm_table_create("x");
    tm_bench_summarize(&samples, 1, &m);
    tm_bench_columns(table);
    tm_table_row(table);
    tm_bench_put(table, &m);
    assert_int_equal(cell(table, "half_width_pct")->kind, TM_CELL_EMPTY);
    assert_int_equal(cell(table, "reason")->kind, TM_CELL_EMPTY);
    assert_string_equal(cell(table, "stop")->text, "budget");
    tm_table_destroy(table);
}

TEST(shares_of_a_budget)
{
    const double least[] = { 10, 80, 90 };
    assert_true(fabs(tm_bench_share(600, least, 3) - 150) < 1e-9); /* 10 + 420 / 3 */
    assert_true(fabs(tm_bench_share(180, least, 3) - 10) < 1e-9);  /* nothing is left over */
    assert_true(fabs(tm_bench_share(50, least, 3) - 10) < 1e-9);   /* the first come first */
    assert_true(fabs(tm_bench_share(7, least, 3) - 7) < 1e-9);
    assert_true(fabs(tm_bench_share(100, &least[2], 1) - 100) < 1e-9); /* the last has it all */
    assert_true(tm_bench_share(0, least, 3) == 0);
}
