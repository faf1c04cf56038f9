/* SPDX-License-Identifier: Apache-2.0 */
#include "stats/line.h"

#include "base/arena.h"
#include "base/random.h"
#include "base/status.h"
#include "stats/series.h"

#include <math.h>
#include <stdlib.h>

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
    double n = (double)rounds,
           half = tm_stats_student(n - 1) * tm_stats_deviation(values, RESAMPLES) * sqrt(n / (n - 1));
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
