/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/line.h"

#include "base/arena.h"
#include "base/random.h"
#include "base/status.h"

#include <math.h>
#include <stdlib.h>

/* 97.5 % quantile of Student's t for whole degrees of freedom. */
static double student(int64_t freedom)
{
    static const double few[] = { 12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228 };
    enum { FEW = sizeof few / sizeof few[0] };
    if (freedom <= FEW) return few[freedom - 1];
    double z = 1.959964, n = (double)freedom; /* Abramowitz & Stegun 26.7.5, two terms */
    return z + (z * z * z + z) / (4 * n) + (5 * pow(z, 5) + 16 * z * z * z + 3 * z) / (96 * n * n);
}

static void fit(const double *x, const double *y, int points, double *a, double *b)
{
    double mean_x = tm_stats_mean(x, points), mean_y = tm_stats_mean(y, points), xy = 0, xx = 0;
    for (int k = 0; k < points; k++) {
        xy += (x[k] - mean_x) * (y[k] - mean_y);
        xx += (x[k] - mean_x) * (x[k] - mean_x);
    }
    TM_ASSERT(xx > 0);
    *b = xy / xx;
    *a = mean_y - *b * mean_x;
}

/* Medians of the points over the rounds that `pick` names (NULL: all, in order). column: scratch for `rounds` values.
 */
static void middles(const double *y, int points, int64_t rounds, const int64_t *pick, double *column, double *out)
{
    for (int k = 0; k < points; k++) {
        for (int64_t r = 0; r < rounds; r++) column[r] = y[(pick ? pick[r] : r) * points + k];
        out[k] = tm_stats_median(column, rounds);
    }
}

static tm_interval interval_of(const double *x, int points, const double *y, int64_t rounds, double at, double value,
                               uint64_t seed)
{
    enum { RESAMPLES = 1000 };
    if (rounds < TM_LINE_ROUNDS_FOR_INTERVAL) return (tm_interval){ (double)NAN, (double)NAN };
    uint64_t stream = tm_random_stream("stats.line");
    double  *values = tm_alloc(RESAMPLES * sizeof *values), *column = tm_alloc((size_t)rounds * sizeof *column);
    int64_t *pick = tm_alloc((size_t)rounds * sizeof *pick);
    for (int64_t s = 0; s < RESAMPLES; s++) {
        double a, b, middle[TM_LINE_POINTS];
        for (int64_t r = 0; r < rounds; r++)
            pick[r] = (int64_t)tm_random_below(seed, stream, (uint64_t)(s * rounds + r), (uint64_t)rounds);
        middles(y, points, rounds, pick, column, middle);
        fit(x, middle, points, &a, &b);
        values[s] = a + b * at;
    }
    double n = (double)rounds, half = student(rounds - 1) * tm_stats_deviation(values, RESAMPLES) * sqrt(n / (n - 1));
    free(values);
    free(column);
    free(pick);
    return (tm_interval){ value - half, value + half };
}

tm_line tm_stats_line(const double *x, int points, const double *y, int64_t rounds, double at, uint64_t seed)
{
    TM_ASSERT(points >= 2 && points <= TM_LINE_POINTS && rounds >= 1);
    tm_line line = { 0 };
    double *column = tm_alloc((size_t)rounds * sizeof *column);
    middles(y, points, rounds, NULL, column, line.middle);
    free(column);
    fit(x, line.middle, points, &line.a, &line.b);
    for (int k = 0; k < points; k++) line.residual[k] = line.middle[k] - (line.a + line.b * x[k]);
    line.value = line.a + line.b * at;
    line.interval = interval_of(x, points, y, rounds, at, line.value, seed);
    return line;
}
