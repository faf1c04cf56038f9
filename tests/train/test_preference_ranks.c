/* SPDX-License-Identifier: Apache-2.0 */
/* Runs on pairs by several ranks: in copies, in shards of every kind, in stages, with divided experts, with divided
 * matrices and with sequences in parts they learn what one rank learns, from a first loss of no difference on. */
#include "support/test.h"
#include "pairs_fixture.h"

#include "../comm/world.h"
#include "train/parallel/ranks.h"

enum { STEPS = 12, BATCH = 4, MOST_RANKS = 4 };

typedef struct {
    int               replicate, shard, experts;
    tm_sharing        sharing;
    int               tensor, context; /* 0: 1 */
    bool              whole_rows;
    int               stages, chunks; /* 0: 1 */
    tm_pipeline_order order;
} layout;

static int degree(int n)
{
    return n > 0 ? n : 1;
}

static int ranks_of(const layout *l)
{
    return l->replicate * l->shard * degree(l->tensor) * degree(l->context) * degree(l->stages);
}

typedef struct {
    const layout  *l;
    bool           adapters;
    tm_run_options options;
    listener       heard;
    uint64_t       weights[MOST_RANKS];
} job;

/* Four rows a step; experts that nothing balances. */
static tm_run_options options_for(const job *j)
{
    tm_run_options o = options_of(STEPS, true);
    o.step.micro_batch = 1;
    o.step.accumulation = BATCH / (j->l->replicate * j->l->shard);
    o.step.shape.n_heads = o.step.shape.n_kv_heads = 4;
    o.step.shape.head_dim = 16;
    o.step.loss_chunk = 40; /* several of them */
    o.validate = true;
    o.validation_freq = 6;
    if (j->l->experts > 0)
        o.step.shape.moe = (tm_moe_shape){ .experts = 4, .top_k = 2, .ffn_dim = 64, .normalise = true, .scale = 1 };
    if (j->adapters)
        o.step.adapters = (tm_adapters){
            .rank = 4, .alpha = 8, .targets = "wqkv,w2", .dropout = 0.1, .base = TM_DTYPE_COUNT, .seed = 7
        };
    o.step.shape.n_layers = 4;
    o.step.layout.order = j->l->order;
    o.step.layout.chunks = j->l->chunks;
    o.step.layout.sharing = j->l->sharing;
    o.step.layout.reshard = true;
    o.step.layout.expert_capacity = 2;
    return o;
}

static void run_rank(tm_comm *comm, void *context)
{
    job                  *j = context;
    int                   rank = comm ? tm_comm_rank(comm) : 0;
    tm_run_options        o = j->options;
    listener              deaf = { .sink = { .handle = listen } };
    tm_ranks              own;
    tm_device            *device;
    tm_source            *source;
    volatile sig_atomic_t stop = 0;
    if (comm) {
        o.step.layout.mesh = tm_mesh_one();
        o.step.layout.mesh.degree[TM_AXIS_REPLICATE] = j->l->replicate;
        o.step.layout.mesh.degree[TM_AXIS_SHARD] = j->l->shard;
        o.step.layout.mesh.degree[TM_AXIS_PP] = degree(j->l->stages);
        o.step.layout.mesh.degree[TM_AXIS_EP] = degree(j->l->experts);
        o.step.layout.mesh.degree[TM_AXIS_TP] = degree(j->l->tensor);
        o.step.layout.mesh.degree[TM_AXIS_CP] = degree(j->l->context);
        o.step.layout.whole_rows = j->l->whole_rows;
        o.step.layout.rank = rank;
        CHECK_OK(tm_mesh_fill(&o.step.layout.mesh, tm_comm_size(comm), err));
        CHECK_OK(tm_ranks_open(&o.step.layout.mesh, comm, &own, err));
        o.ranks = &own;
    }
    CHECK_OK(tm_device_open("cpu", 1, &device, err));
    if (comm) tm_device_join(device, &own.groups);
    CHECK_OK(tm_source_open(&o.source, &source, err));
    listener    *hears = rank == 0 ? &j->heard : &deaf;
    tm_event_bus bus = { .sinks = (tm_sink *[]){ &hears->sink }, .count = 1 };
    CHECK_OK(tm_run(&o, device, source, &bus, &stop, err));
    j->weights[rank] = hears->end.weights_hash;
    tm_source_close(source);
    tm_device_close(device);
    if (comm) tm_ranks_close(&own);
}

static bool close_to(double a, double b, double slack)
{
    return fabs(a - b) <= slack * fmax(fabs(b), 1);
}

static void check_follows(const job *j, const job *alone, const char *what)
{
    const listener *a = &j->heard, *b = &alone->heard;
    double          worst = 0;
    assert_int_equal(a->steps, STEPS);
    assert_int_equal(a->evaluations, b->evaluations);
    for (int t = 0; t < STEPS; t++) {
        worst = fmax(worst, fabs(a->step[t].loss - b->step[t].loss) / b->step[t].loss);
        if (!close_to(a->step[t].grad_norm, b->step[t].grad_norm, 1e-4))
            fail_msg("%s, step %d: norm %.9g, wanted %.9g", what, t + 1, a->step[t].grad_norm, b->step[t].grad_norm);
        for (int k = 0; k < 6; k++)
            if (!close_to(a->measures[t][k], b->measures[t][k], 1e-4))
                fail_msg("%s, step %d: %s %.9g, wanted %.9g", what, t + 1, names[k], a->measures[t][k],
                         b->measures[t][k]);
    }
    print_message("# %s: losses %.3g apart, %.6g -> %.6g\n", what, worst, b->step[0].loss, b->step[STEPS - 1].loss);
    if (!(worst <= 1e-5)) fail_msg("%s: losses are %.3g apart", what, worst);
    if (!close_to(a->evaluation.loss, b->evaluation.loss, 1e-5))
        fail_msg("%s: held out %.9g, wanted %.9g", what, a->evaluation.loss, b->evaluation.loss);
    for (int k = 0; k < 6; k++)
        if (!close_to(a->evaluated[k], b->evaluated[k], 1e-4))
            fail_msg("%s: held out: %s %.9g, wanted %.9g", what, names[k], a->evaluated[k], b->evaluated[k]);
    for (int k = 0; k < 4; k++) assert_true(is_near(a->measures[0][k], 0, 0)); /* no difference at all */
    assert_true(is_near(a->step[0].loss, log(2), 1e-14));
    assert_true(b->step[STEPS - 1].loss < log(2) - 1e-3);
}

static const layout layouts[] = { { 2, 1, 0, TM_SHARE_COPIES, 0, 0, false, 0, 0, 0 },
                                  { 1, 2, 0, TM_SHARE_OPTIMIZER, 0, 0, false, 0, 0, 0 },
                                  { 1, 4, 0, TM_SHARE_GRADIENTS, 0, 0, false, 0, 0, 0 },
                                  { 1, 2, 0, TM_SHARE_ALL, 0, 0, false, 0, 0, 0 },
                                  { 2, 2, 0, TM_SHARE_ALL, 0, 0, false, 0, 0, 0 },
                                  { 1, 2, 2, TM_SHARE_ALL, 0, 0, false, 0, 0, 0 },
                                  { 1, 4, 2, TM_SHARE_ALL, 0, 0, false, 0, 0, 0 },
                                  { 2, 2, 2, TM_SHARE_OPTIMIZER, 0, 0, false, 0, 0, 0 },
                                  { 1, 1, 0, TM_SHARE_COPIES, 2, 0, false, 0, 0, 0 },
                                  { 1, 1, 0, TM_SHARE_COPIES, 4, 0, true, 0, 0, 0 },
                                  { 1, 1, 0, TM_SHARE_ALL, 0, 2, false, 0, 0, 0 },
                                  { 1, 2, 0, TM_SHARE_ALL, 0, 2, false, 0, 0, 0 },
                                  { 1, 1, 0, TM_SHARE_ALL, 2, 2, false, 0, 0, 0 },
                                  { 1, 1, 1, TM_SHARE_COPIES, 2, 0, false, 0, 0, 0 },
                                  { 1, 2, 2, TM_SHARE_ALL, 2, 0, false, 0, 0, 0 },
                                  { 1, 1, 1, TM_SHARE_ALL, 0, 4, false, 0, 0, 0 },
                                  { 1, 1, 0, TM_SHARE_COPIES, 0, 0, false, 2, 1, TM_PIPELINE_1F1B },
                                  { 1, 1, 0, TM_SHARE_COPIES, 0, 0, false, 4, 1, TM_PIPELINE_GPIPE },
                                  { 1, 1, 0, TM_SHARE_COPIES, 0, 0, false, 2, 2, TM_PIPELINE_INTERLEAVED },
                                  { 1, 1, 0, TM_SHARE_COPIES, 0, 0, false, 2, 2, TM_PIPELINE_ZBV },
                                  { 1, 2, 0, TM_SHARE_ALL, 0, 0, false, 2, 1, TM_PIPELINE_1F1B },
                                  { 1, 1, 1, TM_SHARE_COPIES, 0, 0, false, 2, 1, TM_PIPELINE_1F1B },
                                  { 1, 1, 0, TM_SHARE_COPIES, 2, 0, false, 2, 1, TM_PIPELINE_1F1B },
                                  { 1, 1, 0, TM_SHARE_ALL, 0, 2, false, 2, 2, TM_PIPELINE_ZBV } };

static void ranks_learn_pairs_as_one_does(void **state)
{
    static const layout one = { 1, 1, 0, TM_SHARE_COPIES, 0, 0, false, 0, 0, 0 };
    static const layout mixture = { 1, 1, 1, TM_SHARE_COPIES, 0, 0, false, 0, 0, 0 };
    (void)state;
    for (int adapters = 0; adapters < 2; adapters++)
        for (int experts = 0; experts < 2; experts++) {
            static job alone;
            if (experts && adapters) continue;
            alone = (job){ .l = experts ? &mixture : &one, .adapters = adapters };
            alone.heard.sink.handle = listen;
            alone.options = options_for(&alone);
            run_rank(NULL, &alone);
            for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++) {
                const layout *l = &layouts[i];
                static job    j;
                char          what[120];
                if ((l->experts > 0) != (experts > 0)) continue;
                j = (job){ .l = l, .adapters = adapters };
                j.heard.sink.handle = listen;
                j.options = options_for(&j);
                run_world(ranks_of(l), NULL, 120, false, run_rank, &j);
                snprintf(what, sizeof what, "%d x %d, pp %d, order %d, sharing %d, ep %d, tp %d, cp %d%s", l->replicate,
                         l->shard, l->stages, (int)l->order, (int)l->sharing, l->experts, l->tensor, l->context,
                         adapters ? ", adapters" : "");
                check_follows(&j, &alone, what);
                for (int r = 1; r < ranks_of(l); r++) assert_true(j.weights[r] == j.weights[0]);
            }
        }
}

static int begin(void **state)
{
    (void)state;
    write_rows();
    return 0;
}

static const struct CMUnitTest tests[] = { full_test(ranks_learn_pairs_as_one_does) };

TM_TESTS(tests, begin, test_folder_teardown)
