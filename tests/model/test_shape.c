/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter counts and FLOPs per token of the presets against the published tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "model/presets.h"
#include "model/shape.h"
#include "support/training.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static void parameter_counts_are_the_published_ones(void **state)
{
    static const struct {
        const char *name;
        int64_t     parameters;
    } table[] = {
        { "gpt-small", 30124416 },       { "gpt-medium", 123972864 },       { "gpt-large", 354102272 },
        { "gpt-xl", 773006080 },         { "gpt-1.5b", 1437307392 },        { "gpt-3b", 2646965760 },
        { "gpt-7b", 5243875328 },        { "gpt-13b", 10120207360 },        { "gpt2-124M", 124439808 },
        { "llama2_70B", 68976648192 },   { "llama3.1_8B", 8030261248 },     { "llama3.1_70B", 70553706496 },
        { "llama3.3_70B", 70553706496 }, { "llama3.1_405B", 405853388800 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        tm_model_shape s = test_shape_preset(table[i].name, NULL);
        if (tm_model_parameters(&s) != table[i].parameters)
            fail_msg("%s: %lld", table[i].name, (long long)tm_model_parameters(&s));
    }
    tm_model_shape s = test_shape_preset("llama3.1_8B", NULL);
    assert_true(tm_model_parameters_layer(&s) == 218112000);
    assert_true(tm_model_parameters_embedding(&s) == 525336576);
    assert_true(tm_model_parameters_matmul(&s) == 7504658432);
    s = test_shape_preset("llama3.1_70B", NULL);
    assert_true(tm_model_parameters_layer(&s) == 855654400 && tm_model_parameters_matmul(&s) == 69501714432);
    s = test_shape_preset("llama3.1_405B", NULL);
    assert_true(tm_model_parameters_layer(&s) == 3187703808 && tm_model_parameters_matmul(&s) == 403747897344);
    s = test_shape_preset("llama2_70B", NULL);
    assert_true(tm_model_parameters_embedding(&s) == 262144000 && tm_model_parameters_matmul(&s) == 68713185280);
}

/* Four significant digits, as printed in the table of reference models (in units of 1e9). */
static void assert_digits(const char *name, double value, double wanted, double unit)
{
    if (!(fabs(value - wanted) <= unit)) fail_msg("%s: %.6g, wanted %.6g", name, value, wanted);
}

static void reference_models_have_their_printed_values(void **state)
{
    static const struct {
        const char *name;
        double      parameters; /* 1e9 */
        int64_t     seq;
        double      gflop; /* per token, titan */
    } table[] = {
        { "llama3.2_1B", 1.236, 8192, 10.64 },       { "llama3.2_3B", 3.213, 8192, 27.73 },
        { "llama2_7B", 6.738, 4096, 46.09 },         { "llama2_13B", 13.016, 4096, 87.18 },
        { "llama2_70B", 68.977, 4096, 444.50 },      { "llama3.1_8B", 8.030, 8192, 57.91 },
        { "llama3.1_8B", 8.030, 4096, 51.47 },       { "llama3.1_70B", 70.554, 8192, 481.44 },
        { "llama3.1_405B", 405.853, 8192, 2625.45 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        tm_model_shape s = test_shape_preset(table[i].name, NULL);
        assert_digits(table[i].name, (double)tm_model_parameters(&s) / 1e9, table[i].parameters, 0.00051);
        assert_digits(table[i].name, tm_model_flops_per_token(&s, TM_FLOPS_TITAN, table[i].seq) / 1e9, table[i].gflop,
                      0.0051);
    }
}

static void conventions_give_the_printed_values(void **state)
{
    static const struct {
        const char *name;
        int64_t     seq;
        double      titan, matmul, megatron;
    } table[] = {
        { "llama3.1_8B", 4096, 5.14720e10, 5.14704e10, 4.82493e10 },
        { "llama3.1_8B", 8192, 5.79144e10, 5.79128e10, 5.14704e10 },
        { "llama3.1_70B", 4096, 4.49230e11, 4.49222e11, 4.33116e11 },
        { "llama3.3_70B", 8192, 4.81443e11, 4.81435e11, 4.49222e11 },
        { "llama3.1_405B", 8192, 2.62545e12, 2.62542e12, 2.52396e12 },
        { "llama2_70B", 4096, 4.44500e11, 4.44492e11, 4.28385e11 },
        { "llama2_70B", 8192, 4.76712e11, 4.76704e11, 4.44492e11 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        tm_model_shape s = test_shape_preset(table[i].name, NULL);
        /* one and a third of the last digit: the table cuts some digits instead of rounding them */
        double unit = pow(10, floor(log10(table[i].titan)) - 5) * 1.3;
        assert_digits("titan", tm_model_flops_per_token(&s, TM_FLOPS_TITAN, table[i].seq), table[i].titan, unit);
        assert_digits("matmul", tm_model_flops_per_token(&s, TM_FLOPS_MATMUL, table[i].seq), table[i].matmul, unit);
        assert_digits("megatron", tm_model_flops_per_token(&s, TM_FLOPS_MEGATRON, table[i].seq), table[i].megatron,
                      unit);
        double half = tm_model_flops_per_token(&s, TM_FLOPS_EXACT_CAUSAL, table[i].seq);
        double own = 6 * (double)s.n_layers * (double)(s.n_heads * s.head_dim); /* a token sees itself, too */
        assert_digits("exact-causal", half, tm_model_flops_per_token(&s, TM_FLOPS_MEGATRON, table[i].seq) + own, 1);
    }
}

/* The GPT table: TFLOPS by 6 N, and with attention counted causally or in full. */
static void gpt_table_has_its_tflops(void **state)
{
    static const struct {
        const char *name;
        double      rate, six, causal, full;
    } table[] = {
        { "gpt-small", 950586, 171.8, 178.5, 185.3 }, { "gpt-medium", 298957, 222.4, 230.8, 239.3 },
        { "gpt-large", 107626, 228.7, 236.8, 244.9 }, { "gpt-xl", 40054, 185.8, 191.4, 197.1 },
        { "gpt-3b", 11980, 190.3, 193.3, 196.3 },     { "gpt-7b", 18381, 578.3, 593.1, 607.9 },
        { "gpt-13b", 7941, 482.2, 492.2, 502.2 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        tm_model_shape s = test_shape_preset(table[i].name, NULL);
        double         tera = table[i].rate / 1e12;
        assert_digits(table[i].name, tera * tm_model_flops_per_token(&s, TM_FLOPS_6N, s.max_seq_len), table[i].six,
                      0.051);
        assert_digits(table[i].name, tera * tm_model_flops_per_token(&s, TM_FLOPS_LLMC, s.max_seq_len), table[i].causal,
                      0.051);
        assert_digits(table[i].name, tera * tm_model_flops_per_token(&s, TM_FLOPS_NANOGPT, s.max_seq_len),
                      table[i].full, 0.051);
    }
    assert_string_equal(tm_flops_convention_name(TM_FLOPS_LLMC), "llm.c");
    assert_string_equal(tm_flops_convention_name(TM_FLOPS_EXACT_CAUSAL), "exact-causal");
}

static void every_dimension_is_a_key(void **state)
{
    (void)state;
    tm_model_shape s =
        test_shape_preset("gpt-medium", "model.vocab_size=50304 model.bias=all num_layers=3 model.tied=false "
                               "model.n_kv_heads=4 model.head_dim=32 model.ffn_dim=100 model.max_seq_len=600");
    assert_true(s.n_layers == 3 && s.vocab_size == 50304 && s.n_kv_heads == 4 && s.head_dim == 32 && !s.tied);
    int64_t attention = 768 * 32 * (12 + 12 + 4 + 4) + 32 * (12 + 4 + 4) + 768, ffn = 2 * 768 * 100 + 100 + 768;
    assert_true(tm_model_parameters(&s) == 3 * (attention + ffn + 4 * 768) + 2 * 50304 * 768 + 600 * 768 + 2 * 768);
    s = test_shape_preset("tiny-llama",
                 "model.ffn_dim=null model.n_kv_heads=null model.norm_eps=1e-6 model.rope_layout=interleaved");
    assert_true(s.ffn_dim == 768 && s.n_kv_heads == 4 && s.rope_interleaved && !s.rope_scaled &&
                s.bias == TM_BIAS_NONE);
    assert_int_equal(s.init, TM_INIT_TORCHTITAN);
    assert_float_equal(s.norm_eps, 1e-6, 0);
    s = test_shape_preset("llama3.2_1B", NULL);
    assert_true(s.tied && s.rope_scaled && s.rope_original_max_seq_len == 8192);
    assert_int_equal(s.init, TM_INIT_HF);
    assert_true(tm_model_max_length(&s) == INT64_MAX); /* rotary positions do not end */
    assert_float_equal(s.rope_scaling_factor, 32, 0);
    assert_float_equal(s.rope_theta, 500000, 0);
    assert_true(tm_model_parameters_embedding(&s) == 0); /* the table is the head, too */
    s = test_shape_preset("gpt2-124M", NULL);
    assert_true(tm_model_parameters_embedding(&s) == 1024 * 768);
    assert_int_equal(s.init, TM_INIT_GPT2);
    assert_true(tm_model_max_length(&s) == 1024); /* a table of positions does */
}

static void every_preset_is_whole(void **state)
{
    size_t           n;
    const tm_preset *presets = tm_model_presets(&n);
    (void)state;
    assert_int_equal(n, 19);
    for (size_t i = 0; i < n; i++) {
        tm_model_shape s = test_shape_preset(presets[i].name, NULL);
        assert_true(tm_model_parameters(&s) > 0 && s.head_dim * s.n_heads == s.dim);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parameter_counts_are_the_published_ones),
        cmocka_unit_test(reference_models_have_their_printed_values),
        cmocka_unit_test(conventions_give_the_printed_values),
        cmocka_unit_test(gpt_table_has_its_tflops),
        cmocka_unit_test(every_dimension_is_a_key),
        cmocka_unit_test(every_preset_is_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
