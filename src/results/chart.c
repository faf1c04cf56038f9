/* SPDX-License-Identifier: Apache-2.0 */
#include "results/chart.h"

#include "base/arena.h"
#include "base/plain.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    WIDTH = 760,
    HEIGHT = 330,
    LEFT = 76,
    RIGHT = 14,
    TOP = 34,
    BOTTOM = 76,
    COLOURS = 10,
    MOST_POINTS = 1000,
    KEY_ROW = 16
};

const char *chart_style(void)
{
    return ":root{--ink:#1b1f24;--soft:#59636e;--line:#d1d9e0;--page:#fff;--card:#f6f8fa;--shade:#0969da14;"
           "--c0:#0969da;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;--c4:#bf3989;--c5:#9a6700;--c6:#0f766e;--c7:#cf222e;"
           "--c8:#57606a;--c9:#4c8dbd}\n"
           "@media(prefers-color-scheme:dark){:root{--ink:#e6edf3;--soft:#9198a1;--line:#3d444d;--page:#0d1117;"
           "--card:#151b23;--shade:#4493f826;--c0:#4493f8;--c1:#f0883e;--c2:#3fb950;--c3:#ab7df8;--c4:#f778ba;"
           "--c5:#d29922;--c6:#2dd4bf;--c7:#f85149;--c8:#8b949e;--c9:#79c0ff}}\n"
           "svg.chart{max-width:100%;height:auto;background:var(--page);font:12px system-ui,sans-serif}"
           "svg.chart text{fill:var(--ink)}svg.chart .soft{fill:var(--soft)}svg.chart "
           ".title{font-weight:600;font-size:14px}"
           "svg.chart .grid{stroke:var(--line);stroke-width:1}svg.chart .shade{fill:var(--shade)}"
           "svg.chart polyline{fill:none;stroke-width:1.6}svg.chart .dashed{stroke-dasharray:6 4}"
           ".s0{stroke:var(--c0)}.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}"
           ".s5{stroke:var(--c5)}.s6{stroke:var(--c6)}.s7{stroke:var(--c7)}.s8{stroke:var(--c8)}.s9{stroke:var(--c9)}"
           ".c0{fill:var(--c0)}.c1{fill:var(--c1)}.c2{fill:var(--c2)}.c3{fill:var(--c3)}.c4{fill:var(--c4)}"
           ".c5{fill:var(--c5)}.c6{fill:var(--c6)}.c7{fill:var(--c7)}.c8{fill:var(--c8)}.c9{fill:var(--c9)}\n";
}

void chart_escape(tm_text *out, const char *text)
{
    tm_text plain = { 0 };
    tm_plain_add(&plain, text, 0);
    for (const char *c = plain.data; *c; c++) {
        const char *escaped = *c == '<'    ? "&lt;"
                              : *c == '>'  ? "&gt;"
                              : *c == '&'  ? "&amp;"
                              : *c == '"'  ? "&quot;"
                              : *c == '\'' ? "&#39;"
                                           : NULL;
        if (escaped)
            tm_text_add(out, escaped);
        else
            tm_text_add_n(out, c, 1);
    }
    tm_text_fini(&plain);
}

/* --- scales ------------------------------------------------------------------------------------------------------- */

typedef struct {
    double lo, hi;
    bool   logarithmic;
} scale;

static double place(const scale *s, double value, double from, double to)
{
    double lo = s->logarithmic ? log10(s->lo) : s->lo, hi = s->logarithmic ? log10(s->hi) : s->hi;
    double at = s->logarithmic ? log10(value) : value;
    return from + (to - from) * (hi > lo ? (at - lo) / (hi - lo) : 0.5);
}

static void widen(scale *s, double value)
{
    if (!isfinite(value) || (s->logarithmic && !(value > 0))) return;
    if (!(value >= s->lo)) s->lo = value;
    if (!(value <= s->hi)) s->hi = value;
}

/* 1, 2 or 5 times a power of ten, about a sixth of the range. */
static double step_of(double range)
{
    double rough = range / 6, power = pow(10, floor(log10(rough))), part = rough / power;
    return power * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
}

/* "12.3k", "4.5M": short. */
static void add_number(tm_text *out, double value)
{
    static const struct {
        double      size;
        const char *letter;
    } units[] = { { 1e15, "P" }, { 1e12, "T" }, { 1e9, "G" }, { 1e6, "M" }, { 1e4, "k" } };
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        double unit = units[i].size >= 1e6 ? units[i].size : 1e3;
        if (fabs(value) < units[i].size) continue;
        tm_text_printf(out, "%.4g%s", value / unit, units[i].letter);
        return;
    }
    tm_text_printf(out, "%.4g", fabs(value) < 1e-12 ? 0 : value);
}

static void add_tick(tm_text *out, const scale *s, bool vertical, double value)
{
    if (vertical) {
        double y = place(s, value, HEIGHT - BOTTOM, TOP);
        tm_text_printf(out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT, WIDTH - RIGHT,
                       y, y);
        tm_text_printf(out, "<text class=\"soft\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", LEFT - 6, y + 4);
    } else {
        tm_text_printf(out, "<text class=\"soft\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">",
                       place(s, value, LEFT, WIDTH - RIGHT), HEIGHT - BOTTOM + 16);
    }
    add_number(out, value);
    tm_text_add(out, "</text>");
}

/* 1, 2, 5, 10, ...: of a range of less than two decades, else the powers of ten. */
static void add_log_ticks(tm_text *out, const scale *s, bool vertical)
{
    bool   few = s->hi / s->lo < 100;
    double power = pow(10, floor(log10(s->lo)));
    for (int k = 0; k < 60 && power <= s->hi; k++, power *= 10)
        for (int part = 1; part <= (few ? 5 : 1); part += part == 1 ? 1 : 3)
            if (power * part >= s->lo && power * part <= s->hi) add_tick(out, s, vertical, power * part);
}

static void add_ticks(tm_text *out, const scale *s, bool vertical)
{
    if (s->logarithmic) {
        add_log_ticks(out, s, vertical);
    } else if (!(s->hi > s->lo)) {
        add_tick(out, s, vertical, s->lo); /* one value: its tick says which */
    } else {
        double step = step_of(s->hi - s->lo), first = ceil(s->lo / step - 1e-9);
        for (double k = first; k <= s->hi / step + 1e-9 && k < first + 20; k++) add_tick(out, s, vertical, k * step);
    }
}

static void begin(tm_text *out, const char *id, const char *title, int height)
{
    tm_text_printf(
        out,
        "<svg class=\"chart\" id=\"%s\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\">"
        "<title>",
        id, WIDTH, height);
    chart_escape(out, title);
    tm_text_printf(out, "</title><text class=\"title\" x=\"%d\" y=\"18\">", LEFT);
    chart_escape(out, title);
    tm_text_add(out, "</text>");
}

static void name_axes(tm_text *out, const char *x, const char *y)
{
    tm_text_printf(out, "<text class=\"soft\" x=\"%d\" y=\"%d\" text-anchor=\"end\">", WIDTH - RIGHT,
                   HEIGHT - BOTTOM + 32);
    chart_escape(out, x);
    tm_text_printf(out, "</text><text class=\"soft\" x=\"6\" y=\"%d\">", TOP - 4);
    chart_escape(out, y);
    tm_text_add(out, "</text>");
}

/* Names below the chart, row by row: where the next one begins. */
typedef struct {
    double x, next;
    int    row;
} key_place;

static void advance(key_place *at, const char *name)
{
    double width = 7.0 * (double)tm_utf8_width(name) + 26;
    if (at->next + width > WIDTH && at->next > LEFT) at->next = LEFT, at->row += KEY_ROW;
    at->x = at->next;
    at->next += width;
}

static void add_key(tm_text *out, key_place *at, int colour, const char *name)
{
    advance(at, name);
    tm_text_printf(out,
                   "<rect class=\"c%d\" x=\"%.0f\" y=\"%d\" width=\"10\" height=\"10\"/><text x=\"%.0f\" y=\"%d\">",
                   colour, at->x, at->row - 9, at->x + 14, at->row);
    chart_escape(out, name);
    tm_text_add(out, "</text>");
}

static key_place first_key(void)
{
    return (key_place){ .next = LEFT, .row = HEIGHT - 24 };
}

/* Of a chart whose last name is at `key`. */
static int height_of(const key_place *key)
{
    return HEIGHT + key->row - first_key().row;
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

static bool has_place(const scale *x, const scale *y, double at, double value)
{
    return isfinite(at) && isfinite(value) && (!x->logarithmic || at > 0) && (!y->logarithmic || value > 0);
}

static void add_point(tm_text *out, const scale *x, const scale *y, double at, double value)
{
    if (!has_place(x, y, at, value)) return;
    tm_text_printf(out, "%.1f,%.1f ", place(x, at, LEFT, WIDTH - RIGHT), place(y, value, HEIGHT - BOTTOM, TOP));
}

/* Of every stretch the smallest and the largest, in their order. */
static void add_points(tm_text *out, const scale *x, const scale *y, const chart_series *s)
{
    size_t stretch = s->n > MOST_POINTS ? (2 * s->n + MOST_POINTS - 1) / MOST_POINTS : 1;
    for (size_t first = 0; first < s->n; first += stretch) {
        size_t end = first + stretch < s->n ? first + stretch : s->n, lo = first, hi = first;
        for (size_t i = first; i < end; i++) {
            if (!(s->y[i] >= s->y[lo])) lo = i;
            if (!(s->y[i] <= s->y[hi])) hi = i;
        }
        add_point(out, x, y, s->x[lo < hi ? lo : hi], s->y[lo < hi ? lo : hi]);
        if (lo != hi) add_point(out, x, y, s->x[lo < hi ? hi : lo], s->y[lo < hi ? hi : lo]);
    }
}

static void add_dots(tm_text *out, const scale *x, const scale *y, const chart_series *s)
{
    for (size_t i = 0; i < s->n; i++)
        if (has_place(x, y, s->x[i], s->y[i]))
            tm_text_printf(out, "<circle class=\"c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"4\"/>", s->colour,
                           place(x, s->x[i], LEFT, WIDTH - RIGHT), place(y, s->y[i], HEIGHT - BOTTOM, TOP));
}

void chart_lines(tm_text *out, const chart_lines_options *o)
{
    scale     x = { (double)NAN, (double)NAN, o->log_x }, y = { (double)NAN, (double)NAN, o->log_y };
    key_place key = first_key(), last = key;
    for (size_t i = 0; i < o->n; i++) advance(&last, o->series[i].name);
    for (size_t i = 0; i < o->n; i++)
        for (size_t k = 0; k < o->series[i].n; k++) widen(&x, o->series[i].x[k]), widen(&y, o->series[i].y[k]);
    if (o->from_zero) widen(&y, 0);
    if (o->log_x) x.lo /= 1.5, x.hi *= 1.5;
    if (o->log_y) y.lo /= 1.5, y.hi *= 1.5;
    begin(out, o->id, o->title, height_of(&last));
    if (isfinite(x.lo) && isfinite(y.lo)) {
        if (o->shade_to > o->shade_from) {
            double from = place(&x, fmax(o->shade_from, x.lo), LEFT, WIDTH - RIGHT);
            double to = place(&x, fmin(o->shade_to, x.hi), LEFT, WIDTH - RIGHT);
            tm_text_printf(out, "<rect class=\"shade\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\"/>", from, TOP,
                           to - from, HEIGHT - BOTTOM - TOP);
        }
        add_ticks(out, &y, true);
        add_ticks(out, &x, false);
        for (size_t i = 0; i < o->n; i++) {
            const chart_series *s = &o->series[i];
            if (s->dots) {
                add_dots(out, &x, &y, s);
            } else {
                tm_text_printf(out, "<polyline class=\"s%d%s\" points=\"", s->colour, s->dashed ? " dashed" : "");
                add_points(out, &x, &y, s);
                tm_text_add(out, "\"/>");
            }
            add_key(out, &key, s->colour, s->name);
        }
    }
    name_axes(out, o->x_name, o->y_name);
    tm_text_add(out, "</svg>\n");
}

/* --- stacks ------------------------------------------------------------------------------------------------------- */

void chart_bars(tm_text *out, const chart_bars_options *o)
{
    enum { ROW = 34 };
    int    height = TOP + ROW * (int)o->n_rows + 18 * (int)((o->n_columns + 3) / 4) + 16;
    double most = 0;
    for (size_t r = 0; r < o->n_rows; r++) {
        double sum = 0;
        for (size_t c = 0; c < o->n_columns; c++) sum += fmax(0, o->values[r * o->n_columns + c]);
        most = fmax(most, sum);
    }
    begin(out, o->id, o->title, height);
    for (size_t r = 0; r < o->n_rows && most > 0; r++) {
        double x = LEFT, sum = 0;
        int    y = TOP + ROW * (int)r;
        tm_text_printf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">", LEFT - 6, y + 16);
        chart_escape(out, o->rows[r]);
        tm_text_add(out, "</text>");
        for (size_t c = 0; c < o->n_columns; c++) {
            double value = fmax(0, o->values[r * o->n_columns + c]), width = value / most * (WIDTH - LEFT - RIGHT - 70);
            sum += value;
            if (width < 0.05) continue;
            tm_text_printf(out, "<rect class=\"c%zu\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"24\"><title>",
                           c % COLOURS, x, y, width);
            chart_escape(out, o->columns[c]);
            tm_text_printf(out, ": %.4g %s</title></rect>", value, o->unit);
            x += width;
        }
        tm_text_printf(out, "<text class=\"soft\" x=\"%.1f\" y=\"%d\">%.4g %s</text>", x + 6, y + 16, sum, o->unit);
    }
    for (size_t c = 0; c < o->n_columns; c++) {
        key_place key = { .next = LEFT + (double)(c % 4) * 168,
                          .row = TOP + ROW * (int)o->n_rows + 18 * (int)(c / 4) + 14 };
        add_key(out, &key, (int)(c % COLOURS), o->columns[c]);
    }
    tm_text_add(out, "</svg>\n");
}

void chart_areas(tm_text *out, const chart_areas_options *o)
{
    scale     x = { 0, (double)(o->n_points > 1 ? o->n_points - 1 : 1), false }, y = { 0, o->limit, false };
    double   *below = tm_alloc((o->n_points + 1) * sizeof *below);
    key_place key = first_key(), last = key;
    for (size_t c = 0; c < o->n_columns; c++) advance(&last, o->columns[c]);
    for (size_t p = 0; p < o->n_points; p++) {
        double sum = 0;
        for (size_t c = 0; c < o->n_columns; c++) sum += o->values[c * o->n_points + p];
        widen(&y, sum);
    }
    begin(out, o->id, o->title, height_of(&last));
    add_ticks(out, &y, true);
    for (size_t c = 0; c < o->n_columns; c++) {
        tm_text_printf(out, "<polygon class=\"c%zu\" points=\"", c % COLOURS);
        for (size_t p = o->n_points; p-- > 0;) add_point(out, &x, &y, (double)p, below[p]);
        for (size_t p = 0; p < o->n_points; p++) {
            below[p] += o->values[c * o->n_points + p];
            add_point(out, &x, &y, (double)p, below[p]);
        }
        tm_text_add(out, "\"><title>");
        chart_escape(out, o->columns[c]);
        tm_text_add(out, "</title></polygon>");
        add_key(out, &key, (int)(c % COLOURS), o->columns[c]);
    }
    if (o->limit > 0) {
        double at = place(&y, o->limit, HEIGHT - BOTTOM, TOP);
        tm_text_printf(
            out,
            "<polyline class=\"s7 dashed\" points=\"%d,%.1f %d,%.1f\"/><text class=\"soft\" x=\"%d\" y=\"%.1f\" "
            "text-anchor=\"end\">",
            LEFT, at, WIDTH - RIGHT, at, WIDTH - RIGHT, at - 4);
        chart_escape(out, o->limit_name);
        tm_text_add(out, "</text>");
    }
    name_axes(out, o->x_name, o->y_name);
    tm_text_add(out, "</svg>\n");
    free(below);
}
