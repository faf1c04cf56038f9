/* SPDX-License-Identifier: Apache-2.0 */
/* Whole runs that look like training: the verdict says which of them were. */
#include "support/folder.h"
#include "support/training.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/log.h"
#include "train/dead_attention.h"
#include "train/run.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tm_run_ended told;
static char         reason[TM_REASON_BYTES];
static double       unaccounted; /* of the seconds of the first step */

static void hear(tm_sink *sink, const tm_event *event)
{
    (void)sink;
    if (event->kind == TM_EVENT_STEP_DONE && event->step_done.step == 1)
        unaccounted = event->step_done.phases[event->step_done.n_phases - 1].value;
    if (event->kind != TM_EVENT_RUN_ENDED) return;
    told = event->run_ended;
    strncpy(reason, event->run_ended.reason, sizeof reason - 1);
}

static tm_run_options options_of(int64_t steps)
{
    tm_run_options o = { .model_name = "small",
                         .steps = steps,
                         .learning_rate = 1e-2,
                         .max_norm = 1,
                         .seed = 77,
                         .prefetch = 2,
                         .target_gap = 0.05,
                         .certify = true,
                         .step = test_llama_options() };
    o.step.shape.vocab_size = 64;
    o.schedule =
        (tm_schedule){ .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY, .steps = steps, .warmup_steps = 3, .decay_ratio = -1 };
    o.source = (tm_source_options){ .name = "synthetic", .vocab = 64, .seq = o.step.seq, .seed = o.seed };
    tm_error err = { 0 };
    assert_int_equal(tm_source_fields(&o.source, o.step.fields, &o.step.n_fields, &err), TM_OK);
    return o;
}

static tm_status go(const tm_run_options *options)
{
    tm_device            *device = test_device_open("cpu", 1);
    tm_source            *source;
    volatile sig_atomic_t stop = 0;
    tm_sink               sink = { .handle = hear };
    tm_error              err = { 0 };
    if (tm_source_open(&options->source, &source, &err) != TM_OK) fail_msg("%s", err.text);
    tm_event_bus bus = { .sinks = (tm_sink *[]){ &sink }, .count = 1 };
    tm_status    st = tm_run(options, device, source, &bus, &stop, &err);
    tm_source_close(source);
    tm_device_close(device);
    return st;
}

static void honest_training_is_certified(void **state)
{
    (void)state;
    tm_run_options o = options_of(60);
    assert_int_equal(go(&o), TM_OK);
    assert_true(told.certificate.done && told.certificate.gradients && told.certificate.causal &&
                told.certificate.rows);
    assert_int_equal(told.certificate.groups, 9);
    assert_false(told.certificate_after.done);
    uint64_t hash = told.weights_hash;
    o.certify = false; /* it leaves no trace in the weights */
    o.certify_after = true;
    assert_int_equal(go(&o), TM_OK);
    assert_false(told.certificate.done);
    assert_true(told.certificate_after.done && told.certificate_after.gradients && told.certificate_after.causal);
    assert_true(told.weights_hash == hash);
    o.certify_after = false;
    o = options_of(20); /* nobody judges so few steps */
    assert_int_equal(go(&o), TM_OK);
    assert_false(told.certificate.done);
}

/* Steps before the checkpoint count in the verdict, so the others are looked at. */
static void who_goes_on_is_certified(void **state)
{
    char folder[300];
    (void)state;
    snprintf(folder, sizeof folder, "%s", test_in_folder("checkpoint"));
    tm_run_options o = options_of(45);
    o.schedule.steps = 90;
    o.checkpoint = true;
    o.checkpoint_folder = folder;
    o.checkpoint_interval = 1000;
    o.checkpoint_load_step = -1;
    o.checkpoint_keep = 1;
    assert_int_equal(go(&o), TM_OK);
    assert_false(told.certificate.done);
    o.steps = 90;
    if (go(&o) != TM_OK) fail_msg("%s", reason);
    assert_true(told.certificate.done && told.certificate.gradients && told.certificate.causal);
}

/* It is made in the middle of the first step, whose time it is not. */
static void its_time_belongs_to_no_step(void **state)
{
    (void)state;
    tm_run_options o = options_of(60);
    bool           apart = false;
    for (int i = 0; i < 5 && !apart; i++) { /* others may disturb a step, too */
        assert_int_equal(go(&o), TM_OK);
        assert_true(told.certificate.done && told.certificate.seconds > 0);
        apart = unaccounted < 0.5 * told.certificate.seconds;
    }
    assert_true(apart);
}

static void weights_that_do_not_move_are_no_training(void **state)
{
    (void)state;
    tm_run_options o = options_of(60);
    o.learning_rate = 0;
    assert_int_equal(go(&o), TM_NUMBERS);
    assert_non_null(strstr(reason, "no weight has moved in the 60 steps of this run"));
}

/* What is frozen because the configuration says so may stay where it is; all else is looked at. */
static void frozen_layers_stay(void **state)
{
    (void)state;
    tm_run_options o = options_of(60);
    o.source.name = "mock";
    o.step.groups[1] = (tm_group){ .place = "test",
                                   .patterns = "layers.1.*",
                                   .lr_scale = 1,
                                   .frozen = true,
                                   .hyper = o.step.hyper,
                                   .format = TM_DTYPE_COUNT };
    o.step.groups[0] = (tm_group){ .place = "test", .lr_scale = 1, .hyper = o.step.hyper, .format = TM_DTYPE_COUNT };
    o.step.n_groups = 2;
    if (go(&o) != TM_OK) fail_msg("%s", reason);
    assert_true(told.certificate.done && told.certificate.groups == 6);
}

/* Everything but `patterns` learns; the configuration does not say so. */
static void one_part_stays(const char *patterns, const char *word)
{
    tm_run_options o = options_of(60);
    o.step.groups[0] = (tm_group){ .place = "test", .lr_scale = 1, .hyper = o.step.hyper, .format = TM_DTYPE_COUNT };
    o.step.groups[1] = o.step.groups[0];
    snprintf(o.step.groups[1].patterns, sizeof o.step.groups[1].patterns, "%s", patterns);
    o.step.groups[1].lr_scale = 0;
    o.step.n_groups = 2;
    assert_int_equal(go(&o), TM_NUMBERS);
    if (!strstr(reason, word)) fail_msg("%s", reason);
}

static void layers_that_stay_are_no_training(void **state)
{
    (void)state;
    one_part_stays("layers.1.*", "layers.1.");
    assert_non_null(strstr(reason, "is trained, but has not moved"));
    one_part_stays("layers.*", "is trained, but has not moved"); /* all blocks */
    one_part_stays("layers.0.attention.wo.weight", "layers.0.attention.wo.weight is trained, but has not moved");
    one_part_stays("norm.weight", "norm.weight is trained, but has not moved");
    assert_int_equal(told.verdict, TM_VERDICT_INVALID);
}

/* With one token to look at a model can learn which tokens follow which, and on random tokens nobody could tell. */
static void attention_must_look_back(void **state)
{
    (void)state;
    static const char *const sources[] = { "synthetic", "mock" };
    for (int i = 0; i < 2; i++) {
        tm_run_options o = options_of(60);
        o.source.name = sources[i];
        o.step.shape.window = 1;
        assert_int_equal(go(&o), TM_NUMBERS);
        assert_non_null(strstr(reason, "uses no context"));
        o.step.shape.window = 2; /* this one does */
        o.source.name = "mock";
        if (go(&o) != TM_OK) fail_msg("%s", reason);
        assert_true(told.certificate.context);
    }
}

/* Attention of the other layers uses context, so the tokens tell nothing: the gradients do. */
static void attention_must_look_back_in_every_layer(void **state)
{
    (void)state;
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    for (int i = 0; i < 3; i++) {
        tm_run_options o = options_of(60);
        o.source.name = "mock";
        o.step.precision = precisions[i];
        o.step.shape.n_layers = 3;
        o.step.shape.window = 1;
        o.step.shape.window_every = 2;
        assert_int_equal(go(&o), TM_NUMBERS);
        if (!strstr(reason, "the attention of layers 0, 2 is dead: the gradients of its wq and wk are nothing but"))
            fail_msg("%s", reason);
        assert_true(told.certificate.gradients && told.certificate.context);
        o.step.shape.window = 2;
        if (go(&o) != TM_OK) fail_msg("%s", reason);
        o.step.shape.window = 1; /* a key and a sink are two to choose from */
        o.step.shape.sinks = true;
        if (go(&o) != TM_OK) fail_msg("%s", reason);
    }
}

/* Queries and keys of one size, however large the weights are: with heads that are normalised, too. */
static void dead_attention_of_normalised_heads(void **state)
{
    (void)state;
    for (int64_t window = 1; window <= 2; window++) {
        tm_run_options o = options_of(60);
        o.source.name = "mock";
        o.step.shape.qk_norm = true;
        o.step.shape.window = window;
        o.step.shape.window_every = 2;
        assert_int_equal(go(&o), window == 1 ? TM_NUMBERS : TM_OK);
        if (window == 1 && !strstr(reason, "the attention of layers 0 is dead")) fail_msg("%s", reason);
    }
}

/* Weights of the three parts of an attention, gradients of wv, and those of wq and wk in units of what rounding makes.
 */
typedef struct {
    double wq, wk, wv, v, q, k;
} attention;

/* Values of a tensor that is made of pieces: those of piece p are `parts`[p], larger and smaller by turns, and much
 * larger at its ends and in the middle. */
static void fill(tm_trainer *trainer, const tm_tensor *t, tm_tensor_id id, const double parts[3])
{
    double *values = test_values_read(trainer, id);
    int64_t columns = t->shape.n[1];
    assert_int_equal(t->n_pieces, 3);
    for (int p = 0; p < 3; p++)
        for (int64_t i = 0, n = t->pieces[p].rows * columns; i < n; i++) {
            double value = i % 3 == 0 ? -1.5 : i % 3 == 1 ? 0.5 : 1;
            if (i == 0 || i == n - 1 || i == (1 << 18) - 1 || i == 1 << 18) value = sqrt(0.1 * (double)n);
            values[t->pieces[p].row * columns + i] = parts[p] * value;
        }
    test_values_write(trainer, id, values);
    free(values);
}

/* The root of the sum of the squares, and of their mean over rows. */
static void measure(const tm_trainer *trainer, const tm_tensor *t, tm_tensor_id id, double norm[3], double length[3])
{
    double *values = test_values_read(trainer, id);
    int64_t columns = t->shape.n[1];
    for (int p = 0; p < 3; p++) {
        double squares = 0;
        for (int64_t i = 0; i < t->pieces[p].rows * columns; i++) {
            double value = values[t->pieces[p].row * columns + i];
            squares += value * value;
        }
        norm[p] = sqrt(squares);
        length[p] = sqrt(squares / (double)t->pieces[p].rows);
    }
    free(values);
}

/* Gives each layer its weights and gradients; are the layers that are found those of `wanted`? */
static void find(const tm_step_options *o, const attention *of, const char *wanted)
{
    tm_device     *device = test_device_open("cpu", 1);
    tm_trainer    *trainer = test_trainer_open(device, o, 5);
    tm_text        found = { 0 };
    tm_error       err = { 0 };
    const tm_step *step = tm_trainer_step_of(trainer);
    for (size_t i = 0; i < step->graph->n_tensors; i++) {
        const tm_tensor *t = &step->graph->tensors[i];
        if (t->role != TM_ROLE_PARAMETER || !strstr(t->name, "attention.wqkv")) continue;
        const attention *a = &of[t->layer];
        double           g[3] = { 1, 1, a->v }, norm[3], length[3], none[3];
        fill(trainer, t, (tm_tensor_id)i, (double[3]){ a->wq, a->wk, a->wv });
        fill(trainer, t, t->gradient, g);
        measure(trainer, t, (tm_tensor_id)i, none, length);
        measure(trainer, t, t->gradient, norm, none);
        if (o->shape.qk_norm) length[0] = length[1] = 1;
        double size = pow((double)o->shape.head_dim, 1.5) * 2 * 0x1p-24 * length[2] * norm[2];
        g[0] = a->q * size * length[1] / norm[0];
        g[1] = a->k * size * length[0] / norm[1];
        fill(trainer, t, t->gradient, g);
    }
    if (dead_attention_find(trainer, &o->shape, NULL, &found, &err) != TM_OK) fail_msg("%s", err.text);
    if (strcmp(found.data ? found.data : "", wanted) != 0) fail_msg("layers '%s', wanted '%s'", found.data, wanted);
    tm_text_fini(&found);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

/* Of wq and wk both, by the sizes of the values and of the other of the two; and never more than 1/256 of wv's. */
static void attention_is_dead_up_to_what_rounding_makes(void **state)
{
    const attention below = { 0.1, 0.3, 0.2, 3, 0.98, 0.98 }, q = { 0.1, 0.3, 0.2, 3, 1.02, 0.98 },
                    k = { 0.1, 0.3, 0.2, 3, 0.98, 1.02 }, none = { 0.1, 0.3, 0.2, 3, 0, 0 },
                    all = { 0.1, 0.3, 0.2, 0, 0, 0 };
    tm_step_options o = test_llama_options();
    (void)state;
    o.shape.n_layers = 4;
    for (int normal = 0; normal < 2; normal++) {
        o.shape.qk_norm = normal;
        find(&o, (attention[4]){ below, q, k, below }, "0, 3");
        find(&o, (attention[4]){ q, none, all, k }, "1");
        find(&o, (attention[4]){ { 0.02, 0.3, 0.4, 1, 1.02, 0.5 }, { 0.4, 0.1, 0.3, 1, 0.5, 1.02 }, below, q }, "2");
    }
    o.precision = &tm_precision_bf16_pure;
    find(&o, (attention[4]){ q, below, k, none }, "1, 3");
    o = test_llama_options();
    /* Rounding of weights as large as these would reach further: 0.0039 of wv's gradient is a 256th. */
    double rows = 64 * (3.5 / 3 + 0.2), reach = pow(32, 1.5) * 0x1p-23 * rows * 40 * 40, most = 0x1p-8 / reach;
    assert_true(most < 0.5);
    find(&o, (attention[2]){ { 40, 40, 40, 1, 0.98 * most, 0.98 * most }, { 40, 40, 40, 1, 1.02 * most, 0.98 * most } },
         "0");
    find(&o, (attention[2]){ { 40, 40, 40, 1, 0.5 * most, 1.02 * most }, { 40, 40, 40, 1, 0.5 * most, 0.98 * most } },
         "1");
    /* Matrices of several pieces at a time. */
    o.shape.dim = 640, o.shape.head_dim = 64, o.shape.n_heads = o.shape.n_kv_heads = 10;
    find(&o, (attention[2]){ below, q }, "0");
    find(&o, (attention[2]){ k, below }, "1");
}

/* A router has nothing to choose where there is one expert: it only decays. It has moved, and nobody trained it. */
static void a_weight_that_no_gradient_reaches_is_no_training(void **state)
{
    (void)state;
    tm_run_options o = options_of(60);
    o.step.shape.family = TM_FAMILY_MIXTRAL;
    o.step.shape.moe = (tm_moe_shape){ .experts = 1, .top_k = 1, .ffn_dim = 64, .normalise = true, .scale = 1 };
    assert_int_equal(go(&o), TM_NUMBERS);
    assert_string_equal(reason, "no gradient reaches layers.0.moe.router.gate.weight");
    assert_true(told.certificate.done && told.certificate.gradients && told.certificate.context);
    assert_int_equal(told.verdict, TM_VERDICT_INVALID);
    o.step.shape.moe.experts = o.step.shape.moe.top_k = 2; /* the share of each is trained */
    if (go(&o) != TM_OK) fail_msg("%s", reason);
}

/* Every row is there more than once. */
static void rows_must_be_different(void **state)
{
    (void)state;
    tm_run_options o = options_of(60);
    FILE          *f = fopen(test_in_folder("twice.txt"), "w");
    assert_non_null(f);
    for (int row = 0; row < 130; row++) fprintf(f, "x%030d.", row % 65 * 7919);
    assert_int_equal(fclose(f), 0);
    o.step.shape.vocab_size = 257;
    o.source = (tm_source_options){ .name = "text", .path = test_in_folder("twice.txt"), .vocab = 257, .seq = 32 };
    tm_error err = { 0 };
    assert_int_equal(tm_source_fields(&o.source, o.step.fields, &o.step.n_fields, &err), TM_OK);
    assert_int_equal(go(&o), TM_NUMBERS);
    if (!strstr(reason, "are different ones")) fail_msg("%s", reason);
}

int main(int argc, char **argv)
{
    (void)argc;
    test_threads_sleep(argv);
    tm_log_set_level(TM_LOG_ERROR);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(honest_training_is_certified),
        cmocka_unit_test_teardown(who_goes_on_is_certified, test_folder_teardown),
        cmocka_unit_test(its_time_belongs_to_no_step),
        cmocka_unit_test(weights_that_do_not_move_are_no_training),
        cmocka_unit_test(frozen_layers_stay),
        cmocka_unit_test(layers_that_stay_are_no_training),
        cmocka_unit_test(attention_must_look_back),
        cmocka_unit_test(attention_must_look_back_in_every_layer),
        cmocka_unit_test(dead_attention_of_normalised_heads),
        cmocka_unit_test(attention_is_dead_up_to_what_rounding_makes),
        cmocka_unit_test(a_weight_that_no_gradient_reaches_is_no_training),
        cmocka_unit_test_teardown(rows_must_be_different, test_folder_teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
