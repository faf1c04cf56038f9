/* SPDX-License-Identifier: Apache-2.0 */
/* model/hf_rows.h - rows of model/hf.h that several families share (private to model/). */
#ifndef TM_MODEL_HF_ROWS_H
#define TM_MODEL_HF_ROWS_H

#include "model/hf.h"

/* Rows of a key whose value is that of one of ours. */
#define TM_HF_IS(theirs, ours)                                                                                         \
    {                                                                                                                  \
        .key = theirs, .kind = TM_HF_VALUE, .name = "model." ours                                                      \
    }
#define TM_HF_IS_OR(theirs, ours, missing)                                                                             \
    {                                                                                                                  \
        .key = theirs, .kind = TM_HF_VALUE, .name = "model." ours, .absent = missing                                   \
    }
/* The same, where null is what our key says by itself. */
#define TM_HF_OR_NULL(theirs, ours, missing)                                                                           \
    {                                                                                                                  \
        .key = theirs, .kind = TM_HF_VALUE, .name = "model." ours, .absent = missing, .null = ""                       \
    }
/* Rows of a key that must have one of some values, the first of which it has where it is absent. */
#define TM_HF_WANTS(theirs, list, missing)                                                                             \
    {                                                                                                                  \
        .key = theirs, .kind = TM_HF_MUST, .values = list, .absent = missing                                           \
    }
#define TM_HF_OF_TRAINING(theirs, list, missing)                                                                       \
    {                                                                                                                  \
        .key = theirs, .kind = TM_HF_TRAINING, .values = list, .absent = missing                                       \
    }
#define TM_HF_IDLE(theirs)                                                                                             \
    {                                                                                                                  \
        .key = theirs, .kind = TM_HF_HARMLESS                                                                          \
    }

/* Sizes of a decoder with grouped attention. */
#define TM_HF_DECODER_SIZES(vocab, dim, layers, heads, kv_heads, head)                                                 \
    TM_HF_IS_OR("vocab_size", "vocab_size", vocab), TM_HF_IS_OR("hidden_size", "dim", dim),                            \
        TM_HF_IS_OR("num_hidden_layers", "n_layers", layers), TM_HF_IS_OR("num_attention_heads", "n_heads", heads),    \
        TM_HF_OR_NULL("num_key_value_heads", "n_kv_heads", kv_heads), TM_HF_OR_NULL("head_dim", "head_dim", head)

/* Rotary positions, plain or scaled in one of the ways of transformers' modeling_rope_utils; transformers 5 keeps all
 * in one object. max_position_embeddings comes before them. */
#define TM_HF_IN_ROPE(member) "rope_scaling." member "|rope_parameters." member
#define TM_HF_ROPE_OF(scalings, theirs, ours, missing)                                                                 \
    {                                                                                                                  \
        .key = TM_HF_IN_ROPE(theirs), .kind = TM_HF_VALUE, .name = "model." ours, .absent = missing,                   \
        .only = "model.rope_scaling=" scalings                                                                         \
    }
/* The class says so, and computes the same with any value. */
#define TM_HF_ROPE_IDLE(scalings, theirs)                                                                              \
    {                                                                                                                  \
        .key = TM_HF_IN_ROPE(theirs), .kind = TM_HF_HARMLESS, .only = "model.rope_scaling=" scalings                   \
    }
#define TM_HF_ROPE(theta)                                                                                              \
    TM_HF_IS_OR("rope_theta|" TM_HF_IN_ROPE("rope_theta"), "rope_theta", theta),                                       \
        TM_HF_WANTS("partial_rotary_factor|" TM_HF_IN_ROPE("partial_rotary_factor"), "1", "1"),                        \
        { .key = TM_HF_IN_ROPE("rope_type") "|" TM_HF_IN_ROPE("type"),                                                 \
          .kind = TM_HF_CHOICE,                                                                                        \
          .name = "model.rope_scaling",                                                                                \
          .values = "default=none|llama3=llama3|yarn=yarn|linear=linear|dynamic=dynamic",                              \
          .absent = "default" },                                                                                       \
        TM_HF_ROPE_OF("llama3|yarn", "original_max_position_embeddings", "rope_original_max_seq_len",                  \
                      "model.max_seq_len"),                                                                            \
        TM_HF_ROPE_OF("llama3|linear|dynamic", "factor", "rope_scaling_factor", NULL),                                 \
        { .key = TM_HF_IN_ROPE("factor"),                                                                              \
          .kind = TM_HF_VALUE,                                                                                         \
          .name = "model.rope_scaling_factor",                                                                         \
          .null = "model.max_seq_len/model.rope_original_max_seq_len",                                                 \
          .only = "model.rope_scaling=yarn" },                                                                         \
        TM_HF_ROPE_OF("llama3", "low_freq_factor", "rope_low_freq_factor", NULL),                                      \
        TM_HF_ROPE_OF("llama3", "high_freq_factor", "rope_high_freq_factor", NULL),                                    \
        TM_HF_ROPE_OF("yarn", "beta_fast", "rope_beta_fast", "32"),                                                    \
        TM_HF_ROPE_OF("yarn", "beta_slow", "rope_beta_slow", "1"),                                                     \
        { .key = TM_HF_IN_ROPE("truncate"),                                                                            \
          .kind = TM_HF_VALUE,                                                                                         \
          .name = "model.rope_truncate",                                                                               \
          .absent = "true",                                                                                            \
          .null = "false",                                                                                             \
          .only = "model.rope_scaling=yarn" },                                                                         \
        TM_HF_ROPE_OF("yarn", "mscale", "rope_mscale", "0"),                                                           \
        TM_HF_ROPE_OF("yarn", "mscale_all_dim", "rope_mscale_all_dim", "0"),                                           \
        TM_HF_ROPE_OF("yarn", "attention_factor", "rope_attention_factor", ""),                                        \
        TM_HF_ROPE_IDLE("linear|dynamic", "original_max_position_embeddings"),                                         \
        TM_HF_ROPE_IDLE("linear|dynamic|yarn", "low_freq_factor"),                                                     \
        TM_HF_ROPE_IDLE("linear|dynamic|yarn", "high_freq_factor"),                                                    \
        TM_HF_ROPE_IDLE("linear|dynamic|llama3", "beta_fast"), TM_HF_ROPE_IDLE("linear|dynamic|llama3", "beta_slow"),  \
        TM_HF_ROPE_IDLE("linear|dynamic|llama3", "truncate"),                                                          \
        TM_HF_ROPE_IDLE("linear|dynamic|llama3", "attention_factor")

/* Tensors of the llama family's pieces outside of the FFN, which have these names in nearly every form. */
#define TM_HF_LAYER(mine, yours)                                                                                       \
    {                                                                                                                  \
        .ours = "layers.{l}." mine, .theirs = "model.layers.{l}." yours                                                \
    }
#define TM_HF_LAYER_ROTARY(mine, yours)                                                                                \
    {                                                                                                                  \
        .ours = "layers.{l}." mine, .theirs = "model.layers.{l}." yours, .rotary = true                                \
    }
#define TM_HF_LLAMA_ATTENTION                                                                                          \
    { .ours = "tok_embeddings.weight", .theirs = "model.embed_tokens.weight" },                                        \
        { .ours = "norm.weight", .theirs = "model.norm.weight" },                                                      \
        { .ours = "output.weight", .theirs = "lm_head.weight" },                                                       \
        TM_HF_LAYER("attention_norm.weight", "input_layernorm.weight"),                                                \
        TM_HF_LAYER_ROTARY("attention.wq.weight", "self_attn.q_proj.weight"),                                          \
        TM_HF_LAYER_ROTARY("attention.wk.weight", "self_attn.k_proj.weight"),                                          \
        TM_HF_LAYER("attention.wv.weight", "self_attn.v_proj.weight"),                                                 \
        TM_HF_LAYER("attention.wo.weight", "self_attn.o_proj.weight"),                                                 \
        TM_HF_LAYER("ffn_norm.weight", "post_attention_layernorm.weight")
#define TM_HF_LLAMA_FFN                                                                                                \
    TM_HF_LAYER("feed_forward.w1.weight", "mlp.gate_proj.weight"),                                                     \
        TM_HF_LAYER("feed_forward.w3.weight", "mlp.up_proj.weight"),                                                   \
        TM_HF_LAYER("feed_forward.w2.weight", "mlp.down_proj.weight")

#endif
