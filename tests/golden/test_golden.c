/* SPDX-License-Identifier: Apache-2.0 */
/* The whole chain - builder, gradient, passes, plan, kernels, optimizer - against the golden numbers of the tiny models
 * (golden.txt). */
#include "support/golden.h"
#include "support/training.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "support/test.h"

static const tm_recompute keep_all = { 0 }, cheap = { .cheap = true }, full = { .cheap = true, .every_n = 1 },
                          second = { .every_n = 2 };

static tm_trainer *open_trainer(tm_device *device, const tm_step_options *options)
{
    tm_trainer *trainer;
    tm_error    err = { 0 };
    if (tm_trainer_open(device, options, 1, &trainer, &err) != TM_OK) fail_msg("%s", err.text);
    golden_fill(trainer);
    return trainer;
}

/* Step t on the model's tokens, at learning rate 1e-2, gradients clipped to 1. */
static tm_step_result step(tm_trainer *trainer, int64_t t)
{
    const tm_step_options *o = &tm_trainer_step_of(trainer)->options;
    int32_t                tokens[64];
    int                    n = (int)o->seq;
    golden_tokens(tokens, n + 1, (int)o->shape.vocab_size);
    test_begin(trainer, t, 1e-2, 1.0, n);
    test_accumulate(trainer, 0, tokens, tokens + 1);
    return test_update(trainer);
}

typedef struct {
    const char         *device;
    const tm_precision *precision;
    double              loss_error, norm_error;
} arithmetic;

/* The last printed digits, and as far as the others carry. */
static const arithmetic exact = { "reference", &tm_precision_f64, 1e-9, 1e-9 };
static const arithmetic single = { "cpu", &tm_precision_f32, 1e-5, 1e-4 };
static const arithmetic half = { "cpu", &tm_precision_bf16, 1e-2, 5e-2 };

/* One step of a language against its numbers. */
static void run(const char *name, tm_step_options (*options_of)(const tm_precision *precision), const arithmetic *in,
                tm_recompute recompute)
{
    golden_numbers  wanted = golden_read(name);
    tm_device      *device;
    tm_error        err = { 0 };
    tm_step_options options = options_of(in->precision);
    options.recompute = recompute;
    assert_int_equal(tm_device_open(in->device, 2, &device, &err), TM_OK);
    tm_trainer *trainer = open_trainer(device, &options);
    assert_int_equal(tm_model_parameters(&options.shape), wanted.parameters);
    tm_step_result result = step(trainer, 1);
    golden_close("loss", result.loss, wanted.loss, in->loss_error);
    golden_close("norm", result.grad_norm, wanted.norm, in->norm_error);
    golden_check_gradients(trainer, &wanted, in->norm_error);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

/* Four steps: the optimizer, too. */
static void run_steps(const char *device_name, const tm_precision *precision, double error)
{
    static const double steps[4][2] = { { 4.1778057338, 6.5675591650 },
                                        { 3.1618970081, 3.3406200461 },
                                        { 2.3078850218, 4.0255799563 },
                                        { 1.6095063559, 2.6568186705 } };
    tm_device          *device;
    tm_error            err = { 0 };
    assert_int_equal(tm_device_open(device_name, 2, &device, &err), TM_OK);
    tm_step_options options = golden_llama_options(precision);
    options.recompute = cheap;
    tm_trainer *trainer = open_trainer(device, &options);
    for (int t = 0; t < 4; t++) {
        tm_step_result result = step(trainer, t + 1);
        golden_close("loss of a step", result.loss, steps[t][0], error);
        golden_close("norm of a step", result.grad_norm, steps[t][1], error);
    }
    tm_trainer_close(trainer);
    tm_device_close(device);
}

TEST(llama)
{
    run("llama-tiny", golden_llama_options, &exact, keep_all);
    run("llama-tiny", golden_llama_options, &exact, full);
    run("llama-tiny", golden_llama_options, &exact, second);
    run("llama-tiny", golden_llama_options, &single, cheap);
    run("llama-tiny", golden_llama_options, &single, full);
    run("llama-tiny", golden_llama_options, &half, cheap);
}

TEST(llama_steps)
{
    run_steps("reference", &tm_precision_f64, 1e-9);
    run_steps("cpu", &tm_precision_f32, 1e-4);
    run_steps("cpu", &tm_precision_bf16, 8e-2); /* Adam's first steps go by signs: small gradients decide */
}

TEST(gpt2)
{
    run("gpt2-tiny", golden_gpt2_options, &exact, cheap);
    run("gpt2-tiny", golden_gpt2_options, &exact, second);
    run("gpt2-tiny", golden_gpt2_options, &single, cheap);
}

TEST(mistral)
{
    run("mistral-tiny", golden_mistral_options, &exact, cheap);
    run("mistral-tiny", golden_mistral_options, &single, cheap);
}

TEST(qwen3)
{
    run("qwen3-tiny", golden_qwen3_options, &exact, keep_all);
    run("qwen3-tiny", golden_qwen3_options, &exact, full);
    run("qwen3-tiny", golden_qwen3_options, &single, cheap);
}

/* One image whose time, noise and texts are given. */
static void run_flux(const arithmetic *in, tm_recompute recompute)
{
    golden_numbers  wanted = golden_read("flux-tiny");
    tm_step_options options = golden_flux_options(in->precision);
    tm_device      *device;
    tm_error        err = { 0 };
    float           noisy[48], velocity[48], time = 0.75f, text[36], pooled[6];
    tm_step_result  result;
    for (uint32_t i = 0; i < 48; i++) {
        double x0 = golden_unit("x0", i), noise = 2 * golden_unit("noise", i); /* exact in float32, all of it */
        noisy[i] = (float)(0.25 * x0 + 0.75 * noise);
        velocity[i] = (float)(noise - x0);
    }
    for (uint32_t i = 0; i < 36; i++) text[i] = (float)golden_unit("txt", i);
    for (uint32_t i = 0; i < 6; i++) pooled[i] = (float)golden_unit("pooled", i);
    options.recompute = recompute;
    assert_int_equal(tm_device_open(in->device, 2, &device, &err), TM_OK);
    tm_trainer    *trainer = open_trainer(device, &options);
    tm_micro_batch batch = { .field = { noisy, velocity, &time, text, pooled } };
    assert_int_equal(tm_model_parameters(&options.shape), wanted.parameters);
    test_begin(trainer, 1, 1e-2, 1.0, 48);
    if (tm_trainer_step(trainer, &batch, &result, NULL, &err) != TM_OK) fail_msg("%s", err.text);
    golden_close("loss", result.loss, wanted.loss, in->loss_error);
    golden_close("norm", result.grad_norm, wanted.norm, in->norm_error);
    golden_check_gradients(trainer, &wanted, in->norm_error);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

TEST(flux)
{
    run_flux(&exact, keep_all);
    run_flux(&exact, full);
    run_flux(&single, cheap);
}
