/* SPDX-License-Identifier: Apache-2.0 */
/* What follows from the keys of a model: counts, products and modules as its tensors have them. (What is refused:
 * tests/golden/refusals.txt; what ranks have of it: tests/train/test_layouts.c.) */
#include "model/model.h"
#include "model/presets.h"
#include "support/full_config.h"

#include "support/test.h"

#define EXPERTS "tiny-llama --model.family mixtral --model.n_layers 2 --model.moe_ffn_dim 24 "

static const char *const small[] = {
    "tiny-llama",
    "tiny-llama --model.bias all --model.tied true --model.qk_norm true --model.init hf --model.init_std 0.05 "
    "--model.n_layers 2",
    "tiny-llama --model.bias qkv --model.rope_scaling llama3 --model.rope_layout interleaved --model.n_layers 1 "
    "--model.rope_scaling_factor 3",
    "tiny-llama --model.rope_scaling yarn --model.rope_scaling_factor 4 --model.rope_original_max_seq_len 64 "
    "--model.n_layers 1",
    "tiny-llama --model.rope_scaling linear --model.rope_scaling_factor 3 --model.n_layers 1",
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
    "gpt-small --model.n_layers 2 --model.dim 32 --model.n_heads 4 --model.vocab_size 60",
    "gpt-small --model.n_layers 1 --model.dim 32 --model.n_heads 4 --model.vocab_size 60 --model.bias none "
    "--model.tied false --model.init hf",
    "gpt-small --model.n_layers 1 --model.dim 32 --model.n_heads 4 --model.vocab_size 60 --model.bias mi350x_table "
    "--model.n_kv_heads 2",
    "tiny-flux",
    "tiny-flux --model.guidance_embed true --model.guidance 2.5 --model.n_layers 1 --model.n_single_layers 1 "
    "--model.image_size 64",
    EXPERTS "--model.n_experts 6 --model.n_experts_per_token 4 --model.n_expert_groups 3 --model.n_limited_groups 2 "
            "--model.expert_group_best 1",
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

/* Is there a matrix of a product's size, in any layer? */
static bool has_matrix(const tm_graph *graph, const tm_model_product *p)
{
    for (size_t i = 0; i < graph->n_tensors; i++) {
        const tm_shape s = graph->tensors[i].shape;
        if (s.rank >= 2 && s.n[s.rank - 2] == p->out && s.n[s.rank - 1] == p->in) return true;
    }
    return false;
}

/* And a product of the size of each matrix of the last block? Experts share one; routers are no product. */
static void check_products(const char *words, const tm_model_shape *shape, const tm_graph *graph)
{
    tm_model_product products[TM_MAX_PRODUCTS];
    const int        n = tm_model_products(shape, products);
    for (int k = 0; k < n; k++)
        if (!has_matrix(graph, &products[k])) fail_msg("%s: no matrix of %s", words, products[k].name);
    for (size_t i = 0; i < graph->n_tensors && !tm_model_images(shape); i++) {
        const tm_tensor *t = &graph->tensors[i];
        bool found = t->shape.rank < 2 || t->layer != shape->n_layers - 1 || strstr(t->name, "router") != NULL;
        for (int k = 0; k < n; k++)
            found = found || (t->shape.n[t->shape.rank - 2] == products[k].out &&
                              t->shape.n[t->shape.rank - 1] == products[k].in);
        if (!found) fail_msg("%s: no product of %s", words, t->name);
    }
}

/* Every parameter is of a module; blocks follow one another between what is in front of them and behind. */
static void check_modules(const tm_model_shape *shape, const tm_graph *graph)
{
    tm_model_module module;
    int64_t         block = -1;
    size_t          found = 0, parameters = 0;
    for (size_t i = 0; i < graph->n_tensors; i++) parameters += graph->tensors[i].role == TM_ROLE_PARAMETER;
    for (int64_t i = 0; tm_model_module_at(shape, i, &module); i++) {
        const size_t n = strlen(module.name);
        assert_true(module.block == block || module.block == block + 1);
        block = module.block;
        for (size_t k = 0; k < graph->n_tensors; k++) {
            const tm_tensor *t = &graph->tensors[k];
            if (t->role != TM_ROLE_PARAMETER || strncmp(t->name, module.name, n) != 0 || t->name[n] != '.') continue;
            assert_int_equal(t->layer, block < 0 || block == tm_model_blocks(shape) ? -1 : block);
            found++;
        }
    }
    assert_int_equal(block, tm_model_blocks(shape));
    if (shape->family != TM_FAMILY_GPT) assert_int_equal(found, parameters); /* its names are those of GPT-2 */
}

/* By the list of conventions, with the keys that a token sees counted one by one. */
static void check_flops(const tm_model_shape *s)
{
    static const int64_t lengths[] = { 1, 3, 100 };
    const double         n = (double)tm_model_parameters_active(s), matmul = (double)tm_model_parameters_matmul(s);
    const double         input = (double)tm_model_parameters_embedding(s);
    const double         widths =
        (double)(s->n_heads * (s->mla.kv_rank ? s->mla.nope + s->mla.rope + s->mla.v : 2 * s->head_dim));
    double routers = 0;
    for (int64_t layer = s->moe.dense_layers; layer < s->n_layers; layer++)
        routers += (double)(s->moe.experts * s->dim);
    const double padding = (double)(((s->vocab_size + 127) / 128 * 128 - s->vocab_size) * s->dim);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const int64_t t = lengths[i];
        double        seen = 0, most = 0, deep = (double)s->n_layers, T = (double)t;
        for (int64_t layer = 0; layer < s->n_layers; layer++) {
            int64_t window = s->window > 0 && layer % s->window_every == 0 && s->window < t ? s->window : t;
            most += (double)window;
            for (int64_t q = 0; q < t; q++) seen += (double)(q + 1 < window ? q + 1 : window) / T;
        }
        const double wanted[TM_FLOPS_COUNT] = {
            [TM_FLOPS_TITAN] = 6 * (n - input) + 6 * deep * widths * T,
            [TM_FLOPS_MATMUL] = 6 * matmul + 6 * widths * most,
            [TM_FLOPS_MEGATRON] = 6 * (matmul - routers + padding) + 3 * deep * widths * T,
            [TM_FLOPS_6N] = 6 * n,
            [TM_FLOPS_LLMC] = 6 * n + 6 * deep * (double)s->dim * T,
            [TM_FLOPS_NANOGPT] = 6 * n + 12 * deep * (double)s->dim * T,
            [TM_FLOPS_EXACT_CAUSAL] = 6 * matmul + 6 * widths * seen,
        };
        for (int c = 0; c < TM_FLOPS_COUNT; c++) {
            const double found = tm_model_flops_per_token(s, (tm_flops_convention)c, t);
            if (!(fabs(found / wanted[c] - 1) < 1e-12))
                fail_msg("%s: %.17g, wanted %.17g", tm_flops_convention_name((tm_flops_convention)c), found, wanted[c]);
        }
    }
}

/* As it turns `turns` times within the original length: llama3 by turns, YaRN by pairs, both from f to f / factor;
 * linear always f / factor. */
static double published_frequency(const tm_model_shape *s, int64_t i, int64_t dim)
{
    const double two_pi = 2 * acos(-1.0), original = (double)s->rope_original_max_seq_len;
    const double f = pow(s->rope_theta, -2.0 * (double)i / (double)dim), turns = original * f / two_pi;
    double       kept = s->rope_linear ? 0 : 1;
    if (s->rope_scaled) kept = (turns - s->rope_low_freq_factor) / (s->rope_high_freq_factor - s->rope_low_freq_factor);
    if (s->yarn.on) {
        double first = log(original / two_pi / s->yarn.beta_fast) / log(s->rope_theta) * (double)dim / 2;
        double last = log(original / two_pi / s->yarn.beta_slow) / log(s->rope_theta) * (double)dim / 2;
        if (s->yarn.truncate) first = floor(first), last = ceil(last);
        first = fmax(first, 0), last = fmin(last, (double)dim - 1);
        kept = 1 - ((double)i - first) / (last - first);
    }
    kept = fmin(fmax(kept, 0), 1);
    return f * (kept + (1 - kept) / s->rope_scaling_factor);
}

/* The table of cosines and sines, which YaRN makes larger by 0.1 ln(factor) + 1, or a ratio of such. */
static void check_rope(const tm_model_shape *s, const tm_graph *graph)
{
    const double logarithm = log(s->rope_scaling_factor) / 10;
    double       amplitude = s->yarn.on ? logarithm + 1 : 1;
    if (s->yarn.on && s->yarn.mscale > 0)
        amplitude = (s->yarn.mscale * logarithm + 1) / (s->yarn.mscale_all_dim * logarithm + 1);
    for (size_t t = 0; t < graph->n_tensors; t++) {
        const tm_tensor *table = &graph->tensors[t];
        if (strcmp(table->name, "rope_table") != 0) continue;
        const int64_t dim = table->shape.n[1];
        assert_int_equal(dim, s->mla.kv_rank > 0 ? s->mla.rope : s->head_dim);
        for (int64_t k = 0; k < tm_shape_elements(table->shape); k++) {
            const int64_t column = k % dim, pair = column % (dim / 2);
            const double  angle = (double)(k / dim) * published_frequency(s, pair, dim);
            const double  wanted = amplitude * (column < dim / 2 ? cos(angle) : sin(angle));
            assert_true(fabs(table->fill(table->fill_context, k) - wanted) < 1e-12);
        }
    }
}

TEST(what_is_counted_is_what_is_declared)
{
    for (size_t i = 0; i < sizeof small / sizeof small[0]; i++) {
        tm_model_shape shape;
        tm_model       model;
        tm_error       err = { 0 };
        if (read_shape(small[i], &shape, &err) != TM_OK) fail_msg("%s: %s", small[i], err.text);
        tm_graph *graph = tm_graph_create(&tm_precision_f32);
        tm_model_declare(graph, &shape, 8, NULL, &model);
        check_modules(&shape, graph);
        check_products(small[i], &shape, graph);
        if (!tm_model_images(&shape)) check_flops(&shape), check_rope(&shape, graph);
        assert_int_equal(tm_model_blocks(&shape), shape.n_layers + shape.flux.n_single);
        tm_graph_destroy(graph);
    }
}
