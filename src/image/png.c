/* SPDX-License-Identifier: Apache-2.0 */
/* image/png.c - PNG, decoded by libpng. Its functions are declared here: its headers are not needed. */
#include "image/codec.h"

#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* The calls of libpng 1.6 that are used; png and info are its own structs. */
typedef struct {
    void *(*create)(const char *version, void *ours, void (*error)(void *png, const char *text),
                    void (*warn)(void *png, const char *text));
    void *(*create_info)(void *png);
    void (*set_read)(void *png, void *ours, void (*read)(void *png, uint8_t *out, size_t n));
    void (*read_info)(void *png, void *info);
    void (*palette_to_rgb)(void *png);
    void (*expand_gray)(void *png);
    void (*gray_to_rgb)(void *png);
    void (*strip_16)(void *png);
    void (*strip_alpha)(void *png);
    int (*interlace)(void *png);
    void (*update)(void *png, void *info);
    size_t (*row_bytes)(void *png, void *info);
    void (*read_row)(void *png, uint8_t *row, uint8_t *display);
    void (*read_end)(void *png, void *info);
    void (*destroy)(void **png, void **info, void **end);
} libpng;

static tm_status load(const tm_image_file *file, libpng *p, tm_error *err)
{
    const tm_image_symbol symbols[] = {
        { "png_create_read_struct", &p->create },
        { "png_create_info_struct", &p->create_info },
        { "png_set_read_fn", &p->set_read },
        { "png_read_info", &p->read_info },
        { "png_set_palette_to_rgb", &p->palette_to_rgb },
        { "png_set_expand_gray_1_2_4_to_8", &p->expand_gray },
        { "png_set_gray_to_rgb", &p->gray_to_rgb },
        { "png_set_strip_16", &p->strip_16 },
        { "png_set_strip_alpha", &p->strip_alpha },
        { "png_set_interlace_handling", &p->interlace },
        { "png_read_update_info", &p->update },
        { "png_get_rowbytes", &p->row_bytes },
        { "png_read_row", &p->read_row },
        { "png_read_end", &p->read_end },
        { "png_destroy_read_struct", &p->destroy },
    };
    return tm_image_library(file, "a PNG", "libpng16.so.16", "libpng16-16", symbols, sizeof symbols / sizeof symbols[0],
                            err);
}

/* --- chunks ----------------------------------------------------------------------------------------------------------
 */

typedef struct {
    uint32_t width, height;
    int      depth, colour; /* bits of a channel; 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6 RGB and alpha */
    int      orientation;
} outline;

static uint32_t number(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

/* Goes along the chunks: whether all are there is known, and where they are not, before libpng begins. */
static tm_status look(const tm_image_file *file, outline *out, tm_error *err)
{
    enum { HEAD = 8, FRAME = 12, HEADER_BYTES = 13 };
    const uint8_t *b = file->bytes;
    size_t         at = HEAD;
    bool           data = false;
    *out = (outline){ .orientation = 1 };
    for (;;) {
        size_t left = file->size - at, n = left >= FRAME ? number(b + at) : 0;
        char   kind[5] = "?";
        for (int i = 0; i < 4 && left >= FRAME; i++)
            kind[i] = (char)(b[at + 4 + (size_t)i] > 32 && b[at + 4 + (size_t)i] < 127 ? b[at + 4 + (size_t)i] : '?');
        if (left < FRAME || n > left - FRAME)
            return tm_fail(err, TM_FORMAT, "'%s' is cut short: it ends at byte %zu, inside its chunk %s of byte %zu",
                           file->name, file->size, kind, at);
        const uint8_t *body = b + at + 8;
        bool           first = at == HEAD;
        if (first != (strcmp(kind, "IHDR") == 0) || (first && n != HEADER_BYTES))
            return tm_fail(err, TM_FORMAT, "'%s' is damaged: chunk %s at byte %zu, wanted %s", file->name, kind, at,
                           first ? "IHDR of 13 bytes" : "one IHDR only");
        if (first) {
            out->width = number(body);
            out->height = number(body + 4);
            out->depth = body[8];
            out->colour = body[9];
        }
        data = data || strcmp(kind, "IDAT") == 0;
        if (strcmp(kind, "eXIf") == 0) out->orientation = tm_image_exif(body, n);
        at += FRAME + n;
        if (strcmp(kind, "IEND") != 0) continue;
        return data ? TM_OK : tm_fail(err, TM_FORMAT, "'%s' is damaged: it has no chunk IDAT", file->name);
    }
}

/* --- pixels ----------------------------------------------------------------------------------------------------------
 */

typedef struct {
    libpng               png;
    const tm_image_file *file;
    size_t               at;
    jmp_buf              failed;
    char                 why[160];
    void                *reader, *info;
} decoding;

/* Of this thread. libpng's own pointers to user data would need its functions inside the callbacks. */
static _Thread_local decoding *now;

/* libpng wants it not to return. The jump passes over frames of libpng only. */
static void on_error(void *png, const char *text)
{
    (void)png;
    snprintf(now->why, sizeof now->why, "%s", text ? text : "no reason given");
    longjmp(now->failed, 1);
}

static void on_warning(void *png, const char *text)
{
    (void)png;
    (void)text;
}

static void on_read(void *png, uint8_t *out, size_t n)
{
    if (n > now->file->size - now->at) on_error(png, "it ends too early");
    memcpy(out, now->file->bytes + now->at, n);
    now->at += n;
}

/* Whatever is stored becomes RGB of 8 bits. No gamma and no profile is applied: neither does Pillow. */
static void run(decoding *d, const outline *o, tm_image *out)
{
    const libpng *p = &d->png;
    p->read_info(d->reader, d->info);
    if (o->colour == 3) p->palette_to_rgb(d->reader);
    if (o->colour == 0 && o->depth < 8) p->expand_gray(d->reader);
    if (o->depth == 16) p->strip_16(d->reader);
    if (o->colour == 0 || o->colour == 4) p->gray_to_rgb(d->reader);
    p->strip_alpha(d->reader);
    int passes = p->interlace(d->reader);
    p->update(d->reader, d->info);
    size_t row = (size_t)out->width * 3;
    if (p->row_bytes(d->reader, d->info) != row)
        on_error(d->reader, "its rows are of another size than its header says");
    for (int pass = 0; pass < passes; pass++)
        for (int y = 0; y < out->height; y++) p->read_row(d->reader, out->pixels + (size_t)y * row, NULL);
    p->read_end(d->reader, NULL);
}

static bool decode(decoding *d, const outline *o, tm_image *out)
{
    if (setjmp(d->failed) != 0) return false;
    d->reader = d->png.create("1.6.0", NULL, on_error, on_warning);
    d->info = d->reader ? d->png.create_info(d->reader) : NULL;
    if (!d->info) {
        snprintf(d->why, sizeof d->why, "libpng16 does not begin");
        return false;
    }
    d->png.set_read(d->reader, NULL, on_read);
    run(d, o, out);
    return true;
}

tm_status tm_image_read_png(const tm_image_file *file, tm_image *out, int *orientation, tm_error *err)
{
    outline  o;
    decoding d = { .file = file };
    TM_TRY(look(file, &o, err));
    TM_TRY(load(file, &d.png, err));
    TM_TRY(tm_image_take(file, o.width, o.height, out, err));
    *orientation = o.orientation;
    now = &d;
    bool done = decode(&d, &o, out);
    if (d.reader) d.png.destroy(&d.reader, &d.info, NULL);
    now = NULL;
    if (done) return TM_OK;
    return tm_fail(err, TM_FORMAT, "'%s' is a damaged PNG, near byte %zu of %zu: %s", file->name, d.at, file->size,
                   d.why);
}
