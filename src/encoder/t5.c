/* SPDX-License-Identifier: Apache-2.0 */
/* encoder/t5.c - the encoder of T5 (Raffel et al. 2020; gated: Shazeer 2020), as T5EncoderModel of transformers has it.
 *
 *   x = table[id]
 *   each layer:  x = x + Wo attention(Wqkv N(x)),  x = x + Wo' (gelu(W0 N(x)) W1 N(x)),  or Wo' relu(W N(x))
 *   out = N(x),  N: RMS norm
 *
 * Scores are not scaled; a bias by distance and head is added to them, one table for all layers. Nothing has a bias
 * else, and nothing is masked: padding is seen.
 */
#include "encoder/kind.h"

typedef struct {
    int64_t vocabulary, width, head, inner, layers, heads, buckets, max_distance, form; /* form: of t5_keys */
    double  eps;
} t5_config;
enum { GATED, PLAIN };

#define WHOLE(name, member, largest, otherwise) TM_FROZEN_WHOLE(t5_config, name, member, largest, otherwise)
static const tm_frozen_key t5_keys[] = {
    WHOLE("vocab_size", vocabulary, 1 << 24, NULL),
    WHOLE("d_model", width, 1 << 16, NULL),
    WHOLE("d_kv", head, 1 << 12, NULL),
    WHOLE("d_ff", inner, 1 << 20, NULL),
    WHOLE("num_layers", layers, 1 << 10, NULL),
    WHOLE("num_heads", heads, 1 << 10, NULL),
    WHOLE("relative_attention_num_buckets", buckets, 1 << 16, "32"),
    WHOLE("relative_attention_max_distance", max_distance, 1 << 20, "128"),
    { .key = "layer_norm_epsilon", .kind = TM_KEY_NUMBER, .offset = offsetof(t5_config, eps), .absent = "1e-06" },
    { .key = "feed_forward_proj",
      .kind = TM_KEY_CHOICE,
      .offset = offsetof(t5_config, form),
      .values = "gated-gelu|relu",
      .absent = "relu" },
    { .key = "is_decoder", .kind = TM_KEY_MUST, .values = "false", .absent = "false" },
    /* the class derives both from feed_forward_proj */
    TM_FROZEN_IDLE("dense_act_fn"),
    TM_FROZEN_IDLE("is_gated_act"),
    /* of the decoder, and of training */
    TM_FROZEN_IDLE("num_decoder_layers"),
    TM_FROZEN_IDLE("decoder_start_token_id"),
    TM_FROZEN_IDLE("scale_decoder_outputs"),
    TM_FROZEN_IDLE("is_encoder_decoder"),
    TM_FROZEN_IDLE("dropout_rate"),
    TM_FROZEN_IDLE("classifier_dropout"),
    /* not read by the encoder: positions are relative */
    TM_FROZEN_IDLE("n_positions"),
    TM_FROZEN_IDLE("eos_token_id"),
    { .key = NULL },
};
#undef WHOLE

static tm_status t5_check(const char *path, const void *config, const tm_frozen_size *size, tm_frozen_facts *facts,
                          tm_error *err)
{
    enum { MOST_TOKENS = 1 << 16 };
    const t5_config *c = config;
    if (c->buckets % 4 != 0 || c->max_distance <= c->buckets / 4)
        return tm_fail(
            err, TM_UNSUPPORTED,
            "'%s': 'relative_attention_num_buckets' %lld and 'relative_attention_max_distance' %lld: buckets "
            "must be a multiple of 4, and the distance more than a quarter of them",
            path, (long long)c->buckets, (long long)c->max_distance);
    if (!(c->eps > 0))
        return tm_fail(err, TM_FORMAT, "'%s': 'layer_norm_epsilon' is %g, wanted a positive number", path, c->eps);
    if (size->tokens < 1 || size->tokens > MOST_TOKENS)
        return tm_fail(err, TM_INVALID, "the T5 text encoder of '%s' takes 1 to %d tokens, not %lld", path, MOST_TOKENS,
                       (long long)size->tokens);
    *facts = (tm_frozen_facts){ .width = c->width, .vocabulary = c->vocabulary };
    return TM_OK;
}

static tm_tensor_id norm(tm_frozen_program *p, const char *name, tm_tensor_id x)
{
    const t5_config *c = p->config;
    tm_norm_attr     attr = { .eps = c->eps };
    tm_tensor_id     w = tm_frozen_parameter(p, tm_shape_1(c->width), "%s.weight", name);
    return tm_frozen_emit(p, TM_OP_rmsnorm, &attr, sizeof attr, x, w, TM_NONE, TM_NONE);
}

/* x W^T + residual */
static tm_tensor_id linear(tm_frozen_program *p, tm_tensor_id w, tm_tensor_id x, tm_tensor_id residual)
{
    return tm_frozen_emit(p, TM_OP_linear, NULL, 0, x, w, TM_NONE, residual);
}

static tm_tensor_id attention(tm_frozen_program *p, const char *prefix, tm_tensor_id table, tm_tensor_id x)
{
    static const char *const parts[] = { "q", "k", "v" };
    const t5_config         *c = p->config;
    tm_tensor_id             part[3];
    tm_relative_attr         attr = {
                .seq = p->size->tokens, .heads = c->heads, .dim = c->head, .max_distance = c->max_distance, .scale = 1
    };
    tm_frozen_qkv(p, prefix, parts, c->heads * c->head, c->width, false, x, part);
    return tm_frozen_emit(p, TM_OP_relative_attention, &attr, sizeof attr, part[0], part[1], part[2], table);
}

static tm_tensor_id feed_forward(tm_frozen_program *p, const char *prefix, tm_tensor_id h, tm_tensor_id residual)
{
    static const char *const parts[] = { "wi_0", "wi_1" };
    const t5_config         *c = p->config;
    bool                     gated = c->form == GATED;
    tm_tensor_id             w = gated ? tm_frozen_fused(p, c->inner, c->width, prefix, parts, 2, ".weight")
                                       : tm_frozen_parameter(p, tm_shape_2(c->inner, c->width), "%swi.weight", prefix);
    h = linear(p, w, h, TM_NONE);
    h = tm_frozen_emit(p, gated ? TM_OP_geglu : TM_OP_relu, NULL, 0, h, TM_NONE, TM_NONE, TM_NONE);
    return linear(p, tm_frozen_parameter(p, tm_shape_2(c->width, c->inner), "%swo.weight", prefix), h, residual);
}

static void t5_build(tm_frozen_program *p)
{
    const t5_config  *c = p->config;
    tm_arena         *arena = p->graph->arena;
    tm_embedding_attr attr = { .seq = p->size->tokens };
    tm_tensor_id      ids = tm_frozen_field(p, 0, "ids", tm_shape_1(p->size->batch * p->size->tokens), TM_I32);
    tm_frozen_module(p, -1, "shared");
    tm_tensor_id shared = tm_frozen_parameter(p, tm_shape_2(c->vocabulary, c->width), "shared.weight");
    tm_tensor_id bias = tm_frozen_parameter(p, tm_shape_2(c->buckets, c->heads),
                                            "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
    tm_tensor_id x = tm_frozen_emit(p, TM_OP_embedding, &attr, sizeof attr, ids, shared, TM_NONE, TM_NONE);
    for (int i = 0; i < c->layers; i++) {
        const char *name = tm_arena_format(arena, "encoder.block.%d.layer", i);
        tm_frozen_module(p, i, "%s.0", name);
        tm_tensor_id h = norm(p, tm_arena_format(arena, "%s.0.layer_norm", name), x);
        h = attention(p, tm_arena_format(arena, "%s.0.SelfAttention.", name), bias, h);
        x = linear(
            p, tm_frozen_parameter(p, tm_shape_2(c->width, c->heads * c->head), "%s.0.SelfAttention.o.weight", name), h,
            x);
        tm_frozen_module(p, i, "%s.1", name);
        h = norm(p, tm_arena_format(arena, "%s.1.layer_norm", name), x);
        x = feed_forward(p, tm_arena_format(arena, "%s.1.DenseReluDense.", name), h, x);
    }
    tm_frozen_module(p, -1, "final_layer_norm");
    p->out = norm(p, "encoder.final_layer_norm", x);
}

static const char *const t5_aliases[][2] = { { "shared.weight", "encoder.embed_tokens.weight" }, { NULL, NULL } };

const tm_frozen_row tm_frozen_t5 = {
    .class_name = "T5EncoderModel",
    .keys = t5_keys,
    .config_bytes = sizeof(t5_config),
    .aliases = t5_aliases,
    .check = t5_check,
    .build = t5_build,
};
