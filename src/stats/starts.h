/* SPDX-License-Identifier: Apache-2.0 */
/* stats/starts.h - is A slower than its baseline? Several starts of each, one speed per start.
 *
 * What differs from one start of a program to the next (where its memory lies, which cores it got, what the machine
 * does meanwhile) is in no run's own interval. It is estimated here from the spread of the starts; a single start of a
 * side shows none, and gets no verdict. A machine that changes its speed between two series looks like a difference;
 * only starts that took turns expose both sides to it alike (docs/results.md).
 */
#ifndef TM_STATS_STARTS_H
#define TM_STATS_STARTS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    double speed; /* > 0, in any unit */
    double when;  /* in seconds of any origin; NAN: not known */
} tm_start;

typedef enum {
    TM_STARTS_KEPT,      /* the slowdown is not above what is accepted, and known well enough to say so */
    TM_STARTS_SLOWER,    /* it is above, by more than chance explains, and the starts took turns */
    TM_STARTS_FEW,       /* no verdict: fewer than TM_STARTS_LEAST of a side */
    TM_STARTS_IMPRECISE, /* no verdict: the starts differ too much for so few */
    TM_STARTS_APART      /* no verdict: it looks slower, but the starts did not take turns */
} tm_starts_verdict;

enum { TM_STARTS_LEAST = 5, TM_STARTS_MOST_NEEDED = 1000 };

typedef struct {
    double  slowdown;  /* 1 - speed of A / speed of the baseline; NAN: a side is empty */
    double  lo, hi;    /* its 99 % interval from start to start; NAN below TM_STARTS_LEAST */
    double  spread[2]; /* of A's and the baseline's starts: relative standard deviation; NAN below 2 */
    int64_t needed;    /* starts of each side, in turns, for a half-width of `accepted` at the spread seen; at least
                          TM_STARTS_LEAST, at most TM_STARTS_MOST_NEEDED */
    bool in_turns;     /* at least as many stretches of one side, in time, as the side with fewer starts has starts;
                          starts of the same second count in the order that has the most; false if a time is NAN */
    tm_starts_verdict verdict;
} tm_starts_result;

/* n_a, n_base >= 0; accepted > 0: the slowdown that is none (0.025).
 *
 * Least squares on the logarithms of the speeds: a constant, the side, and, where all times are known, a straight line
 * in the order of time, so that a drift of the machine is no difference. The interval is Student's t's with the
 * deviation of what the fit leaves. Slower: the slowdown is above `accepted` and its interval above 0. Otherwise there
 * is a verdict if half of the interval's width is at most `accepted`: then a slowdown of twice that would have been
 * seen in 99 of 100 comparisons. */
tm_starts_result tm_starts_judge(const tm_start *a, int64_t n_a, const tm_start *base, int64_t n_base, double accepted);

#endif
