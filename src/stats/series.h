/* SPDX-License-Identifier: Apache-2.0 */
/* stats/series.h - series in time order whose values lean on their neighbours: how many independent ones they are
 * worth, how far their mean can be trusted, whether they drift, where their steady state begins (docs/statistics.md).
 *
 * Inputs are not changed; values are finite. Costs O(n k), k the lags over which values are correlated (1,000 at most).
 */
#ifndef TM_STATS_SERIES_H
#define TM_STATS_SERIES_H

#include "stats/summary.h"

#include <stdbool.h>

/* Half of a 95 % interval = this x the standard error: 97.5 % quantile of Student's t by the Cornish-Fisher expansion
 * (Abramowitz & Stegun 26.7.5); within 0.2 % for 4 degrees of freedom or more. */
double tm_stats_student(double freedom);
/* The quantile of Student's t where that of a normal is z: 2.576 gives 99 % instead. Within 0.5 % for 5 or more. */
double tm_stats_student_of(double z, double freedom);

typedef struct {
    double  time;        /* integrated autocorrelation time, in samples; 1 = independent */
    double  effective_n; /* n / time */
    int64_t batch;       /* length of a batch: 5 x time, at most n / 3; 1 for independent values */
    double  error;       /* standard error of the mean; NAN for n < 2 */
    double  half_width;  /* of the mean's 95 % interval; NAN for n < 6 and where too_alike */
    bool    too_alike;   /* neighbours so alike that n samples cannot tell how far the mean goes astray: worth less than
                            12 independent ones, and time > 2 (docs/statistics.md has what that prevents) */
} tm_serial;

/* n >= 1. The autocorrelation time is Geyer's initial monotone sequence (1992), never below 1; the error is that of
 * overlapping batch means (Meketon & Schmeiser 1984) with 1.5 (n / batch - 1) degrees of freedom. A constant series:
 * time 1, error 0. */
tm_serial tm_stats_serial(const double *x, int64_t n);
/* The same of residuals; `size`: of the numbers that they are residuals of, to tell rounding from deviations. */
tm_serial tm_stats_serial_of(const double *residual, int64_t n, double size);

/* 95 % interval of sum(y) / sum(x), pairs in time order: the mean of the residuals y - R x (delta method), as above, or
 * from batches of a quarter of the series where that is wider: a level that moves slowly shows in those alone. It is
 * the interval of what the same process would give in the long run, if it went on as in these n: of this start of a
 * program, not of another one. NAN below 6 pairs and where the residuals are too alike. x > 0. *effective_n (NULL is
 * fine) is that of the residuals. */
tm_interval tm_stats_ratio_interval(const double *y, const double *x, int64_t n, double *effective_n);

/* 95 % interval of the median of values in time order, of the same long run: the ranks that tm_stats_median_interval
 * takes for as many values as the series is worth, where the series is the signs "above the median or not", or those
 * that the signs' quarters ask for. NAN where that is less than 6, a rank is outside, or the signs are too alike. */
tm_interval tm_stats_median_interval_serial(const double *x, int64_t n);

typedef struct {
    int64_t warmup;  /* samples before the steady state; at least 1 where n > 3, never more than half */
    bool    reached; /* the warm-up ended before the half, and neither drift nor shift is beyond TM_STEADY_PERCENT */
    double  drift;   /* change from first to last sample of the rest, % of its median: least-squares line */
    double  drift_lo, drift_hi; /* 95 % interval; beyond means that it lies wholly outside. NAN where n - warmup < 10 */
    double  shift;    /* % of the median by which the level changes at shift_at; 0 where no change point is seen */
    int64_t shift_at; /* index of the first sample on the new level; 0 where there is none */
} tm_steady;

/* Half of it, the distance of the ends of a drift from the mean, is the width that an interval should have (1 %). */
#define TM_STEADY_PERCENT 2.0

/* Where the steady state of step times (or other positive samples) begins, and whether it is one. Two rules, the later
 * start counts: (1) the samples before the first that is no more than 3 robust deviations above the median of the
 * second half (of at least 0.1 % of that median); (2) of what is left, in medians of 5 neighbours so that single
 * outliers do not count, the truncation with the least standard error (MSER-5, White 1997), taken only where what it
 * cuts off differs from what it leaves by more than chance and by 1 %. The rest is judged by a line (drift) and by the
 * CUSUM test at 0.1 % (shift), both with errors that know the autocorrelation. n >= 0. */
tm_steady tm_stats_steady(const double *x, int64_t n);

#endif
