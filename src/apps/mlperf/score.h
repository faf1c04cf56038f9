/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/score.h - the score of a result: minutes to train, trimmed, and scaled by the convergence test's factor
 * (docs/mlperf-score.md). */
#ifndef TM_MLPERF_SCORE_H
#define TM_MLPERF_SCORE_H

#include "apps/mlperf/submission.h"

/* What is printed under every score. */
#define TM_MLPERF_NOT_VERIFIED "Not verified by MLCommons Association."

typedef struct {
    const char *name;
    const char *problem;           /* NULL: the run counts; else why it does not */
    bool        timed;             /* the next three are set: both lines are there */
    double      start_ms, stop_ms; /* the last run_start before the first run_stop, and that run_stop */
    double      minutes;
} tm_score_run;

typedef struct {
    tm_score_run  *runs; /* (n) */
    size_t         n, bad;
    int            wanted;  /* runs that the rules ask for; 0: not known */
    bool           closed;  /* division: only there the convergence test counts */
    const char    *problem; /* why there is no score; NULL: there is one */
    double         minutes; /* mean of the good runs without the fastest, and without the slowest unless one is bad */
    double         factor;
    double         scaled;   /* minutes * factor */
    tm_rcp_verdict rcp;      /* in the closed division */
    const char    *rcp_word; /* "Pass", "Fail", "Interp. Fail", "Missing", "No RCP", "Unknown state"; "" when open */
    bool           valid;    /* a score, by the right number of runs, that passed the convergence test */
} tm_score;

/* Texts live in the submission's arena. TM_INVALID as tm_rcp_judge. */
TM_MUST_USE tm_status tm_score_compute(const tm_submission *submission, const tm_reference *given, tm_score *out,
                                       tm_error *err);

#endif
