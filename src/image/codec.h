/* SPDX-License-Identifier: Apache-2.0 */
/* image/codec.h - what the decoders of the formats share; private to this room. */
#ifndef TM_IMAGE_CODEC_H
#define TM_IMAGE_CODEC_H

#include "base/status.h"
#include "image/image.h"

#include <stddef.h>
#include <stdint.h>

typedef struct {
    const char    *name; /* for messages */
    const uint8_t *bytes;
    size_t         size;
} tm_image_file;

/* Each decodes a file that begins as its format does, not yet turned; *orientation is EXIF's, 1 to 8. After a failure
 * the caller frees *out. */
TM_MUST_USE tm_status tm_image_read_png(const tm_image_file *file, tm_image *out, int *orientation, tm_error *err);
TM_MUST_USE tm_status tm_image_read_jpeg(const tm_image_file *file, tm_image *out, int *orientation, tm_error *err);
TM_MUST_USE tm_status tm_image_read_webp(const tm_image_file *file, tm_image *out, int *orientation, tm_error *err);

/* The orientation in a block of EXIF, which begins with the header of TIFF, or with "Exif" and two zeros before it.
 * 1 where it says none, or is damaged. */
int tm_image_exif(const uint8_t *bytes, size_t size);

/* Takes the memory for the pixels. TM_UNSUPPORTED: too many; TM_FORMAT: none. */
TM_MUST_USE tm_status tm_image_take(const tm_image_file *file, uint64_t width, uint64_t height, tm_image *out,
                                    tm_error *err);

/* A function of a library, by its name; `at` is the address of the pointer to it. */
typedef struct {
    const char *name;
    void       *at;
} tm_image_symbol;

/* Loads `library` ("libpng16.so.16") and finds its n functions. TM_UNSUPPORTED names the package and the format that
 * needs it. It stays loaded. */
TM_MUST_USE tm_status tm_image_library(const tm_image_file *file, const char *format, const char *library,
                                       const char *package, const tm_image_symbol *symbols, size_t n, tm_error *err);

#endif
