/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/rates.c - rounds of measurements as figures with an interval and a floor. */
#include "apps/node/rates.h"

#include "base/arena.h"
#include "stats/series.h"
#include "stats/summary.h"

#include <math.h>
#include <stdlib.h>

/* Of a normal 98 of 100 are within: blocks that lean on their neighbours make 95 of it. */
#define Z 2.326

typedef double blocks[TM_NODE_BLOCKS];

static void medians_of_blocks(const double *x, size_t rounds, blocks out)
{
    for (size_t b = 0; b < TM_NODE_BLOCKS; b++) {
        const size_t from = b * rounds / TM_NODE_BLOCKS, to = (b + 1) * rounds / TM_NODE_BLOCKS;
        out[b] = tm_stats_median(x + from, (int64_t)(to - from));
    }
}

/* Each place's blocks become parts of its mean, less what the middle place of each block is off by. */
static void take_drift_out(blocks *x, size_t places)
{
    double *column = tm_alloc(places * sizeof *column);
    for (size_t p = 0; p < places; p++) {
        const double mean = tm_stats_mean(x[p], TM_NODE_BLOCKS);
        for (size_t b = 0; b < TM_NODE_BLOCKS; b++) x[p][b] /= mean;
    }
    for (size_t b = 0; b < TM_NODE_BLOCKS && places > 1; b++) {
        for (size_t p = 0; p < places; p++) column[p] = x[p][b];
        const double middle = tm_stats_median(column, (int64_t)places);
        for (size_t p = 0; p < places; p++) x[p][b] -= middle;
    }
    free(column);
}

/* Sum of the squares of the 7 differences of halves of 8 blocks. */
static double squares_of_halves(const blocks x)
{
    double sum = 0;
    for (unsigned row = 1; row < TM_NODE_BLOCKS; row++) {
        double difference = 0;
        for (unsigned b = 0; b < TM_NODE_BLOCKS; b++) difference += __builtin_popcount(row & b) % 2 ? -x[b] : x[b];
        difference /= TM_NODE_BLOCKS / 2;
        sum += difference * difference;
    }
    return sum;
}

/* A half of the rounds has twice the variance of all of them: two whole measurements differ by 1 / sqrt 2 of what
 * halves do. The drift that was taken out has taken the errors of one place with it. */
static double floor_of(blocks *x, size_t places)
{
    const double freedom = (double)(places > 1 ? places - 1 : 1) * (TM_NODE_BLOCKS - 1);
    double       squares = 0;
    for (size_t p = 0; p < places; p++) squares += squares_of_halves(x[p]);
    const double floor = tm_stats_student_of(Z, freedom) * sqrt(squares / freedom / 2);
    return floor > TM_NODE_LEAST_FLOOR ? floor : TM_NODE_LEAST_FLOOR;
}

double tm_node_rates(const double *rates, size_t places, size_t rounds, tm_node_rate *out)
{
    const double nan = (double)NAN;
    if (rounds < TM_NODE_LEAST_ROUNDS) {
        for (size_t p = 0; p < places; p++)
            out[p] =
                (tm_node_rate){ rounds > 0 ? tm_stats_median(rates + p * rounds, (int64_t)rounds) : nan, nan, nan };
        return nan;
    }
    blocks      *x = tm_alloc(places * sizeof *x);
    const double own = places > 1 ? sqrt((double)places / (double)(places - 1)) : 1;
    for (size_t p = 0; p < places; p++) {
        medians_of_blocks(rates + p * rounds, rounds, x[p]);
        out[p].value = tm_stats_mean(x[p], TM_NODE_BLOCKS);
    }
    take_drift_out(x, places);
    for (size_t p = 0; p < places; p++) {
        const double error = out[p].value * own * tm_stats_deviation(x[p], TM_NODE_BLOCKS) / sqrt(TM_NODE_BLOCKS);
        const double half = tm_stats_student(TM_NODE_BLOCKS - 1) * error;
        out[p].low = out[p].value - half, out[p].high = out[p].value + half;
    }
    const double floor = floor_of(x, places);
    free(x);
    return floor;
}
