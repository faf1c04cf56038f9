/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs of ranks that divide the model: every one is certified in its first step and after its last, and what a
 * part of a matrix has no gradient of, because its tokens never come, is not taken for dead. */
#include "support/test.h"
#include "ranks_fixture.h"
#include "train/certify/dead_attention.h"
#include "train/run/run.h"

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

typedef struct {
    double ratios[4][2]; /* of each layer on each rank: gradients of wq and wk in units of what rounding makes there */
    char   found[2][40];
} attention;

/* Weights of 0.1, gradients of wv of 1: what is found of all ranks' parts. */
static void find_dead(const job *j, tm_trainer *trainer)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    attention     *a = j->taken;
    const int      rank = step->options.layout.rank;
    const double   head = (double)step->options.shape.head_dim;
    tm_comm       *world = tm_device_group(tm_trainer_device(trainer), TM_AXES_WORLD);
    tm_text        layers = { 0 };
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *t = &step->graph->tensors[i];
        if (t->role != TM_ROLE_PARAMETER || !strstr(t->name, "attention.wqkv")) continue;
        double *w = test_values_read(trainer, (tm_tensor_id)i), *g = test_values_read(trainer, t->gradient);
        int64_t columns = t->shape.n[1], of_v = t->pieces[2].rows * columns;
        double  rounding = 2 * head * 0x1p-24 * sqrt(head) * 0.1 * 0.1 * (double)columns * sqrt((double)of_v);
        CHECK(t->n_pieces == 3);
        for (int p = 0; p < 3; p++)
            for (int64_t k = 0, n = t->pieces[p].rows * columns; k < n; k++) {
                w[t->pieces[p].row * columns + k] = 0.1;
                g[t->pieces[p].row * columns + k] = p == 2 ? 1 : a->ratios[t->layer][rank] * rounding / sqrt((double)n);
            }
        test_values_write(trainer, (tm_tensor_id)i, w);
        test_values_write(trainer, t->gradient, g);
        free(w), free(g);
    }
    CHECK_OK(dead_attention_find(trainer, &j->o.shape, world, &layers, err));
    snprintf(a->found[rank], sizeof a->found[rank], "%s", layers.data ? layers.data : "");
    tm_text_fini(&layers);
}

/* Ranks that divide a matrix add up what they have of it; each stage has layers of its own. All say the same. */
static void attention_is_dead_on_all_ranks_or_none(void **state)
{
    attention matrices = { .ratios = { { 1.2, 0.2 }, { 0.9, 1.3 }, { 0.9, 0.9 }, { 0.2, 1.45 } } },
              stages = { .ratios = { { 0.9 }, { 1.1 }, { 1.1, 1.1 }, { 1.1, 0.9 } } };
    (void)state;
    for (int pipeline = 0; pipeline < 2; pipeline++) {
        attention *a = pipeline ? &stages : &matrices;
        job j = { .o = model_options(0), .replicate = 1, .shard = 1, .steps = 0, .change = find_dead, .taken = a };
        j.o.shape.n_layers = 4;
        j.o.shape.n_kv_heads = j.o.shape.n_heads = 2;
        j.o.accumulation = 2;
        j.o.layout.chunks = 1;
        j.tensor = pipeline ? 1 : 2, j.stages = pipeline ? 2 : 0;
        run_world(2, NULL, 120, false, rank_body, &j);
        for (int r = 0; r < 2; r++) assert_string_equal(a->found[r], pipeline ? "0, 3" : "0, 2");
    }
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(attention_is_dead_on_all_ranks_or_none),
                                           full_test(runs_of_divided_models_are_certified) };

TM_TESTS(tests, NULL, NULL)
