/* SPDX-License-Identifier: Apache-2.0 */
/* The judge of drawn shapes (support/shapes.h): pictures that tools/flux_shapes.py drew, and their forms behind an
 * autoencoder, which are blurred and noisy; pictures that show no shape. */
#include "base/random.h"
#include "support/shapes.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { SIZE = 64, BYTES = SIZE * SIZE * 3 };

static const char *const colours[] = { "red", "green", "blue", "yellow", "purple", "orange" };
static const char *const shapes[] = { "circle", "square", "triangle", "star", "cross" };

/* The file holds captions, a line each, an empty line, then the pixels of as many pictures. */
TEST(judges_the_pictures_of_the_tool)
{
    FILE *file = fopen("tests/data/shapes.rgb", "rb");
    if (!file) fail_msg("cannot open tests/data/shapes.rgb; run from the root of the repository");
    char           captions[32][64];
    static uint8_t pixels[BYTES];
    int            n = 0;
    while (n < 32 && fgets(captions[n], sizeof captions[n], file) && captions[n][0] != '\n') {
        captions[n][strcspn(captions[n], "\n")] = 0;
        n++;
    }
    assert_int_equal(n, 10);
    for (int i = 0; i < n; i++) {
        assert_int_equal(fread(pixels, 1, BYTES, file), BYTES);
        shapes_verdict verdict = shapes_judge(pixels, SIZE, SIZE);
        if (!shapes_match(verdict, captions[i]) || !strstr(captions[i], verdict.background))
            fail_msg("%s: %s %s on %s, fits by %.3f", captions[i], verdict.colour, verdict.shape, verdict.background,
                     verdict.fit);
        for (size_t c = 0; c < 6; c++) /* no other caption is right */
            for (size_t s = 0; s < 5; s++) {
                char other[64];
                snprintf(other, sizeof other, "a %s %s on a white background", colours[c], shapes[s]);
                bool same = strstr(captions[i], colours[c]) && strstr(captions[i], shapes[s]);
                assert_int_equal(shapes_match(verdict, other), same);
            }
    }
    assert_int_equal(fgetc(file), EOF);
    fclose(file);
}

/* A picture of one colour, and one of noise, have no shape; a ring fits none, though it has a colour. */
TEST(sees_no_shape_where_there_is_none)
{
    static uint8_t pixels[BYTES];
    memset(pixels, 255, BYTES);
    shapes_verdict verdict = shapes_judge(pixels, SIZE, SIZE);
    assert_null(verdict.colour);
    assert_null(verdict.shape);
    assert_string_equal(verdict.background, "white");
    assert_false(shapes_match(verdict, "a red circle on a white background"));
    for (int i = 0; i < BYTES; i++) pixels[i] = (uint8_t)(256 * tm_random_uniform(1, 2, (uint64_t)i));
    assert_null(shapes_judge(pixels, SIZE, SIZE).shape);
    memset(pixels, 0, BYTES);
    for (int y = 0; y < SIZE; y++)
        for (int x = 0; x < SIZE; x++) {
            double r = hypot(x - 31.5, y - 31.5);
            if (r < 24 && r > 16) pixels[3 * (y * SIZE + x)] = 220;
        }
    verdict = shapes_judge(pixels, SIZE, SIZE);
    assert_string_equal(verdict.colour, "red");
    assert_string_equal(verdict.background, "black");
    assert_null(verdict.shape);
}

/* The judge's circle is the disc of the largest area in its bounds: rows and columns are not exchanged in a wide
 * picture. */
TEST(judges_pictures_of_any_size)
{
    enum { ROWS = 48, COLUMNS = 96 };
    static uint8_t pixels[ROWS * COLUMNS * 3];
    for (int y = 0; y < ROWS; y++)
        for (int x = 0; x < COLUMNS; x++)
            if (abs(x - 70) <= 12 && abs(y - 20) <= 12)
                memcpy(pixels + 3 * (ptrdiff_t)(y * COLUMNS + x), "\x32\x50\xdc", 3);
    shapes_verdict verdict = shapes_judge(pixels, ROWS, COLUMNS);
    assert_string_equal(verdict.colour, "blue");
    assert_string_equal(verdict.shape, "square");
    assert_true(verdict.fit > 0.95);
    assert_true(shapes_match(verdict, "a blue square on a black background"));
    assert_false(shapes_match(verdict, "a blue squarer on a black background"));
}
