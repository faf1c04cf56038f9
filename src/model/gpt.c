/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpt.c - GPT-2 style models: learned positions, LayerNorm, fused qkv, GELU (tanh), tied head.
 *
 *   x = wte[ids] + wpe[positions]
 *   per layer:  x = x + Wo attention(Wqkv LN(x)) ;  x = x + W2 gelu(W1 LN(x))
 *   z = wte LN(x)
 *
 * Weights are stored (out, in), unlike GPT-2's own checkpoints.
 */
#include "model/blocks.h"
#include "model/hf_rows.h"

static void declare_block(tm_graph *graph, const tm_model *model, int layer, tm_block_weights *w)
{
    const tm_model_shape *s = model->shape;
    bool                  all = s->bias == TM_BIAS_ALL, some = s->bias != TM_BIAS_NONE;
    int64_t               c = s->dim, q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim, f = s->ffn_dim;
    const char           *qkv_w = tm_arena_format(graph->arena, "h.%d.attn.c_attn.weight", layer);
    const char           *qkv_b = tm_arena_format(graph->arena, "h.%d.attn.c_attn.bias", layer);
    const tm_part         weights[] = { { qkv_w, q, TM_INIT_IN, 0 },
                                        { qkv_w, kv, TM_INIT_IN, q },
                                        { qkv_w, kv, TM_INIT_IN, q + kv } };
    const tm_part         biases[] = { { qkv_b, q, TM_INIT_ZERO, 0 },
                                       { qkv_b, kv, TM_INIT_ZERO, q },
                                       { qkv_b, kv, TM_INIT_ZERO, q + kv } };
#define BETWEEN(place, name)                                                                                           \
    tm_between(graph, model, tm_declare(graph, s, place, layer, tm_shape_1(c), "h.%d." name, layer))
#define DECLARE(how, place, shape, name) tm_declare_##how(graph, model, place, layer, shape, "h.%d." name, layer)
    w->norm1_w = BETWEEN(TM_INIT_ONE, "ln_1.weight");
    w->norm1_b = BETWEEN(TM_INIT_ZERO, "ln_1.bias");
    w->qkv_w = tm_declare_fused(graph, model, layer, qkv_w, c, weights, 3, true);
    w->qkv_b = all ? tm_declare_fused(graph, model, layer, qkv_b, 0, biases, 3, true) : TM_NONE;
    w->out_w = DECLARE(columns, TM_INIT_OUT, tm_shape_2(c, q), "attn.c_proj.weight");
    w->out_b = some ? BETWEEN(TM_INIT_ZERO, "attn.c_proj.bias") : TM_NONE;
    w->norm2_w = BETWEEN(TM_INIT_ONE, "ln_2.weight");
    w->norm2_b = BETWEEN(TM_INIT_ZERO, "ln_2.bias");
    w->up_w = DECLARE(rows, TM_INIT_IN, tm_shape_2(f, c), "mlp.c_fc.weight");
    w->up_b = all ? DECLARE(rows, TM_INIT_ZERO, tm_shape_1(f), "mlp.c_fc.bias") : TM_NONE;
    w->down_w = DECLARE(columns, TM_INIT_OUT, tm_shape_2(c, f), "mlp.c_proj.weight");
    w->down_b = all ? BETWEEN(TM_INIT_ZERO, "mlp.c_proj.bias") : TM_NONE;
#undef DECLARE
#undef BETWEEN
}

void tm_gpt_declare(tm_graph *graph, const tm_model_shape *s, int64_t seq, tm_model *out)
{
    (void)seq;
    tm_shape vector = tm_shape_1(s->dim);
    tm_declare_table(graph, "wte.weight", out);
    if (tm_parallel_begins(&out->parallel)) {
        out->positions = tm_declare(graph, s, TM_INIT_POSITION, -1, tm_shape_2(s->max_seq_len, s->dim), "wpe.weight");
        tm_of_heads(graph, out, out->positions); /* each rank adds those of its rows */
    }
    tm_block_weights *blocks = out->own = tm_take_none(graph, (size_t)s->n_layers * sizeof *blocks);
    for (int layer = 0; layer < s->n_layers; layer++)
        if (tm_parallel_has(&out->parallel, layer)) declare_block(graph, out, layer, &blocks[layer]);
    if (tm_parallel_norms(&out->parallel)) {
        out->norm_w = tm_between(graph, out, tm_declare(graph, s, TM_INIT_ONE, -1, vector, "ln_f.weight"));
        out->norm_b = tm_between(graph, out, tm_declare(graph, s, TM_INIT_ZERO, -1, vector, "ln_f.bias"));
    }
    out->head = tm_declare_head(graph, out, "wte.weight", "lm_head.weight");
}

static tm_tensor_id block(tm_graph *graph, const tm_model *model, int layer, tm_tensor_id x)
{
    const tm_model_shape   *s = model->shape;
    const tm_block_weights *w = (const tm_block_weights *)model->own + layer;
    tm_norm_attr            norm = { .eps = s->norm_eps };
    graph->layer = layer;
    graph->module = tm_arena_format(graph->arena, "h.%d.attn", layer);
    tm_tensor_id a = tm_emit(graph, TM_OP_layernorm, &norm, sizeof norm, x, w->norm1_w, w->norm1_b, TM_NONE);
    a = tm_enter(graph, model, a);
    tm_tensor_id qkv = tm_emit(graph, TM_OP_linear, NULL, 0, a, w->qkv_w, w->qkv_b, TM_NONE);
    tm_tensor_id o = tm_attend(graph, model, layer, qkv, TM_NONE);
    x = tm_linear_out(graph, model, o, w->out_w, w->out_b, x);
    graph->module = tm_arena_format(graph->arena, "h.%d.mlp", layer);
    tm_tensor_id b = tm_emit(graph, TM_OP_layernorm, &norm, sizeof norm, x, w->norm2_w, w->norm2_b, TM_NONE);
    b = tm_enter(graph, model, b);
    tm_tensor_id up = tm_emit(graph, TM_OP_linear, NULL, 0, b, w->up_w, w->up_b, TM_NONE);
    tm_tensor_id h = tm_emit(graph, TM_OP_gelu, NULL, 0, up, TM_NONE, TM_NONE, TM_NONE);
    return tm_linear_out(graph, model, h, w->down_w, w->down_b, x);
}

tm_tensor_id tm_gpt_hidden(tm_graph *graph, const tm_model *model, tm_tensor_id tokens)
{
    tm_norm_attr norm = { .eps = model->shape->norm_eps };
    tm_tensor_id x = tm_emit_begin(graph, model, "wte", tokens);
    for (int layer = model->stage.first; layer < model->stage.end; layer++) x = block(graph, model, layer, x);
    if (!tm_stage_norms(&model->stage)) return x;
    graph->layer = -1;
    graph->module = "ln_f";
    return tm_enter(graph, model,
                    tm_emit(graph, TM_OP_layernorm, &norm, sizeof norm, x, model->norm_w, model->norm_b, TM_NONE));
}

static int64_t ffn_dim(int64_t dim)
{
    return 4 * dim;
}

static tm_status check(const tm_config *config, const tm_model_shape *s, tm_error *err)
{
    tm_status st = TM_OK;
    const struct {
        bool        is;
        const char *key;
    } not_built[] = {
        { s->qk_norm, "model.qk_norm" },
        { s->moe.experts > 0, "model.n_experts" },
        { s->mla.kv_rank > 0, "model.kv_lora_rank" },
        { s->window > 0, "model.sliding_window" },
        { s->sinks, "model.sinks" },
        { s->clamped, "model.activation" },
    };
    for (size_t i = 0; i < sizeof not_built / sizeof not_built[0]; i++)
        if (not_built[i].is)
            st = tm_also(err, TM_UNSUPPORTED, "%s (%s) is not supported for the gpt family; leave it out",
                         not_built[i].key, tm_config_place(config, not_built[i].key));
    if (s->bias == TM_BIAS_QKV)
        st = tm_also(err, TM_UNSUPPORTED,
                     "model.bias qkv (%s) is not supported for the gpt family; set it to all, mi350x_table or none",
                     tm_config_place(config, "model.bias"));
    return st;
}

static int products(const tm_model_shape *s, tm_model_product out[TM_MAX_PRODUCTS])
{
    out[0] = (tm_model_product){ "qkv", (s->n_heads + 2 * s->n_kv_heads) * s->head_dim, s->dim };
    out[1] = (tm_model_product){ "out", s->dim, s->n_heads * s->head_dim };
    out[2] = (tm_model_product){ "up", s->ffn_dim, s->dim };
    out[3] = (tm_model_product){ "down", s->dim, s->ffn_dim };
    out[4] = (tm_model_product){ "vocab", s->vocab_size, s->dim };
    return 5;
}

/* --- Hugging Face: GPT-2 -------------------------------------------------------------------------------------------
 */

static const tm_hf_key hf_keys[] = {
    TM_HF_IS_OR("vocab_size", "vocab_size", "50257"),
    TM_HF_IS_OR("n_embd", "dim", "768"),
    TM_HF_IS_OR("n_layer", "n_layers", "12"),
    TM_HF_IS_OR("n_head", "n_heads", "12"),
    TM_HF_IS_OR("n_inner", "ffn_dim", ""),
    TM_HF_IS_OR("n_positions", "max_seq_len", "1024"),
    TM_HF_IS_OR("layer_norm_epsilon", "norm_eps", "1e-5"),
    TM_HF_IS_OR("tie_word_embeddings", "tied", "true"),
    TM_HF_WANTS("activation_function", "gelu_new|gelu_pytorch_tanh|gelu_fast", "gelu_new"),
    TM_HF_WANTS("scale_attn_weights", "true", "true"),
    TM_HF_WANTS("scale_attn_by_inverse_layer_idx", "false", "false"),
    TM_HF_OF_TRAINING("resid_pdrop", "0.0|0", "0.1"),
    TM_HF_OF_TRAINING("embd_pdrop", "0.0|0", "0.1"),
    TM_HF_OF_TRAINING("attn_pdrop", "0.0|0", "0.1"),
    TM_HF_IDLE("reorder_and_upcast_attn"), /* where numbers are rounded, not what is computed */
    TM_HF_IDLE("n_ctx"),                   /* of old files: n_positions once more */
    TM_HF_IDLE("summary_*"),               /* of a head for classification */
    TM_HF_IDLE("n_special"),               /* of the first GPT */
    TM_HF_IDLE("predict_special_tokens"),
    { .key = NULL },
};
#define WEIGHT_AND_BIAS(name, across)                                                                                  \
    { .ours = "h.{l}." name ".weight", .theirs = "h.{l}." name ".weight", .transposed = across },                      \
    {                                                                                                                  \
        .ours = "h.{l}." name ".bias", .theirs = "h.{l}." name ".bias"                                                 \
    }
static const tm_hf_tensor hf_tensors[] = {
    { .ours = "wte.weight", .theirs = "wte.weight" },
    { .ours = "wpe.weight", .theirs = "wpe.weight" },
    WEIGHT_AND_BIAS("ln_1", false),
    WEIGHT_AND_BIAS("attn.c_attn", true),
    WEIGHT_AND_BIAS("attn.c_proj", true),
    WEIGHT_AND_BIAS("ln_2", false),
    WEIGHT_AND_BIAS("mlp.c_fc", true),
    WEIGHT_AND_BIAS("mlp.c_proj", true),
    { .ours = "ln_f.weight", .theirs = "ln_f.weight" },
    { .ours = "ln_f.bias", .theirs = "ln_f.bias" },
    { .ours = "lm_head.weight", .theirs = "lm_head.weight" },
    { .ours = NULL },
};
static const char *const hf_pairs[] = { "model.family=gpt", "model.bias=all", NULL };
static const char *const hf_ignored[] = { "h.{l}.attn.bias", "h.{l}.attn.masked_bias", NULL }; /* masks */

static const char *hf_lacks(const tm_model_shape *s)
{
    if (s->n_kv_heads != s->n_heads) return "GPT-2 has as many key/value heads as query heads (model.n_kv_heads)";
    return s->head_dim * s->n_heads == s->dim ? NULL
                                              : "GPT-2's heads are model.dim / model.n_heads wide (model.head_dim)";
}

static const tm_hf_form hf_gpt2 = {
    .model_type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .pairs = hf_pairs,
    .keys = hf_keys,
    .tensors = hf_tensors,
    .prefix = "transformer.",
    .plain = "lm_head.weight",
    .ignored = hf_ignored,
    .tied_head = "lm_head.weight",
    .tied_to = "wte.weight",
    .lacks = hf_lacks,
};
static const tm_hf_form *const hf_forms[] = { &hf_gpt2, NULL };

const tm_family tm_family_gpt = {
    .name = "gpt",
    .fields = tm_language_fields,
    .tied = true,
    .bias = TM_BIAS_ALL,
    .init = TM_INIT_GPT2,
    .init_tied = TM_INIT_GPT2,
    .ffn_dim = ffn_dim,
    .divides = true,
    .ends = true,
    .check = check,
    .declare = tm_gpt_declare,
    .hidden = tm_gpt_hidden,
    .loss = tm_language_loss,
    .products = products,
    .hf = hf_forms,
};
