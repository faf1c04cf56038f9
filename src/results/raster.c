/* SPDX-License-Identifier: Apache-2.0 */
/* results/raster.c - a chart as PNG, drawn by librsvg and cairo, which are loaded when they are asked for: nobody else
 * needs them. Their SVG knows no custom properties, so that the colours of the light page are put in first. */
#include "results/report.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SCALE = 2, FORMAT_RGB24 = 1 };

/* The parts of librsvg's, cairo's and GObject's interfaces that are used. */
typedef struct {
    double x, y, width, height;
} rectangle;
typedef struct {
    void *(*open)(const unsigned char *data, size_t bytes, void **error);
    int (*render)(void *handle, void *cairo, const rectangle *viewport, void **error);
    void (*unref)(void *object);
    void *(*surface)(int format, int width, int height);
    void *(*create)(void *surface);
    void (*colour)(void *cairo, double red, double green, double blue);
    void (*paint)(void *cairo);
    int (*write)(void *surface, int (*take)(void *to, const unsigned char *data, unsigned bytes), void *to);
    void (*destroy)(void *cairo);
    void (*destroy_surface)(void *surface);
} renderer;

static bool symbol(void *library, const char *name, void *function)
{
    void *address = library ? dlsym(library, name) : NULL;
    memcpy(function, &address, sizeof address);
    return address;
}

static tm_status load(renderer *r, tm_error *err)
{
    void *rsvg = dlopen("librsvg-2.so.2", RTLD_NOW | RTLD_LOCAL),
         *cairo = dlopen("libcairo.so.2", RTLD_NOW | RTLD_LOCAL);
    void *object = dlopen("libgobject-2.0.so.0", RTLD_NOW | RTLD_LOCAL);
    if (symbol(rsvg, "rsvg_handle_new_from_data", &r->open) &&
        symbol(rsvg, "rsvg_handle_render_document", &r->render) && symbol(object, "g_object_unref", &r->unref) &&
        symbol(cairo, "cairo_image_surface_create", &r->surface) && symbol(cairo, "cairo_create", &r->create) &&
        symbol(cairo, "cairo_set_source_rgb", &r->colour) && symbol(cairo, "cairo_paint", &r->paint) &&
        symbol(cairo, "cairo_surface_write_to_png_stream", &r->write) && symbol(cairo, "cairo_destroy", &r->destroy) &&
        symbol(cairo, "cairo_surface_destroy", &r->destroy_surface))
        return TM_OK;
    return tm_fail(err, TM_UNSUPPORTED,
                   "a chart as PNG is drawn by librsvg 2.46 or newer, which is not here; install librsvg2-2, or write "
                   "it as .svg");
}

/* The value of a custom property: behind its first definition, which is the light page's. */
static const char *property(const char *svg, const char *name, size_t n, size_t *length)
{
    for (const char *at = svg; (at = strstr(at, name)); at++)
        if (at > svg && (at[-1] == '{' || at[-1] == ';') && at[n] == ':') {
            *length = strcspn(at + n + 1, ";}");
            return at + n + 1;
        }
    return NULL;
}

static void put_colours(const char *svg, tm_text *out)
{
    const char *at = svg, *use;
    while ((use = strstr(at, "var(--"))) {
        char        name[32] = { 0 };
        size_t      n = strcspn(use + 4, ")"), length = 0;
        const char *value = NULL;
        if (n < sizeof name) {
            memcpy(name, use + 4, n);
            value = property(svg, name, n, &length);
        }
        tm_text_add_n(out, at, (size_t)(use - at));
        tm_text_add_n(out, value ? value : "none", value ? length : 4);
        at = use + 4 + n + (use[4 + n] == ')');
    }
    tm_text_add(out, at);
}

static int take(void *to, const unsigned char *data, unsigned bytes)
{
    tm_text_add_n(to, (const char *)data, bytes);
    return 0;
}

static bool draw(const renderer *r, const tm_text *svg, int width, int height, tm_text *png)
{
    const rectangle all = { 0, 0, SCALE * width, SCALE * height };
    void           *handle = r->open((const unsigned char *)svg->data, svg->length, NULL);
    if (!handle) return false;
    void *surface = r->surface(FORMAT_RGB24, SCALE * width, SCALE * height), *cairo = r->create(surface);
    r->colour(cairo, 1, 1, 1);
    r->paint(cairo);
    bool done = r->render(handle, cairo, &all, NULL) && r->write(surface, take, png) == 0;
    r->destroy(cairo);
    r->destroy_surface(surface);
    r->unref(handle);
    return done;
}

tm_status tm_results_raster(const tm_text *svg, tm_text *png, tm_error *err)
{
    renderer    r = { 0 };
    tm_text     plain = { 0 };
    const char *box = strstr(svg->data, "viewBox=\"0 0 ");
    int         width = 0, height = 0;
    if (!box || sscanf(box, "viewBox=\"0 0 %d %d\"", &width, &height) != 2)
        return tm_fail(err, TM_INTERNAL, "a chart without a size");
    TM_TRY(load(&r, err));
    put_colours(svg->data, &plain);
    bool done = draw(&r, &plain, width, height, png);
    tm_text_fini(&plain);
    return done ? TM_OK : tm_fail(err, TM_INTERNAL, "librsvg cannot draw the chart; write it as .svg");
}
