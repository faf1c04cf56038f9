/* SPDX-License-Identifier: Apache-2.0 */
#include "image/image.h"

#include "base/arena.h"
#include "base/file.h"
#include "image/codec.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

void tm_image_fini(tm_image *image)
{
    free(image->pixels);
    *image = (tm_image){ 0 };
}

tm_status tm_image_take(const tm_image_file *file, uint64_t width, uint64_t height, tm_image *out, tm_error *err)
{
    if (width == 0 || height == 0)
        return tm_fail(err, TM_FORMAT, "'%s' has %llu x %llu pixels", file->name, (unsigned long long)width,
                       (unsigned long long)height);
    if (width > TM_IMAGE_MAX_PIXELS || height > TM_IMAGE_MAX_PIXELS / width)
        return tm_fail(err, TM_UNSUPPORTED,
                       "'%s' has %llu x %llu pixels; at most 100 million are read, make it smaller before", file->name,
                       (unsigned long long)width, (unsigned long long)height);
    out->width = (int)width;
    out->height = (int)height;
    out->pixels = tm_alloc((size_t)(3 * width * height));
    return TM_OK;
}

tm_status tm_image_library(const tm_image_file *file, const char *format, const char *library, const char *package,
                           const tm_image_symbol *symbols, size_t n, tm_error *err)
{
    void       *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    const char *lacks = handle ? NULL : library;
    for (size_t i = 0; i < n && !lacks; i++) {
        void *address = dlsym(handle, symbols[i].name);
        memcpy(symbols[i].at, &address, sizeof address);
        if (!address) lacks = symbols[i].name;
    }
    if (!lacks) return TM_OK;
    if (handle)
        return tm_fail(err, TM_UNSUPPORTED, "'%s' is %s, and %s, which decodes it, has no %s; install a newer %s",
                       file->name, format, library, lacks, package);
    return tm_fail(err, TM_UNSUPPORTED, "'%s' is %s, and %s, which decodes it, is not here; install %s", file->name,
                   format, library, package);
}

/* --- EXIF ------------------------------------------------------------------------------------------------------------
 */

static uint32_t number(const uint8_t *at, int bytes, bool big)
{
    uint32_t value = 0;
    for (int i = 0; i < bytes; i++) value |= (uint32_t)at[i] << 8 * (big ? bytes - 1 - i : i);
    return value;
}

/* The first directory of TIFF: a count, and 12 bytes for each tag: number, type, how many, value. */
int tm_image_exif(const uint8_t *bytes, size_t size)
{
    enum { ORIENTATION = 0x0112, SHORT = 3, TAG_BYTES = 12 };
    if (size >= 6 && memcmp(bytes, "Exif\0\0", 6) == 0) {
        bytes += 6;
        size -= 6;
    }
    if (size < 8 || (memcmp(bytes, "II*\0", 4) != 0 && memcmp(bytes, "MM\0*", 4) != 0)) return 1;
    bool   big = *bytes == 'M';
    size_t at = number(bytes + 4, 4, big);
    if (at > size - 2) return 1;
    size_t count = number(bytes + at, 2, big), room = (size - at - 2) / TAG_BYTES;
    for (size_t i = 0; i < count && i < room; i++) {
        const uint8_t *tag = bytes + at + 2 + i * TAG_BYTES;
        if (number(tag, 2, big) != ORIENTATION) continue;
        uint32_t value = number(tag + 8, 2, big);
        return number(tag + 2, 2, big) == SHORT && value >= 1 && value <= 8 ? (int)value : 1;
    }
    return 1;
}

/* Pixel (y, x) of the turned picture is pixel (from_y, from_x) of the stored one. */
static void turn(tm_image *image, int orientation)
{
    const int stored_w = image->width, stored_h = image->height;
    bool      across = orientation >= 5;
    const int width = across ? stored_h : stored_w, height = across ? stored_w : stored_h;
    bool      flip_y = orientation == 3 || orientation == 4 || orientation == 6 || orientation == 7;
    bool      flip_x = orientation == 2 || orientation == 3 || orientation == 7 || orientation == 8;
    uint8_t  *pixels = tm_alloc((size_t)width * (size_t)height * 3), *to = pixels;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++, to += 3) {
            int from_y = across ? x : y, from_x = across ? y : x;
            if (flip_y) from_y = stored_h - 1 - from_y;
            if (flip_x) from_x = stored_w - 1 - from_x;
            memcpy(to, image->pixels + 3 * ((size_t)from_y * (size_t)stored_w + (size_t)from_x), 3);
        }
    free(image->pixels);
    *image = (tm_image){ width, height, pixels };
}

/* --- formats ---------------------------------------------------------------------------------------------------------
 */

typedef struct {
    const char *name;
    size_t      at; /* where its mark is */
    const char *mark;
    size_t      n;
    tm_status (*read)(const tm_image_file *file, tm_image *out, int *orientation, tm_error *err); /* NULL: refused */
} format;

static const format formats[] = {
    { "PNG", 0, "\x89PNG\r\n\x1a\n", 8, tm_image_read_png },
    { "JPEG", 0, "\xff\xd8\xff", 3, tm_image_read_jpeg },
    { "WebP", 8, "WEBP", 4, tm_image_read_webp },
    { "GIF", 0, "GIF8", 4, NULL },
    { "BMP", 0, "BM", 2, NULL },
    { "TIFF", 0, "II*\0", 4, NULL },
    { "TIFF", 0, "MM\0*", 4, NULL },
    { "AVIF", 4, "ftypavif", 8, NULL },
    { "HEIC", 4, "ftyphei", 7, NULL },
    { "JPEG XL", 0, "\xff\x0a", 2, NULL },
    { "JPEG XL", 0, "\0\0\0\x0cJXL ", 8, NULL },
    { "JPEG 2000", 0, "\0\0\0\x0cjP  ", 8, NULL },
};

static const format *format_of(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++) {
        const format *f = &formats[i];
        if (size >= f->at + f->n && memcmp(bytes + f->at, f->mark, f->n) == 0) return f;
    }
    return NULL;
}

static tm_status refuse(const tm_image_file *file, const format *f, tm_error *err)
{
    if (f)
        return tm_fail(err, TM_UNSUPPORTED, "'%s' is %s; PNG, JPEG and WebP are read, convert it to one of them",
                       file->name, f->name);
    if (file->size == 0) return tm_fail(err, TM_FORMAT, "'%s' is empty, wanted a PNG, JPEG or WebP", file->name);
    TM_TRY(tm_file_check_fetched(file->name, file->bytes, file->size, err));
    tm_text first = { 0 };
    for (size_t i = 0; i < 8 && i < file->size; i++) tm_text_printf(&first, " %02x", file->bytes[i]);
    tm_status st = tm_fail(err, TM_FORMAT, "'%s' begins with%s, which is not how a PNG, JPEG or WebP begins",
                           file->name, first.data);
    tm_text_fini(&first);
    return st;
}

tm_status tm_image_decode(const char *name, const void *bytes, size_t size, tm_image *out, tm_error *err)
{
    const tm_image_file file = { name, bytes, size };
    const format       *f = size > 0 ? format_of(bytes, size) : NULL;
    int                 orientation = 1;
    *out = (tm_image){ 0 };
    if (!f || !f->read) return refuse(&file, f, err);
    tm_status st = f->read(&file, out, &orientation, err);
    if (st != TM_OK) tm_image_fini(out);
    if (st == TM_OK && orientation > 1) turn(out, orientation);
    return st;
}
