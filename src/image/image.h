/* SPDX-License-Identifier: Apache-2.0 */
/* image/image.h - pictures in memory: PNG, JPEG and WebP decoded to 8-bit RGB, and PNG written (docs/pictures.md). */
#ifndef TM_IMAGE_IMAGE_H
#define TM_IMAGE_IMAGE_H

#include "base/status.h"
#include "base/text.h"

#include <stddef.h>
#include <stdint.h>

enum { TM_IMAGE_MAX_PIXELS = 100000000 };

/* Zero-initialise; free with tm_image_fini. */
typedef struct {
    int      width, height;
    uint8_t *pixels; /* (height, width, 3): red, green, blue */
} tm_image;

/* Decodes a picture; `name` is for messages. The format is seen by its first bytes. The libraries that decode (libpng,
 * libturbojpeg, libwebp) are loaded when they are needed. Pixels are those of Pillow's
 * ImageOps.exif_transpose(image).convert("RGB"): turned as EXIF says, alpha dropped, colour profiles not applied; of
 * 16 bits the high byte. TM_FORMAT: damaged or cut short; TM_UNSUPPORTED: another format, an animation, more than
 * TM_IMAGE_MAX_PIXELS (refused before memory is taken), or a library that is not here.
 * TM_INVALID: what Git LFS keeps in place of a picture. After a failure *out is zeroed. Any thread. */
TM_MUST_USE tm_status tm_image_decode(const char *name, const void *bytes, size_t size, tm_image *out, tm_error *err);
void                  tm_image_fini(tm_image *image); /* a zeroed one: nothing */

/* Appends the picture as a PNG of 8-bit RGB. TM_UNSUPPORTED: beyond TM_IMAGE_MAX_PIXELS. */
TM_MUST_USE tm_status tm_image_png(const tm_image *image, tm_text *out, tm_error *err);
/* The same into a file (tm_file_write). */
TM_MUST_USE tm_status tm_image_write_png(const tm_image *image, const char *path, tm_error *err);

#endif
