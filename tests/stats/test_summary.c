/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of a set against values worked out by hand, and the interval against its promised coverage. */
#include "support/test.h"

#include "base/random.h"
#include "stats/summary.h"

#include <math.h>
#include <stdlib.h>

static void near(double value, double wanted)
{
    if (!(fabs(value - wanted) <= 1e-12 * (1 + fabs(wanted)))) fail_msg("%.17g is not %.17g", value, wanted);
}

TEST(hand_values)
{
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
    assert_true(isnan(tm_stats_variation((const double[]){ -2, 2 }, 2))); /* of a mean of zero */
    near(tm_stats_median(x, 1), 4);
    assert_true(x[0] == 4.0 && x[4] == 10.0);
}

TEST(median_interval_ranks)
{
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
