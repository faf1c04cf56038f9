/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/fed.c - what the steps and the last evaluation were fed, kept as hashes and looked at after the last step
 * (data/seen.h). */
#include "train/run/run_state.h"

#include "base/arena.h"
#include "base/clock.h"
#include "data/seen.h"
#include "train/parallel/agree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* What looking may take of the time of the steps, but for the least. */
static const double share = 0.002, least_seconds = 0.002;

void run_fed(run *r, const tm_batch *batch)
{
    const int64_t rows = r->options->step.micro_batch * r->options->step.accumulation;
    if (!run_certifies(r)) return;
    int64_t begin = tm_now_ns();
    r->certified.fed =
        tm_grow(r->certified.fed, &r->certified.fed_room, (size_t)r->progress.done, sizeof *r->certified.fed);
    r->certified.fed[r->progress.done] = tm_seen_hash(r->source, batch->field, rows);
    tm_ledger_add(&r->timing.ledger, "data", (double)(tm_now_ns() - begin) * 1e-9);
}

void run_fed_held_out(run *r, const tm_batch *batch)
{
    evaluation_state *e = &r->evaluation;
    if (!run_certifies(r)) return;
    e->fed = tm_grow(e->fed, &e->fed_capacity, e->n_fed, sizeof *e->fed);
    e->fed[e->n_fed++] = tm_seen_hash(r->held_out, batch->field, run_validation_rows(r->options));
}

/* The certificate of the first rank whose own has something to say. */
static tm_status join(run *r, tm_error *err)
{
    const int            ranks = run_ranks(r->options);
    tm_data_certificate *all = tm_alloc((size_t)ranks * sizeof *all), *own = &r->certified.data;
    tm_status            st = agree_gather(run_world(r), "certificates of the data", own, sizeof *own, all, err);
    int                  told = -1;
    for (int k = 0; k < ranks && st == TM_OK && told < 0; k++)
        if (all[k].reason[0]) told = k;
    if (told >= 0) *own = all[told];
    for (int k = 0; k < ranks && st == TM_OK; k++) {
        own->batches = k ? own->batches + all[k].batches : all[k].batches;
        own->held_out = k ? own->held_out + all[k].held_out : all[k].held_out;
        own->compared = k ? own->compared + all[k].compared : all[k].compared;
    }
    free(all);
    return st;
}

tm_status run_check_fed(run *r, tm_error *err)
{
    const tm_run_options *o = r->options;
    const tm_loader_part  part = run_part(o);
    const int64_t         rows = o->step.micro_batch * o->step.accumulation, held = run_validation_rows(o);
    tm_data_certificate  *c = &r->certified.data;
    if (!r->certified.fed) return TM_OK;
    const tm_seen trained = { .source = r->source,
                              .split = TM_SPLIT_TRAIN,
                              .first = r->certified.consumed + part.rank * rows,
                              .stride = rows * part.ranks,
                              .rows = rows,
                              .hashes = r->certified.fed,
                              .n = r->progress.done };
    const tm_seen evaluated = { .source = r->held_out,
                                .split = TM_SPLIT_VALIDATION,
                                .first = part.rank * held,
                                .stride = held * part.ranks,
                                .rows = held,
                                .hashes = r->evaluation.fed,
                                .n = (int64_t)r->evaluation.n_fed };
    tm_certify_data(&trained, &evaluated, fmax(share * r->timing.all_seconds, least_seconds), o->seed, c);
    if (run_world(r)) TM_TRY(join(r, err));
    if (c->done && c->reason[0] && !r->certified.not_training[0])
        snprintf(r->certified.not_training, sizeof r->certified.not_training, "%s", c->reason);
    return TM_OK;
}
