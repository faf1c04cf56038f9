/* SPDX-License-Identifier: Apache-2.0 */
/* stats/summary.h - what a series of measurements says: middle, spread, interval, steady state.
 *
 * Inputs are not changed; functions that sort take a copy. n >= 1 unless said otherwise; values are finite.
 */
#ifndef TM_STATS_SUMMARY_H
#define TM_STATS_SUMMARY_H

#include <stdint.h>

/* Arithmetic mean. */
double tm_stats_mean(const double *x, int64_t n);
/* Of the sample (divisor n - 1), by the two-pass formula; 0 for n = 1. */
double tm_stats_deviation(const double *x, int64_t n);
/* Coefficient of variation: deviation / mean. NAN if the mean is 0. */
double tm_stats_variation(const double *x, int64_t n);
/* q in [0, 1]; linear between the two nearest order statistics at position q (n - 1) (type 7 of Hyndman & Fan 1996). */
double tm_stats_percentile(const double *x, int64_t n, double q);
double tm_stats_median(const double *x, int64_t n);
/* Robust estimate of a normal's standard deviation: 1.4826 x the median distance from the median. */
double tm_stats_robust_deviation(const double *x, int64_t n);

typedef struct {
    double lo, hi; /* NAN where n is too small for the confidence asked for */
} tm_interval;

/* 95 % interval of the median, free of assumptions on the distribution: the order statistics k and n + 1 - k with the
 * largest k for which the binomial tail P(B(n, 1/2) < k) is at most 2.5 %. Needs n >= 6. Assumes independent values. */
tm_interval tm_stats_median_interval(const double *x, int64_t n);

/* 95 % interval of sum(y) / sum(x) over pairs in time order, by the moving-block bootstrap (Kuensch 1989): blocks of
 * round(n^(1/3)) neighbours, which keep slow drifts together, 1,000 resamples, 2.5 and 97.5 % percentiles. Needs n
 * >= 6. The same seed gives the same interval. */
tm_interval tm_stats_ratio_interval(const double *y, const double *x, int64_t n, uint64_t seed);

/* Steps at the start that are not steady state: those before the first step whose time is no more than 3 robust
 * deviations above the median of the second half of the run (of a deviation of at least 0.1 % of that median). At least
 * 1 when n > 3, never more than half; 0 when n <= 3. */
int64_t tm_stats_warmup(const double *step_seconds, int64_t n);

typedef struct {
    double  median, lo, hi;         /* of the rates of the single steps, with the 95 % interval of that median */
    double  overall;                /* all tokens / all seconds: slow steps count with their full weight */
    double  overall_lo, overall_hi; /* its 95 % interval by block bootstrap */
    double  variation;              /* coefficient of variation of the step time */
    int64_t n;                      /* steps counted */
    int64_t warmup;                 /* steps before them, not counted */
} tm_rate_summary;

/* Tokens per second of a run whose steps all have `tokens_per_step` tokens. n = 0 is fine: everything NAN or 0. */
tm_rate_summary tm_stats_rate(const double *step_seconds, int64_t n, double tokens_per_step);

#endif
