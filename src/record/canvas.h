/* SPDX-License-Identifier: Apache-2.0 */
/* record/canvas.h - private to the room: a picture of cells that becomes lines of text. What does not fit is cut off,
 * so that no line is ever wider than the canvas. */
#ifndef TM_RECORD_CANVAS_H
#define TM_RECORD_CANVAS_H

#include "base/text.h"

#include <stdbool.h>

enum { CANVAS_COLUMNS = 320, CANVAS_ROWS = 16 };

typedef enum { HUE_NONE, HUE_DIM, HUE_RUN, HUE_VALIDATION, HUE_LINE, HUE_BAR, HUE_RATE } canvas_hue;

typedef struct {
    char          glyph[5];  /* a character; empty: the right half of the one before */
    unsigned char hue, dots; /* dots: of a braille character; 0: the cell shows the glyph */
} canvas_cell;

typedef struct {
    int         columns, rows; /* at most CANVAS_COLUMNS and CANVAS_ROWS */
    bool        utf8;
    canvas_cell cells[CANVAS_ROWS][CANVAS_COLUMNS];
} canvas;

/* Blank. Sizes beyond the largest are cut down. */
void canvas_clear(canvas *picture, int columns, int rows, bool utf8);
/* The text from (x, y) on; control characters and, without UTF-8, whatever is not ASCII become '?'. Returns the column
 * behind it. */
int canvas_text(canvas *picture, int x, int y, canvas_hue hue, const char *text);
int canvas_printf(canvas *picture, int x, int y, canvas_hue hue, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* A bar of `share` (0 to 1) of `width` cells, in eighths of a cell with UTF-8. Returns the column behind the width. */
int canvas_bar(canvas *picture, int x, int y, int width, double share, canvas_hue hue);
/* Values as columns of different height in one row; those that are not finite stay blank. */
int canvas_spark(canvas *picture, int x, int y, const double *values, int n, canvas_hue hue);
/* A dot at column `x` of 2 in each cell, row `y` of 4, counted from the cell (left, top); without UTF-8 cells are dots.
 */
void canvas_dot(canvas *picture, int left, int top, int x, int y, canvas_hue hue);
/* Dots in a row and in a column of a cell. */
int canvas_dots_across(const canvas *picture), canvas_dots_down(const canvas *picture);

/* Appends row `y` without the blanks at its end and without a line feed. Returns its cells. */
int canvas_line(const canvas *picture, int y, bool colour, tm_text *out);

#endif
