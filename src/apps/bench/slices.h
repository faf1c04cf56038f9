/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/slices.h - the step time of a model that is too large to be run, from slices of it: parts with 1, 2, 3
 * layers at true width (docs/bench-gpt.md).
 *
 * Slices take turns in rounds (1 2 3, 3 2 1, ...), so that a machine that drifts meets all of them alike. A turn is a
 * stretch of whole optimizer steps of one part; its value is their mean. Where memory allows, all parts stay open;
 * otherwise each turn opens its part and closes it again. t = a + b L is fitted through the medians over the rounds.
 */
#ifndef TM_BENCH_SLICES_H
#define TM_BENCH_SLICES_H

#include "apps/bench/part.h"
#include "stats/guard.h"
#include "stats/line.h"
#include "stats/sampling.h"

#include <signal.h>

typedef struct {
    tm_device *device;
    bool       together; /* all parts stay open; else one at a time: opened for its turn, whose first step, the first to
                          * touch the memory, does not count */
    double  turn_seconds; /* steps are added to a turn until it has taken that long, at least one */
    double  half_width;   /* stop when the interval of the predicted time is that narrow: part of it; 0: never */
    int64_t max_rounds;
    int64_t end_ns; /* no round is begun that would end later, by the last one's time */
    const volatile sig_atomic_t *stop;
} tm_slices_options;

enum { TM_SLICES_MOST = TM_LINE_POINTS + 1 };

typedef struct {
    int        slices;  /* parts 0 .. slices - 1 make the line */
    int        parts;   /* slices, or slices + 1: the last is the whole model, measured in turn to judge the line */
    double    *seconds; /* (rounds, parts), a step of each turn; tm_slices_fini frees */
    int64_t    rounds, capacity;
    int64_t    steps;    /* that count */
    int64_t    openings; /* of parts: `parts` if they stayed open, else one per turn */
    tm_line    line;     /* at the model's layers */
    tm_stop    stop;
    tm_verdict verdict[TM_SLICES_MOST]; /* of the machine while a part's steps ran: the worst of its turns; not-judged:
                                         * none took a second */
    char reason[TM_SLICES_MOST][TM_REASON_BYTES];
} tm_slices;

/* Measures `slices` parts (2 .. TM_LINE_POINTS) of ascending layers, and the part `whole` (NULL: not) in every round.
 * The process should have run a step before. rounds may be 0 when the time was over before the first: then there is no
 * line. TM_INTERRUPTED when stopped: what was measured is there. */
TM_MUST_USE tm_status tm_slices_measure(const tm_slices_options *options, const tm_part *parts, int slices,
                                        const tm_part *whole, int64_t layers, tm_slices *out, tm_error *err);
void                  tm_slices_fini(tm_slices *slices);

/* Is the line of so few rounds (too few for an interval) nothing but noise: do layers take no time, or does the model,
 * whose step executes `flops`, run faster than `peaks` allow? From rounds enough for an interval that is no noise but
 * an error, which the caller's guards find. */
bool tm_slices_are_noise(const tm_slices *slices, double flops, const tm_peaks *peaks);

#endif
