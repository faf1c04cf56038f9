/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs on the synthetic language: stopped at any step and resumed they have the bits of one never stopped; an
 * interruption leaves a checkpoint; broken numbers end with a verdict. */
#include "support/folder.h"
#include "support/golden.h"
#include "support/training.h"

#include "base/log.h"
#include "train/run/run.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { STEPS = 7, NEVER = -1 };

/* Writes down what a run says; stops it after step `stop_after`. */
typedef struct {
    tm_sink               sink;
    volatile sig_atomic_t stop;
    int64_t               stop_after;
    double                losses[STEPS + 1], norms[STEPS + 1], validation;
    int64_t               first_step, last_step, evaluations, saved, started, ended;
    int64_t    announced, last_evaluations, samples; /* evaluations begun, those that end the run; at its end */
    tm_recipe  recipe;
    tm_verdict verdict;
    char       reason[TM_REASON_BYTES];
} listener;

static void listen(tm_sink *sink, const tm_event *event)
{
    listener *l = (listener *)sink;
    switch (event->kind) {
    case TM_EVENT_RUN_STARTED:
        l->started++;
        l->first_step = event->run_started.first_step;
        l->recipe = event->run_started.recipe;
        break;
    case TM_EVENT_STEP_DONE:
        assert_true(event->step_done.step >= 1 && event->step_done.step <= STEPS);
        l->last_step = event->step_done.step;
        l->losses[l->last_step] = event->step_done.loss;
        l->norms[l->last_step] = event->step_done.grad_norm;
        if (l->last_step == l->stop_after) l->stop = 1;
        break;
    case TM_EVENT_EVALUATION_STARTED:
        assert_int_equal(l->announced++, l->evaluations);
        break;
    case TM_EVENT_EVALUATION:
        l->evaluations++;
        assert_int_equal(l->announced, l->evaluations);
        assert_int_equal(event->evaluation.samples, event->evaluation.step * l->recipe.global_batch);
        l->last_evaluations += event->evaluation.last;
        l->validation = event->evaluation.loss;
        break;
    case TM_EVENT_CHECKPOINT:
        l->saved = event->checkpoint.step;
        break;
    case TM_EVENT_PICTURE:
    case TM_EVENT_LOOK:
    case TM_EVENT_BETWEEN_STEPS:
    case TM_EVENT_QUANTIZED:
    case TM_EVENT_REPLAYED:
    case TM_EVENT_STRAGGLER:
        break;
    case TM_EVENT_RUN_ENDED:
        l->ended++;
        l->samples = event->run_ended.samples;
        l->verdict = event->run_ended.verdict;
        snprintf(l->reason, sizeof l->reason, "%s", event->run_ended.reason);
        break;
    }
}

static tm_run_options options_of(int family, const char *folder)
{
    tm_run_options o = { .model_name = "small",
                         .steps = STEPS,
                         .learning_rate = 3e-3,
                         .max_norm = 1,
                         .seed = 77,
                         .prefetch = 2,
                         .validate = true,
                         .validation_freq = 3,
                         .validation_steps = 2,
                         .target_gap = 0.05,
                         .checkpoint_interval = 1000,
                         .checkpoint_load_step = -1,
                         .checkpoint_keep = 2,
                         .config_hash = 1,
                         .checkpoint_folder = folder };
    o.step = test_family_options((tm_model_family)family);
    o.step.shape.vocab_size = 64;
    o.step.accumulation = family == TM_FAMILY_GPT ? 2 : 1;
    o.step.recompute.cheap = true;
    o.checkpoint = folder != NULL;
    o.schedule = (tm_schedule){ .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY,
                                .steps = STEPS,
                                .warmup_steps = 3,
                                .decay_ratio = -1,
                                .decay = TM_DECAY_COSINE };
    o.source = (tm_source_options){ .name = "synthetic", .vocab = 64, .seq = o.step.seq, .seed = o.seed };
    return o;
}

static tm_status run(const tm_run_options *options, int threads, int64_t stop_after, listener *l, tm_error *err)
{
    tm_device *device = test_device_open("cpu", threads);
    tm_source *source;
    *l = (listener){ .sink = { .handle = listen }, .stop_after = stop_after };
    *err = (tm_error){ 0 };
    if (tm_source_open(&options->source, &source, err) != TM_OK) fail_msg("%s", err->text);
    tm_event_bus bus = { .sinks = (tm_sink *[]){ &l->sink }, .count = 1 };
    tm_status    st = tm_run(options, device, source, &bus, &l->stop, err);
    tm_source_close(source);
    tm_device_close(device);
    return st;
}

/* Hash of weights and moments in the checkpoint of `step`. */
static uint64_t saved_state(const tm_run_options *options, int64_t step)
{
    tm_device                  *device = test_device_open("cpu", 1);
    tm_trainer                 *trainer = test_trainer_open(device, &options->step, 1);
    size_t                      n;
    const tm_checkpoint_tensor *tensors = tm_trainer_tensors(trainer, &n);
    tm_checkpoint_state         state;
    tm_checkpoint_report        report;
    tm_error                    err = { 0 };
    if (tm_checkpoint_load_newest(options->checkpoint_folder, step, &state, tensors, n, &report, &err) != TM_OK)
        fail_msg("%s", err.text);
    assert_true(state.step == step);
    assert_true(state.samples_consumed == step * options->step.micro_batch * options->step.accumulation);
    uint64_t hash = test_state_hash(trainer);
    tm_trainer_close(trainer);
    tm_device_close(device);
    return hash;
}

static void same_steps(const listener *got, const listener *wanted, int64_t from, int64_t to)
{
    for (int64_t t = from; t <= to; t++)
        if (memcmp(&got->losses[t], &wanted->losses[t], sizeof(double)) != 0 ||
            memcmp(&got->norms[t], &wanted->norms[t], sizeof(double)) != 0)
            fail_msg("step %lld: loss %.17g and norm %.17g, wanted %.17g and %.17g", (long long)t, got->losses[t],
                     got->norms[t], wanted->losses[t], wanted->norms[t]);
}

/* Interrupted after step k, then resumed by another process' worth of state, with another number of threads. */
static void check_stop(int family, int64_t k, const listener *straight, uint64_t wanted)
{
    char          *folder = test_tree_make();
    tm_run_options options = options_of(family, folder);
    listener       first, second;
    tm_error       err;
    assert_int_equal(run(&options, 1, k, &first, &err), TM_INTERRUPTED);
    assert_int_equal(err.status, TM_INTERRUPTED);
    assert_true(first.last_step == k && first.saved == k && first.ended == 1 && first.verdict == TM_VERDICT_NOT_JUDGED);
    same_steps(&first, straight, 1, k);
    if (run(&options, 2, NEVER, &second, &err) != TM_OK) fail_msg("%s", err.text);
    assert_true(second.first_step == k + 1 && second.last_step == STEPS && second.saved == STEPS);
    same_steps(&second, straight, k + 1, STEPS);
    assert_true(second.validation == straight->validation);
    if (saved_state(&options, STEPS) != wanted)
        fail_msg("stopped at step %lld: weights or moments differ at the end", (long long)k);
    test_tree_remove(folder);
}

static void stopped_and_resumed_is_never_stopped(void **state)
{
    (void)state;
    static const int families[] = { TM_FAMILY_LLAMA, TM_FAMILY_GPT, TM_FAMILY_QWEN3 };
    for (int i = 0; i < 3; i++) {
        int            family = families[i];
        char          *folder = test_tree_make();
        tm_run_options options = options_of(family, folder);
        listener       straight;
        tm_error       err;
        if (run(&options, 2, NEVER, &straight, &err) != TM_OK) fail_msg("%s", err.text);
        assert_true(straight.started == 1 && straight.ended == 1 && straight.last_step == STEPS &&
                    straight.evaluations == 3);
        assert_true(straight.verdict == TM_VERDICT_NOT_JUDGED);
        uint64_t wanted = saved_state(&options, STEPS);
        for (int64_t k = 1; k < STEPS; k++) check_stop(family, k, &straight, wanted);
        /* nothing is left to do: no step, no event, no error */
        listener again;
        options.concluded = true;
        assert_int_equal(run(&options, 1, NEVER, &again, &err), TM_OK);
        assert_true(again.last_step == 0 && again.started == 0);
        /* but a result that was never written: no step, the same held-out loss */
        options.concluded = false;
        assert_int_equal(run(&options, 1, NEVER, &again, &err), TM_OK);
        assert_true(again.last_step == 0 && again.started == 1 && again.ended == 1 && again.evaluations == 1);
        assert_true(again.validation == straight.validation && again.verdict == TM_VERDICT_NOT_JUDGED);
        test_tree_remove(folder);
    }
}

static void a_run_goes_on_from_every_checkpoint(void **state)
{
    (void)state;
    char          *folder = test_tree_make();
    tm_run_options options = options_of(TM_FAMILY_LLAMA, folder);
    listener       straight, resumed;
    tm_error       err;
    options.checkpoint_interval = 1;
    options.checkpoint_keep = 0;
    if (run(&options, 2, NEVER, &straight, &err) != TM_OK) fail_msg("%s", err.text);
    uint64_t wanted = saved_state(&options, STEPS);
    for (int64_t k = 1; k < STEPS; k++) {
        options.checkpoint_load_step = k;
        if (run(&options, 1, NEVER, &resumed, &err) != TM_OK) fail_msg("%s", err.text);
        assert_true(resumed.first_step == k + 1);
        same_steps(&resumed, &straight, k + 1, STEPS);
        assert_true(saved_state(&options, STEPS) == wanted);
    }
    test_tree_remove(folder);
}

static void another_seed_does_not_resume(void **state)
{
    (void)state;
    char          *folder = test_tree_make();
    tm_run_options options = options_of(TM_FAMILY_LLAMA, folder);
    listener       l;
    tm_error       err;
    assert_int_equal(run(&options, 1, 2, &l, &err), TM_INTERRUPTED);
    options.seed = options.source.seed = 78;
    assert_int_equal(run(&options, 1, NEVER, &l, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "debug.seed"));
    assert_true(l.last_step == 0);
    test_tree_remove(folder);
}

static void an_interruption_saves_even_when_checkpoints_are_off(void **state)
{
    (void)state;
    char          *folder = test_tree_make();
    tm_run_options options = options_of(TM_FAMILY_LLAMA, folder);
    listener       l;
    tm_error       err;
    options.checkpoint = false;
    assert_int_equal(run(&options, 1, 2, &l, &err), TM_INTERRUPTED);
    assert_true(l.saved == 2 && tm_checkpoint_present(folder));
    assert_true(l.evaluations == 0); /* an interrupted run ends at once */
    /* after the last step there is only its validation to interrupt */
    options.checkpoint_folder = NULL;
    options.validation_freq = 0;
    assert_int_equal(run(&options, 1, STEPS, &l, &err), TM_INTERRUPTED);
    assert_true(l.last_step == STEPS && l.saved == 0 && l.evaluations == 0);
    options.validate = false;
    assert_int_equal(run(&options, 1, STEPS, &l, &err), TM_OK);
    assert_true(l.last_step == STEPS && l.saved == 0);
    test_tree_remove(folder);
}

static void a_target_loss_ends_the_run(void **state)
{
    (void)state;
    static const int families[] = { TM_FAMILY_LLAMA, TM_FAMILY_GPT, TM_FAMILY_QWEN3 };
    for (int i = 0; i < 3; i++) {
        int            family = families[i];
        tm_run_options options = options_of(family, NULL);
        listener       l;
        tm_error       err;
        if (run(&options, 1, NEVER, &l, &err) != TM_OK) fail_msg("%s", err.text);
        int64_t batch = options.step.micro_batch * options.step.accumulation;
        assert_int_equal(l.recipe.global_batch, batch);
        assert_int_equal(l.recipe.eval_samples, 2 * options.step.micro_batch);
        assert_true(l.last_step == STEPS && l.evaluations == 3 && l.last_evaluations == 1);
        assert_int_equal(l.samples, STEPS * batch);
        options.target_loss = l.validation / 2; /* never met */
        if (run(&options, 1, NEVER, &l, &err) != TM_OK) fail_msg("%s", err.text);
        assert_true(l.last_step == STEPS && l.evaluations == 3 && l.last_evaluations == 1);
        options.target_loss = 100; /* met at the first evaluation, which is not repeated */
        if (run(&options, 1, NEVER, &l, &err) != TM_OK) fail_msg("%s", err.text);
        assert_true(l.last_step == 3 && l.evaluations == 1 && l.last_evaluations == 1);
        assert_int_equal(l.samples, 3 * batch);
    }
}

static void broken_numbers_end_the_run_with_a_verdict(void **state)
{
    static const double rates[] = { 1e30, 1e38, (double)INFINITY };
    (void)state;
    for (int family = 0; family < 2; family++)
        for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
            char          *folder = test_tree_make();
            tm_run_options options = options_of(family, folder);
            listener       l;
            tm_error       err;
            options.learning_rate = rates[i];
            tm_status st = run(&options, 1, NEVER, &l, &err);
            if (st != TM_NUMBERS)
                fail_msg("learning rate %g: status %d, losses %g %g %g", rates[i], st, l.losses[1], l.losses[2],
                         l.losses[3]);
            assert_int_equal(err.status, TM_NUMBERS);
            assert_true(l.ended == 1 && l.verdict == TM_VERDICT_INVALID && l.last_step < STEPS);
            assert_non_null(strstr(l.reason, "not finite"));
            /* it ends at the first such number, be it a gradient norm beside a loss that looks well */
            for (int64_t t = 1; t < l.last_step; t++) assert_true(isfinite(l.losses[t]) && isfinite(l.norms[t]));
            if (family == TM_FAMILY_LLAMA && i == 0)
                assert_true(isfinite(l.losses[l.last_step]) && !isfinite(l.norms[l.last_step]));
            assert_int_equal(l.evaluations, (l.last_step - 1) / 3); /* nor is it evaluated */
            assert_false(tm_checkpoint_present(folder));            /* a broken state is not kept */
            test_tree_remove(folder);
        }
}

/* The fast kernels and the reference pass a NaN on, from wherever it is: a broken weight never goes unnoticed. */
static void a_broken_weight_shows_in_loss_and_norm(void **state)
{
    (void)state;
    tm_device       *device = test_device_open("cpu", 2);
    static const int families[] = { TM_FAMILY_LLAMA, TM_FAMILY_GPT, TM_FAMILY_QWEN3 };
    for (int i = 0; i < 3; i++) {
        int             family = families[i];
        tm_step_options options = options_of(family, NULL).step;
        options.accumulation = 1;
        tm_trainer     *trainer = test_trainer_open(device, &options, 3);
        const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
        test_batch      batch = test_batch_random(options.micro_batch, options.seq, 64, 4);
        for (size_t t = 0; t < graph->n_tensors; t++) {
            if (graph->tensors[t].role != TM_ROLE_PARAMETER) continue;
            int64_t at = (tm_tensor_id)t == tm_trainer_step_of(trainer)->model.embedding
                             ? batch.tokens[0] * options.shape.dim
                             : 0;
            double  was = golden_get(trainer, (tm_tensor_id)t, at);
            golden_set(trainer, (tm_tensor_id)t, at, (double)NAN);
            test_begin(trainer, 1, 0, 1, batch.target_tokens);
            test_accumulate(trainer, 0, batch.tokens, batch.targets);
            double *loss = test_tensor_read(trainer, tm_trainer_step_of(trainer)->loss);
            if (!isnan(*loss)) fail_msg("a NaN in '%s' gives the loss %g", graph->tensors[t].name, *loss);
            free(loss);
            golden_set(trainer, (tm_tensor_id)t, at, was);
        }
        tm_step_result r = test_step(trainer, 1, 1e-3, 1, &batch);
        assert_true(isfinite(r.loss) && isfinite(r.grad_norm));
        /* a gradient that is not finite is not clipped away */
        test_begin(trainer, 2, 1e-3, 1, batch.target_tokens);
        test_accumulate(trainer, 0, batch.tokens, batch.targets);
        golden_set(trainer, graph->tensors[tm_trainer_step_of(trainer)->model.norm_w].gradient, 1, (double)NAN);
        r = test_update(trainer);
        assert_true(isfinite(r.loss) && isnan(r.grad_norm));
        test_batch_fini(&batch);
        tm_trainer_close(trainer);
    }
    tm_device_close(device);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(stopped_and_resumed_is_never_stopped),
    cmocka_unit_test(a_run_goes_on_from_every_checkpoint),
    cmocka_unit_test(another_seed_does_not_resume),
    cmocka_unit_test(an_interruption_saves_even_when_checkpoints_are_off),
    cmocka_unit_test(a_target_loss_ends_the_run),
    cmocka_unit_test(broken_numbers_end_the_run_with_a_verdict),
    cmocka_unit_test(a_broken_weight_shows_in_loss_and_norm),
};

TM_TESTS(tests, NULL, NULL)
