/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/updates.c - the certificate of the update (train/certify/update.h) in a run: of its first step, and of one
 * more, drawn by the run's seed from the next fifty, where moments, their corrections and the learning rate are others.
 */
#include "train/run/run_state.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/random.h"
#include "train/parallel/agree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { NEXT = 50 };

/* Its number; 0: there is no other step. One whose learning rate is not that of the step before, if one of some that
 * are drawn is such a step. */
static int64_t later_step(const run *r)
{
    enum { DRAWN = 32 };
    const tm_schedule *schedule = &r->options->schedule;
    const uint64_t     stream = tm_random_stream("certified update");
    const int64_t      first = r->progress.first_step, left = r->options->steps - first;
    int64_t            step = 0;
    for (uint64_t i = 0; i < DRAWN && left > 0; i++) {
        uint64_t among = (uint64_t)(left < NEXT ? left : NEXT);
        int64_t  drawn = first + 1 + (int64_t)tm_random_below(r->options->seed, stream + (uint64_t)first, i, among);
        double   rate = tm_schedule_factor(schedule, drawn - 1), before = tm_schedule_factor(schedule, drawn - 2);
        if (i == 0) step = drawn;
        if (fabs(rate - before) > 1e-3 * rate) return drawn;
    }
    return step;
}

tm_status run_watch_update(run *r, int64_t step, tm_error *err)
{
    const tm_run_options *o = r->options;
    tm_update_rule        rule = { o->learning_rate, o->schedule, o->max_norm };
    if (!run_certifies(r) || o->step.early_updates) return TM_OK; /* no gradients are there, and no old weights */
    if (r->progress.done > 0 && step != later_step(r)) return TM_OK;
    TM_TRY(tm_update_watch(r->trainer, &rule, step, o->seed, &r->certified.watched, err));
    r->timing.begin_ns += (int64_t)(1e9 * tm_update_seconds(r->certified.watched)); /* that time belongs to no step */
    return TM_OK;
}

/* Of the first rank that sees a violation, what it says becomes what all say. */
static tm_status agree_reason(run *r, tm_error *err)
{
    tm_update_certificate *c = &r->certified.update;
    const int64_t          none = -1 - run_ranks(r->options);
    int64_t                first = c->agrees ? none : -run_rank(r->options); /* the lowest number */
    char                   reason[TM_REASON_BYTES];
    if (!run_world(r)) return TM_OK;
    TM_TRY(agree_max(run_world(r), "what updates were", &first, 1, err));
    if (first == none) return TM_OK;
    const size_t bytes = sizeof reason;
    char        *all = tm_alloc(bytes * (size_t)run_ranks(r->options));
    snprintf(reason, sizeof reason, "%s", c->reason);
    tm_status st = agree_gather(run_world(r), "what updates were", reason, bytes, all, err);
    if (st == TM_OK && -first != run_rank(r->options))
        snprintf(c->reason, sizeof c->reason, "rank %d: %.1000s", (int)-first, all + (size_t)-first * bytes);
    c->agrees = false;
    free(all);
    return st;
}

tm_status run_judge_update(run *r, const tm_step_result *result, tm_error *err)
{
    tm_update_check *watched = r->certified.watched;
    r->certified.watched = NULL;
    if (!watched) return TM_OK;
    int64_t begin = tm_now_ns();
    if (r->certified.update.n_steps == 0) r->certified.update.agrees = true;
    TM_TRY(tm_update_judge(watched, result, &r->certified.update, err));
    tm_status st = agree_reason(r, err);
    r->timing.begin_ns += tm_now_ns() - begin;
    if (r->progress.done == 0) r->certified.done_ns = tm_now_ns();
    return st;
}
