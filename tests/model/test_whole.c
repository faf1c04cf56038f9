/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes as keys make them, what follows from them, and every tensor that a family declares, to the letter; of presets
 * a digest. After a change that is meant:
 *     TM_RECORD=1 build/release/tests/model/test_whole; git diff tests/model/whole.txt
 */
#include "base/hash.h"
#include "model/hf.h"
#include "model/model.h"
#include "model/presets.h"
#include "support/full_config.h"
#include "support/whole.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static void add_shape(tm_text *out, const tm_model_shape *s)
{
    const tm_moe_shape  *m = &s->moe;
    const tm_flux_shape *f = &s->flux;
    tm_text_printf(out, "  %s: V %lld, d %lld, L %lld, H %lld, J %lld, hd %lld, ff %lld, P %lld, eps %g, theta %g\n",
                   tm_model_family_name(s), (long long)s->vocab_size, (long long)s->dim, (long long)s->n_layers,
                   (long long)s->n_heads, (long long)s->n_kv_heads, (long long)s->head_dim, (long long)s->ffn_dim,
                   (long long)s->max_seq_len, s->norm_eps, s->rope_theta);
    tm_text_printf(
        out,
        "  rope %d %g %g %g %lld, interleaved %d, window %lld every %lld, qk norm %d, tied %d, bias %d, init %d %g, "
        "sinks %d, clamped %d, yarn %d %d %g %g %g %g\n",
        s->rope_scaled, s->rope_scaling_factor, s->rope_low_freq_factor, s->rope_high_freq_factor,
        (long long)s->rope_original_max_seq_len, s->rope_interleaved, (long long)s->window, (long long)s->window_every,
        s->qk_norm, s->tied, s->bias, s->init, s->init_std, s->sinks, s->clamped, s->yarn.on, s->yarn.truncate,
        s->yarn.beta_fast, s->yarn.beta_slow, s->yarn.mscale, s->yarn.mscale_all_dim);
    tm_text_printf(out,
                   "  experts %lld of %lld, ff %lld, shared %lld, dense %lld, sigmoid %d, normalised %d, uniform %d, "
                   "scale %g, groups "
                   "%lld %lld %lld, loss %g %d, bias %d %g; latent %lld %lld %lld %lld %lld\n",
                   (long long)m->top_k, (long long)m->experts, (long long)m->ffn_dim, (long long)m->shared,
                   (long long)m->dense_layers, m->sigmoid, m->normalise, m->uniform, m->scale, (long long)m->groups,
                   (long long)m->top_groups, (long long)m->group_best, m->aux_loss, m->aux_per_sequence, m->biased,
                   m->bias_rate, (long long)s->mla.q_rank, (long long)s->mla.kv_rank, (long long)s->mla.nope,
                   (long long)s->mla.rope, (long long)s->mla.v);
    tm_text_printf(out, "  flux %lld %lld %lld %lld %lld %lld %lld %lld, axes %lld %lld %lld, guidance %d %g\n",
                   (long long)f->n_single, (long long)f->text_len, (long long)f->rows, (long long)f->columns,
                   (long long)f->text_dim, (long long)f->vector_dim, (long long)f->channels, (long long)f->time_dim,
                   (long long)f->axes[0], (long long)f->axes[1], (long long)f->axes[2], f->guidance, f->guidance_scale);
}

/* Large models are declared for each figure: of presets few are asked for. */
static void add_counts(tm_text *out, const tm_model_shape *s, bool all)
{
    static const int64_t seqs[] = { 100, 1, 8192 };
    tm_model_product     products[TM_MAX_PRODUCTS];
    if (all)
        tm_text_printf(out,
                       "  longest %lld, length %lld, blocks %lld, images %d; %lld parameters, %lld active, %lld layer, "
                       "%lld embedding, "
                       "%lld matmul\n",
                       (long long)tm_model_max_length(s), (long long)tm_model_length(s), (long long)tm_model_blocks(s),
                       tm_model_images(s), (long long)tm_model_parameters(s), (long long)tm_model_parameters_active(s),
                       (long long)tm_model_parameters_layer(s), (long long)tm_model_parameters_embedding(s),
                       (long long)tm_model_parameters_matmul(s));
    for (int c = all ? 0 : TM_FLOPS_COUNT - 1; c < TM_FLOPS_COUNT; c++) {
        tm_text_printf(out, "  %s:", tm_flops_convention_name((tm_flops_convention)c));
        for (size_t i = 0; i < (all ? 3 : 1); i++)
            tm_text_printf(out, " %.15g", tm_model_flops_per_token(s, (tm_flops_convention)c, seqs[i]));
        tm_text_add(out, "\n");
    }
    int n = tm_model_products(s, products);
    tm_text_add(out, "  products:");
    for (int i = 0; i < n; i++)
        tm_text_printf(out, " %s %lld x %lld,", products[i].name, (long long)products[i].out,
                       (long long)products[i].in);
    tm_text_add(out, "\n  fields:");
    for (const char *const *f = tm_model_fields(s); *f; f++) tm_text_printf(out, " %s", *f);
    for (const char *const *f = tm_model_optional_fields(s); *f; f++) tm_text_printf(out, " [%s]", *f);
    tm_model_module module;
    tm_text_add(out, all ? "\n  modules:" : "");
    for (int64_t i = 0; all && tm_model_module_at(s, i, &module); i++)
        tm_text_printf(out, " %s (%lld)", module.name, (long long)module.block);
    tm_text_add(out, "\n  frequencies:");
    for (int64_t i = 0; i < s->head_dim / 2 && !tm_model_images(s); i += 1 + s->head_dim / 16)
        tm_text_printf(out, " %.12g", tm_model_rope_frequency(s, i, 1));
    tm_text_add(out, "\n");
}

static void add_tensors(tm_text *out, const tm_model_shape *s)
{
    tm_graph *graph = tm_graph_create(&tm_precision_f32);
    tm_model  model;
    tm_model_declare(graph, s, 8, NULL, &model);
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        char             shape[96];
        tm_text          theirs = { 0 };
        tm_text_printf(out, "  %s %s %s role %d layer %d%s%s%s", t->name, tm_dtype_name(t->dtype),
                       tm_shape_text(shape, t->shape), t->role, t->layer, t->trained ? "" : " fixed",
                       t->as_stored ? " as stored" : "", t->fill ? " filled" : "");
        for (int p = 0; p < t->n_pieces; p++) {
            const tm_piece *piece = &t->pieces[p];
            tm_text_printf(out, "; %s %lld + %lld, %g +- %g, cut %g%s",
                           strcmp(piece->name, t->name) == 0 ? "" : piece->name, (long long)piece->row,
                           (long long)piece->rows, piece->mean, piece->std, piece->cut, piece->uniform ? ", even" : "");
            if (tm_hf_name_of(s, piece->name, &theirs)) tm_text_printf(out, " = %s", theirs.data);
            tm_text_fini(&theirs);
        }
        if (t->fill)
            for (int64_t k = 0; k < tm_shape_elements(t->shape); k += 7)
                tm_text_printf(out, " %.9g", t->fill(t->fill_context, k));
        tm_text_add(out, "\n");
    }
    tm_graph_destroy(graph);
}

#define EXPERTS "tiny-llama --model.family mixtral --model.n_layers 2 --model.moe_ffn_dim 24 "

static const char *const small[] = {
    "tiny-llama",
    "tiny-llama --model.bias all --model.tied true --model.qk_norm true --model.init hf --model.init_std 0.05 "
    "--model.n_layers 2",
    "tiny-llama --model.bias qkv --model.rope_scaling llama3 --model.rope_layout interleaved --model.n_layers 1 "
    "--model.rope_scaling_factor 3",
    "tiny-llama --model.rope_scaling yarn --model.rope_scaling_factor 4 --model.rope_original_max_seq_len 64 "
    "--model.n_layers 1",
    "tiny-llama --model.rope_scaling yarn --model.rope_truncate false --model.rope_mscale 0.7 "
    "--model.rope_mscale_all_dim 0.9 --model.n_layers 1",
    "tiny-llama --model.n_layers 3 --model.n_heads 4 --model.n_kv_heads 2 --model.head_dim 24 --model.ffn_dim 100 "
    "--model.sliding_window 5 "
    "--model.sliding_window_every 2 --model.init gpt2",
    "tiny-llama --model.family mistral --model.n_layers 1",
    "tiny-llama --model.family qwen2 --model.n_layers 1",
    "tiny-llama --model.family qwen3 --model.n_layers 1 --model.tied true",
    "tiny-llama --model.family mixtral --model.n_layers 2 --model.n_experts 4 --model.n_experts_per_token 2 "
    "--model.n_dense_layers 1 "
    "--model.moe_aux_loss 0.1",
    "tiny-llama --model.family qwen3_moe --model.n_layers 1 --model.n_experts 8 --model.n_experts_per_token 3 "
    "--model.moe_ffn_dim 24",
    "tiny-llama --model.family gpt_oss --model.n_layers 2 --model.n_experts 4 --model.n_experts_per_token 1 "
    "--model.sliding_window 8",
    "tiny-llama --model.n_layers 1 --model.n_experts 8 --model.n_experts_per_token 2 --model.n_expert_groups 4 "
    "--model.n_limited_groups 2 "
    "--model.expert_group_best 2 --model.moe_score sigmoid --model.moe_bias_rate 0.01 --model.moe_scale 2 "
    "--model.n_shared_experts 2",
    "tiny-llama --model.family deepseek --model.n_layers 2 --model.n_kv_heads null --model.kv_lora_rank 16 "
    "--model.qk_nope_head_dim 12 "
    "--model.qk_rope_head_dim 4 --model.v_head_dim 8",
    "tiny-llama --model.family deepseek --model.n_layers 2 --model.n_kv_heads null --model.kv_lora_rank 16 "
    "--model.q_lora_rank 20 "
    "--model.qk_nope_head_dim 12 --model.qk_rope_head_dim 4 --model.v_head_dim 8 --model.n_experts 4 "
    "--model.n_experts_per_token 2 "
    "--model.n_shared_experts 1 --model.n_dense_layers 1 --model.moe_ffn_dim 16 --model.moe_score sigmoid "
    "--model.moe_normalise true "
    "--model.moe_scale 2.5 --model.moe_bias_rate 0.001",
    "gpt-small --model.n_layers 2 --model.dim 32 --model.n_heads 4 --model.vocab_size 60 --model.max_seq_len 16",
    "gpt-small --model.n_layers 1 --model.dim 32 --model.n_heads 4 --model.vocab_size 60 --model.bias none "
    "--model.tied false --model.init hf",
    "gpt-small --model.n_layers 1 --model.dim 32 --model.n_heads 4 --model.vocab_size 60 --model.bias mi350x_table "
    "--model.n_kv_heads 2",
    "tiny-flux",
    "tiny-flux --model.guidance_embed true --model.guidance 2.5 --model.n_layers 1 --model.n_single_layers 1 "
    "--model.image_size 64",
    /* what is refused */
    "tiny-llama --model.n_experts 4",
    "tiny-llama --model.n_experts 4 --model.n_experts_per_token 5 --model.n_dense_layers 9 --model.moe_bias false "
    "--model.moe_bias_rate 0.1",
    "tiny-llama --model.n_experts 4 --model.n_experts_per_token 2 --model.n_expert_groups 3",
    "tiny-llama --model.n_experts 4 --model.n_experts_per_token 2 --model.n_expert_groups 2 --model.expert_group_best "
    "3 --model.n_limited_groups 3",
    "tiny-llama --model.n_experts 8 --model.n_experts_per_token 3 --model.n_expert_groups 4 --model.n_limited_groups 1",
    "tiny-llama --model.n_heads 3",
    "tiny-llama --model.n_kv_heads 3",
    "tiny-llama --model.dim 2 --model.n_heads 4",
    "tiny-llama --model.head_dim 7",
    "tiny-llama --model.rope_scaling llama3 --model.rope_low_freq_factor 4 --model.rope_high_freq_factor 4",
    "tiny-llama --model.family deepseek --model.sliding_window 4 --model.sinks true --model.qk_norm true --model.bias "
    "all",
    "tiny-llama --model.family deepseek --model.sliding_window 1",
    "tiny-llama --model.family deepseek --model.n_layers 2 --model.n_kv_heads null --model.kv_lora_rank 16 "
    "--model.q_lora_rank 1 --model.qk_nope_head_dim 12 --model.qk_rope_head_dim 4 --model.v_head_dim 8",
    "tiny-llama --model.family deepseek --model.kv_lora_rank 8 --model.n_kv_heads null --model.qk_rope_head_dim 5 "
    "--model.n_experts 4 "
    "--model.n_experts_per_token 2 --model.moe_normalise true --model.moe_scale 2",
    "gpt-small --model.sliding_window 4 --model.sinks true --model.bias qkv --model.rope_scaling llama3 "
    "--model.qk_norm true",
    "gpt-small --model.n_experts 4 --model.n_experts_per_token 2",
    "tiny-flux --model.image_size 50 --model.time_dim 7 --model.rope_axes 3,5,8 --model.sliding_window 4 --model.tied "
    "true",
    "tiny-flux --model.rope_axes 4,4 --model.head_dim 24",
    "tiny-llama --model.kv_lora_rank 16 --model.head_dim 5 --model.bias mi350x_table",
    "tiny-llama --model.n_heads 6 --model.n_kv_heads 4 --model.dim 100",
    EXPERTS "--model.n_experts 6 --model.n_experts_per_token 6 --model.n_dense_layers 2 --model.n_expert_groups 3 "
            "--model.n_limited_groups 3 --model.expert_group_best 2",
    EXPERTS "--model.n_experts 6 --model.n_experts_per_token 4 --model.n_expert_groups 3 --model.n_limited_groups 2 "
            "--model.expert_group_best 1",
    EXPERTS "--model.n_experts 6 --model.n_experts_per_token 7",
    EXPERTS "--model.n_experts 6 --model.n_experts_per_token 2 --model.n_dense_layers 3",
    EXPERTS "--model.n_experts 6 --model.n_experts_per_token 2 --model.n_expert_groups 4",
    EXPERTS "--model.n_experts 6 --model.n_experts_per_token 2 --model.n_expert_groups 3 --model.n_limited_groups 4 "
            "--model.expert_group_best 3",
    EXPERTS "--model.n_experts 6 --model.n_experts_per_token 5 --model.n_expert_groups 3 --model.n_limited_groups 2",
    EXPERTS "--model.n_experts 6 --model.n_experts_per_token 2 --model.moe_bias false --model.moe_bias_rate 0.1",
    EXPERTS "--model.n_experts 6",
    EXPERTS "--model.n_experts 1 --model.n_experts_per_token 1",
};

static tm_status read_shape(const char *words, tm_model_shape *shape, tm_error *err)
{
    tm_config *config = test_full_config();
    char       copy[1500], *argv[64];
    int        n = 0;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, " "); word; word = strtok(NULL, " ")) argv[n++] = word;
    tm_status st = tm_config_apply_preset(config, argv[0], err);
    if (st == TM_OK) st = tm_config_apply_arguments(config, n - 1, argv + 1, err);
    if (st == TM_OK) st = tm_config_finish(config, err);
    if (st == TM_OK) st = tm_model_shape_read(config, shape, err);
    tm_config_destroy(config);
    return st;
}

static void models_are_as_recorded(void **state)
{
    tm_text          out = { 0 };
    size_t           n;
    const tm_preset *presets = tm_model_presets(&n);
    (void)state;
    for (size_t i = 0; i < n; i++) {
        tm_text        text = { 0 };
        tm_model_shape shape;
        tm_error       err = { 0 };
        if (read_shape(presets[i].name, &shape, &err) != TM_OK) fail_msg("%s: %s", presets[i].name, err.text);
        add_shape(&text, &shape);
        add_counts(&text, &shape, false);
        tm_text_printf(&out, "%s: %016llx\n", presets[i].name, (unsigned long long)tm_hash(text.data, text.length));
        tm_text_fini(&text);
    }
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
        tm_model_shape shape;
        tm_error       err = { 0 };
        tm_text_printf(&out, "\n%s\n", small[i]);
        tm_status st = read_shape(small[i], &shape, &err);
        if (st != TM_OK) {
            tm_text_printf(&out, "  exit %d: %s\n", tm_status_exit_code(st), err.text);
            continue;
        }
        add_shape(&out, &shape);
        add_counts(&out, &shape, true);
        add_tensors(&out, &shape);
    }
    whole_is("tests/model/whole.txt", &out);
}

/* What the model cannot be divided into. */
static void divisions_are_as_recorded(void **state)
{
    static const char *const words[] = {
        "tiny-llama", "tiny-llama --model.n_experts 6 --model.n_experts_per_token 2 --model.moe_ffn_dim 20",
        "tiny-llama --model.n_experts 6 --model.n_experts_per_token 2 --model.n_shared_experts 1 --model.moe_ffn_dim "
        "21",
        "gpt-small", "tiny-flux"
    };
    tm_text out = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        for (int ranks = 1; ranks < 6; ranks++)
            for (int kind = 0; kind < 4; kind++) {
                tm_model_shape shape;
                tm_error       err = { 0 };
                tm_parallel    parallel = { .rows = kind == 3 };
                assert_int_equal(read_shape(words[i], &shape, &err), TM_OK);
                if (kind != 1) parallel.tensor = (tm_division){ .axes = 1, .rank = 0, .ranks = ranks };
                if (kind != 0) parallel.experts = (tm_division){ .axes = 2, .rank = 0, .ranks = ranks };
                tm_status st = kind == 1 ? tm_moe_divides(&shape, &parallel, &err)
                                         : tm_model_check_tensor(&shape, &parallel, &err);
                tm_text_printf(&out, "%s, %d ranks, %d: %d %s; %d %d\n", words[i], ranks, kind, st, err.text,
                               tm_moe_own_rows(&parallel), tm_moe_takes_balance(&parallel));
            }
    whole_is("tests/model/whole-divisions.txt", &out);
}

/* Of every preset the keys that it is made of. */
static void presets_are_as_recorded(void **state)
{
    tm_text          out = { 0 };
    size_t           n;
    const tm_preset *presets = tm_model_presets(&n);
    (void)state;
    for (size_t i = 0; i < n; i++) {
        tm_text_printf(&out, "%s (%s):", presets[i].name, presets[i].alias ? presets[i].alias : "-");
        for (const char *const *pair = presets[i].pairs; *pair; pair++) tm_text_printf(&out, " %s", *pair);
        tm_text_add(&out, "\n");
    }
    whole_is("tests/model/whole-presets.txt", &out);
}

static void add_pieces(tm_text *out, const tm_graph *graph)
{
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_tensor *t = &graph->tensors[i];
        char             shape[96], whole[96];
        if (t->role != TM_ROLE_PARAMETER) continue;
        tm_text_printf(out, "  %s %s, sums %x", t->name, tm_shape_text(shape, t->shape), t->sums);
        if (t->cut)
            tm_text_printf(out, ", %d of %d of axes %x of %s from column %lld", t->cut->rank, t->cut->ranks,
                           t->cut->axes, tm_shape_text(whole, t->cut->whole), (long long)t->cut->column);
        for (int p = 0; p < t->n_pieces; p++) {
            const tm_piece *piece = &t->pieces[p];
            tm_text_printf(out, "; %s %lld + %lld, begins %lld, first %lld of %lld",
                           strcmp(piece->name, t->name) == 0 ? "" : piece->name, (long long)piece->row,
                           (long long)piece->rows, (long long)piece->begin, (long long)piece->first,
                           (long long)piece->whole);
        }
        tm_text_add(out, "\n");
    }
}

/* What a rank has of each matrix: rows of pieces, columns, where they begin in the whole. */
static void pieces_are_as_recorded(void **state)
{
    static const char *const words[] = {
        "tiny-llama --model.n_layers 1 --model.bias all --model.qk_norm true --model.sinks true",
        "tiny-llama --model.n_layers 1 --model.tied true --model.family mixtral --model.n_experts 4 "
        "--model.n_experts_per_token 2 --model.moe_ffn_dim 20",
        "tiny-llama --model.n_layers 1 --model.family gpt_oss --model.n_experts 4 --model.n_experts_per_token 2 "
        "--model.moe_ffn_dim 20",
        "tiny-llama --model.n_layers 2 --model.family deepseek --model.n_kv_heads null --model.kv_lora_rank 16 "
        "--model.q_lora_rank 20 --model.qk_nope_head_dim 12 --model.qk_rope_head_dim 4 --model.v_head_dim 8 "
        "--model.n_shared_experts 1 --model.n_dense_layers 1 --model.n_experts 4 --model.n_experts_per_token 2 "
        "--model.moe_ffn_dim 20",
        "gpt-small --model.n_layers 1",
        "gpt-small --model.n_layers 1 --model.tied false --model.vocab_size 101",
        "tiny-flux --model.n_layers 1 --model.n_single_layers 1 --model.guidance_embed true",
    };
    tm_text out = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        for (int kind = 0; kind < 3; kind++) {
            tm_graph      *graph;
            tm_model_shape shape;
            tm_model       model;
            tm_error       err = { 0 };
            tm_parallel    parallel = { .rows = false };
            if (read_shape(words[i], &shape, &err) != TM_OK) fail_msg("%s: %s", words[i], err.text);
            if (kind == 2 && shape.moe.experts == 0) continue;
            if (kind < 2) parallel.tensor = (tm_division){ .axes = 1, .rank = 1 - kind, .ranks = 2 };
            if (kind == 2) parallel.experts = (tm_division){ .axes = 2, .rank = 1, .ranks = 2 };
            graph = tm_graph_create(&tm_precision_f32);
            tm_model_declare(graph, &shape, 8, &parallel, &model);
            tm_text_printf(&out, "\n%s: %s\n", words[i], kind == 2 ? "experts" : kind ? "first" : "second");
            add_pieces(&out, graph);
            tm_graph_destroy(graph);
        }
    whole_is("tests/model/whole-pieces.txt", &out);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(models_are_as_recorded),
    cmocka_unit_test(divisions_are_as_recorded),
    cmocka_unit_test(presets_are_as_recorded),
    cmocka_unit_test(pieces_are_as_recorded),
};

TM_TESTS(tests, NULL, NULL)
