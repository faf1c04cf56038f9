/* SPDX-License-Identifier: Apache-2.0 */
/* stats/summary.h - what a set of measurements says, whatever their order: middle, spread, interval of the median.
 * Series in time order: stats/series.h.
 *
 * Inputs are not changed; functions that sort take a copy. n >= 1 unless said otherwise; values are finite.
 */
#ifndef TM_STATS_SUMMARY_H
#define TM_STATS_SUMMARY_H

#include <stdint.h>

/* Ascending, in place; n may be 0. */
void tm_stats_sort(double *x, int64_t n);
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
/* That k; 0 where n < 6. */
int64_t tm_stats_median_rank(int64_t n);

#endif
