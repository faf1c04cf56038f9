/* SPDX-License-Identifier: Apache-2.0 */
/* Which tensors a folder has of a model, and where each part of them lies in ours: every entry of whole models, of the
 * parts of ranks, and of adapters, as tests/hf/whole-layouts.txt has them. After a change that is meant: TM_RECORD=1
 * build/release/tests/hf/test_layout_whole; git diff tests/hf/whole-layouts.txt */
#include "hf/config.h"
#include "hf/layout.h"
#include "support/full_config.h"
#include "support/whole.h"
#include "train/adapter/adapters.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static const struct {
    const char *words, *targets;
} models[] = {
    { "tiny-llama --model.n_layers 1 --model.tied true", "q_proj,v_proj,o_proj,gate_proj,down_proj" },
    { "tiny-llama --model.n_layers 1 --model.family qwen2 --model.tied false", "k_proj,up_proj" },
    { "tiny-llama --model.n_layers 1 --model.family mixtral --model.n_experts 4 --model.n_experts_per_token 2 "
      "--model.moe_ffn_dim 24",
      "q_proj,experts.gate_up_proj,experts.down_proj" },
    { "tiny-llama --model.n_layers 2 --model.family deepseek --model.n_kv_heads null --model.kv_lora_rank 16 "
      "--model.qk_nope_head_dim 12 --model.qk_rope_head_dim 4 --model.v_head_dim 8 --model.n_shared_experts 1 "
      "--model.n_dense_layers 1 --model.moe_scale 1.5 --model.n_experts 4 --model.n_experts_per_token 2 "
      "--model.moe_ffn_dim 24",
      "kv_a_proj_with_mqa,kv_b_proj,o_proj" },
    { "gpt2-124M --model.n_layers 1", "c_attn,c_proj" },
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

static void add_layout(tm_text *out, const char *what, const tm_graph *graph, tm_status st, tm_hf_layout *layout,
                       const tm_error *err)
{
    tm_text_printf(out, "-- %s: ", what);
    if (st != TM_OK) {
        tm_text_printf(out, "%s: %s\n", tm_status_text(st), err->text);
        return;
    }
    tm_text_printf(out, "%zu\n", layout->n);
    for (size_t i = 0; i < layout->n; i++) {
        const tm_hf_entry *e = &layout->entries[i];
        bool               expert = strstr(e->name, "expert");
        tm_text_printf(out, "%s (", e->name);
        for (int k = 0; k < e->rank; k++) tm_text_printf(out, "%s%lld", k ? ", " : "", (long long)e->n[k]);
        tm_text_printf(out, ") %lld:", (long long)e->elements);
        for (size_t k = 0; k < e->n_slices; k++) {
            const tm_hf_slice *s = &e->slices[k];
            const tm_adapter  *adapter = expert ? NULL : tm_hf_adapter_of(graph, e, k);
            tm_text_printf(out, " %s %s %lld:%lldx%lld e%lld p%lld @%lld+%lld,%lld", graph->tensors[s->parameter].name,
                           s->piece, (long long)s->first, (long long)s->rows, (long long)s->columns,
                           (long long)s->expert, (long long)s->part, (long long)s->start, (long long)s->row_step,
                           (long long)s->column_step);
            if (s->skip || s->column) tm_text_printf(out, " cut %lld,%lld", (long long)s->skip, (long long)s->column);
            if (s->rotary)
                tm_text_printf(out, " rotary %lld row 3 is %lld", (long long)s->rotary, (long long)tm_hf_row(s, 3));
            if (adapter) tm_text_add(out, " adapted");
        }
        tm_text_printf(out, "%s\n", !expert && e->row && tm_hf_adapted(graph, e) ? " with adapters" : "");
    }
    tm_hf_layout_destroy(layout);
}

static void add_model(tm_text *out, const tm_model_shape *shape, const tm_hf_form *form, const char *targets, int ranks,
                      bool experts, bool adapted)
{
    tm_graph     *graph = tm_graph_create(&tm_precision_f32);
    tm_parallel   parallel = { .tensor = { .axes = 1, .rank = ranks - 1, .ranks = ranks }, .rows = true };
    tm_adapters   adapters = { .rank = 2, .alpha = 4, .base = TM_DTYPE_COUNT, .place = "test" };
    tm_model      model;
    tm_hf_layout *layout = NULL;
    tm_error      err = { 0 };
    char          what[64];
    if (experts) parallel.experts = (tm_division){ .axes = 2, .rank = ranks - 1, .ranks = ranks };
    tm_model_declare(graph, shape, 8, &parallel, &model);
    snprintf(adapters.targets, sizeof adapters.targets, "%s", targets);
    tm_status st = adapted ? tm_adapters_declare(graph, &model, &adapters, &err) : TM_OK;
    if (st != TM_OK) {
        add_layout(out, "adapters", graph, st, NULL, &err);
        tm_graph_destroy(graph);
        return;
    }
    snprintf(what, sizeof what, "%s, rank %d of %d%s", adapted ? "adapters" : "all", ranks - 1, ranks,
             experts ? ", experts" : "");
    if (adapted)
        st = tm_hf_adapter_layout_create(graph, shape, form, &layout, &err);
    else if (ranks == 1)
        st = tm_hf_layout_create(graph, shape, form, &layout, &err);
    else
        st = tm_hf_part_layout_create(graph, shape, form, &layout, &err);
    add_layout(out, what, graph, st, layout, &err);
    if (adapted && ranks == 1) {
        err = (tm_error){ 0 };
        st = tm_hf_layout_create(graph, shape, form, &layout, &err);
        add_layout(out, "the matrices beside them", graph, st, layout, &err);
    }
    tm_graph_destroy(graph);
}

TEST(layouts_to_the_letter)
{
    tm_text out = { 0 };
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++) {
        tm_config        *config = test_full_config();
        tm_model_shape    shape;
        const tm_hf_form *form;
        tm_error          err = { 0 };
        if (read_model(models[i].words, config, &shape, &err) != TM_OK ||
            tm_hf_form_of(config, &shape, &form, &err) != TM_OK)
            fail_msg("%s: %s", models[i].words, err.text);
        tm_text_printf(&out, "== %s\n", models[i].words);
        add_model(&out, &shape, form, models[i].targets, 1, false, false);
        add_model(&out, &shape, form, models[i].targets, 2, false, false);
        if (strstr(models[i].words, "n_experts")) add_model(&out, &shape, form, models[i].targets, 2, true, false);
        add_model(&out, &shape, form, models[i].targets, 1, false, true);
        tm_config_destroy(config);
    }
    whole_is("tests/hf/whole-layouts.txt", &out);
}

TEST(modules_of_experts)
{
    static const char *const names[] = { "model.layers.0.mlp.experts.3.w1.weight",
                                         "model.layers.0.mlp.experts.3.down_proj.weight",
                                         "model.layers.0.block_sparse_moe.experts.0.w2.weight",
                                         "model.layers.0.mlp.w1.weight",
                                         "experts",
                                         "model.layers.11.mlp.experts.gate_up_proj",
                                         "" };
    tm_arena                *arena = tm_arena_create();
    tm_text                  out = { 0 };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        for (int inner = 0; inner < 2; inner++) {
            const char *module = tm_hf_experts_module(arena, names[i], inner);
            tm_text_printf(&out, "%s %d: %s\n", names[i], inner, module ? module : "none");
        }
    tm_arena_destroy(arena);
    whole_is("tests/hf/whole-modules.txt", &out);
}
