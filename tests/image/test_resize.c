/* SPDX-License-Identifier: Apache-2.0 */
/* Resizing and cropping as Pillow and torchvision do it (tools/image_fixtures.py); buckets; pixels as numbers. */
#include "image/fixtures.h"
#include "image/resize.h"
#include "support/test.h"

static tm_image_size size_of(const tm_image *image)
{
    return (tm_image_size){ image->width, image->height };
}

TEST(sizes_are_those_of_pillow_to_the_bit)
{
    static const tm_image_size sizes[] = { { 20, 15 }, { 13, 9 }, { 61, 47 }, { 40, 7 },  { 5, 30 },  { 1, 1 },
                                           { 40, 30 }, { 97, 3 }, { 39, 29 }, { 39, 27 }, { 39, 28 }, { 97, 31 } };
    static const char *const   filters[] = { "lanczos", "bilinear" };
    tm_image                   rgb = read_pixels("rgb.png.ppm"), got;
    tm_error                   err = { 0 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int f = 0; f < 2; f++) {
            char name[128];
            snprintf(name, sizeof name, "rgb.png@%dx%d-%s.ppm", sizes[i].width, sizes[i].height, filters[f]);
            tm_image wanted = read_pixels(name);
            assert_int_equal(tm_image_resize(&rgb, sizes[i], (tm_image_filter)f, &got, &err), TM_OK);
            int off = difference(&got, &wanted, name);
            if (off != 0) fail_msg("%s: off by %d", name, off);
            tm_image_fini(&wanted);
            tm_image_fini(&got);
        }
    assert_int_equal(tm_image_resize(&rgb, (tm_image_size){ 10001, 10000 }, TM_IMAGE_LANCZOS, &got, &err),
                     TM_UNSUPPORTED);
    tm_image_fini(&rgb);
}

/* A quarter to the left, as Pillow's rotate(90) does. */
static tm_image turned_left(const tm_image *in)
{
    tm_image out = { in->height, in->width, malloc(3 * (size_t)in->width * (size_t)in->height) };
    assert_non_null(out.pixels);
    for (int y = 0; y < out.height; y++)
        for (int x = 0; x < out.width; x++)
            memcpy(out.pixels + 3 * (y * out.width + x), in->pixels + 3 * (x * in->width + in->width - 1 - y), 3);
    return out;
}

static tm_image_placing place(const tm_image_fit *fit, tm_image_size picture, uint64_t index)
{
    tm_image_placing p;
    tm_error         err = { 0 };
    if (tm_image_place("a.png", fit, picture, index, &p, &err) != TM_OK) fail_msg("%s", err.text);
    return p;
}

TEST(the_middle_is_that_of_torchvision)
{
    static const struct {
        int         size;
        bool        turned;
        const char *name;
    } cases[] = { { 16, false, "rgb.png@fit16.ppm" },
                  { 17, true, "rgb.png@fit17-turned.ppm" },
                  { 33, false, "rgb.png@fit33.ppm" } };
    tm_image rgb = read_pixels("rgb.png.ppm"), turned = turned_left(&rgb), got;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const tm_image    *in = cases[i].turned ? &turned : &rgb;
        const tm_image_fit fit = { .size = { cases[i].size, cases[i].size }, .filter = TM_IMAGE_BILINEAR };
        tm_image           wanted = read_pixels(cases[i].name);
        tm_image_placing   placing = place(&fit, size_of(in), i);
        tm_image_apply(in, &fit, &placing, &got);
        if (difference(&got, &wanted, cases[i].name) != 0) fail_msg("%s", cases[i].name);
        tm_image_fini(&got);
        tm_image_fini(&wanted);
    }
    tm_image_fini(&turned);
    tm_image_fini(&rgb);
}

TEST(what_is_kept_lies_within_the_scaled_picture)
{
    static const tm_image_size sizes[] = { { 16, 16 }, { 48, 16 }, { 16, 80 }, { 7, 5 } };
    for (int w = 1; w < 70; w += 3)
        for (int h = 1; h < 70; h += 2)
            for (size_t i = 0; i < 4; i++) {
                const tm_image_fit fit = { .size = sizes[i], .random_crop = h % 3, .flip = true, .seed = 3 };
                tm_image_placing   p = place(&fit, (tm_image_size){ w, h }, (uint64_t)(w * h));
                assert_true(p.scaled.width == sizes[i].width || p.scaled.height == sizes[i].height);
                assert_true(p.left >= 0 && p.left + sizes[i].width <= p.scaled.width);
                assert_true(p.top >= 0 && p.top + sizes[i].height <= p.scaled.height);
                double squeezed = (double)p.scaled.width * h / ((double)p.scaled.height * w);
                assert_true(squeezed <= 1 + 1.0 / p.scaled.height && squeezed >= 1 - 1.0 / p.scaled.width);
            }
}

TEST(a_part_is_that_of_the_whole_resized_picture)
{
    tm_image rgb = read_pixels("rgb.png.ppm"), whole, part;
    tm_error err = { 0 };
    for (uint64_t i = 0; i < 40; i++) {
        const tm_image_fit fit = { .size = { 16, 24 }, .random_crop = true, .flip = true, .seed = i / 8 };
        tm_image_placing   p = place(&fit, size_of(&rgb), i);
        assert_int_equal(tm_image_resize(&rgb, p.scaled, fit.filter, &whole, &err), TM_OK);
        tm_image_apply(&rgb, &fit, &p, &part);
        for (int y = 0; y < 24; y++)
            for (int x = 0; x < 16; x++) {
                int from = p.left + (p.flipped ? 15 - x : x);
                assert_memory_equal(part.pixels + 3 * (y * 16 + x),
                                    whole.pixels + 3 * ((p.top + y) * whole.width + from), 3);
            }
        tm_image_fini(&whole);
        tm_image_fini(&part);
    }
    tm_image_fini(&rgb);
}

TEST(random_parts_are_everywhere_and_the_same_again)
{
    const tm_image_fit fit = { .size = { 16, 16 }, .random_crop = true, .flip = true, .seed = 5 };
    int                lefts[5] = { 0 }, flipped = 0;
    for (uint64_t i = 0; i < 1000; i++) {
        tm_image_placing p = place(&fit, (tm_image_size){ 20, 16 }, i), q = place(&fit, (tm_image_size){ 20, 16 }, i);
        assert_memory_equal(&p.left, &q.left, sizeof p.left);
        assert_int_equal(p.flipped, q.flipped);
        lefts[p.left]++;
        flipped += p.flipped;
    }
    for (int i = 0; i < 5; i++) assert_in_range(lefts[i], 140, 260); /* 200 +- 5 standard deviations */
    assert_in_range(flipped, 420, 580);
}

TEST(buckets_have_the_area_and_every_shape)
{
    tm_image_size all[200];
    for (int size = 64; size <= 1024; size += 72)
        for (int step = 16; step <= 64; step *= 2) {
            size_t n = tm_image_buckets(size, step, 2.5, all), squares = 0;
            assert_true(n >= 1 && n <= (size_t)(2 * size / step + 1) && n % 2 == 1);
            for (size_t i = 0; i < n; i++) {
                int w = all[i].width, h = all[i].height, longer = w > h ? w : h, shorter = w > h ? h : w;
                assert_true(w % step == 0 && h % step == 0 && longer <= 2.5 * shorter);
                /* The nearest multiple, of one side. */
                if (w != h) assert_true(fabs((double)size * size / shorter - longer) <= step / 2.0);
                if (w == h) assert_true(abs(w - size) <= step / 2);
                squares += w == h;
                if (i > 0) assert_true((double)w / h > (double)all[i - 1].width / all[i - 1].height);
                assert_int_equal(all[n - 1 - i].width, h);
                assert_int_equal(all[n - 1 - i].height, w);
            }
            assert_int_equal(squares, 1);
        }
    assert_int_equal(tm_image_buckets(512, 64, 1, all), 1);
}

TEST(the_nearest_shape_is_chosen)
{
    const tm_image_size buckets[] = { { 16, 64 }, { 32, 32 }, { 64, 16 } };
    assert_int_equal(tm_image_bucket(buckets, 3, (tm_image_size){ 100, 100 }), 1);
    assert_int_equal(tm_image_bucket(buckets, 3, (tm_image_size){ 199, 100 }), 1);
    assert_int_equal(tm_image_bucket(buckets, 3, (tm_image_size){ 201, 100 }), 2);
    assert_int_equal(tm_image_bucket(buckets, 3, (tm_image_size){ 200, 100 }), 1); /* equally near */
    assert_int_equal(tm_image_bucket(buckets, 3, (tm_image_size){ 1, 90 }), 0);
}

TEST(numbers_and_pixels_are_each_other)
{
    uint8_t  all[256 * 3];
    float    values[256 * 3], odd[6] = { -1.5f, 1.5f, NAN, INFINITY, 1.0f / 255, -1.0f / 255 };
    tm_image image = { 256, 1, all }, again;
    for (int i = 0; i < 256 * 3; i++) all[i] = (uint8_t)i;
    tm_image_to_values(&image, values);
    assert_true(values[0] == -1 && values[255] == 1);
    for (int i = 1; i < 256; i++) assert_float_equal(values[i], (float)(i / 127.5 - 1), 1e-7);
    tm_image_of_values(values, (tm_image_size){ 256, 1 }, &again);
    assert_memory_equal(again.pixels, all, sizeof all);
    tm_image_fini(&again);
    tm_image_of_values(odd, (tm_image_size){ 2, 1 }, &again);
    assert_memory_equal(again.pixels, ((uint8_t[]){ 0, 255, 0, 255, 128, 127 }), 6);
    tm_image_fini(&again);
}
