/* SPDX-License-Identifier: Apache-2.0 */
/* Sampling until it is known well enough: when it stops, why, what it sums up, and how often its intervals hold the
 * long-run value of the process that made the samples. */
#include "support/test.h"
#include "series_test.h"

#include "base/random.h"
#include "base/clock.h"
#include "stats/sampling.h"
#include "stats/series.h"

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

/* --- coverage: step times as machines make them, whose truth is that of a long series; seeds are fixed ---------------
 */

/* Deviations are parts of a step. */
typedef struct {
    const char *name;
    double      white;
    double      wave, keeps; /* first-order autoregression: deviation, and what stays from one step to the next */
    double      spike, size; /* probability of a spike in a step; up to so much */
    double      other, turn; /* a second speed, so much slower, and the probability to change to it or back */
} process;

static const process processes[] = {
    { "independent", .03, 0, 0, 0, 0, 0, 0 },          { "neighbours 0.5", 0, .03, .5, 0, 0, 0, 0 },
    { "neighbours 0.85", 0, .03, .85, 0, 0, 0, 0 },    { "spikes in 1 of 10", .01, 0, 0, .1, .5, 0, 0 },
    { "spikes in 1 of 50", .01, 0, 0, .02, .5, 0, 0 }, { "two speeds", .005, 0, 0, 0, 0, .05, .2 },
    { "slow waves", .01, .004, .95, 0, 0, 0, 0 },
};

static void make(const process *p, uint64_t seed, double *x, int n)
{
    double wave = tm_random_normal(seed, 2, UINT32_MAX);
    bool   slow = tm_random_uniform(seed, 5, UINT32_MAX) < 0.5;
    for (int i = 0; i < n; i++) {
        uint64_t at = (uint64_t)i;
        if (p->turn > 0 && tm_random_uniform(seed, 5, at) < p->turn) slow = !slow;
        x[i] = 1 + p->white * tm_random_normal(seed, 1, at) + p->wave * wave + (slow ? p->other : 0);
        if (p->spike > 0 && tm_random_uniform(seed, 3, at) < p->spike) x[i] += p->size * tm_random_uniform(seed, 4, at);
        wave = p->keeps * wave + sqrt(1 - p->keeps * p->keeps) * tm_random_normal(seed, 2, at);
    }
}

/* 95 % is what they are made for. */
static bool holds_often_enough(int held, int told)
{
    return 1000 * held >= 900 * told && 1000 * held <= 985 * told;
}

TEST(intervals_hold_the_long_run)
{
    enum { LONG = 400000, STEPS = 250, SERIES = 250 };
    double *all = malloc(LONG * sizeof *all), x[STEPS];
    bool    kept = true;
    for (size_t k = 0; k < sizeof processes / sizeof processes[0]; k++) {
        const process *p = &processes[k];
        int            told = 0, rate = 0, median = 0;
        make(p, 77, all, LONG);
        double true_rate = 1 / tm_stats_mean(all, LONG), true_median = 1 / tm_stats_median(all, LONG);
        for (uint64_t s = 0; s < SERIES; s++) {
            make(p, 1000 + s, x, STEPS);
            tm_sample_summary sum = tm_stats_summarize(x, NULL, 1, STEPS);
            if (isnan(sum.rate_lo) || isnan(sum.median_rate_lo)) continue;
            told++;
            rate += sum.rate_lo <= true_rate && true_rate <= sum.rate_hi;
            median += sum.median_rate_lo <= true_median && true_median <= sum.median_rate_hi;
        }
        print_message("# %-18s %4d of %d have intervals; of 100, %.1f hold the rate, %.1f the median\n", p->name, told,
                      SERIES, 100.0 * rate / told, 100.0 * median / told);
        kept &= told >= SERIES * 9 / 10 && holds_often_enough(rate, told) && holds_often_enough(median, told);
    }
    free(all);
    assert_true(kept);
}
