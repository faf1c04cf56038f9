/* SPDX-License-Identifier: Apache-2.0 */
/* encoder/clip.c - the text encoder of CLIP (Radford et al. 2021), as CLIPTextModel of transformers has it.
 *
 *   x = table[id] + positions[t]
 *   each layer:  x = x + Wo attention(Wqkv LN(x)),  x = x + W2 act(W1 LN(x))       a token sees those before it
 *   pooled = LN(x[end]),  end: the place of the token that ends the sequence
 *
 * The end is the first token that is eos_token_id. Files with eos_token_id 2, which is not the one that is meant, mean
 * the largest id: that token is the last of the vocabulary.
 */
#include "encoder/kind.h"

#include <math.h>

typedef struct {
    int64_t vocabulary, width, inner, layers, heads, positions, act, eos;
    double  eps;
} clip_config;

#define WHOLE(name, member, largest, otherwise) TM_FROZEN_WHOLE(clip_config, name, member, largest, otherwise)
static const tm_frozen_key clip_keys[] = {
    WHOLE("vocab_size", vocabulary, 1 << 24, NULL),
    WHOLE("hidden_size", width, 1 << 16, NULL),
    WHOLE("intermediate_size", inner, 1 << 20, NULL),
    WHOLE("num_hidden_layers", layers, 1 << 10, NULL),
    WHOLE("num_attention_heads", heads, 1 << 10, NULL),
    WHOLE("max_position_embeddings", positions, 1 << 20, "77"),
    WHOLE("eos_token_id", eos, 1 << 24, "49407"),
    { .key = "layer_norm_eps", .kind = TM_KEY_NUMBER, .offset = offsetof(clip_config, eps), .absent = "1e-05" },
    { .key = "hidden_act",
      .kind = TM_KEY_CHOICE,
      .offset = offsetof(clip_config, act),
      .values = "quick_gelu|gelu_new|gelu_pytorch_tanh",
      .absent = "quick_gelu" },
    TM_FROZEN_IDLE("attention_dropout"),
    TM_FROZEN_IDLE("dropout"),
    TM_FROZEN_IDLE("projection_dim"),
    { .key = NULL },
};
#undef WHOLE

static tm_status clip_check(const char *path, const void *config, const tm_frozen_size *size, tm_frozen_facts *facts,
                            tm_error *err)
{
    const clip_config *c = config;
    if (c->width % c->heads != 0)
        return tm_fail(err, TM_FORMAT, "'%s': 'hidden_size' %lld is not a multiple of 'num_attention_heads' %lld", path,
                       (long long)c->width, (long long)c->heads);
    if (!(c->eps > 0))
        return tm_fail(err, TM_FORMAT, "'%s': 'layer_norm_eps' is %g, wanted a positive number", path, c->eps);
    if (size->tokens < 1 || size->tokens > c->positions)
        return tm_fail(err, TM_INVALID, "the CLIP text encoder of '%s' takes 1 to %lld tokens, not %lld", path,
                       (long long)c->positions, (long long)size->tokens);
    *facts = (tm_frozen_facts){ .width = c->width, .max_tokens = c->positions, .vocabulary = c->vocabulary };
    return TM_OK;
}

static void clip_mark(const void *config, const tm_frozen_size *size, const int32_t *ids, int32_t *out)
{
    const clip_config *c = config;
    for (int64_t b = 0; b < size->batch; b++) {
        const int32_t *row = ids + b * size->tokens;
        int64_t        end = 0, t = 0;
        while (t < size->tokens && row[t] != c->eos) t++;
        if (t < size->tokens) end = t;
        if (c->eos == 2)
            for (t = end = 0; t < size->tokens; t++)
                if (row[t] > row[end]) end = t;
        out[b] = (int32_t)(b * size->tokens + end);
    }
}

/* --- the program -------------------------------------------------------------------------------------------------- */

static tm_tensor_id layer_norm(tm_frozen_program *p, const char *name, tm_tensor_id x)
{
    const clip_config *c = p->config;
    tm_norm_attr       attr = { .eps = c->eps };
    tm_tensor_id       w = tm_frozen_parameter(p, tm_shape_1(c->width), "%s.weight", name);
    tm_tensor_id       b = tm_frozen_parameter(p, tm_shape_1(c->width), "%s.bias", name);
    return tm_frozen_emit(p, TM_OP_layernorm, &attr, sizeof attr, x, w, b, TM_NONE);
}

/* x W^T + b + residual */
static tm_tensor_id linear(tm_frozen_program *p, const char *name, int64_t out, int64_t in, tm_tensor_id x,
                           tm_tensor_id residual)
{
    tm_tensor_id w = tm_frozen_parameter(p, tm_shape_2(out, in), "%s.weight", name);
    tm_tensor_id b = tm_frozen_parameter(p, tm_shape_1(out), "%s.bias", name);
    return tm_frozen_emit(p, TM_OP_linear, NULL, 0, x, w, b, residual);
}

static tm_tensor_id attention(tm_frozen_program *p, const char *prefix, tm_tensor_id x)
{
    static const char *const parts[] = { "q_proj", "k_proj", "v_proj" };
    const clip_config       *c = p->config;
    int64_t                  head = c->width / c->heads;
    tm_attention_attr        attr = { .seq_q = p->size->tokens,
                                      .seq_k = p->size->tokens,
                                      .heads = c->heads,
                                      .kv_heads = c->heads,
                                      .dim_qk = head,
                                      .dim_v = head,
                                      .scale = 1 / sqrt((double)head),
                                      .causal = 1 };
    tm_tensor_id             part[3];
    tm_frozen_qkv(p, prefix, parts, c->width, c->width, true, x, part);
    return tm_frozen_emit(p, TM_OP_attention, &attr, sizeof attr, part[0], part[1], part[2], TM_NONE);
}

static tm_tensor_id layer(tm_frozen_program *p, int number, tm_tensor_id x)
{
    const clip_config *c = p->config;
    tm_arena          *arena = p->graph->arena;
    const char        *name = tm_arena_format(arena, "encoder.layers.%d", number);
    tm_frozen_module(p, number, "%s.self_attn", name);
    tm_tensor_id h = layer_norm(p, tm_arena_format(arena, "%s.layer_norm1", name), x);
    tm_tensor_id o = attention(p, tm_arena_format(arena, "%s.self_attn.", name), h);
    x = linear(p, tm_arena_format(arena, "%s.self_attn.out_proj", name), c->width, c->width, o, x);
    tm_frozen_module(p, number, "%s.mlp", name);
    h = layer_norm(p, tm_arena_format(arena, "%s.layer_norm2", name), x);
    h = linear(p, tm_arena_format(arena, "%s.mlp.fc1", name), c->inner, c->width, h, TM_NONE);
    h = tm_frozen_emit(p, c->act == 0 ? TM_OP_quick_gelu : TM_OP_gelu, NULL, 0, h, TM_NONE, TM_NONE, TM_NONE);
    return linear(p, tm_arena_format(arena, "%s.mlp.fc2", name), c->width, c->inner, h, x);
}

static void clip_build(tm_frozen_program *p)
{
    const clip_config *c = p->config;
    int64_t            batch = p->size->batch, tokens = p->size->tokens;
    tm_embedding_attr  places = { .seq = tokens }, ends = { .seq = 1 };
    tm_tensor_id       ids = tm_frozen_field(p, 0, "ids", tm_shape_1(batch * tokens), TM_I32);
    tm_tensor_id       at = tm_frozen_field(p, 1, "ends", tm_shape_1(batch), TM_I32);
    tm_frozen_module(p, -1, "embeddings");
    tm_tensor_id table =
        tm_frozen_parameter(p, tm_shape_2(c->vocabulary, c->width), "embeddings.token_embedding.weight");
    tm_tensor_id positions =
        tm_frozen_parameter(p, tm_shape_2(c->positions, c->width), "embeddings.position_embedding.weight");
    tm_tensor_id x = tm_frozen_emit(p, TM_OP_embedding, &places, sizeof places, ids, table, positions, TM_NONE);
    for (int i = 0; i < c->layers; i++) x = layer(p, i, x);
    tm_frozen_module(p, -1, "pooled");
    x = tm_frozen_emit(p, TM_OP_embedding, &ends, sizeof ends, at, x, TM_NONE, TM_NONE); /* those rows of x */
    p->out = layer_norm(p, "final_layer_norm", x);
}

static const char *const clip_ignored[] = { "embeddings.position_ids", NULL };

const tm_frozen_row tm_frozen_clip = {
    .class_name = "CLIPTextModel",
    .keys = clip_keys,
    .config_bytes = sizeof(clip_config),
    .prefix = "text_model.",
    .ignored = clip_ignored,
    .check = clip_check,
    .build = clip_build,
    .mark = clip_mark,
};
