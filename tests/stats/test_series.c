/* SPDX-License-Identifier: Apache-2.0 */
/* Autocorrelation, its errors and intervals by hand; steady state: warm-ups are cut off, drifts and changes of level
 * are seen, noise is not taken for either. */
#include "support/test.h"
#include "series_test.h"

#include "stats/series.h"

TEST(student_quantiles)
{
    const double table[][2] = { { 4, 2.77645 }, { 5, 2.57058 }, { 10, 2.22814 }, { 30, 2.04227 }, { 1e9, 1.95996 } };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        if (fabs(tm_stats_student(table[i][0]) / table[i][1] - 1) > 0.002)
            fail_msg("%g degrees of freedom: %.5f", table[i][0], tm_stats_student(table[i][0]));
    const double of_99[][2] = { { 5, 4.03214 }, { 7, 3.49948 }, { 10, 3.16927 }, { 30, 2.75000 }, { 1e9, 2.57583 } };
    for (size_t i = 0; i < sizeof of_99 / sizeof of_99[0]; i++)
        if (fabs(tm_stats_student_of(2.5758293, of_99[i][0]) / of_99[i][1] - 1) > 0.005)
            fail_msg("%g degrees of freedom: %.5f", of_99[i][0], tm_stats_student_of(2.5758293, of_99[i][0]));
}

TEST(serial_by_hand)
{
    /* Autocovariances of the first: 1, 5/8, 2/8, -1/8; pairs 13/8 and 1/8: time 2 x 14/8 - 1. Batches of ceil(12.5),
     * at most 8/3: 2, whose means are 1 1 1 0 -1 -1 -1. */
    const double block[] = { 4, 4, 4, 4, 2, 2, 2, 2 };
    tm_serial    s = tm_stats_serial(block, 8);
    near(s.time, 2.5);
    near(s.effective_n, 3.2);
    assert_int_equal(s.batch, 2);
    near(s.error, sqrt(2 * 6.0 / (6 * 7)));
    assert_true(s.too_alike && isnan(s.half_width));
    double long_block[96];
    for (int i = 0; i < 96; i++) long_block[i] = i / 4 % 2;
    s = tm_stats_serial(long_block, 96);
    assert_true(s.batch > 1 && s.time > 1 && !s.too_alike);
    near(s.half_width, tm_stats_student(1.5 * (96.0 / (double)s.batch - 1)) * s.error);
    /* What turns around more often than chance counts as independent: s / sqrt(n), n - 1 degrees of freedom. */
    const double comb[] = { 1, -1, 1, -1, 1, -1, 1, -1 };
    s = tm_stats_serial(comb, 8);
    near(s.time, 1);
    assert_int_equal(s.batch, 1);
    near(s.error, sqrt(1.0 / 7));
    near(s.half_width, tm_stats_student(7) * s.error);
    /* Pairs 37/60 and 41/60 of the variance: one larger than the one before counts as that one. */
    const double rising[] = { 1, 3, 1, 2, 3, 1, 4, 2, 3, 4, 2, 4 };
    near(tm_stats_serial(rising, 12).time, 4 * 37.0 / 60 - 1);
    for (int i = 1; i < 6; i++) {
        assert_true(isnan(tm_stats_serial(block, i).half_width));
        assert_true(i == 1 ? isnan(tm_stats_serial(block, i).error) : isfinite(tm_stats_serial(block, i).error));
    }
}

/* i - (n - 1) / 2 has the autocovariance m (m^2 - 1 - 3 l^2) / 12 n, m = n - l, which falls and is positive for a third
 * of the series: only lags up to a quarter of it count, and 1,000 at most. */
TEST(lags_end_at_a_quarter)
{
    static const int lengths[] = { 24, 400, 3000, 6000 };
    for (int c = 0; c < 4; c++) {
        int     n = lengths[c], lags = n / 4 + 2 < 1000 ? n / 4 + 2 : 1000;
        double *x = malloc((size_t)n * sizeof *x), sum = 0, variance = ((double)n * n - 1) / 12;
        for (int i = 0; i < n; i++) x[i] = i;
        for (int l = 0; l < lags / 2 * 2; l++) {
            double m = n - l;
            sum += m * (m * m - 1 - 3. * l * l) / 12 / n;
        }
        tm_serial s = tm_stats_serial(x, n);
        double    wanted = 2 * sum / variance - 1;
        if (!(fabs(s.time / wanted - 1) < 1e-9)) fail_msg("%d values: time %.12g, not %.12g", n, s.time, wanted);
        assert_true(fabs(s.effective_n * wanted / n - 1) < 1e-9 && s.too_alike);
        assert_int_equal(s.batch, n / 3); /* five times that time would be longer */
        free(x);
    }
}

/* 0.1 added up and divided is not 0.1: that is no autocorrelation. */
TEST(constant_series)
{
    double x[1000], y[1000];
    for (int i = 0; i < 1000; i++) {
        x[i] = 0.1;
        y[i] = 0.7;
    }
    tm_serial s = tm_stats_serial(x, 1000);
    assert_true(s.time == 1 && s.effective_n == 1000);
    assert_true(s.error == 0 && s.half_width == 0);
    double      effective;
    tm_interval interval = tm_stats_ratio_interval(y, x, 1000, &effective);
    near(effective, 1000);
    near(interval.lo, 7);
    near(interval.hi, 7);
}

TEST(ratio_by_hand)
{
    const double y[] = { 2, 5, 1, 9, 4, 6, 3, 2 }, x[] = { 1, 2, 1, 3, 2, 2, 1, 2 };
    double       ratio = 32.0 / 14, squares = 0, effective;
    for (int i = 0; i < 8; i++) squares += (y[i] - ratio * x[i]) * (y[i] - ratio * x[i]);
    tm_interval interval = tm_stats_ratio_interval(y, x, 8, &effective);
    near(effective, 8); /* the residuals change their sign at almost every step */
    double half = tm_stats_student(7) * sqrt(squares / 7 / 8) / (14.0 / 8);
    near(interval.lo, ratio - half);
    near(interval.hi, ratio + half);
    assert_true(isnan(tm_stats_ratio_interval(y, x, 5, NULL).lo));
}

TEST(median_of_independent_values)
{
    double x[100];
    for (int i = 0; i < 100; i++)
        x[i] = 1 + (i % 2 ? 99 - i / 2 : i / 2); /* 1, 100, 2, 99, ...: above and below in turn */
    tm_interval a = tm_stats_median_interval_serial(x, 100), b = tm_stats_median_interval(x, 100);
    near(a.lo, b.lo);
    near(a.hi, b.hi);
    /* In fours above and below: the 96 signs are worth about 48, and the ranks of those are scaled to the 96. */
    double signs[96];
    for (int i = 0; i < 96; i++) {
        signs[i] = i / 4 % 2;
        x[i] = 1 + 48 * signs[i] + i / 8 * 4 + i % 4;
    }
    int worth = (int)tm_stats_serial(signs, 96).effective_n, rank = (int)tm_stats_median_rank(worth);
    assert_in_range(worth, 46, 52);
    assert_true(rank * 97 / (worth + 1) < rank * 97 / worth);
    a = tm_stats_median_interval_serial(x, 96);
    near(a.lo, rank * 97 / (worth + 1));
    near(a.hi, 97 - rank * 97 / (worth + 1));
    /* The same values sorted are worth two or three: too few for an interval. */
    for (int i = 0; i < 100; i++) x[i] = i;
    assert_true(isnan(tm_stats_median_interval_serial(x, 100).lo));
}

/* --- steady state ------------------------------------------------------------------------------------------------- */

TEST(warmup_steps)
{
    double x[40];
    for (int i = 0; i < 40; i++) x[i] = 1 + 0.01 * ((i * 7) % 5);
    assert_int_equal(tm_stats_steady(x, 40).warmup, 1); /* none stands out: still one */
    x[0] = 5;
    x[1] = 2;
    x[2] = 1.5;
    assert_int_equal(tm_stats_steady(x, 40).warmup, 3);
    assert_true(tm_stats_steady(x, 40).reached);
    x[4] = 9; /* after a steady step: an outlier, not warm-up */
    assert_int_equal(tm_stats_steady(x, 40).warmup, 3);
    assert_int_equal(tm_stats_steady(x, 3).warmup, 0);
    assert_int_equal(tm_stats_steady(x, 4).warmup, 1); /* two later values with a wide spread: no reason to drop more */
    for (int i = 0; i < 20; i++) x[i] = 50;
    assert_int_equal(tm_stats_steady(x, 40).warmup, 20);
    assert_false(tm_stats_steady(x, 40).reached); /* half of the run was warm-up: who knows */
    for (int i = 0; i < 25; i++) x[i] = 50;
    assert_int_equal(tm_stats_steady(x, 40).warmup, 20);          /* never more than half */
    for (int i = 0; i < 30; i++) x[i] = 1 + 0.01 * ((i * 7) % 5); /* median 1.02, robust deviation 0.0148 */
    x[0] = 2;
    x[1] = 1.07;
    x[2] = 1.06; /* within 3 of them */
    assert_int_equal(tm_stats_steady(x, 30).warmup, 2);
    assert_int_equal(tm_stats_steady(x, 0).warmup, 0);
    assert_false(tm_stats_steady(x, 0).reached);
}

typedef enum { NOTHING, DRIFT, STEP_UP, STEP_DOWN } change;

/* In how many of 200 series of n steps with this noise is the state called unsteady? */
static int alarms(int n, double rho, double sd, change what, double size, bool by_shift)
{
    static double x[1000];
    int           count = 0;
    for (int series = 0; series < 200; series++) {
        autoregressive(x, n, rho, sd, series);
        for (int i = 0; i < n; i++) {
            if (what == DRIFT) x[i] += size * i / n;
            if (what == STEP_UP && i >= 3 * n / 4) x[i] += size;
            if (what == STEP_DOWN && i >= 7 * n / 8) x[i] -= size;
        }
        tm_steady s = tm_stats_steady(x, n);
        count += by_shift ? fabs(s.shift) > TM_STEADY_PERCENT : !s.reached;
    }
    return count;
}

TEST(noise_is_steady)
{
    const int sizes[] = { 50, 200, 1000 };
    for (int i = 0; i < 3; i++) {
        int white = alarms(sizes[i], 0, 0.05, NOTHING, 0, false), red = alarms(sizes[i], 0.5, 0.05, NOTHING, 0, false);
        if (white > 6 || red > 16) fail_msg("n = %d: %d and %d of 200 false alarms", sizes[i], white, red);
    }
    assert_true(alarms(200, 0, 0.2, NOTHING, 0, false) <= 8);
}

TEST(changes_are_seen)
{
    assert_true(alarms(200, 0, 0.02, DRIFT, 0.08, false) >= 190);
    assert_true(alarms(200, 0, 0.02, DRIFT, -0.08, false) >= 190);
    assert_true(alarms(200, 0.5, 0.02, DRIFT, 0.10, false) >= 190);
    assert_true(alarms(200, 0, 0.02, STEP_UP, 0.05, true) >= 195);
    assert_true(alarms(200, 0, 0.02, STEP_DOWN, 0.06, true) >= 190);
    assert_true(alarms(200, 0.5, 0.02, STEP_UP, 0.08, true) >= 190);
    assert_true(alarms(1000, 0.7, 0.04, STEP_UP, 0.08, true) >= 190);
    assert_true(alarms(200, 0, 0.002, DRIFT, 0.01, false) == 0); /* seen for sure, but smaller than what matters */
}

TEST(drift_is_the_line)
{
    double x[101];
    for (int i = 0; i < 101; i++) x[i] = 2 + 0.05 * i / 100 + (i % 2 ? 1e-3 : -1e-3);
    tm_steady s = tm_stats_steady(x, 101);
    int64_t   n = 101 - s.warmup;
    double    wanted = 100 * 0.05 * (double)(n - 1) / 100 / tm_stats_median(x + s.warmup, n);
    assert_true(fabs(s.drift / wanted - 1) < 0.01);
    assert_true(s.drift_lo < wanted && wanted < s.drift_hi && s.drift_hi - s.drift_lo < 0.2 * wanted);
    /* 95 % intervals of a known slope, noise of the same size at every step */
    int hits = 0;
    for (int series = 0; series < 500; series++) {
        autoregressive(x, 101, 0.5, 0.01, series);
        for (int i = 0; i < 101; i++) x[i] += 0.01 * i / 100;
        s = tm_stats_steady(x, 101);
        n = 101 - s.warmup;
        wanted = 100 * 0.01 * (double)(n - 1) / 100 / tm_stats_median(x + s.warmup, n);
        hits += s.drift_lo <= wanted && wanted <= s.drift_hi;
    }
    assert_in_range(hits, 445, 490);
    assert_true(isnan(tm_stats_steady(x, 10).drift));
    assert_true(isfinite(tm_stats_steady(x, 11).drift));
}
