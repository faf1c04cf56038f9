/* SPDX-License-Identifier: Apache-2.0 */
/* stats/paired.h - is B slower than A? Two configurations took turns in blocks; every block gives one ratio of B to A
 * and one of A to another copy of A (docs/ab.md derives all of this).
 *
 * A block is six turns in mirrored order, x y z z y x, of the three processes A, B and A' (A again): the mean place in
 * time of each is the same, so that a linear drift cancels. A round is a run of blocks made by the same three
 * processes; the next round has new ones. What differs from one start of a program to the next (where its memory lies,
 * which cores it got) is constant within a round: only rounds are independent.
 */
#ifndef TM_STATS_PAIRED_H
#define TM_STATS_PAIRED_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    double  ratio;   /* b / sqrt(a a') of one block, each the geometric mean of its two turns; > 0 */
    double  control; /* a' / a of the same block: in truth 1 */
    int64_t round;   /* never falls from one pair to the next */
} tm_pair;

/* The pair of a block: time per unit of work of the first and the second turn of A, B and A', each > 0. */
tm_pair tm_pair_of(const double a[2], const double b[2], const double again[2], int64_t round);

typedef enum {
    TM_PAIRED_FASTER,
    TM_PAIRED_SLOWER,
    TM_PAIRED_NO_DIFFERENCE,
    TM_PAIRED_NOT_JUDGED /* fewer than TM_PAIRED_UNITS independent units: there is no interval */
} tm_paired_verdict;
const char *tm_paired_verdict_name(tm_paired_verdict verdict); /* "slower", "no difference seen" */

enum { TM_PAIRED_UNITS = 6 };

typedef struct {
    double ratio;  /* median of the pair ratios; NAN without pairs */
    double lo, hi; /* its 95 % interval; NAN where there are too few units */
} tm_paired_estimate;

typedef struct {
    int64_t pairs, rounds;
    int64_t units;            /* independent ones: rounds, or stretches of neighbouring pairs */
    bool    rounds_are_units; /* false: fewer than TM_PAIRED_UNITS rounds; the intervals do not cover what differs
                               * from one start of a program to the next */
    tm_paired_estimate b, control;
    double             half_width; /* of b's interval, relative */
    double             floor;      /* the largest |control - 1| that this session cannot exclude, at least `least` */
    double             detectable; /* the relative difference that such a session sees in 4 of 5 cases */
    tm_paired_verdict  verdict;    /* of B: 1 lies outside of its interval, and |ratio - 1| is above the floor */
} tm_paired_result;

/* Judges n >= 0 pairs in the order in which they were made. Intervals by bootstrap, 1,000 resamples of whole rounds (of
 * stretches of round(n^(1/3)) neighbouring pairs if there are fewer than TM_PAIRED_UNITS rounds), percentiles moved
 * away from the median by the ratio of the quantiles of Student's t and the normal, sqrt(u / (u - 1)) t(u - 1) / 1.96
 * for u units. least >= 0: a relative difference below which no session is believed, however long. The same seed gives
 * the same result. */
tm_paired_result tm_paired_judge(const tm_pair *pairs, int64_t n, double least, uint64_t seed);

/* May the session end before its budget does? The half-width is at most `target` (0: never) and there are `least`
 * pairs. To be asked when a round has ended; in a session of only one round (`one_round`), after any pair. The rule
 * looks at the width alone, never at the ratio: stopping does not favour a verdict (docs/ab.md). */
bool tm_paired_enough(const tm_paired_result *result, double target, int64_t least, bool one_round);

#endif
