/* SPDX-License-Identifier: Apache-2.0 */
/* tests/differential/side.h - one of two runs that are compared. */
#ifndef TM_TESTS_DIFFERENTIAL_SIDE_H
#define TM_TESTS_DIFFERENTIAL_SIDE_H

#include "judge.h"

#include "device/backend.h"
#include "train/parallel/ranks.h"
#include "train/run/run.h"

#include <stdio.h>
#include <stdlib.h>

#include "../comm/world.h"

enum { MOST_STEPS = 8, MEASURES = 8, DEADLINE = 60 };

typedef struct {
    double loss, norm, measures[MEASURES];
} numbers;

/* A run, and what came of it. */
typedef struct {
    tm_sink        sink, ear; /* of rank 0; of the last rank, which alone hears that it is to stop */
    tm_run_options options;
    const char    *what, *device;
    int            threads;
    bool           copies;     /* the device wants copies of weights from step to step */
    bool           fuses;      /* it has kernels for neighbours that passes make one op of */
    int64_t        stop_after; /* 0: not */
    /* found */
    tm_status             status;
    tm_error              err;
    int64_t               first, last;                              /* steps */
    numbers               step[MOST_STEPS], evaluation[MOST_STEPS]; /* behind the step */
    bool                  evaluated[MOST_STEPS];
    uint64_t              weights;
    char                  text[64]; /* what it writes at the end; empty: nothing */
    volatile sig_atomic_t stop;
    tm_config            *config;
    tm_status             rank_status[MOST_DEGREE];
    tm_error              rank_err[MOST_DEGREE];
} side;

static inline void take_measures(numbers *n, const tm_named_f64 *named, size_t count)
{
    for (size_t i = 0; i < count && i < MEASURES; i++) n->measures[i] = named[i].value;
}

static inline void listen(tm_sink *sink, const tm_event *event)
{
    side *s = (side *)sink;
    if (event->kind == TM_EVENT_RUN_STARTED) {
        s->first = event->run_started.first_step;
    } else if (event->kind == TM_EVENT_STEP_DONE) {
        const tm_step_done *d = &event->step_done;
        CHECK(d->step < MOST_STEPS);
        s->step[d->step] = (numbers){ d->loss, d->grad_norm, { 0 } };
        take_measures(&s->step[d->step], d->measures, d->n_measures);
        s->last = d->step;
    } else if (event->kind == TM_EVENT_EVALUATION) {
        const tm_evaluation *e = &event->evaluation;
        CHECK(e->step < MOST_STEPS);
        s->evaluation[e->step] = (numbers){ e->loss, (double)e->tokens, { 0 } };
        take_measures(&s->evaluation[e->step], e->measures, e->n_measures);
        s->evaluated[e->step] = true;
    } else if (event->kind == TM_EVENT_RUN_ENDED) {
        s->weights = event->run_ended.weights_hash;
        snprintf(s->text, sizeof s->text, "%s", event->run_ended.sample ? event->run_ended.sample : "");
    }
}

static inline void hear_step(tm_sink *sink, const tm_event *event)
{
    side *s = (side *)(void *)((char *)sink - offsetof(side, ear));
    if (event->kind == TM_EVENT_STEP_DONE && event->step_done.step == s->stop_after) s->stop = 1;
}

static inline tm_status run_on(side *s, tm_comm *comm, int rank, tm_error *err)
{
    tm_run_options        o = s->options;
    tm_ranks              own;
    tm_device            *device;
    tm_source            *source;
    volatile sig_atomic_t never = 0;
    const int             last = tm_mesh_ranks(&o.step.layout.mesh) - 1;
    o.step.layout.rank = rank;
    TM_TRY(tm_source_open(&o.source, &source, err));
    TM_TRY(tm_device_open(s->device, s->threads, &device, err));
    device->info.weight_copies = s->copies;
    device->info.fuses = s->fuses;
    if (comm) {
        TM_TRY(tm_ranks_open(&o.step.layout.mesh, comm, &own, err));
        o.ranks = &own;
        tm_device_join(device, &own.groups);
    }
    tm_sink     *sinks[] = { rank == 0 ? &s->sink : &s->ear, &s->ear };
    tm_event_bus bus = { .sinks = sinks, .count = (rank == 0) + (rank == last) };
    tm_status    st = tm_run(&o, device, source, &bus, rank == last ? &s->stop : &never, err);
    tm_source_close(source);
    tm_device_close(device);
    if (comm) tm_ranks_close(&own);
    return st;
}

static inline void rank_body(tm_comm *comm, void *context)
{
    side *s = context;
    int   rank = tm_comm_rank(comm);
    s->rank_status[rank] = run_on(s, comm, rank, &s->rank_err[rank]);
}

static inline bool refused(tm_status st)
{
    return st != TM_OK && tm_status_exit_code(st) == 4;
}

/* A run without a verdict that it was training is one all the same. */
static inline bool ran(tm_status st)
{
    return st == TM_OK || st == TM_NUMBERS || st == TM_INTERRUPTED;
}

/* Of several ranks a refusal counts, then the first failure. */
static inline void run_side(side *s)
{
    int ranks = tm_mesh_ranks(&s->options.step.layout.mesh);
    s->sink.handle = listen, s->ear.handle = hear_step;
    CHECK(ranks <= MOST_DEGREE);
    if (ranks == 1)
        s->rank_status[0] = run_on(s, NULL, 0, &s->rank_err[0]);
    else
        run_world(ranks, NULL, DEADLINE, false, rank_body, s);
    int worst = 0;
    for (int r = 1; r < ranks; r++)
        if ((ran(s->rank_status[worst]) && !ran(s->rank_status[r])) ||
            (!refused(s->rank_status[worst]) && refused(s->rank_status[r])))
            worst = r;
    s->status = s->rank_status[worst];
    s->err = s->rank_err[worst];
}

#endif
