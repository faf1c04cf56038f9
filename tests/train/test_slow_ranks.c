/* SPDX-License-Identifier: Apache-2.0 */
/* Which rank is called slow, by clocks of which the test knows how fast they go: each rank's own goes on whenever it
 * looks at it, and the work of a rank whose clock goes on by 9 % more takes 9 % longer.
 */
#include "support/test.h"
#include "support/looked_clock.h"
#include "support/training.h"

#include <stdlib.h>

#include "../comm/world.h"
#include "base/log.h"
#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STEPS = 6, RANKS = 4, DEADLINE = 1000000, USUAL = 100000 };

/* ---- a run ---- */

typedef struct {
    tm_sink      sink;
    double       share[RANKS]; /* by which a rank's work takes longer */
    int          stages;
    tm_rank_told told[RANKS];
    size_t       n_told;
} job;

static void listen(tm_sink *sink, const tm_event *event)
{
    job *j = (job *)sink;
    if (event->kind != TM_EVENT_RUN_ENDED) return;
    j->n_told = event->run_ended.n_ranks;
    CHECK(j->n_told == RANKS);
    memcpy(j->told, event->run_ended.ranks, sizeof j->told);
}

static tm_run_options options_of(const job *j)
{
    tm_run_options o = { .model_name = "small",
                         .steps = STEPS,
                         .learning_rate = 3e-3,
                         .max_norm = 1,
                         .seed = 77,
                         .prefetch = 1,
                         .step = test_llama_options() };
    o.step.shape.vocab_size = 64;
    o.step.shape.dim = 32, o.step.shape.ffn_dim = 64, o.step.shape.head_dim = 16;
    o.step.seq = 16;
    o.step.micro_batch = 1;
    o.step.accumulation = j->stages;
    o.step.layout.mesh = tm_mesh_one();
    o.step.layout.mesh.degree[TM_AXIS_REPLICATE] = RANKS / j->stages;
    o.step.layout.mesh.degree[TM_AXIS_PP] = j->stages;
    o.schedule = (tm_schedule){ .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY, .steps = STEPS, .decay_ratio = 0 };
    o.source = (tm_source_options){ .name = "synthetic", .vocab = 64, .seq = o.step.seq, .seed = o.seed };
    return o;
}

static void run_rank(tm_comm *comm, void *context)
{
    job                  *j = context;
    tm_run_options        o = options_of(j);
    tm_ranks              own;
    tm_device            *device;
    tm_source            *source;
    volatile sig_atomic_t stop = 0;
    o.step.layout.rank = tm_comm_rank(comm);
    look_ns = (int64_t)(USUAL * (1 + j->share[o.step.layout.rank]));
    CHECK_OK(tm_mesh_fill(&o.step.layout.mesh, RANKS, err));
    CHECK_OK(tm_ranks_open(&o.step.layout.mesh, comm, &own, err));
    o.ranks = &own;
    CHECK_OK(tm_device_open("cpu", 1, &device, err));
    tm_device_join(device, &own.groups);
    CHECK_OK(tm_source_open(&o.source, &source, err));
    tm_event_bus bus = { .sinks = (tm_sink *[]){ &j->sink }, .count = o.step.layout.rank == 0 };
    CHECK_OK(tm_run(&o, device, source, &bus, &stop, err));
    tm_source_close(source);
    tm_device_close(device);
    tm_ranks_close(&own);
}

/* `middle`: the median of the others of its stage. */
static void check_rank(const job *j, int rank, double middle)
{
    const tm_rank_told *t = &j->told[rank];
    double              wanted = (1 + j->share[rank]) / (1 + middle) - 1;
    if (!(fabs(t->behind - wanted) < 1e-6)) fail_msg("rank %d is %.9g behind, not %.9g", rank, t->behind, wanted);
    if (t->slow != (wanted > 0.08)) fail_msg("rank %d, %.9g behind, is %sslow", rank, wanted, t->slow ? "" : "not ");
    assert_true(t->rank == rank && t->busy_seconds > 0 && t->busy_seconds < t->step_seconds);
}

/* A rank is slow that takes more than 8 % longer than the median of the others of its stage. */
static void a_rank_is_slow_from_8_percent_on(void **state)
{
    static const struct {
        int    stages;
        double share[RANKS], middle[RANKS];
    } cases[] = {
        { 1, { 0, 0, 0, 0.081 }, { 0, 0, 0, 0 } },
        { 1, { 0, 0, 0, 0.079 }, { 0, 0, 0, 0 } },
        { 1, { 0.05, 0.1, 0.2, 0.31 }, { 0.2, 0.2, 0.1, 0.1 } },
        { 2, { 0, 0, 0.3, 0.3 }, { 0, 0, 0.3, 0.3 } }, /* of the second stage both */
        { 2, { 0, 0.09, 0.4, 0.3 }, { 0.09, 0, 0.3, 0.4 } },
    };
    (void)state;
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        job j = { .sink = { .handle = listen }, .stages = cases[c].stages };
        memcpy(j.share, cases[c].share, sizeof j.share);
        run_world(RANKS, NULL, DEADLINE, false, run_rank, &j);
        assert_int_equal(j.n_told, RANKS);
        for (int r = 0; r < RANKS; r++) check_rank(&j, r, cases[c].middle[r]);
    }
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(a_rank_is_slow_from_8_percent_on) };

TM_TESTS_ALONE(tests, NULL, NULL)
