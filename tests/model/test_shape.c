/* SPDX-License-Identifier: Apache-2.0 */
/* Parameter counts and FLOPs per token of the presets against the published tables. */
#include "support/test.h"

#include "model/presets.h"
#include "model/shape.h"
#include "support/training.h"

TEST(parameter_counts_are_the_published_ones)
{
    static const struct {
        const char *name;
        int64_t     parameters;
    } table[] = {
        { "gpt-small", 30124416 },       { "gpt-medium", 123972864 },       { "gpt-large", 354102272 },
        { "gpt-xl", 773006080 },         { "gpt-1.5b", 1437307392 },        { "gpt-3b", 2646965760 },
        { "gpt-7b", 5243875328 },        { "gpt-13b", 10120207360 },        { "gpt2-124M", 124439808 },
        { "llama2_70B", 68976648192 },   { "llama3.1_8B", 8030261248 },     { "llama3.1_70B", 70553706496 },
        { "llama3.3_70B", 70553706496 }, { "llama3.1_405B", 405853388800 }, { "llama3_8B", 8030261248 },
        { "llama3_70B", 70553706496 },   { "mistral_7B", 7241732096 },      { "mistral_7B_v0.3", 7248023552 },
        { "qwen2.5_0.5B", 494032768 },   { "qwen2.5_1.5B", 1543714304 },    { "qwen2.5_3B", 3085938688 },
        { "qwen2.5_7B", 7615616512 },    { "qwen2.5_14B", 14770033664 },    { "qwen2.5_32B", 32763876352 },
        { "qwen2.5_72B", 72706203648 },  { "qwen3_0.6B", 596049920 },       { "qwen3_1.7B", 1720574976 },
        { "qwen3_4B", 4022468096 },      { "qwen3_8B", 8190735360 },        { "flux.1_dev", 11901408320 },
        { "flux_12b", 11891178560 },     { "flux_535m", 535318336 },        { "qwen3_14B", 14768307200 },
        { "qwen3_32B", 32762123264 },
    };
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

/* All parameters, and those that a token uses. */
TEST(experts_count_as_published)
{
    static const struct {
        const char *name;
        int64_t     parameters, active;
    } table[] = {
        { "mixtral_8x7B", 46702792704, 12879925248 },      { "mixtral_8x22B", 140620634112, 39152031744 },
        { "qwen3_30B-A3B", 30532122624, 3353032704 },      { "qwen3_235B-A22B", 235093634560, 22190763520 },
        { "gpt_oss_20B", 20914757184, 4187440704 },        { "gpt_oss_120B", 116829156672, 5711982912 },
        { "deepseek_v2_lite", 15706484224, 2661150208 },   { "deepseek_v3_16B", 15706484224, 2661150208 },
        { "deepseek_v2", 235741434880, 21375800320 },      { "deepseek_v3", 671026404352, 37552282624 },
        { "deepseek_v3_236B", 235741434880, 21375800320 },
    };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        tm_model_shape s = test_shape_preset(table[i].name, NULL);
        if (tm_model_parameters(&s) != table[i].parameters || tm_model_parameters_active(&s) != table[i].active)
            fail_msg("%s: %lld, %lld active", table[i].name, (long long)tm_model_parameters(&s),
                     (long long)tm_model_parameters_active(&s));
    }
    tm_model_shape s = test_shape_preset("deepseek_v2_lite", NULL);
    assert_true(tm_model_parameters_layer(&s) == 81007104);
    assert_true(fabs(tm_model_flops_per_token(&s, TM_FLOPS_TITAN, 4096) - 1.81060e10) < 0.00001e10);
    assert_true(fabs(tm_model_flops_per_token(&s, TM_FLOPS_MEGATRON, 4096) - 1.63861e10) < 0.00002e10);
    assert_true(fabs(tm_model_flops_per_token(&s, TM_FLOPS_TITAN, 8192) - 2.15034e10) < 0.00001e10);
}

/* Frequencies, the factor of cosines and sines, and the scale of scores, as printed with the models. */
TEST(yarn_stretches_as_published)
{
    tm_model_shape s = test_shape_preset("deepseek_v2_lite", NULL);
    const double   lite[][2] = { { 8, 1e-1 }, { 12, 2.687936011e-02 }, { 16, 5.5e-3 }, { 31, 3.333803580e-06 } };
    for (int i = 0; i < 4; i++)
        assert_true(fabs(tm_model_rope_frequency(&s, (int64_t)lite[i][0], 1) / lite[i][1] - 1) < 1e-9);
    s = test_shape_preset("gpt_oss_20B", NULL);
    const double oss[][2] = { { 8, 5.081327482e-02 }, { 12, 6.794959490e-03 }, { 31, 3.023511428e-07 } };
    for (int i = 0; i < 3; i++)
        assert_true(fabs(tm_model_rope_frequency(&s, (int64_t)oss[i][0], 1) / oss[i][1] - 1) < 1e-9);
}

/* Four significant digits, as printed in the table of reference models (in units of 1e9). */
static void assert_digits(const char *name, double value, double wanted, double unit)
{
    if (!(fabs(value - wanted) <= unit)) fail_msg("%s: %.6g, wanted %.6g", name, value, wanted);
}

TEST(conventions_give_the_printed_values)
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
        { "qwen3_8B", 8192, 5.99059e10, 5.99041e10, 5.26563e10 },
    };
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
TEST(gpt_table_has_its_tflops)
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

/* A window of keys: Mistral at its own, and at the 1024 that a published throughput table counts with. */
TEST(a_window_counts_its_keys)
{
    tm_model_shape s = test_shape_preset("mistral_7B", NULL);
    assert_digits("titan", tm_model_flops_per_token(&s, TM_FLOPS_TITAN, 8192), 5.55489e10, 1e5);
    assert_digits("megatron", tm_model_flops_per_token(&s, TM_FLOPS_MEGATRON, 8192), 4.91048e10, 1e5);
    assert_digits("exact", tm_model_flops_per_token(&s, TM_FLOPS_EXACT_CAUSAL, 8192), 4.74946e10, 1e5);
    double matmul = 6 * (double)tm_model_parameters_matmul(&s), key = 12.0 * 32 * 4096;
    assert_true(tm_model_flops_per_token(&s, TM_FLOPS_MATMUL, 8192) == matmul + key * 4096.0);
    assert_true(tm_model_flops_per_token(&s, TM_FLOPS_MATMUL, 2048) == matmul + key * 2048);
    assert_true(tm_model_flops_per_token(&s, TM_FLOPS_EXACT_CAUSAL, 4096) == matmul + key * 4097 / 2);
    s = test_shape_preset("mistral_7B", "model.sliding_window=1024");
    assert_digits("matmul", tm_model_flops_per_token(&s, TM_FLOPS_MATMUL, 8192), 4.42730e10, 1e5);
}

/* TFLOP of an image, forward and backward. */
TEST(images_have_their_printed_flops)
{
    static const struct {
        const char *name, *more;
        double      tera;
    } table[] = { { "flux_12b", NULL, 20.420 },
                  { "flux_dev", NULL, 31.043 },
                  { "flux.1_dev", NULL, 64.508 },
                  { "flux.1_dev", "model.image_size=1024", 223.154 } };
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        tm_model_shape s = test_shape_preset(table[i].name, table[i].more);
        double         tokens = (double)tm_model_length(&s);
        /* the table counts a guidance embedder, 0.1 GFLOP, for all of them */
        assert_digits(table[i].name,
                      tokens * tm_model_flops_per_token(&s, TM_FLOPS_EXACT_CAUSAL, (int64_t)tokens) / 1e12,
                      table[i].tera, 0.00061);
    }
}

/* What families imply. */
TEST(families_have_their_options)
{
    static const struct {
        const char     *preset, *more;
        tm_model_family family;
        int             window, qk_norm, tied;
        tm_model_bias   bias;
        int             init; /* -1: not said */
        int64_t         longest;
    } rows[] = {
        { "mistral_7B_v0.1", NULL, TM_FAMILY_MISTRAL, 4096, 0, 0, TM_BIAS_NONE, -1, INT64_MAX },
        { "Qwen2-7B", NULL, TM_FAMILY_QWEN2, 0, 0, 0, TM_BIAS_QKV, -1, INT64_MAX },
        { "qwen3_0.6b", NULL, TM_FAMILY_QWEN3, 0, 1, 1, TM_BIAS_NONE, -1, INT64_MAX },
        { "llama3.2_1B", NULL, TM_FAMILY_LLAMA, 0, 0, 1, TM_BIAS_NONE, TM_INIT_HF, INT64_MAX },
        { "tiny-llama", NULL, TM_FAMILY_LLAMA, 0, 0, 0, TM_BIAS_NONE, TM_INIT_TORCHTITAN, INT64_MAX },
        { "tiny-llama", "model.qk_norm=true model.sliding_window=16 model.bias=qkv", TM_FAMILY_LLAMA, 16, 1, 0,
          TM_BIAS_QKV, TM_INIT_TORCHTITAN, INT64_MAX },
        { "gpt2-124M", NULL, TM_FAMILY_GPT, 0, 0, 1, TM_BIAS_ALL, TM_INIT_GPT2, 1024 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_model_shape s = test_shape_preset(rows[i].preset, rows[i].more);
        assert_true(s.family == rows[i].family && s.window == rows[i].window && s.bias == rows[i].bias);
        if (s.qk_norm != rows[i].qk_norm || s.tied != rows[i].tied ||
            (rows[i].init >= 0 && (int)s.init != rows[i].init))
            fail_msg("%s: %d %d %d", rows[i].preset, s.qk_norm, s.tied, (int)s.init);
        assert_true(tm_model_max_length(&s) == rows[i].longest);
    }
}

/* The number of a pair "key=number" of a preset; 0: it has none. */
static int64_t said_by(const tm_preset *preset, const char *key)
{
    for (const char *const *pair = preset->pairs; *pair; pair++)
        if (strncmp(*pair, key, strlen(key)) == 0) return atoll(*pair + strlen(key));
    return 0;
}

TEST(every_preset_is_whole)
{
    size_t           n;
    const tm_preset *presets = tm_model_presets(&n);
    assert_true(n >= 37);
    for (size_t i = 0; i < n; i++) {
        tm_model_shape s = test_shape_preset(presets[i].name, NULL);
        assert_true(tm_model_parameters(&s) > 0);
        const int64_t seq = said_by(&presets[i], "training.seq_len="),
                      most = said_by(&presets[i], "model.max_seq_len=");
        if (seq) assert_true(seq > said_by(&presets[i], "training.local_batch_size=") && (!most || seq <= most));
    }
}
