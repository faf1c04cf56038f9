/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/breakdown.h - a time to train taken apart: how fast, how many samples, and what went into evaluation.
 *
 *     seconds = samples / rate * seconds / training seconds
 *
 * samples: to the last evaluation; rate: samples per second of training, evaluations excluded. Formulas and limits:
 * docs/mlperf-explain.md. What a log does not tell is NAN.
 */
#ifndef TM_MLPERF_BREAKDOWN_H
#define TM_MLPERF_BREAKDOWN_H

#include "apps/mlperf/score.h"

typedef struct {
    const char *name;
    bool        used;        /* counts for the score, and has samples and times that make sense */
    double      seconds;     /* run_start to run_stop */
    double      init_s;      /* first init_start to init_stop */
    double      train_s;     /* in blocks; without block lines: all that is not evaluation */
    double      eval_s;      /* eval_start to eval_stop; without these lines: between blocks */
    double      samples;     /* at the last evaluation */
    double      first, step; /* samples at the first evaluation, and between two (median) */
    size_t      evaluations;
    double      crossing;       /* samples at the target, on the line between the last two evaluations */
    double      rate;           /* samples per second of training */
    double      first_rate;     /* the same of the first block */
    double      rate_variation; /* coefficient of variation of the other blocks' rates */
    double      tracked;        /* mean "throughput" of tracked_stats */
} tm_breakdown_run;

/* Of the runs used that have the value; NAN where n is 0. */
typedef struct {
    double mean, deviation, geometric; /* deviation of the sample, 0 for n = 1 */
    size_t n;
} tm_spread;

/* What a finer evaluation interval would bring, per run, on average. */
typedef struct {
    int    parts;         /* an interval becomes this many */
    double saved_s;       /* training that is not done, as the target is noticed earlier */
    double evaluations_s; /* of the evaluations added */
    double net_s;         /* time to train: evaluations_s - saved_s */
    double scaled_s;      /* the same after the factor of the convergence test; NAN if the test would fail */
} tm_breakdown_finer;

enum { TM_BREAKDOWN_FINER = 2 };

typedef struct {
    tm_breakdown_run *runs; /* (n) */
    size_t            n, used;
    tm_score          score;
    double            target; /* NAN: not known */
    tm_spread seconds, samples, rate, train_share, eval_share, init_s, evaluation_s, crossing, overshoot, first_rate,
        tracked;
    double             rate_variation; /* median over runs, within a run */
    double             interval;       /* samples between evaluations, median over runs */
    double             rounding_share; /* of the variance of samples: interval^2 / 12 / variance, at most 1 */
    double             best_interval;  /* samples; sqrt(2 * span * rate * seconds of an evaluation) */
    tm_breakdown_finer finer[TM_BREAKDOWN_FINER];
} tm_breakdown;

/* Lives in the submission's arena. TM_INVALID as tm_rcp_judge. */
TM_MUST_USE tm_status tm_breakdown_compute(const tm_submission *submission, const tm_reference *given,
                                           tm_breakdown *out, tm_error *err);

/* scaled minutes of b over those of a, as a product; all from geometric means, so that it comes out exactly. */
typedef struct {
    double scaled;   /* the product of what follows */
    double samples;  /* samples to the target */
    double rate;     /* 1 / rate */
    double overhead; /* 1 / share of the time that is training */
    double trimming; /* mean of the score over geometric mean of all runs used */
    double factor;   /* of the convergence test */
} tm_breakdown_ratio;

/* False if one lacks a score, or the benchmarks differ. */
bool tm_breakdown_compare(const tm_submission *of_a, const tm_breakdown *a, const tm_submission *of_b,
                          const tm_breakdown *b, tm_breakdown_ratio *out);

#endif
