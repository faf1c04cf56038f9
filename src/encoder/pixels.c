/* SPDX-License-Identifier: Apache-2.0 */
#include "encoder/pixels.h"

#include "data/packing.h"

#include <stdlib.h>

struct tm_pixels {
    tm_frozen *decoder;
    int64_t    rows, columns, channels; /* channels: of the autoencoder */
    double     scale, shift;
    float     *latents; /* (channels, 2 rows, 2 columns) */
};

static tm_status open_decoder(tm_pixels *p, tm_device *device, const char *vae, int64_t channels, tm_dtype compute,
                              tm_error *err)
{
    tm_frozen_size size = { .batch = 1, .height = 16 * p->rows, .width = 16 * p->columns };
    TM_TRY(tm_frozen_open(device, vae, TM_FROZEN_VAE_DECODE, &size, compute, &p->decoder, err));
    const tm_frozen_facts *facts = tm_frozen_facts_of(p->decoder);
    if (4 * facts->channels != channels || facts->factor != 8)
        return tm_fail(err, TM_INVALID,
                       "'%.300s' has %lld channels and %lld pixels to a latent, the model wants %lld and 8; take the "
                       "autoencoder that the model was trained with",
                       vae, (long long)facts->channels, (long long)facts->factor, (long long)channels / 4);
    p->channels = facts->channels;
    p->scale = facts->scaling_factor;
    p->shift = facts->shift_factor;
    p->latents = tm_alloc((size_t)(p->rows * p->columns * channels) * sizeof *p->latents);
    return TM_OK;
}

tm_status tm_pixels_open(tm_device *device, const char *folder, int64_t rows, int64_t columns, int64_t channels,
                         tm_dtype compute, tm_pixels **out, tm_error *err)
{
    tm_pixels *p = tm_alloc(sizeof *p);
    tm_text    vae = { 0 };
    *p = (tm_pixels){ .rows = rows, .columns = columns };
    tm_text_printf(&vae, "%s/vae", folder);
    tm_status st = open_decoder(p, device, vae.data, channels, compute, err);
    tm_text_fini(&vae);
    if (st == TM_OK)
        *out = p;
    else
        tm_pixels_close(p);
    return st;
}

void tm_pixels_close(tm_pixels *p)
{
    if (!p) return;
    tm_frozen_close(p->decoder);
    free(p->latents);
    free(p);
}

size_t tm_pixels_bytes(const tm_pixels *p)
{
    return tm_frozen_bytes(p->decoder);
}

tm_status tm_pixels_decode(void *pixels, const float *latents, float *out, tm_error *err)
{
    tm_pixels    *p = pixels;
    const int64_t rows = 2 * p->rows, columns = 2 * p->columns;
    for (int64_t c = 0; c < p->channels; c++)
        for (int64_t y = 0; y < rows; y++)
            for (int64_t x = 0; x < columns; x++)
                p->latents[(c * rows + y) * columns + x] =
                    (float)((double)latents[tm_packed_place(c, y, x, p->columns, p->channels)] / p->scale + p->shift);
    return tm_frozen_decode(p->decoder, p->latents, out, err);
}
