/* SPDX-License-Identifier: Apache-2.0 */
/* The certificate of the gradients: it holds for honest training, and leaves no trace. That it does not for training
 * that is not honest is shown by mutants.txt. */
#include "support/training.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "train/certificate.h"
#include "train/motion.h"
#include "train/probe.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tm_micro_batch micro_batches(const test_batch *b)
{
    return (tm_micro_batch){ .field = { b->tokens, b->targets }, .target_tokens = b->target_tokens };
}

static tm_certificate certify(const tm_step_options *options, uint64_t seed, int warm)
{
    tm_device  *device = test_device_open("cpu", 1);
    tm_trainer *trainer = test_trainer_open(device, options, seed);
    test_batch  b =
        test_batch_random(options->micro_batch * options->accumulation, options->seq, options->shape.vocab_size, seed);
    tm_micro_batch batch = micro_batches(&b);
    tm_certificate result;
    tm_error       err = { 0 };
    for (int t = 1; t <= warm; t++) test_step(trainer, t, 1e-2, 1, &b);
    uint64_t before = test_state_hash(trainer);
    if (tm_certify_anew(trainer, &batch, seed, &result, &err) != TM_OK) fail_msg("%s", err.text);
    assert_true(before == test_state_hash(trainer));
    test_batch_fini(&b);
    tm_trainer_close(trainer);
    tm_device_close(device);
    return result;
}

/* 4 experts, two of them for each token, and a loss that balances them. */
static tm_step_options mixture_options(void)
{
    tm_step_options o = test_llama_options();
    o.shape.moe =
        (tm_moe_shape){ .experts = 4, .top_k = 2, .ffn_dim = 64, .normalise = true, .scale = 1, .aux_loss = 0.01 };
    return o;
}

static tm_step_options options_of(int kind)
{
    tm_step_options o = kind == 0 ? test_llama_options() : kind == 1 ? test_gpt_options() : mixture_options();
    if (kind == 3) {
        o = test_llama_options();
        o.shape.tied = true;
        o.accumulation = 2;
        o.recompute.every_n = 1;
    }
    return o;
}

/* Every family and format, fresh weights and trained ones: no false alarm. */
static void honest_training_holds(void **state)
{
    (void)state;
    static const tm_precision *const precisions[] = { &tm_precision_f32, &tm_precision_bf16, &tm_precision_bf16_pure };
    double                           nearest = 0;
    int                              runs = 0, certified = 0;
    for (int kind = 0; kind < 4; kind++)
        for (int p = 0; p < 3; p++)
            for (int warm = 0; warm <= 20; warm += 20)
                for (uint64_t seed = 1; seed <= (getenv("TM_LONG") ? 9u : 2u); seed++) {
                    tm_step_options o = options_of(kind);
                    o.precision = precisions[p];
                    tm_certificate c = certify(&o, seed, warm);
                    runs++;
                    bool hidden = p > 0 && warm > 0 && !c.done && strstr(c.reason, "rounding hides");
                    certified += c.done || hidden;
                    if (hidden) continue; /* bfloat16, and a batch that is known by heart */
                    if (c.done) nearest = fmax(nearest, fabs(c.measured - c.expected) / c.band);
                    if (getenv("TM_VERBOSE"))
                        print_message("%d %s %d: %d groups, expected %.6g, off by %.2g, band %.2g, causal %d %s\n",
                                      kind, o.precision->name, warm, c.groups, c.expected, c.measured - c.expected,
                                      c.band, c.causal, c.reason);
                    if (!getenv("TM_VERBOSE") &&
                        (!c.done || !c.gradients || !c.looked_ahead || !c.causal || !c.context || !c.rows))
                        fail_msg("kind %d, %s, seed %d, %d steps: %s", kind, o.precision->name, (int)seed, warm,
                                 c.reason);
                }
    assert_int_equal(certified, runs); /* experts may change too often, but not here */
    print_message("%d honest runs, %d certified, the farthest at %.2f of its band\n", runs, certified, nearest);
}

/* A step: gradients, the certificate if there is one, the update. */
static uint64_t train(const tm_step_options *options, bool certified, tm_step_result *told, tm_certificate *c)
{
    tm_device  *device = test_device_open("cpu", 1);
    tm_trainer *trainer = test_trainer_open(device, options, 7);
    tm_error    err = { 0 };
    for (int t = 1; t <= 3; t++) {
        test_batch b =
            test_batch_random(options->micro_batch * options->accumulation, options->seq, options->shape.vocab_size, 7);
        tm_micro_batch batch = micro_batches(&b);
        test_begin(trainer, t, 1e-2, 1, b.target_tokens);
        if (tm_trainer_gradients(trainer, &batch, NULL, &err) != TM_OK) fail_msg("%s", err.text);
        if (certified && t == 2 && tm_certify(trainer, &batch, 7, c, &err) != TM_OK) fail_msg("%s", err.text);
        *told = test_update(trainer);
        test_batch_fini(&b);
    }
    uint64_t hash = test_state_hash(trainer);
    tm_trainer_close(trainer);
    tm_device_close(device);
    return hash;
}

/* In the middle of a step: what is certified is what the update takes, of all micro-batches, and nothing is left of it,
 * not even in what is told of experts, whose balance changes gradients on the way. */
static void a_certified_step_has_the_same_bits(void **state)
{
    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        tm_step_options o = options_of(kind < 4 ? kind : 2);
        tm_step_result  with, without;
        tm_certificate  c = { 0 };
        if (kind == 2) o.accumulation = 3;
        if (kind == 4) o.precision = &tm_precision_bf16_pure;
        if (kind == 5) { /* adapters that drop something: the losses are those of the step's own rows */
            o = test_llama_options();
            o.accumulation = 2;
            o.adapters = (tm_adapters){ .rank = 4, .alpha = 8, .dropout = 0.25, .seed = 3, .base = TM_DTYPE_COUNT };
            strcpy(o.adapters.targets, "all-linear");
        }
        uint64_t a = train(&o, true, &with, &c), b = train(&o, false, &without, NULL);
        assert_true(a == b);
        assert_memory_equal(&with.loss, &without.loss, sizeof with.loss);
        assert_int_equal(with.n_measures, without.n_measures);
        for (size_t i = 0; i < with.n_measures; i++)
            assert_memory_equal(&with.measures[i].value, &without.measures[i].value, sizeof(double));
        if (!c.done || !c.gradients || !c.causal || !c.context) fail_msg("kind %d: %s", kind, c.reason);
    }
}

/* Rows of three samples of 16 tokens, the third one of two documents. */
static void probes_say_what_a_loss_may_see(void **state)
{
    (void)state;
    enum { SEQ = 16, ROWS = 3 * SEQ };
    tm_step_options o = test_llama_options();
    int32_t         tokens[ROWS], targets[ROWS], first_key[ROWS];
    double          before[ROWS], after[ROWS];
    o.micro_batch = 3;
    o.seq = SEQ;
    o.n_fields = 3;
    o.fields[0] = (tm_field){ .name = "tokens" };
    o.fields[1] = (tm_field){ .name = "targets" };
    o.fields[2] = (tm_field){ .name = "first_key" };
    for (int i = 0; i < ROWS; i++) {
        tokens[i] = i;
        targets[i] = i % SEQ == 0 ? TM_IGNORED_TARGET : i;
        first_key[i] = i >= 2 * SEQ + 11 ? 11 : 0;
        before[i] = after[i] = i;
    }
    tm_micro_batch batch = { .field = { tokens, targets, first_key } };
    int            looking = 0, staying = 0, free_ones = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        tm_probe probe;
        tm_probe_make(&o, &batch, seed, &probe);
        assert_true(probe.possible && probe.context);
        assert_int_equal(tm_probe_leak(&probe, before, after), -1);
        assert_false(tm_probe_looks(&probe, before, after));
        for (int i = 0; i < ROWS; i++) {
            bool sees = false; /* other tokens before its own */
            for (int j = i / SEQ * SEQ + first_key[i]; j < i; j++) sees = sees || probe.tokens[j] != tokens[j];
            bool other = probe.tokens[i] != tokens[i] || targets[i] == TM_IGNORED_TARGET;
            assert_int_equal(probe.places[i], other ? TM_PROBE_FREE : sees ? TM_PROBE_LOOKS : TM_PROBE_STAYS);
            after[i] = before[i] + 0.5;
            assert_int_equal(tm_probe_leak(&probe, before, after), probe.places[i] == TM_PROBE_STAYS ? i : -1);
            assert_int_equal(tm_probe_looks(&probe, before, after), probe.places[i] == TM_PROBE_LOOKS);
            after[i] = before[i];
            looking += probe.places[i] == TM_PROBE_LOOKS;
            staying += probe.places[i] == TM_PROBE_STAYS;
            free_ones += other;
        }
        tm_probe_fini(&probe);
    }
    assert_true(looking > 20 * 2 && staying > 20 * 16 && free_ones > 20 * 3);
}

/* Adapters, one of the output layer too; DoRA's gradients are those of its paper, and no derivatives. */
static void adapters_are_certified_but_for_dora(void **state)
{
    (void)state;
    for (int dora = 0; dora < 2; dora++) {
        tm_step_options o = test_llama_options();
        o.adapters = (tm_adapters){ .rank = 4, .alpha = 8, .base = TM_DTYPE_COUNT, .place = "test", .dora = dora };
        snprintf(o.adapters.targets, sizeof o.adapters.targets, "%s", dora ? "all-linear" : "all-linear,lm_head");
        tm_certificate c = certify(&o, 1, 20);
        if (dora ? c.done || !strstr(c.reason, "DoRA") : !c.done || !c.gradients) fail_msg("%d: %s", dora, c.reason);
    }
}

/* Every parameter that is to be trained must have a gradient. */
static void a_parameter_without_a_gradient_is_named(void **state)
{
    tm_step_options o = test_llama_options();
    tm_device      *device = test_device_open("cpu", 1);
    tm_trainer     *trainer = test_trainer_open(device, &o, 1);
    test_batch      b = test_batch_random(o.micro_batch, o.seq, o.shape.vocab_size, 1);
    tm_micro_batch  batch = micro_batches(&b);
    tm_graph       *graph = (tm_graph *)(uintptr_t)tm_trainer_step_of(trainer)->graph;
    (void)state;
    for (size_t i = 0; i < graph->n_tensors; i++) {
        tm_tensor     *t = &graph->tensors[i];
        tm_tensor_id   gradient = t->gradient;
        tm_certificate c;
        tm_error       err = { 0 };
        if (t->role != TM_ROLE_PARAMETER) continue;
        t->gradient = TM_NONE;
        if (tm_certify_anew(trainer, &batch, 1, &c, &err) != TM_OK) fail_msg("%s", err.text);
        t->gradient = gradient;
        if (!c.done || c.gradients || !strstr(c.reason, t->name)) fail_msg("%s: %s", t->name, c.reason);
    }
    test_batch_fini(&b);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

static void groups_have_names(void **state)
{
    (void)state;
    static const char *const names[][2] = {
        { "layers.3.attention.wo.weight", "layers.3 attention" },
        { "layers.12.attention_norm.weight", "layers.12 norms" },
        { "layers.12.ffn_norm.weight", "layers.12 norms" },
        { "layers.0.feed_forward.w2.weight", "layers.0 feed_forward" },
        { "h.7.attn.c_proj.bias", "h.7 attn" },
        { "layers.0.moe.router.gate.weight", "layers.0 moe.router" },
        { "layers.0.moe.experts.w13.weight", "layers.0 moe.experts" },
        { "h.7.ln_1.weight", "h.7 norms" },
        { "tok_embeddings.weight", "tok_embeddings" },
        { "output.weight", "output" },
        { "norm.weight", "norm" },
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char group[96];
        tm_motion_group_of(names[i][0], group);
        assert_string_equal(group, names[i][1]);
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    test_threads_sleep(argv);
    const struct CMUnitTest tests[] = { cmocka_unit_test(honest_training_holds),
                                        cmocka_unit_test(a_certified_step_has_the_same_bits),
                                        cmocka_unit_test(probes_say_what_a_loss_may_see),
                                        cmocka_unit_test(adapters_are_certified_but_for_dora),
                                        cmocka_unit_test(a_parameter_without_a_gradient_is_named),
                                        cmocka_unit_test(groups_have_names) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
