/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/pairs.c - all-reduces over groups: the one rank, or the one link, that slows every group it is in. */
#include "apps/node/among.h"
#include "apps/node/checks.h"
#include "apps/node/pairing.h"

#include "base/arena.h"
#include "base/clock.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* COUNT: elements of float32 of an all-reduce; MOST: rounds of a grouping. */
enum { COUNT = 512 << 10, MOST = 32 };

typedef struct {
    const tm_node_task  *task;
    const tm_node_calls *calls;
    tm_comm             *world;
    const char          *what; /* "hosts", "ranks" */
    int                  me;   /* end of this rank; -1: none */
    int                 *rank; /* (n) of each end */
    float               *data;
    tm_pairing           pairing;
} session;

static tm_status reduce(const session *s, tm_comm *group, double *seconds, tm_error *err)
{
    const tm_collective barrier = {
        .kind = TM_COMM_BARRIER, .format = TM_COMM_BYTES, .what = "a round of groups", .step = -1
    };
    const tm_collective call = { .kind = TM_COMM_ALL_REDUCE,
                                 .format = TM_COMM_FLOAT32,
                                 .send = s->data,
                                 .receive = s->data + COUNT,
                                 .count = COUNT,
                                 .what = "groups",
                                 .step = -1 };
    TM_TRY(tm_comm_run(s->world, &barrier, err));
    if (!group || tm_comm_size(group) == 1) return TM_OK;
    const int64_t begun = tm_node_calls_now(s->calls);
    TM_TRY(tm_node_call_run(s->calls, group, &call, err));
    *seconds = (double)(tm_node_calls_now(s->calls) - begun) * 1e-9;
    return TM_OK;
}

/* Of each part the quickest round; of a group the rank that takes longest. */
static tm_status measure(session *s, tm_comm *group, tm_grouping *g, double limit_s, tm_error *err)
{
    enum { PARTS = TM_PAIRING_PARTS };
    const int64_t begun = tm_now_ns();
    double        own[PARTS], seconds = 0, *all = tm_alloc((size_t)s->task->ranks * sizeof own);
    bool          goes_on = true;
    tm_status     st = reduce(s, group, &seconds, err); /* to warm up */
    for (int k = 0; k < PARTS; k++) own[k] = (double)INFINITY;
    for (int round = 0; st == TM_OK && goes_on && round < MOST; round += PARTS) {
        for (int k = 0; st == TM_OK && k < PARTS; k++) {
            st = reduce(s, group, &seconds, err);
            own[k] = fmin(own[k], seconds);
        }
        if (st == TM_OK) st = tm_node_goes_on(s->world, (double)(tm_now_ns() - begun) * 1e-9 < limit_s, &goes_on, err);
    }
    const tm_collective call = { .kind = TM_COMM_ALL_GATHER,
                                 .format = TM_COMM_FLOAT64,
                                 .send = own,
                                 .receive = all,
                                 .count = PARTS,
                                 .what = "times of groups",
                                 .step = -1 };
    if (st == TM_OK) st = tm_comm_run(s->world, &call, err);
    for (int i = 0; st == TM_OK && i < s->pairing.n; i++) {
        const int side = tm_pairing_side(&s->pairing, g->mask, i);
        for (int k = 0; k < PARTS; k++) g->seconds[side][k] = fmax(g->seconds[side][k], all[s->rank[i] * PARTS + k]);
    }
    free(all);
    return st;
}

/* All ranks know the same times, and so ask for the same groups. */
static tm_status all_groupings(session *s, tm_error *err)
{
    int bits = 1;
    while (1 << bits < s->pairing.n) bits++;
    const double each = s->task->seconds / (2 * bits - 1);
    for (tm_grouping *g = tm_pairing_next(&s->pairing); g; g = tm_pairing_next(&s->pairing)) {
        tm_comm *group = NULL;
        TM_TRY(tm_comm_split(s->world, s->me < 0 ? -1 : tm_pairing_side(&s->pairing, g->mask, s->me), 0, "a side",
                             &group, err));
        if (group) tm_comm_set_direct(group, true); /* every link of the group carries the same */
        tm_status st = measure(s, group, g, each, err);
        tm_comm_close(group);
        TM_TRY(st);
    }
    return TM_OK;
}

static void name_of(const session *s, int end, char out[TM_NODE_PLACE / 2])
{
    snprintf(out, TM_NODE_PLACE / 2, "rank %d (%.16s)", s->rank[end],
             tm_comm_place_of(s->world, s->rank[end]).host_name);
}

static void judge(session *s, tm_node_outcome *out)
{
    const tm_pairing_verdict v = tm_pairing_judge(&s->pairing);
    const double             limit = fmax(s->pairing.least, v.floor);
    char                     a[TM_NODE_PLACE / 2] = "", b[TM_NODE_PLACE / 2] = "", place[TM_NODE_PLACE];
    if (v.end[0] >= 0) name_of(s, v.end[0], a);
    if (v.end[1] >= 0) name_of(s, v.end[1], b);
    tm_node_reach(out, "one of %d %s, or one link, that makes an all-reduce %.1f times as long, in %d groupings",
                  s->pairing.n, s->what, exp(limit + v.floor), s->pairing.asked);
    if (v.found == 1)
        tm_node_find(out, s->rank[v.end[0]], a,
                     "every group that it is in reduces at %.0f %% of the rate of the others", 100 * v.part);
    if (v.found == 2) {
        snprintf(place, sizeof place, "%.29s <-> %.29s", a, b);
        tm_node_find(out, s->rank[v.end[0]], place,
                     "groups with both of them reduce at %.0f %% of the rate of the others", 100 * v.part);
    }
    if (v.found < 0)
        tm_node_undecided(
            out, "groups differ (the slowest has %.0f %% of the usual rate), and no one rank or link explains it",
            100 * v.part);
    else if (v.floor > fmax(s->pairing.least, log(2) / 2))
        tm_node_undecided(out, "two measurements of a group differ by %.0f %%: a slow one does not stand out",
                          100 * (exp(v.floor) - 1));
}

tm_status tm_node_pairs(const tm_node_task *task, const tm_node_calls *calls, tm_node_outcome *out, tm_error *err)
{
    session s = { .task = task, .calls = calls, .world = task->options->world, .me = -1, .what = "ranks" };
    if (tm_node_alone(task, 4, out)) return TM_OK;
    const bool hosts = tm_comm_place_of(s.world, 0).hosts >= 4;
    /* Within a host some ranks are farther from each other than others, as it is built. */
    const bool alike = tm_comm_place_of(s.world, 0).hosts == task->ranks || hosts;
    s.pairing.least = alike ? 0.25 : 1;
    if (hosts) s.what = "hosts";
    s.rank = tm_alloc((size_t)task->ranks * sizeof(int));
    for (int r = 0; r < task->ranks; r++) {
        if (hosts && tm_comm_place_of(s.world, r).local_rank != 0) continue;
        if (r == task->rank) s.me = s.pairing.n;
        s.rank[s.pairing.n++] = r;
    }
    s.data = tm_alloc(2 * COUNT * sizeof *s.data);
    memset(s.data, 0, 2 * COUNT * sizeof *s.data);
    tm_status st = all_groupings(&s, err);
    if (st == TM_OK && task->rank == 0) judge(&s, out);
    free(s.data);
    free(s.rank);
    return st;
}

tm_status node_check_pairs(const tm_node_task *task, tm_node_outcome *out, tm_error *err)
{
    return tm_node_pairs(task, NULL, out, err);
}
