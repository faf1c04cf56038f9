/* SPDX-License-Identifier: Apache-2.0 */
/* model/qwen3.c - Qwen3: Llama's blocks, with an RMSNorm of each query and key head before the rotation. */
#include "model/blocks.h"
#include "model/hf_rows.h"

static const tm_hf_key hf_keys[] = {
    TM_HF_DECODER_SIZES("151936", "4096", "32", "32", "32", "128"),
    TM_HF_IS_OR("intermediate_size", "ffn_dim", "22016"),
    TM_HF_IS_OR("max_position_embeddings", "max_seq_len", "32768"),
    TM_HF_IS_OR("rms_norm_eps", "norm_eps", "1e-6"),
    TM_HF_IS_OR("tie_word_embeddings", "tied", "false"),
    TM_HF_WANTS("attention_bias", "false", "false"),
    TM_HF_WANTS("use_sliding_window", "false", "false"),
    TM_HF_IDLE("sliding_window"), /* counts only with use_sliding_window */
    TM_HF_IDLE("max_window_layers"),
    { .key = "layer_types", .kind = TM_HF_CYCLE, .values = "full_attention", .absent = "" },
    TM_HF_ROPE("10000"),
    TM_HF_WANTS("hidden_act", "silu|swish", "silu"),
    TM_HF_OF_TRAINING("attention_dropout", "0.0|0", "0"),
    { .key = NULL },
};
static const tm_hf_tensor hf_tensors[] = {
    TM_HF_LLAMA_ATTENTION,
    TM_HF_LLAMA_FFN,
    TM_HF_LAYER("attention.q_norm.weight", "self_attn.q_norm.weight"),
    TM_HF_LAYER("attention.k_norm.weight", "self_attn.k_norm.weight"),
    { .ours = NULL },
};
static const char *const hf_pairs[] = { "model.family=qwen3", "model.qk_norm=true", "model.bias=none", NULL };
static const tm_hf_form  hf_qwen3 = {
     .model_type = "qwen3",
     .architecture = "Qwen3ForCausalLM",
     .pairs = hf_pairs,
     .keys = hf_keys,
     .tensors = hf_tensors,
     .tied_head = "lm_head.weight",
     .tied_to = "model.embed_tokens.weight",
     .lacks = tm_llama_lacks_window,
};
static const tm_hf_form *const hf_forms[] = { &hf_qwen3, NULL };

const tm_family tm_family_qwen3 = {
    .name = "qwen3",
    .qk_norm = true,
    TM_LLAMA_CALLS,
    .hf = hf_forms,
};
