/* SPDX-License-Identifier: Apache-2.0 */
/* model/gpt_oss.c - gpt-oss: Llama's blocks with biases everywhere, sinks, a window in every second block, a mixture of
 * experts of clamped gated units, weights normalised over the chosen. */
#include "model/blocks.h"
#include "model/hf_rows.h"

static const tm_hf_key hf_keys[] = {
    TM_HF_DECODER_SIZES("201088", "2880", "36", "64", "8", "64"),
    TM_HF_IS_OR("intermediate_size", "ffn_dim", "2880"),
    /* all blocks have experts: their width is what is written */
    TM_HF_IS_OR("intermediate_size", "moe_ffn_dim", "2880"),
    TM_HF_IS_OR("num_local_experts", "n_experts", "128"),
    TM_HF_IS_OR("num_experts_per_tok|experts_per_token", "n_experts_per_token", "4"),
    TM_HF_IS_OR("max_position_embeddings", "max_seq_len", "131072"),
    TM_HF_IS_OR("rms_norm_eps", "norm_eps", "1e-5"),
    TM_HF_IS_OR("tie_word_embeddings", "tied", "false"),
    TM_HF_IS_OR("sliding_window", "sliding_window", "128"),
    { .key = "layer_types", .kind = TM_HF_CYCLE, .values = "sliding_attention|full_attention", .absent = "" },
    TM_HF_ROPE("150000"),
    TM_HF_WANTS("hidden_act", "silu|swish", "silu"),
    TM_HF_WANTS("swiglu_limit", "7.0|7", "7"),
    TM_HF_WANTS("swiglu_alpha", "1.702", "1.702"),
    TM_HF_WANTS("attention_bias", "true", "true"),
    TM_HF_OF_TRAINING("attention_dropout", "0.0|0", "0"),
    TM_HF_OF_TRAINING("output_router_logits", "false", "false"), /* true: an auxiliary loss over all layers at once */
    TM_HF_IDLE("router_aux_loss_coef"),
    TM_HF_IDLE("initial_context_length"),
    { .key = NULL },
};
#define EXPERTS(mine, yours, turned, at, of)                                                                           \
    {                                                                                                                  \
        .ours = "layers.{l}.moe.experts.{e}." mine, .theirs = "model.layers.{l}.mlp.experts." yours,                   \
        .transposed = turned, .part = at, .parts = of, .interleaved = of > 1                                           \
    }
static const tm_hf_tensor hf_tensors[] = {
    TM_HF_LLAMA_ATTENTION,
    TM_HF_LAYER_ROTARY("attention.wq.bias", "self_attn.q_proj.bias"),
    TM_HF_LAYER_ROTARY("attention.wk.bias", "self_attn.k_proj.bias"),
    TM_HF_LAYER("attention.wv.bias", "self_attn.v_proj.bias"),
    TM_HF_LAYER("attention.wo.bias", "self_attn.o_proj.bias"),
    TM_HF_LAYER("attention.sinks", "self_attn.sinks"),
    TM_HF_LAYER("moe.router.gate.weight", "mlp.router.weight"),
    TM_HF_LAYER("moe.router.gate.bias", "mlp.router.bias"),
    EXPERTS("w1.weight", "gate_up_proj", true, 0, 2),
    EXPERTS("w3.weight", "gate_up_proj", true, 1, 2),
    EXPERTS("w1.bias", "gate_up_proj_bias", false, 0, 2),
    EXPERTS("w3.bias", "gate_up_proj_bias", false, 1, 2),
    EXPERTS("w2.weight", "down_proj", true, 0, 0),
    EXPERTS("w2.bias", "down_proj_bias", false, 0, 0),
    { .ours = NULL },
};
#undef EXPERTS
static const char *const       hf_pairs[] = { "model.family=gpt_oss",
                                              "model.bias=all",
                                              "model.sinks=true",
                                              "model.sliding_window_every=2",
                                              "model.activation=swiglu_clamped",
                                              "model.moe_normalise=true",
                                              "model.qk_norm=false",
                                              NULL };
static const char              hf_rope[] = "{\"rope_type\": \"yarn\", \"factor\": 32.0, \"beta_fast\": 32.0, "
                                           "\"beta_slow\": 1.0, \"truncate\": false, "
                                           "\"original_max_position_embeddings\": 4096}";
static const tm_hf_form        hf_gpt_oss = { .model_type = "gpt_oss",
                                              .architecture = "GptOssForCausalLM",
                                              .pairs = hf_pairs,
                                              .keys = hf_keys,
                                              .rope = hf_rope,
                                              .tensors = hf_tensors,
                                              .tied_head = "lm_head.weight",
                                              .tied_to = "model.embed_tokens.weight",
                                              .lacks = tm_moe_lacks_plain };
static const tm_hf_form *const hf_forms[] = { &hf_gpt_oss, NULL };

const tm_family tm_family_gpt_oss = {
    .name = "gpt_oss",
    .bias = TM_BIAS_ALL,
    .sinks = true,
    .clamped = true,
    .moe_normalise = true,
    TM_LLAMA_CALLS,
    .hf = hf_forms,
};
