/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs on the device `late`, which does nothing before it is waited for and hides its memory, leave what they
 * leave on the CPU: initial values, steps, evaluation, checkpoints saved and loaded, hashes, generated text. A
 * forgotten copy or wait shows here. */
#include "base/log.h"
#include "op/attrs.h"
#include "support/folder.h"
#include "support/training.h"
#include "train/generate/generate.h"
#include "train/run/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { VOCAB = 257, SEQ = 16, STEPS = 4 };

static char *folder, path[600];

typedef struct {
    tm_sink  sink;
    double   losses[STEPS + 1], norms[STEPS + 1], validation;
    uint64_t hash;
    char     text[1024];
} outcome;

static void listen(tm_sink *sink, const tm_event *event)
{
    outcome *o = (outcome *)sink;
    if (event->kind == TM_EVENT_STEP_DONE) {
        o->losses[event->step_done.step] = event->step_done.loss;
        o->norms[event->step_done.step] = event->step_done.grad_norm;
    }
    if (event->kind != TM_EVENT_RUN_ENDED) return;
    o->validation = event->run_ended.loss_validation;
    o->hash = event->run_ended.weights_hash;
    snprintf(o->text, sizeof o->text, "%s", event->run_ended.sample ? event->run_ended.sample : "");
}

/* The weights are more than the buffer that initial values go through, and than one piece of a checkpoint. */
static tm_run_options options_of_run(const char *checkpoints, int64_t load_step, int64_t steps)
{
    tm_run_options o = { .model_name = "small",
                         .steps = steps,
                         .learning_rate = 3e-3,
                         .max_norm = 1,
                         .seed = 7,
                         .prefetch = 1,
                         .validate = true,
                         .validation_steps = 2,
                         .target_gap = 0.05,
                         .checkpoint = true,
                         .checkpoint_folder = checkpoints,
                         .checkpoint_interval = 2,
                         .checkpoint_load_step = load_step,
                         .sample_tokens = 12,
                         .step = test_llama_options() };
    o.step.shape.vocab_size = VOCAB;
    o.step.shape.ffn_dim = 8192;
    o.step.shape.n_layers = 1;
    o.step.seq = SEQ;
    o.step.sample = true;
    o.step.accumulation = 2;
    o.schedule = (tm_schedule){ .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY,
                                .steps = STEPS,
                                .warmup_steps = 1,
                                .decay_ratio = -1,
                                .decay = TM_DECAY_COSINE };
    o.source = (tm_source_options){
        .name = "text", .path = path, .validation_fraction = 0.1, .vocab = VOCAB, .seq = SEQ, .seed = 7
    };
    return o;
}

static outcome run(const char *name, const char *checkpoints, int64_t load_step, int64_t steps)
{
    char                  where[600];
    outcome               result = { .sink = { listen } };
    tm_event_bus          bus = { 0 };
    tm_error              err = { 0 };
    tm_device            *device;
    tm_source            *source;
    volatile sig_atomic_t stop = 0;
    snprintf(where, sizeof where, "%s/%s", folder, checkpoints);
    tm_event_bus_add(&bus, &result.sink);
    tm_run_options o = options_of_run(where, load_step, steps);
    if (tm_device_open(name, 1, &device, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_source_open(&o.source, &source, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_run(&o, device, source, &bus, &stop, &err) != TM_OK) fail_msg("%s", err.text);
    tm_event_bus_fini(&bus);
    tm_source_close(source);
    tm_device_close(device);
    return result;
}

static void same(const outcome *a, const outcome *b, int64_t first)
{
    for (int64_t t = first; t <= STEPS; t++) {
        assert_true(a->losses[t] == b->losses[t]);
        assert_true(a->norms[t] == b->norms[t]);
    }
    assert_true(a->validation == b->validation);
    assert_true(a->hash == b->hash);
    assert_string_equal(a->text, b->text);
}

static void runs_leave_the_same(void **state)
{
    (void)state;
    outcome cpu = run("cpu", "cpu", -1, STEPS), late = run("late", "late", -1, STEPS);
    if (!(cpu.losses[1] > 1 && cpu.validation > 1 && cpu.norms[1] > 0 && cpu.hash != 0 && strlen(cpu.text) > 8))
        fail_msg("loss %g, validation %g, norm %g, text '%s'", cpu.losses[1], cpu.validation, cpu.norms[1], cpu.text);
    same(&cpu, &late, 1);
    outcome resumed = run("late", "cpu", 2, STEPS), back = run("cpu", "late", 2, STEPS);
    same(&cpu, &resumed, 3);
    same(&cpu, &back, 3);
}

static void initial_values_are_the_same(void **state)
{
    (void)state;
    uint64_t hashes[2], all[2];
    for (int d = 0; d < 2; d++) {
        tm_device     *device = test_device_open(d ? "late" : "cpu", 2);
        tm_run_options o = options_of_run("", -1, STEPS);
        tm_trainer    *trainer = test_trainer_open(device, &o.step, 3);
        hashes[d] = test_weights_hash(trainer);
        all[d] = test_state_hash(trainer);
        tm_trainer_close(trainer);
        tm_device_close(device);
    }
    assert_true(hashes[0] == hashes[1]);
    assert_true(all[0] == all[1]); /* the moments are zero */
}

/* Tokens, targets and scalars of every micro-batch are on the device when its program runs. */
static void what_is_fed_arrives(void **state)
{
    (void)state;
    for (int d = 0; d < 2; d++) {
        tm_device      *device = test_device_open(d ? "late" : "cpu", 1);
        tm_step_options options = test_llama_options();
        options.accumulation = 2;
        tm_trainer    *trainer = test_trainer_open(device, &options, 3);
        const tm_step *step = tm_trainer_step_of(trainer);
        int64_t        rows = options.micro_batch * options.seq;
        test_batch     batch = test_batch_random(2 * options.micro_batch, options.seq, options.shape.vocab_size, 4);
        test_begin(trainer, 3, 0.25, 0.5, batch.target_tokens);
        for (int64_t i = 0; i < 3; i++) { /* the third: evaluation of the first rows */
            const int32_t *tokens = batch.tokens + i % 2 * rows, *targets = batch.targets + i % 2 * rows;
            if (i < 2)
                test_accumulate(trainer, i, tokens, targets);
            else
                test_evaluate(trainer, tokens, targets);
            int32_t *has_tokens = test_tensor_read(trainer, step->tokens),
                    *has_targets = test_tensor_read(trainer, step->targets);
            assert_memory_equal(has_tokens, tokens, (size_t)rows * sizeof *tokens);
            assert_memory_equal(has_targets, targets, (size_t)rows * sizeof *targets);
            free(has_tokens);
            free(has_targets);
        }
        double *scalars = test_tensor_read(trainer, step->scalars);
        assert_true(scalars[TM_SCALAR_LEARNING_RATE] == 0.25 && scalars[TM_SCALAR_MAX_NORM] == 0.5);
        assert_true(scalars[TM_SCALAR_LOSS_SCALE] == 1 / (double)batch.target_tokens);
        free(scalars);
        test_batch_fini(&batch);
        tm_trainer_close(trainer);
        tm_device_close(device);
    }
}

/* What comes out of the last layer for a token of the window, counted from 0: logits of a head that is the identity. */
static float *hidden_of(tm_trainer *trainer, const int32_t *window, int32_t token)
{
    const tm_step *step = tm_trainer_step_of(trainer);
    int64_t        dim = step->options.shape.dim, vocab = step->options.shape.vocab_size;
    tm_error       err = { 0 };
    float         *head = calloc((size_t)(vocab * dim), sizeof *head), *hidden = malloc((size_t)dim * sizeof *hidden);
    double        *logits = malloc((size_t)vocab * sizeof *logits);
    assert_true(head && hidden && logits && vocab >= dim);
    for (int64_t c = 0; c < dim; c++) head[c * dim + c] = 1;
    test_tensor_write(trainer, step->model.head, head);
    assert_int_equal(tm_trainer_logits(trainer, window, token, logits, &err), TM_OK);
    for (int64_t c = 0; c < dim; c++) hidden[c] = (float)logits[c];
    free(head);
    free(logits);
    return hidden;
}

/* A head made so that after the true beginning of the text '!' is certain, '#' one token earlier, and '?' after four
 * zeros. */
static void text_is_drawn_from_what_the_model_says(void **state)
{
    (void)state;
    enum { PROMPT = SEQ / 4, MANY = 300 };
    for (int d = 0; d < 2; d++) {
        tm_device     *device = test_device_open(d ? "late" : "cpu", 1);
        tm_run_options o = options_of_run("", -1, STEPS);
        int64_t        dim = o.step.shape.dim;
        o.step.shape.vocab_size = MANY;
        tm_trainer *trainer = test_trainer_open(device, &o.step, 3);
        tm_error    err = { 0 };
        tm_source  *source;
        int32_t     window[SEQ + 1], zeros[SEQ] = { 0 };
        if (tm_source_open(&o.source, &source, &err) != TM_OK) fail_msg("%s", err.text);
        tm_source_sample(source, TM_SPLIT_VALIDATION, 0, window);
        memset(window + PROMPT, 0, sizeof window - PROMPT * sizeof *window);
        float *is = hidden_of(trainer, window, PROMPT - 1), *before = hidden_of(trainer, window, PROMPT - 2);
        float *other = hidden_of(trainer, zeros, PROMPT - 1);
        float *head = calloc(MANY * (size_t)dim, sizeof *head);
        assert_non_null(head);
        for (int64_t c = 0; c < dim; c++) {
            head['!' * dim + c] = 2 * is[c];
            head['#' * dim + c] = 2 * before[c];
            head['?' * dim + c] = 2 * other[c];
        }
        test_tensor_write(trainer, tm_trainer_step_of(trainer)->model.head, head);
        for (uint64_t seed = 1; seed <= 6; seed++) {
            tm_text text = { 0 };
            char   *decoded = NULL;
            assert_int_equal(tm_generate(trainer, source, seed, 1, 60, &text, &decoded, &err), TM_OK);
            assert_non_null(decoded);
            assert_int_equal(text.data[text.length - 1] == '!', seed <= 3);
            int32_t *fed = test_tensor_read(trainer, tm_trainer_step_of(trainer)->sample_tokens);
            assert_memory_equal(fed, window, SEQ * sizeof *fed); /* nothing of the data behind its beginning */
            free(fed);
            tm_text_fini(&text);
            for (int64_t c = 0; c < dim && seed == 3; c++) head[(MANY - 1) * dim + c] = 4 * is[c]; /* the last one */
            test_tensor_write(trainer, tm_trainer_step_of(trainer)->model.head, head);
        }
        free(is);
        free(before);
        free(other);
        free(head);
        tm_source_close(source);
        tm_trainer_close(trainer);
        tm_device_close(device);
    }
}

static int set_up(void **state)
{
    (void)state;
    folder = test_tree_make();
    snprintf(path, sizeof path, "%s/text.txt", folder);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    for (int i = 0; i < 20000; i++) fprintf(f, "%d\n", i * i);
    return fclose(f);
}

static int tear_down(void **state)
{
    (void)state;
    test_tree_remove(folder);
    return 0;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(runs_leave_the_same),
    cmocka_unit_test(initial_values_are_the_same),
    cmocka_unit_test(what_is_fed_arrives),
    cmocka_unit_test(text_is_drawn_from_what_the_model_says),
};

TM_TESTS(tests, set_up, tear_down)
