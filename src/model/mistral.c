/* SPDX-License-Identifier: Apache-2.0 */
/* model/mistral.c - Mistral 7B: Llama's blocks; model.sliding_window limits what a token sees. */
#include "model/blocks.h"
#include "model/hf_rows.h"

static const tm_hf_key hf_keys[] = {
    TM_HF_DECODER_SIZES("32000", "4096", "32", "32", "8", ""),
    TM_HF_IS_OR("intermediate_size", "ffn_dim", "14336"),
    TM_HF_IS_OR("max_position_embeddings", "max_seq_len", "131072"),
    TM_HF_IS_OR("rms_norm_eps", "norm_eps", "1e-6"),
    TM_HF_IS_OR("tie_word_embeddings", "tied", "false"),
    TM_HF_OR_NULL("sliding_window", "sliding_window", "4096"),
    TM_HF_ROPE("10000"),
    TM_HF_WANTS("hidden_act", "silu|swish", "silu"),
    TM_HF_WANTS("attention_bias", "false", ""),
    TM_HF_WANTS("mlp_bias", "false", ""),
    TM_HF_OF_TRAINING("attention_dropout", "0.0|0", "0"),
    { .key = NULL },
};
static const tm_hf_tensor hf_tensors[] = {
    TM_HF_LLAMA_ATTENTION,
    TM_HF_LLAMA_FFN,
    { .ours = NULL },
};
static const char *const hf_pairs[] = { "model.family=mistral", "model.qk_norm=false", "model.bias=none", NULL };
static const tm_hf_form  hf_mistral = {
     .model_type = "mistral",
     .architecture = "MistralForCausalLM",
     .pairs = hf_pairs,
     .keys = hf_keys,
     .tensors = hf_tensors,
     .tied_head = "lm_head.weight",
     .tied_to = "model.embed_tokens.weight",
};
static const tm_hf_form *const hf_forms[] = { &hf_mistral, NULL };

const tm_family tm_family_mistral = {
    .name = "mistral",
    TM_LLAMA_CALLS,
    .hf = hf_forms,
};
