/* SPDX-License-Identifier: Apache-2.0 */
/* config.json of every form: what models are written as is read as the same models, every member counts, and what a
 * class lacks is said.
 */
#include "hf/config.h"
#include "hf/config_keys.h"
#include "support/full_config.h"

#include "../train/shape_members.h"

#include <jansson.h>

#include "support/test.h"

enum { MOST_MEMBERS = 80 };

#define EXPERTS "--model.n_experts 4 --model.n_experts_per_token 2 --model.moe_ffn_dim 24 "

static const char *const models[] = {
    "tiny-llama",
    "tiny-llama --model.rope_scaling llama3 --model.rope_scaling_factor 8 --model.tied true --model.norm_eps "
    "1.0000000000000002e-06 "
    "--model.rope_theta 500000.5",
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
    "--model.moe_normalise true --model.moe_scale 2.5 --model.expert_group_best 2 --model.moe_bias_rate 0.001 "
    "--model.n_expert_groups 2 "
    "--model.n_limited_groups 1 "
    "--model.rope_scaling yarn --model.rope_scaling_factor 40 --model.rope_original_max_seq_len 64 --model.rope_mscale "
    "1 "
    "--model.rope_mscale_all_dim 1 " EXPERTS,
    "gpt-small --model.bias all --model.n_layers 2",
    "gpt-small --model.bias all --model.tied false --model.n_layers 2",
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

static tm_status finish_file(tm_config *config, const tm_hf_form *form, tm_model_shape *shape, tm_error *err)
{
    if (!form->diffusers) test_apply_words(config, "--training.seq_len 2"); /* a file may have few positions */
    TM_TRY(tm_config_finish(config, err));
    return tm_model_shape_read(config, shape, err);
}

/* Members of a shape that files do not have: how rows lie in memory, and what belongs to the data. */
static bool in_files(const tm_model_shape *shape, const char *name)
{
    static const char *const others[] = { "rope_interleaved", "flux.text_len", "flux.rows", "flux.columns",
                                          "flux.guidance_scale" };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(name, others[i]) == 0) return false;
    return strcmp(name, "ffn_dim") != 0 || shape->moe.experts == 0 || shape->moe.dense_layers > 0; /* else unused */
}

static bool same_shape(const tm_model_shape *a, const tm_model_shape *b, const char **differs)
{
    member       x[MOST_MEMBERS], y[MOST_MEMBERS];
    const size_t n = members_of(a, x);
    members_of(b, y);
    *differs = NULL;
    for (size_t i = 0; i < n && !*differs; i++)
        if (in_files(a, x[i].name) && x[i].value != y[i].value) *differs = x[i].name;
    return !*differs;
}

static bool is_harmless(const tm_hf_key *rows, const char *name)
{
    for (const tm_hf_key *row = rows; row->key; row++)
        if (row->kind == TM_HF_HARMLESS && strcmp(row->key, name) == 0) return true;
    return false;
}

static double number_of(const json_t *value)
{
    return json_is_number(value)    ? json_number_value(value)
           : json_is_boolean(value) ? json_is_true(value)
                                    : (double)NAN;
}

static bool same_value(const json_t *a, const json_t *b)
{
    return json_equal(a, b) || number_of(a) == number_of(b);
}

/* What is written of a model whose file has another value: that value. */
static void check_written_again(const char *name, const json_t *value, const tm_config *config,
                                const tm_model_shape *shape, const tm_hf_form *form)
{
    const tm_hf_form *found;
    tm_error          err = { 0 };
    tm_text           text = { 0 };
    if (tm_hf_form_of(config, shape, &found, &err) != TM_OK) return; /* no class has all of it */
    tm_hf_config_write(config, shape, found, "float32", NULL, &text);
    json_t *root = json_loads(text.data, 0, NULL);
    if (found == form && !same_value(json_object_get(root, name), value))
        fail_msg("%s, which is changed, is written as %s", name, text.data);
    json_decref(root);
    tm_text_fini(&text);
}

/* Every member counts: without it or with another value the file is of another model, or is refused by its name. What
 * is harmless changes nothing; what training would take is told. */
static void check_member(json_t *root, const char *name, const char *other, const tm_hf_form *form,
                         const tm_model_shape *was)
{
    json_t           *changed = json_copy(root), *value = other ? json_loads(other, JSON_DECODE_ANY, NULL) : NULL;
    tm_config        *config = test_full_config();
    tm_model_shape    shape;
    tm_hf_description description;
    tm_error          err = { 0 }, whole = { 0 };
    const char       *differs = NULL;
    if (other)
        json_object_set(changed, name, value);
    else
        json_object_del(changed, name);
    char           *bytes = json_dumps(changed, JSON_SORT_KEYS);
    const tm_status st = tm_hf_config_parse("c", bytes, strlen(bytes), config, &description, &err);
    const bool      read = st == TM_OK && finish_file(config, form, &shape, &whole) == TM_OK;
    const bool      idle = is_harmless(tm_hf_common_keys, name) || is_harmless(form->keys, name);
    const bool      kind = strcmp(name, "model_type") == 0 || strcmp(name, "_class_name") == 0;
    const bool      training = st == TM_OK && strncmp(description.training, name, strlen(name)) == 0;
    const bool      given = value && !json_is_null(value);
    if (st != TM_OK && !strstr(err.text, kind ? "model" : name) && !strstr(err.text, "what makes 'model."))
        fail_msg("%s %s: %s", name, other, err.text);
    if (st == TM_OK && kind) fail_msg("%s %s is read", name, other);
    if (idle && !kind && strcmp(name, "architectures") != 0) assert_true(read && same_shape(&shape, was, &differs));
    if (read && given && !idle && !training) check_written_again(name, value, config, &shape, form);
    if (training && !(read && same_shape(&shape, was, &differs))) fail_msg("%s %s changes the model", name, other);
    free(bytes);
    json_decref(changed);
    json_decref(value);
    tm_config_destroy(config);
}

static void check_changed(const char *text, const tm_hf_form *form, const tm_model_shape *was)
{
    static const char *const others[] = { NULL,   "null", "3",        "\"word\"", "[1]",
                                          "true", "0",    "16777216", "16777217", "[1, \"x\", null]" };
    json_t                  *root = json_loads(text, 0, NULL), *value;
    const char              *name;
    size_t                   turn = 0; /* every second one in the quick suite */
    json_object_foreach(root, name, value)
    {
        turn++;
        for (size_t k = 0; k < sizeof others / sizeof others[0]; k++)
            if (test_is_full() || (k + turn) % 2) check_member(root, name, others[k], form, was);
    }
    json_decref(root);
}

/* What is written is read as the same model, by its form, and has what it was given beside it. */
TEST(what_is_written_is_read)
{
    static const char ids[] = "{\"bos_token_id\": 1, \"eos_token_id\": [2, 3], \"other\": 4}";
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        tm_config        *config = test_full_config(), *again = test_full_config();
        tm_model_shape    shape, found;
        const tm_hf_form *form = NULL;
        tm_hf_description description;
        tm_error          err = { 0 };
        tm_text           text = { 0 };
        const char       *differs = NULL;
        if (read_model(models[i], config, &shape, &err) != TM_OK || tm_hf_form_of(config, &shape, &form, &err) != TM_OK)
            fail_msg("%s: %s", models[i], err.text);
        tm_hf_config_write(config, &shape, form, i % 2 ? "float32" : "bfloat16", i % 3 ? ids : NULL, &text);
        if (tm_hf_config_parse("c", text.data, text.length, again, &description, &err) != TM_OK ||
            finish_file(again, form, &found, &err) != TM_OK)
            fail_msg("%s: %s", models[i], err.text);
        if (!same_shape(&found, &shape, &differs)) fail_msg("%s: %s differs in %s", models[i], differs, text.data);
        assert_ptr_equal(description.form, form);
        assert_string_equal(description.training, "");
        json_t *root = json_loads(text.data, 0, NULL), *theta = json_object_get(root, "rope_theta");
        assert_true(!theta || json_is_real(theta)); /* Hugging Face tells 10000.0 from 10000 */
        if (!form->diffusers) {
            json_t *eos = json_object_get(root, "eos_token_id"), *bos = json_object_get(root, "bos_token_id");
            assert_string_equal(json_string_value(json_object_get(root, "torch_dtype")),
                                i % 2 ? "float32" : "bfloat16");
            assert_string_equal(json_string_value(json_array_get(json_object_get(root, "architectures"), 0)),
                                form->architecture);
            assert_true(i % 3 ? json_integer_value(bos) == 1 && json_array_size(eos) == 2
                              : json_is_null(bos) && json_is_null(eos));
            assert_true(json_is_null(json_object_get(root, "pad_token_id")) && !json_object_get(root, "other"));
        }
        json_decref(root);
        if (test_is_full() || i == 0 || form->diffusers || strcmp(form->model_type, "deepseek_v3") == 0)
            check_changed(text.data, form, &shape);
        tm_text_fini(&text);
        tm_config_destroy(config);
        tm_config_destroy(again);
    }
}

/* Of a model that a class nearly computes: what it lacks. */
TEST(what_is_lacking_is_said)
{
    static const char *const all[][3] = {
        /* a class, a model, the key that it lacks */
        { "llama", "tiny-llama " EXPERTS, "model.n_experts" },
        { "llama", "tiny-llama --model.sinks true", "model.sinks" },
        { "llama", "tiny-llama --model.activation swiglu_clamped", "model.activation" },
        { "llama", "tiny-llama --model.sliding_window 1", "model.sliding_window" },
        { "llama", "tiny-llama --model.qk_norm true", "model.qk_norm" },
        { "qwen2", "tiny-llama --model.family qwen2 --model.sliding_window 1", "model.sliding_window" },
        { "qwen3", "tiny-llama --model.family qwen3 --model.qk_norm false", "model.qk_norm" },
        { "mixtral", "tiny-llama --model.family mixtral", "model.moe_normalise" },
        { "mixtral", "tiny-llama --model.family mixtral --model.n_shared_experts 1 " EXPERTS,
          "model.n_shared_experts" },
        { "mixtral", "tiny-llama --model.family mixtral --model.n_dense_layers 1 " EXPERTS, "model.n_dense_layers" },
        { "mixtral", "tiny-llama --model.family mixtral --model.moe_score sigmoid " EXPERTS, "model.moe_score" },
        { "mixtral", "tiny-llama --model.family mixtral --model.n_expert_groups 2 " EXPERTS, "model.n_expert_groups" },
        { "mixtral", "tiny-llama --model.family mixtral --model.moe_bias true " EXPERTS, "model.moe_bias" },
        { "mixtral", "tiny-llama --model.family mixtral --model.moe_scale 2 " EXPERTS, "model.moe_scale" },
        { "qwen3_moe", "tiny-llama --model.family qwen3_moe", "model.n_experts" },
        { "gpt_oss", "tiny-llama --model.family gpt_oss", "model.sliding_window_every" },
        { "gpt2", "gpt-small --model.bias all --model.n_kv_heads 2", "model.n_kv_heads" },
        { "gpt2", "gpt-small --model.bias all --model.head_dim 32", "model.head_dim" },
        { "FluxTransformer2DModel", "tiny-flux --model.time_dim 256 --model.ffn_dim 100", "model.ffn_dim" },
        { "FluxTransformer2DModel", "tiny-flux --model.time_dim 256 --model.rope_theta 5", "model.rope_theta" },
    };
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
        if (!reason || !memmem(reason, strcspn(reason, ";"), all[i][2], strlen(all[i][2])))
            fail_msg("%s: %s, wanted %s", all[i][1], err.text, all[i][2]);
        tm_config_destroy(config);
    }
}
