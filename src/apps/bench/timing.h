/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/timing.h - how a call is timed (docs/timing.md).
 *
 * Calls that are to be compared take turns, round by round. A sample is one call, or so many calls in a row that the
 * clock's steps do not matter; what it says is seconds per call. Cold: the last-level cache is overwritten before every
 * sample, outside the timed region, and the caller's operands rotate through more memory than the cache holds. Warm:
 * one set of operands, in the cache if it fits there.
 */
#ifndef TM_BENCH_TIMING_H
#define TM_BENCH_TIMING_H

#include "base/event.h"
#include "base/status.h"
#include "stats/sampling.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    double warmup_ms, rep_ms; /* time wanted in calls before the samples, and in samples */
    double precision;         /* after rep_ms go on until half of the 95 % interval of the rate is at most this part of
                               * it, at most TM_MOST_REPS times as long; 0: end with rep_ms */
    double  duration_s;       /* 0: the two above decide; otherwise samples are taken for so long */
    int64_t min_samples;      /* taken even where they take longer; only the budget's end or a stop cuts them short */
    int64_t end_ns;           /* the budget's end, by tm_now_ns */
    int     threads;          /* that overwrite the cache */
    bool    cold;             /* overwrite the last-level cache before each sample */
    int64_t tick_ns;          /* steps of the clock; 0: of the processor's, as measured */
    /* Instead of the calls and the processor's clock: so many calls of that context, the first with that turn, and the
     * seconds of all. NULL: those. */
    tm_status (*series)(void *context, int64_t turn, int64_t calls, double *seconds, tm_error *err);
    bool settle; /* the calls have thread pools of their own: before each sample wait until the others'
                  * threads sleep, and wake up one's own with a call that is not timed */
    const volatile sig_atomic_t *stop;
} tm_timing;

enum { TM_MOST_REPS = 10 };

/* A call to be timed. `turn` counts the calls from 0: the set of operands to use is turn modulo their number. */
typedef struct {
    void (*call)(void *context, int64_t turn);
    void *context;
} tm_timed;

typedef struct {
    double    *seconds;          /* (n) per call, in time order; tm_samples_fini frees */
    int64_t    n, warmup, loops; /* samples; calls before them; calls in a sample */
    double     estimate;         /* seconds per call, from the calls before the samples */
    tm_verdict verdict; /* was the machine undisturbed while the samples were taken; not-judged below a second */
    char       reason[TM_REASON_BYTES];
    tm_stop    stop; /* why sampling ended; TM_STOP_NO: the budget was over, or the user stopped it */
} tm_samples;

/* Fills out[0 .. count - 1]. Sample i of each was taken in the same round; the order within a round alternates. n is
 * the same for all and may be 0 when the budget ended before. TM_INTERRUPTED when stopped, or the failure of a series:
 * what was taken is there. */
TM_MUST_USE tm_status tm_time(const tm_timing *timing, const tm_timed *timed, int count, tm_samples *out,
                              tm_error *err);
void                  tm_samples_fini(tm_samples *samples);

/* Smallest difference that two readings of the clock show, in nanoseconds: the clock's step, or the time of a reading,
 * whichever is longer. */
int64_t tm_clock_tick_ns(void);
enum { TM_LEAST_TICKS = 1000 }; /* a shorter sample is looped */

/* Bytes that the last-level caches hold, as far as the system tells; else 64 MiB, which is then said in the results. */
int64_t tm_last_level_bytes(bool *known);
/* Sets of operands, each of `bytes`, that together are more than twice the last-level cache. At least 2. */
int64_t tm_rotation(int64_t bytes);

#endif
