/* SPDX-License-Identifier: Apache-2.0 */
/* Keys that would change nothing: refused where they are given, noted where a higher layer switches them off, and no
 * matter in a preset. tests/train/test_key_effects.c shows that all others change a run. */
#include <stdio.h>
#include <string.h>

#include "support/test.h"

#include "support/refusal.h"
#include "support/folder.h"
#include "support/full_config.h"

#define LLAMA                                                                                                          \
    "--model.n_layers 2 --model.dim 32 --model.n_heads 4 --model.ffn_dim 64 --model.vocab_size 64 --data.source mock "
#define GPT LLAMA "--model.family gpt --model.max_seq_len 16 --training.seq_len 16 "

/* The keys of a condition have rows: a misspelt one would hold always. */
TEST(conditions_name_keys)
{
    tm_config *config = test_full_config();
    for (size_t i = 0; i < tm_config_n_keys(config); i++) {
        const tm_key *key = tm_config_key_at(config, i);
        for (const char *p = key->when; p && *p;) {
            char   name[160];
            size_t n;
            p += *p == '!';
            n = strcspn(p, "!=,|");
            snprintf(name, sizeof name, "%.*s", (int)n, p);
            if (!tm_config_is_row(config, name)) fail_msg("%s counts with %s, which is no key", key->name, name);
            p += n;
            p += strcspn(p, ",|");
            p += *p != '\0';
        }
    }
    tm_config_destroy(config);
}

static void refused(const char *words, const char *key, const char *counts_with)
{
    tm_config *config = test_full_config();
    tm_error   err = { 0 };
    char       begin[128];
    test_apply_words(config, words);
    snprintf(begin, sizeof begin, "'%s' = ", key);
    if (tm_config_finish(config, &err) != TM_INVALID) fail_msg("%s is accepted: %s", words, err.text);
    refusal_is_sound(&err);
    if (strncmp(err.text, begin, strlen(begin)) != 0 || !strstr(err.text, "has no effect: it applies only with ") ||
        !strstr(err.text, counts_with))
        fail_msg("%s", err.text);
    tm_config_destroy(config);
}

TEST(what_counts_nowhere_is_refused)
{
    refused(LLAMA "--lora.rank 4 --lora.experts each", "lora.experts",
            "model.n_experts, and model.n_experts is null (default)");
    refused(LLAMA "--lora.experts none", "lora.experts", "lora.rank, and lora.rank is 0 (default)");
    refused(LLAMA "--model.moe_scale 2", "model.moe_scale", "model.n_experts, and model.n_experts is null (default)");
    refused(LLAMA "--model.v_head_dim 8", "model.v_head_dim", "model.family deepseek, and model.family is llama");
    refused(LLAMA "--model.rope_beta_fast 2", "model.rope_beta_fast", "model.rope_scaling yarn");
    refused(GPT "--model.rope_theta 2", "model.rope_theta", "model.family other than gpt, and model.family is gpt");
    refused(LLAMA "--model.image_size 64", "model.image_size", "model.family flux");
    refused(LLAMA "--model.init_std 0.1", "model.init_std",
            "model.init hf or gpt2 or with model.family gpt or with model.tied");
    refused(LLAMA "--data.pad_token 3", "data.pad_token", "data.source govreport");
    refused(LLAMA "--data.path text.txt", "data.path", "and data.source is mock (command line)");
    refused(LLAMA "--checkpoint.interval 3", "checkpoint.interval", "checkpoint.enable");
    refused(LLAMA "--mlperf.submission_org x", "mlperf.submission_org", "mlperf.enable");
    refused(LLAMA "--work_group x", "work_group", "user_name");
    refused(LLAMA "--training.regime pure", "training.regime", "training.dtype bfloat16");
    refused(LLAMA "--disable_last_saving true", "disable_last_saving", "checkpoint.enable");
    refused(LLAMA "--fp8_recipe tensorwise", "fp8_recipe", "fp8");
    refused(LLAMA "--fp8_margin 1", "fp8_margin", "quantize.recipe fp8_delayed");
    refused(LLAMA "--fp4_recipe mxfp4", "fp4_recipe", "fp4");
    refused(LLAMA "--first_last_layers_bf16 true", "first_last_layers_bf16", "quantize.recipe other than none");
    refused(LLAMA "--quantize.rotation true", "quantize.rotation", "quantize.recipe other than none");
    refused(LLAMA "--quantize.scale_rule up", "quantize.scale_rule", "quantize.recipe other than none");
    refused(LLAMA "--quantize.fqns [w2]", "quantize.fqns", "quantize.recipe other than none");
    refused(LLAMA "--debug.quantize_defect stale_scale", "debug.quantize_defect", "quantize.recipe other than none");
    refused(LLAMA "--quantize.linear.mx.fqns [w2]", "quantize.linear.mx.fqns", "model.converters");
    refused(LLAMA "--lora.base_format nf4", "lora.base_format", "lora.rank");
    refused(LLAMA "--recompute_num_layers 2", "recompute_num_layers", "activation_checkpoint.mode full");
}

/* Of a file, in a folder of its own, with words on the command line. */
static tm_config *configured(const char *file, const char *words, tm_status wanted, tm_error *err)
{
    tm_config *config = test_full_config();
    assert_int_equal(tm_config_load_file(config, test_file_write(test_folder(), "keys.yaml", file), err), TM_OK);
    test_apply_words(config, words);
    assert_int_equal(tm_config_finish(config, err), wanted);
    return config;
}

TEST_WITH(what_a_higher_layer_switches_off_is_noted, NULL, test_folder_teardown)
{
    static const char file[] = "validation: {freq: 7}\nmodel: {rope_scaling: yarn, rope_beta_fast: 4}\n";
    tm_error          err = { 0 };
    tm_config        *config = configured(file, "--validation.enable false --model.rope_scaling none", TM_OK, &err);
    const char       *notes = tm_config_notes(config);
    assert_non_null(strstr(notes, "ignored: "));
    assert_non_null(strstr(notes, "validation.freq (applies only with validation.enable)"));
    assert_non_null(strstr(notes, "model.rope_beta_fast (applies only with model.rope_scaling yarn)"));
    tm_text printed = { 0 };
    tm_config_print_yaml(config, &printed, false);
    assert_null(strstr(printed.data, "rope_beta_fast")); /* what is printed loads again */
    tm_config *again = configured(printed.data, "", TM_OK, &err);
    assert_true(tm_config_hash(again) == tm_config_hash(config));
    tm_config_destroy(again);
    tm_config_destroy(config);
    tm_text_fini(&printed);
    config = configured("validation: {freq: 7, enable: false}\nmodel: {rope_beta_fast: 4, rope_scaling: none}\n", "",
                        TM_INVALID, &err);
    refusal_is_sound(&err);
    assert_non_null(strstr(err.text, "'model.rope_beta_fast' = '4' ("));
    assert_non_null(strstr(err.text, "/keys.yaml:2) has no effect"));
    tm_config_destroy(config);
}

/* A preset says all of its family; what takes its place does not have to. */
TEST(presets_are_not_judged)
{
    tm_config *config = test_full_config();
    tm_error   err = { 0 };
    assert_int_equal(tm_config_apply_preset(config, "llama3.1_8B", &err), TM_OK);
    test_apply_words(config, "--model.rope_scaling none --data.source mock");
    if (tm_config_finish(config, &err) != TM_OK) fail_msg("%s", err.text);
    tm_config_destroy(config);
}

TESTS_IN_ORDER
