/* SPDX-License-Identifier: Apache-2.0 */
/* model/qwen3_moe.c - Qwen3 with a mixture of experts in every block: norms of query and key heads, weights normalised
 * over the chosen. */
#include "model/blocks.h"
#include "model/hf_rows.h"

static const tm_hf_key hf_keys[] = {
    TM_HF_DECODER_SIZES("151936", "2048", "24", "32", "4", ""),
    TM_HF_IS_OR("intermediate_size", "ffn_dim", "6144"),
    TM_HF_IS_OR("moe_intermediate_size", "moe_ffn_dim", "768"),
    TM_HF_IS_OR("num_experts|num_local_experts", "n_experts", "128"),
    TM_HF_IS_OR("num_experts_per_tok", "n_experts_per_token", "8"),
    TM_HF_IS_OR("norm_topk_prob", "moe_normalise", "false"),
    TM_HF_IS_OR("max_position_embeddings", "max_seq_len", "32768"),
    TM_HF_IS_OR("rms_norm_eps", "norm_eps", "1e-6"),
    TM_HF_IS_OR("tie_word_embeddings", "tied", "false"),
    TM_HF_ROPE("10000"),
    TM_HF_WANTS("hidden_act", "silu|swish", "silu"),
    TM_HF_WANTS("attention_bias", "false", "false"),
    TM_HF_WANTS("qkv_bias", "false", ""), /* of Qwen3-Coder, as the next two; the class always computes so */
    TM_HF_WANTS("use_qk_norm", "true", ""),
    TM_HF_WANTS("shared_expert_intermediate_size", "0", ""),
    TM_HF_WANTS("use_sliding_window", "false", "false"),
    TM_HF_IDLE("sliding_window"),
    TM_HF_IDLE("max_window_layers"),
    TM_HF_WANTS("decoder_sparse_step", "1", "1"),
    TM_HF_WANTS("mlp_only_layers", "[]", "[]"),
    TM_HF_OF_TRAINING("attention_dropout", "0.0|0", "0"),
    TM_HF_OF_TRAINING("output_router_logits", "false", "false"), /* true: an auxiliary loss over all layers at once */
    TM_HF_IDLE("router_aux_loss_coef"),
    { .key = NULL },
};
static const tm_hf_tensor hf_tensors[] = {
    TM_HF_LLAMA_ATTENTION,
    TM_HF_LAYER("attention.q_norm.weight", "self_attn.q_norm.weight"),
    TM_HF_LAYER("attention.k_norm.weight", "self_attn.k_norm.weight"),
    TM_HF_LAYER("moe.router.gate.weight", "mlp.gate.weight"),
    TM_HF_LAYER("moe.experts.{e}.w1.weight", "mlp.experts.{e}.gate_proj.weight"),
    TM_HF_LAYER("moe.experts.{e}.w2.weight", "mlp.experts.{e}.down_proj.weight"),
    TM_HF_LAYER("moe.experts.{e}.w3.weight", "mlp.experts.{e}.up_proj.weight"),
    { .ours = NULL },
};
static const char *const       hf_pairs[] = { "model.family=qwen3_moe", "model.qk_norm=true", "model.bias=none", NULL };
static const tm_hf_form        hf_qwen3_moe = { .model_type = "qwen3_moe",
                                                .architecture = "Qwen3MoeForCausalLM",
                                                .pairs = hf_pairs,
                                                .keys = hf_keys,
                                                .tensors = hf_tensors,
                                                .tied_head = "lm_head.weight",
                                                .tied_to = "model.embed_tokens.weight",
                                                .lacks = tm_moe_lacks_plain };
static const tm_hf_form *const hf_forms[] = { &hf_qwen3_moe, NULL };

const tm_family tm_family_qwen3_moe = {
    .name = "qwen3_moe",
    .qk_norm = true,
    .moe_normalise = true,
    TM_LLAMA_CALLS,
    .hf = hf_forms,
};
