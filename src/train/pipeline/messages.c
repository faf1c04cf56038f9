/* SPDX-License-Identifier: Apache-2.0 */
/* train/pipeline/messages.c - how many messages between two ranks have to wait for their receivers. */
#include "train/pipeline/pipeline.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 2 }; /* activations, gradients */

/* A message that an action needs or gives; `peer` < 0: there is none, or both stages are of one rank. */
typedef struct {
    int peer, channel;
} message;

typedef struct {
    tm_pipeline_action *actions;
    size_t              n, at;
    bool                received; /* what actions[at] needs */
} worker;

typedef struct {
    const tm_pipeline *pipeline;
    int64_t            most;    /* messages of a channel that may wait */
    int64_t           *waiting; /* (from, to, channel) */
    worker             worker[TM_PIPELINE_RANKS];
} exchange;

static message message_of(const tm_pipeline *p, int rank, const tm_pipeline_action *a, bool needs)
{
    const bool forward = a->kind == TM_DO_FORWARD;
    const int  stage = tm_pipeline_stage(p, rank, a->chunk), other = stage + (needs == forward ? -1 : 1);
    if (a->kind == TM_DO_WEIGHT || other < 0 || other >= p->ranks * p->chunks) return (message){ -1, 0 };
    const int peer = tm_pipeline_rank(p, other);
    return (message){ peer == rank ? -1 : peer, !forward };
}

static int64_t *lane(const exchange *x, int from, int to, int channel)
{
    return &x->waiting[((size_t)from * (size_t)x->pipeline->ranks + (size_t)to) * CHANNELS + (size_t)channel];
}

/* Does what the rank's next action allows: receives for it, or sends what it has made. */
static bool go_on(exchange *x, int rank)
{
    worker *w = &x->worker[rank];
    if (w->at == w->n) return false;
    const message need = message_of(x->pipeline, rank, &w->actions[w->at], true);
    const message give = message_of(x->pipeline, rank, &w->actions[w->at], false);
    const bool    receives = !w->received && need.peer >= 0;
    if (receives) {
        int64_t *waiting = lane(x, need.peer, rank, need.channel);
        if (*waiting == 0) return false;
        --*waiting;
        w->received = true;
        return true;
    }
    if (give.peer >= 0) {
        int64_t *waiting = lane(x, rank, give.peer, give.channel);
        if (*waiting == x->most) return false;
        ++*waiting;
    }
    w->at++;
    w->received = false;
    return true;
}

static bool ends(exchange *x)
{
    const int ranks = x->pipeline->ranks;
    bool      all = true;
    memset(x->waiting, 0, (size_t)ranks * (size_t)ranks * CHANNELS * sizeof *x->waiting);
    for (int r = 0; r < ranks; r++) x->worker[r].at = 0, x->worker[r].received = false;
    for (bool any = true; any;) {
        any = false;
        for (int r = 0; r < ranks; r++)
            while (go_on(x, r)) any = true;
    }
    for (int r = 0; r < ranks; r++) all = all && x->worker[r].at == x->worker[r].n;
    return all;
}

int64_t tm_pipeline_waiting(const tm_pipeline *p)
{
    const size_t lanes = (size_t)p->ranks * (size_t)p->ranks * CHANNELS;
    exchange    *x = memset(tm_alloc(sizeof *x), 0, sizeof *x);
    x->pipeline = p;
    x->waiting = tm_alloc(lanes * sizeof *x->waiting);
    for (int r = 0; r < p->ranks; r++) x->worker[r].actions = tm_pipeline_actions(p, r, &x->worker[r].n);
    for (x->most = 1; !ends(x);) x->most++; /* an order ends when no message waits for another */
    const int64_t most = x->most;
    for (int r = 0; r < p->ranks; r++) free(x->worker[r].actions);
    free(x->waiting);
    free(x);
    return most;
}
