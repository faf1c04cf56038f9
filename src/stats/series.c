/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/series.h"

#include "base/arena.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>

enum { FEWEST = 6, MOST_LAGS = 1000, BATCH_TIMES = 5, LEAST_WORTH = 12, SLOW_BATCHES = 4 };

/* Deviations smaller than this part of the values are rounding. */
static const double rounding = 1e-12;

double tm_stats_student(double freedom)
{
    return tm_stats_student_of(1.959963984540054, freedom);
}

double tm_stats_student_of(double z, double freedom)
{
    const double v = freedom;
    double       z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z, z9 = z7 * z * z;
    return z + (z3 + z) / (4 * v) + (5 * z5 + 16 * z3 + 3 * z) / (96 * v * v) +
           (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * v * v * v) +
           (79 * z9 + 776 * z7 + 1482 * z5 - 1920 * z3 - 945 * z) / (92160 * v * v * v * v);
}

/* Mean product of deviations `lag` apart, divisor n. */
static double autocovariance(const double *deviation, int64_t n, int64_t lag)
{
    double sum = 0;
    for (int64_t i = 0; i + lag < n; i++) sum += deviation[i] * deviation[i + lag];
    return sum / (double)n;
}

/* Sums of two neighbouring autocovariances are positive and fall in any reversible process: the sum ends where theirs
 * do not (noise), and a sum larger than the one before counts as that one. */
static double autocorrelation_time(const double *deviation, int64_t n)
{
    double  variance = autocovariance(deviation, n, 0), sum = 0, before = (double)INFINITY;
    int64_t lags = n / 4 + 2 < MOST_LAGS ? n / 4 + 2 : MOST_LAGS;
    for (int64_t lag = 0; lag + 1 < lags; lag += 2) {
        double pair = autocovariance(deviation, n, lag) + autocovariance(deviation, n, lag + 1);
        if (!(pair > 0)) break;
        if (pair > before) pair = before;
        before = pair;
        sum += pair;
    }
    return fmax(1, 2 * sum / variance - 1);
}

/* Standard error of the mean from all n - batch + 1 overlapping batches. */
static double batch_means_error(const double *deviation, int64_t n, int64_t batch)
{
    double window = 0, squares = 0, b = (double)batch, count = (double)n;
    for (int64_t i = 0; i < n; i++) {
        window += deviation[i] - (i >= batch ? deviation[i - batch] : 0);
        if (i + 1 >= batch) squares += (window / b) * (window / b);
    }
    return sqrt(b * squares / ((count - b) * (count - b + 1)));
}

tm_serial tm_stats_serial_of(const double *x, int64_t n, double size)
{
    double    mean = tm_stats_mean(x, n), largest = 0;
    double   *deviation = tm_alloc((size_t)n * sizeof *deviation);
    tm_serial s = { .time = 1, .effective_n = (double)n, .batch = 1, .error = 0, .half_width = 0 };
    for (int64_t i = 0; i < n; i++) {
        deviation[i] = x[i] - mean;
        largest = fmax(largest, fabs(deviation[i]));
    }
    if (largest > rounding * size) {
        s.time = autocorrelation_time(deviation, n);
        s.effective_n = (double)n / s.time;
        if (s.time > 1) s.batch = (int64_t)ceil(BATCH_TIMES * s.time);
        if (s.batch > n / 3) s.batch = n / 3;
        if (s.batch < 1) s.batch = 1;
        if (n > 1) s.error = batch_means_error(deviation, n, s.batch);
    }
    double batches = (double)n / (double)s.batch;
    double freedom = s.batch == 1 ? (double)(n - 1) : 1.5 * (batches - 1);
    if (n < 2) s.error = (double)NAN;
    s.too_alike = s.time > 2 && s.effective_n < LEAST_WORTH;
    s.half_width = n < FEWEST || s.too_alike ? (double)NAN : tm_stats_student(freedom) * s.error;
    free(deviation);
    return s;
}

/* Half of the mean's interval for an interval that is given: at least that of batches of a quarter of the series. A
 * level that moves slowly, by less than what single values vary, shows in no autocorrelation but in their means. */
static double widest(const double *x, int64_t n, const tm_serial *serial)
{
    int64_t batch = n / SLOW_BATCHES;
    if (!(serial->half_width > 0) || batch <= serial->batch) return serial->half_width;
    double  mean = tm_stats_mean(x, n), freedom = 1.5 * ((double)n / (double)batch - 1);
    double *deviation = tm_alloc((size_t)n * sizeof *deviation);
    for (int64_t i = 0; i < n; i++) deviation[i] = x[i] - mean;
    double slow = tm_stats_student(freedom) * batch_means_error(deviation, n, batch);
    free(deviation);
    return fmax(serial->half_width, slow);
}

static double largest_of(const double *x, int64_t n)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(x[i]));
    return largest;
}

tm_serial tm_stats_serial(const double *x, int64_t n)
{
    return tm_stats_serial_of(x, n, largest_of(x, n));
}

tm_interval tm_stats_ratio_interval(const double *y, const double *x, int64_t n, double *effective_n)
{
    TM_ASSERT(n >= 1);
    double  ratio = tm_stats_mean(y, n) / tm_stats_mean(x, n);
    double *residual = tm_alloc((size_t)n * sizeof *residual);
    for (int64_t i = 0; i < n; i++) residual[i] = y[i] - ratio * x[i];
    tm_serial serial = tm_stats_serial_of(residual, n, largest_of(y, n));
    double    half = widest(residual, n, &serial) / tm_stats_mean(x, n);
    free(residual);
    if (effective_n) *effective_n = serial.effective_n;
    return (tm_interval){ ratio - half, ratio + half };
}

tm_interval tm_stats_median_interval_serial(const double *x, int64_t n)
{
    tm_interval none = { (double)NAN, (double)NAN };
    double      median = tm_stats_median(x, n);
    double     *above = tm_alloc((size_t)n * sizeof *above);
    for (int64_t i = 0; i < n; i++) above[i] = x[i] > median;
    tm_serial signs = tm_stats_serial(above, n);
    double    worth = floor(signs.effective_n), share = signs.too_alike ? (double)NAN : widest(above, n, &signs);
    free(above);
    double rank = signs.too_alike ? 0 : (double)tm_stats_median_rank((int64_t)worth);
    if (rank < 1) return none;
    /* Rank k of m is position k / (m + 1) of the distribution; outwards to whole ranks of n. */
    double position = floor(fmin(rank / (worth + 1), 0.5 - share) * (double)(n + 1) + 1e-9);
    double last = (double)(n - 1);
    if (position < 1) return none;
    return (tm_interval){ tm_stats_percentile(x, n, (position - 1) / last),
                          tm_stats_percentile(x, n, ((double)n - position) / last) };
}
