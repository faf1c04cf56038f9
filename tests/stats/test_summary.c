/* SPDX-License-Identifier: Apache-2.0 */
/* Small statistics by hand and by property: a set, a line through rounds, coefficients that are not negative, what no
 * machine reaches, silent errors that a comparison excludes. */
#include "support/test.h"
#include "series_test.h"

#include "stats/guard.h"
#include "stats/line.h"
#include "stats/nonnegative.h"
#include "stats/silent.h"
#include "stats/summary.h"

/* --- a set -------------------------------------------------------------------------------------------------------- */

TEST(a_set_by_hand)
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

/* --- a line ------------------------------------------------------------------------------------------------------- */

static const double layers[3] = { 1, 2, 3 };

TEST(a_line_of_exact_data)
{
    double y[2 * 3];
    for (int r = 0; r < 2; r++)
        for (int k = 0; k < 3; k++) y[r * 3 + k] = 0.25 + 0.5 * layers[k];
    tm_line line = tm_stats_line(layers, 3, y, 2, 12, 1);
    near(line.a, 0.25);
    near(line.b, 0.5);
    near(line.value, 6.25);
    assert_true(isnan(line.interval.lo) && isnan(line.interval.hi)); /* two rounds say nothing about the spread */
    for (int k = 0; k < 3; k++) near(line.residual[k], 0);
}

TEST(a_line_by_hand)
{
    /* Medians 2, 3, 5 at 1, 2, 3: b = 3/2, a = 1/3; the outliers of single rounds change nothing. */
    const double y[3][3] = { { 2, 3, 5 }, { 1, 90, 5 }, { 40, 3, 4 } };
    tm_line      line = tm_stats_line(layers, 3, &y[0][0], 3, 10, 1);
    near(line.middle[0], 2), near(line.middle[1], 3), near(line.middle[2], 5);
    near(line.b, 1.5);
    near(line.a, 1.0 / 3);
    near(line.value, 1.0 / 3 + 15);
    near(line.residual[0], 1.0 / 6), near(line.residual[1], -1.0 / 3), near(line.residual[2], 1.0 / 6);
}

/* Planted a, b and noise of 2 %: at least 90 % of the intervals hold the true value, and they are not simply wide: half
 * of the width is of the size that the noise of the medians makes, sqrt(pi / 2) sigma sqrt(1/3 + (at - 2)^2 / 2) /
 * sqrt(n) times Student's t. */
TEST(intervals_of_a_line_cover)
{
    enum { TRIALS = 400, MOST = 20 };
    const int     trials = test_is_full() ? TRIALS : 40;
    const double  a = 0.3, b = 0.1, at = 12, noise = 0.02;
    const int64_t rounds[] = { 4, 6, 10, 20 };
    for (int i = 0; i < 4; i++) {
        int    covered = 0;
        double width = 0;
        for (int t = 0; t < trials; t++) {
            double y[MOST * 3];
            for (int64_t k = 0; k < rounds[i] * 3; k++)
                y[k] = (a + b * layers[k % 3]) *
                       (1 + noise * tm_random_normal(99, (uint64_t)(i * TRIALS + t), (uint64_t)k));
            tm_line line = tm_stats_line(layers, 3, y, rounds[i], at, (uint64_t)t);
            covered += line.interval.lo <= a + b * at && a + b * at <= line.interval.hi;
            width += (line.interval.hi - line.interval.lo) / 2 / trials;
        }
        double sigma =
            noise * (a + 2 * b) * sqrt(M_PI / 2 / (double)rounds[i]) * sqrt(1. / 3 + (at - 2) * (at - 2) / 2);
        print_message("# %d rounds: %.1f %% covered, half width %.2f standard errors\n", (int)rounds[i],
                      100. * covered / trials, width / sigma);
        if (covered < trials * 90 / 100) fail_msg("%d rounds: %d of %d covered", (int)rounds[i], covered, trials);
        if (width > 5 * sigma) fail_msg("%d rounds: half width %g, standard error %g", (int)rounds[i], width, sigma);
    }
}

/* One slice planted 10 % slower: its residual stands out, though every round agrees. */
TEST(a_bent_law_is_in_the_residuals)
{
    const int64_t rounds = 6;
    double        y[6 * 3];
    for (int64_t k = 0; k < rounds * 3; k++)
        y[k] = (0.3 + 0.1 * layers[k % 3]) * (k % 3 == 1 ? 1.1 : 1) * (1 + 0.001 * tm_random_normal(5, 1, (uint64_t)k));
    tm_line line = tm_stats_line(layers, 3, y, rounds, 12, 1);
    assert_true(line.residual[1] / line.middle[1] > 0.05);
    assert_true(line.residual[0] < 0 && line.residual[2] < 0);
    /* Without the plant nothing stands out. */
    for (int64_t r = 0; r < rounds; r++) y[r * 3 + 1] /= 1.1;
    line = tm_stats_line(layers, 3, y, rounds, 12, 1);
    for (int k = 0; k < 3; k++) assert_true(fabs(line.residual[k] / line.middle[k]) < 0.002);
}

/* --- coefficients ------------------------------------------------------------------------------------------------- */

enum { ROWS = 40, TERMS = 3 };

static double drawn(uint64_t stream, uint64_t i)
{
    return fabs(tm_random_normal(7, stream, i)) + 0.01;
}

static double error_of(const double *rows, const double *values, const double *x)
{
    double error = 0;
    for (int i = 0; i < ROWS; i++) {
        double left = values[i];
        for (int t = 0; t < TERMS; t++) left -= rows[i * TERMS + t] * x[t];
        error += left * left;
    }
    return error;
}

/* Random values, so that some of the unbounded coefficients are negative. */
TEST(no_neighbour_is_better)
{
    double weights[ROWS];
    int    at_zero = 0;
    for (int i = 0; i < ROWS; i++) weights[i] = 1;
    for (uint64_t trial = 0; trial < 50; trial++) {
        double rows[ROWS * TERMS], values[ROWS], out[TERMS];
        for (uint64_t i = 0; i < ROWS * TERMS; i++) rows[i] = drawn(10 + trial, i);
        for (uint64_t i = 0; i < ROWS; i++) values[i] = drawn(100 + trial, i) - 2 * rows[i * TERMS + trial % TERMS] + 3;
        tm_stats_nonnegative(rows, values, weights, ROWS, TERMS, out);
        double best = error_of(rows, values, out);
        for (int t = 0; t < TERMS; t++) {
            double x[TERMS] = { out[0], out[1], out[2] };
            assert_true(out[t] >= 0);
            at_zero += out[t] <= 0;
            x[t] = out[t] + 1e-3;
            assert_true(error_of(rows, values, x) >= best);
            x[t] = fmax(0, out[t] - 1e-3);
            assert_true(error_of(rows, values, x) >= best);
        }
    }
    assert_true(at_zero > 0);
}

/* Terms that cannot be told apart, or that are nowhere: no infinities. */
TEST(terms_without_effect)
{
    double rows[] = { 1, 0, 1, 1, 0, 1, 1, 0, 1 }, values[] = { 2, 2, 2 }, weights[] = { 1, 1, 1 }, out[TERMS];
    tm_stats_nonnegative(rows, values, weights, 3, TERMS, out);
    assert_true(fabs(out[0] + out[2] - 2) < 1e-9 && out[1] <= 0);
    double none[] = { 0, 0, 0 };
    tm_stats_nonnegative(rows, none, weights, 3, TERMS, out);
    assert_true(out[0] + out[1] + out[2] < 1e-12);
}

/* --- what no machine reaches -------------------------------------------------------------------------------------- */

static const tm_peaks peaks = { .flops = 200e9, .bytes = 20e9, .flops_spread = 0.02, .bytes_spread = 0.07 };
static const tm_peaks unknown = { 0 };

TEST(least_seconds_of_the_peaks)
{
    near(tm_guard_least_seconds(&peaks, 100e9, 1e9), 0.5); /* arithmetic takes longer */
    near(tm_guard_least_seconds(&peaks, 100e9, 40e9), 2);  /* memory does */
    near(tm_guard_least_seconds(&peaks, 0, 10e9), 0.5);
    assert_true(tm_guard_least_seconds(&unknown, 1e30, 1e30) == 0);
    near(tm_guard_tolerance(0), 0.03);
    near(tm_guard_tolerance(0.05), 0.08);
    near(tm_guard_tolerance((double)NAN), 0.03);
}

TEST(rates_that_no_machine_reaches)
{
    tm_error err = { 0 };
    assert_int_equal(tm_guard_flops(&peaks, 199e9, "gemm", &err), TM_OK);
    assert_int_equal(tm_guard_flops(&peaks, 200e9 * 1.0499, "gemm", &err), TM_OK); /* 3 % + the spread */
    assert_int_equal(tm_guard_bytes(&peaks, 20e9 * 1.0999, "stream", &err), TM_OK);
    assert_int_equal(tm_guard_flops(&unknown, 1e30, "gemm", &err), TM_OK);
    assert_int_equal(tm_guard_flops(&peaks, (double)NAN, "gemm", &err), TM_OK);
    assert_int_equal(err.status, TM_OK);
    assert_int_equal(tm_guard_flops(&peaks, 200e9 * 1.0501, "gemm 8 x 8 x 8", &err), TM_NUMBERS);
    assert_non_null(strstr(err.text, "gemm 8 x 8 x 8: 2.1e+11 FLOP/s is more than the 2e+11"));
    err = (tm_error){ 0 };
    assert_int_equal(tm_guard_bytes(&peaks, 20e9 * 1.1001, "triad", &err), TM_NUMBERS);
    assert_non_null(strstr(err.text, "triad: 2.2e+10 bytes/s is more than the 2e+10"));
    assert_int_equal(tm_status_exit_code(err.status), 3);
}

TEST(times_that_no_machine_keeps)
{
    assert_ok(tm_guard_seconds(&peaks, 100e9, 1e9, 0.5 / 1.0499, "a step", err));
    assert_ok(tm_guard_seconds(&peaks, 100e9, 40e9, 2 / 1.0999, "a step", err));
    assert_ok(tm_guard_seconds(&unknown, 100e9, 40e9, 1e-9, "a step", err));
    assert_ok(tm_guard_seconds(&peaks, 100e9, 40e9, (double)NAN, "a step", err));
    assert_refused(tm_guard_seconds(&peaks, 100e9, 1e9, 0.5 / 1.0501, "a step", err), TM_NUMBERS,
                   "a step took 0.4761 s, but 1e+11 FLOP cannot be done in less than 0.5 s at the "
                   "measured 2e+11 FLOP/s");
    assert_refused(tm_guard_seconds(&peaks, 100e9, 40e9, 2 / 1.1001, "a step", err), TM_NUMBERS,
                   "a step took 1.818 s, but 4e+10 bytes cannot be done in less than 2 s at the "
                   "measured 2e+10 bytes/s");
}

/* --- silent errors ------------------------------------------------------------------------------------------------ */

/* The next error of a machine comes after an exponential time. Errors come one by one: no Poisson law is assumed. */
static double share_without_error(double per_hour, double seconds, int machines)
{
    int none = 0;
    for (int i = 0; i < machines; i++) {
        double first = -log(1 - tm_random_uniform(11, (uint64_t)per_hour, (uint64_t)i)) * 3600 / per_hour;
        none += first > seconds;
    }
    return (double)none / machines;
}

TEST(rates_that_are_excluded_would_have_shown)
{
    enum { MACHINES = 40000 };
    const double deviation = sqrt(0.05 * 0.95 / MACHINES);
    for (double seconds = 1; seconds < 1e5; seconds *= 17) {
        double x = tm_silent_excluded(seconds, 0.95);
        assert_true(fabs(x * seconds / 3600 - 2.995732273553991) < 1e-12);
        assert_true(fabs(tm_silent_confidence(x, seconds) - 0.95) < 1e-12);
        double share = share_without_error(x, seconds, MACHINES);
        if (!(fabs(share - 0.05) < 4 * deviation)) fail_msg("%g s: %g of the machines show no error", seconds, share);
    }
}

TEST(more_time_excludes_less)
{
    assert_true(isinf(tm_silent_excluded(0, 0.95)));
    assert_true(tm_silent_excluded(7200, 0.95) < tm_silent_excluded(3600, 0.95));
    assert_true(tm_silent_excluded(3600, 0.99) > tm_silent_excluded(3600, 0.95));
    assert_true(tm_silent_confidence(0, 3600) <= 0 && tm_silent_confidence(1e-12, 3600) > 0.9e-12);
    assert_true(fabs(tm_silent_excluded(6400, 0.95) - 1.685) < 0.001); /* docs/silent-errors.md */
}
