/* SPDX-License-Identifier: Apache-2.0 */
/* image/resize.c - resizing by a separable filter in fixed point.
 *
 * Column x of the result lies around c = (x + 1/2) s of the source, s = source / result. Its weights are
 * f((i + 1/2 - c) / max(s, 1)) for the source's columns i within the support, divided by their sum. Which direction
 * comes first matters by rounding; as Pillow 13 does it: rows, where the height loses more than twice what the width
 * does.
 */
#include "image/resize.h"

#include "base/arena.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CHANNELS = 3, BITS = 22, HALF = 1 << (BITS - 1) };

static double sinc(double x)
{
    const double pi = 3.14159265358979323846;
    return x == 0 ? 1 : sin(x * pi) / (x * pi);
}

static double lanczos(double x)
{
    return x >= -3 && x < 3 ? sinc(x) * sinc(x / 3) : 0;
}

static double bilinear(double x)
{
    return fabs(x) < 1 ? 1 - fabs(x) : 0;
}

static const struct {
    double (*weight)(double x);
    double support;
} filters[] = { [TM_IMAGE_LANCZOS] = { lanczos, 3 }, [TM_IMAGE_BILINEAR] = { bilinear, 1 } };

/* Of one result: `n` weights for the source from `from` on. */
typedef struct {
    int      from, n;
    int32_t *weights;
} taps;

/* Those of results first .. first + n - 1 of `scaled`, in one allocation. */
static taps *weigh(tm_image_filter filter, int source, int scaled, int first, int n)
{
    double   scale = (double)source / scaled, wide = scale < 1 ? 1 : scale, support = filters[filter].support * wide;
    int      room = (int)ceil(support) * 2 + 1;
    size_t   head = ((size_t)n * sizeof(taps) + 15) / 16 * 16, row = (size_t)room * sizeof(int32_t);
    taps    *all = tm_alloc(head + (size_t)n * row);
    int32_t *weights = (int32_t *)(void *)((char *)all + head);
    double  *exact = tm_alloc((size_t)room * sizeof *exact);
    for (int i = 0; i < n; i++, weights += room) {
        double centre = (first + i + 0.5) * scale, low = centre - support + 0.5, high = centre + support + 0.5, sum = 0;
        int    from = low > 0 ? (int)low : 0, to = high < source ? (int)high : source;
        for (int k = 0; k < to - from; k++) sum += exact[k] = filters[filter].weight((from + k - centre + 0.5) / wide);
        for (int k = 0; k < to - from; k++) {
            double w = (sum != 0 ? exact[k] / sum : exact[k]) * (1 << BITS);
            weights[k] = (int32_t)(w < 0 ? w - 0.5 : w + 0.5);
        }
        all[i] = (taps){ from, to - from, weights };
    }
    free(exact);
    return all;
}

static uint8_t rounded(int32_t sum)
{
    return (uint8_t)(sum < 0 ? 0 : sum >> BITS > 255 ? 255 : sum >> BITS);
}

/* `height` rows of `stored` pixels, made n wide. */
static void resize_across(const uint8_t *in, int stored, int height, const taps *columns, int n, uint8_t *out)
{
    for (int y = 0; y < height; y++, in += (size_t)stored * CHANNELS)
        for (int x = 0; x < n; x++, out += CHANNELS) {
            int32_t        sums[CHANNELS] = { HALF, HALF, HALF };
            const uint8_t *from = in + (size_t)columns[x].from * CHANNELS;
            for (int k = 0; k < columns[x].n; k++)
                for (int c = 0; c < CHANNELS; c++) sums[c] += from[k * CHANNELS + c] * columns[x].weights[k];
            for (int c = 0; c < CHANNELS; c++) out[c] = rounded(sums[c]);
        }
}

/* n rows of `width` pixels from rows of the same width, of which the first is row `first` of the source. */
static void resize_down(const uint8_t *in, int first, int width, const taps *rows, int n, uint8_t *out)
{
    size_t   bytes = (size_t)width * CHANNELS;
    int32_t *sums = tm_alloc(bytes * sizeof *sums);
    for (int y = 0; y < n; y++, out += bytes) {
        for (size_t x = 0; x < bytes; x++) sums[x] = HALF;
        for (int k = 0; k < rows[y].n; k++) {
            const uint8_t *from = in + (size_t)(rows[y].from + k - first) * bytes;
            for (size_t x = 0; x < bytes; x++) sums[x] += from[x] * rows[y].weights[k];
        }
        for (size_t x = 0; x < bytes; x++) out[x] = rounded(sums[x]);
    }
    free(sums);
}

/* The part of `size` at (left, top) of the picture resized to `scaled`; nothing else of it is computed. */
static void resize_part(const tm_image *in, tm_image_filter filter, tm_image_size scaled, int left, int top,
                        tm_image_size size, tm_image *out)
{
    TM_ASSERT(left >= 0 && top >= 0 && left + size.width <= scaled.width && top + size.height <= scaled.height);
    taps *columns = weigh(filter, in->width, scaled.width, left, size.width);
    taps *rows = weigh(filter, in->height, scaled.height, top, size.height);
    *out = (tm_image){ size.width, size.height, tm_alloc((size_t)size.width * (size_t)size.height * CHANNELS) };
    if (scaled.height < in->height && 2 * ((int64_t)in->width - scaled.width) < in->height - scaled.height) {
        uint8_t *low = tm_alloc((size_t)in->width * (size_t)size.height * CHANNELS);
        resize_down(in->pixels, 0, in->width, rows, size.height, low);
        resize_across(low, in->width, size.height, columns, size.width, out->pixels);
        free(low);
    } else {
        int      first = rows[0].from, last = rows[size.height - 1].from + rows[size.height - 1].n;
        size_t   skipped = (size_t)first * (size_t)in->width * CHANNELS;
        uint8_t *narrow = tm_alloc((size_t)(last - first) * (size_t)size.width * CHANNELS);
        resize_across(in->pixels + skipped, in->width, last - first, columns, size.width, narrow);
        resize_down(narrow, first, size.width, rows, size.height, out->pixels);
        free(narrow);
    }
    free(rows);
    free(columns);
}

tm_status tm_image_resize(const tm_image *in, tm_image_size size, tm_image_filter filter, tm_image *out, tm_error *err)
{
    TM_ASSERT(size.width > 0 && size.height > 0);
    if (size.width > TM_IMAGE_MAX_PIXELS / size.height)
        return tm_fail(err, TM_UNSUPPORTED, "a picture of %d x %d pixels is to be made; at most 100 million are",
                       size.width, size.height);
    resize_part(in, filter, size, 0, 0, size, out);
    return TM_OK;
}

void tm_image_apply(const tm_image *in, const tm_image_fit *fit, const tm_image_placing *placing, tm_image *out)
{
    resize_part(in, fit->filter, placing->scaled, placing->left, placing->top, fit->size, out);
    for (int y = 0; y < out->height && placing->flipped; y++) {
        uint8_t *row = out->pixels + (size_t)y * (size_t)out->width * CHANNELS;
        for (int a = 0, b = out->width - 1; a < b; a++, b--)
            for (int c = 0; c < CHANNELS; c++) {
                uint8_t kept = row[a * CHANNELS + c];
                row[a * CHANNELS + c] = row[b * CHANNELS + c];
                row[b * CHANNELS + c] = kept;
            }
    }
}
