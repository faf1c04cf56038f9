/* SPDX-License-Identifier: Apache-2.0 */
/* stats/sampling.h - measure until it is known well enough: takes samples one by one, says whether to go on, and sums
 * up.
 *
 *     tm_sampling *s = tm_sampling_create(&(tm_sampling_options){ .half_width = 0.01, .max_seconds = 10 });
 *     do seconds = one_pass();
 *     while (tm_sampling_add(s, seconds, flops) == TM_STOP_NO);
 *     tm_sample_summary summary = tm_sampling_summary(s);
 *     tm_sampling_destroy(s);
 *
 * A sample is one timed piece of work: whole optimizer steps, or as many calls as the clock needs. All of them count in
 * the result but the warm-up; outliers are counted, never removed.
 */
#ifndef TM_STATS_SAMPLING_H
#define TM_STATS_SAMPLING_H

#include "stats/series.h"

/* X(id, text) */
#define TM_STOP_LIST(X)                                                                                                \
    X(NO, "not stopped")                                                                                               \
    X(PRECISE, "precise enough")                                                                                       \
    X(SECONDS, "time budget spent")                                                                                    \
    X(SAMPLES, "number of samples reached")

typedef enum {
#define X(id, text) TM_STOP_##id,
    TM_STOP_LIST(X)
#undef X
} tm_stop;

const char *tm_stop_text(tm_stop stop);

/* Of fewer samples, 5 % are less than one: p5 and p95 say nothing, and are not told to people. */
enum { TM_TAIL_SAMPLES = 20 };

typedef struct tm_sample_summary {
    int64_t   n;        /* samples that count, after the warm-up */
    int64_t   warmup;   /* samples before them */
    int64_t   outliers; /* of the n, those more than 5 robust deviations from the median; they count */
    tm_steady steady;
    double    effective_n;                    /* independent samples that the n are worth for the rate */
    double    median, p5, p95;                /* seconds of a sample */
    double    variation;                      /* coefficient of variation of the seconds */
    double    rate;                           /* units of work per second: all work / all seconds of the n samples */
    double    rate_lo, rate_hi;               /* its 95 % interval, of this start; NAN: none, see below */
    double    half_width;                     /* (rate_hi - rate_lo) / 2 / rate; NAN: none */
    double    median_rate;                    /* median of the rates of the single samples */
    double    median_rate_lo, median_rate_hi; /* its 95 % interval; NAN where too few */
    tm_stop   stop;                           /* why sampling ended; TM_STOP_NO where nobody asked */
} tm_sample_summary;

/* Sums up `n` samples in time order. work: units of each, or NULL for `work_each` in all of them. n = 0 is fine: counts
 * 0, the rest NAN. The intervals are of what this start would show in the long run if it went on as in these samples
 * (stats/series.h). There is none below 6 samples, where neighbours are too alike, and where the samples drift or jump:
 * then there is no such value. */
tm_sample_summary tm_stats_summarize(const double *seconds, const double *work, double work_each, int64_t n);

/* 0 in a limit: none. At least one limit or half_width must be set. */
typedef struct {
    double half_width; /* stop when half of the rate's 95 % interval is at most this part of the rate (0.01 = 1 %), and
                          steady state is reached */
    double  max_seconds; /* wall time since tm_sampling_create, or the sum of the samples' seconds if that is more */
    int64_t max_samples;
    int64_t min_samples; /* before half_width is looked at; 0: 20. Steady state takes 11 */
} tm_sampling_options;

typedef struct tm_sampling tm_sampling;

/* Never NULL. Destroying NULL is fine. */
tm_sampling *tm_sampling_create(const tm_sampling_options *options);
void         tm_sampling_destroy(tm_sampling *sampling);

/* Adds a sample of `work` units (FLOP, bytes, tokens, 1) that took `seconds` > 0, and says whether to go on. Precision
 * is looked at whenever the number of samples has grown by a tenth, so that looking costs little and chance does not
 * get a try at every sample. May take memory: not inside the timed region. */
tm_stop tm_sampling_add(tm_sampling *sampling, double seconds, double work);

/* Of all samples so far; `stop` is the last answer of tm_sampling_add. */
tm_sample_summary tm_sampling_summary(const tm_sampling *sampling);

/* The raw seconds in time order, `*n` of them, valid until the next add. */
const double *tm_sampling_seconds(const tm_sampling *sampling, int64_t *n);

#endif
