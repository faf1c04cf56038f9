/* SPDX-License-Identifier: Apache-2.0 */
/* model/qwen2.c - Qwen2 and Qwen2.5: Llama's blocks, with biases of query, key and value. */
#include "model/blocks.h"
#include "model/hf_rows.h"

static const tm_hf_key hf_keys[] = {
    TM_HF_DECODER_SIZES("151936", "4096", "32", "32", "32", ""),
    TM_HF_IS_OR("intermediate_size", "ffn_dim", "22016"),
    TM_HF_IS_OR("max_position_embeddings", "max_seq_len", "32768"),
    TM_HF_IS_OR("rms_norm_eps", "norm_eps", "1e-6"),
    TM_HF_IS_OR("tie_word_embeddings", "tied", "false"),
    TM_HF_WANTS("use_sliding_window", "false", "false"),
    TM_HF_IDLE("sliding_window"), /* counts only with use_sliding_window */
    TM_HF_IDLE("max_window_layers"),
    { .key = "layer_types", .kind = TM_HF_CYCLE, .values = "full_attention", .absent = "" },
    TM_HF_ROPE("10000"),
    TM_HF_WANTS("hidden_act", "silu|swish", "silu"),
    TM_HF_WANTS("attention_bias", "true", ""), /* of queries, keys and values: always */
    TM_HF_WANTS("mlp_bias", "false", ""),
    TM_HF_OF_TRAINING("attention_dropout", "0.0|0", "0"),
    { .key = NULL },
};
static const tm_hf_tensor hf_tensors[] = {
    TM_HF_LLAMA_ATTENTION,
    TM_HF_LLAMA_FFN,
    TM_HF_LAYER_ROTARY("attention.wq.bias", "self_attn.q_proj.bias"),
    TM_HF_LAYER_ROTARY("attention.wk.bias", "self_attn.k_proj.bias"),
    TM_HF_LAYER("attention.wv.bias", "self_attn.v_proj.bias"),
    { .ours = NULL },
};
static const char *const hf_pairs[] = { "model.family=qwen2", "model.bias=qkv", "model.qk_norm=false", NULL };
static const tm_hf_form  hf_qwen2 = {
     .model_type = "qwen2",
     .architecture = "Qwen2ForCausalLM",
     .pairs = hf_pairs,
     .keys = hf_keys,
     .tensors = hf_tensors,
     .tied_head = "lm_head.weight",
     .tied_to = "model.embed_tokens.weight",
     .lacks = tm_llama_lacks_window,
};
static const tm_hf_form *const hf_forms[] = { &hf_qwen2, NULL };

const tm_family tm_family_qwen2 = {
    .name = "qwen2",
    .bias = TM_BIAS_QKV,
    TM_LLAMA_CALLS,
    .hf = hf_forms,
};
