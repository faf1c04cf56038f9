/* SPDX-License-Identifier: Apache-2.0 */
/* results/chart_frame.h - private to the charts: the frame, its scales and ticks, the key below it. */
#ifndef TM_RESULTS_CHART_FRAME_H
#define TM_RESULTS_CHART_FRAME_H

#include "results/chart.h"

/* In units of the picture. A character of its text takes at most CHART_LETTER. */
enum {
    CHART_WIDTH = 500,
    CHART_EDGE = 10, /* no text begins before it */
    CHART_LEFT = 62,
    CHART_RIGHT = 474,
    CHART_TOP = 56,
    CHART_BOTTOM = 256,
    CHART_KEYS = 312, /* the first row of the key */
    CHART_KEY_ROW = 18,
    CHART_LETTER = 7
};

typedef struct {
    double lo, hi;
    bool   logarithmic;
} chart_scale;

/* A scale without any value yet. */
chart_scale chart_scale_new(bool logarithmic);
void        chart_scale_take(chart_scale *s, double value);
/* Where a value lies between `from` and `to`. */
double chart_place(const chart_scale *s, double value, double from, double to);
double chart_x(const chart_scale *s, double value);
double chart_y(const chart_scale *s, double value);
bool   chart_has_place(const chart_scale *x, const chart_scale *y, double at, double value);

/* <svg>, title and heading; the caller ends it with "</svg>\n". */
void chart_begin(tm_text *out, const char *id, const char *title, int height);
void chart_ticks(tm_text *out, const chart_scale *s, bool vertical);
void chart_name_axes(tm_text *out, const char *x, const char *y);

/* At most `columns` of a text, escaped; a longer one ends in an ellipsis. */
void   chart_add_short(tm_text *out, const char *text, size_t columns);
double chart_text_width(const char *text);

/* A mark of shape 0 .. 4, filled, or hollow; the caller closes the <path> ("/>", or a <title> and "</path>"). */
void chart_add_mark(tm_text *out, int colour, int shape, bool hollow, double x, double y);

/* Names below the frame, row by row: where the next one begins. */
typedef struct {
    double x, next;
    int    row;
} chart_key;
enum { CHART_KEY_TEXT = 28, CHART_KEY_COLUMNS = 62 }; /* where a name begins behind its mark, how much of it is shown */

chart_key chart_key_new(int row);
/* Makes room for a name. */
void chart_key_advance(chart_key *key, const char *name);
/* The name at key->x, behind what was drawn there. */
void chart_key_name(tm_text *out, const chart_key *key, const char *name);
/* A square of this class, whose name the caller writes. */
void chart_key_square(tm_text *out, const chart_key *key, const char *class_name);
/* Height of a chart whose key ends in this row. */
int chart_height(const chart_key *key);

#endif
