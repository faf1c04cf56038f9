/* SPDX-License-Identifier: Apache-2.0 */
/* Pictures where a library is not here, or lacks a function: the loader's calls are the test's own. */
#include "image/fixtures.h"
#include "image/image.h"
#include "support/test.h"

#include <dlfcn.h>

/* A sanitizer needs the loader's for itself. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define OURS __attribute__((visibility("hidden")))
#else
#define OURS
#endif

static bool hollow; /* libraries are here, but empty */

OURS void *dlopen(const char *name, int mode)
{
    (void)name;
    (void)mode;
    return hollow ? (void *)"library" : NULL;
}

OURS void *dlsym(void *restrict library, const char *restrict name)
{
    (void)library;
    (void)name;
    return NULL;
}

static void says(const char *name, const char *wanted)
{
    tm_text  bytes = read_fixture(name);
    tm_image image;
    tm_error err = { 0 };
    assert_int_equal(tm_image_decode(name, bytes.data, bytes.length, &image, &err), TM_UNSUPPORTED);
    assert_string_equal(err.text, wanted);
    tm_text_fini(&bytes);
}

TEST(the_package_is_named)
{
    says("rgb.png", "'rgb.png' is a PNG, and libpng16.so.16, which decodes it, is not here; install libpng16-16");
    says("grey.jpg", "'grey.jpg' is a JPEG, and libturbojpeg.so.0, which decodes it, is not here; install "
                     "libturbojpeg0 (Ubuntu: libturbojpeg)");
    says("lossy.webp", "'lossy.webp' is a WebP, and libwebp.so.7, which decodes it, is not here; install libwebp7");
    hollow = true;
    says("lossy.webp",
         "'lossy.webp' is a WebP, and libwebp.so.7, which decodes it, has no WebPGetInfo; install a newer "
         "libwebp7");
}

TESTS_ALONE
