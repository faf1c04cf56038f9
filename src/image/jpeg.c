/* SPDX-License-Identifier: Apache-2.0 */
/* image/jpeg.c - JPEG, decoded by libturbojpeg. Its functions are declared here: its headers are not needed. */
#include "image/codec.h"

#include "base/arena.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Of turbojpeg.h: pixel formats, colour spaces, flags, and the severity of an error. */
enum { PIXELS_RGB = 0, PIXELS_CMYK = 11 };
enum { SPACE_CMYK = 3, SPACE_YCCK = 4 };
enum { FLAG_ACCURATE_DCT = 4096, FLAG_LIMIT_SCANS = 32768 };
enum { WARNING = 0 };

typedef struct {
    void *(*open)(void);
    int (*header)(void *handle, const uint8_t *bytes, unsigned long size, int *width, int *height, int *subsampling,
                  int *space);
    int (*decompress)(void *handle, const uint8_t *bytes, unsigned long size, uint8_t *out, int width, int pitch,
                      int height, int format, int flags);
    char *(*message)(void *handle);
    int (*severity)(void *handle);
    int (*close)(void *handle);
} turbojpeg;

static tm_status load(const tm_image_file *file, turbojpeg *t, tm_error *err)
{
    const tm_image_symbol symbols[] = {
        { "tjInitDecompress", &t->open },  { "tjDecompressHeader3", &t->header }, { "tjDecompress2", &t->decompress },
        { "tjGetErrorStr2", &t->message }, { "tjGetErrorCode", &t->severity },    { "tjDestroy", &t->close },
    };
    return tm_image_library(file, "a JPEG", "libturbojpeg.so.0", "libturbojpeg0 (Ubuntu: libturbojpeg)", symbols,
                            sizeof symbols / sizeof symbols[0], err);
}

/* The segments before the first scan: a marker, and a length that counts itself. EXIF is in APP1. */
static int find_orientation(const tm_image_file *file)
{
    enum { APP1 = 0xe1, SCAN = 0xda };
    const uint8_t *b = file->bytes;
    size_t         at = 2;
    while (at + 4 <= file->size && b[at] == 0xff) {
        if (b[at + 1] == 0xff) { /* any number of these may stand before a marker */
            at++;
            continue;
        }
        size_t n = (size_t)b[at + 2] << 8 | b[at + 3];
        if (b[at + 1] == SCAN || n < 2 || n > file->size - at - 2) break;
        if (b[at + 1] == APP1 && n >= 8 && memcmp(b + at + 4, "Exif\0\0", 6) == 0)
            return tm_image_exif(b + at + 4, n - 2);
        at += 2 + n;
    }
    return 1;
}

/* What cameras and editors do wrong and all programs pass over; other warnings mean that pixels are lost. */
static bool harmless(const char *message)
{
    static const char *const known[] = { "extraneous bytes before marker", "Invalid SOS parameters", "unknown JFIF",
                                         "unknown Adobe color transform" };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcasestr(message, known[i])) return true;
    return false;
}

static tm_status damaged(const tm_image_file *file, const char *message, tm_error *err)
{
    bool cut = strcasestr(message, "premature end") != NULL;
    return tm_fail(err, TM_FORMAT, "'%s' is a JPEG of %zu bytes that is %s: %s", file->name, file->size,
                   cut ? "cut short or damaged" : "damaged", message);
}

/* Adobe's programs store inverted inks; so do all others by now. As Pillow: what ink leaves of black's remainder. */
static void cmyk_to_rgb(const uint8_t *inks, size_t pixels, uint8_t *out)
{
    for (size_t i = 0; i < pixels; i++, inks += 4, out += 3)
        for (int c = 0; c < 3; c++) {
            unsigned product = (255u - inks[c]) * inks[3] + 128; /* divided by 255 and rounded */
            out[c] = (uint8_t)(inks[3] - (((product >> 8) + product) >> 8));
        }
}

static tm_status decode(const turbojpeg *t, void *handle, const tm_image_file *file, tm_image *out, tm_error *err)
{
    int width = 0, height = 0, subsampling, space = -1;
    if (t->header(handle, file->bytes, file->size, &width, &height, &subsampling, &space) != 0 &&
        (t->severity(handle) != WARNING || width < 1 || height < 1))
        return damaged(file, t->message(handle), err);
    TM_TRY(tm_image_take(file, width < 0 ? 0 : (uint64_t)width, height < 0 ? 0 : (uint64_t)height, out, err));
    size_t   pixels = (size_t)width * (size_t)height;
    bool     inks = space == SPACE_CMYK || space == SPACE_YCCK;
    uint8_t *four = inks ? tm_alloc(pixels * 4) : NULL;
    int      failed = t->decompress(handle, file->bytes, file->size, inks ? four : out->pixels, width, 0, height,
                               inks ? PIXELS_CMYK : PIXELS_RGB, FLAG_ACCURATE_DCT | FLAG_LIMIT_SCANS);
    if (inks) cmyk_to_rgb(four, pixels, out->pixels);
    free(four);
    if (!failed || (t->severity(handle) == WARNING && harmless(t->message(handle)))) return TM_OK;
    return damaged(file, t->message(handle), err);
}

tm_status tm_image_read_jpeg(const tm_image_file *file, tm_image *out, int *orientation, tm_error *err)
{
    turbojpeg t;
    TM_TRY(load(file, &t, err));
    void *handle = t.open();
    if (!handle) return tm_fail(err, TM_INTERNAL, "libturbojpeg does not begin: %s", t.message(NULL));
    *orientation = find_orientation(file);
    tm_status st = decode(&t, handle, file, out, err);
    t.close(handle);
    return st;
}
