/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling until it is known well enough: when it stops, why, and what it sums up. */
#include "support/test.h"
#include "series_test.h"

#include "base/clock.h"
#include "stats/sampling.h"
#include "stats/series.h"

#include <string.h>

TEST(rates_are_ratios_of_sums)
{
    double x[21] = { 9 };
    for (int i = 1; i < 21; i++) x[i] = i == 10 ? 3 : 1;
    tm_sample_summary s = tm_stats_summarize(x, NULL, 110, 21);
    assert_int_equal(s.warmup, 1);
    assert_int_equal(s.n, 20);
    assert_int_equal(s.outliers, 1); /* counted, and in the rate */
    near(s.median_rate, 110);
    near(s.median_rate_lo, 110);
    near(s.rate, 100); /* 20 x 110 / 22; the mean of the rates would be 106.3 */
    assert_true(s.rate_lo < 100 && s.rate_hi > 100);
    near(s.half_width, (s.rate_hi - s.rate_lo) / 200);
    near(s.median, 1);
    near(s.p5, 1);
    near(s.p95, 1.1); /* position 18.05 of 19 ones and a 3 */
    near(s.variation, tm_stats_variation(x + 1, 20));
    /* work of its own for each sample */
    double work[21];
    for (int i = 0; i < 21; i++) work[i] = i == 10 ? 330 : 110;
    s = tm_stats_summarize(x, work, 0, 21);
    near(s.rate, 110);
    near(s.rate_hi, 110);
    near(s.median_rate, 110);
    assert_int_equal(s.stop, TM_STOP_NO);
}

TEST(outliers_are_counted)
{
    double x[101];
    for (int i = 0; i < 101; i++) x[i] = 1 + 0.01 * (i % 3 - 1); /* robust deviation 0.0148 */
    x[40] = 1.06;
    x[50] = 1.08;
    x[60] = 0.92;
    assert_int_equal(tm_stats_summarize(x, NULL, 1, 101).outliers, 2); /* the band ends at 1.074 */
    for (int i = 0; i < 101; i++) x[i] = 1;                            /* no scatter at all: 0.1 % counts as one */
    x[40] = 1.004;
    x[50] = 1.006;
    assert_int_equal(tm_stats_summarize(x, NULL, 1, 101).outliers, 1);
}

/* The interval of the median rate is that of the rates of the samples that count. */
TEST(the_median_rate_has_two_ends)
{
    double            x[200], rate[200];
    tm_sample_summary s;
    autoregressive(x, 200, 0, 0.02, 3);
    s = tm_stats_summarize(x, NULL, 110, 200);
    for (int64_t i = s.warmup; i < 200; i++) rate[i] = 110 / x[i];
    tm_interval wanted = tm_stats_median_interval_serial(rate + s.warmup, s.n);
    assert_true(wanted.lo < s.median_rate && s.median_rate < wanted.hi);
    near(s.median_rate_lo, wanted.lo);
    near(s.median_rate_hi, wanted.hi);
}

TEST(few_samples)
{
    const double x[6] = { 9, 2, 2, 2, 2, 2 };
    near(tm_stats_summarize(x, NULL, 90, 1).median_rate, 10);
    assert_true(isnan(tm_stats_summarize(x, NULL, 90, 1).rate_lo));
    tm_sample_summary none = tm_stats_summarize(x, NULL, 90, 0);
    assert_int_equal(none.n, 0);
    assert_true(isnan(none.rate) && isnan(none.median) && isnan(none.half_width) && none.effective_n == 0);
    assert_true(isnan(tm_stats_summarize(x, NULL, 90, 6).half_width)); /* one of the six is warm-up */
    assert_false(tm_stats_summarize(x, NULL, 90, 6).steady.reached);
}

static int64_t run_until_stop(tm_sampling_options options, double rho, double sd, double drift, int series,
                              tm_sample_summary *out)
{
    static double x[5000];
    autoregressive(x, 5000, rho, sd, series);
    tm_sampling *s = tm_sampling_create(&options);
    tm_stop      stop = TM_STOP_NO;
    int64_t      n = 0;
    while (n < 5000 && stop == TM_STOP_NO) {
        stop = tm_sampling_add(s, x[n] * (1 + drift * (double)n), 7);
        n++;
    }
    *out = tm_sampling_summary(s);
    int64_t       kept;
    const double *seconds = tm_sampling_seconds(s, &kept);
    assert_int_equal(kept, n);
    near(seconds[n - 1], x[n - 1] * (1 + drift * (double)(n - 1)));
    assert_int_equal(out->stop, stop);
    assert_int_equal(out->n + out->warmup, n);
    tm_sampling_destroy(s);
    return n;
}

TEST(stops_when_precise)
{
    tm_sample_summary s;
    int               hits = 0;
    double            mean = 0;
    for (int series = 0; series < 300; series++) {
        int64_t n =
            run_until_stop((tm_sampling_options){ .half_width = 0.01, .max_samples = 4000 }, 0, 0.06, 0, series, &s);
        assert_int_equal(s.stop, TM_STOP_PRECISE);
        assert_true(s.half_width <= 0.01 && s.steady.reached);
        mean += (double)n / 300;
        hits += s.rate_lo <= 7 && 7 <= s.rate_hi;
    }
    print_message("# %.0f samples until +-1 %%, %d of 300 hold the rate\n", mean, hits);
    /* (1.96 x 6 %)^2 / (1 %)^2 = 138 with all samples' own deviation, (2.66 x 6 %)^2 = 255 with four batches */
    assert_true(mean > 138 && mean < 270);
    assert_in_range(hits, 267, 297); /* stopping when it looks good costs some coverage, not much */
    int64_t quiet = run_until_stop((tm_sampling_options){ .half_width = 0.01 }, 0, 1e-4, 0, 1, &s);
    assert_int_equal(quiet, 20);
    quiet = run_until_stop((tm_sampling_options){ .half_width = 0.01, .min_samples = 3 }, 0, 1e-4, 0, 1, &s);
    assert_in_range(quiet, 10, 12);
    quiet = run_until_stop((tm_sampling_options){ .half_width = 0.01, .min_samples = 50 }, 0, 1e-4, 0, 1, &s);
    assert_int_equal(quiet, 50);
}

/* Values that lean on their neighbours take longer: rho 0.7 makes 5.67 samples worth one. */
TEST(autocorrelation_takes_longer)
{
    tm_sample_summary s;
    double            mean = 0, worth = 0;
    for (int series = 0; series < 30; series++) {
        tm_sampling_options options = { .half_width = 0.01, .max_samples = 4000 };
        mean += (double)run_until_stop(options, 0.7, 0.04, 0, series, &s) / 30;
        assert_int_equal(s.stop, TM_STOP_PRECISE);
        worth += s.effective_n / (double)s.n / 30;
    }
    assert_true(mean > 200 && mean < 700); /* 61 x 5.67 = 348 */
    assert_true(worth > 0.1 && worth < 0.35);
}

TEST(budgets_end_it)
{
    tm_sample_summary s;
    assert_int_equal(run_until_stop((tm_sampling_options){ .half_width = 0.001, .max_samples = 60 }, 0, 0.1, 0, 1, &s),
                     60);
    assert_int_equal(s.stop, TM_STOP_SAMPLES);
    assert_string_equal(tm_stop_text(s.stop), "number of samples reached");
    run_until_stop((tm_sampling_options){ .half_width = 0.001, .max_seconds = 100.5, .max_samples = 4000 }, 0, 0.01, 0,
                   1, &s);
    assert_int_equal(s.stop, TM_STOP_SECONDS);
    assert_in_range(s.n + s.warmup, 99, 102);
    assert_int_equal(run_until_stop((tm_sampling_options){ .max_samples = 3 }, 0, 1e-9, 0, 1, &s), 3);
    /* a drift of 10 % is no precise result, however small its half-width */
    run_until_stop((tm_sampling_options){ .half_width = 0.05, .max_samples = 200, .min_samples = 150 }, 0, 0.001, 5e-4,
                   1, &s);
    assert_int_equal(s.stop, TM_STOP_SAMPLES);
    assert_true(isnan(s.half_width) && !s.steady.reached);
}

TEST(wall_time_counts)
{
    int64_t      begin = tm_now_ns();
    tm_sampling *s = tm_sampling_create(&(tm_sampling_options){ .max_seconds = 0.05 });
    while (tm_sampling_add(s, 1e-15, 1) == TM_STOP_NO) {
    }
    tm_sampling_destroy(s);
    assert_true(tm_now_ns() - begin >= 49000000);
}
