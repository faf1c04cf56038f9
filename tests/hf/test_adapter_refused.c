/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of adapters that are refused by the name of what is wrong. */
#include "parity_fixture.h"

#include "support/refusal.h"

typedef struct {
    const char *change; /* merged into adapter_config.json */
    tm_status   status;
    const char *words;
} bad_config;

TEST(bad_configurations_are_refused)
{
    static const bad_config cases[] = {
        { "{\"peft_type\": \"LOHA\"}", TM_UNSUPPORTED, "'peft_type' is \"LOHA\"" },
        { "{\"use_dora\": true}", TM_FORMAT, "lacks" },
        { "{\"bias\": \"all\"}", TM_UNSUPPORTED, "'bias'" },
        { "{\"rank_pattern\": {\"q_proj\": 2}}", TM_FORMAT, "[4, " },
        { "{\"rank_pattern\": {\"q_proj\": 0}}", TM_FORMAT, "'rank_pattern' gives 'q_proj' no rank" },
        { "{\"rank_pattern\": {\"q(proj\": 4}}", TM_FORMAT, "'rank_pattern': 'q(proj' is no regular expression" },
        { "{\"rank_pattern\": {\"nothing\": 2}}", TM_OK, "" },
        { "{\"alpha_pattern\": {\"q_proj\": 2}}", TM_OK, "" },
        { "{\"alpha_pattern\": {\"q_proj\": -2}}", TM_FORMAT, "'alpha_pattern' gives 'q_proj' no alpha" },
        { "{\"modules_to_save\": [\"lm_head\"]}", TM_UNSUPPORTED, "'modules_to_save'" },
        { "{\"layers_to_transform\": [1]}", TM_FORMAT, "layers.0.self_attn.q_proj', which is none of the modules" },
        { "{\"layers_to_transform\": [0, 1]}", TM_OK, "" },
        { "{\"layers_pattern\": \"layers\"}", TM_FORMAT, "'layers_pattern' needs 'layers_to_transform'" },
        { "{\"layers_to_transform\": [0, 1], \"layers_pattern\": [\"h\", \"layers\"]}", TM_OK, "" },
        { "{\"layers_to_transform\": [0, 1], \"layers_pattern\": \"h\"}", TM_FORMAT, "none of the modules" },
        { "{\"layers_to_transform\": [0], \"target_modules\": \".*proj\"}", TM_FORMAT, "that is a text" },
        { "{\"target_modules\": \"all-linear\"}", TM_FORMAT, "lacks the adapter of 'model.layers.0.self_attn.k_proj'" },
        { "{\"target_modules\": \".*(q|v)_proj\"}", TM_OK, "" },
        { "{\"target_modules\": \"(q|v)_proj\"}", TM_FORMAT, "none of the modules" },
        { "{\"target_modules\": \".*(q|v)_\"}", TM_FORMAT, "none of the modules" },
        { "{\"target_modules\": 3}", TM_FORMAT, "'target_modules' must be" },
        { "{\"target_modules\": [\"q_proj\"]}", TM_FORMAT, "v_proj', which is none of the modules" },
        { "{\"target_modules\": [\"q_proj\", \"v_proj\", \"lm_head\"]}", TM_FORMAT, "lacks the adapter of 'lm_head'" },
        { "{\"exclude_modules\": [\"v_proj\"]}", TM_FORMAT, "v_proj', which is none of the modules" },
        { "{\"exclude_modules\": \".*v_proj\"}", TM_FORMAT, "v_proj', which is none of the modules" },
        { "{\"exclude_modules\": 7}", TM_FORMAT, "'exclude_modules' must be" },
        { "{\"rank_pattern\": {\"q_proj\": 4}, \"target_parameters\": [\"mlp.experts.down_proj\"]}", TM_UNSUPPORTED,
          "'rank_pattern' beside 'target_parameters'" },
        { "{\"init_lora_weights\": \"pissa\"}", TM_UNSUPPORTED, "'init_lora_weights'" },
        { "{\"init_lora_weights\": \"eva\"}", TM_OK, "" },
        { "{\"target_parameters\": [\"w\"]}", TM_UNSUPPORTED, "'target_parameters'" },
        { "{\"something_new\": 7}", TM_UNSUPPORTED, "'something_new' is 7" },
        { "{\"r\": 0}", TM_FORMAT, "'r'" },
        { "{\"r\": 65537}", TM_FORMAT, "'r' must be a whole number from 1 to 65536" },
        { "{\"r\": 8}", TM_FORMAT, "[4, " },
        { "{\"lora_alpha\": \"x\"}", TM_FORMAT, "'lora_alpha'" },
        { "{\"lora_dropout\": 1.5}", TM_FORMAT, "'lora_dropout'" },
        { "{\"use_rslora\": 1}", TM_FORMAT, "'use_rslora'" },
    };
    fixture f = load("adapters/llama.json");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        adapted        a;
        tm_error       err = { 0 };
        tm_model_shape none = { 0 };
        json_t *config = json_copy(json_object_get(f.root, "adapter")), *change = json_loads(cases[i].change, 0, NULL);
        json_object_update(config, change);
        write_config(&f, config);
        tm_status st =
            open_adapted(&f, "cpu", &tm_precision_f32, tm_numerics_step(&none, &tm_precision_f32, f.seq), &a, &err);
        refusal_is_sound(&err);
        if (st != cases[i].status || !strstr(err.text, cases[i].words))
            fail_msg("%s: status %d, %s", cases[i].change, (int)st, err.text);
        close_adapted(&a);
        json_decref(config), json_decref(change);
    }
    unload(&f);
}

TEST(bad_files_are_refused)
{
    static const struct {
        const char *remove, *add;
        tm_status   status;
        const char *words;
    } cases[] = {
        { "base_model.model.model.layers.1.self_attn.q_proj.lora_B.weight", NULL, TM_FORMAT, "lacks" },
        { NULL, "base_model.model.model.layers.7.self_attn.q_proj.lora_A.weight", TM_FORMAT, "no such linear" },
        { NULL, "base_model.model.model.layers.0.self_attn.q_proj.weight", TM_UNSUPPORTED, "with other values" },
        { NULL, "base_model.model.model.layers.0.self_attn.q_proj.bias", TM_FORMAT, "not a tensor of a LoRA" },
        { NULL, "q_proj.lora_A.weight", TM_FORMAT, "not a tensor of a LoRA" },
        { NULL, "base_model.model.lm_head.base_layer.weight", TM_UNSUPPORTED, "save_embedding_layers=False" },
        { NULL, "base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector", TM_FORMAT, "only DoRA has" },
    };
    fixture f = load("adapters/llama.json");
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        adapted        a;
        tm_error       err = { 0 };
        tm_model_shape none = { 0 };
        json_t        *shapes = json_copy(json_object_get(f.root, "shapes"));
        if (cases[i].remove) assert_int_equal(json_object_del(shapes, cases[i].remove), 0);
        if (cases[i].add) json_object_set_new(shapes, cases[i].add, json_pack("[i,i]", 4, 32));
        write_adapter_weights(f.adapter, shapes, false);
        tm_status st =
            open_adapted(&f, "cpu", &tm_precision_f32, tm_numerics_step(&none, &tm_precision_f32, f.seq), &a, &err);
        refusal_is_sound(&err);
        if (st != cases[i].status || !strstr(err.text, cases[i].words))
            fail_msg("%zu: status %d, %s", i, (int)st, err.text);
        close_adapted(&a);
        json_decref(shapes);
    }
    tm_hf_adapter none;
    tm_error      err = { 0 };
    json_t       *nothing = json_object();
    write_adapter_weights(f.adapter, nothing, false);
    json_decref(nothing);
    assert_int_equal(tm_hf_adapter_open(f.adapter, NULL, NULL, &none, &err), TM_FORMAT);
    refusal_is_sound(&err);
    tm_hf_adapter_close(&none);
    err = (tm_error){ 0 };
    assert_int_equal(tm_hf_adapter_open(f.base, NULL, NULL, &none, &err), TM_INVALID);
    tm_hf_adapter_close(&none);
    unload(&f);
}

TESTS_IN_ORDER
