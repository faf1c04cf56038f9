/* SPDX-License-Identifier: Apache-2.0 */
#include "shapes.h"

#include "base/program.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LARGEST = 256, FAR = 64, FEWEST = 50 };
static const double least_fit = 0.75;

static const struct {
    const char *name;
    double      rgb[3];
} colours[] = { { "red", { 220, 40, 40 } },     { "green", { 40, 170, 60 } },   { "blue", { 50, 80, 220 } },
                { "yellow", { 240, 210, 40 } }, { "purple", { 150, 50, 180 } }, { "orange", { 245, 130, 30 } } };

/* --- shapes of radius 1 around (0, 0); v grows downwards ------------------------------------------------------------
 */

static bool in_circle(double u, double v)
{
    return u * u + v * v <= 0.81;
}

static bool in_square(double u, double v)
{
    return fmax(fabs(u), fabs(v)) <= 0.8;
}

static bool in_triangle(double u, double v)
{
    return v <= 0.6 && fabs(u) <= 0.6 * (v + 1);
}

static bool in_cross(double u, double v)
{
    return fmax(fabs(u), fabs(v)) <= 1 && fmin(fabs(u), fabs(v)) <= 0.3;
}

/* In the triangle between the centre, a tip and the notch beside it? By the angle from the nearest tip. */
static bool in_star(double u, double v)
{
    const double turn = 4 * acos(0) / 5;
    double       tips = atan2(u, -v) / turn, angle = fabs(tips - round(tips)) * turn;
    double       x = hypot(u, v) * cos(angle), y = hypot(u, v) * sin(angle);
    return (1 - 0.42 * cos(turn / 2)) * y <= 0.42 * sin(turn / 2) * (1 - x);
}

static const struct {
    const char *name;
    bool (*inside)(double u, double v);
    double area, below; /* how far the centroid lies below (0, 0) */
} kinds[] = { { "circle", in_circle, 2.544690, 0 },
              { "square", in_square, 2.56, 0 },
              { "triangle", in_triangle, 1.536, 1.0 / 15 },
              { "star", in_star, 1.234349, 0 },
              { "cross", in_cross, 2.04, 0 } };

/* --- pictures -------------------------------------------------------------------------------------------------------
 */

/* Median of a channel over the border. */
static int border_median(const uint8_t *pixels, int rows, int columns, int channel)
{
    int of[256] = { 0 }, all = 2 * (rows + columns) - 4, below = 0, value = 0;
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++)
            if (y == 0 || y == rows - 1 || x == 0 || x == columns - 1) of[pixels[3 * (y * columns + x) + channel]]++;
    while (2 * (below += of[value]) < all) value++;
    return value;
}

static int difference_at(const uint8_t *pixel, const int *ground)
{
    int most = 0;
    for (int c = 0; c < 3; c++) {
        int d = abs(pixel[c] - ground[c]);
        most = d > most ? d : most;
    }
    return most;
}

static double fit_of(size_t kind, const bool *mask, int rows, int columns, double row, double column, double pixels)
{
    double radius = sqrt(pixels / kinds[kind].area);
    int    both = 0, either = 0;
    for (int y = 0; y < rows; y++)
        for (int x = 0; x < columns; x++) {
            bool in = kinds[kind].inside((x - column) / radius, (y - row) / radius + kinds[kind].below);
            both += in && mask[y * columns + x];
            either += in || mask[y * columns + x];
        }
    return (double)both / either;
}

static const char *nearest_colour(const double *rgb)
{
    size_t best = 0;
    double least = INFINITY;
    for (size_t i = 0; i < sizeof colours / sizeof colours[0]; i++) {
        double d = 0;
        for (int c = 0; c < 3; c++) d += (rgb[c] - colours[i].rgb[c]) * (rgb[c] - colours[i].rgb[c]);
        best = d < least ? i : best;
        least = fmin(d, least);
    }
    return colours[best].name;
}

shapes_verdict shapes_judge(const uint8_t *pixels, int rows, int columns)
{
    static bool mask[LARGEST * LARGEST];
    int         ground[3], far = 0, n = rows * columns;
    double      sum = 0, of_rows = 0, of_columns = 0, count = 0, rgb[3] = { 0 };
    TM_ASSERT(rows > 1 && columns > 1 && rows <= LARGEST && columns <= LARGEST);
    for (int c = 0; c < 3; c++) ground[c] = border_median(pixels, rows, columns, c);
    shapes_verdict verdict = { .background = ground[0] + ground[1] + ground[2] > 382 ? "white" : "black" };
    for (int i = 0; i < n; i++) {
        int d = difference_at(pixels + 3 * (ptrdiff_t)i, ground);
        far += d > FAR;
        sum += d > FAR ? d : 0;
    }
    if (far < FEWEST) return verdict;
    for (int i = 0; i < n; i++) {
        mask[i] = difference_at(pixels + 3 * (ptrdiff_t)i, ground) > sum / far / 2;
        if (!mask[i]) continue;
        count++;
        of_rows += i / columns;
        of_columns += i % columns;
        for (int c = 0; c < 3; c++) rgb[c] += pixels[3 * (ptrdiff_t)i + c];
    }
    for (int c = 0; c < 3; c++) rgb[c] /= count;
    verdict.colour = nearest_colour(rgb);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        double fit = fit_of(k, mask, rows, columns, of_rows / count, of_columns / count, count);
        if (fit > verdict.fit && fit >= least_fit && count <= n / 2.0) verdict.shape = kinds[k].name;
        verdict.fit = fmax(fit, verdict.fit);
    }
    return verdict;
}

static bool has_word(const char *text, const char *word)
{
    size_t n = word ? strlen(word) : 0;
    for (const char *at = text; n && (at = strstr(at, word)); at++)
        if ((at == text || at[-1] == ' ') && (at[n] == ' ' || !at[n])) return true;
    return false;
}

bool shapes_match(shapes_verdict verdict, const char *caption)
{
    return has_word(caption, verdict.colour) && has_word(caption, verdict.shape);
}
