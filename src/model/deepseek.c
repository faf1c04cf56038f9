/* SPDX-License-Identifier: Apache-2.0 */
/* model/deepseek.c - DeepSeek-V2 and V3: latent attention; first blocks with an FFN, the others with a mixture of
 * experts and shared ones.
 *
 *   a = RMSNorm(x);  q = Wq a, or Wq_b RMSNorm(Wq_a a);  [c, k_pe] = Wkv_a a;  kv = Wkv_b RMSNorm(c)
 *   q_h = [q_nope, RoPE(q_pe)],  k_h = [k_nope of kv_h, RoPE(k_pe), shared by all heads],  v_h = the rest of kv_h
 *   x = x + Wo attention(q, k, v);  then as in model/llama.c
 *
 * Rotary pairs are (2i, 2i + 1). Names of parameters are torchtitan's.
 */
#include "model/blocks.h"
#include "model/hf_rows.h"

#include <stdio.h>

/* TM_NONE: has none. q_w: of the residual stream, or q_b's. */
typedef struct {
    tm_tensor_id   norm1_w, q_a_w, q_norm_w, q_w, kv_a_w, kv_norm_w, kv_b_w, out_w, norm2_w, up_w, down_w;
    tm_moe_weights moe;
} block_weights;

static void declare_attention(tm_graph *graph, const tm_model *model, int layer, block_weights *w)
{
    const tm_model_shape *s = model->shape;
    const tm_mla_shape   *m = &s->mla;
    int64_t               q = s->n_heads * (m->nope + m->rope);
#define WHOLE(place, shape, name)                                                                                      \
    tm_between(graph, model, tm_declare(graph, s, place, layer, shape, "layers.%d.attention." name ".weight", layer))
#define ROWS(shape, name)                                                                                              \
    tm_declare_rows(graph, model, TM_INIT_IN, layer, shape, "layers.%d.attention." name ".weight", layer)
    if (m->q_rank > 0) {
        w->q_a_w = WHOLE(TM_INIT_IN, tm_shape_2(m->q_rank, s->dim), "wq_a");
        w->q_norm_w = WHOLE(TM_INIT_ONE, tm_shape_1(m->q_rank), "q_norm");
        w->q_w = ROWS(tm_shape_2(q, m->q_rank), "wq_b");
    } else {
        w->q_w = ROWS(tm_shape_2(q, s->dim), "wq");
    }
    w->kv_a_w = WHOLE(TM_INIT_IN, tm_shape_2(m->kv_rank + m->rope, s->dim), "wkv_a");
    w->kv_norm_w = WHOLE(TM_INIT_ONE, tm_shape_1(m->kv_rank), "kv_norm");
    w->kv_b_w = ROWS(tm_shape_2(s->n_heads * (m->nope + m->v), m->kv_rank), "wkv_b");
    w->out_w = tm_declare_columns(graph, model, TM_INIT_OUT, layer, tm_shape_2(s->dim, s->n_heads * m->v),
                                  "layers.%d.attention.wo.weight", layer);
#undef WHOLE
#undef ROWS
}

/* w comes with TM_NONE everywhere (tm_take_none). */
static void declare_block(tm_graph *graph, const tm_model *model, int layer, block_weights *w)
{
    const tm_model_shape *s = model->shape;
#define NORM(name)                                                                                                     \
    tm_between(graph, model, tm_declare(graph, s, TM_INIT_ONE, layer, tm_shape_1(s->dim), "layers.%d." name, layer))
    w->norm1_w = NORM("attention_norm.weight");
    declare_attention(graph, model, layer, w);
    w->norm2_w = NORM("ffn_norm.weight");
#undef NORM
    if (tm_moe_in_layer(s, layer)) {
        tm_moe_declare(graph, model, layer, &w->moe);
        return;
    }
    tm_arena     *arena = graph->arena;
    const tm_part parts[] = {
        { tm_arena_format(arena, "layers.%d.feed_forward.w1.weight", layer), s->ffn_dim, TM_INIT_GATE, 0 },
        { tm_arena_format(arena, "layers.%d.feed_forward.w3.weight", layer), s->ffn_dim, TM_INIT_UP, 0 }
    };
    const char *full = tm_arena_format(arena, "layers.%d.feed_forward.w13.weight", layer);
    w->up_w = tm_declare_fused(graph, model, layer, full, s->dim, parts, 2, true);
    w->down_w = tm_declare_columns(graph, model, TM_INIT_OUT, layer, tm_shape_2(s->dim, s->ffn_dim),
                                   "layers.%d.feed_forward.w2.weight", layer);
}

static void declare(tm_graph *graph, const tm_model_shape *s, int64_t seq, tm_model *out)
{
    tm_declare_table(graph, "tok_embeddings.weight", out);
    block_weights *blocks = out->own = tm_take_none(graph, (size_t)s->n_layers * sizeof *blocks);
    for (int layer = 0; layer < s->n_layers; layer++)
        if (tm_parallel_has(&out->parallel, layer)) declare_block(graph, out, layer, &blocks[layer]);
    if (tm_parallel_norms(&out->parallel))
        out->norm_w = tm_between(graph, out, tm_declare(graph, s, TM_INIT_ONE, -1, tm_shape_1(s->dim), "norm.weight"));
    out->head = tm_declare_head(graph, out, "tok_embeddings.weight", "output.weight");
    tm_moe_declare_model(graph, s, out);
    out->rope_table = tm_declare_rope(graph, "rope_table", s, seq);
}

/* Rotates `heads` heads of D elements, the first at column `first`. */
static tm_tensor_id rotate(tm_graph *graph, const tm_model *model, tm_tensor_id x, int64_t heads, int64_t first,
                           int64_t stride)
{
    tm_rope_attr rope = { .seq = model->seq,
                          .heads = heads,
                          .head_dim = model->shape->mla.rope,
                          .layout = TM_ROPE_INTERLEAVED,
                          .first = first,
                          .stride = stride };
    return tm_emit(graph, TM_OP_rope, &rope, sizeof rope, x, model->rope_table, model->places, TM_NONE);
}

/* a (N, C), normed; x (N, C) -> x with what the heads see added. Ranks that divide matrices have some of the heads; the
 * latents are those of a rank's own rows, and are gathered rather than a. */
static tm_tensor_id attend(tm_graph *graph, const tm_model *model, const block_weights *w, tm_tensor_id a,
                           tm_tensor_id x)
{
    const tm_model_shape *s = model->shape;
    const tm_mla_shape   *m = &s->mla;
    tm_norm_attr          norm = { .eps = s->norm_eps };
    tm_head_norm_attr     latent_norm = { .eps = s->norm_eps, .heads = 1, .head_dim = m->kv_rank };
    int64_t               heads = tm_local_heads(model);
    tm_latent_attr        latent = { .heads = heads, .dim_nope = m->nope, .dim_rope = m->rope, .dim_v = m->v };
    tm_attention_attr     attr = { .seq_q = model->seq,
                                   .seq_k = model->seq,
                                   .heads = heads,
                                   .kv_heads = heads,
                                   .dim_qk = m->nope + m->rope,
                                   .dim_v = m->v,
                                   .scale = tm_attention_scale(s),
                                   .causal = 1 };
    tm_tensor_id          q = a;
    if (m->q_rank > 0) {
        q = tm_emit(graph, TM_OP_linear, NULL, 0, a, w->q_a_w, TM_NONE, TM_NONE);
        q = tm_emit(graph, TM_OP_rmsnorm, &norm, sizeof norm, q, w->q_norm_w, TM_NONE, TM_NONE);
    }
    q = tm_emit(graph, TM_OP_linear, NULL, 0, tm_enter(graph, model, q), w->q_w, TM_NONE, TM_NONE);
    q = rotate(graph, model, q, heads, m->nope, m->nope + m->rope);
    tm_tensor_id c = tm_emit(graph, TM_OP_linear, NULL, 0, a, w->kv_a_w, TM_NONE, TM_NONE);
    c = tm_emit(graph, TM_OP_head_norm, &latent_norm, sizeof latent_norm, c, w->kv_norm_w, TM_NONE, TM_NONE);
    c = rotate(graph, model, tm_enter(graph, model, c), 1, m->kv_rank, 0);
    tm_tensor_id own = tm_graph_view(graph, tm_arena_format(graph->arena, "%s.c", graph->module), c, 0, m->kv_rank);
    tm_tensor_id pe =
        tm_graph_view(graph, tm_arena_format(graph->arena, "%s.pe", graph->module), c, m->kv_rank, m->rope);
    tm_tensor_id kv = tm_emit(graph, TM_OP_linear, NULL, 0, own, w->kv_b_w, TM_NONE, TM_NONE);
    tm_tensor_id from[TM_MAX_IN] = { kv, pe }, keys[TM_MAX_OUT] = { TM_NONE, TM_NONE };
    tm_graph_add(graph, TM_OP_latent_keys, &latent, sizeof latent, from, keys, 0);
    tm_tensor_id o;
    if (tm_divided(model->parallel.context)) {
        tm_join_attr parts = { .first = attr.heads * attr.dim_qk, .second = attr.heads * attr.dim_v };
        kv = tm_emit(graph, TM_OP_join, &parts, sizeof parts, keys[0], keys[1], TM_NONE, TM_NONE);
        o = tm_context_attend_parts(graph, model, &attr, q, kv, TM_NONE);
    } else {
        o = tm_emit(graph, TM_OP_attention, &attr, sizeof attr, q, keys[0], keys[1], model->first_key);
    }
    return tm_linear_out(graph, model, o, w->out_w, TM_NONE, x);
}

static tm_tensor_id block(tm_graph *graph, const tm_model *model, int layer, tm_tensor_id x)
{
    const tm_model_shape *s = model->shape;
    const block_weights  *w = (const block_weights *)model->own + layer;
    tm_norm_attr          norm = { .eps = s->norm_eps };
    graph->layer = layer;
    graph->module = tm_arena_format(graph->arena, "layers.%d.attention", layer);
    tm_tensor_id a = tm_emit(graph, TM_OP_rmsnorm, &norm, sizeof norm, x, w->norm1_w, TM_NONE, TM_NONE);
    x = attend(graph, model, w, a, x);
    graph->module = tm_arena_format(graph->arena, "layers.%d.feed_forward", layer);
    tm_tensor_id b = tm_emit(graph, TM_OP_rmsnorm, &norm, sizeof norm, x, w->norm2_w, TM_NONE, TM_NONE);
    if (tm_moe_in_layer(s, layer)) return tm_moe_emit(graph, model, layer, &w->moe, b, x);
    b = tm_enter(graph, model, b);
    tm_tensor_id up = tm_emit(graph, TM_OP_linear, NULL, 0, b, w->up_w, TM_NONE, TM_NONE);
    return tm_linear_out(graph, model, tm_activation(graph, s, up), w->down_w, TM_NONE, x);
}

static tm_tensor_id hidden(tm_graph *graph, const tm_model *model, tm_tensor_id tokens)
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

static void update(tm_graph *graph, const tm_model *model)
{
    const block_weights *blocks = model->own;
    tm_moe_update(graph, model, &blocks->moe, sizeof *blocks);
}

static tm_status check(const tm_config *config, const tm_model_shape *s, tm_error *err)
{
    tm_status st = TM_OK;
    const struct {
        bool        is;
        const char *key;
    } not_built[] = { { s->window > 0, "model.sliding_window" },
                      { s->sinks, "model.sinks" },
                      { s->qk_norm, "model.qk_norm" },
                      { s->bias != TM_BIAS_NONE, "model.bias" },
                      { s->n_kv_heads != s->n_heads, "model.n_kv_heads" } };
    if (s->mla.kv_rank == 0)
        st = tm_also(err, TM_INVALID, "'model.kv_lora_rank' is not given; the deepseek family needs it (512)");
    if (s->mla.rope % 2)
        st = tm_also(err, TM_INVALID,
                     "model.qk_rope_head_dim %lld (%s) is odd; rotary positions rotate pairs: make it even",
                     (long long)s->mla.rope, tm_config_place(config, "model.qk_rope_head_dim"));
    for (size_t i = 0; i < sizeof not_built / sizeof not_built[0]; i++)
        if (not_built[i].is)
            st = tm_also(err, TM_UNSUPPORTED, "%s (%s) is not supported for the deepseek family; leave it out",
                         not_built[i].key, tm_config_place(config, not_built[i].key));
    if (!s->moe.sigmoid && s->moe.normalise && s->moe.scale != 1)
        st = tm_also(err, TM_UNSUPPORTED,
                     "model.moe_scale (%s): the published DeepSeek-V2 does not scale normalised softmax scores; leave "
                     "it out or set model.moe_normalise to false",
                     tm_config_place(config, "model.moe_scale"));
    return st;
}

static int products(const tm_model_shape *s, tm_model_product out[TM_MAX_PRODUCTS])
{
    const tm_mla_shape *m = &s->mla;
    int64_t             q = s->n_heads * (m->nope + m->rope);
    int                 n = 0;
    if (m->q_rank > 0) out[n++] = (tm_model_product){ "q down", m->q_rank, s->dim };
    out[n++] = (tm_model_product){ "q", q, m->q_rank > 0 ? m->q_rank : s->dim };
    out[n++] = (tm_model_product){ "kv down", m->kv_rank + m->rope, s->dim };
    out[n++] = (tm_model_product){ "kv", s->n_heads * (m->nope + m->v), m->kv_rank };
    out[n++] = (tm_model_product){ "out", s->dim, s->n_heads * m->v };
    n += tm_ffn_products(s, out + n);
    out[n++] = (tm_model_product){ "vocab", s->vocab_size, s->dim };
    return n;
}

/* --- Hugging Face: deepseek_v2 (softmax, no bias) and deepseek_v3 (sigmoid, biased choice) ------------------------ */

#define BOTH_VERSIONS                                                                                                  \
    TM_HF_IS_OR("kv_lora_rank", "kv_lora_rank", "512"), TM_HF_OR_NULL("q_lora_rank", "q_lora_rank", "1536"),           \
        TM_HF_IS_OR("qk_nope_head_dim", "qk_nope_head_dim", "128"),                                                    \
        TM_HF_IS_OR("qk_rope_head_dim", "qk_rope_head_dim", "64"), TM_HF_IS_OR("v_head_dim", "v_head_dim", "128"),     \
        TM_HF_IS_OR("num_key_value_heads", "n_kv_heads", ""), TM_HF_IS_OR("rms_norm_eps", "norm_eps", "1e-6"),         \
        TM_HF_IS_OR("tie_word_embeddings", "tied", "false"), TM_HF_WANTS("hidden_act", "silu|swish", "silu"),          \
        TM_HF_WANTS("attention_bias", "false", "false"), TM_HF_WANTS("mlp_bias", "false", "false"),                    \
        TM_HF_WANTS("moe_layer_freq", "1", "1"), TM_HF_WANTS("ep_size", "1", "1"),                                     \
        TM_HF_OF_TRAINING("attention_dropout", "0.0|0", "0"),                                                          \
        TM_HF_OF_TRAINING("output_router_logits", "false", "false"), TM_HF_IDLE("router_aux_loss_coef"),               \
        TM_HF_IDLE("head_dim"), TM_HF_IDLE("qk_head_dim"),                                                             \
        TM_HF_IDLE("num_nextn_predict_layers|num_mtp_layers"), /* their blocks are not computed with */                \
        TM_HF_ROPE("10000")
static const tm_hf_key v2_keys[] = {
    TM_HF_IS_OR("vocab_size", "vocab_size", "102400"),
    TM_HF_IS_OR("hidden_size", "dim", "4096"),
    TM_HF_IS_OR("num_hidden_layers", "n_layers", "32"),
    TM_HF_IS_OR("num_attention_heads", "n_heads", "32"),
    TM_HF_IS_OR("intermediate_size", "ffn_dim", "11008"),
    TM_HF_IS_OR("moe_intermediate_size", "moe_ffn_dim", "1407"),
    TM_HF_IS_OR("n_routed_experts", "n_experts", "64"),
    TM_HF_IS("num_experts_per_tok", "n_experts_per_token"),
    TM_HF_IS_OR("n_shared_experts", "n_shared_experts", "2"),
    TM_HF_IS_OR("first_k_dense_replace", "n_dense_layers", "0"),
    TM_HF_IS_OR("norm_topk_prob", "moe_normalise", "false"),
    TM_HF_IS_OR("routed_scaling_factor", "moe_scale", "1"),
    TM_HF_IS_OR("max_position_embeddings", "max_seq_len", "2048"),
    BOTH_VERSIONS,
    TM_HF_IS_OR("n_group", "n_expert_groups", "1"),
    TM_HF_IS_OR("topk_group", "n_limited_groups", "1"),
    TM_HF_WANTS("scoring_func", "softmax", "softmax"),
    TM_HF_WANTS("topk_method", "group_limited_greedy|greedy", "greedy"),
    TM_HF_IS_OR("aux_loss_alpha", "moe_aux_loss", "0"),
    TM_HF_IS_OR("seq_aux", "moe_aux_loss_per_sequence", "true"),
    { .key = NULL },
};
static const tm_hf_key v3_keys[] = {
    TM_HF_IS_OR("vocab_size", "vocab_size", "129280"),
    TM_HF_IS_OR("hidden_size", "dim", "7168"),
    TM_HF_IS_OR("num_hidden_layers", "n_layers", "61"),
    TM_HF_IS_OR("num_attention_heads", "n_heads", "128"),
    TM_HF_IS_OR("intermediate_size", "ffn_dim", "18432"),
    TM_HF_IS_OR("moe_intermediate_size", "moe_ffn_dim", "2048"),
    TM_HF_IS_OR("n_routed_experts", "n_experts", "256"),
    TM_HF_IS_OR("num_experts_per_tok", "n_experts_per_token", "8"),
    TM_HF_IS_OR("n_shared_experts", "n_shared_experts", "1"),
    TM_HF_IS_OR("first_k_dense_replace", "n_dense_layers", "3"),
    TM_HF_IS_OR("norm_topk_prob", "moe_normalise", "true"),
    TM_HF_IS_OR("routed_scaling_factor", "moe_scale", "2.5"),
    TM_HF_IS_OR("max_position_embeddings", "max_seq_len", "4096"),
    BOTH_VERSIONS,
    TM_HF_IS_OR("n_group", "n_expert_groups", "8"),
    TM_HF_IS_OR("topk_group", "n_limited_groups", "4"),
    TM_HF_WANTS("scoring_func", "sigmoid", "sigmoid"),
    TM_HF_WANTS("topk_method", "noaux_tc", "noaux_tc"),
    TM_HF_WANTS("rope_interleave", "true", "true"),
    TM_HF_OF_TRAINING("aux_loss_alpha", "0.0|0", "0"),
    TM_HF_IDLE("seq_aux"),
    { .key = NULL },
};
#define ATTENTION(mine, yours) TM_HF_LAYER("attention." mine ".weight", "self_attn." yours ".weight")
static const tm_hf_tensor hf_tensors[] = {
    { .ours = "tok_embeddings.weight", .theirs = "model.embed_tokens.weight" },
    { .ours = "norm.weight", .theirs = "model.norm.weight" },
    { .ours = "output.weight", .theirs = "lm_head.weight" },
    TM_HF_LAYER("attention_norm.weight", "input_layernorm.weight"),
    TM_HF_LAYER("ffn_norm.weight", "post_attention_layernorm.weight"),
    ATTENTION("wq", "q_proj"),
    ATTENTION("wq_a", "q_a_proj"),
    ATTENTION("q_norm", "q_a_layernorm"),
    ATTENTION("wq_b", "q_b_proj"),
    ATTENTION("wkv_a", "kv_a_proj_with_mqa"),
    ATTENTION("kv_norm", "kv_a_layernorm"),
    ATTENTION("wkv_b", "kv_b_proj"),
    ATTENTION("wo", "o_proj"),
    TM_HF_LLAMA_FFN,
    TM_HF_LAYER("moe.router.gate.weight", "mlp.gate.weight"),
    { .ours = "layers.{l}.moe.expert_bias",
      .theirs = "model.layers.{l}.mlp.gate.e_score_correction_bias",
      .wide = true },
    TM_HF_LAYER("moe.experts.{e}.w1.weight", "mlp.experts.{e}.gate_proj.weight"),
    TM_HF_LAYER("moe.experts.{e}.w2.weight", "mlp.experts.{e}.down_proj.weight"),
    TM_HF_LAYER("moe.experts.{e}.w3.weight", "mlp.experts.{e}.up_proj.weight"),
    TM_HF_LAYER("moe.shared_experts.w1.weight", "mlp.shared_experts.gate_proj.weight"),
    TM_HF_LAYER("moe.shared_experts.w2.weight", "mlp.shared_experts.down_proj.weight"),
    TM_HF_LAYER("moe.shared_experts.w3.weight", "mlp.shared_experts.up_proj.weight"),
    { .ours = NULL },
};
static const char *const v2_pairs[] = { "model.family=deepseek", "model.moe_score=softmax", "model.expert_group_best=1",
                                        "model.moe_bias=false", NULL };
static const char *const v3_pairs[] = { "model.family=deepseek", "model.moe_score=sigmoid", "model.expert_group_best=2",
                                        "model.moe_bias=true", NULL };
static const char       *hf_lacks(const tm_model_shape *s)
{
    return *s->moe.pattern ? "without model.moe_pattern" : NULL;
}

static const tm_hf_form        deepseek_v2 = { .model_type = "deepseek_v2",
                                               .architecture = "DeepseekV2ForCausalLM",
                                               .pairs = v2_pairs,
                                               .keys = v2_keys,
                                               .tensors = hf_tensors,
                                               .lacks = hf_lacks };
static const tm_hf_form        deepseek_v3 = { .model_type = "deepseek_v3",
                                               .architecture = "DeepseekV3ForCausalLM",
                                               .pairs = v3_pairs,
                                               .keys = v3_keys,
                                               .tensors = hf_tensors,
                                               .lacks = hf_lacks };
static const tm_hf_form *const hf_forms[] = { &deepseek_v2, &deepseek_v3, NULL };

const tm_family tm_family_deepseek = {
    .name = "deepseek",
    .fields = tm_language_fields,
    .init = TM_INIT_TORCHTITAN,
    .init_tied = TM_INIT_HF,
    .ffn_dim = tm_llama_ffn_dim,
    .check = check,
    .declare = declare,
    .hidden = hidden,
    .loss = tm_language_loss,
    .update = update,
    .products = products,
    .divides = true,
    .hf = hf_forms,
};
