/* SPDX-License-Identifier: Apache-2.0 */
/* Steady state: warm-ups are cut off, drifts and changes of level are seen, noise is not taken for either. */
#include "support/test.h"
#include "series_test.h"

#include "stats/series.h"

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

/* 30 % too slow at first, dying away over tens of steps: too slow a decay for the first rule. */
TEST(slow_warmup)
{
    double x[400], bias = 0;
    int    reached = 0;
    for (int series = 0; series < 50; series++) {
        autoregressive(x, 400, 0.3, 0.02, series);
        for (int i = 0; i < 400; i++) x[i] += 0.3 * exp(-i / 20.0);
        tm_steady s = tm_stats_steady(x, 400);
        assert_in_range(s.warmup, 20, 199);
        reached += s.reached;
        bias += (tm_stats_mean(x + s.warmup, 400 - s.warmup) - 1) / 50;
    }
    assert_true(fabs(bias) < 0.003); /* all of it: 0.015 */
    assert_in_range(reached, 45, 50);
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
