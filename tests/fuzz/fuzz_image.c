/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes pictures: whatever is decoded can be read to its last pixel, resized and written; errors name the file. Of a
 * PNG the checksums are made right, too, so that more than they is tried. */
#include "fuzz.h"

#include "base/arena.h"
#include "image/image.h"
#include "image/resize.h"

#include <zlib.h>

static void use(tm_image *image)
{
    const tm_image_fit fit = { .size = { 24, 16 }, .random_crop = true, .flip = true };
    tm_image_placing   placing;
    tm_image           small = { 0 };
    tm_error           err = { 0 };
    unsigned           sum = 0;
    size_t             n = 3 * (size_t)image->width * (size_t)image->height;
    TM_ASSERT(image->width > 0 && image->height > 0 && n <= 3 * (size_t)TM_IMAGE_MAX_PIXELS);
    sum += image->pixels[0] + image->pixels[n - 1];
    const tm_image_size size = { image->width, image->height };
    if (tm_image_place("x", &fit, size, n, &placing, &err) == TM_OK) tm_image_apply(image, &fit, &placing, &small);
    TM_ASSERT(!small.pixels || (small.width == 24 && small.height == 16));
    TM_ASSERT(sum < 511);
    tm_image_fini(&small);
}

static void decode(const uint8_t *data, size_t size)
{
    tm_image  image;
    tm_error  err = { 0 };
    tm_status st = tm_image_decode("x.img", data, size, &image, &err);
    fuzz_told(st, &err, "x.img");
    TM_ASSERT((st == TM_OK) == (image.pixels != NULL));
    if (st == TM_OK) use(&image);
    tm_image_fini(&image);
}

/* The checksum of every chunk that is there. */
static void mend(uint8_t *png, size_t size)
{
    for (size_t at = 8; at + 12 <= size;) {
        const uint8_t *b = png + at;
        size_t         n = (size_t)b[0] << 24 | (size_t)b[1] << 16 | (size_t)b[2] << 8 | b[3];
        if (n > size - at - 12) return;
        uLong sum = crc32_z(0, png + at + 4, n + 4);
        for (int i = 0; i < 4; i++) png[at + 8 + n + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
        at += 12 + n;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    decode(data, size);
    if (size < 8 || memcmp(data, "\x89PNG", 4) != 0) return 0;
    uint8_t *png = tm_alloc(size);
    memcpy(png, data, size);
    mend(png, size);
    decode(png, size);
    free(png);
    return 0;
}
