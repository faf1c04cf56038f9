/* SPDX-License-Identifier: Apache-2.0 */
/* stats/line.h - a straight line through measurements that were taken in rounds, and what it says at a place where
 * nothing was measured.
 *
 * In every round each point is measured once, so that what drifts between rounds meets all points alike.
 */
#ifndef TM_STATS_LINE_H
#define TM_STATS_LINE_H

#include "stats/summary.h"

enum { TM_LINE_POINTS = 8, TM_LINE_ROUNDS_FOR_INTERVAL = 3 };

typedef struct {
    double      a, b;                     /* y = a + b x: least squares through the medians of the points */
    double      middle[TM_LINE_POINTS];   /* median over the rounds */
    double      residual[TM_LINE_POINTS]; /* middle - (a + b x); all 0 with two points */
    double      value;                    /* a + b at */
    tm_interval interval;                 /* of the value, 95 %; NAN below three rounds */
} tm_line;

/* x: `points` different places (2 .. TM_LINE_POINTS); y: (rounds, points), rounds >= 1.
 *
 * The interval is value +- t(rounds - 1) s sqrt(rounds / (rounds - 1)), s the standard deviation of the value over
 * 1,000 bootstrap samples of whole rounds; the root undoes the bootstrap's bias for few rounds (Efron & Tibshirani
 * 1993, section 5.3). It covers the noise of the measurements only, not a law that is no straight line: look at the
 * residuals. The same seed gives the same interval. */
tm_line tm_stats_line(const double *x, int points, const double *y, int64_t rounds, double at, uint64_t seed);

#endif
