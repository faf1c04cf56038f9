/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/rcp.h - the convergence test: did the runs of a result need as many samples as the reference's?
 *
 * What counts of a run is read by a looser scan than the compliance rules': words anywhere in the text behind the
 * token, not keys (specification of the public checker). Where that checker stops with an exception, the run has a
 * `problem` and the test fails.
 */
#ifndef TM_MLPERF_RCP_H
#define TM_MLPERF_RCP_H

#include "base/arena.h"
#include "base/status.h"
#include "apps/mlperf/log.h"
#include "apps/mlperf/reference.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TM_RCP_INFINITE 1e9 /* samples of a run that did not converge */

/* What the scan saw in one log. */
typedef struct {
    const char *problem;   /* NULL: none; else where the public checker would stop, and why */
    bool        converged; /* the last `run_stop` has the status "success" */
    double      samples;   /* of the last evaluation before it; TM_RCP_INFINITE if not converged */
    bool        has_batch;
    double      batch;     /* the last value of a line that mentions global_batch_size */
    const char *benchmark; /* the last value of a line that mentions submission_benchmark; NULL: none */
} tm_rcp_run;

/* Texts live in `arena` or in the log. */
tm_rcp_run tm_rcp_scan(const tm_mllog *log, tm_arena *arena);

typedef struct {
    bool                passed;
    const char         *message;   /* "RCP found", "Missing RCP, please submit RCP with BS = 8", ... */
    const char         *remark;    /* more about it, or the way out; NULL: none */
    const char         *benchmark; /* NULL: not known */
    int64_t             batch;     /* 0: not known */
    bool                full;      /* pass: full_rcps, else pruned_rcps */
    bool                judged;    /* the next four are set */
    tm_reference_choice choice;
    tm_reference_record record;
    double              samples; /* mean of the submission, smallest and largest dropped */
    double              factor;  /* for the score, >= 1; 1 unless it passed and was faster than the reference */
} tm_rcp_verdict;

/* Judges the runs of one result, n >= 1. `given`: the user's records, or NULL for those of the round built in.
 * TM_INVALID if these are of another benchmark than the logs. What fails the test is no failure here. The verdict's
 * texts live in `arena`.
 */
TM_MUST_USE tm_status tm_rcp_judge(const tm_rcp_run *runs, size_t n, const tm_reference *given, tm_ruleset ruleset,
                                   bool full, tm_arena *arena, tm_rcp_verdict *out, tm_error *err);

/* Does the score have to be scaled? Then scaling.json is written. */
bool tm_rcp_scales(const tm_rcp_verdict *verdict);

/* Appends the lines that the public checker logs, without their level: the record, the mean, the factor, the verdict.
 */
void tm_rcp_print(const tm_rcp_verdict *verdict, tm_text *out);

#endif
