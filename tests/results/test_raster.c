/* SPDX-License-Identifier: Apache-2.0 */
/* A chart as PNG without the libraries that draw it: the loader's calls are the test's own, so that every call of the
 * libraries, and the SVG that they are given, is compared to the letter. */
#include "results/report.h"

#include <dlfcn.h>

#include "support/test.h"

static tm_text     said;    /* what was called */
static const char *absent;  /* a library, or a function, that is not there */
static const char *failing; /* a call that fails */

static bool fails(const char *name)
{
    return failing && strcmp(failing, name) == 0;
}

static void *open_svg(const unsigned char *data, size_t bytes, void **error)
{
    assert_null(error);
    tm_text_printf(&said, "open '%.*s'\n", (int)bytes, (const char *)data);
    return fails("open") ? NULL : (void *)"svg";
}

typedef struct {
    double x, y, width, height;
} rectangle;

static int render(void *svg, void *cairo, const rectangle *to, void **error)
{
    assert_null(error);
    tm_text_printf(&said, "render %s on %s, %g %g %g %g\n", (char *)svg, (char *)cairo, to->x, to->y, to->width,
                   to->height);
    return !fails("render");
}

static void unref(void *object)
{
    tm_text_printf(&said, "unref %s\n", (char *)object);
}

static void *make_surface(int format, int width, int height)
{
    tm_text_printf(&said, "surface of format %d, %d x %d\n", format, width, height);
    return "surface";
}

static void *create(void *surface)
{
    tm_text_printf(&said, "create of %s\n", (char *)surface);
    return "cairo";
}

static void colour(void *cairo, double red, double green, double blue)
{
    tm_text_printf(&said, "colour of %s: %g %g %g\n", (char *)cairo, red, green, blue);
}

static void paint(void *cairo)
{
    tm_text_printf(&said, "paint %s\n", (char *)cairo);
}

static int write_png(void *surface, int (*take)(void *to, const unsigned char *data, unsigned bytes), void *to)
{
    tm_text_printf(&said, "write %s\n", (char *)surface);
    assert_int_equal(take(to, (const unsigned char *)"\x89PNG!", 4), 0);
    assert_int_equal(take(to, (const unsigned char *)"12\0003!", 4), 0);
    return fails("write") ? 11 : 0;
}

static void destroy(void *cairo)
{
    tm_text_printf(&said, "destroy %s\n", (char *)cairo);
}

static void destroy_surface(void *surface)
{
    tm_text_printf(&said, "destroy %s\n", (char *)surface);
}

static const struct {
    const char *library, *name;
    void (*function)(void);
} functions[] = {
    { "librsvg-2.so.2", "rsvg_handle_new_from_data", (void (*)(void))open_svg },
    { "librsvg-2.so.2", "rsvg_handle_render_document", (void (*)(void))render },
    { "libgobject-2.0.so.0", "g_object_unref", (void (*)(void))unref },
    { "libcairo.so.2", "cairo_image_surface_create", (void (*)(void))make_surface },
    { "libcairo.so.2", "cairo_create", (void (*)(void))create },
    { "libcairo.so.2", "cairo_set_source_rgb", (void (*)(void))colour },
    { "libcairo.so.2", "cairo_paint", (void (*)(void))paint },
    { "libcairo.so.2", "cairo_surface_write_to_png_stream", (void (*)(void))write_png },
    { "libcairo.so.2", "cairo_destroy", (void (*)(void))destroy },
    { "libcairo.so.2", "cairo_surface_destroy", (void (*)(void))destroy_surface },
};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

/* A sanitizer needs the loader's for itself. */
#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
#define OURS __attribute__((visibility("hidden")))
#else
#define OURS
#endif

/* In place of the loader's: a library is its name. Others are not there. */
OURS void *dlopen(const char *name, int mode)
{
    if (mode != (RTLD_NOW | RTLD_LOCAL) || (absent && strcmp(name, absent) == 0)) return NULL;
    for (size_t i = 0; i < FUNCTIONS; i++)
        if (strcmp(functions[i].library, name) == 0) return (void *)(uintptr_t)functions[i].library;
    return NULL;
}

OURS void *dlsym(void *restrict library, const char *restrict name)
{
    if (absent && strcmp(name, absent) == 0) return NULL;
    for (size_t i = 0; i < FUNCTIONS; i++)
        if (strcmp(functions[i].name, name) == 0 && strcmp(functions[i].library, library) == 0) {
            void *function;
            memcpy(&function, &functions[i].function, sizeof function);
            return function;
        }
    return NULL;
}

/* Names of 31 letters are looked up, longer ones are not. */
#define LONG "--of-thirty-one-letters-in-all1"
#define LONGER "--of-thirty-one-letters-and-one1"
static const char svg[] = "<svg viewBox=\"0 0 76 33\"><style>:root{--c:#123;--c1:#456;--no-c:x}"
                          "@media{:root{--c:#789;--c1:#abc}}text{fill:var(--c)}.a{stroke:var(--c1);fill:var(--no)}"
                          "{" LONG ":#def;" LONGER ":#fed}b{fill:var(" LONG ");x:var(" LONGER ")}</style>var(--c</svg>";
static const char drawn[] =
    "open '<svg viewBox=\"0 0 76 33\"><style>:root{--c:#123;--c1:#456;--no-c:x}"
    "@media{:root{--c:#789;--c1:#abc}}text{fill:#123}.a{stroke:#456;fill:none}"
    "{" LONG ":#def;" LONGER ":#fed}b{fill:#def;x:none}</style>none'\n"
    "surface of format 1, 152 x 66\ncreate of surface\ncolour of cairo: 1 1 1\npaint cairo\n"
    "render svg on cairo, 0 0 152 66\nwrite surface\ndestroy cairo\ndestroy surface\nunref svg\n";

static tm_status raster(const char *text, tm_text *png, tm_error *err)
{
    tm_text source = { 0 };
    said.length = png->length = 0;
    tm_text_add(&said, "");
    tm_text_add(&source, text);
    tm_status st = tm_results_raster(&source, png, err);
    tm_text_fini(&source);
    return st;
}

TEST(a_picture_is_drawn_in_the_light_colours)
{
    tm_text  png = { 0 };
    tm_error err = { 0 };
    assert_int_equal(raster(svg, &png, &err), TM_OK);
    assert_string_equal(said.data, drawn);
    assert_int_equal(png.length, 8);
    assert_memory_equal(png.data, "\x89PNG12\0003", 8);
    tm_text_fini(&png);
}

TEST(what_cannot_be_drawn_says_so)
{
    static const char *const calls[] = { "open", "render", "write" };
    tm_text                  png = { 0 };
    for (size_t i = 0; i < 3; i++) {
        tm_error err = { 0 };
        failing = calls[i];
        assert_int_equal(raster(svg, &png, &err), TM_INTERNAL);
        assert_string_equal(err.text, "librsvg cannot draw the chart; write it as .svg");
        assert_true(i == 0 || strstr(said.data, "destroy cairo\ndestroy surface\nunref svg\n"));
        assert_true((strstr(said.data, "write") != NULL) == (i == 2));
    }
    failing = NULL;
    static const char *const sizeless[] = { "<svg>", "<svg viewBox=\"1 0 76 33\">", "<svg viewBox=\"0 0 76\">" };
    for (size_t i = 0; i < 3; i++) {
        tm_error err = { 0 };
        assert_int_equal(raster(sizeless[i], &png, &err), TM_INTERNAL);
        assert_string_equal(err.text, "a chart without a size");
        assert_string_equal(said.data, "");
    }
    tm_text_fini(&png);
}

/* Each of the libraries, and each of their functions. */
TEST(without_the_libraries_there_is_none)
{
    tm_text png = { 0 };
    for (size_t i = 0; i < 2 * FUNCTIONS; i++) {
        tm_error err = { 0 };
        absent = i % 2 ? functions[i / 2].library : functions[i / 2].name;
        assert_int_equal(raster(svg, &png, &err), TM_UNSUPPORTED);
        assert_string_equal(err.text, "a chart as PNG is drawn by librsvg 2.46 or newer, which is not here; install "
                                      "librsvg2-2, or write it as .svg");
        assert_string_equal(said.data, "");
    }
    absent = NULL;
    tm_text_fini(&png);
}

static int forget(void **state)
{
    (void)state;
    tm_text_fini(&said);
    return 0;
}

TESTS_ALONE
TEST_FIXTURE(NULL, forget)
