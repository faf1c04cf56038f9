/* SPDX-License-Identifier: Apache-2.0 */
/* encoder/pixels.h - the latents of a FLUX.1 transformer become pixels, by the decoder in a folder of diffusers (vae).
 */
#ifndef TM_ENCODER_PIXELS_H
#define TM_ENCODER_PIXELS_H

#include "encoder/encoder.h"

typedef struct tm_pixels tm_pixels;

/* For latents (rows x columns, channels) as the model has them. TM_INVALID: its autoencoder has other channels; else as
 * tm_frozen_open. The device must outlive *out. */
TM_MUST_USE tm_status tm_pixels_open(tm_device *device, const char *folder, int64_t rows, int64_t columns,
                                     int64_t channels, tm_dtype compute, tm_pixels **out, tm_error *err);
void                  tm_pixels_close(tm_pixels *pixels); /* NULL is fine */
size_t                tm_pixels_bytes(const tm_pixels *pixels);

/* out (16 rows, 16 columns, 3), red, green, blue in [-1, 1], beyond it as the decoder has them. `pixels`: a tm_pixels.
 */
TM_MUST_USE tm_status tm_pixels_decode(void *pixels, const float *latents, float *out, tm_error *err);

#endif
