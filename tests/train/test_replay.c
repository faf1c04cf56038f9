/* SPDX-License-Identifier: Apache-2.0 */
/* The gradients of a step computed twice: a bit that a kernel gets wrong once is found and named, and a run with one is
 * invalid. (Training keeps its bits: tests/differential.) */
#include "support/test.h"
#include "device/backend.h"
#include "device/host/host.h"
#include "step_cases.h"
#include "train/trainer/replay.h"

#include <stdio.h>
#include <string.h>

#include "rank_run.h"
#include "run_fixture.h"

/* --- a device that gets a bit wrong ------------------------------------------------------------------------------- */

/* Launches of this op are counted from 1; the results of these are wrong in bit `bit` of byte 3 of the output. */
static _Thread_local tm_op_id wrong_op; /* a rank is a thread */
static _Thread_local int      launches, wrong_launch, other_wrong_launch, wrong_bit;

static tm_status launch(tm_queue *queue, const tm_kernel *kernel, const tm_call *call, tm_error *err)
{
    TM_TRY(tm_host_launch(queue, kernel, call, err));
    if (tm_op_id_of(call->op) != wrong_op) return TM_OK;
    launches++;
    if (launches == wrong_launch || launches == other_wrong_launch)
        ((unsigned char *)call->out[0].data)[launches == wrong_launch ? 3 : 7] ^= (unsigned char)(1 << wrong_bit);
    return TM_OK;
}

static tm_device *open_faulty(tm_op_id op)
{
    static _Thread_local tm_backend backend;
    tm_device                      *device;
    tm_error                        err = { 0 };
    backend = tm_backend_cpu;
    backend.name = "faulty";
    backend.launch = launch;
    wrong_op = op;
    launches = wrong_launch = other_wrong_launch = 0;
    if (tm_device_open_backend(&backend, 1, false, &device, &err) != TM_OK) fail_msg("%s", err.text);
    return device;
}

/* --- steps -------------------------------------------------------------------------------------------------------- */

enum { STEPS = 3 };

static test_batch batch_of(const tm_step_options *o, int64_t t)
{
    return test_batch_random(o->micro_batch * o->accumulation, o->seq, o->shape.vocab_size, (uint64_t)t);
}

static tm_replay_products checked; /* all; or those of the last step with a wrong one */

/* Gradients of step t, with and without repeating them. */
static void gradients(tm_trainer *trainer, tm_replay *replay, int64_t t, tm_replay_difference *found)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    test_batch             batch = batch_of(o, t);
    tm_micro_batch         fed = { .field = { batch.tokens, batch.targets }, .target_tokens = batch.target_tokens };
    tm_replay_compared     compared;
    tm_error               err = { 0 };
    test_begin(trainer, t, 1e-3, 1, batch.target_tokens);
    if (replay && tm_replay_begin(replay, t, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_trainer_gradients(trainer, &fed, NULL, &err) != TM_OK) fail_msg("%s", err.text);
    if (replay && tm_replay_compare(replay, &fed, &compared, found, &err) != TM_OK) fail_msg("%s", err.text);
    checked.products += replay ? compared.products.products : 0;
    if (replay && compared.products.wrong > 0) checked = compared.products;
    if (replay) assert_true(compared.of_bytes > 0 && compared.bytes <= 2 * compared.of_bytes);
    if (replay && found->differs && tm_replay_decide(replay, &fed, found, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_device_wait(tm_trainer_device(trainer), &err) != TM_OK) fail_msg("%s", err.text);
    test_batch_fini(&batch);
}

/* --- wrong bits --------------------------------------------------------------------------------------------------- */

static int launches_of_a_step(tm_trainer *trainer)
{
    tm_replay_difference found;
    launches = wrong_launch = other_wrong_launch = 0;
    gradients(trainer, NULL, 1, &found);
    return launches;
}

TEST(a_wrong_bit_is_named)
{
    static const tm_replay_wrong wanted[] = { TM_REPLAY_FIRST_WRONG, TM_REPLAY_SECOND_WRONG };
    tm_step_options              o = test_llama_options();
    tm_device                   *device = open_faulty(TM_OP_embedding_grad);
    tm_trainer                  *trainer = test_trainer_open(device, &o, 5);
    tm_replay                   *replay = tm_replay_create(trainer, 3, 0);
    tm_replay_difference         found;
    int                          each = launches_of_a_step(trainer);
    assert_int_equal(each, 1);
    for (int which = 0; which < 2; which++)
        for (wrong_bit = 0; wrong_bit < 8; wrong_bit++) {
            launches = 0, wrong_launch = which + 1, other_wrong_launch = 0;
            gradients(trainer, replay, 1, &found);
            assert_true(found.differs && found.wrong == wanted[which]);
            assert_string_equal(found.op, "embedding_grad");
            assert_string_equal(found.program, "first");
            assert_non_null(strstr(found.tensor, "tok_embeddings"));
            assert_true(found.tensors == 1 && found.parts == 1 && found.bits == 1);
            assert_true(found.first == 0 && found.end == 1024 && found.own && found.traced);
        }
    launches = 0, wrong_launch = 1, other_wrong_launch = 2, wrong_bit = 4;
    gradients(trainer, replay, 1, &found);
    assert_true(found.differs && found.bits == 2 && found.wrong == TM_REPLAY_UNDECIDED);
    launches = 0, wrong_launch = 3, other_wrong_launch = 0; /* there is no third one */
    gradients(trainer, replay, 1, &found);
    assert_true(!found.differs && launches == 2);
    tm_replay_destroy(replay);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

/* Of the products of a step one in eight is checked in the second computation. */
TEST(a_wrong_product_is_named)
{
    static const tm_op_id ops[] = { TM_OP_linear, TM_OP_linear_dgrad, TM_OP_linear_wgrad };
    tm_step_options       o = test_llama_options();
    o.shape.n_layers = 8;
    for (int k = 0; k < 3; k++) {
        tm_device           *device = open_faulty(ops[k]);
        tm_trainer          *trainer = test_trainer_open(device, &o, 5);
        tm_replay           *replay = tm_replay_create(trainer, 3, 0);
        tm_replay_difference found;
        const int            each = launches_of_a_step(trainer);
        int                  named = 0;
        wrong_bit = 6; /* of the exponent */
        for (int at = each + 1; at <= 2 * each; at++) {
            launches = 0, wrong_launch = at;
            checked = (tm_replay_products){ 0 };
            gradients(trainer, replay, 1, &found);
            if (checked.wrong == 0) continue;
            named++;
            assert_string_equal(checked.op, tm_op_get(ops[k])->name);
            assert_true(checked.how.row == 0 && checked.how.column == 0 && found.wrong == TM_REPLAY_SECOND_WRONG);
        }
        if (named < 1 || named > each / 2) fail_msg("%s: %d of %d", tm_op_get(ops[k])->name, named, each);
        checked = (tm_replay_products){ 0 };
        tm_replay_destroy(replay);
        tm_trainer_close(trainer);
        tm_device_close(device);
    }
}

/* --- runs --------------------------------------------------------------------------------------------------------- */

enum { RUN_STEPS = 8, MOST_RANKS = 2 };
typedef struct {
    tm_sink        sink;
    int            ranks, stages, faulty; /* faulty: rank whose device is; -1: none */
    tm_op_id       op;
    int            at; /* launch of this op that is wrong */
    int64_t        every;
    tm_status      status[MOST_RANKS];
    tm_error       err[MOST_RANKS];
    tm_replay_told told;
    tm_verdict     verdict;
    char           reason[TM_REASON_BYTES], first[TM_REASON_BYTES];
    int64_t        steps[RUN_STEPS];
    int            n, unequal;
    uint64_t       hash;
} run_job;

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

static void run_rank(tm_comm *comm, void *context)
{
    run_job       *j = context;
    const int      rank = comm ? tm_comm_rank(comm) : 0;
    tm_run_options o = small_run("synthetic", RUN_STEPS);
    o.learning_rate = 3e-3;
    o.schedule.warmup_steps = 0;
    o.replay = j->every;
    o.step.seq = o.source.seq = 16;
    o.step.n_fields = 0;
    o.step.accumulation = 2;
    o.step.layout.mesh = tm_mesh_one();
    o.step.layout.mesh.degree[j->stages ? TM_AXIS_PP : TM_AXIS_REPLICATE] = j->ranks;
    tm_device *device = open_faulty(j->op);
    wrong_launch = rank == j->faulty ? j->at : 0, wrong_bit = 6;
    j->status[rank] = rank_run(comm, &o, device, &j->sink, NULL, NULL, &j->err[rank]);
    if (launches < j->at) j->status[rank] = TM_INTERNAL; /* it did not happen */
}

/* Ranks are copies of the whole, or stages. */
static run_job run_as(int ranks, bool stages, int64_t every, int faulty, tm_op_id op, int at)
{
    run_job j = { .sink = { .handle = listen },
                  .ranks = ranks,
                  .stages = stages,
                  .faulty = faulty,
                  .op = op,
                  .at = at,
                  .every = every };
    if (ranks == 1)
        run_rank(NULL, &j);
    else
        run_world(ranks, NULL, 120, false, run_rank, &j);
    return j;
}

/* It comes to the bits of a run that repeats none. */
TEST(a_run_repeats_every_so_many_th_step)
{
    for (int way = 0; way < 3; way++) {
        const int     ranks = way ? 2 : 1;
        const int64_t every = way == 2 ? 1 : 3;
        run_job       never = run_as(ranks, way == 2, 0, -1, TM_OP_linear, 0);
        run_job       j = run_as(ranks, way == 2, every, -1, TM_OP_linear, 0);
        assert_true(never.n == 0 && never.told.every == 0 && never.told.steps == 0);
        assert_true(j.n == RUN_STEPS / every && j.steps[0] == every && j.steps[1] == 2 * every && j.unequal == 0);
        assert_true(j.told.every == every && j.told.steps == j.n && j.told.bytes > 0 && j.told.seconds > 0);
        assert_true(j.told.n_mismatches == 0 && j.told.device_seconds > 0);
        assert_true(j.told.products > 0 && j.told.wrong_products == 0);
        for (int r = 0; r < ranks; r++) assert_int_equal(j.status[r], TM_OK);
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
        int      ranks, stages, every, faulty;
        tm_op_id op;
        int      at, step;
    } rows[] = {
        { 1, 0, 2, 0, TM_OP_embedding_grad, 3, 2 }, /* two micro-batches a step: the first that is repeated */
        { 2, 0, 1, 0, TM_OP_linear, 2, 1 },         { 2, 0, 1, 1, TM_OP_linear, 2, 1 },
        { 2, 1, 1, 0, TM_OP_linear_dgrad, 2, 1 },   { 2, 1, 1, 0, TM_OP_linear_dgrad, 4, 1 },
        { 2, 1, 1, 1, TM_OP_linear_dgrad, 2, 1 },   { 2, 1, 1, 1, TM_OP_linear_dgrad, 3, 1 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        run_job j = run_as(rows[i].ranks, rows[i].stages, rows[i].every, rows[i].faulty, rows[i].op, rows[i].at);
        const tm_replay_mismatch *m = &j.told.mismatches[0];
        char                      words[120], by[40] = "";
        for (int r = 0; r < rows[i].ranks; r++) assert_int_equal(j.status[r], TM_NUMBERS);
        assert_true(j.verdict == TM_VERDICT_INVALID && j.unequal >= 1 && j.told.n_mismatches >= 1);
        assert_true(j.told.excluded_per_hour != j.told.excluded_per_hour); /* nothing is excluded */
        assert_string_equal(j.reason, j.first);
        if (m->step != rows[i].step || m->rank != rows[i].faulty || (!rows[i].stages && m->ranks != rows[i].ranks) ||
            !m->sure || m->bits < 1)
            fail_msg("row %zu: %s", i, j.reason);
        if (rows[i].ranks > 1) snprintf(by, sizeof by, "by rank %d (faulty", rows[i].faulty);
        snprintf(words, sizeof words, "step %d: its gradients were computed twice on the same inputs and differ",
                 rows[i].step);
        assert_non_null(strstr(j.reason, words));
        assert_non_null(strstr(j.reason, by));
        if (i > 0) continue;
        assert_true(j.n == 4 && j.told.n_mismatches == 1);
        assert_string_equal(m->wrong, "first");
        assert_string_equal(m->op, "embedding_grad");
        assert_non_null(strstr(j.reason, "tok_embeddings"));
    }
}
