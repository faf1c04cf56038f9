/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/stragglers.c - the straggler ledger: what each rank works in the steps of a run is told to rank 0, which
 * judges who the others wait for (stats/stragglers.h). The exchange follows one that is there anyway, and is made at
 * most each 20 ms, so that it costs less than a thousandth of the time. */
#include "base/arena.h"
#include "base/clock.h"
#include "train/parallel/agree.h"
#include "train/run/run_state.h"

#include <stdlib.h>
#include <string.h>

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

/* Where a line of the ledger belongs; TM_RANK_PHASES: nowhere. Rank 0 alone logs, and waits are not work. Experts work
 * as much as is sent to them; ranks that share the weights do not update the same number of them. */
static tm_rank_phase phase_of(const run *r, const char *line)
{
    const tm_mesh *mesh = &r->options->ranks->mesh;
    const bool     alike = r->options->step.optimizer->elementwise && mesh->degree[TM_AXIS_SHARD] == 1 &&
                       mesh->degree[TM_AXIS_CP] == 1; /* what each updates */
    if (strstr(line, "communication") || strcmp(line, "logging") == 0) return TM_RANK_PHASES;
    if (strstr(line, "experts") && mesh->degree[TM_AXIS_EP] > 1) return TM_RANK_PHASES;
    if (strstr(line, "attention") && mesh->degree[TM_AXIS_CP] > 1) return TM_RANK_PHASES;
    if (strcmp(line, "data") == 0) return TM_RANK_DATA;
    if (begins(line, "forward")) return TM_RANK_FORWARD;
    if (begins(line, "backward")) return TM_RANK_BACKWARD;
    if (strcmp(line, "loss") == 0) return TM_RANK_LOSS;
    if (strcmp(line, "optimizer") == 0 || strcmp(line, "clip") == 0) return alike ? TM_RANK_UPDATE : TM_RANK_PHASES;
    return TM_RANK_OTHER;
}

/* A GPU does not share itself, so that what the processor was kept from is not what it was kept from. */
static int64_t delayed_ns(const run *r)
{
    return tm_device_describe(r->device)->kind == TM_DEVICE_CPU ? tm_thread_delayed_ns() : 0;
}

/* What was waited, and how long this thread was delayed, since the last time. */
static void take_waits(run *r)
{
    straggler_state *s = &r->stragglers;
    int64_t          waited = tm_comm_waited_ns(run_world(r)), delayed = delayed_ns(r);
    s->block.waited = (double)(waited - s->waited_ns) * 1e-9;
    s->block.delayed = (double)(delayed - s->delayed_ns) * 1e-9;
    s->waited_ns = waited;
    s->delayed_ns = delayed;
}

void run_stragglers_skip(run *r)
{
    if (!r->stragglers.all) return;
    take_waits(r);
    r->stragglers.block = (tm_rank_times){ 0 };
}

void run_stragglers_open(run *r)
{
    straggler_state *s = &r->stragglers;
    const int        ranks = run_ranks(r->options);
    if (!run_world(r)) return;
    const tm_mesh *mesh = &r->options->ranks->mesh;
    int           *role = tm_alloc((size_t)ranks * sizeof *role);
    for (int k = 0; k < ranks; k++)
        role[k] = tm_mesh_at(mesh, k, TM_AXIS_PP) * mesh->degree[TM_AXIS_CP] + tm_mesh_at(mesh, k, TM_AXIS_CP);
    s->all = tm_alloc((size_t)ranks * sizeof *s->all);
    s->named = tm_alloc((size_t)ranks * sizeof *s->named);
    if (run_rank(r->options) == 0) s->judge = tm_stragglers_open(ranks, role);
    free(role);
}

void run_stragglers_close(run *r)
{
    tm_stragglers_close(r->stragglers.judge);
    free(r->stragglers.all);
    free(r->stragglers.named);
}

void run_stragglers_add(run *r, double seconds)
{
    straggler_state *s = &r->stragglers;
    if (!s->all) return;
    for (size_t i = 0; i < r->timing.ledger.count; i++) {
        tm_rank_phase phase = phase_of(r, r->timing.ledger.lines[i].name);
        if (phase != TM_RANK_PHASES) s->block.busy[phase] += r->timing.ledger.lines[i].value;
    }
    s->block.seconds += seconds;
}

bool run_stragglers_due(const run *r)
{
    const double least_seconds = 0.02; /* an exchange takes some microseconds */
    return r->stragglers.all && r->stragglers.block.seconds >= least_seconds;
}

static void name_hosts(const run *r, tm_straggler *named, int n)
{
    for (int i = 0; i < n; i++) named[i].host = tm_comm_place_of(run_world(r), named[i].rank).host_name;
}

tm_status run_stragglers_tell(run *r, int64_t step, tm_error *err)
{
    straggler_state *s = &r->stragglers;
    take_waits(r);
    TM_TRY(agree_gather(run_world(r), "the work of ranks", &s->block, sizeof s->block, s->all, err));
    s->block = (tm_rank_times){ 0 };
    if (s->judge) {
        int n = tm_stragglers_feed(s->judge, step, s->all, s->named);
        name_hosts(r, s->named, n);
        for (int i = 0; i < n; i++) {
            tm_event event = { .kind = TM_EVENT_STRAGGLER, .straggler = s->named[i] };
            tm_event_emit(r->bus, &event);
        }
    }
    return TM_OK;
}

size_t run_stragglers_found(run *r)
{
    straggler_state *s = &r->stragglers;
    if (!s->judge) return 0;
    int n = tm_stragglers_found(s->judge, s->named);
    name_hosts(r, s->named, n);
    return (size_t)n;
}
