/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of the tiny models with experts: loss and every gradient against their golden numbers; what is refused. */
#include "hf/numerics.h"
#include "hf/source.h"
#include "support/refusal.h"
#include "support/folder.h"
#include "support/full_config.h"
#include "support/golden.h"
#include "support/hf_folder.h"

#include <stdio.h>
#include <string.h>

#include "support/test.h"

#define DEEPSEEK                                                                                                       \
    "\"model_type\": \"deepseek_v2\", \"architectures\": [\"DeepseekV2ForCausalLM\"], \"vocab_size\": 64, "            \
    "\"hidden_size\": 32, \"intermediate_size\": 48, \"num_hidden_layers\": 2, \"num_attention_heads\": 2, "           \
    "\"num_key_value_heads\": 2, \"kv_lora_rank\": 16, \"q_lora_rank\": null, \"qk_nope_head_dim\": 8, "               \
    "\"qk_rope_head_dim\": 4, \"v_head_dim\": 8, \"n_routed_experts\": 8, \"num_experts_per_tok\": 3, "                \
    "\"moe_intermediate_size\": 12, \"n_shared_experts\": 2, \"first_k_dense_replace\": 1, \"norm_topk_prob\": "       \
    "false, "                                                                                                          \
    "\"routed_scaling_factor\": 1.0, \"topk_method\": \"greedy\", \"scoring_func\": \"softmax\", \"n_group\": 1, "     \
    "\"topk_group\": 1, \"rms_norm_eps\": 1e-06, \"rope_theta\": 10000, \"rope_scaling\": {\"type\": \"yarn\", "       \
    "\"factor\": 40, \"original_max_position_embeddings\": 16, \"beta_fast\": 32, \"beta_slow\": 1, "                  \
    "\"mscale\": 0.707, \"mscale_all_dim\": 0.707}, \"seq_aux\": true"
#define GPT_OSS                                                                                                        \
    "\"model_type\": \"gpt_oss\", \"architectures\": [\"GptOssForCausalLM\"], \"vocab_size\": 64, "                    \
    "\"hidden_size\": 32, \"intermediate_size\": 16, \"num_hidden_layers\": 2, \"num_attention_heads\": 4, "           \
    "\"num_key_value_heads\": 2, \"head_dim\": 8, \"num_local_experts\": 4, \"num_experts_per_tok\": 2, "              \
    "\"sliding_window\": 4, \"rms_norm_eps\": 1e-05, \"rope_theta\": 150000, \"rope_scaling\": {\"rope_type\": "       \
    "\"yarn\", \"factor\": 32.0, \"original_max_position_embeddings\": 16, \"beta_fast\": 32.0, \"beta_slow\": 1.0, "  \
    "\"truncate\": false}, \"layer_types\": [\"sliding_attention\", \"full_attention\"], \"swiglu_limit\": 7.0, "      \
    "\"router_aux_loss_coef\": 0.9"

static double gradient_of(const tm_numerics *n, const char *name)
{
    for (size_t i = 0; i < n->n_gradients; i++)
        if (strcmp(n->gradients[i].name, name) == 0) return n->gradients[i].norm;
    fail_msg("no gradient of %s", name);
    return 0;
}

static tm_numerics compute(const char *device, const tm_precision *precision, test_hf_model *model)
{
    tm_numerics n;
    tm_error    err = { 0 };
    int32_t     tokens[13];
    if (test_hf_open(test_folder(), device, precision, 12, model, &err) != TM_OK) fail_msg("%s", err.text);
    golden_tokens(tokens, 13, 64);
    if (tm_numerics_read(model->trainer, model->description.form, model->weights, tokens, &n, &err) != TM_OK)
        fail_msg("%s", err.text);
    return n;
}

static void check(const char *name, const char *config, const char *device, const tm_precision *precision,
                  double loss_error, double norm_error)
{
    test_hf_model  model;
    golden_numbers wanted = golden_read(name);
    test_hf_write(test_folder(), config, NULL);
    tm_numerics n = compute(device, precision, &model);
    assert_int_equal(n.parameters, wanted.parameters);
    golden_close("loss", n.loss, wanted.loss, loss_error);
    golden_close("norm", n.gradient_norm, wanted.norm, norm_error);
    for (int i = 0; i < wanted.n; i++)
        golden_close(wanted.tensor[i].name, gradient_of(&n, wanted.tensor[i].name), wanted.tensor[i].norm, norm_error);
    assert_int_equal(n.n_gradients, wanted.n);
    tm_numerics_fini(&n);
    test_hf_close(&model);
}

TEST(deepseek)
{
    check("deepseek-tiny", "{" DEEPSEEK "}", "reference", &tm_precision_f64, 1e-9, 1e-8);
    check("deepseek-tiny", "{" DEEPSEEK "}", "cpu", &tm_precision_f32, 1e-5, 1e-4);
    test_folder_remove();
}

TEST(gpt_oss)
{
    check("gpt-oss-tiny", "{" GPT_OSS "}", "reference", &tm_precision_f64, 1e-9, 1e-8);
    check("gpt-oss-tiny", "{" GPT_OSS "}", "cpu", &tm_precision_f32, 1e-5, 1e-4);
    test_folder_remove();
}

/* The balance loss: in the gradients, not in the loss. */
TEST(deepseek_balanced)
{
    test_hf_model model;
    test_hf_write(test_folder(), "{" DEEPSEEK ", \"aux_loss_alpha\": 0.001}", NULL);
    tm_numerics n = compute("reference", &tm_precision_f64, &model);
    golden_close("loss", n.loss, 4.138958520562, 1e-9);
    golden_close("norm", n.gradient_norm, 7.049707628537, 1e-9);
    golden_close("router", gradient_of(&n, "model.layers.1.mlp.gate.weight"), 1.261663591e-01, 1e-8);
    tm_numerics_fini(&n);
    test_hf_close(&model);
    test_folder_remove();
}

/* The bias that moves the choice of experts is state, not a parameter: it is read, written in float32, and part of a
 * run. */
TEST(routing_bias_goes_in_and_out)
{
    static const char config[] =
        "{\"model_type\": \"deepseek_v3\", \"vocab_size\": 64, \"hidden_size\": 16, \"intermediate_size\": 24, "
        "\"num_hidden_layers\": 2, \"num_attention_heads\": 2, \"kv_lora_rank\": 8, \"q_lora_rank\": null, "
        "\"qk_nope_head_dim\": 4, \"qk_rope_head_dim\": 4, \"v_head_dim\": 4, \"n_routed_experts\": 4, "
        "\"num_experts_per_tok\": 2, \"moe_intermediate_size\": 8, \"n_shared_experts\": 1, "
        "\"first_k_dense_replace\": 1, \"norm_topk_prob\": true, \"routed_scaling_factor\": 2.5, \"n_group\": 1, "
        "\"topk_group\": 1}";
    static const char name[] = "model.layers.1.mlp.gate.e_score_correction_bias";
    char              out[600];
    tm_hf_source      source;
    tm_hf_report      report;
    tm_safetensors   *written;
    tm_error          err = { 0 };
    snprintf(out, sizeof out, "%s/out", test_folder());
    tm_hf_export_options options = { .folder = out, .dtype = TM_BF16, .shard_bytes = 1 << 20 };
    test_hf_write(test_folder(), config, NULL);
    if (tm_hf_source_open(test_folder(), -1, test_full_config(), &source, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_hf_export(&source, &options, &report, &err) != TM_OK) fail_msg("%s", err.text);
    if (tm_hf_folder_weights(out, &written, &err) != TM_OK) fail_msg("%s", err.text);
    const tm_stored_tensor *bias = tm_safetensors_find(written, name);
    assert_non_null(bias);
    assert_int_equal(bias->dtype, TM_F32);
    assert_int_equal(bias->n[0], 4);
    for (int64_t i = 0; i < 4; i++) {
        float value;
        memcpy(&value, bias->data + 4 * i, 4);
        assert_true(value == (float)test_hf_value(name, i));
    }
    tm_safetensors_close(written);
    tm_hf_source_close(&source);
    test_hf_write(test_folder(), config, &(test_hf_options){ .leave_out = name });
    test_hf_model model;
    assert_int_equal(test_hf_open(test_folder(), "cpu", &tm_precision_f32, 4, &model, &err), TM_FORMAT);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, name));
    test_hf_close(&model);
    test_folder_remove();
}

static void refuse(const char *text, const char *part)
{
    tm_config        *config = test_full_config();
    tm_hf_description description;
    tm_error          err = { 0 };
    tm_status         st = tm_hf_config_parse("x/config.json", text, strlen(text), config, &description, &err);
    if (st == TM_OK) fail_msg("%s is taken, wanted '%s'", text, part);
    refusal_is_sound(&err);
    if (!strstr(err.text, part)) fail_msg("%s: '%s', wanted '%s'", text, err.text, part);
    tm_config_destroy(config);
}

TEST(what_is_not_built_is_refused)
{
    refuse("{" DEEPSEEK ", \"moe_layer_freq\": 2}", "'moe_layer_freq' is 2");
    refuse("{" DEEPSEEK ", \"attention_bias\": true}", "'attention_bias' is true");
    refuse("{" GPT_OSS ", \"attention_bias\": false}", "'attention_bias' is false");
    char turns[] = "{" GPT_OSS "}", *second = strstr(turns, "\"full_attention\"");
    memcpy(second, "\"full_retention\"", 16);
    refuse(turns, "'layer_types'[1] is full_retention");
    refuse("{\"model_type\": \"llama4\"}", "llama4");
    refuse("{\"model_type\": \"llama4_text\"}", "llama4_text");
}

TESTS_IN_ORDER
