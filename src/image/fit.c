/* SPDX-License-Identifier: Apache-2.0 */
/* image/fit.c - which part of a picture is kept, buckets of sizes, and pixels as numbers. */
#include "base/arena.h"
#include "base/random.h"
#include "image/resize.h"

#include <math.h>

/* The place of what is kept: half of what is left over, or anywhere. */
static int offset(const tm_image_fit *fit, const char *stream, uint64_t index, int over)
{
    if (!fit->random_crop) return (int)nearbyint(over / 2.0);
    return (int)tm_random_below(fit->seed, tm_random_stream(stream), index, (uint64_t)over + 1);
}

tm_status tm_image_place(const char *name, const tm_image_fit *fit, tm_image_size picture, uint64_t index,
                         tm_image_placing *out, tm_error *err)
{
    const tm_image_size to = fit->size;
    TM_ASSERT(picture.width > 0 && picture.height > 0 && to.width > 0 && to.height > 0);
    int64_t width = to.width, height = to.height;
    if ((int64_t)picture.width * to.height >= (int64_t)picture.height * to.width)
        width = height * picture.width / picture.height;
    else
        height = width * picture.height / picture.width;
    if (width > 1 << 30 || height > 1 << 30)
        return tm_fail(err, TM_UNSUPPORTED,
                       "'%s' has %d x %d pixels, and would have %lld x %lld to fill %d x %d; crop it before", name,
                       picture.width, picture.height, (long long)width, (long long)height, to.width, to.height);
    *out = (tm_image_placing){ .scaled = { (int)width, (int)height } };
    out->left = offset(fit, "image.left", index, out->scaled.width - to.width);
    out->top = offset(fit, "image.top", index, out->scaled.height - to.height);
    out->flipped = fit->flip && tm_random_below(fit->seed, tm_random_stream("image.flip"), index, 2) == 1;
    return TM_OK;
}

void tm_image_to_values(const tm_image *image, float *out)
{
    size_t n = 3 * (size_t)image->width * (size_t)image->height;
    for (size_t i = 0; i < n; i++) out[i] = ((float)image->pixels[i] / 255.0f - 0.5f) / 0.5f;
}

void tm_image_of_values(const float *values, tm_image_size size, tm_image *out)
{
    size_t n = 3 * (size_t)size.width * (size_t)size.height;
    *out = (tm_image){ size.width, size.height, tm_alloc(n) };
    for (size_t i = 0; i < n; i++) {
        float x = values[i] / 2 + 0.5f;
        out->pixels[i] = (uint8_t)(x >= 1 ? 255 : x > 0 ? nearbyintf(255 * x) : 0);
    }
}

size_t tm_image_buckets(int size, int step, double max_ratio, tm_image_size *out)
{
    TM_ASSERT(step > 0 && size >= step && max_ratio >= 1);
    size_t n = 0;
    int    middle = (size + step / 2) / step;
    /* Narrow ones, then those across: the same the other way round. */
    for (int w = 1; w <= middle; w++) {
        int h = w == middle ? middle : (int)floor((double)size * size / ((double)w * step) / step + 0.5);
        if (h > max_ratio * w || h < w) continue;
        out[n++] = (tm_image_size){ w * step, h * step };
    }
    for (size_t i = n - 1; i-- > 0;)
        if (out[i].width != out[i].height) out[n++] = (tm_image_size){ out[i].height, out[i].width };
    return n;
}

size_t tm_image_bucket(const tm_image_size *buckets, size_t n, tm_image_size picture)
{
    size_t best = 0;
    double least = (double)INFINITY;
    for (size_t i = 0; i < n; i++) {
        double a = (double)picture.width * buckets[i].height, b = (double)picture.height * buckets[i].width;
        double off = a > b ? a / b : b / a;
        if (off >= least) continue;
        least = off;
        best = i;
    }
    return best;
}
