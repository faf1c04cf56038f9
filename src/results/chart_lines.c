/* SPDX-License-Identifier: Apache-2.0 */
/* results/chart_lines.c - lines and marks over steps. */
#include "base/arena.h"
#include "results/chart_frame.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { MOST_POINTS = 1000, MOST_TITLES = 40 };

/* The points of a series that are drawn, in their order: `at` has room for all. Of every stretch of a long one the
 * smallest and the largest. */
static size_t points_of(const chart_series *s, const chart_scale *x, const chart_scale *y, size_t *at)
{
    size_t stretch = s->n > MOST_POINTS ? (2 * s->n + MOST_POINTS - 1) / MOST_POINTS : 1, n = 0;
    for (size_t first = 0; first < s->n; first += stretch) {
        size_t end = first + stretch < s->n ? first + stretch : s->n, lo = first, hi = first;
        for (size_t i = first; i < end; i++) {
            if (!(s->y[i] >= s->y[lo])) lo = i;
            if (!(s->y[i] <= s->y[hi])) hi = i;
        }
        size_t a = lo < hi ? lo : hi, b = lo < hi ? hi : lo;
        if (chart_has_place(x, y, s->x[a], s->y[a])) at[n++] = a;
        if (a != b && chart_has_place(x, y, s->x[b], s->y[b])) at[n++] = b;
    }
    return n;
}

static void add_title(tm_text *out, const chart_lines_options *o, const chart_series *s, size_t i)
{
    tm_text_add(out, "<title>");
    chart_escape(out, s->name);
    tm_text_add(out, ", ");
    chart_escape(out, o->x_name);
    tm_text_printf(out, " %.9g: ", s->x[i]);
    chart_number(out, s->y[i]);
    tm_text_add(out, " ");
    chart_escape(out, o->y_name);
    tm_text_add(out, "</title>");
}

static void add_numbers(tm_text *out, const char *name, const double *values, const size_t *at, size_t n)
{
    tm_text_printf(out, " %s=\"", name);
    for (size_t k = 0; k < n; k++) tm_text_printf(out, k ? " %.6g" : "%.6g", values[at[k]]);
    tm_text_add(out, "\"");
}

static void add_line(tm_text *out, const chart_lines_options *o, const chart_series *s, const chart_scale *x,
                     const chart_scale *y)
{
    size_t *at = tm_alloc((2 * s->n + 1) * sizeof *at), n = points_of(s, x, y, at);
    tm_text_printf(out, "<polyline class=\"s%d%s\" points=\"", s->colour, s->dashed ? " dashed" : "");
    for (size_t k = 0; k < n; k++)
        tm_text_printf(out, k ? " %.1f,%.1f" : "%.1f,%.1f", chart_x(x, s->x[at[k]]), chart_y(y, s->y[at[k]]));
    tm_text_add(out, "\"");
    add_numbers(out, "data-x", s->x, at, n);
    add_numbers(out, "data-y", s->y, at, n);
    tm_text_add(out, "><title>");
    chart_escape(out, s->name);
    tm_text_add(out, "</title></polyline>");
    if (n > 0 && !s->dashed) {
        chart_add_mark(out, s->colour, s->shape, false, chart_x(x, s->x[at[n - 1]]), chart_y(y, s->y[at[n - 1]]));
        tm_text_add(out, "/>");
    }
    for (size_t k = 0; k < n; k += n / MOST_TITLES + 1) {
        tm_text_printf(out, "<circle class=\"hit\" cx=\"%.1f\" cy=\"%.1f\" r=\"6\">", chart_x(x, s->x[at[k]]),
                       chart_y(y, s->y[at[k]]));
        add_title(out, o, s, at[k]);
        tm_text_add(out, "</circle>");
    }
    free(at);
}

static void add_dots(tm_text *out, const chart_lines_options *o, const chart_series *s, const chart_scale *x,
                     const chart_scale *y)
{
    for (size_t i = 0; i < s->n; i++) {
        if (!chart_has_place(x, y, s->x[i], s->y[i])) continue;
        chart_add_mark(out, s->colour, s->shape, true, chart_x(x, s->x[i]), chart_y(y, s->y[i]));
        tm_text_add(out, ">");
        add_title(out, o, s, i);
        tm_text_add(out, "</path>");
    }
}

static void add_key(tm_text *out, chart_key *key, const chart_series *s)
{
    chart_key_advance(key, s->name);
    if (!s->dots)
        tm_text_printf(out, "<line class=\"s%d%s\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%d\" y2=\"%d\" stroke-width=\"2\"/>",
                       s->colour, s->dashed ? " dashed" : "", key->x, key->x + 23, key->row - 4, key->row - 4);
    if (!s->dashed) {
        chart_add_mark(out, s->colour, s->shape, s->dots, key->x + 12, key->row - 4);
        tm_text_add(out, "/>");
    }
    chart_key_name(out, key, s->name);
}

static void add_shade(tm_text *out, const chart_lines_options *o, const chart_scale *x)
{
    double from = chart_x(x, fmax(o->shade_from, x->lo)), to = chart_x(x, fmin(o->shade_to, x->hi));
    tm_text_printf(out, "<rect class=\"shade\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>", from, CHART_TOP,
                   to - from, CHART_BOTTOM - CHART_TOP);
}

void chart_lines(tm_text *out, const chart_lines_options *o)
{
    chart_scale x = chart_scale_new(false), y = chart_scale_new(o->log_y);
    chart_key   key = chart_key_new(CHART_KEYS), last = key;
    bool        shaded = o->shade_to > o->shade_from;
    for (size_t i = 0; i < o->n; i++) chart_key_advance(&last, o->series[i].name);
    if (shaded) chart_key_advance(&last, o->shade_name);
    for (size_t i = 0; i < o->n; i++)
        for (size_t k = 0; k < o->series[i].n; k++) {
            chart_scale_take(&x, o->series[i].x[k]);
            chart_scale_take(&y, o->series[i].y[k]);
        }
    if (o->from_zero) chart_scale_take(&y, 0);
    if (o->log_y) y.lo /= 1.5, y.hi *= 1.5;
    chart_begin(out, o->id, o->title, chart_height(&last));
    if (isfinite(x.lo) && isfinite(y.lo)) {
        if (shaded) add_shade(out, o, &x);
        chart_ticks(out, &y, true);
        chart_ticks(out, &x, false);
        for (size_t i = 0; i < o->n; i++) {
            (o->series[i].dots ? add_dots : add_line)(out, o, &o->series[i], &x, &y);
            add_key(out, &key, &o->series[i]);
        }
        if (shaded) {
            chart_key_advance(&key, o->shade_name);
            chart_key_square(out, &key, "shade");
            chart_key_name(out, &key, o->shade_name);
        }
    }
    chart_name_axes(out, o->x_name, o->y_name);
    tm_text_add(out, "</svg>\n");
}
