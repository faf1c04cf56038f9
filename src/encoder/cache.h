/* SPDX-License-Identifier: Apache-2.0 */
/* encoder/cache.h - pictures and captions encoded once, into files that `data.source latents` reads (docs/flux.md).
 *
 * OUT/train/part-00000.safetensors, ... and OUT/validation/ hold `per_file` pictures each: mean, logvar, text, pooled.
 * Their metadata say how they were encoded (`encoded`: rules and a hash of the model's files) and what (`items`), so
 * that work that was interrupted goes on, and a file of other rules or pictures is refused.
 * OUT/train/empty.safetensors: the empty text. */
#ifndef TM_ENCODER_CACHE_H
#define TM_ENCODER_CACHE_H

#include "data/pictures.h"
#include "device/device.h"
#include "image/resize.h"

typedef struct {
    const char        *pictures, *model, *out;
    tm_picture_options list;                              /* but for its split */
    int64_t            width, height, text_len, per_file; /* width, height: multiples of 16 */
    tm_image_filter    filter;
    tm_dtype           compute; /* TM_F32, TM_BF16; texts are stored in it, the rest in float32 */
    bool               skip_broken;
    int64_t            part, parts; /* this call makes the files whose number is part, modulo parts */
    bool (*stop)(void);             /* asked between pictures; NULL: never */
    void (*broken)(const char *name, const tm_error *why); /* told of each picture that is left out */
} tm_cache_options;

typedef struct {
    int64_t pictures, files, found, broken, cut; /* encoded; files written, and that were there; left out; captions that
                                                  * were longer than text_len tokens */
    int64_t held_out;                            /* pictures of the part for validation, encoded now or before */
    int64_t bytes;                               /* of the device's memory, planned and used */
    double  read_seconds, picture_seconds, text_seconds; /* reading and resizing; the autoencoder; the text encoders */
} tm_cache_report;

/* TM_INVALID: files in OUT of other rules or pictures; TM_INTERRUPTED: `stop` said so, complete files stay;
 * what reading pictures and encoders can fail with. */
TM_MUST_USE tm_status tm_cache_make(tm_device *device, const tm_cache_options *options, tm_cache_report *report,
                                    tm_error *err);

#endif
