/* SPDX-License-Identifier: Apache-2.0 */
/* results/chart_stacks.c - parts of a whole: bars, and areas along a step. */
#include "base/arena.h"
#include "results/chart_frame.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* How many names stand side by side. */
static int names_across(const char *const *names, size_t n, bool shown)
{
    enum { ROOM = CHART_WIDTH / 3 - 32 };
    bool fit = !shown;
    for (size_t c = 0; c < n; c++) fit = fit && chart_text_width(names[c]) <= ROOM;
    return fit ? 3 : 2;
}

/* Names in columns, beside each what `shown` says of it (NULL: nothing). A name too long for its column is cut. */
static void add_keys(tm_text *out, const char *const *names, const char *const *shown, const int *colours, size_t n,
                     int top)
{
    int across = names_across(names, n, shown), room = (CHART_WIDTH / across - CHART_KEY_TEXT - 2) / CHART_LETTER;
    for (size_t c = 0; c < n; c++) {
        chart_key   key = { .x = CHART_EDGE - 8 + (double)((int)c % across) * CHART_WIDTH / across,
                            .row = top + CHART_KEY_ROW * ((int)c / across) };
        const char *value = shown ? shown[c] : "";
        int         columns = room - (int)tm_utf8_width(value) - (shown != NULL);
        char        class_name[8];
        snprintf(class_name, sizeof class_name, "c%d", colours[c]);
        chart_key_square(out, &key, class_name);
        tm_text_printf(out, "<text x=\"%.0f\" y=\"%d\">", key.x + CHART_KEY_TEXT, key.row);
        chart_add_short(out, names[c], columns > 1 ? (size_t)columns : 1);
        if (shown) tm_text_printf(out, " %s", value);
        tm_text_add(out, "</text>");
    }
}

static int height_of(const char *const *names, size_t n, bool shown, int top)
{
    const chart_key last = { .row = top + CHART_KEY_ROW * (((int)n - 1) / names_across(names, n, shown)) };
    return chart_height(&last);
}

static void add_bar(tm_text *out, const chart_bars_options *o, size_t row, double most, int y)
{
    double x = CHART_EDGE;
    for (size_t c = 0; c < o->n_columns; c++) {
        size_t i = row * o->n_columns + c;
        double width = fmax(0, o->values[i]) / most * (CHART_WIDTH - 2 * CHART_EDGE);
        if (width < 0.05) continue;
        tm_text_printf(out, "<rect class=\"c%d part\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"22\"><title>",
                       o->colours[c], x, y, width);
        chart_escape(out, o->rows[row]);
        tm_text_add(out, ", ");
        chart_escape(out, o->columns[c]);
        tm_text_printf(out, ": %s</title></rect>", o->shown[i]);
        x += width;
    }
}

void chart_bars(tm_text *out, const chart_bars_options *o)
{
    enum { FIRST = 34, ROW = 50, NAME_COLUMNS = 50 };
    bool   alone = o->n_rows == 1;
    int    keys = FIRST + ROW * (int)o->n_rows + 16;
    double most = 0;
    for (size_t r = 0; r < o->n_rows; r++) {
        double sum = 0;
        for (size_t c = 0; c < o->n_columns; c++) sum += fmax(0, o->values[r * o->n_columns + c]);
        most = fmax(most, sum);
    }
    chart_begin(out, o->id, o->title, height_of(o->columns, o->n_columns, alone, keys));
    for (size_t r = 0; r < o->n_rows && most > 0; r++) {
        int y = FIRST + ROW * (int)r;
        tm_text_printf(out, "<text x=\"%d\" y=\"%d\">", CHART_EDGE, y + 14);
        chart_add_short(out, o->rows[r], NAME_COLUMNS);
        tm_text_printf(out, "</text><text class=\"soft\" x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>",
                       CHART_WIDTH - CHART_EDGE, y + 14, o->sums[r]);
        add_bar(out, o, r, most, y + 20);
    }
    add_keys(out, o->columns, alone ? o->shown : NULL, o->colours, o->n_columns, keys);
    tm_text_add(out, "</svg>\n");
}

/* --- areas -------------------------------------------------------------------------------------------------------- */

static void add_edge(tm_text *out, const chart_scale *x, const chart_scale *y, double at, double value)
{
    tm_text_printf(out, "%.1f,%.1f ", chart_x(x, at), chart_y(y, value));
}

static void add_limit(tm_text *out, const chart_areas_options *o, const chart_scale *y)
{
    double at = chart_y(y, o->limit);
    tm_text_printf(out, "<polyline class=\"s%d dashed\" points=\"%d,%.1f %d,%.1f\"/>", CHART_GREY, CHART_LEFT, at,
                   CHART_RIGHT, at);
    tm_text_printf(out, "<text class=\"soft\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", CHART_RIGHT, at - 4);
    chart_escape(out, o->limit_name);
    tm_text_add(out, "</text>");
}

void chart_areas(tm_text *out, const chart_areas_options *o)
{
    chart_scale x = { 0, (double)(o->n_points > 1 ? o->n_points - 1 : 1), false }, y = { 0, o->limit, false };
    double     *below = tm_alloc((o->n_points + 1) * sizeof *below);
    for (size_t p = 0; p < o->n_points; p++) {
        double sum = 0;
        for (size_t c = 0; c < o->n_columns; c++) sum += o->values[c * o->n_points + p];
        chart_scale_take(&y, sum);
    }
    chart_begin(out, o->id, o->title, height_of(o->columns, o->n_columns, true, CHART_KEYS));
    chart_ticks(out, &y, true);
    for (size_t c = 0; c < o->n_columns; c++) {
        tm_text_printf(out, "<polygon class=\"c%d part\" points=\"", o->colours[c]);
        for (size_t p = o->n_points; p-- > 0;) add_edge(out, &x, &y, (double)p, below[p]);
        for (size_t p = 0; p < o->n_points; p++) {
            below[p] += o->values[c * o->n_points + p];
            add_edge(out, &x, &y, (double)p, below[p]);
        }
        tm_text_add(out, "\"><title>");
        chart_escape(out, o->columns[c]);
        tm_text_printf(out, ": %s</title></polygon>", o->shown[c]);
    }
    if (o->limit > 0) add_limit(out, o, &y);
    add_keys(out, o->columns, o->shown, o->colours, o->n_columns, CHART_KEYS);
    chart_name_axes(out, o->x_name, o->y_name);
    tm_text_add(out, "</svg>\n");
    free(below);
}
