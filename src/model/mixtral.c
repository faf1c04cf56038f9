/* SPDX-License-Identifier: Apache-2.0 */
/* model/mixtral.c - Mixtral: Llama's blocks with a mixture of experts, weights normalised over the chosen. */
#include "model/blocks.h"
#include "model/hf_rows.h"

static const tm_hf_key hf_keys[] = {
    TM_HF_DECODER_SIZES("32000", "4096", "32", "32", "8", ""),
    TM_HF_IS_OR("intermediate_size", "ffn_dim", "14336"),
    /* all blocks have experts: their width is what is written */
    TM_HF_IS_OR("intermediate_size", "moe_ffn_dim", "14336"),
    TM_HF_IS_OR("num_local_experts", "n_experts", "8"),
    TM_HF_IS_OR("num_experts_per_tok", "n_experts_per_token", "2"),
    TM_HF_IS_OR("max_position_embeddings", "max_seq_len", "131072"),
    TM_HF_IS_OR("rms_norm_eps", "norm_eps", "1e-5"),
    TM_HF_IS_OR("tie_word_embeddings", "tied", "false"),
    TM_HF_IS_OR("sliding_window", "sliding_window", ""),
    TM_HF_ROPE("1000000"),
    TM_HF_WANTS("hidden_act", "silu|swish", "silu"),
    TM_HF_WANTS("attention_bias", "false", ""),
    TM_HF_WANTS("moe_frequency", "1", ""),
    TM_HF_OF_TRAINING("attention_dropout", "0.0|0", "0"),
    TM_HF_OF_TRAINING("router_jitter_noise", "0.0|0", "0"),
    TM_HF_OF_TRAINING("output_router_logits", "false", "false"), /* true: an auxiliary loss over all layers at once */
    TM_HF_IDLE("router_aux_loss_coef"),
    { .key = NULL },
};
static const tm_hf_tensor hf_tensors[] = {
    TM_HF_LLAMA_ATTENTION,
    TM_HF_LAYER("moe.router.gate.weight", "block_sparse_moe.gate.weight"),
    TM_HF_LAYER("moe.experts.{e}.w1.weight", "block_sparse_moe.experts.{e}.w1.weight"),
    TM_HF_LAYER("moe.experts.{e}.w2.weight", "block_sparse_moe.experts.{e}.w2.weight"),
    TM_HF_LAYER("moe.experts.{e}.w3.weight", "block_sparse_moe.experts.{e}.w3.weight"),
    { .ours = NULL },
};
static const char *const       hf_pairs[] = { "model.family=mixtral", "model.moe_normalise=true", "model.qk_norm=false",
                                              "model.bias=none", NULL };
static const tm_hf_form        hf_mixtral = { .model_type = "mixtral",
                                              .architecture = "MixtralForCausalLM",
                                              .pairs = hf_pairs,
                                              .keys = hf_keys,
                                              .tensors = hf_tensors,
                                              .tied_head = "lm_head.weight",
                                              .tied_to = "model.embed_tokens.weight",
                                              .lacks = tm_moe_lacks_plain };
static const tm_hf_form *const hf_forms[] = { &hf_mixtral, NULL };

const tm_family tm_family_mixtral = {
    .name = "mixtral",
    .moe_normalise = true,
    TM_LLAMA_CALLS,
    .hf = hf_forms,
};
