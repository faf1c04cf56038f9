/* SPDX-License-Identifier: Apache-2.0 */
#include "record/canvas.h"

#include "base/terminal.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static canvas_cell *cell_at(canvas *picture, int x, int y)
{
    return x >= 0 && y >= 0 && x < picture->columns && y < picture->rows ? &picture->cells[y][x] : NULL;
}

static void put(canvas *picture, int x, int y, canvas_hue hue, const char *glyph, size_t bytes)
{
    canvas_cell *cell = cell_at(picture, x, y);
    if (!cell) return;
    *cell = (canvas_cell){ .hue = (unsigned char)hue };
    memcpy(cell->glyph, glyph, bytes);
}

void canvas_clear(canvas *picture, int columns, int rows, bool utf8)
{
    picture->columns = columns < CANVAS_COLUMNS ? columns : CANVAS_COLUMNS;
    picture->rows = rows < CANVAS_ROWS ? rows : CANVAS_ROWS;
    picture->utf8 = utf8;
    for (int y = 0; y < picture->rows; y++)
        for (int x = 0; x < picture->columns; x++) put(picture, x, y, HUE_NONE, " ", 1);
}

int canvas_text(canvas *picture, int x, int y, canvas_hue hue, const char *text)
{
    while (*text && x < picture->columns) {
        const char *end = text;
        int         width = tm_terminal_next(&end);
        size_t      bytes = (size_t)(end - text);
        bool odd = (unsigned char)*text < 0x20 || *text == 0x7F || (bytes == 1 && (unsigned char)*text >= 0x80) ||
                   (bytes > 1 && !picture->utf8);
        if (odd) {
            put(picture, x, y, hue, "?", 1);
            x++;
        } else if (width > 0) {
            if (x + width > picture->columns) break;
            put(picture, x, y, hue, text, bytes);
            if (width == 2) put(picture, x + 1, y, hue, "", 0);
            x += width;
        }
        text = end;
    }
    return x;
}

int canvas_printf(canvas *picture, int x, int y, canvas_hue hue, const char *format, ...)
{
    char    text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return canvas_text(picture, x, y, hue, text);
}

int canvas_bar(canvas *picture, int x, int y, int width, double share, canvas_hue hue)
{
    static const char *const eighths[] = { "", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };
    double                   filled = isfinite(share) ? fmin(fmax(share, 0), 1) * width : 0;
    int                      parts = (int)lround(filled * 8), whole = picture->utf8 ? parts / 8 : (int)lround(filled);
    for (int i = 0; i < whole; i++) canvas_text(picture, x + i, y, hue, picture->utf8 ? "█" : "#");
    if (picture->utf8 && whole < width) canvas_text(picture, x + whole, y, hue, eighths[parts % 8]);
    return x + width;
}

int canvas_spark(canvas *picture, int x, int y, const double *values, int n, canvas_hue hue)
{
    static const char *const blocks[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    static const char *const plain[] = { "_", ".", ",", "-", "=", "+", "*", "#" };
    double                   low = (double)INFINITY, high = -(double)INFINITY;
    for (int i = 0; i < n; i++) {
        if (!isfinite(values[i])) continue;
        low = fmin(low, values[i]);
        high = fmax(high, values[i]);
    }
    for (int i = 0; i < n; i++) {
        int height = high > low && isfinite(values[i]) ? (int)lround((values[i] - low) / (high - low) * 7) : 4;
        if (isfinite(values[i])) canvas_text(picture, x + i, y, hue, (picture->utf8 ? blocks : plain)[height]);
    }
    return x + n;
}

int canvas_dots_across(const canvas *picture)
{
    return picture->utf8 ? 2 : 1;
}

int canvas_dots_down(const canvas *picture)
{
    return picture->utf8 ? 4 : 1;
}

void canvas_dot(canvas *picture, int left, int top, int x, int y, canvas_hue hue)
{
    static const unsigned char bits[4][2] = { { 0x01, 0x08 }, { 0x02, 0x10 }, { 0x04, 0x20 }, { 0x40, 0x80 } };
    canvas_cell *cell = cell_at(picture, left + x / canvas_dots_across(picture), top + y / canvas_dots_down(picture));
    if (!cell || x < 0 || y < 0) return;
    if (!picture->utf8) {
        *cell = (canvas_cell){ .glyph = "*", .hue = (unsigned char)hue };
        return;
    }
    unsigned dots = cell->dots | bits[y % 4][x % 2];
    *cell = (canvas_cell){ .hue = (unsigned char)hue, .dots = (unsigned char)dots };
    cell->glyph[0] = (char)0xE2; /* U+2800 + dots */
    cell->glyph[1] = (char)(0xA0 | dots >> 6);
    cell->glyph[2] = (char)(0x80 | (dots & 0x3F));
}

int canvas_line(const canvas *picture, int y, bool colour, tm_text *out)
{
    static const char *const codes[] = { [HUE_NONE] = "0",  [HUE_DIM] = "2",  [HUE_RUN] = "36", [HUE_VALIDATION] = "33",
                                         [HUE_LINE] = "35", [HUE_BAR] = "34", [HUE_RATE] = "32" };
    const canvas_cell       *cells = picture->cells[y];
    int                      end = picture->columns;
    unsigned char            hue = HUE_NONE;
    while (end > 0 && strcmp(cells[end - 1].glyph, " ") == 0) end--;
    for (int x = 0; x < end; x++) {
        bool blank = strcmp(cells[x].glyph, " ") == 0;
        if (colour && !blank && cells[x].hue != hue) {
            tm_text_printf(out, hue == HUE_NONE || cells[x].hue == HUE_NONE ? "\033[%sm" : "\033[0;%sm",
                           codes[cells[x].hue]);
            hue = cells[x].hue;
        }
        tm_text_add(out, cells[x].glyph);
    }
    if (colour && hue != HUE_NONE) tm_text_add(out, "\033[0m");
    return end;
}
