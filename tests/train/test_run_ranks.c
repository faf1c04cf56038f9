/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs on several ranks: the same losses as one alone, stopped by any of them and resumed on any number of them;
 * ranks that are not of one run, or slow, are named. */
#include "step_cases.h"
#include "support/test.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/training.h"

#include "../comm/world.h"
#include "base/log.h"
#include "train/run/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { STEPS = 6, BATCH = 4, MAX_RANKS = 4, MANY = 19, DEADLINE = 120, NEVER = -1 };

/* What rank 0 tells of a run, and what is asked of each rank. */
typedef struct {
    tm_sink        sink;
    tm_run_options options;
    int            shard;   /* ranks that share weights; the others hold copies */
    int            context; /* ranks that share each sequence; 0: 1 */
    int            stages;  /* parts of a pipeline; 0: 1 */
    tm_sharing     sharing;
    int64_t        stop_after[MANY]; /* 0: before it begins */
    void (*spoil)(tm_run_options *o, int rank);
    bool only_evaluates;
    /* found */
    double            losses[STEPS + 1], norms[STEPS + 1], validation[STEPS + 1], gap;
    int64_t           tokens[STEPS + 1], first_step, last_step, saved, saved_bytes, evaluated, devices, batch_tokens;
    bool              communicated;
    tm_rank_told      told[MANY];
    size_t            n_told;
    tm_status         status[MANY];
    tm_error          err[MANY];
    tm_run_evaluation evaluation[MANY];
    tm_text           factors; /* what is told of products in low precision */
    tm_nonfinite      found;   /* what is told of the first value that is not finite */
} job;

static void listen(tm_sink *sink, const tm_event *event)
{
    job *j = (job *)sink;
    if (event->kind == TM_EVENT_RUN_STARTED) {
        j->first_step = event->run_started.first_step;
        j->devices = event->run_started.devices;
        j->batch_tokens = event->run_started.batch_tokens;
    } else if (event->kind == TM_EVENT_STEP_DONE) {
        const tm_step_done *s = &event->step_done;
        j->last_step = s->step;
        j->losses[s->step] = s->loss;
        j->norms[s->step] = s->grad_norm;
        j->tokens[s->step] = s->tokens;
        double sum = 0;
        for (size_t i = 0; i < s->n_phases; i++) {
            sum += s->phases[i].value;
            j->communicated = j->communicated || strstr(s->phases[i].name, "communication");
            CHECK(s->phases[i].value >= -1e-6);
        }
        j->gap = fmax(j->gap, fabs(sum - s->seconds));
    } else if (event->kind == TM_EVENT_EVALUATION) {
        j->validation[event->evaluation.step] = event->evaluation.loss;
        j->evaluated = event->evaluation.tokens;
    } else if (event->kind == TM_EVENT_QUANTIZED) {
        for (size_t i = 0; i < event->quantized.n_factors; i++) {
            const tm_quantized_factor *f = &event->quantized.factors[i];
            tm_text_printf(&j->factors, "%lld %s %s %.9g %.9g %.9g %.9g\n", (long long)event->quantized.step, f->linear,
                           f->factor, f->amax, f->scale, f->saturated, f->flushed);
        }
    } else if (event->kind == TM_EVENT_CHECKPOINT) {
        j->saved = event->checkpoint.step;
        j->saved_bytes = event->checkpoint.bytes;
    } else if (event->kind == TM_EVENT_RUN_ENDED) {
        j->n_told = event->run_ended.n_ranks;
        if (j->n_told) memcpy(j->told, event->run_ended.ranks, j->n_told * sizeof *j->told);
        if (event->run_ended.nonfinite) j->found = *event->run_ended.nonfinite;
    }
}

/* Stops its rank after a step: every rank has a sink of its own for that. */
typedef struct {
    tm_sink               sink;
    volatile sig_atomic_t stop;
    int64_t               after;
} stopper;

static void count(tm_sink *sink, const tm_event *event)
{
    stopper *s = (stopper *)sink;
    if (event->kind == TM_EVENT_STEP_DONE && event->step_done.step == s->after) s->stop = 1;
}

static job new_job(const char *folder)
{
    job             j = { .sink = { .handle = listen }, .shard = 1, .sharing = TM_SHARE_ALL };
    tm_run_options *o = &j.options;
    *o = (tm_run_options){ .model_name = "small",
                           .steps = STEPS,
                           .learning_rate = 3e-3,
                           .max_norm = 1,
                           .seed = 77,
                           .prefetch = 1,
                           .validate = true,
                           .validation_freq = 3,
                           .validation_steps = 5,
                           .checkpoint = folder != NULL,
                           .checkpoint_interval = 1000,
                           .checkpoint_load_step = -1,
                           .checkpoint_keep = 2,
                           .config_hash = 1,
                           .checkpoint_folder = folder };
    o->step = test_llama_options();
    o->step.shape.vocab_size = 64;
    o->step.shape.dim = 32, o->step.shape.ffn_dim = 64, o->step.shape.head_dim = 16;
    o->step.seq = 16;
    o->step.micro_batch = 1;
    o->step.recompute.cheap = true;
    o->schedule = (tm_schedule){ .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY,
                                 .steps = STEPS,
                                 .warmup_steps = 2,
                                 .decay_ratio = -1,
                                 .decay = TM_DECAY_COSINE };
    o->source = (tm_source_options){ .name = "synthetic", .vocab = 64, .seq = o->step.seq, .seed = o->seed };
    for (int r = 0; r < MANY; r++) j.stop_after[r] = NEVER;
    return j;
}

static void run_rank(tm_comm *comm, void *context)
{
    job           *j = context;
    int            rank = comm ? tm_comm_rank(comm) : 0, ranks = comm ? tm_comm_size(comm) : 1;
    tm_run_options o = j->options;
    tm_ranks       own;
    tm_device     *device;
    tm_source     *source;
    stopper stops = { .sink = { .handle = count }, .stop = j->stop_after[rank] == 0, .after = j->stop_after[rank] };
    int     parts = j->context ? j->context : 1, stages = j->stages ? j->stages : 1;
    o.step.accumulation = ranks > MAX_RANKS ? 1 : BATCH * parts * stages / ranks;
    if (comm) {
        o.step.layout.mesh = tm_mesh_one();
        o.step.layout.mesh.degree[TM_AXIS_CP] = parts;
        o.step.layout.mesh.degree[TM_AXIS_REPLICATE] = ranks / j->shard / parts / stages;
        o.step.layout.mesh.degree[TM_AXIS_PP] = stages;
        o.step.layout.mesh.degree[TM_AXIS_SHARD] = j->shard;
        o.step.layout.rank = rank;
        o.step.layout.sharing = j->sharing;
        CHECK_OK(tm_mesh_fill(&o.step.layout.mesh, ranks, err));
        CHECK_OK(tm_ranks_open(&o.step.layout.mesh, comm, &own, err));
        o.ranks = &own;
    }
    if (j->spoil) j->spoil(&o, rank);
    CHECK_OK(tm_device_open("cpu", 1, &device, err));
    if (comm) tm_device_join(device, &own.groups);
    CHECK_OK(tm_source_open(&o.source, &source, err));
    tm_event_bus bus = { .sinks = (tm_sink *[]){ &stops.sink, &j->sink }, .count = rank == 0 ? 2 : 1 };
    j->err[rank] = (tm_error){ 0 };
    if (j->only_evaluates)
        j->status[rank] = tm_run_evaluate(&o, device, source, &stops.stop, &j->evaluation[rank], &j->err[rank]);
    else
        j->status[rank] = tm_run(&o, device, source, &bus, &stops.stop, &j->err[rank]);
    tm_source_close(source);
    tm_device_close(device);
    if (comm) tm_ranks_close(&own);
}

static int smaller(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Each rank beside the median of the others of its stage. */
static void check_told(const job *j, int ranks)
{
    int64_t targets = 0;
    int     of_a_stage = ranks / (j->stages ? j->stages : 1);
    assert_int_equal(j->n_told, ranks);
    for (int r = 0; r < ranks; r++) {
        const tm_rank_told *t = &j->told[r];
        double              others[MANY];
        int                 n = 0;
        for (int k = 0; k < ranks; k++)
            if (k != r && k / of_a_stage == r / of_a_stage) others[n++] = j->told[k].busy_seconds;
        qsort(others, (size_t)n, sizeof *others, smaller);
        double middle = n == 0 ? (double)NAN : (others[n / 2] + others[(n - 1) / 2]) / 2;
        if (r < of_a_stage) targets += t->target_tokens;
        assert_true(t->rank == r && t->data_rank == r % of_a_stage / (j->context ? j->context : 1) &&
                    t->used_bytes > 0);
        if (isnan(j->told[0].busy_seconds)) { /* no step counted */
            assert_true(isnan(t->busy_seconds) && isnan(t->step_seconds) && isnan(t->behind));
            continue;
        }
        assert_true(n == 0 ? isnan(t->behind) : fabs(t->behind - (t->busy_seconds / middle - 1)) < 1e-9);
        assert_true(t->busy_seconds > 0 && t->busy_seconds <= t->step_seconds);
        assert_true(t->wait_seconds >= 0 && t->wait_seconds <= t->step_seconds);
        assert_true(ranks > 1 || t->wait_seconds < t->busy_seconds);
    }
    int64_t steps = j->last_step == 0 ? 0 : j->last_step - j->first_step + 1;
    assert_int_equal(targets, steps * j->batch_tokens * ranks * (j->context ? j->context : 1));
}

/* ranks 0: alone, without a world. */
static void run_on(job *j, int ranks, tm_status wanted)
{
    if (ranks == 0)
        run_rank(NULL, j);
    else
        run_world(ranks, NULL, DEADLINE, false, run_rank, j);
    for (int r = 0; r < (ranks ? ranks : 1); r++)
        if (j->status[r] != wanted)
            fail_msg("rank %d of %d: status %d: %s", r, ranks, (int)j->status[r], j->err[r].text);
    if (ranks > 0 && wanted == TM_OK && !j->only_evaluates) check_told(j, ranks);
}

static void close_to(double a, double b, const char *what, int64_t step)
{
    if (!(fabs(a - b) <= 1e-5 * fabs(b))) fail_msg("%s of step %d: %.9g, wanted %.9g", what, (int)step, a, b);
}

static void same_steps(const job *got, const job *wanted, int64_t from)
{
    for (int64_t t = from; t <= STEPS; t++) {
        close_to(got->losses[t], wanted->losses[t], "loss", t);
        close_to(got->norms[t], wanted->norms[t], "norm", t);
        close_to(got->validation[t] + 1, wanted->validation[t] + 1, "held-out loss", t);
    }
    assert_true(got->last_step == STEPS && got->first_step == from);
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

/* The held-out loss of the same weights does not depend on who reads which batch: five batches, of 1, 2 and 4 ranks. */
TEST(evaluations_have_the_bits_of_one_rank)
{
    job alone = new_job(NULL);
    alone.only_evaluates = true;
    run_on(&alone, 0, TM_OK);
    for (int ranks = 1; ranks <= MAX_RANKS; ranks *= 2) {
        job j = new_job(NULL);
        j.only_evaluates = true;
        run_on(&j, ranks, TM_OK);
        for (int r = 0; r < ranks; r++) {
            assert_memory_equal(&j.evaluation[r].loss, &alone.evaluation[0].loss, sizeof(double));
            assert_memory_equal(&j.evaluation[r].error, &alone.evaluation[0].error, sizeof(double));
            assert_int_equal(j.evaluation[r].targets, alone.evaluation[0].targets);
        }
    }
}

/* Whoever hears the signal: all stop, before a batch that only some of them would evaluate. */
TEST(evaluations_are_stopped_by_one)
{
    for (int ranks = 0; ranks <= MAX_RANKS; ranks += 2)
        for (int told = 0; told < (ranks ? ranks : 1); told++) {
            job j = new_job(NULL);
            j.only_evaluates = true;
            j.stop_after[told] = 0;
            run_on(&j, ranks, TM_INTERRUPTED);
            for (int r = 0; r < (ranks ? ranks : 1); r++) assert_string_equal(j.err[r].text, "stopped by a signal");
        }
}

/* In each layout: a signal that only the last rank hears stops all, and the run goes on in the next layout. What is
 * counted is that of one run, whatever a rank has of it. */
TEST(stopped_by_one_and_resumed_on_others)
{
    static const struct {
        int ranks, shard, context;
    } rows[] = { { 2, 1, 1 }, { 1, 1, 1 }, { 4, 2, 1 }, { 4, 2, 2 }, { 0, 1, 1 }, { 2, 2, 1 }, { 4, 1, 4 } };
    enum { ROWS = sizeof rows / sizeof rows[0] };
    job alone = new_job(NULL);
    run_on(&alone, 0, TM_OK);
    assert_true(alone.n_told == 0 && alone.devices == 1 && !alone.communicated);
    for (int i = 0; i < ROWS; i++) {
        char *folder = test_tree_make();
        job   part[2] = { new_job(folder), new_job(folder) };
        for (int k = 0; k < 2; k++) {
            job *j = &part[k];
            int  at = (i + k) % ROWS, ranks = rows[at].ranks, all = ranks ? ranks : 1;
            j->shard = rows[at].shard, j->context = rows[at].context;
            j->options.checkpoint_behind = (i + k) % 2;
            if (k == 0) j->stop_after[all - 1] = 3;
            run_on(j, ranks, k == 0 ? TM_INTERRUPTED : TM_OK);
            assert_int_equal(j->saved, k == 0 ? 3 : STEPS);
            assert_int_equal(j->devices, all);
            assert_int_equal(j->batch_tokens, BATCH * 16 / all);
            assert_int_equal(j->tokens[j->last_step], BATCH * 16 / all);
            assert_true(j->communicated == (ranks > 0) && j->gap < 1e-6);
        }
        same_steps(&part[1], &alone, 4);
        assert_int_equal(part[1].evaluated, alone.evaluated);
        assert_int_equal(part[1].saved_bytes, part[0].saved_bytes);
        job third = new_job(folder); /* all is done: nothing to train, the same held-out loss */
        run_on(&third, 2, TM_OK);
        assert_int_equal(third.last_step, 0);
        close_to(third.validation[STEPS], alone.validation[STEPS], "held-out loss", STEPS);
        test_tree_remove(folder);
    }
}

static void other_configuration(tm_run_options *o, int rank)
{
    if (rank == 2) o->config_hash = 5;
}

/* Of a pipeline, from a file of the same name. */
static void other_order(tm_run_options *o, int rank)
{
    static const tm_pipeline_list lists[] = { { .hash = 3 }, { .hash = 4 } };
    o->step.layout.list = &lists[rank == 1];
}

static void other_data(tm_run_options *o, int rank)
{
    if (rank == 0) o->source.name = "mock";
    other_configuration(o, rank);
}

static void two_configurations(tm_run_options *o, int rank)
{
    o->config_hash = (uint64_t)rank / 2; /* as many of each: the first ones are right */
}

static void many_configurations(tm_run_options *o, int rank)
{
    o->config_hash = rank < 2 ? 1 : (uint64_t)rank;
}

static void takes_turns(tm_run_options *o, int rank)
{
    (void)rank;
    o->turn_fd = 1;
}

TEST(ranks_of_another_run_are_named)
{
    static const struct {
        void (*spoil)(tm_run_options *o, int rank);
        const char *what;
    } rows[] = { { other_configuration, "the configuration of rank 2 differs" },
                 { other_order, "the configuration of rank 1 differs" },
                 { other_data, "the configuration of rank 2; the data of rank 0 differs" },
                 { two_configurations, "the configuration of ranks 2, 3 differs" } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char words[300];
        job  j = new_job(NULL);
        j.spoil = rows[i].spoil;
        run_on(&j, 4, TM_INVALID);
        snprintf(words, sizeof words,
                 "not all ranks are of one run: %s from that of the others; start all 4 with the same program, "
                 "configuration and data",
                 rows[i].what);
        for (int r = 0; r < 4; r++) {
            const char *at = strstr(j.err[r].text, "not all");
            assert_string_equal(at ? at : j.err[r].text, words);
        }
    }
    for (int ranks = MANY - 1; ranks <= MANY; ranks++) { /* sixteen are named, and how many others there are */
        job j = new_job(NULL);
        j.spoil = many_configurations;
        run_on(&j, ranks, TM_INVALID);
        const char *at = strstr(j.err[0].text, "the configuration of ranks"),
                   *behind = strstr(j.err[0].text, " differs");
        assert_true(at && behind);
        char named[200];
        snprintf(named, sizeof named, "%.*s", (int)(behind - at), at);
        assert_string_equal(named, ranks == MANY
                                       ? "the configuration of ranks 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, "
                                         "16, 17 and 1 more"
                                       : "the configuration of ranks 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, "
                                         "16, 17");
    }
    job j = new_job(NULL);
    j.spoil = takes_turns;
    run_on(&j, 2, TM_UNSUPPORTED);
    for (int r = 0; r < 2; r++) assert_non_null(strstr(j.err[r].text, "a run of several ranks takes no turns; unset "));
}

static void failing_folder(tm_run_options *o, int rank)
{
    if (rank == 1) o->seed = 78; /* the checkpoint is of another */
}

/* One rank that cannot go on ends all of them, with its story. */
TEST(a_failure_of_one_rank_is_that_of_all)
{
    char *folder = test_tree_make();
    job   j = new_job(folder);
    j.stop_after[0] = 2;
    run_on(&j, 2, TM_INTERRUPTED);
    j = new_job(folder);
    j.spoil = failing_folder;
    run_on(&j, 2, TM_INVALID);
    assert_non_null(strstr(j.err[0].text, "rank 1: the checkpoint in"));
    assert_non_null(strstr(j.err[1].text, "debug.seed 77"));
    test_tree_remove(folder);
}
