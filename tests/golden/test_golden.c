/* SPDX-License-Identifier: Apache-2.0 */
/* The whole chain - builder, gradient, passes, plan, kernels, optimizer - against the golden numbers of the tiny
 * models. */
#include "support/golden.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

typedef struct {
    const char *name;
    double      norm;
} golden_row;

/* Numbers of an independent float64 implementation (scalar automatic differentiation, gradients confirmed by central
 * differences). */
static const golden_row llama_rows[] = {
    { "model.embed_tokens.weight", 3.190848840e+00 },
    { "model.layers.0.input_layernorm.weight", 4.810478820e-01 },
    { "model.layers.0.self_attn.q_proj.weight", 1.327113125e+00 },
    { "model.layers.0.self_attn.k_proj.weight", 1.247751422e+00 },
    { "model.layers.0.self_attn.v_proj.weight", 2.600877525e+00 },
    { "model.layers.0.self_attn.o_proj.weight", 2.911049054e+00 },
    { "model.layers.0.post_attention_layernorm.weight", 2.676383610e-01 },
    { "model.layers.0.mlp.gate_proj.weight", 1.105271800e+00 },
    { "model.layers.0.mlp.up_proj.weight", 1.948314230e+00 },
    { "model.layers.0.mlp.down_proj.weight", 1.236095741e+00 },
    { "model.layers.1.input_layernorm.weight", 2.161994959e-01 },
    { "model.layers.1.self_attn.q_proj.weight", 2.791603927e-01 },
    { "model.layers.1.self_attn.k_proj.weight", 2.650838703e-01 },
    { "model.layers.1.self_attn.v_proj.weight", 1.446805764e+00 },
    { "model.layers.1.self_attn.o_proj.weight", 1.137993618e+00 },
    { "model.layers.1.post_attention_layernorm.weight", 1.433045241e-01 },
    { "model.layers.1.mlp.gate_proj.weight", 7.384278947e-01 },
    { "model.layers.1.mlp.up_proj.weight", 7.488415206e-01 },
    { "model.layers.1.mlp.down_proj.weight", 6.721704272e-01 },
    { "model.norm.weight", 2.011430221e-01 },
    { "lm_head.weight", 1.530961730e+00 },
};
static const golden_row gpt2_rows[] = {
    { "wte.weight", 1.841617248e+00 },
    { "wpe.weight", 9.807252136e-01 },
    { "h.0.ln_1.weight", 1.744236801e-01 },
    { "h.0.ln_1.bias", 2.799633894e-01 },
    { "h.0.attn.c_attn.weight", 1.093753227e+00 },
    { "h.0.attn.c_attn.bias", 4.234313819e-01 },
    { "h.0.attn.c_proj.weight", 9.706051158e-01 },
    { "h.0.attn.c_proj.bias", 6.546380881e-01 },
    { "h.0.ln_2.weight", 1.763550204e-01 },
    { "h.0.ln_2.bias", 2.079058615e-01 },
    { "h.0.mlp.c_fc.weight", 1.078287867e+00 },
    { "h.0.mlp.c_fc.bias", 2.863289351e-01 },
    { "h.0.mlp.c_proj.weight", 9.351290981e-01 },
    { "h.0.mlp.c_proj.bias", 3.663720225e-01 },
    { "h.1.ln_1.weight", 9.872258278e-02 },
    { "h.1.ln_1.bias", 1.269736359e-01 },
    { "h.1.attn.c_attn.weight", 8.009056270e-01 },
    { "h.1.attn.c_attn.bias", 2.145412166e-01 },
    { "h.1.attn.c_proj.weight", 5.359072078e-01 },
    { "h.1.attn.c_proj.bias", 3.336349269e-01 },
    { "h.1.ln_2.weight", 9.786664296e-02 },
    { "h.1.ln_2.bias", 1.080562173e-01 },
    { "h.1.mlp.c_fc.weight", 6.609772537e-01 },
    { "h.1.mlp.c_fc.bias", 1.858462490e-01 },
    { "h.1.mlp.c_proj.weight", 8.138505385e-01 },
    { "h.1.mlp.c_proj.bias", 2.733063530e-01 },
    { "ln_f.weight", 2.676295792e-01 },
    { "ln_f.bias", 2.856055604e-01 },
};

static void close_to(const char *what, double value, double wanted, double relative)
{
    double error = fabs(value - wanted) / fabs(wanted);
    if (!(error <= relative))
        fail_msg("%s: %.12g, wanted %.12g, relative error %.3g > %g", what, value, wanted, error, relative);
}

static tm_trainer *open_trainer(tm_device *device, const tm_step_options *options)
{
    tm_trainer *trainer;
    tm_error    err = { 0 };
    if (tm_trainer_open(device, options, 1, &trainer, &err) != TM_OK) fail_msg("%s", err.text);
    golden_fill(trainer);
    return trainer;
}

static void step(tm_trainer *trainer, int64_t t, int vocab, tm_step_result *result)
{
    int32_t tokens[64];
    int     n = (int)tm_trainer_step_of(trainer)->options.seq;
    golden_tokens(tokens, n + 1, vocab);
    tm_trainer_begin(trainer, t, 1e-2, 1.0, n);
    tm_trainer_accumulate(trainer, 0, &(tm_micro_batch){ { tokens, tokens + 1 }, n }, NULL);
    tm_trainer_update(trainer, result, NULL);
}

/* `row_error`: of single gradient norms, printed to ten digits. */
static void check_gradients(tm_trainer *trainer, const golden_row *rows, size_t n, double relative)
{
    const tm_graph *graph = tm_trainer_step_of(trainer)->graph;
    size_t          found = 0;
    for (size_t t = 0; t < graph->n_tensors; t++) {
        const tm_tensor *tensor = &graph->tensors[t];
        if (tensor->role != TM_ROLE_PARAMETER) continue;
        for (int p = 0; p < tensor->n_pieces; p++)
            for (size_t r = 0; r < n; r++) {
                char name[160];
                if (strcmp(rows[r].name, golden_public_name(tensor->pieces[p].name, name)) != 0) continue;
                close_to(rows[r].name, golden_gradient_norm(trainer, tensor, &tensor->pieces[p]), rows[r].norm,
                         relative);
                found++;
            }
    }
    assert_int_equal(found, n);
}

static void run_llama(const char *device_name, const tm_precision *precision, tm_recompute recompute, double loss_error,
                      double norm_error, double step_error)
{
    static const double steps[4][2] = { { 4.1778057338, 6.5675591650 }, { 3.1618970081, 3.3406200461 },
                                        { 2.3078850218, 4.0255799563 }, { 1.6095063559, 2.6568186705 } };
    tm_device *device;
    tm_error   err = { 0 };
    assert_int_equal(tm_device_open(device_name, 2, &device, &err), TM_OK);
    tm_step_options options = golden_llama_options(precision);
    options.recompute = recompute;
    tm_trainer    *trainer = open_trainer(device, &options);
    tm_step_result result;
    assert_int_equal(tm_model_parameters(&options.shape), 19616);
    for (int t = 0; t < 4; t++) {
        step(trainer, t + 1, 64, &result);
        if (t == 0) {
            check_gradients(trainer, llama_rows, sizeof llama_rows / sizeof llama_rows[0], norm_error);
            close_to("loss", result.loss, 4.177805733845, loss_error);
            close_to("norm", result.grad_norm, 6.567559164951, norm_error);
        }
        close_to("loss of a step", result.loss, steps[t][0], step_error);
        close_to("norm of a step", result.grad_norm, steps[t][1], step_error > norm_error ? step_error : norm_error);
    }
    tm_trainer_close(trainer);
    tm_device_close(device);
}

static void run_gpt2(const char *device_name, const tm_precision *precision, tm_recompute recompute, double loss_error,
                     double norm_error)
{
    tm_device *device;
    tm_error   err = { 0 };
    assert_int_equal(tm_device_open(device_name, 2, &device, &err), TM_OK);
    tm_step_options options = golden_gpt2_options(precision);
    options.recompute = recompute;
    tm_trainer    *trainer = open_trainer(device, &options);
    tm_step_result result;
    assert_int_equal(tm_model_parameters(&options.shape), 7232);
    step(trainer, 1, 32, &result);
    close_to("loss", result.loss, 3.588928801722, loss_error);
    close_to("norm", result.grad_norm, 3.468557124009, norm_error);
    check_gradients(trainer, gpt2_rows, sizeof gpt2_rows / sizeof gpt2_rows[0], norm_error);
    tm_trainer_close(trainer);
    tm_device_close(device);
}

static const tm_recompute keep_all = { 0 }, cheap = { .cheap = true }, full = { .cheap = true, .every_n = 1 },
                          second = { .every_n = 2 };

static void test_llama_double(void **state)
{
    (void)state;
    run_llama("reference", &tm_precision_f64, keep_all, 1e-9, 1e-9, 1e-9);
    run_llama("reference", &tm_precision_f64, full, 1e-9, 1e-9, 1e-9);
    run_llama("reference", &tm_precision_f64, second, 1e-9, 1e-9, 1e-9);
}

static void test_llama_float32(void **state)
{
    (void)state;
    run_llama("cpu", &tm_precision_f32, cheap, 1e-5, 1e-4, 1e-4);
    run_llama("cpu", &tm_precision_f32, full, 1e-5, 1e-4, 1e-4);
}

static void test_llama_bfloat16(void **state)
{
    (void)state;
    run_llama("cpu", &tm_precision_bf16, cheap, 1e-2, 5e-2, 5e-2);
}

static void test_gpt2_double(void **state)
{
    (void)state;
    run_gpt2("reference", &tm_precision_f64, cheap, 1e-9, 1e-9);
    run_gpt2("reference", &tm_precision_f64, second, 1e-9, 1e-9);
}

static void test_gpt2_float32(void **state)
{
    (void)state;
    run_gpt2("cpu", &tm_precision_f32, cheap, 1e-5, 1e-4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_llama_double),   cmocka_unit_test(test_llama_float32),
        cmocka_unit_test(test_llama_bfloat16), cmocka_unit_test(test_gpt2_double),
        cmocka_unit_test(test_gpt2_float32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
