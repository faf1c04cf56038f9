/* SPDX-License-Identifier: Apache-2.0 */
/* image/png_write.c - PNG of 8-bit RGB, by zlib alone. */
#include "image/image.h"

#include "base/arena.h"
#include "base/file.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { CHANNELS = 3, FILTERS = 5 };

static int paeth(int left, int above, int corner)
{
    int guess = left + above - corner;
    int to_left = abs(guess - left), to_above = abs(guess - above), to_corner = abs(guess - corner);
    if (to_left <= to_above && to_left <= to_corner) return left;
    return to_above <= to_corner ? above : corner;
}

/* A row less what filter `f` of the specification predicts (none, left, above, their mean, Paeth's choice); `above` is
 * NULL for the first row. Returns the sum of the sizes, which small ones compress well. */
static unsigned long long filter(int f, const uint8_t *row, const uint8_t *above, size_t n, uint8_t *out)
{
    unsigned long long sum = 0;
    for (size_t i = 0; i < n; i++) {
        int a = i >= CHANNELS ? row[i - CHANNELS] : 0, b = above ? above[i] : 0;
        int c = above && i >= CHANNELS ? above[i - CHANNELS] : 0;
        int guess = f == 0 ? 0 : f == 1 ? a : f == 2 ? b : f == 3 ? (a + b) / 2 : paeth(a, b, c);
        out[i] = (uint8_t)(row[i] - guess);
        sum += out[i] < 128 ? out[i] : 256u - out[i];
    }
    return sum;
}

/* All rows, each behind the number of its filter. */
static uint8_t *filtered(const tm_image *image, size_t row, size_t *bytes)
{
    uint8_t *all = tm_alloc((row + 1) * (size_t)image->height), *tried = tm_alloc(row);
    *bytes = (row + 1) * (size_t)image->height;
    for (int y = 0; y < image->height; y++) {
        const uint8_t     *from = image->pixels + (size_t)y * row;
        uint8_t           *to = all + (size_t)y * (row + 1);
        unsigned long long best = ULLONG_MAX;
        for (int f = 0; f < FILTERS; f++) {
            unsigned long long sum = filter(f, from, y > 0 ? from - row : NULL, row, tried);
            if (sum >= best) continue;
            best = sum;
            *to = (uint8_t)f;
            memcpy(to + 1, tried, row);
        }
    }
    free(tried);
    return all;
}

static void put_number(uint8_t *to, size_t value)
{
    for (int i = 0; i < 4; i++) to[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Length, name, bytes, and the checksum of name and bytes. */
static void put_chunk(tm_text *out, const char *name, const uint8_t *bytes, size_t n)
{
    uint8_t length[4], check[4];
    uLong   sum = crc32_z(crc32_z(0, NULL, 0), (const uint8_t *)name, 4);
    put_number(length, n);
    if (n > 0) sum = crc32_z(sum, bytes, n);
    put_number(check, sum);
    tm_text_add_n(out, (const char *)length, 4);
    tm_text_add_n(out, name, 4);
    tm_text_add_n(out, (const char *)bytes, n);
    tm_text_add_n(out, (const char *)check, 4);
}

tm_status tm_image_png(const tm_image *image, tm_text *out, tm_error *err)
{
    TM_ASSERT(image->width > 0 && image->height > 0 && image->pixels);
    if (image->width > TM_IMAGE_MAX_PIXELS / image->height)
        return tm_fail(err, TM_UNSUPPORTED, "a picture of %d x %d pixels; at most 100 million are written",
                       image->width, image->height);
    size_t   bytes, row = (size_t)image->width * CHANNELS;
    uint8_t *rows = filtered(image, row, &bytes), header[13] = { [8] = 8, [9] = 2 }; /* 8 bits, RGB */
    uLongf   packed = compressBound(bytes);
    uint8_t *data = tm_alloc(packed);
    int      failed = compress2(data, &packed, rows, bytes, Z_DEFAULT_COMPRESSION);
    if (!failed) {
        put_number(header, (size_t)image->width);
        put_number(header + 4, (size_t)image->height);
        tm_text_add_n(out, "\x89PNG\r\n\x1a\n", 8);
        put_chunk(out, "IHDR", header, sizeof header);
        put_chunk(out, "IDAT", data, packed);
        put_chunk(out, "IEND", NULL, 0);
    }
    free(data);
    free(rows);
    return failed ? tm_fail(err, TM_INTERNAL, "zlib cannot compress a picture (%d)", failed) : TM_OK;
}

tm_status tm_image_write_png(const tm_image *image, const char *path, tm_error *err)
{
    tm_text   png = { 0 };
    tm_status st = tm_image_png(image, &png, err);
    if (st == TM_OK) st = tm_file_write(path, png.data, png.length, err);
    tm_text_fini(&png);
    return st;
}
