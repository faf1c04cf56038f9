/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of a step computed twice: a bit that a kernel gets wrong once, and a wrong product, are found and
 * named, and a run with one is invalid. (Training keeps its bits: also tests/differential.) */
#include "support/test.h"
#include "device/backend.h"
#include "device/host/host.h"
#include "train/trainer/replay.h"

#include "rank_run.h"
#include "run_fixture.h"

/* --- runs on a device that gets a bit wrong ----------------------------------------------------------------------- */

enum { STEPS = 8, MOST_RANKS = 2 };

/* Launches of `op` are counted from 1; bit `bit` is wrong in byte 3 of the result of launch `at`, and in byte 7 of that
 * of launch `also`. 0: none. */
typedef struct {
    int      ranks;
    bool     stages; /* ranks are stages; else copies of the whole */
    int64_t  every;
    int      faulty; /* rank */
    tm_op_id op;
    int      at, also, bit;
} fault;

typedef struct {
    tm_sink        sink;
    fault          is;
    tm_status      status[MOST_RANKS];
    tm_replay_told told;
    tm_verdict     verdict;
    char           reason[TM_REASON_BYTES], first[TM_REASON_BYTES];
    int64_t        steps[STEPS];
    int            n, unequal, launches;
    uint64_t       hash;
} run_job;

static _Thread_local const fault *planted; /* a rank is a thread */
static _Thread_local int          launches;

static tm_status launch(tm_queue *queue, const tm_kernel *kernel, const tm_call *call, tm_error *err)
{
    TM_TRY(tm_host_launch(queue, kernel, call, err));
    if (tm_op_id_of(call->op) != planted->op) return TM_OK;
    launches++;
    if (launches == planted->at || launches == planted->also)
        ((unsigned char *)call->out[0].data)[launches == planted->at ? 3 : 7] ^= (unsigned char)(1 << planted->bit);
    return TM_OK;
}

static void listen(tm_sink *sink, const tm_event *event)
{
    run_job *j = (run_job *)sink;
    if (event->kind == TM_EVENT_REPLAYED) {
        j->steps[j->n++] = event->replayed.step;
        if (event->replayed.reason && j->unequal++ == 0)
            snprintf(j->first, sizeof j->first, "%s", event->replayed.reason);
    }
    if (event->kind != TM_EVENT_RUN_ENDED) return;
    j->told = event->run_ended.replay;
    j->verdict = event->run_ended.verdict;
    j->hash = event->run_ended.weights_hash;
    snprintf(j->reason, sizeof j->reason, "%s", event->run_ended.reason);
}

/* Two micro-batches a step. */
static void run_rank(tm_comm *comm, void *context)
{
    static _Thread_local tm_backend backend;
    run_job                        *j = context;
    const int                       rank = comm ? tm_comm_rank(comm) : 0;
    fault                           own = j->is;
    tm_run_options                  o = small_run("synthetic", STEPS);
    tm_device                      *device;
    tm_error                        err = { 0 };
    o.learning_rate = 3e-3;
    o.schedule.warmup_steps = 0;
    o.replay = j->is.every;
    o.step.seq = o.source.seq = 16;
    o.step.n_fields = 0;
    o.step.accumulation = 2;
    o.step.layout.mesh = tm_mesh_one();
    o.step.layout.mesh.degree[j->is.stages ? TM_AXIS_PP : TM_AXIS_REPLICATE] = j->is.ranks;
    backend = tm_backend_cpu;
    backend.name = "faulty";
    backend.launch = launch;
    if (rank != j->is.faulty) own.at = own.also = 0;
    planted = &own, launches = 0;
    CHECK(tm_device_open_backend(&backend, 1, false, &device, &err) == TM_OK);
    j->status[rank] = rank_run(comm, &o, device, &j->sink, NULL, NULL, &err);
    CHECK(launches >= own.at && launches >= own.also);
    if (rank == 0) j->launches = launches;
}

static run_job run_as(fault is)
{
    run_job j = { .sink = { .handle = listen }, .is = is };
    if (is.ranks == 1)
        run_rank(NULL, &j);
    else
        run_world(is.ranks, NULL, 120, false, run_rank, &j);
    return j;
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

/* It comes to the bits of a run that repeats none. */
TEST(a_run_repeats_every_so_many_th_step)
{
    for (int way = 0; way < 3; way++) {
        const int64_t every = way == 2 ? 1 : 3;
        fault         is = { .ranks = way ? 2 : 1, .stages = way == 2, .op = TM_OP_linear };
        run_job       never = run_as(is);
        is.every = every;
        run_job j = run_as(is);
        assert_true(never.n == 0 && never.told.every == 0 && never.told.steps == 0);
        assert_true(j.n == STEPS / every && j.steps[0] == every && j.steps[1] == 2 * every && j.unequal == 0);
        assert_true(j.told.every == every && j.told.steps == j.n && j.told.bytes > 0 && j.told.seconds > 0);
        assert_true(j.told.n_mismatches == 0 && j.told.device_seconds > 0);
        assert_true(j.told.products > 0 && j.told.wrong_products == 0);
        for (int r = 0; r < is.ranks; r++) assert_int_equal(j.status[r], TM_OK);
        assert_true(j.hash == never.hash);
        double excluded = j.told.excluded_per_hour * j.told.device_seconds / 3600;
        assert_true(excluded > 2.99 && excluded < 3); /* -ln 0.05 */
    }
}

/* Of a stage the wrong gradient of what it received differs only on the stage before, and is named where it was
 * computed. */
TEST(a_wrong_bit_makes_a_run_invalid_and_its_rank_is_named)
{
    static const struct {
        fault       is;
        int         step;
        const char *wrong, *words; /* which computation; NULL: not looked at */
    } rows[] = {
        { { 1, false, 2, 0, TM_OP_embedding_grad, 3, 0, 0 }, 2, "first", "tok_embeddings.weight.grad, written by" },
        { { 1, false, 2, 0, TM_OP_embedding_grad, 4, 0, 7 }, 2, "first", "elements 0 to 1023, at least 1 bit;" },
        { { 1, false, 2, 0, TM_OP_embedding_grad, 5, 0, 3 }, 2, "second", "in all 1 tensor, 1 part of 4096 bytes" },
        { { 1, false, 1, 0, TM_OP_embedding_grad, 2, 4, 4 }, 1, NULL, "at least 2 bits" },
        { { 2, false, 1, 0, TM_OP_linear, 2, 0, 6 }, 1, "first", "by rank 0 (faulty" },
        { { 2, false, 1, 1, TM_OP_linear, 2, 0, 6 }, 1, "first", "by rank 1 (faulty" },
        { { 2, true, 1, 0, TM_OP_linear_dgrad, 2, 0, 6 }, 1, "first", "by rank 0 (faulty" },
        { { 2, true, 1, 0, TM_OP_linear_dgrad, 4, 0, 6 }, 1, "first", "by rank 0 (faulty" },
        { { 2, true, 1, 1, TM_OP_linear_dgrad, 2, 0, 6 }, 1, "first", "by rank 1 (faulty" },
        { { 2, true, 1, 1, TM_OP_linear_dgrad, 3, 0, 6 }, 1, "first", "by rank 1 (faulty" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const fault              *is = &rows[i].is;
        run_job                   j = run_as(*is);
        const tm_replay_mismatch *m = &j.told.mismatches[0];
        char                      words[120];
        for (int r = 0; r < is->ranks; r++) assert_int_equal(j.status[r], TM_NUMBERS);
        assert_true(j.verdict == TM_VERDICT_INVALID && j.n == STEPS / is->every && j.told.n_mismatches >= 1);
        assert_true(j.told.excluded_per_hour != j.told.excluded_per_hour); /* nothing is excluded */
        assert_string_equal(j.reason, j.first);
        if (m->step != rows[i].step || m->rank != is->faulty || !m->sure || m->bits < 1 ||
            (!is->stages && m->ranks != is->ranks))
            fail_msg("row %zu: %s", i, j.reason);
        snprintf(words, sizeof words, "step %d: its gradients were computed twice on the same inputs and differ",
                 rows[i].step);
        if (!strstr(j.reason, words) || !strstr(j.reason, rows[i].words)) fail_msg("row %zu: %s", i, j.reason);
        if (rows[i].wrong) assert_string_equal(m->wrong, rows[i].wrong);
        if (is->ranks == 1) assert_true(j.unequal == 1 && strcmp(m->op, "embedding_grad") == 0);
    }
}

/* Of the products of a step one in eight is checked in the second computation. */
TEST(wrong_products_are_counted)
{
    static const tm_op_id ops[] = { TM_OP_linear, TM_OP_linear_wgrad };
    for (int k = 0; k < 2; k++) {
        fault     is = { .ranks = 1, .every = 1, .op = ops[k], .bit = 6 /* of the exponent */ };
        const int each = run_as(is).launches / (2 * STEPS);
        int       named = 0;
        for (is.at = each + 1; is.at <= 2 * each; is.at++) {
            run_job j = run_as(is);
            assert_in_range(j.told.wrong_products, 0, 1);
            named += j.told.wrong_products > 0;
            if (j.told.wrong_products > 0) assert_int_equal(j.status[0], TM_NUMBERS);
        }
        if (named < 1 || named > each / 2) fail_msg("%s: %d of %d", tm_op_get(ops[k])->name, named, each);
    }
}
