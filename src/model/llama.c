/* SPDX-License-Identifier: Apache-2.0 */
/* model/llama.c - Llama 2 and 3, and the families that differ from them by options: Mistral, Mixtral, Qwen2, Qwen3
 * (dense and with experts), gpt-oss.
 *
 *   x = E[ids]
 *   per layer:  a = RMSNorm(x);  q, k, v = Wqkv a [+ bias];  [q, k = RMSNorm of each head];  q, k = RoPE
 *               x = x + Wo attention(q, k, v) [+ bias], attention [in a window] [with sinks]
 *               b = RMSNorm(x);  x = x + W2 (silu(W1 b) * (W3 b)), or the mixture of model/moe.h
 *   z = W_out RMSNorm(x)
 *
 * wq, wk, wv are the rows of one matrix (so are w1 and w3): one product instead of three. So are their biases, and the
 * weights of the two head norms. Parameter names are torchtitan's.
 */
#include "model/blocks.h"
#include "model/hf_rows.h"

/* A parameter of the layer in parts; columns 0: a vector. */
static tm_tensor_id fused(tm_graph *graph, const tm_model *model, int layer, const char *name, int64_t columns,
                          const tm_part *of, int n, bool divided)
{
    tm_part parts[TM_MAX_FUSED];
    for (int i = 0; i < n; i++) {
        parts[i] = of[i];
        parts[i].name = tm_arena_format(graph->arena, "layers.%d.%s", layer, of[i].name);
    }
    name = tm_arena_format(graph->arena, "layers.%d.%s", layer, name);
    return tm_declare_fused(graph, model, layer, name, columns, parts, n, divided);
}

static void declare_qkv(tm_graph *graph, const tm_model *model, int layer, tm_block_weights *w)
{
    const tm_model_shape *s = model->shape;
    int64_t               q = s->n_heads * s->head_dim, kv = s->n_kv_heads * s->head_dim, D = s->head_dim;
    const tm_part         weights[] = { { "attention.wq.weight", q, TM_INIT_IN, 0 },
                                        { "attention.wk.weight", kv, TM_INIT_IN, 0 },
                                        { "attention.wv.weight", kv, TM_INIT_IN, 0 } };
    const tm_part         biases[] = { { "attention.wq.bias", q, TM_INIT_ZERO, 0 },
                                       { "attention.wk.bias", kv, TM_INIT_ZERO, 0 },
                                       { "attention.wv.bias", kv, TM_INIT_ZERO, 0 } };
    const tm_part         norms[] = { { "attention.q_norm.weight", D, TM_INIT_ONE, 0 },
                                      { "attention.k_norm.weight", D, TM_INIT_ONE, 0 } };
    w->qkv_w = fused(graph, model, layer, "attention.wqkv.weight", s->dim, weights, 3, true);
    if (s->bias != TM_BIAS_NONE) w->qkv_b = fused(graph, model, layer, "attention.wqkv.bias", 0, biases, 3, true);
    if (!s->qk_norm) return;
    w->qk_norm_w =
        tm_of_heads(graph, model, fused(graph, model, layer, "attention.qk_norm.weight", 0, norms, 2, false));
}

/* w comes with TM_NONE everywhere (tm_take_none). */
static void declare_block(tm_graph *graph, const tm_model *model, int layer, tm_block_weights *w)
{
    const tm_model_shape *s = model->shape;
    const tm_part         gate_up[] = { { "feed_forward.w1.weight", s->ffn_dim, TM_INIT_GATE, 0 },
                                        { "feed_forward.w3.weight", s->ffn_dim, TM_INIT_UP, 0 } };
    const tm_part         gate_up_b[] = { { "feed_forward.w1.bias", s->ffn_dim, TM_INIT_ZERO, 0 },
                                          { "feed_forward.w3.bias", s->ffn_dim, TM_INIT_ZERO, 0 } };
    bool                  all = s->bias == TM_BIAS_ALL;
#define BETWEEN(place, name)                                                                                           \
    tm_between(graph, model, tm_declare(graph, s, place, layer, tm_shape_1(s->dim), "layers.%d." name, layer))
    w->norm1_w = BETWEEN(TM_INIT_ONE, "attention_norm.weight");
    declare_qkv(graph, model, layer, w);
    w->out_w = tm_declare_columns(graph, model, TM_INIT_OUT, layer, tm_shape_2(s->dim, s->n_heads * s->head_dim),
                                  "layers.%d.attention.wo.weight", layer);
    if (all) w->out_b = BETWEEN(TM_INIT_ZERO, "attention.wo.bias");
    if (s->sinks)
        w->sinks = tm_declare_rows(graph, model, TM_INIT_IN, layer, tm_shape_1(s->n_heads), "layers.%d.attention.sinks",
                                   layer);
    w->norm2_w = BETWEEN(TM_INIT_ONE, "ffn_norm.weight");
    if (tm_moe_in_layer(s, layer)) {
        tm_moe_declare(graph, model, layer, &w->moe);
        return;
    }
    w->up_w = fused(graph, model, layer, "feed_forward.w13.weight", s->dim, gate_up, 2, true);
    w->down_w = tm_declare_columns(graph, model, TM_INIT_OUT, layer, tm_shape_2(s->dim, s->ffn_dim),
                                   "layers.%d.feed_forward.w2.weight", layer);
    if (!all) return;
    w->up_b = fused(graph, model, layer, "feed_forward.w13.bias", 0, gate_up_b, 2, true);
    w->down_b = BETWEEN(TM_INIT_ZERO, "feed_forward.w2.bias");
#undef BETWEEN
}

void tm_llama_declare(tm_graph *graph, const tm_model_shape *s, int64_t seq, tm_model *out)
{
    tm_block_weights *blocks = out->own = tm_take_none(graph, (size_t)s->n_layers * sizeof *blocks);
    tm_declare_table(graph, "tok_embeddings.weight", out);
    for (int layer = 0; layer < s->n_layers; layer++)
        if (tm_parallel_has(&out->parallel, layer)) declare_block(graph, out, layer, &blocks[layer]);
    if (tm_parallel_norms(&out->parallel))
        out->norm_w = tm_between(graph, out, tm_declare(graph, s, TM_INIT_ONE, -1, tm_shape_1(s->dim), "norm.weight"));
    out->head = tm_declare_head(graph, out, "tok_embeddings.weight", "output.weight");
    tm_moe_declare_model(graph, s, out);
    out->rope_table = tm_declare_rope(graph, "rope_table", s, seq);
}

static tm_tensor_id block(tm_graph *graph, const tm_model *model, int layer, tm_tensor_id x)
{
    const tm_model_shape   *s = model->shape;
    const tm_block_weights *w = (const tm_block_weights *)model->own + layer;
    tm_norm_attr            norm = { .eps = s->norm_eps };
    tm_rope_attr            rope = { .seq = model->seq,
                                     .heads = tm_local_heads(model) + tm_local_kv_heads(model),
                                     .head_dim = s->head_dim,
                                     .layout = s->rope_interleaved ? TM_ROPE_INTERLEAVED : TM_ROPE_HALF };
    tm_head_norm_attr       head_norm = {
              .eps = s->norm_eps, .heads = rope.heads, .head_dim = s->head_dim, .second = tm_local_heads(model)
    };
    graph->layer = layer;
    graph->module = tm_arena_format(graph->arena, "layers.%d.attention", layer);
    tm_tensor_id a = tm_emit(graph, TM_OP_rmsnorm, &norm, sizeof norm, x, w->norm1_w, TM_NONE, TM_NONE);
    a = tm_enter(graph, model, a);
    tm_tensor_id qkv = tm_emit(graph, TM_OP_linear, NULL, 0, a, w->qkv_w, w->qkv_b, TM_NONE);
    if (s->qk_norm)
        qkv = tm_emit(graph, TM_OP_head_norm, &head_norm, sizeof head_norm, qkv, w->qk_norm_w, TM_NONE, TM_NONE);
    qkv = tm_emit(graph, TM_OP_rope, &rope, sizeof rope, qkv, model->rope_table, model->places, TM_NONE);
    tm_tensor_id o = tm_attend(graph, model, layer, qkv, w->sinks);
    x = tm_linear_out(graph, model, o, w->out_w, w->out_b, x);
    graph->module = tm_arena_format(graph->arena, "layers.%d.feed_forward", layer);
    tm_tensor_id b = tm_emit(graph, TM_OP_rmsnorm, &norm, sizeof norm, x, w->norm2_w, TM_NONE, TM_NONE);
    if (tm_moe_in_layer(s, layer)) return tm_moe_emit(graph, model, layer, &w->moe, b, x);
    b = tm_enter(graph, model, b);
    tm_tensor_id gate_up = tm_emit(graph, TM_OP_linear, NULL, 0, b, w->up_w, w->up_b, TM_NONE);
    tm_tensor_id h = tm_activation(graph, s, gate_up);
    return tm_linear_out(graph, model, h, w->down_w, w->down_b, x);
}

tm_tensor_id tm_llama_hidden(tm_graph *graph, const tm_model *model, tm_tensor_id tokens)
{
    tm_norm_attr norm = { .eps = model->shape->norm_eps };
    tm_tensor_id x = tm_emit_begin(graph, model, "tok_embeddings", tokens);
    for (int layer = model->stage.first; layer < model->stage.end; layer++) x = block(graph, model, layer, x);
    if (!tm_stage_norms(&model->stage)) return x;
    graph->layer = -1;
    graph->module = "norm";
    return tm_enter(graph, model,
                    tm_emit(graph, TM_OP_rmsnorm, &norm, sizeof norm, x, model->norm_w, TM_NONE, TM_NONE));
}

void tm_llama_update(tm_graph *graph, const tm_model *model)
{
    const tm_block_weights *blocks = model->own;
    tm_moe_update(graph, model, &blocks->moe, sizeof *blocks);
}

int64_t tm_llama_ffn_dim(int64_t dim)
{
    return (8 * dim / 3 + 255) / 256 * 256;
}

tm_status tm_llama_check(const tm_config *config, const tm_model_shape *s, tm_error *err)
{
    tm_status st = TM_OK;
    if (s->head_dim % 2)
        st = tm_also(err, TM_INVALID,
                     "head width %lld (model.head_dim, or model.dim / model.n_heads) is odd; rotary "
                     "positions turn pairs: make it even",
                     (long long)s->head_dim);
    if (s->bias == TM_BIAS_MI350X_TABLE)
        st = tm_also(err, TM_UNSUPPORTED,
                     "model.bias (%s): mi350x_table is not supported for the %s family; set it to all, qkv or none",
                     tm_config_place(config, "model.bias"), tm_model_family_name(s));
    if (s->mla.kv_rank > 0)
        st = tm_also(err, TM_UNSUPPORTED,
                     "model.kv_lora_rank (%s): latent attention is not supported for the %s family; take "
                     "model.family deepseek",
                     tm_config_place(config, "model.kv_lora_rank"), tm_model_family_name(s));
    return st;
}

int tm_llama_products(const tm_model_shape *s, tm_model_product out[TM_MAX_PRODUCTS])
{
    out[0] = (tm_model_product){ "qkv", (s->n_heads + 2 * s->n_kv_heads) * s->head_dim, s->dim };
    out[1] = (tm_model_product){ "out", s->dim, s->n_heads * s->head_dim };
    int n = 2 + tm_ffn_products(s, out + 2);
    out[n] = (tm_model_product){ "vocab", s->vocab_size, s->dim };
    return n + 1;
}

const char *tm_llama_lacks_window(const tm_model_shape *s)
{
    if (s->moe.experts > 0) return "it has no experts (model.n_experts); mixtral and qwen3_moe do";
    if (s->sinks || s->clamped) return "it has neither sinks nor a clamped activation (model.sinks, model.activation)";
    return s->window > 0 ? "it has no window of keys (model.sliding_window); the mistral family does" : NULL;
}

/* --- Hugging Face ------------------------------------------------------------------------------------------------- */

static const tm_hf_key hf_keys[] = {
    TM_HF_DECODER_SIZES("32000", "4096", "32", "32", "", ""),
    TM_HF_IS_OR("intermediate_size", "ffn_dim", "11008"),
    TM_HF_IS_OR("max_position_embeddings", "max_seq_len", "2048"),
    TM_HF_IS_OR("rms_norm_eps", "norm_eps", "1e-6"),
    TM_HF_IS_OR("tie_word_embeddings", "tied", "false"),
    TM_HF_ROPE("10000"),
    /* of YaRN's own files, whose code computes the same for Llama, but not for Mistral */
    TM_HF_ROPE_IDLE("yarn", "finetuned"),
    TM_HF_WANTS("hidden_act", "silu|swish", "silu"),
    TM_HF_WANTS("attention_bias", "false", "false"),
    TM_HF_WANTS("mlp_bias", "false", "false"),
    TM_HF_OF_TRAINING("attention_dropout", "0.0|0", "0"),
    TM_HF_IDLE("is_llama_config"),
    TM_HF_IDLE("max_sequence_length"), /* of old files: max_position_embeddings once more */
    { .key = NULL },
};
static const tm_hf_tensor hf_tensors[] = { TM_HF_LLAMA_ATTENTION, TM_HF_LLAMA_FFN, { .ours = NULL } };
static const char *const  hf_pairs[] = { "model.family=llama", "model.qk_norm=false", "model.bias=none", NULL };
static const tm_hf_form   hf_llama = {
      .model_type = "llama",
      .architecture = "LlamaForCausalLM",
      .pairs = hf_pairs,
      .keys = hf_keys,
      .tensors = hf_tensors,
      .lacks = tm_llama_lacks_window,
      .tied_head = "lm_head.weight",
      .tied_to = "model.embed_tokens.weight",
};
static const tm_hf_form *const hf_forms[] = { &hf_llama, NULL };

const tm_family tm_family_llama = {
    .name = "llama",
    TM_LLAMA_CALLS,
    .hf = hf_forms,
};
