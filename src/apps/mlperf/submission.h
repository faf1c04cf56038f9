/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/submission.h - the runs of one result: a folder of logs, each read once and looked at by every check. */
#ifndef TM_MLPERF_SUBMISSION_H
#define TM_MLPERF_SUBMISSION_H

#include "apps/mlperf/check.h"
#include "apps/mlperf/rcp.h"

typedef struct {
    const char     *name; /* "result_3.txt" */
    tm_mllog       *log;
    tm_check_report report; /* warnings are ignored */
    tm_rcp_run      rcp;
} tm_submission_run;

typedef struct {
    const char        *path;
    tm_ruleset         ruleset;
    tm_submission_run *runs; /* in the order of their numbers; (n) */
    size_t             n, room;
    const char        *benchmark, *division; /* of the first log that says; NULL: none does */
    tm_arena          *arena;                /* for what lives as long as this */
} tm_submission;

/* Reads and checks the logs of a folder. TM_INVALID if there are none, or TM_INVALID or TM_FORMAT if one cannot be
 * read. */
TM_MUST_USE tm_status tm_submission_open(const char *path, tm_ruleset ruleset, tm_submission **out, tm_error *err);
void                  tm_submission_close(tm_submission *submission); /* NULL is fine */

/* The same by hand: an empty one, and runs, whose logs it takes over. */
tm_submission *tm_submission_create(const char *path, tm_ruleset ruleset);
void           tm_submission_add(tm_submission *submission, const char *name, tm_mllog *log);

/* The convergence test of its runs; arguments and errors of tm_rcp_judge. */
TM_MUST_USE tm_status tm_submission_judge(const tm_submission *submission, const tm_reference *given, bool full,
                                          tm_rcp_verdict *out, tm_error *err);

#endif
