/* SPDX-License-Identifier: Apache-2.0 */
/* A step of a run again: it has the bits of the run, wherever it begins; values that are not finite are named by the
 * run and by the replay alike, and looking changes no bit; a device that computes otherwise once is seen. */

#include "support/test.h"
#include "base/hash.h"
#include "device/backend.h"
#include "support/folder.h"
#include "run_fixture.h"
#include "step_cases.h"
#include "train/run/replay_step.h"
#include "train/run/run_state.h"

#define run_world ranks_of_test /* a run has a function of that name */
#include "rank_run.h"
#undef run_world

enum { STEPS = 5, CASES = 5 };

/* What a run told. */
typedef struct {
    tm_sink      sink;
    double       loss[STEPS + 1], norm[STEPS + 1];
    int64_t      steps;
    uint64_t     weights;
    bool         any;
    tm_nonfinite found;
    char         reason[TM_REASON_BYTES];
} heard;

static void hear(tm_sink *sink, const tm_event *event)
{
    heard *h = (heard *)sink;
    if (event->kind == TM_EVENT_STEP_DONE) {
        h->steps = event->step_done.step;
        h->loss[h->steps] = event->step_done.loss;
        h->norm[h->steps] = event->step_done.grad_norm;
    } else if (event->kind == TM_EVENT_RUN_ENDED) {
        h->weights = event->run_ended.weights_hash;
        h->any = event->run_ended.nonfinite != NULL;
        if (h->any) h->found = *event->run_ended.nonfinite;
        snprintf(h->reason, sizeof h->reason, "%s", event->run_ended.reason);
    }
}

/* Dense, experts with a changing bias, low precision with a history, adapters that drop, averages in two formats. */
static tm_run_options options_of(int k, const char *folder)
{
    static char    checkpoints[4096];
    tm_run_options o = small_run("synthetic", STEPS);
    o.learning_rate = 3e-3;
    o.prefetch = k % 2;
    o.checkpoint = true, o.checkpoint_interval = 2, o.checkpoint_folder = checkpoints;
    o.folder = folder;
    o.schedule.steps = 8;
    snprintf(checkpoints, sizeof checkpoints, "%s/checkpoint", folder);
    if (k == 1) o.step = experts_options(), o.step.shape.moe.biased = true, o.step.shape.moe.bias_rate = 0.01;
    if (k == 2) o.step = quantized_options("fp8_delayed");
    if (k == 3) o.step.adapters = dropping_adapters();
    if (k == 4) o.step.precision = &tm_precision_bf16_pure, o.step.accumulation = 2, o.step.hyper.stochastic = true;
    o.step.shape.vocab_size = 64;
    return o;
}

static tm_source *source_of(const tm_run_options *o)
{
    tm_source *source;
    assert_ok(tm_source_open(&o->source, &source, err));
    return source;
}

/* On the very device: what is compared here are two of them. */
static tm_status train(const tm_run_options *o, const char *device_name, heard *h)
{
    volatile sig_atomic_t stop = 0;
    tm_error              err = { 0 };
    tm_source            *source = source_of(o);
    tm_device            *device;
    *h = (heard){ .sink = { .handle = hear } };
    tm_event_bus bus = { .sinks = (tm_sink *[]){ &h->sink }, .count = 1 };
    assert_int_equal(tm_device_open(device_name, 1, &device, &err), TM_OK);
    tm_status st = tm_run(o, device, source, &bus, &stop, &err);
    tm_source_close(source);
    tm_device_close(device);
    return st;
}

static tm_step_replayed replay_on(const tm_run_options *o, tm_device *device, const tm_step_replay *what)
{
    tm_source            *source = what->batch ? NULL : source_of(o);
    volatile sig_atomic_t stop = 0;
    tm_step_replayed      out;
    assert_ok(tm_run_replay(o, device, source, what, &stop, &out, err));
    tm_source_close(source);
    return out;
}

/* `batches`: where the batch is, if the data is gone; NULL: it is there */
static tm_step_replayed replay(const tm_run_options *o, const char *device_name, int64_t step, const char *batches)
{
    const tm_step_replay what = { .step = step, .twice = true, .batch = batches };
    tm_device           *device;
    assert_ok(tm_device_open(device_name, 2, &device, err));
    tm_step_replayed out = replay_on(o, device, &what);
    tm_device_close(device);
    return out;
}

static bool same(double a, double b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* Norms are of the values, and those of the gradients together make the norm of the step. */
static void check_tensors(const tm_step_replayed *r)
{
    double squares = 0;
    for (size_t i = 0; i < r->n_tensors; i++) {
        const tm_step_replayed_tensor *t = &r->tensors[i];
        assert_true(t->weight_largest > 0 && t->weight_norm >= t->weight_largest && t->weight_norm < 1e3);
        assert_true(t->gradient_norm >= t->gradient_largest && t->weight != t->gradient);
        squares += t->gradient_norm * t->gradient_norm;
    }
    if (!(fabs(sqrt(squares) / r->grad_norm - 1) < 1e-5)) fail_msg("%g, norm %g", sqrt(squares), r->grad_norm);
}

TEST(each_step_has_the_bits_of_the_run)
{
    for (int k = 0; k < CASES; k++) {
        char          *folder = test_tree_make();
        tm_run_options o = options_of(k, folder);
        heard          h;
        assert_int_equal(train(&o, "cpu", &h), TM_OK);
        for (int64_t step = 1; step <= STEPS; step++) {
            tm_step_replayed again = replay(&o, step == 4 ? "late" : "cpu", step, NULL);
            assert_int_equal(again.from, (step - 1) / 2 * 2);
            if (!same(again.loss, h.loss[step]) || !same(again.grad_norm, h.norm[step]))
                fail_msg("case %d, step %d: loss %.17g, norm %.17g, the run had %.17g, %.17g", k, (int)step, again.loss,
                         again.grad_norm, h.loss[step], h.norm[step]);
            assert_true(again.same && !again.any && again.n_tensors > 3);
            check_tensors(&again);
            if (step == STEPS) assert_true(again.weights == h.weights);
            assert_true(again.weights != again.weights_before);
            tm_step_replayed_fini(&again);
        }
        test_tree_remove(folder);
    }
}

/* Updates of 1e30 each: the step behind the first one overflows, and is looked at again. A device that is not waited
 * for does not look, and its run must end in the same bits. (The place that is named: tests/cli/test_replay.sh.) */
TEST(a_run_that_is_looked_at_keeps_its_bits)
{
    for (int k = 0; k < CASES; k++) {
        heard h[2];
        for (int late = 0; late < 2; late++) {
            char          *folder = test_tree_make(), batches[4096];
            tm_run_options o = options_of(k, folder);
            o.learning_rate = 1e30;
            o.checkpoint_interval = 1;
            assert_int_equal(train(&o, late ? "late" : "cpu", &h[late]), TM_NUMBERS);
            assert_true(h[late].any && h[late].found.located == !late && h[late].found.step == h[0].steps);
            snprintf(batches, sizeof batches, "%s/" TM_RUN_BATCH_FOLDER, folder);
            tm_step_replayed again = replay(&o, late ? "cpu" : "late", h[0].steps, batches); /* the data is gone */
            assert_true(again.any && again.weights == h[0].weights);
            assert_string_equal(again.found.tensor, h[0].found.tensor);
            assert_true(again.found.instruction == h[0].found.instruction && again.found.row == h[0].found.row);
            tm_step_replayed_fini(&again);
            test_tree_remove(folder);
        }
        assert_true(h[0].found.repeated && strstr(h[0].reason, "not finite") && strstr(h[0].reason, h[0].found.tensor));
        if (h[0].weights != h[1].weights) fail_msg("case %d: the run that was looked at has other weights", k);
    }
}

/* --- a batch of several ranks ------------------------------------------------------------------------------------- */

/* Each rank has its rows again, and the targets of all. */
static void save_and_load(tm_comm *comm, void *context)
{
    const char    *folder = context;
    const int      rank = tm_comm_rank(comm);
    tm_run_options o = options_of(0, folder);
    tm_ranks       own;
    int64_t        targets = 0;
    o.step.layout.mesh = tm_mesh_one();
    o.step.layout.mesh.degree[TM_AXIS_REPLICATE] = tm_comm_size(comm);
    CHECK_OK(tm_ranks_open(&o.step.layout.mesh, comm, &own, err));
    o.ranks = &own;
    const size_t n = (size_t)(o.step.micro_batch * o.step.accumulation * o.step.seq);
    int32_t     *fed[4];
    for (int f = 0; f < 4; f++) fed[f] = calloc(n, sizeof(int32_t));
    for (size_t i = 0; i < 2 * n; i++) fed[i / n][i % n] = (int32_t)i + 10000 * (rank + 1);
    run r = { .options = &o };
    CHECK_OK(run_save_batch(&r, folder, 7, (const void *const *)fed, 123, err));
    CHECK_OK(run_load_batch(&r, folder, 7, (void *const *)(fed + 2), &targets, err));
    CHECK(targets == 123);
    for (int f = 0; f < 2; f++) CHECK(memcmp(fed[f], fed[f + 2], n * sizeof(int32_t)) == 0);
    for (int f = 0; f < 4; f++) free(fed[f]);
    tm_ranks_close(&own);
}

TEST(each_rank_has_its_rows_of_a_saved_batch)
{
    for (int ranks = 2; ranks <= 3; ranks++) {
        char *folder = test_tree_make();
        ranks_of_test(ranks, NULL, 60, false, save_and_load, folder);
        test_tree_remove(folder);
    }
}

/* --- a device that computes otherwise once ------------------------------------------------------------------------ */

static _Thread_local int64_t launches, flip_at; /* 0: never */

static tm_status flipping_launch(tm_queue *queue, const tm_kernel *kernel, const tm_call *call, tm_error *err)
{
    TM_TRY(tm_backend_cpu.launch(queue, kernel, call, err));
    if (++launches == flip_at) ((unsigned char *)call->out[0].data)[2] ^= 1;
    return TM_OK;
}

/* One bit of one output of the second computation: seen, whichever instruction it is. */
TEST(one_bit_of_the_second_time_is_seen)
{
    enum { ONE_IN = 7 };
    const tm_step_replay what = { .step = 1, .twice = true };
    char                *folder = test_tree_make();
    tm_run_options       o = options_of(0, folder);
    tm_backend           backend = tm_backend_cpu;
    tm_device           *device;
    int                  seen = 0, tried = 0;
    int64_t              once = 0;
    o.step.shape.n_layers = 1;
    backend.launch = flipping_launch;
    assert_ok(tm_device_open_backend(&backend, 1, false, &device, err));
    for (int64_t at = 0; at <= 2 * once; at += at ? ONE_IN : once + 1, tried++) {
        launches = 0, flip_at = at; /* at first none */
        tm_step_replayed out = replay_on(&o, device, &what);
        if (at == 0) assert_true(out.same);
        if (at == 0) once = launches / 2;
        assert_true(out.same != (out.differs[0] != 0));
        seen += !out.same;
        tm_step_replayed_fini(&out);
    }
    if (tried < 6 || seen < tried - 2)
        fail_msg("%d of %d flipped bits are seen", seen, tried - 1); /* zeros stay zeros */
    tm_device_close(device);
    test_tree_remove(folder);
}

typedef struct {
    const char *folder;
    char        differs[2][TM_NONFINITE_NAME];
} told;

/* The last launch of a step is an update of what this stage alone has. */
static void flip_last_of_rank_1(tm_comm *comm, void *context)
{
    const tm_step_replay what = { .step = 1, .twice = true };
    told                *to = context;
    tm_run_options       o = options_of(0, to->folder);
    tm_backend           backend = tm_backend_cpu;
    tm_device           *device;
    tm_ranks             own;
    const int            rank = tm_comm_rank(comm);
    o.step.layout.mesh = tm_mesh_one();
    o.step.layout.mesh.degree[TM_AXIS_PP] = 2;
    rank_join(comm, &o, &own);
    backend.launch = flipping_launch;
    CHECK_OK(tm_device_open_backend(&backend, 1, false, &device, err));
    tm_device_join(device, &own.groups);
    launches = flip_at = 0;
    for (int flips = 0; flips < 2; flips++) {
        tm_step_replayed out = replay_on(&o, device, &what);
        CHECK(out.same == !flips);
        flip_at = rank == 1 ? 2 * launches : 0;
        snprintf(to->differs[rank], TM_NONFINITE_NAME, "%s", out.differs);
        tm_step_replayed_fini(&out);
    }
    tm_device_close(device);
    tm_ranks_close(&own);
}

TEST(all_ranks_hear_that_one_differs)
{
    told to = { .folder = test_tree_make() };
    ranks_of_test(2, NULL, 60, false, flip_last_of_rank_1, &to);
    assert_string_equal(to.differs[0], "tensors of another rank");
    assert_true(strstr(to.differs[1], "weight"));
    test_tree_remove((char *)(uintptr_t)to.folder);
}
