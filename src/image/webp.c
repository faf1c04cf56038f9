/* SPDX-License-Identifier: Apache-2.0 */
/* image/webp.c - WebP, decoded by libwebp. Its functions are declared here: its headers are not needed. */
#include "image/codec.h"

#include <stdbool.h>
#include <string.h>

typedef struct {
    int (*info)(const uint8_t *bytes, size_t size, int *width, int *height);
    uint8_t *(*decode)(const uint8_t *bytes, size_t size, uint8_t *out, size_t room, int stride);
} libwebp;

static tm_status load(const tm_image_file *file, libwebp *w, tm_error *err)
{
    const tm_image_symbol symbols[] = { { "WebPGetInfo", &w->info }, { "WebPDecodeRGBInto", &w->decode } };
    return tm_image_library(file, "a WebP", "libwebp.so.7", "libwebp7", symbols, sizeof symbols / sizeof symbols[0],
                            err);
}

static size_t number(const uint8_t *at)
{
    return (size_t)at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
}

/* RIFF: chunks of a name, a length and as many bytes, padded to an even number. */
static tm_status look(const tm_image_file *file, int *orientation, tm_error *err)
{
    enum { HEAD = 12, FRAME = 8, ANIMATED = 2 };
    const uint8_t *b = file->bytes;
    size_t         says = number(b + 4) + FRAME;
    if (memcmp(b, "RIFF", 4) != 0)
        return tm_fail(err, TM_FORMAT, "'%s' is a damaged WebP: it does not begin with RIFF", file->name);
    if (says > file->size)
        return tm_fail(err, TM_FORMAT, "'%s' is cut short: a WebP of %zu bytes, of which %zu are there", file->name,
                       says, file->size);
    for (size_t at = HEAD; at + FRAME < file->size;) {
        const uint8_t *body = b + at + FRAME;
        size_t         n = number(b + at + 4), left = file->size - at - FRAME;
        if (n > left) break; /* libwebp says what is wrong */
        if (memcmp(b + at, "VP8X", 4) == 0 && (*body & ANIMATED))
            return tm_fail(err, TM_UNSUPPORTED, "'%s' is an animated WebP; only still pictures are read", file->name);
        if (memcmp(b + at, "EXIF", 4) == 0) *orientation = tm_image_exif(body, n);
        at += FRAME + n + n % 2;
    }
    return TM_OK;
}

tm_status tm_image_read_webp(const tm_image_file *file, tm_image *out, int *orientation, tm_error *err)
{
    libwebp w;
    int     width = 0, height = 0;
    TM_TRY(look(file, orientation, err));
    TM_TRY(load(file, &w, err));
    if (!w.info(file->bytes, file->size, &width, &height) || width < 1 || height < 1)
        return tm_fail(err, TM_FORMAT, "'%s' is a damaged WebP of %zu bytes: its header cannot be read", file->name,
                       file->size);
    TM_TRY(tm_image_take(file, (uint64_t)width, (uint64_t)height, out, err));
    size_t row = 3 * (size_t)width;
    if (w.decode(file->bytes, file->size, out->pixels, row * (size_t)height, (int)row)) return TM_OK;
    return tm_fail(err, TM_FORMAT, "'%s' is a damaged WebP of %zu bytes: its %d x %d pixels cannot be decoded",
                   file->name, file->size, width, height);
}
