/* SPDX-License-Identifier: Apache-2.0 */
/* encoder/vae.c - the autoencoder of latent diffusion (Rombach et al. 2022), as AutoencoderKL of diffusers has it.
 *
 *   resnet:     x' + conv(silu(norm(conv(silu(norm(x)))))),  x' = x, or its 1 x 1 convolution where channels differ
 *   attention:  x + Wo attention(Wqkv norm(x)), all positions of a picture with one head
 *   encoder:    conv, [resnets, conv of stride 2 but for the last] ..., resnet, attention, resnet, norm, silu, conv
 *   decoder:    conv, resnet, attention, resnet, [resnets, upsampled conv but for the last] ..., norm, silu, conv
 *
 * Pictures are rows of positions. The encoder's result has the mean and the logarithm of the variance side by side.
 */
#include "encoder/kind.h"
#include "op/attrs.h"

#include <math.h>

typedef struct {
    tm_key_list blocks; /* channels of each resolution, from that of the pixels on */
    int64_t     layers, latents, groups, quantised, unquantised, attends;
    double      scaling_factor, shift_factor;
} vae_config;

enum { PIXEL_CHANNELS = 3, MOST_PIXELS = 1 << 16 };
static const double norm_eps = 1e-6; /* of all norms; no key says it */

#define MEMBER(member) .offset = offsetof(vae_config, member)
#define WHOLE(name, member, largest, otherwise) TM_FROZEN_WHOLE(vae_config, name, member, largest, otherwise)
#define FLAG(name, member)                                                                                             \
    {                                                                                                                  \
        .key = name, .kind = TM_KEY_FLAG, MEMBER(member), .absent = "true"                                             \
    }
#define MUST(name, wanted, otherwise)                                                                                  \
    {                                                                                                                  \
        .key = name, .kind = TM_KEY_MUST, .values = wanted, .absent = otherwise                                        \
    }
static const tm_frozen_key vae_keys[] = {
    MUST("in_channels", "3", "3"),
    MUST("out_channels", "3", "3"),
    { .key = "down_block_types", .kind = TM_KEY_EACH, .values = "DownEncoderBlock2D" },
    { .key = "up_block_types", .kind = TM_KEY_EACH, .values = "UpDecoderBlock2D" },
    { .key = "block_out_channels", .kind = TM_KEY_LIST, MEMBER(blocks), .most = 1 << 14 },
    WHOLE("layers_per_block", layers, 64, "1"),
    WHOLE("latent_channels", latents, 1 << 12, "4"),
    WHOLE("norm_num_groups", groups, 1 << 12, "32"),
    MUST("act_fn", "silu|swish", "silu"),
    FLAG("use_quant_conv", quantised),
    FLAG("use_post_quant_conv", unquantised),
    FLAG("mid_block_add_attention", attends),
    { .key = "scaling_factor", .kind = TM_KEY_NUMBER, MEMBER(scaling_factor), .absent = "0.18215" },
    { .key = "shift_factor", .kind = TM_KEY_NUMBER, MEMBER(shift_factor), .absent = "0" },
    MUST("latents_mean", "null", ""), /* only absent or null: other latents would come out of a pipeline */
    MUST("latents_std", "null", ""),
    TM_FROZEN_IDLE("sample_size"),  /* of tiles, which the class makes when it is told to */
    TM_FROZEN_IDLE("force_upcast"), /* advice to pipelines: the caller says what is computed in */
    { .key = NULL },
};
#undef MEMBER
#undef WHOLE
#undef FLAG
#undef MUST

static tm_status vae_check(const char *path, const void *config, const tm_frozen_size *size, tm_frozen_facts *facts,
                           tm_error *err)
{
    const vae_config *c = config;
    int64_t           factor = (int64_t)1 << (c->blocks.n - 1);
    for (int64_t i = 0; i < c->blocks.n; i++)
        if (c->blocks.item[i] % c->groups != 0)
            return tm_fail(err, TM_FORMAT,
                           "'%s': %lld of 'block_out_channels' is not a multiple of 'norm_num_groups' %lld", path,
                           (long long)c->blocks.item[i], (long long)c->groups);
    for (int k = 0; k < 2; k++) {
        int64_t extent = k ? size->width : size->height;
        if (extent < 1 || extent > MOST_PIXELS || extent % factor != 0)
            return tm_fail(err, TM_INVALID,
                           "the autoencoder of '%s' takes pictures whose %s is a multiple of %lld up to %d pixels, not "
                           "%lld; crop or resize them",
                           path, k ? "width" : "height", (long long)factor, MOST_PIXELS, (long long)extent);
    }
    *facts = (tm_frozen_facts){
        .channels = c->latents, .factor = factor, .scaling_factor = c->scaling_factor, .shift_factor = c->shift_factor
    };
    return TM_OK;
}

/* --- the program -------------------------------------------------------------------------------------------------- */

/* Pictures between two layers. */
typedef struct {
    tm_tensor_id rows;
    int64_t      height, width, channels;
} picture;

static const char *named(const tm_frozen_program *p, const char *prefix, const char *rest)
{
    return tm_arena_format(p->graph->arena, "%s.%s", prefix, rest);
}

/* Ours are (M, k, k, C), those of the files (M, C, k, k). */
static int64_t channels_last(const tm_frozen_weight *w, int64_t i)
{
    int64_t channels = w->n[1], k = w->n[2], c = i % channels, place = i / channels % (k * k);
    return (i / channels / (k * k) * channels + c) * k * k + place;
}

typedef struct {
    int64_t kernel, stride, upsample;
} form; /* stride 2: padded below and to the right only */

static picture convolve(tm_frozen_program *p, const char *name, form f, int64_t outputs, picture x,
                        tm_tensor_id residual)
{
    int64_t             n[] = { outputs, x.channels, f.kernel, f.kernel };
    tm_convolution_attr attr = { .samples = p->size->batch,
                                 .height = x.height,
                                 .width = x.width,
                                 .kernel = f.kernel,
                                 .stride = f.stride,
                                 .pad_before = f.stride == 1 ? f.kernel / 2 : 0,
                                 .pad_after = f.kernel / 2,
                                 .upsample = f.upsample };
    tm_tensor_id        w = tm_frozen_reordered(p, tm_shape_2(outputs, f.kernel * f.kernel * x.channels),
                                                named(p, name, "weight"), 4, n, channels_last);
    tm_tensor_id        b = tm_frozen_parameter(p, tm_shape_1(outputs), "%s.bias", name);
    return (picture){ .rows = tm_frozen_emit(p, TM_OP_convolution, &attr, sizeof attr, x.rows, w, b, residual),
                      .height = tm_convolution_extent(&attr, x.height),
                      .width = tm_convolution_extent(&attr, x.width),
                      .channels = outputs };
}
static const form square = { 3, 1, 1 }, point = { 1, 1, 1 }, halving = { 3, 2, 1 }, doubling = { 3, 1, 2 };

static picture norm(tm_frozen_program *p, const char *name, bool silu, picture x)
{
    const vae_config  *c = p->config;
    tm_group_norm_attr attr = { .eps = norm_eps, .samples = p->size->batch, .groups = c->groups, .silu = silu };
    tm_tensor_id       w = tm_frozen_parameter(p, tm_shape_1(x.channels), "%s.weight", name);
    tm_tensor_id       b = tm_frozen_parameter(p, tm_shape_1(x.channels), "%s.bias", name);
    x.rows = tm_frozen_emit(p, TM_OP_group_norm, &attr, sizeof attr, x.rows, w, b, TM_NONE);
    return x;
}

static picture resnet(tm_frozen_program *p, const char *name, int64_t outputs, picture x)
{
    tm_frozen_module(p, -1, "%s", name);
    picture h = norm(p, named(p, name, "norm1"), true, x);
    h = convolve(p, named(p, name, "conv1"), square, outputs, h, TM_NONE);
    h = norm(p, named(p, name, "norm2"), true, h);
    if (x.channels != outputs) x = convolve(p, named(p, name, "conv_shortcut"), point, outputs, x, TM_NONE);
    return convolve(p, named(p, name, "conv2"), square, outputs, h, x.rows);
}

static picture attend(tm_frozen_program *p, const char *name, picture x)
{
    static const char *const parts[] = { "to_q", "to_k", "to_v" };
    int64_t                  channels = x.channels, positions = x.height * x.width;
    tm_attention_attr        attr = { .seq_q = positions,
                                      .seq_k = positions,
                                      .heads = 1,
                                      .kv_heads = 1,
                                      .dim_qk = channels,
                                      .dim_v = channels,
                                      .scale = 1 / sqrt((double)channels) };
    tm_frozen_module(p, -1, "%s", name);
    picture      h = norm(p, named(p, name, "group_norm"), false, x);
    tm_tensor_id part[3];
    tm_frozen_qkv(p, named(p, name, ""), parts, channels, channels, true, h.rows, part);
    tm_tensor_id o = tm_frozen_emit(p, TM_OP_attention, &attr, sizeof attr, part[0], part[1], part[2], TM_NONE);
    tm_tensor_id w = tm_frozen_parameter(p, tm_shape_2(channels, channels), "%s.to_out.0.weight", name);
    tm_tensor_id b = tm_frozen_parameter(p, tm_shape_1(channels), "%s.to_out.0.bias", name);
    x.rows = tm_frozen_emit(p, TM_OP_linear, NULL, 0, o, w, b, x.rows);
    return x;
}

static picture middle(tm_frozen_program *p, const char *name, picture x)
{
    const vae_config *c = p->config;
    x = resnet(p, named(p, name, "resnets.0"), x.channels, x);
    if (c->attends) x = attend(p, named(p, name, "attentions.0"), x);
    return resnet(p, named(p, name, "resnets.1"), x.channels, x);
}

/* `n` resnets, then what changes the resolution, if anything does. */
static picture block(tm_frozen_program *p, const char *name, int64_t n, int64_t outputs, const form *change, picture x)
{
    for (int64_t i = 0; i < n; i++)
        x = resnet(p, tm_arena_format(p->graph->arena, "%s.resnets.%d", name, (int)i), outputs, x);
    if (!change) return x;
    const char *conv = named(p, name, change->stride == 2 ? "downsamplers.0.conv" : "upsamplers.0.conv");
    tm_frozen_module(p, -1, "%s", conv);
    return convolve(p, conv, *change, outputs, x, TM_NONE);
}

/* A field of float32, in the format of the computation. */
static picture begin(tm_frozen_program *p, const char *name, int64_t height, int64_t width, int64_t channels)
{
    tm_shape     shape = tm_shape_2(p->size->batch * height * width, channels);
    tm_tensor_id field = tm_frozen_field(p, 0, name, shape, TM_F32);
    tm_frozen_module(p, -1, "%s", name);
    return (picture){ tm_frozen_emit(p, TM_OP_cast, NULL, 0, field, TM_NONE, TM_NONE, TM_NONE), height, width,
                      channels };
}

static picture end(tm_frozen_program *p, const char *name, int64_t outputs, picture x)
{
    tm_frozen_module(p, -1, "%s.conv_out", name);
    x = norm(p, named(p, name, "conv_norm_out"), true, x);
    return convolve(p, named(p, name, "conv_out"), square, outputs, x, TM_NONE);
}

static void encode_build(tm_frozen_program *p)
{
    const vae_config *c = p->config;
    picture           x = begin(p, "pixels", p->size->height, p->size->width, PIXEL_CHANNELS);
    tm_frozen_module(p, -1, "encoder.conv_in");
    x = convolve(p, "encoder.conv_in", square, c->blocks.item[0], x, TM_NONE);
    for (int64_t i = 0; i < c->blocks.n; i++)
        x = block(p, tm_arena_format(p->graph->arena, "encoder.down_blocks.%d", (int)i), c->layers, c->blocks.item[i],
                  i + 1 < c->blocks.n ? &halving : NULL, x);
    x = middle(p, "encoder.mid_block", x);
    x = end(p, "encoder", 2 * c->latents, x);
    tm_frozen_module(p, -1, "quant_conv");
    if (c->quantised) x = convolve(p, "quant_conv", point, 2 * c->latents, x, TM_NONE);
    p->out = x.rows;
}

static void decode_build(tm_frozen_program *p)
{
    const vae_config *c = p->config;
    int64_t           n = c->blocks.n, factor = (int64_t)1 << (n - 1);
    picture           x = begin(p, "latents", p->size->height / factor, p->size->width / factor, c->latents);
    tm_frozen_module(p, -1, "decoder.conv_in");
    if (c->unquantised) x = convolve(p, "post_quant_conv", point, c->latents, x, TM_NONE);
    x = convolve(p, "decoder.conv_in", square, c->blocks.item[n - 1], x, TM_NONE);
    x = middle(p, "decoder.mid_block", x);
    for (int64_t i = 0; i < n; i++)
        x = block(p, tm_arena_format(p->graph->arena, "decoder.up_blocks.%d", (int)i), c->layers + 1,
                  c->blocks.item[n - 1 - i], i + 1 < n ? &doubling : NULL, x);
    x = end(p, "decoder", PIXEL_CHANNELS, x);
    p->out = x.rows;
}

/* Names of the attention in files before diffusers 0.17. */
#define OLD(half, part, now, before)                                                                                   \
    {                                                                                                                  \
        half ".mid_block.attentions.0." now "." part, half ".mid_block.attentions.0." before "." part                  \
    }
#define OLD_PARTS(half, part)                                                                                          \
    OLD(half, part, "to_q", "query"), OLD(half, part, "to_k", "key"), OLD(half, part, "to_v", "value"),                \
        OLD(half, part, "to_out.0", "proj_attn")
static const char *const encoder_aliases[][2] = { OLD_PARTS("encoder", "weight"),
                                                  OLD_PARTS("encoder", "bias"),
                                                  { NULL, NULL } };
static const char *const decoder_aliases[][2] = { OLD_PARTS("decoder", "weight"),
                                                  OLD_PARTS("decoder", "bias"),
                                                  { NULL, NULL } };
/* A file has both halves. */
static const char *const not_encoder[] = { "decoder.*", "post_quant_conv.*", NULL };
static const char *const not_decoder[] = { "encoder.*", "quant_conv.*", NULL };

const tm_frozen_row tm_frozen_vae_encode = {
    .class_name = "AutoencoderKL",
    .keys = vae_keys,
    .config_bytes = sizeof(vae_config),
    .ignored = not_encoder,
    .aliases = encoder_aliases,
    .check = vae_check,
    .build = encode_build,
};

const tm_frozen_row tm_frozen_vae_decode = {
    .class_name = "AutoencoderKL",
    .keys = vae_keys,
    .config_bytes = sizeof(vae_config),
    .ignored = not_decoder,
    .aliases = decoder_aliases,
    .check = vae_check,
    .build = decode_build,
};
