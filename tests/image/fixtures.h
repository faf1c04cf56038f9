/* SPDX-License-Identifier: Apache-2.0 */
/* tests/image/fixtures.h - the pictures of tools/image_fixtures.py. */
#ifndef TM_TESTS_IMAGE_FIXTURES_H
#define TM_TESTS_IMAGE_FIXTURES_H

#include "base/file.h"
#include "base/text.h"
#include "image/image.h"

#include "support/test.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PICTURES "tests/image/data/"

static inline tm_text read_fixture(const char *name)
{
    char     path[512];
    tm_text  bytes = { 0 };
    tm_error err = { 0 };
    snprintf(path, sizeof path, PICTURES "%s", name);
    if (tm_file_read(path, 1 << 24, &bytes, &err) != TM_OK) fail_msg("%s", err.text);
    return bytes;
}

/* Of a file of PPM (P6), as the reference program wrote it. */
static inline tm_image read_pixels(const char *name)
{
    tm_text  file = read_fixture(name);
    tm_image image = { 0 };
    int      head = 0;
    if (sscanf(file.data, "P6 %d %d 255%n", &image.width, &image.height, &head) != 2) fail_msg("%s", name);
    size_t n = 3 * (size_t)image.width * (size_t)image.height;
    assert_int_equal(file.length, (size_t)head + 1 + n);
    image.pixels = malloc(n);
    assert_non_null(image.pixels);
    memcpy(image.pixels, file.data + head + 1, n);
    tm_text_fini(&file);
    return image;
}

/* The largest difference of two channels; fails where sizes differ. */
static inline int difference(const tm_image *a, const tm_image *b, const char *name)
{
    int largest = 0;
    if (a->width != b->width || a->height != b->height)
        fail_msg("%s: %d x %d, wanted %d x %d", name, a->width, a->height, b->width, b->height);
    for (size_t i = 0; i < 3 * (size_t)a->width * (size_t)a->height; i++) {
        int d = abs(a->pixels[i] - b->pixels[i]);
        if (d > largest) largest = d;
    }
    return largest;
}

/* The libraries that decode; without one of them the test is left out. */
static inline void need_libraries(void)
{
    static const char *const libraries[] = { "libpng16.so.16", "libturbojpeg.so.0", "libwebp.so.7" };
    for (size_t i = 0; i < sizeof libraries / sizeof libraries[0]; i++)
        if (!dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL)) {
            print_message("left out: %s is not here\n", libraries[i]);
            skip();
        }
}

#endif
