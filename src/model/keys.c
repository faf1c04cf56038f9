/* SPDX-License-Identifier: Apache-2.0 */
#include "model/keys.h"

#include "model/presets.h"

/* "|llama|gpt" and "; llama: ...; gpt: ..." */
#define TM_FAMILY(id, name, what) "|" #name
static const char families[] =
#include "model/families.def"
    ;
#undef TM_FAMILY
#define TM_FAMILY(id, name, what) "; " #name ": " what
static const char family_help[] =
#include "model/families.def"
    ;
#undef TM_FAMILY

/* clang-format off */
static const tm_key keys[] = {
    { .name = "model.family", .kind = TM_KEY_CHOICE, .fallback = "llama", .choices = families + 1,
      .help = family_help + 2 },
    { .name = "model.name", .kind = TM_KEY_TEXT, .quiet = true,
      .help = "with model.flavor names a preset (llama3 and 8B)" },
    { .name = "model.flavor", .kind = TM_KEY_TEXT, .quiet = true, .help = "size of the model.name" },
    { .name = "model.vocab_size", .kind = TM_KEY_I64, .lo = 2, .hi = 1 << 24, .synonyms = "vocab_size",
      .help = "rows of the embedding table" },
    { .name = "model.dim", .kind = TM_KEY_I64, .lo = 2, .hi = 1 << 20, .synonyms = "hidden_size,model.hidden_size",
      .help = "width of the residual stream" },
    { .name = "model.n_layers", .kind = TM_KEY_I64, .lo = 1, .hi = 4096,
      .synonyms = "num_layers,model.num_layers,model.num_hidden_layers", .help = "blocks" },
    { .name = "model.n_heads", .kind = TM_KEY_I64, .lo = 1, .hi = 4096,
      .synonyms = "num_attention_heads,model.num_attention_heads", .help = "query heads" },
    { .name = "model.n_kv_heads", .kind = TM_KEY_I64, .lo = 1, .hi = 4096,
      .synonyms = "num_query_groups,model.num_key_value_heads", .help = "key and value heads; null: model.n_heads" },
    { .name = "model.head_dim", .kind = TM_KEY_I64, .lo = 2, .hi = 4096, .synonyms = "kv_channels",
      .help = "width of a head; null: model.dim / model.n_heads" },
    { .name = "model.ffn_dim", .kind = TM_KEY_I64, .lo = 1, .hi = 1 << 22,
      .synonyms = "ffn_hidden_size,model.ffn_hidden_size,model.intermediate_size",
      .help = "inner width of the FFN; null: 4 x dim (gpt), 8/3 x dim rounded up to a multiple of 256 (others)" },
    { .name = "model.max_seq_len", .kind = TM_KEY_I64, .fallback = "2048", .lo = 1, .hi = 1 << 24,
      .synonyms = "max_position_embeddings,model.max_position_embeddings",
      .help = "positions; the length of the learned table (gpt)" },
    { .name = "model.norm_eps", .kind = TM_KEY_F64, .fallback = "1e-5", .lo = 0, .hi = 1,
      .synonyms = "norm_epsilon,model.rms_norm_eps", .help = "epsilon of the norms" },
    { .name = "model.rope_theta", .kind = TM_KEY_F64, .fallback = "10000", .lo = 1, .hi = 1e12,
      .synonyms = "rotary_base,model.rotary_base", .help = "base of the rotary frequencies" },
    { .name = "model.rope_scaling", .kind = TM_KEY_CHOICE, .fallback = "none", .choices = "none|llama3|yarn",
      .help = "scaling of the rotary frequencies" },
    { .name = "model.rope_scaling_factor", .kind = TM_KEY_F64, .fallback = "8", .lo = 1, .hi = 1024,
      .help = "divisor of the long wavelengths' frequencies" },
    { .name = "model.rope_low_freq_factor", .kind = TM_KEY_F64, .fallback = "1", .lo = 1e-3, .hi = 1024,
      .help = "llama3 scaling: wavelengths above original / this are divided" },
    { .name = "model.rope_high_freq_factor", .kind = TM_KEY_F64, .fallback = "4", .lo = 1e-3, .hi = 1024,
      .help = "llama3 scaling: wavelengths below original / this are kept" },
    { .name = "model.rope_original_max_seq_len", .kind = TM_KEY_I64, .fallback = "8192", .lo = 1, .hi = 1 << 24,
      .help = "positions before scaling" },
    { .name = "model.rope_beta_fast", .kind = TM_KEY_F64, .fallback = "32", .lo = 1e-3, .hi = 1e6,
      .help = "yarn: pairs that turn more often within the original length are kept" },
    { .name = "model.rope_beta_slow", .kind = TM_KEY_F64, .fallback = "1", .lo = 1e-3, .hi = 1e6,
      .help = "yarn: pairs that turn less often are stretched" },
    { .name = "model.rope_truncate", .kind = TM_KEY_BOOL, .fallback = "true",
      .help = "yarn: the ends of the ramp between the two are rounded to whole pairs" },
    { .name = "model.rope_mscale", .kind = TM_KEY_F64, .fallback = "0", .lo = 0, .hi = 100,
      .help = "yarn: with the next, the factor of cosines and sines is (0.1 this ln factor + 1) over the same of the next; 0: "
          "0.1 ln factor + 1" },
    { .name = "model.rope_mscale_all_dim", .kind = TM_KEY_F64, .fallback = "0", .lo = 0, .hi = 100,
      .help = "yarn: scores are scaled by (0.1 this ln factor + 1)^2 besides" },
    { .name = "model.kv_lora_rank", .kind = TM_KEY_I64, .lo = 1, .hi = 1 << 20,
      .help = "numbers per token that keys and values are computed from (deepseek)" },
    { .name = "model.q_lora_rank", .kind = TM_KEY_I64, .lo = 1, .hi = 1 << 20,
      .help = "the same of queries; null: straight from the residual stream" },
    { .name = "model.qk_nope_head_dim", .kind = TM_KEY_I64, .fallback = "128", .lo = 1, .hi = 4096,
      .help = "elements of a query or key head that know no position (deepseek)" },
    { .name = "model.qk_rope_head_dim", .kind = TM_KEY_I64, .fallback = "64", .lo = 2, .hi = 4096,
      .help = "elements of a query or key head that are rotated, in pairs (2i, 2i + 1); of keys the same for all heads" },
    { .name = "model.v_head_dim", .kind = TM_KEY_I64, .fallback = "128", .lo = 1, .hi = 4096,
      .help = "elements of a value head (deepseek)" },
    { .name = "model.n_mtp_layers", .kind = TM_KEY_I64, .lo = 0, .hi = 64, .choices = "0", .state = TM_KEY_UNBUILT,
      .feature = "multi-token prediction", .synonyms = "model.num_nextn_predict_layers",
      .help = "blocks that predict further tokens" },
    { .name = "model.rope_layout", .kind = TM_KEY_CHOICE, .fallback = "half", .choices = "half|interleaved",
      .help = "which elements of a head are rotated together" },
    { .name = "model.sliding_window", .kind = TM_KEY_I64, .lo = 1, .hi = 1 << 24,
      .help = "a token sees itself and this many - 1 tokens before it; null: all before it" },
    { .name = "model.sliding_window_every", .kind = TM_KEY_I64, .fallback = "1", .lo = 1, .hi = 4096,
      .help = "blocks 0, n, 2 n, ... have the window, the others see all" },
    { .name = "model.sinks", .kind = TM_KEY_BOOL,
      .help = "each head has a logit without a value beside its scores; null: true for gpt_oss, else false" },
    { .name = "model.activation", .kind = TM_KEY_CHOICE, .choices = "swiglu|swiglu_clamped",
      .help = "the FFN's gated unit; null: swiglu_clamped for gpt_oss, else swiglu" },
    { .name = "model.qk_norm", .kind = TM_KEY_BOOL,
      .help = "RMSNorm of each query and key head by itself (all but gpt); null: true for qwen3, else false" },
    { .name = "model.n_experts", .kind = TM_KEY_I64, .lo = 1, .hi = 1024,
      .synonyms = "num_experts,model.num_experts,model.num_local_experts,model.n_routed_experts",
      .help = "experts of a block's FFN; null: a plain FFN" },
    { .name = "model.n_experts_per_token", .kind = TM_KEY_I64, .lo = 1, .hi = 1024,
      .synonyms = "moe_router_topk,model.num_experts_per_tok", .help = "experts that a token goes to" },
    { .name = "model.moe_ffn_dim", .kind = TM_KEY_I64, .lo = 1, .hi = 1 << 22,
      .synonyms = "moe_ffn_hidden_size,model.moe_intermediate_size",
      .help = "inner width of an expert; null: model.ffn_dim" },
    { .name = "model.n_shared_experts", .kind = TM_KEY_I64, .fallback = "0", .lo = 0, .hi = 1024,
      .help = "experts that every token goes to: one FFN, so many times as wide" },
    { .name = "model.n_dense_layers", .kind = TM_KEY_I64, .fallback = "0", .lo = 0, .hi = 4096,
      .synonyms = "model.first_k_dense_replace", .help = "first blocks that have a plain FFN" },
    { .name = "model.moe_score", .kind = TM_KEY_CHOICE, .fallback = "softmax", .choices = "softmax|sigmoid",
      .synonyms = "moe_router_score_function,model.scoring_func", .help = "an expert's score from its logit" },
    { .name = "model.moe_normalise", .kind = TM_KEY_BOOL, .synonyms = "model.norm_topk_prob",
      .help = "the scores of the chosen experts are divided by their sum; null: true for mixtral, qwen3_moe and gpt_oss" },
    { .name = "model.moe_scale", .kind = TM_KEY_F64, .fallback = "1", .lo = 1e-6, .hi = 1e6,
      .synonyms = "moe_router_topk_scaling_factor,model.routed_scaling_factor",
      .help = "factor of the chosen experts' scores" },
    { .name = "model.n_expert_groups", .kind = TM_KEY_I64, .fallback = "1", .lo = 1, .hi = 1024,
      .synonyms = "moe_router_num_groups,model.n_group", .help = "groups of experts" },
    { .name = "model.n_limited_groups", .kind = TM_KEY_I64, .fallback = "1", .lo = 1, .hi = 1024,
      .synonyms = "moe_router_group_topk,model.topk_group", .help = "groups that a token may choose experts from" },
    { .name = "model.expert_group_best", .kind = TM_KEY_I64, .fallback = "1", .lo = 1, .hi = 1024,
      .help = "a group is judged by the sum of so many of its largest scores: 1 in DeepSeek-V2, 2 in V3" },
    { .name = "model.moe_aux_loss", .kind = TM_KEY_F64, .fallback = "0", .lo = 0, .hi = 1e3,
      .synonyms = "moe_aux_loss_coeff,model.aux_loss_alpha,model.router_aux_loss_coef",
      .help = "coefficient of the loss that balances experts; not part of the reported loss" },
    { .name = "model.moe_aux_loss_per_sequence", .kind = TM_KEY_BOOL, .fallback = "true", .synonyms = "model.seq_aux",
      .help = "the balance loss is that of each sequence; false: of a micro-batch" },
    { .name = "model.moe_bias", .kind = TM_KEY_BOOL,
      .help = "a bias moves the choice of experts, not their weights; null: model.moe_bias_rate > 0" },
    { .name = "model.moe_bias_rate", .kind = TM_KEY_F64, .fallback = "0", .lo = 0, .hi = 1,
      .synonyms = "moe_router_bias_update_rate,model.load_balance_coeff",
      .help = "change of the bias in a step: up for experts with less than the mean, down for the others" },
    { .name = "debug.moe_force_load_balance", .kind = TM_KEY_BOOL, .fallback = "false",
      .synonyms = "moe_router_force_load_balancing",
      .help = "tokens go to experts in turn, whatever the router says: for measuring throughput" },
    { .name = "model.n_single_layers", .kind = TM_KEY_I64, .fallback = "38", .lo = 1, .hi = 4096,
      .synonyms = "num_single_layers,model.num_single_layers", .help = "flux: single blocks behind the n_layers double ones" },
    { .name = "model.image_size", .kind = TM_KEY_I64, .fallback = "256", .lo = 16, .hi = 16384,
      .synonyms = "training.img_size", .help = "flux: pixels of a side; 16 x 16 of them make a token" },
    { .name = "model.text_len", .kind = TM_KEY_I64, .fallback = "512", .lo = 1, .hi = 1 << 20,
      .synonyms = "encoder.max_t5_encoding_len", .help = "flux: tokens of the text" },
    { .name = "model.text_dim", .kind = TM_KEY_I64, .fallback = "4096", .lo = 1, .hi = 1 << 20,
      .synonyms = "context_dim,model.context_in_dim", .help = "flux: numbers of a text token" },
    { .name = "model.vector_dim", .kind = TM_KEY_I64, .fallback = "768", .lo = 1, .hi = 1 << 20,
      .synonyms = "vec_in_dim,model.vec_in_dim", .help = "flux: numbers of the pooled text" },
    { .name = "model.channels", .kind = TM_KEY_I64, .fallback = "64", .lo = 1, .hi = 1 << 20,
      .synonyms = "model.in_channels", .help = "flux: numbers of an image token: latent channels x 2 x 2" },
    { .name = "model.time_dim", .kind = TM_KEY_I64, .fallback = "256", .lo = 2, .hi = 1 << 16,
      .synonyms = "model_channels", .help = "flux: sinusoids of a time" },
    { .name = "model.rope_axes", .kind = TM_KEY_TEXT, .fallback = "16,56,56",
      .help = "flux: shares of a head that are rotated by axis 0, row and column" },
    { .name = "model.guidance_embed", .kind = TM_KEY_BOOL, .fallback = "false", .synonyms = "guidance_embed",
      .help = "flux: with an embedder of the guidance (dev as published; schnell has none)" },
    { .name = "model.guidance", .kind = TM_KEY_F64, .fallback = "1", .lo = 0, .hi = 1000,
      .help = "flux: the guidance that model.guidance_embed is trained with" },
    { .name = "model.tied", .kind = TM_KEY_BOOL, .synonyms = "model.tie_word_embeddings,model.enable_weight_tying",
      .help = "output head = embedding table; null: true for gpt, else false" },
    { .name = "model.bias", .kind = TM_KEY_CHOICE, .choices = "none|all|qkv|mi350x_table",
      .help = "biases of the linears (LayerNorms always have theirs): none, all, of query, key and value only (qkv), "
          "or of the attention output only (mi350x_table); null: all for gpt, qkv for qwen2, else none" },
    { .name = "model.init", .kind = TM_KEY_CHOICE, .choices = "torchtitan|hf|gpt2",
      .help = "initial weights; null: gpt2 for gpt, else torchtitan (hf if tied)" },
    { .name = "model.hf_assets_path", .kind = TM_KEY_TEXT, .quiet = true, .synonyms = "model.tokenizer_path",
      .help = "Hugging Face folder: its config.json decides family and shape, its safetensors are the initial weights; "
          "without a config.json: a tokenizer only" },
    { .name = "model.dropout", .kind = TM_KEY_F64, .lo = 0, .hi = 1, .choices = "0", .state = TM_KEY_UNBUILT,
      .feature = "dropout", .help = "0: train without, whatever model.hf_assets_path says; null: what it says must be 0" },
    { .name = "model.converters", .kind = TM_KEY_LIST, .fallback = "",
      .help = "quantize.linear.float8 or quantize.linear.mx: products in low precision, emulated; see quantize.recipe" },
    { .name = "model.init_std", .kind = TM_KEY_F64, .fallback = "0.02", .lo = 1e-6, .hi = 10, .synonyms = "init_method_std",
      .help = "model.init hf and gpt2: standard deviation of the initial weights" },
};
/* clang-format on */

const tm_key *tm_model_keys(size_t *n)
{
    *n = sizeof keys / sizeof keys[0];
    return keys;
}

void tm_model_configure(tm_config *config)
{
    size_t           n;
    const tm_preset *presets = tm_model_presets(&n);
    tm_config_add_keys(config, keys, sizeof keys / sizeof keys[0]);
    for (size_t i = 0; i < n; i++) tm_config_add_preset(config, presets[i].name, presets[i].alias, presets[i].pairs);
}
