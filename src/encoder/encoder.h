/* SPDX-License-Identifier: Apache-2.0 */
/* encoder/encoder.h - the frozen encoders in front of FLUX.1, read from Hugging Face folders: forward only.
 *
 *   CLIP         CLIPTextModel of transformers (Radford et al. 2021): the pooled output, without projection
 *   T5           T5EncoderModel of transformers (Raffel et al. 2020): the last hidden state
 *   VAE_ENCODE   AutoencoderKL of diffusers (Rombach et al. 2022): pixels to mean and logarithm of the variance
 *   VAE_DECODE   likewise: latents to pixels
 *
 * An encoder is a graph with one program, planned as a training step is: its memory is allocated once, when it is
 * opened, and running it allocates nothing. */
#ifndef TM_ENCODER_ENCODER_H
#define TM_ENCODER_ENCODER_H

#include "device/device.h"

typedef enum {
    TM_FROZEN_VAE_ENCODE,
    TM_FROZEN_VAE_DECODE,
    TM_FROZEN_CLIP,
    TM_FROZEN_T5,
    TM_FROZEN_KINDS
} tm_frozen_kind;

/* What one run takes. The kinds of text have `tokens`, those of images `height` and `width`, in pixels. */
typedef struct {
    int64_t batch, height, width, tokens;
} tm_frozen_size;

/* What config.json says of it. 0: the kind has no such thing. */
typedef struct {
    int64_t channels, factor; /* of latents; pixels along an edge of a latent */
    double  scaling_factor, shift_factor;
    int64_t width;      /* of a text's vectors */
    int64_t max_tokens; /* 0: no limit */
    int64_t vocabulary; /* ids are below it */
} tm_frozen_facts;

typedef struct tm_frozen tm_frozen;

/* Reads `folder` (config.json; model.safetensors or diffusion_pytorch_model.safetensors, or an index with its shards),
 * plans the program for a device and loads the weights, rounded to `compute` (TM_F32 or TM_BF16; a device that knows
 * float64 alone takes that). *out is NULL after a failure. TM_INVALID: a file is missing, or a size is not possible;
 * TM_FORMAT: a file is damaged, or weights do not fit the configuration; TM_UNSUPPORTED: a key of config.json that is
 * not supported, by name, a kind that is not, or an op without a kernel on the device. */
TM_MUST_USE tm_status tm_frozen_open(tm_device *device, const char *folder, tm_frozen_kind kind,
                                     const tm_frozen_size *size, tm_dtype compute, tm_frozen **out, tm_error *err);
void                  tm_frozen_close(tm_frozen *encoder); /* NULL is fine */

const char            *tm_frozen_kind_name(tm_frozen_kind kind); /* "CLIP text encoder" */
const tm_graph        *tm_frozen_graph(const tm_frozen *encoder);
size_t                 tm_frozen_bytes(const tm_frozen *encoder); /* of the device's memory: planned and used */
const tm_frozen_facts *tm_frozen_facts_of(const tm_frozen *encoder);

/* ids (batch, tokens), padded as the tokenizer does it -> out: of CLIP pooled (batch, width), of T5 the last hidden
 * state (batch, tokens, width). Ends no sequence and masks nothing: padding is seen as FLUX's encoders see it.
 * TM_INVALID: an id is not in the vocabulary, or the encoder takes no text. */
TM_MUST_USE tm_status tm_frozen_text(tm_frozen *encoder, const int32_t *ids, float *out, tm_error *err);
/* pixels (batch, height, width, 3) in [-1, 1] -> mean, logvar (batch, channels, height / factor, width / factor) of the
 * latents, neither scaled nor shifted; logvar in [-30, 20]. TM_INVALID: the encoder takes no pixels. */
TM_MUST_USE tm_status tm_frozen_encode(tm_frozen *encoder, const float *pixels, float *mean, float *logvar,
                                       tm_error *err);
/* latents (batch, channels, height / factor, width / factor), neither scaled nor shifted -> pixels (batch, height,
 * width, 3). */
TM_MUST_USE tm_status tm_frozen_decode(tm_frozen *encoder, const float *latents, float *pixels, tm_error *err);

#endif
