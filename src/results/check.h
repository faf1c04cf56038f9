/* SPDX-License-Identifier: Apache-2.0 */
/* results/check.h - private to the room: a result under verification, and the figures that were looked at so far. */
#ifndef TM_RESULTS_CHECK_H
#define TM_RESULTS_CHECK_H

#include "base/table.h"
#include "config/config.h"
#include "results/internal.h"
#include "stats/sampling.h"

typedef struct {
    const tm_result      *run;
    const tm_config      *config; /* of the result, finished; NULL: not to be had */
    const char           *why;    /* not, then */
    tm_table             *table;
    json_t               *seen;      /* an object with a member for each path that was looked at */
    json_t               *phases;    /* seconds of each over the steps after the first, by metrics.jsonl */
    json_t               *told;      /* the record that says what of pairs is told; NULL: there is none */
    double                accounted; /* of all of them over all steps */
    size_t                wrong;
    const tm_result_step *own;     /* the records of this process's steps; NULL: there are not all of them */
    size_t                n;       /* steps of this process */
    tm_sample_summary     summary; /* of their times */
    bool                  judged;  /* the result says what its verdict is by */
} results_check;

/* One figure: as written, and worked out again. */
void results_check_row(results_check *c, const char *figure, const char *written, const char *again, bool ok);
/* A member by its path; null and NAN are one. */
void results_check_number(results_check *c, const char *path, double again);
void results_check_text(results_check *c, const char *path, const char *again); /* NULL: null */
void results_check_truth(results_check *c, const char *path, bool again);
/* A member that was looked at in another way, or a figure that nothing tells again. */
void results_check_seen(results_check *c, const char *path);
void results_check_leave(results_check *c, const char *figure);
bool results_agree(double a, double b);

/* The configuration's effects: shape, rates, batch, the facts of data that is generated (verify_plan.c). */
void results_check_plan(results_check *c);
/* Certificate, machine, verdict and its reason, by the rules of a run (verify_verdict.c). */
void results_check_verdict(results_check *c);

#endif
