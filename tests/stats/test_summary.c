/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics against values worked out by hand, and intervals against their promised coverage. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/random.h"
#include "stats/summary.h"

#include <math.h>
#include <stdlib.h>

static void near(double value, double wanted)
{
    if (!(fabs(value - wanted) <= 1e-12 * (1 + fabs(wanted)))) fail_msg("%.17g is not %.17g", value, wanted);
}

static void hand_values(void **state)
{
    (void)state;
    const double x[] = { 4, 1, 3, 2, 10 };
    near(tm_stats_mean(x, 5), 4);
    near(tm_stats_deviation(x, 5), sqrt(50.0 / 4));
    near(tm_stats_variation(x, 5), sqrt(50.0 / 4) / 4);
    near(tm_stats_median(x, 5), 3);
    near(tm_stats_median(x, 4), 2.5);
    near(tm_stats_percentile(x, 5, 0.9), 7.6);
    near(tm_stats_percentile(x, 5, 1), 10);
    near(tm_stats_percentile(x, 5, 0), 1);
    near(tm_stats_robust_deviation(x, 5), 1.4826);
    near(tm_stats_deviation(x, 1), 0);
    near(tm_stats_median(x, 1), 4);
    assert_true(x[0] == 4.0 && x[4] == 10.0);
}

static void median_interval_ranks(void **state)
{
    (void)state;
    /* Textbook ranks: n = 6: 1..6, n = 10: 2..9, n = 20: 6..15, n = 100: 40..61. */
    const struct {
        int64_t n, lo, hi;
    } rows[] = { { 6, 1, 6 }, { 10, 2, 9 }, { 20, 6, 15 }, { 100, 40, 61 } };
    double x[100];
    for (int i = 0; i < 100; i++) x[i] = 100 - i;
    for (int r = 0; r < 4; r++) {
        int64_t     n = rows[r].n;
        tm_interval interval = tm_stats_median_interval(x + (100 - n), n); /* the values n..1 */
        near(interval.lo, (double)rows[r].lo);
        near(interval.hi, (double)rows[r].hi);
    }
    assert_true(isnan(tm_stats_median_interval(x, 5).lo) && isnan(tm_stats_median_interval(x, 5).hi));
    double *many = malloc(5000 * sizeof *many); /* 2^-5000 is far below the smallest double */
    for (int i = 0; i < 5000; i++) many[i] = i + 1;
    tm_interval interval = tm_stats_median_interval(many, 5000);
    free(many);
    near(interval.lo, 5001 - interval.hi);
    assert_true(fabs(interval.lo - (2500 - 0.98 * sqrt(5000))) < 2);
}

/* In 400 simulated runs the interval holds the true value about 95 % of the time. */
static void coverage(void **state)
{
    (void)state;
    int median_hits = 0, ratio_hits = 0, runs = 400;
    for (int run = 0; run < runs; run++) {
        double seconds[60], tokens[60], mean = 0;
        for (int i = 0; i < 60; i++) {
            seconds[i] = exp(0.1 * tm_random_normal(7, (uint64_t)run, (uint64_t)i));
            tokens[i] = 100;
            mean += seconds[i] / 60;
        }
        tm_interval interval = tm_stats_median_interval(seconds, 60);
        median_hits += interval.lo <= 1 && 1 <= interval.hi;
        interval = tm_stats_ratio_interval(tokens, seconds, 60, (uint64_t)run);
        double truth = 100 / exp(0.005);
        ratio_hits += interval.lo <= truth && truth <= interval.hi;
        assert_true(interval.lo <= 100 / mean && 100 / mean <= interval.hi);
    }
    assert_in_range(median_hits, 370, 397);
    assert_in_range(ratio_hits, 355, 392); /* the percentile bootstrap is known to be a little narrow */
}

static void bootstrap_is_repeatable(void **state)
{
    (void)state;
    double x[20], y[20];
    for (int i = 0; i < 20; i++) {
        x[i] = 1 + 0.3 * tm_random_uniform(1, 2, (uint64_t)i);
        y[i] = 8;
    }
    tm_interval a = tm_stats_ratio_interval(y, x, 20, 5), b = tm_stats_ratio_interval(y, x, 20, 5);
    tm_interval c = tm_stats_ratio_interval(y, x, 20, 6);
    assert_true(a.lo == b.lo && a.hi == b.hi);
    assert_true(a.lo < c.lo || a.lo > c.lo);
    assert_true(isnan(tm_stats_ratio_interval(y, x, 5, 1).lo));
}

static void warmup_steps(void **state)
{
    (void)state;
    double x[40];
    for (int i = 0; i < 40; i++) x[i] = 1 + 0.01 * ((i * 7) % 5);
    assert_int_equal(tm_stats_warmup(x, 40), 1); /* none stands out: still one */
    x[0] = 5;
    x[1] = 2;
    x[2] = 1.5;
    assert_int_equal(tm_stats_warmup(x, 40), 3);
    x[4] = 9; /* after a steady step: an outlier, not warm-up */
    assert_int_equal(tm_stats_warmup(x, 40), 3);
    assert_int_equal(tm_stats_warmup(x, 3), 0);
    assert_int_equal(tm_stats_warmup(x, 4), 1); /* two later values with a wide spread: no reason to drop more */
    for (int i = 0; i < 20; i++) x[i] = 50;
    assert_int_equal(tm_stats_warmup(x, 40), 20);
    assert_int_equal(tm_stats_warmup(x, 0), 0);
}

static void rates_are_ratios_of_sums(void **state)
{
    (void)state;
    double x[21] = { 9 };
    for (int i = 1; i < 21; i++) x[i] = i == 10 ? 3 : 1;
    tm_rate_summary rate = tm_stats_rate(x, 21, 110);
    assert_int_equal(rate.warmup, 1);
    assert_int_equal(rate.n, 20);
    near(rate.median, 110);
    near(rate.lo, 110);
    near(rate.overall, 100); /* 20 x 110 / 22; the mean of the rates would be 106.3 */
    assert_true(rate.overall_lo < 100 && rate.overall_hi > 100 && rate.overall_hi <= 110.0001);
    near(tm_stats_rate(x, 1, 90).median, 10);
    assert_true(isnan(tm_stats_rate(x, 1, 90).lo));
    assert_int_equal(tm_stats_rate(x, 0, 90).n, 0);
    assert_true(isnan(tm_stats_rate(x, 0, 90).median));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hand_values),  cmocka_unit_test(median_interval_ranks),
        cmocka_unit_test(coverage),     cmocka_unit_test(bootstrap_is_repeatable),
        cmocka_unit_test(warmup_steps), cmocka_unit_test(rates_are_ratios_of_sums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
