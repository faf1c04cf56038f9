/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of every form to the letter: what models are written as, what the same file is read as, and what is said
 * of files that are changed in one place. After a change that is meant: TM_RECORD=1
 * build/release/tests/hf/test_config_whole; git diff tests/hf/whole-config.txt
 */
#include "hf/config.h"
#include "support/full_config.h"
#include "support/whole.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#define EXPERTS "--model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 24 "

static const char *const models[] = {
    "tiny-llama",
    "tiny-llama --model.rope_scaling llama3 --model.rope_scaling_factor 8 --model.tied true --model.norm_eps 1e-6 "
    "--model.rope_theta 500000.5",
    "tiny-llama --model.bias all --model.head_dim 40 --model.n_kv_heads null --model.ffn_dim null",
    "tiny-llama --model.family mistral --model.sliding_window 64",
    "tiny-llama --model.family mistral",
    "tiny-llama --model.family mixtral " EXPERTS,
    "tiny-llama --model.family qwen2",
    "tiny-llama --model.family qwen3 --model.tied true",
    "tiny-llama --model.family qwen3_moe --model.moe_normalise false " EXPERTS,
    "tiny-llama --model.family gpt_oss --model.sliding_window 8 --model.sliding_window_every 2 --model.rope_scaling "
    "yarn "
    "--model.rope_scaling_factor 32 --model.rope_truncate false --model.n_layers 2 " EXPERTS,
    "tiny-llama --model.family deepseek --model.n_kv_heads null --model.kv_lora_rank 16 --model.qk_nope_head_dim 12 "
    "--model.qk_rope_head_dim 4 --model.v_head_dim 8 --model.n_shared_experts 1 --model.n_dense_layers 1 "
    "--model.moe_scale 1.5 " EXPERTS,
    "tiny-llama --model.family deepseek --model.n_kv_heads null --model.kv_lora_rank 16 --model.q_lora_rank 20 "
    "--model.qk_nope_head_dim 12 "
    "--model.qk_rope_head_dim 4 --model.v_head_dim 8 --model.n_shared_experts 2 --model.n_dense_layers 1 "
    "--model.moe_score sigmoid "
    "--model.moe_normalise true --model.moe_scale 2.5 --model.moe_bias_rate 0.001 --model.n_expert_groups 2 "
    "--model.n_limited_groups 1 "
    "--model.rope_scaling yarn --model.rope_scaling_factor 40 --model.rope_original_max_seq_len 64 --model.rope_mscale "
    "1 "
    "--model.rope_mscale_all_dim 1 " EXPERTS,
    "gpt-small --model.n_layers 2",
    "gpt-small --model.tied false",
    "gpt-small --model.bias none",
    "tiny-flux",
    "tiny-flux --model.guidance_embed true",
    "tiny-llama --model.init_std 0.5 --model.qk_norm true",
    "tiny-llama --model.sinks true",
    "tiny-llama --model.rope_layout interleaved",
    "tiny-llama --model.rope_scaling linear --model.rope_scaling_factor 2.5",
    "tiny-llama --model.family qwen2 --model.rope_scaling dynamic --model.rope_scaling_factor 2",
    "tiny-llama --model.family qwen3 --model.rope_scaling yarn --model.rope_scaling_factor 4 "
    "--model.rope_original_max_seq_len 64 --model.rope_attention_factor 1.25",
    "tiny-llama --model.family gpt_oss --model.sliding_window 8 --model.sliding_window_every 2 --model.n_layers "
    "2 " EXPERTS,
    "tiny-flux --model.time_dim 256 --model.guidance_embed true",
};

static tm_status read_model(const char *words, tm_config *config, tm_model_shape *shape, tm_error *err)
{
    char copy[1500], *argv[64];
    int  n = 0;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) argv[n++] = word;
    TM_TRY(tm_config_apply_preset(config, argv[0], err));
    TM_TRY(tm_config_apply_arguments(config, n - 1, argv + 1, err));
    TM_TRY(tm_config_finish(config, err));
    return tm_model_shape_read(config, shape, err);
}

/* Keys that the file gives. */
static void add_read(tm_text *out, const char *text)
{
    tm_config        *config = test_full_config();
    tm_hf_description description;
    tm_error          err = { 0 };
    tm_status         st = tm_hf_config_parse("c", text, strlen(text), config, &description, &err);
    if (st == TM_OK) st = tm_config_finish(config, &err);
    if (st != TM_OK) tm_text_printf(out, "  exit %d: %s\n", tm_status_exit_code(st), err.text);
    for (size_t i = 0; st == TM_OK && i < tm_config_n_keys(config); i++) {
        const char *key = tm_config_key_at(config, i)->name, *value = tm_config_text(config, key);
        if (tm_config_rank(config, key) > 0)
            tm_text_printf(out, "  %s = %s (%s)\n", key, value ? value : "null", tm_config_origin(config, key));
    }
    if (st == TM_OK)
        tm_text_printf(out, "  read as %s, training '%s'\n", description.form->model_type, description.training);
    tm_config_destroy(config);
}

/* The file without each of its members, and with other values of each. */
static void add_changed(tm_text *out, const char *text)
{
    static const char *const others[] = { "null",     "3",        "\"word\"",        "[1]", "true", "0",
                                          "16777216", "16777217", "[1, \"x\", null]" };
    json_t                  *root = json_loads(text, 0, NULL), *value;
    const char              *name;
    json_object_foreach(root, name, value)
    {
        for (size_t k = 0; k <= sizeof others / sizeof others[0]; k++) {
            json_t           *changed = json_copy(root);
            tm_config        *config = test_full_config();
            tm_hf_description description;
            tm_error          err = { 0 };
            if (k == 0)
                json_object_del(changed, name);
            else
                json_object_set_new(changed, name, json_loads(others[k - 1], JSON_DECODE_ANY, NULL));
            char     *bytes = json_dumps(changed, JSON_SORT_KEYS);
            tm_status st = tm_hf_config_parse("c", bytes, strlen(bytes), config, &description, &err);
            tm_text_printf(out, "  %s %s: %d %s%s\n", name, k ? others[k - 1] : "gone", st, err.text,
                           st == TM_OK ? description.training : "");
            free(bytes);
            json_decref(changed);
            tm_config_destroy(config);
        }
    }
    json_decref(root);
}

static void files_are_as_recorded(void **state)
{
    static const char ids[] = "{\"bos_token_id\": 1, \"eos_token_id\": [2, 3], \"other\": 4}";
    tm_text           out = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        tm_config        *config = test_full_config();
        tm_model_shape    shape;
        const tm_hf_form *form = NULL;
        tm_error          err = { 0 };
        tm_text           text = { 0 };
        tm_text_printf(&out, "\n%s\n", models[i]);
        tm_status st = read_model(models[i], config, &shape, &err);
        if (st == TM_OK) st = tm_hf_form_of(config, &shape, &form, &err);
        if (st != TM_OK) tm_text_printf(&out, "  exit %d: %s\n", tm_status_exit_code(st), err.text);
        if (st == TM_OK) {
            tm_hf_config_write(config, &shape, form, i % 2 ? "float32" : "bfloat16", i % 3 ? ids : NULL, &text);
            tm_text_add(&out, text.data);
            add_read(&out, text.data);
            if (i == 0 || i == 11 || i == 12 || form->diffusers) add_changed(&out, text.data);
        }
        tm_text_fini(&text);
        tm_config_destroy(config);
    }
    whole_is("tests/hf/whole-config.txt", &out);
}

/* Of a model that a class nearly computes: what it lacks. */
static void what_is_lacking_is_said(void **state)
{
    static const char *const all[][2] = {
        { "llama", "tiny-llama " EXPERTS },
        { "llama", "tiny-llama --model.sinks true" },
        { "llama", "tiny-llama --model.activation swiglu_clamped" },
        { "llama", "tiny-llama --model.sliding_window 1" },
        { "llama", "tiny-llama --model.qk_norm true" },
        { "qwen2", "tiny-llama --model.family qwen2 --model.sliding_window 1" },
        { "qwen3", "tiny-llama --model.family qwen3 --model.qk_norm false" },
        { "mixtral", "tiny-llama --model.family mixtral" },
        { "mixtral", "tiny-llama --model.family mixtral --model.n_shared_experts 1 " EXPERTS },
        { "mixtral", "tiny-llama --model.family mixtral --model.n_dense_layers 1 " EXPERTS },
        { "mixtral", "tiny-llama --model.family mixtral --model.moe_score sigmoid " EXPERTS },
        { "mixtral", "tiny-llama --model.family mixtral --model.n_expert_groups 2 " EXPERTS },
        { "mixtral", "tiny-llama --model.family mixtral --model.moe_bias true " EXPERTS },
        { "mixtral", "tiny-llama --model.family mixtral --model.moe_scale 2 " EXPERTS },
        { "qwen3_moe", "tiny-llama --model.family qwen3_moe" },
        { "gpt_oss", "tiny-llama --model.family gpt_oss" },
        { "gpt2", "gpt-small --model.bias all --model.n_kv_heads 2" },
        { "gpt2", "gpt-small --model.bias all --model.head_dim 32" },
        { "FluxTransformer2DModel", "tiny-flux --model.time_dim 256 --model.ffn_dim 100" },
        { "FluxTransformer2DModel", "tiny-flux --model.time_dim 256 --model.rope_theta 5" },
    };
    tm_text out = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        tm_config        *config = test_full_config();
        tm_model_shape    shape;
        const tm_hf_form *form;
        tm_error          err = { 0 };
        char              begin[64];
        snprintf(begin, sizeof begin, " %s is ", all[i][0]);
        if (read_model(all[i][1], config, &shape, &err) != TM_OK) fail_msg("%s: %s", all[i][1], err.text);
        assert_int_equal(tm_hf_form_of(config, &shape, &form, &err), TM_UNSUPPORTED);
        assert_null(form);
        const char *reason = strstr(err.text, begin);
        if (!reason) fail_msg("%s: %s", all[i][1], err.text);
        if (reason) tm_text_printf(&out, "%s:%.*s\n", all[i][1], (int)strcspn(reason, ";"), reason);
        tm_config_destroy(config);
    }
    whole_is("tests/hf/whole-lacks.txt", &out);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(files_are_as_recorded),
                                           cmocka_unit_test(what_is_lacking_is_said) };

TM_TESTS(tests, NULL, NULL)
