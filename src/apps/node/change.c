/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/change.c - does a rate fall while it is measured, when, and do sensors agree? */
#include "apps/node/change.h"

#include "base/arena.h"
#include "base/random.h"
#include "stats/summary.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = TM_NODE_CHANGE_BLOCKS, QUARTER = BLOCKS / 4 };

static size_t begin_of(size_t block, size_t n)
{
    return block * n / BLOCKS;
}

static void medians(const double *x, size_t n, double out[BLOCKS])
{
    for (size_t b = 0; b < BLOCKS; b++)
        out[b] = tm_stats_median(x + begin_of(b, n), (int64_t)(begin_of(b + 1, n) - begin_of(b, n)));
}

/* The clearest fall behind any block: in units of the deviation of a block. *where: the first block of the lower level.
 */
static double clearest_fall(const double x[BLOCKS], size_t *where)
{
    double sum = 0, before = 0, most = -HUGE_VAL;
    for (size_t b = 0; b < BLOCKS; b++) sum += x[b];
    for (size_t k = 1; k < BLOCKS; k++) {
        before += x[k - 1];
        const double difference = before / (double)k - (sum - before) / (double)(BLOCKS - k);
        const double clear = difference * sqrt((double)(k * (BLOCKS - k)) / BLOCKS);
        if (clear <= most) continue;
        most = clear;
        *where = k;
    }
    return most;
}

static double chance_of(const double x[BLOCKS], double clear, uint64_t seed)
{
    enum { ORDERS = 9999, ENOUGH = 100 };
    uint64_t order = 0;
    int      as_clear = 0;
    for (; order < ORDERS && as_clear < ENOUGH; order++) {
        double y[BLOCKS];
        size_t where;
        memcpy(y, x, sizeof y);
        for (size_t b = BLOCKS - 1; b > 0; b--) {
            const size_t other = (size_t)tm_random_below(seed, order, b, b + 1);
            const double swap = y[b];
            y[b] = y[other], y[other] = swap;
        }
        as_clear += clearest_fall(y, &where) >= clear * (1 - 1e-12);
    }
    return (as_clear + 1.) / ((double)order + 1);
}

/* The sample about the beginning of block `where` behind which samples are nearer to the lower level. */
static size_t moment_of(const double *rates, size_t n, size_t where, double before, double behind)
{
    const size_t from = begin_of(where - 1, n), to = begin_of(where + 1, n);
    size_t       best = from;
    double       distance = 0, least;
    for (size_t i = from; i < to; i++) distance += fabs(rates[i] - behind);
    least = distance;
    for (size_t i = from; i < to; i++) {
        distance += fabs(rates[i] - before) - fabs(rates[i] - behind);
        if (distance >= least) continue;
        least = distance;
        best = i + 1;
    }
    return best;
}

tm_node_fall tm_node_fall_find(const double *rates, size_t n, uint64_t seed)
{
    const double nan = (double)NAN;
    tm_node_fall fall = { .early = nan, .late = nan, .chance = nan };
    double       x[BLOCKS];
    size_t       where = 1;
    if (n < TM_NODE_LEAST_SAMPLES) return fall;
    medians(rates, n, x);
    fall.chance = chance_of(x, clearest_fall(x, &where), seed);
    fall.early = tm_stats_mean(x, (int64_t)where);
    fall.late = tm_stats_mean(x + where, (int64_t)(BLOCKS - where));
    fall.at = moment_of(rates, n, where, fall.early, fall.late);
    fall.fell = fall.chance <= TM_NODE_FALL_CHANCE && 1 - fall.late / fall.early >= TM_NODE_LEAST_FALL;
    return fall;
}

/* --- what places keep --------------------------------------------------------------------------------------------- */

/* Sum of the squares about two levels, at the moment where it is least. */
static double squares_about_levels(const double x[BLOCKS])
{
    double least = HUGE_VAL;
    for (size_t k = 1; k < BLOCKS; k++) {
        const double before = tm_stats_mean(x, (int64_t)k);
        const double behind = tm_stats_mean(x + k, (int64_t)(BLOCKS - k));
        double       sum = 0;
        for (size_t b = 0; b < BLOCKS; b++) {
            const double off = x[b] - (b < k ? before : behind);
            sum += off * off;
        }
        least = fmin(least, sum);
    }
    return least;
}

double tm_node_kept(const double *rates, size_t places, size_t n, tm_node_rate *out)
{
    /* Two levels and a moment that is chosen: of independent blocks 27 degrees of freedom are left (simulated). */
    const double freedom = (double)places * 27;
    double       squares = 0;
    for (size_t p = 0; p < places; p++) {
        double       x[BLOCKS];
        const double nan = (double)NAN;
        medians(rates + p * n, n, x);
        const double mean = tm_stats_mean(x, BLOCKS);
        for (size_t b = 0; b < BLOCKS; b++) x[b] /= mean;
        const double early = tm_stats_mean(x, QUARTER), late = tm_stats_mean(x + BLOCKS - QUARTER, QUARTER);
        out[p] = (tm_node_rate){ late / early, nan, nan };
        squares += squares_about_levels(x);
    }
    /* A part has the errors of two means of 8 blocks, a difference of two parts those of 4. */
    const double error = sqrt(squares / freedom);
    const double floor = 2.326 * error * sqrt(4. / QUARTER);
    for (size_t p = 0; p < places; p++) {
        const double half = 1.96 * error * sqrt(2. / QUARTER);
        out[p].low = out[p].value - half, out[p].high = out[p].value + half;
    }
    return floor > TM_NODE_LEAST_FLOOR ? floor : TM_NODE_LEAST_FLOOR;
}

/* --- sensors ------------------------------------------------------------------------------------------------------ */

/* Median of what is known of samples [from, to). */
static double median_of(const tm_node_sensed *sensed, size_t from, size_t to, size_t at)
{
    double *x = tm_alloc((to - from + 1) * sizeof *x);
    int64_t known = 0;
    for (size_t i = from; i < to; i++) {
        double value;
        memcpy(&value, (const char *)&sensed[i] + at, sizeof value);
        if (isfinite(value)) x[known++] = value;
    }
    const double median = known > 0 ? tm_stats_median(x, known) : (double)NAN;
    free(x);
    return median;
}

tm_node_cause tm_node_cause_find(const tm_node_sensed *sensed, size_t n, double fall)
{
    const double  nan = (double)NAN, hot = 95, held = 0.01;
    tm_node_cause c = { .clock = { nan, nan }, .hottest_c = nan, .watts = nan, .throttles = nan, .held = nan };
    if (n == 0) return c;
    c.clock[0] = median_of(sensed, 0, (n + 3) / 4, offsetof(tm_node_sensed, clock_mhz));
    c.clock[1] = median_of(sensed, n - (n + 3) / 4, n, offsetof(tm_node_sensed, clock_mhz));
    c.watts = median_of(sensed, 0, n, offsetof(tm_node_sensed, watts));
    for (size_t i = 0; i < n; i++) c.hottest_c = fmax(c.hottest_c, sensed[i].hottest_c); /* fmax passes NAN over */
    c.throttles = sensed[n - 1].throttles - sensed[0].throttles;
    c.held = sensed[n - 1].held - sensed[0].held;
    c.known = isfinite(c.clock[1]) || isfinite(c.hottest_c) || isfinite(c.throttles) || isfinite(c.held);
    c.agrees = c.clock[1] < c.clock[0] * (1 - fall / 2) || c.throttles > 0 || c.held > held || c.hottest_c >= hot;
    return c;
}
