/* SPDX-License-Identifier: Apache-2.0 */
/* stats/steady.c - where the warm-up ends, and whether what follows stands still. */
#include "base/arena.h"
#include "stats/series.h"

#include <math.h>
#include <stdlib.h>

enum { GROUP = 5, FEWEST_GROUPS = 8, FEWEST_FOR_DRIFT = 10 };

/* Samples at the start that lie above the band of the second half. */
static int64_t leading_run(const double *x, int64_t n)
{
    const double *later = x + n / 2;
    double        median = tm_stats_median(later, n - n / 2);
    double        deviation = fmax(tm_stats_robust_deviation(later, n - n / 2), 1e-3 * median);
    int64_t       run = 0;
    while (run < n / 2 && x[run] > median + 3 * deviation) run++;
    return run;
}

/* The truncation of g[0..n) within its first `most` values that leaves the least squared standard error,
 * sum (g - mean)^2 / (n - d)^2. */
static int64_t least_error(const double *g, int64_t n, int64_t most)
{
    double  sum = 0, squares = 0, least = (double)INFINITY, level = tm_stats_median(g, n);
    int64_t best = 0;
    for (int64_t i = n - 1; i >= 0; i--) { /* around the median: the difference of squares keeps its digits */
        double left = (double)(n - i), value = g[i] - level;
        sum += value;
        squares += value * value;
        double error = (squares - sum * sum / left) / (left * left);
        if (i <= most && error <= least) {
            least = error;
            best = i;
        }
    }
    return best;
}

/* Does the mean of the first d values lie farther from that of the others than chance explains, and than matters?
 * Widths for 99.95 % instead of 95 %: d is the best of many. */
static bool differs(const double *g, int64_t n, int64_t d)
{
    tm_serial rest = tm_stats_serial(g + d, n - d);
    double    gap = fabs(tm_stats_mean(g, d) - tm_stats_mean(g + d, n - d));
    double    ratio = (double)(n - d) / (double)d; /* variances of the two means, were they of the same process */
    double    matters = TM_STEADY_PERCENT / 2 / 100 * tm_stats_median(g + d, n - d);
    return gap > 1.8 * rest.half_width * sqrt(1 + ratio) && gap > matters;
}

/* Samples to cut off the front of x by MSER; at most `most`. */
static int64_t truncation(const double *x, int64_t n, int64_t most)
{
    int64_t groups = n / GROUP;
    if (groups < FEWEST_GROUPS) return 0;
    double *g = tm_alloc((size_t)groups * sizeof *g);
    for (int64_t i = 0; i < groups; i++) g[i] = tm_stats_median(x + i * GROUP, GROUP);
    int64_t d = least_error(g, groups, (most + GROUP - 1) / GROUP);
    if (d > 0 && !differs(g, groups, d)) d = 0;
    free(g);
    return d * GROUP < most ? d * GROUP : most;
}

/* Fills drift, drift_lo, drift_hi from the samples after the warm-up. */
static void fit_line(tm_steady *s, const double *x, int64_t n)
{
    double count = (double)n, middle = (count - 1) / 2, mean = tm_stats_mean(x, n), product = 0;
    double spread = count * (count * count - 1) / 12; /* sum of (i - middle)^2 */
    for (int64_t i = 0; i < n; i++) product += ((double)i - middle) * (x[i] - mean);
    double  slope = product / spread, percent = 100 * (count - 1) / tm_stats_median(x, n);
    double *residual = tm_alloc((size_t)n * sizeof *residual);
    for (int64_t i = 0; i < n; i++) residual[i] = x[i] - slope * ((double)i - middle);
    /* half_width^2 n is the (squared, scaled) long-run variance of one value. */
    double half = tm_stats_serial_of(residual, n, mean).half_width * sqrt(count / spread) * percent;
    free(residual);
    s->drift = slope * percent;
    s->drift_lo = s->drift - half;
    s->drift_hi = s->drift + half;
}

/* CUSUM test. The place where the sums of deviations go farthest from 0 splits x into two levels; it is a change if
 * they go farther than those of 999 in 1,000 steady series: 1.95 standard errors of the whole sum (supremum of a
 * Brownian bridge), which is half the 95 % interval of the sum. The error is that of the values less the level of their
 * part. */
static void find_shift(tm_steady *s, const double *x, int64_t n)
{
    double  mean = tm_stats_mean(x, n), sum = 0, farthest = 0;
    int64_t at = 1;
    for (int64_t i = 0; i + 1 < n; i++) {
        sum += x[i] - mean;
        if (fabs(sum) <= farthest) continue;
        farthest = fabs(sum);
        at = i + 1;
    }
    double  before = tm_stats_mean(x, at), after = tm_stats_mean(x + at, n - at);
    double *residual = tm_alloc((size_t)n * sizeof *residual);
    for (int64_t i = 0; i < n; i++) residual[i] = x[i] - (i < at ? before : after);
    tm_serial serial = tm_stats_serial_of(residual, n, mean);
    free(residual);
    if (!(farthest > serial.half_width * (double)n)) return;
    s->shift = 100 * (after - before) / tm_stats_median(x, n);
    s->shift_at = s->warmup + at;
}

tm_steady tm_stats_steady(const double *x, int64_t n)
{
    double    none = (double)NAN, most = TM_STEADY_PERCENT;
    tm_steady s = { .warmup = 0, .drift = none, .drift_lo = none, .drift_hi = none };
    if (n > 3) {
        s.warmup = leading_run(x, n);
        s.warmup += truncation(x + s.warmup, n - s.warmup, n / 2 - s.warmup);
        if (s.warmup < 1) s.warmup = 1;
    }
    int64_t left = n - s.warmup;
    if (left < FEWEST_FOR_DRIFT) return s;
    fit_line(&s, x + s.warmup, left);
    find_shift(&s, x + s.warmup, left);
    s.reached = s.warmup < n / 2 && s.drift_lo <= most && s.drift_hi >= -most && fabs(s.shift) <= most;
    return s;
}
