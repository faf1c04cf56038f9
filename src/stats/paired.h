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
    TM_PAIRED_TOO_SHORT /* fewer than TM_PAIRED_UNITS rounds: what differs from one start to the next is not known */
} tm_paired_verdict;
const char *tm_paired_verdict_name(tm_paired_verdict verdict); /* "slower", "inconclusive" */

enum { TM_PAIRED_UNITS = 6 };

typedef struct {
    double ratio;  /* pseudomedian of the rounds' medians; NAN without pairs */
    double lo, hi; /* its 95 % interval; NAN where there are too few rounds */
} tm_paired_estimate;

typedef struct {
    int64_t            pairs, rounds;
    tm_paired_estimate b, control;
    double             half_width; /* of b's interval, relative */
    double             floor;      /* the largest |control - 1| that this session cannot exclude, at least `least` */
    double             detectable; /* the relative difference that such a session sees in 4 of 5 cases */
    tm_paired_verdict  verdict;    /* of B: 1 lies outside of its interval, and |ratio - 1| is above the floor */
} tm_paired_result;

/* Judges n >= 0 pairs in the order in which they were made. A round counts once, with the median of its log ratios.
 * The estimate is the median of the means of any two rounds (each with itself, too): Hodges & Lehmann 1963; the
 * interval lies between two of these means, by the exact distribution of Wilcoxon's signed-rank statistic (Hollander,
 * Wolfe & Chicken 2014, 3.3; normal approximation from 100 rounds on). Assumes rounds that are independent and scatter
 * symmetrically about the truth, nothing else; one round out of ten may be far off. least >= 0: a relative difference
 * below which no session is believed, however long. O(rounds^2 log rounds). */
tm_paired_result tm_paired_judge(const tm_pair *pairs, int64_t n, double least);

/* May the session end before its budget does? The half-width is at most `target` (0: never) and there are `least`
 * pairs. To be asked when a round has ended. The rule looks at the width alone, never at the ratio: stopping does not
 * favour a verdict (docs/ab.md). */
bool tm_paired_enough(const tm_paired_result *result, double target, int64_t least);

#endif
