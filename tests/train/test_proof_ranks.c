/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs of ranks that divide the model: every one is certified in its first step and after its last, and what a
 * part of a matrix has no gradient of, because its tokens never come, is not taken for dead. */
#include "ranks_fixture.h"
#include "train/run.h"

enum { STEPS = 60, BATCH = 4, TOKENS = 64 };

typedef struct {
    const char *what;
    int         model, vocab, replicate, shard, tensor, stages, experts;
} layout;

typedef struct {
    tm_sink        sink;
    const layout  *l;
    tm_certificate first, after;
    char           reason[MOST_RANKS][TM_REASON_BYTES];
    tm_status      status[MOST_RANKS];
} told;

typedef struct {
    tm_sink sink;
    told   *to;
    int     rank;
} listener;

static void listen(tm_sink *sink, const tm_event *event)
{
    listener *l = (listener *)sink;
    if (event->kind != TM_EVENT_RUN_ENDED) return;
    if (l->rank == 0) l->to->first = event->run_ended.certificate, l->to->after = event->run_ended.certificate_after;
    snprintf(l->to->reason[l->rank], TM_REASON_BYTES, "%s", event->run_ended.reason ? event->run_ended.reason : "");
}

static tm_run_options options_of(const layout *l)
{
    tm_run_options o = { .model_name = "small",
                         .steps = STEPS,
                         .learning_rate = 1e-2,
                         .max_norm = 1,
                         .seed = 77,
                         .prefetch = 1,
                         .validation_steps = -1,
                         .checkpoint_load_step = -1,
                         .checkpoint_interval = 1000,
                         .certify = true,
                         .certify_after = true,
                         .step = model_options(l->model) };
    o.step.shape.vocab_size = l->vocab;
    if (l->model != 1) o.step.shape.n_kv_heads = o.step.shape.n_heads;
    o.step.hyper.weight_decay = 0;
    o.step.layout.mesh = tm_mesh_one();
    o.step.layout.mesh.degree[TM_AXIS_REPLICATE] = l->replicate;
    o.step.layout.mesh.degree[TM_AXIS_SHARD] = l->shard;
    o.step.layout.mesh.degree[TM_AXIS_TP] = l->tensor;
    o.step.layout.mesh.degree[TM_AXIS_PP] = l->stages;
    o.step.layout.mesh.degree[TM_AXIS_EP] = l->experts;
    o.step.layout.sharing = TM_SHARE_ALL;
    o.step.layout.expert_capacity = 2;
    o.step.layout.chunks = 1;
    o.step.accumulation = BATCH / (l->replicate * l->shard);
    o.schedule = (tm_schedule){ .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY, .steps = STEPS, .decay_ratio = 0 };
    o.source = (tm_source_options){ .name = "synthetic", .vocab = TOKENS, .seq = o.step.seq, .seed = o.seed };
    return o;
}

static void run_rank(tm_comm *comm, void *context)
{
    told                 *to = context;
    int                   rank = tm_comm_rank(comm);
    tm_run_options        o = options_of(to->l);
    listener              hears = { .sink = { .handle = listen }, .to = to, .rank = rank };
    tm_ranks              own;
    tm_device            *device;
    tm_source            *source;
    tm_error              failed = { 0 };
    volatile sig_atomic_t stop = 0;
    o.step.layout.rank = rank;
    CHECK_OK(tm_mesh_fill(&o.step.layout.mesh, tm_comm_size(comm), err));
    CHECK_OK(tm_ranks_open(&o.step.layout.mesh, comm, &own, err));
    o.ranks = &own;
    CHECK_OK(tm_device_open("cpu", 1, &device, err));
    tm_device_join(device, &own.groups);
    CHECK_OK(tm_source_open(&o.source, &source, err));
    CHECK_OK(tm_source_fields(&o.source, o.step.fields, &o.step.n_fields, err));
    tm_event_bus bus = { .sinks = (tm_sink *[]){ &hears.sink }, .count = 1 };
    to->status[rank] = tm_run(&o, device, source, &bus, &stop, &failed);
    if (to->status[rank] != TM_OK) snprintf(to->reason[rank], TM_REASON_BYTES, "%.1000s", failed.text);
    tm_source_close(source);
    tm_device_close(device);
    tm_ranks_close(&own);
}

static void runs_of_divided_models_are_certified(void **state)
{
    static const layout layouts[] = { { "matrices", 0, TOKENS, 1, 1, 2, 1, 1 },
                                      { "matrices, half of the vocabulary", 0, 2 * TOKENS, 1, 1, 2, 1, 1 },
                                      { "stages", 1, TOKENS, 1, 1, 1, 2, 1 },
                                      { "stages of matrices, shared", 0, TOKENS, 1, 2, 2, 2, 1 },
                                      { "experts", 2, TOKENS, 1, 2, 1, 1, 2 } };
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
        const layout *l = &layouts[i];
        told          to = { .l = l };
        int           ranks = l->replicate * l->shard * l->tensor * l->stages;
        run_world(ranks, NULL, 120, false, run_rank, &to);
        for (int r = 0; r < ranks; r++) {
            bool learned = to.status[r] == TM_OK || strstr(to.reason[r], "no progress"); /* 60 steps are few */
            if (!learned || strstr(to.reason[r], "gradient")) fail_msg("%s: rank %d: %s", l->what, r, to.reason[r]);
        }
        const tm_certificate *both[2] = { &to.first, &to.after };
        for (int k = 0; k < 2; k++)
            if (!both[k]->done || !both[k]->gradients || !both[k]->causal || !both[k]->context)
                fail_msg("%s, certificate %d: done %d, gradients %d: %s", l->what, k, both[k]->done, both[k]->gradients,
                         both[k]->reason);
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    test_threads_sleep(argv);
    const struct CMUnitTest tests[] = { cmocka_unit_test(runs_of_divided_models_are_certified) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
