/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs on several ranks: they tell of the linears of all stages, name one place that is not finite, stop
 * together, and fail together; ranks that are not of one run are named. (That they train and go on as one:
 * tests/differential.) */
#include "step_cases.h"
#include "support/test.h"

#include "support/folder.h"
#include "support/training.h"

#define run_world world_of_run /* the name is that of another function here */
#include "train/run/run_state.h"
#undef run_world
#include "rank_run.h"
#include "run_fixture.h"

#include <signal.h>

enum { STEPS = 6, BATCH = 4, MAX_RANKS = 5, DEADLINE = 120 };

/* What rank 0 tells of a run, and what is asked of each rank. */
typedef struct {
    tm_sink        sink;
    tm_run_options options;
    int            shard;   /* ranks that share weights; the others hold copies */
    int            context; /* ranks that share each sequence; 0: 1 */
    int            stages;  /* parts of a pipeline; 0: 1 */
    bool           stopped[MAX_RANKS];
    int64_t        stop_after; /* rank 0 */
    void (*spoil)(tm_run_options *o, int rank);
    bool only_evaluates;
    /* found */
    volatile sig_atomic_t stop[MAX_RANKS];
    int64_t               last_step;
    tm_status             status[MAX_RANKS];
    tm_error              err[MAX_RANKS];
    tm_text               factors; /* what is told of products in low precision */
    tm_nonfinite          found;   /* what is told of the first value that is not finite */
} job;

static void listen(tm_sink *sink, const tm_event *event)
{
    job *j = (job *)sink;
    if (event->kind == TM_EVENT_STEP_DONE) {
        j->last_step = event->step_done.step;
        if (j->last_step == j->stop_after) j->stop[0] = 1;
    } else if (event->kind == TM_EVENT_QUANTIZED) {
        for (size_t i = 0; i < event->quantized.n_factors; i++) {
            const tm_quantized_factor *f = &event->quantized.factors[i];
            tm_text_printf(&j->factors, "%lld %s %s %.9g %.9g %.9g %.9g\n", (long long)event->quantized.step, f->linear,
                           f->factor, f->amax, f->scale, f->saturated, f->flushed);
        }
    } else if (event->kind == TM_EVENT_RUN_ENDED && event->run_ended.nonfinite) {
        j->found = *event->run_ended.nonfinite;
    }
}

static job new_job(const char *folder)
{
    job             j = { .sink = { .handle = listen }, .shard = 1, .options = small_run("synthetic", STEPS) };
    tm_run_options *o = &j.options;
    o->learning_rate = 3e-3;
    o->schedule.warmup_steps = 2;
    o->validate = true, o->validation_freq = 3, o->validation_steps = 5;
    o->checkpoint = folder != NULL, o->checkpoint_folder = folder;
    o->checkpoint_keep = 2;
    o->config_hash = 1;
    o->step.shape.dim = 32, o->step.shape.ffn_dim = 64, o->step.shape.head_dim = 16;
    o->step.seq = o->source.seq = 16;
    o->step.n_fields = 0;
    o->step.micro_batch = 1;
    o->step.layout.sharing = TM_SHARE_ALL;
    return j;
}

static void one_rank(tm_comm *comm, void *context)
{
    job              *j = context;
    int               rank = comm ? tm_comm_rank(comm) : 0, ranks = comm ? tm_comm_size(comm) : 1;
    int               parts = j->context ? j->context : 1, stages = j->stages ? j->stages : 1;
    tm_run_options    o = j->options;
    tm_device        *device;
    tm_run_evaluation evaluation;
    o.step.accumulation = BATCH * parts * stages / ranks;
    o.step.layout.mesh = tm_mesh_one();
    o.step.layout.mesh.degree[TM_AXIS_CP] = parts;
    o.step.layout.mesh.degree[TM_AXIS_REPLICATE] = ranks / j->shard / parts / stages;
    o.step.layout.mesh.degree[TM_AXIS_PP] = stages;
    o.step.layout.mesh.degree[TM_AXIS_SHARD] = j->shard;
    if (j->spoil) j->spoil(&o, rank);
    CHECK_OK(tm_device_open("cpu", 1, &device, err));
    j->stop[rank] = j->stopped[rank];
    j->status[rank] =
        rank_run(comm, &o, device, &j->sink, &j->stop[rank], j->only_evaluates ? &evaluation : NULL, &j->err[rank]);
}

/* ranks 0: alone, without a world. */
static void run_on(job *j, int ranks, tm_status wanted)
{
    if (ranks == 0)
        one_rank(NULL, j);
    else
        run_world(ranks, NULL, DEADLINE, false, one_rank, j);
    for (int r = 0; r < (ranks ? ranks : 1); r++)
        if (j->status[r] != wanted)
            fail_msg("rank %d of %d: status %d: %s", r, ranks, (int)j->status[r], j->err[r].text);
}

/* Rank 0 tells of the linears of all stages, in the order of one rank; also where a stage has none that is quantized.
 */
TEST(factors_of_stages_are_those_of_one_rank)
{
    static const char *const recipes[] = { "fp8_delayed", "nvfp4" };
    for (int k = 0; k < 4; k++) {
        job alone = new_job(NULL), j;
        alone.options.quantize_freq = 2;
        alone.options.max_norm = 1e9; /* a norm is added by stages */
        alone.options.step.quantize = quantize_with(recipes[k % 2]);
        alone.options.step.shape.n_layers = 4;
        if (k >= 2) alone.options.step.quantize.first_layer = 2, alone.options.step.quantize.end_layer = 4;
        j = alone;
        j.stages = k == 0 ? 4 : 2;
        run_on(&alone, 0, TM_OK);
        run_on(&j, j.stages, TM_OK);
        assert_true(alone.factors.length > 1000);
        assert_string_equal(j.factors.data, alone.factors.data);
        tm_text_fini(&alone.factors);
        tm_text_fini(&j.factors);
    }
}

static void blow_up(tm_run_options *o, int rank)
{
    (void)rank;
    o->learning_rate = 1e30;
    o->schedule.warmup_steps = 0;
}

/* All ranks look together, end together and say the same place: where updates of 1e30 let the next step overflow. */
TEST(ranks_name_one_place_that_is_not_finite)
{
    static const struct {
        int ranks, shard, context, stages;
    } layouts[] = { { 0, 1, 0, 0 }, { 2, 1, 0, 0 }, { 2, 2, 0, 0 }, { 4, 2, 0, 0 }, { 2, 1, 2, 0 }, { 2, 1, 0, 2 } };
    for (size_t k = 0; k < sizeof layouts / sizeof *layouts; k++) {
        char *folder = test_tree_make();
        job   j = new_job(NULL);
        j.shard = layouts[k].shard, j.context = layouts[k].context, j.stages = layouts[k].stages;
        j.spoil = blow_up;
        j.options.folder = folder;
        run_on(&j, layouts[k].ranks, TM_NUMBERS);
        if (!j.found.located) fail_msg("layout %zu: no place is named: %s", k, j.err[0].text);
        assert_true(j.found.step == 2 && j.last_step == 2 && j.found.repeated && j.found.layer >= -1);
        assert_string_not_equal(j.found.phase, "update");
        assert_string_not_equal(j.found.cause, "received");
        assert_true(j.found.rank < (layouts[k].ranks ? layouts[k].ranks : 1));
        assert_true(strstr(j.err[0].text, j.found.tensor) != NULL);
        test_tree_remove(folder);
    }
}

/* Whoever hears the signal: all stop, before a batch that only some of them would evaluate. */
TEST(evaluations_are_stopped_by_one)
{
    for (int ranks = 0; ranks <= 4; ranks += 2)
        for (int told = 0; told < (ranks ? ranks : 1); told++) {
            job j = new_job(NULL);
            j.only_evaluates = true;
            j.stopped[told] = true;
            run_on(&j, ranks, TM_INTERRUPTED);
            for (int r = 0; r < (ranks ? ranks : 1); r++) assert_string_equal(j.err[r].text, "stopped by a signal");
        }
}

/* Digits of each rank: of its configuration, of an order in a file, and whether its data are others. */
static const struct {
    const char *configuration, *order, *data;
    const char *says; /* is of ... */
} others[] = {
    { "44444", "54444", "00000", "the configuration of rank 0" },
    { "00101", "44444", "00000", "the configuration of ranks 2, 4" },
    { "00101", "00000", "01000", "the configuration of ranks 2, 4; the data of rank 1" },
    { "0011", "0000", "0000", "the configuration of ranks 2, 3" },
    { "9881", "0000", "0000", "the configuration of ranks 0, 3" },
};
static size_t other;

static void differ(tm_run_options *o, int rank)
{
    static const tm_pipeline_list lists[] = { { .hash = 4 }, { .hash = 5 } };
    o->config_hash = (uint64_t)(others[other].configuration[rank] - '0');
    if (others[other].order[rank] != '0') o->step.layout.list = &lists[others[other].order[rank] - '4'];
    if (others[other].data[rank] != '0') o->source.name = "mock";
}

static void takes_turns(tm_run_options *o, int rank)
{
    (void)rank;
    o->turn_fd = 1;
}

/* Those that most ranks agree with are right. */
TEST(ranks_of_another_run_are_named)
{
    for (other = 0; other < sizeof others / sizeof others[0]; other++) {
        const int ranks = (int)strlen(others[other].data);
        char      wanted[400];
        job       j = new_job(NULL);
        j.spoil = differ;
        snprintf(wanted, sizeof wanted,
                 "not all ranks are of one run: %s differs from that of the others; start all %d with the same "
                 "program, configuration and data",
                 others[other].says, ranks);
        run_on(&j, ranks, TM_INVALID);
        for (int r = 0; r < ranks; r++)
            if (!strstr(j.err[r].text, wanted)) fail_msg("rank %d: %s", r, j.err[r].text);
    }
    job turns = new_job(NULL);
    turns.spoil = takes_turns;
    run_on(&turns, 2, TM_UNSUPPORTED);
    assert_non_null(strstr(turns.err[1].text, "a run of several ranks takes no turns; unset "));
}

/* What ranks have read: 3 batches of 2 samples each; `alike`: every rank reads what rank 0 does. */
typedef struct {
    bool    alike;
    int64_t seen[MAX_RANKS], unique[MAX_RANKS];
} count;

static void count_samples(tm_comm *comm, void *context)
{
    count         *k = context;
    int            rank = tm_comm_rank(comm), ranks = tm_comm_size(comm);
    tm_run_options o = small_run("mock", 1);
    tm_source     *source;
    tm_ranks       own;
    tm_batch       batch;
    o.step.layout.mesh = tm_mesh_one();
    o.step.layout.mesh.degree[TM_AXIS_REPLICATE] = ranks;
    rank_join(comm, &o, &own);
    CHECK_OK(tm_source_open(&o.source, &source, err));
    tm_loader_part part = { k->alike ? 0 : rank, ranks };
    run            r = { .options = &o, .source = source };
    r.loader = tm_loader_open_part(source, TM_SPLIT_TRAIN, 2 * ranks, part, 0, 0);
    for (int i = 0; i < 3; i++) tm_loader_next(r.loader, &batch);
    CHECK_OK(run_count_samples(&r, &k->seen[rank], &k->unique[rank], err));
    tm_loader_close(r.loader);
    tm_source_close(source);
    tm_ranks_close(&own);
}

/* Those of all ranks count, and the same one on two ranks is one. */
TEST(samples_of_all_ranks_count)
{
    for (int alike = 0; alike < 2; alike++) {
        count k = { .alike = alike };
        run_world(3, NULL, DEADLINE, false, count_samples, &k);
        for (int r = 0; r < 3; r++) assert_true(k.seen[r] == 18 && k.unique[r] == (alike ? 6 : 18));
    }
}

static void other_seed(tm_run_options *o, int rank)
{
    if (rank == 1) o->seed = 78; /* the checkpoint is of another */
}

/* One rank that cannot go on ends all of them, with its story. */
TEST(a_failure_of_one_rank_is_that_of_all)
{
    char *folder = test_tree_make();
    job   j = new_job(folder);
    j.stop_after = 2;
    run_on(&j, 2, TM_INTERRUPTED);
    j = new_job(folder);
    j.spoil = other_seed;
    run_on(&j, 2, TM_INVALID);
    assert_non_null(strstr(j.err[0].text, "rank 1: the checkpoint in"));
    assert_non_null(strstr(j.err[1].text, "debug.seed 77"));
    test_tree_remove(folder);
}
