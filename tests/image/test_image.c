/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures of every kind have the pixels that Pillow gives them (tools/image_fixtures.py); what is damaged is refused.
 */
#include "image/image.h"

#include "base/file.h"
#include "base/text.h"
#include "image/codec.h"
#include "image/fixtures.h"
#include "support/folder.h"
#include "support/test.h"

#include <dirent.h>

static bool ends_in(const char *name, const char *end)
{
    size_t n = strlen(name), m = strlen(end);
    return n >= m && strcmp(name + n - m, end) == 0;
}

/* Builds of decoders of JPEG and lossy WebP may round differently. */
TEST(pixels_are_those_of_pillow)
{
    int n = 0;
    need_libraries();
    DIR *folder = opendir(PICTURES);
    assert_non_null(folder);
    for (struct dirent *d; (d = readdir(folder));) {
        char     name[256];
        tm_image got, wanted;
        tm_error err = { 0 };
        if (!ends_in(d->d_name, ".ppm") || strchr(d->d_name, '@')) continue;
        snprintf(name, sizeof name, "%.*s", (int)(strlen(d->d_name) - 4), d->d_name);
        tm_text bytes = read_fixture(name);
        wanted = read_pixels(d->d_name);
        if (tm_image_decode(name, bytes.data, bytes.length, &got, &err) != TM_OK) fail_msg("%s", err.text);
        int off = difference(&got, &wanted, name), bound = ends_in(name, ".png") || strstr(name, "lossless") ? 0 : 2;
        if (off > bound) fail_msg("%s: a channel is off by %d, allowed are %d", name, off, bound);
        tm_image_fini(&got);
        tm_image_fini(&wanted);
        tm_text_fini(&bytes);
        n++;
    }
    closedir(folder);
    assert_true(n >= 40);
}

static tm_status decode(const char *name, const void *bytes, size_t size, tm_error *err)
{
    tm_image  image;
    tm_status st;
    *err = (tm_error){ 0 };
    st = tm_image_decode(name, bytes, size, &image, err);
    if (st != TM_OK) assert_null(image.pixels);
    tm_image_fini(&image);
    return st;
}

static void refused(const char *name, const void *bytes, size_t size, tm_status wanted, const char *says)
{
    tm_error err;
    assert_int_equal(decode(name, bytes, size, &err), wanted);
    if (!strstr(err.text, says) || !strstr(err.text, name)) fail_msg("%s", err.text);
}

TEST(wherever_a_file_is_cut_it_is_refused)
{
    static const char *const names[] = { "rgb_parts.png", "interlaced_palette4.png",
                                         "rgb420.jpg",    "progressive.jpg",
                                         "cmyk.jpg",      "lossy.webp",
                                         "lossless.webp" };
    need_libraries();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tm_text bytes = read_fixture(names[i]);
        for (size_t n = 0; n < bytes.length; n++) {
            tm_error err;
            void    *exact = malloc(n ? n : 1); /* so that a sanitizer sees a read beyond it */
            assert_non_null(exact);
            memcpy(exact, bytes.data, n);
            if (decode(names[i], exact, n, &err) != TM_FORMAT || !strstr(err.text, names[i]))
                fail_msg("%s of %zu bytes: %d %s", names[i], n, (int)err.status, err.text);
            free(exact);
        }
        tm_text_fini(&bytes);
    }
}

TEST(one_bit_of_a_png_is_never_lost)
{
    tm_text  png = read_fixture("palette4.png");
    tm_error err;
    need_libraries();
    for (size_t i = 0; i < png.length; i++) {
        png.data[i] ^= 4;
        if (decode("a.png", png.data, png.length, &err) == TM_OK) fail_msg("byte %zu may be anything", i);
        png.data[i] ^= 4;
    }
    tm_text_fini(&png);
}

/* Bytes before a marker are passed over, as all programs do; damage of the code that is noticed is not. */
TEST(of_a_jpeg_only_harmless_warnings_are_passed_over)
{
    tm_text  jpeg = read_fixture("rgb444.jpg"), more = { 0 };
    tm_image wanted = read_pixels("rgb444.jpg.ppm"), got;
    tm_error err = { 0 };
    int      told = 0;
    need_libraries();
    tm_text_add_n(&more, jpeg.data, jpeg.length - 2);
    tm_text_add_n(&more, "\x12\x34\x56\xff\xd9", 5);
    if (tm_image_decode("a.jpg", more.data, more.length, &got, &err) != TM_OK) fail_msg("%s", err.text);
    assert_in_range(difference(&got, &wanted, "a.jpg"), 0, 2);
    for (size_t at = jpeg.length / 2; at < jpeg.length - 2; at++) {
        char kept = jpeg.data[at];
        jpeg.data[at] = (char)0xfe;
        if (decode("a.jpg", jpeg.data, jpeg.length, &err) == TM_FORMAT)
            told += strstr(err.text, "is a JPEG of") && strstr(err.text, "damaged: Corrupt JPEG data");
        jpeg.data[at] = kept;
    }
    assert_true(told > 10);
    tm_image_fini(&got);
    tm_image_fini(&wanted);
    tm_text_fini(&jpeg);
    tm_text_fini(&more);
}

TEST(large_pictures_are_refused_before_memory_is_taken)
{
    tm_text png = read_fixture("rgb.png"), jpeg = read_fixture("rgb444.jpg");
    need_libraries();
    memcpy(png.data + 16, "\0\0\x27\x11\0\0\x27\x10", 8); /* 10001 x 10000 */
    refused("a.png", png.data, png.length, TM_UNSUPPORTED, "10001 x 10000 pixels; at most 100 million");
    memcpy(png.data + 16, "\xff\xff\xff\xff\xff\xff\xff\xff", 8);
    refused("a.png", png.data, png.length, TM_UNSUPPORTED, "4294967295 x 4294967295");
    memcpy(png.data + 16, "\0\0\0\0\0\0\0\1", 8);
    refused("a.png", png.data, png.length, TM_FORMAT, "0 x 1 pixels");
    char *frame = memmem(jpeg.data, jpeg.length, "\xff\xc0", 2); /* height and width are behind length and depth */
    assert_non_null(frame);
    memcpy(frame + 5, "\x4e\x20\x4e\x20", 4);
    refused("a.jpg", jpeg.data, jpeg.length, TM_UNSUPPORTED, "20000 x 20000 pixels");
    tm_text_fini(&png);
    tm_text_fini(&jpeg);
}

TEST(other_formats_are_named)
{
    static const struct {
        const char *bytes;
        size_t      n;
        const char *name;
    } others[] = {
        { "GIF89a..", 8, "is GIF;" },
        { "BM......", 8, "is BMP;" },
        { "II*\0....", 8, "is TIFF;" },
        { "\0\0\0\x1c"
          "ftypavif",
          12, "is AVIF;" },
        { "\0\0\0\x1c"
          "ftypheic",
          12, "is HEIC;" },
        { "\xff\x0a......", 8, "is JPEG XL;" },
    };
    static const char lfs[] = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 5\n";
    tm_text           moving = read_fixture("animated.webp");
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        refused("a.png", others[i].bytes, others[i].n, TM_UNSUPPORTED, others[i].name);
    refused("a.png", "", 0, TM_FORMAT, "is empty");
    refused("a.png", "<svg", 4, TM_FORMAT, "begins with 3c 73 76 67, which");
    refused("a.png", lfs, sizeof lfs - 1, TM_INVALID, "LFS");
    refused("a.webp", moving.data, moving.length, TM_UNSUPPORTED, "animated WebP");
    tm_text_fini(&moving);
}

TEST_WITH(a_png_that_is_written_is_read_again, NULL, test_folder_teardown)
{
    static const char *const names[] = { "rgb.png.ppm", "pixel.png.ppm", "rgba16.png.ppm" };
    const char              *path = test_in_folder("made.png");
    tm_image                 again, tall = { 10001, 10000, (uint8_t *)"" };
    tm_text                  none = { 0 };
    tm_error                 err = { 0 };
    need_libraries();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tm_image image = read_pixels(names[i]);
        tm_text  bytes = { 0 };
        if (tm_image_write_png(&image, path, &err) != TM_OK) fail_msg("%s", err.text);
        if (tm_file_read(path, 1 << 20, &bytes, &err) != TM_OK) fail_msg("%s", err.text);
        if (tm_image_decode(path, bytes.data, bytes.length, &again, &err) != TM_OK) fail_msg("%s", err.text);
        assert_int_equal(difference(&image, &again, names[i]), 0);
        tm_image_fini(&again);
        tm_image_fini(&image);
        tm_text_fini(&bytes);
    }
    assert_int_equal(tm_image_png(&tall, &none, &err), TM_UNSUPPORTED);
}
