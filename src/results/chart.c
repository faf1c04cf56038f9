/* SPDX-License-Identifier: Apache-2.0 */
/* results/chart.c - what all charts have: text, scales, ticks, marks, the key. */
#include "results/chart.h"

#include "base/plain.h"
#include "results/chart_frame.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int chart_colour(size_t i)
{
    const size_t hues = CHART_HUES - 1;
    return (int)(CHART_SHADES * (i % hues) + (i / hues % 2 ? CHART_DARK : CHART_PLAIN));
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static void escape(tm_text *out, const char *text, unsigned keep)
{
    tm_text plain = { 0 };
    tm_plain_add(&plain, text, keep);
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

void chart_escape(tm_text *out, const char *text)
{
    escape(out, text, 0);
}

void chart_escape_lines(tm_text *out, const char *text)
{
    escape(out, text, TM_PLAIN_LINES);
}

void chart_add_short(tm_text *out, const char *text, size_t columns)
{
    tm_text plain = { 0 }, cut = { 0 };
    tm_plain_add(&plain, text, 0);
    const char *at = plain.data;
    if (tm_utf8_width(at) > columns) {
        for (size_t i = 0; i + 1 < columns; i++) {
            size_t n = tm_utf8_length((const unsigned char *)at);
            tm_text_add_n(&cut, at, n);
            at += n;
        }
        tm_text_add(&cut, "…");
        at = cut.data;
    }
    escape(out, at, 0);
    tm_text_fini(&plain);
    tm_text_fini(&cut);
}

double chart_text_width(const char *text)
{
    tm_text plain = { 0 };
    tm_plain_add(&plain, text, 0);
    double width = (double)CHART_LETTER * (double)tm_utf8_width(plain.data);
    tm_text_fini(&plain);
    return width;
}

/* --- scales ------------------------------------------------------------------------------------------------------- */

chart_scale chart_scale_new(bool logarithmic)
{
    return (chart_scale){ (double)NAN, (double)NAN, logarithmic };
}

void chart_scale_take(chart_scale *s, double value)
{
    if (!isfinite(value) || (s->logarithmic && !(value > 0))) return;
    if (!(value >= s->lo)) s->lo = value;
    if (!(value <= s->hi)) s->hi = value;
}

double chart_place(const chart_scale *s, double value, double from, double to)
{
    double lo = s->logarithmic ? log10(s->lo) : s->lo, hi = s->logarithmic ? log10(s->hi) : s->hi;
    double at = s->logarithmic ? log10(value) : value;
    return from + (to - from) * (hi > lo ? (at - lo) / (hi - lo) : 0.5);
}

double chart_x(const chart_scale *s, double value)
{
    return chart_place(s, value, CHART_LEFT, CHART_RIGHT);
}

double chart_y(const chart_scale *s, double value)
{
    return chart_place(s, value, CHART_BOTTOM, CHART_TOP);
}

bool chart_has_place(const chart_scale *x, const chart_scale *y, double at, double value)
{
    return isfinite(at) && isfinite(value) && (!x->logarithmic || at > 0) && (!y->logarithmic || value > 0);
}

/* 1, 2 or 5 times a power of ten, about a sixth of the range. */
static double step_of(double range)
{
    double rough = range / 6, power = pow(10, floor(log10(rough))), part = rough / power;
    return power * (part < 1.5 ? 1 : part < 3.5 ? 2 : part < 7.5 ? 5 : 10);
}

void chart_number(tm_text *out, double value)
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

static void add_tick(tm_text *out, const chart_scale *s, bool vertical, double value)
{
    if (vertical) {
        double y = chart_y(s, value);
        tm_text_printf(out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", CHART_LEFT,
                       CHART_RIGHT, y, y);
        tm_text_printf(out, "<text class=\"soft\" x=\"%d\" y=\"%.1f\" text-anchor=\"end\">", CHART_LEFT - 6, y + 4);
    } else {
        tm_text_printf(out, "<text class=\"soft\" x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">", chart_x(s, value),
                       CHART_BOTTOM + 18);
    }
    chart_number(out, value);
    tm_text_add(out, "</text>");
}

/* 1, 2, 5, 10, ...: of a range of less than two decades, else the powers of ten. */
static void add_log_ticks(tm_text *out, const chart_scale *s, bool vertical)
{
    bool   few = s->hi / s->lo < 100;
    double power = pow(10, floor(log10(s->lo)));
    for (int k = 0; k < 60 && power <= s->hi; k++, power *= 10)
        for (int part = 1; part <= (few ? 5 : 1); part += part == 1 ? 1 : 3)
            if (power * part >= s->lo && power * part <= s->hi) add_tick(out, s, vertical, power * part);
}

void chart_ticks(tm_text *out, const chart_scale *s, bool vertical)
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

/* --- around the frame --------------------------------------------------------------------------------------------- */

void chart_begin(tm_text *out, const char *id, const char *title, int height)
{
    enum { TITLE_COLUMNS = 54 };
    tm_text_printf(
        out,
        "<svg class=\"chart\" id=\"%s\" xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" role=\"img\">"
        "<title>",
        id, CHART_WIDTH, height);
    chart_escape(out, title);
    tm_text_printf(out, "</title><text class=\"title\" x=\"%d\" y=\"20\">", CHART_EDGE);
    chart_add_short(out, title, TITLE_COLUMNS);
    tm_text_add(out, "</text>");
}

void chart_name_axes(tm_text *out, const char *x, const char *y)
{
    tm_text_printf(out, "<text class=\"soft\" x=\"%d\" y=\"%d\" text-anchor=\"end\">", CHART_RIGHT, CHART_BOTTOM + 34);
    chart_escape(out, x);
    tm_text_printf(out, "</text><text class=\"soft\" x=\"%d\" y=\"%d\">", CHART_EDGE, CHART_TOP - 17);
    chart_escape(out, y);
    tm_text_add(out, "</text>");
}

void chart_add_mark(tm_text *out, int colour, int shape, bool hollow, double x, double y)
{
    static const char *const outlines[CHART_SHAPES] = {
        "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z", "M-4-4h8v8h-8z",   "M0-5.2L5 4h-10z",
        "M0-5.5L5.5 0L0 5.5L-5.5 0z",          "M0 5.2L5-4h-10z",
    };
    tm_text_printf(out, "<path class=\"%s%d%s\" transform=\"translate(%.1f %.1f)\" d=\"%s\"", hollow ? "s" : "c",
                   colour, hollow ? " mark" : "", x, y, outlines[shape]);
}

chart_key chart_key_new(int row)
{
    return (chart_key){ .x = CHART_EDGE, .next = CHART_EDGE, .row = row };
}

void chart_key_advance(chart_key *key, const char *name)
{
    double width = fmin(chart_text_width(name), (double)CHART_KEY_COLUMNS * CHART_LETTER) + CHART_KEY_TEXT;
    if (key->next + width > CHART_WIDTH && key->next > CHART_EDGE) key->next = CHART_EDGE, key->row += CHART_KEY_ROW;
    key->x = key->next;
    key->next += width + 14;
}

void chart_key_name(tm_text *out, const chart_key *key, const char *name)
{
    tm_text_printf(out, "<text x=\"%.0f\" y=\"%d\">", key->x + CHART_KEY_TEXT, key->row);
    chart_add_short(out, name, CHART_KEY_COLUMNS);
    tm_text_add(out, "</text>");
}

void chart_key_square(tm_text *out, const chart_key *key, const char *class_name)
{
    tm_text_printf(out, "<rect class=\"%s\" x=\"%.0f\" y=\"%d\" width=\"12\" height=\"12\"/>", class_name, key->x + 8,
                   key->row - 10);
}

int chart_height(const chart_key *key)
{
    return key->row + 12;
}
