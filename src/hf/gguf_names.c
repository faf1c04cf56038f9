/* SPDX-License-Identifier: Apache-2.0 */
#include "hf/gguf.h"

#include "graph/value.h"

#include <math.h>
#include <string.h>

#define LAYER(there, here, how)                                                                                        \
    {                                                                                                                  \
        .theirs = "blk.{l}." there, .name = "model.layers.{l}." here, .kind = how                                      \
    }
static const tm_gguf_row decoder_rows[] = {
    { "token_embd.weight", "model.embed_tokens.weight", TM_GGUF_PLAIN },
    { "output_norm.weight", "model.norm.weight", TM_GGUF_PLAIN },
    { "output.weight", "lm_head.weight", TM_GGUF_PLAIN },
    LAYER("attn_norm.weight", "input_layernorm.weight", TM_GGUF_PLAIN),
    LAYER("attn_q.weight", "self_attn.q_proj.weight", TM_GGUF_QUERIES),
    LAYER("attn_k.weight", "self_attn.k_proj.weight", TM_GGUF_KEYS),
    LAYER("attn_v.weight", "self_attn.v_proj.weight", TM_GGUF_PLAIN),
    LAYER("attn_q.bias", "self_attn.q_proj.bias", TM_GGUF_QUERIES),
    LAYER("attn_k.bias", "self_attn.k_proj.bias", TM_GGUF_KEYS),
    LAYER("attn_v.bias", "self_attn.v_proj.bias", TM_GGUF_PLAIN),
    LAYER("attn_q_norm.weight", "self_attn.q_norm.weight", TM_GGUF_PLAIN),
    LAYER("attn_k_norm.weight", "self_attn.k_norm.weight", TM_GGUF_PLAIN),
    LAYER("attn_output.weight", "self_attn.o_proj.weight", TM_GGUF_PLAIN),
    LAYER("ffn_norm.weight", "post_attention_layernorm.weight", TM_GGUF_PLAIN),
    { NULL, NULL, TM_GGUF_PLAIN },
};
static const tm_gguf_row dense_rows[] = {
    LAYER("ffn_gate.weight", "mlp.gate_proj.weight", TM_GGUF_PLAIN),
    LAYER("ffn_up.weight", "mlp.up_proj.weight", TM_GGUF_PLAIN),
    LAYER("ffn_down.weight", "mlp.down_proj.weight", TM_GGUF_PLAIN),
    { NULL, NULL, TM_GGUF_PLAIN },
};
static const tm_gguf_row mixtral_rows[] = {
    LAYER("ffn_gate_inp.weight", "block_sparse_moe.gate.weight", TM_GGUF_WIDE),
    LAYER("ffn_gate_exps.weight", "block_sparse_moe.experts.{e}.w1.weight", TM_GGUF_PLAIN),
    LAYER("ffn_up_exps.weight", "block_sparse_moe.experts.{e}.w3.weight", TM_GGUF_PLAIN),
    LAYER("ffn_down_exps.weight", "block_sparse_moe.experts.{e}.w2.weight", TM_GGUF_PLAIN),
    { NULL, NULL, TM_GGUF_PLAIN },
};
static const tm_gguf_row qwen3_moe_rows[] = {
    LAYER("ffn_gate_inp.weight", "mlp.gate.weight", TM_GGUF_WIDE),
    LAYER("ffn_gate_exps.weight", "mlp.experts.{e}.gate_proj.weight", TM_GGUF_PLAIN),
    LAYER("ffn_up_exps.weight", "mlp.experts.{e}.up_proj.weight", TM_GGUF_PLAIN),
    LAYER("ffn_down_exps.weight", "mlp.experts.{e}.down_proj.weight", TM_GGUF_PLAIN),
    { NULL, NULL, TM_GGUF_PLAIN },
};
#undef LAYER
#define LAYER(there, here, how)                                                                                        \
    { "blk.{l}." there ".weight", "h.{l}." here ".weight", how },                                                      \
    {                                                                                                                  \
        "blk.{l}." there ".bias", "h.{l}." here ".bias", TM_GGUF_PLAIN                                                 \
    }
static const tm_gguf_row gpt2_rows[] = {
    { "token_embd.weight", "wte.weight", TM_GGUF_PLAIN },
    { "position_embd.weight", "wpe.weight", TM_GGUF_WIDE },
    { "output_norm.weight", "ln_f.weight", TM_GGUF_PLAIN },
    { "output_norm.bias", "ln_f.bias", TM_GGUF_PLAIN },
    { "output.weight", "lm_head.weight", TM_GGUF_PLAIN },
    LAYER("attn_norm", "ln_1", TM_GGUF_PLAIN),
    LAYER("attn_qkv", "attn.c_attn", TM_GGUF_TRANSPOSED),
    LAYER("attn_output", "attn.c_proj", TM_GGUF_TRANSPOSED),
    LAYER("ffn_norm", "ln_2", TM_GGUF_PLAIN),
    LAYER("ffn_up", "mlp.c_fc", TM_GGUF_TRANSPOSED),
    LAYER("ffn_down", "mlp.c_proj", TM_GGUF_TRANSPOSED),
    { NULL, NULL, TM_GGUF_PLAIN },
};
#undef LAYER
static const tm_gguf_row no_rows[] = { { NULL, NULL, TM_GGUF_PLAIN } };

#define DECODER_KEYS                                                                                                   \
    { "context_length", "max_position_embeddings", false, false },                                                     \
        { "embedding_length", "hidden_size", false, false }, { "block_count", "num_hidden_layers", false, false },     \
        { "feed_forward_length", "intermediate_size", false, false },                                                  \
        { "attention.head_count", "num_attention_heads", false, false },                                               \
        { "attention.head_count_kv", "num_key_value_heads", false, true },                                             \
        { "attention.key_length", "head_dim", false, true },                                                           \
        { "attention.layer_norm_rms_epsilon", "rms_norm_eps", true, false },                                           \
    {                                                                                                                  \
        "rope.freq_base", "rope_theta", true, true                                                                     \
    }
static const tm_gguf_key decoder_keys[] = { DECODER_KEYS, { NULL, NULL, false, false } };
static const tm_gguf_key mixtral_keys[] = { DECODER_KEYS,
                                            { "expert_count", "num_local_experts", false, false },
                                            { "expert_used_count", "num_experts_per_tok", false, false },
                                            { NULL, NULL, false, false } };
static const tm_gguf_key qwen3_moe_keys[] = { DECODER_KEYS,
                                              { "expert_count", "num_experts", false, false },
                                              { "expert_used_count", "num_experts_per_tok", false, false },
                                              { "expert_feed_forward_length", "moe_intermediate_size", false, false },
                                              { NULL, NULL, false, false } };
static const tm_gguf_key gpt2_keys[] = { { "context_length", "n_positions", false, false },
                                         { "embedding_length", "n_embd", false, false },
                                         { "block_count", "n_layer", false, false },
                                         { "feed_forward_length", "n_inner", false, false },
                                         { "attention.head_count", "n_head", false, false },
                                         { "attention.layer_norm_epsilon", "layer_norm_epsilon", true, false },
                                         { NULL, NULL, false, false } };

/* The first row of an architecture is what a file is read as; with experts the first that has some. */
static const tm_gguf_model models[] = {
    { "llama", "llama", { decoder_rows, dense_rows }, decoder_keys, true, false, true },
    { "llama", "mistral", { decoder_rows, dense_rows }, decoder_keys, true, false, true },
    { "llama", "mixtral", { decoder_rows, mixtral_rows }, mixtral_keys, true, true, true },
    { "qwen2", "qwen2", { decoder_rows, dense_rows }, decoder_keys, false, false, true },
    { "qwen3", "qwen3", { decoder_rows, dense_rows }, decoder_keys, false, false, true },
    { "qwen3moe", "qwen3_moe", { decoder_rows, qwen3_moe_rows }, qwen3_moe_keys, false, true, true },
    { "gpt2", "gpt2", { gpt2_rows, no_rows }, gpt2_keys, false, false, false },
};
enum { MODELS = sizeof models / sizeof models[0] };

const tm_gguf_model *tm_gguf_model_of_type(const char *model_type)
{
    for (int i = 0; i < MODELS; i++)
        if (strcmp(models[i].model_type, model_type) == 0) return &models[i];
    return NULL;
}

void tm_gguf_model_types(tm_text *out)
{
    for (int i = 0; i < MODELS; i++) tm_text_printf(out, "%s%s", i ? ", " : "", models[i].model_type);
}

tm_status tm_gguf_model_of(const tm_gguf *gguf, const tm_gguf_model **out, tm_error *err)
{
    size_t      n = 0;
    int64_t     experts = 0;
    const char *arch = tm_gguf_text(gguf, "general.architecture", &n);
    size_t      type_length = 0;
    const char *type = tm_gguf_text(gguf, "general.type", &type_length);
    if (type && (type_length != 5 || memcmp(type, "model", 5) != 0))
        return tm_fail(err, TM_UNSUPPORTED, "'%s' is no model but of the type '%.*s' (general.type), which is not read",
                       tm_gguf_name(gguf), (int)(type_length < 80 ? type_length : 80), type);
    if (!arch || n > 60)
        return tm_fail(err, TM_FORMAT, "'%s' has no general.architecture; not the file of a model", tm_gguf_name(gguf));
    char key[80];
    snprintf(key, sizeof key, "%.*s.expert_count", (int)n, arch);
    if (!tm_gguf_whole(gguf, key, &experts)) experts = 0;
    for (int i = 0; i < MODELS; i++) {
        if (strlen(models[i].arch) != n || memcmp(models[i].arch, arch, n) != 0) continue;
        if (models[i].experts != (experts > 0)) continue;
        *out = &models[i];
        return TM_OK;
    }
    return tm_fail(err, TM_UNSUPPORTED,
                   "'%s': general.architecture '%.*s'%s is not supported; llama, qwen2, qwen3, qwen3moe and gpt2 are",
                   tm_gguf_name(gguf), (int)n, arch, experts > 0 ? " with experts" : "");
}

const tm_gguf_row *tm_gguf_row_of(const tm_gguf_model *model, const char *name, bool theirs, int64_t numbers[2])
{
    for (int k = 0; k < 2; k++)
        for (const tm_gguf_row *row = model->rows[k]; row->name; row++)
            if (tm_hf_matches(theirs ? row->theirs : row->name, name, numbers)) return row;
    return NULL;
}

void tm_gguf_rope_divisors(const tm_gguf_rope *rope, int64_t n, float *out)
{
    const double turn = 6.283185307179586476925;
    for (int64_t i = 0; i < n / 2; i++) {
        double length = turn * pow(rope->theta, 2 * (double)i / (double)n);
        double part = (rope->original / length - rope->low) / (rope->high - rope->low);
        part = part < 0 ? 0 : part > 1 ? 1 : part;
        out[i] = (float)(1 / ((1 - part) / rope->factor + part));
    }
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

static void from_q8_0(const uint8_t *from, int64_t n, float *to)
{
    for (int64_t b = 0; b < n / TM_Q8_0_ELEMENTS; b++, from += TM_Q8_0_BYTES) {
        uint16_t bits;
        memcpy(&bits, from, sizeof bits);
        float d = tm_f16_value(bits);
        for (int i = 0; i < TM_Q8_0_ELEMENTS; i++) *to++ = d * (float)(int8_t)from[2 + i];
    }
}

static void to_q8_0(const float *from, int64_t n, uint8_t *to)
{
    for (int64_t b = 0; b < n / TM_Q8_0_ELEMENTS; b++, to += TM_Q8_0_BYTES, from += TM_Q8_0_ELEMENTS) {
        float largest = 0;
        for (int i = 0; i < TM_Q8_0_ELEMENTS; i++) largest = fmaxf(largest, fabsf(from[i]));
        float d = largest / 127, inverse = 1 / d;
        if (!isfinite(inverse)) inverse = 0; /* d is 0 in float16, too */
        uint16_t bits = tm_f16_round((double)d);
        memcpy(to, &bits, sizeof bits);
        for (int i = 0; i < TM_Q8_0_ELEMENTS; i++) to[2 + i] = (uint8_t)(int8_t)roundf(from[i] * inverse);
    }
}

void tm_gguf_to_f32(uint32_t format, const uint8_t *from, int64_t n, float *to)
{
    if (format == TM_GGUF_FORMAT_Q8_0) {
        from_q8_0(from, n, to);
    } else if (format == TM_GGUF_FORMAT_F32) {
        memcpy(to, from, (size_t)n * sizeof *to);
    } else {
        for (int64_t i = 0; i < n; i++) {
            uint16_t bits;
            memcpy(&bits, from + 2 * i, sizeof bits);
            to[i] = format == TM_GGUF_FORMAT_F16 ? tm_f16_value(bits) : tm_bf16_value(bits);
        }
    }
}

void tm_gguf_from_f32(uint32_t format, const float *from, int64_t n, uint8_t *to)
{
    if (format == TM_GGUF_FORMAT_Q8_0) {
        to_q8_0(from, n, to);
    } else if (format == TM_GGUF_FORMAT_F32) {
        memcpy(to, from, (size_t)n * sizeof *from);
    } else {
        TM_ASSERT(format == TM_GGUF_FORMAT_BF16);
        for (int64_t i = 0; i < n; i++) {
            uint16_t bits = tm_bf16_round(from[i]);
            memcpy(to + 2 * i, &bits, sizeof bits);
        }
    }
}
