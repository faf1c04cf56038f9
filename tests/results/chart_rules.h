/* SPDX-License-Identifier: Apache-2.0 */
/* tests/results/chart_rules.h - charts read back: what a reader takes from the marks, by the ticks beside them, is the
 * data that the chart was made of. */
#ifndef TM_TESTS_RESULTS_CHART_RULES_H
#define TM_TESTS_RESULTS_CHART_RULES_H

#include "base/plain.h"
#include "base/text.h"
#include "results/chart.h"
#include "svg.h"

#include <math.h>

/* The frame of the marks, in units of the picture. */
enum { PICTURE = 760, FRAME_LEFT = 76, FRAME_RIGHT = 746, FRAME_TOP = 34, FRAME_BOTTOM = 254, SERIES_POINTS = 1000 };

typedef struct {
    const svg_page *page;
    size_t          from, end; /* its nodes */
    double          height;
} chart_seen;

typedef struct {
    double lo, hi;
    bool   log;
} chart_axis;

static inline void assert_near(double is, double wanted, double most, const char *what)
{
    if (!(fabs(is - wanted) <= most)) fail_msg("%s is at %.17g, wanted %.17g", what, is, wanted);
}

static inline const svg_node *chart_node(const chart_seen *c, size_t i)
{
    return &c->page->nodes[i];
}

/* The i-th node of this tag and class, which must be there. */
static inline size_t chart_find(const chart_seen *c, const char *tag, const char *class_name, size_t i)
{
    size_t at = svg_find(c->page, c->from + 1, c->end, tag, class_name);
    while (i-- > 0 && at < c->end) at = svg_find(c->page, at + 1, c->end, tag, class_name);
    if (at == c->end) fail_msg("there is no <%s> of class %s", tag, class_name ? class_name : "none");
    return at;
}

static inline size_t chart_count(const chart_seen *c, const char *tag, const char *class_name)
{
    size_t n = 0;
    for (size_t at = c->from + 1; (at = svg_find(c->page, at, c->end, tag, class_name)) < c->end; at++) n++;
    return n;
}

/* Control characters are shown. */
static inline void chart_says(const chart_seen *c, size_t i, const char *wanted)
{
    tm_text plain = { 0 };
    tm_plain_add(&plain, wanted, 0);
    assert_string_equal(svg_text(c->page, i), plain.data);
    tm_text_fini(&plain);
}

/* What is in the picture, its colours in both style sheets. */
static inline void chart_is_sound(const chart_seen *c)
{
    const char *style = chart_style();
    for (size_t i = c->from + 1; i < c->end; i++) {
        const svg_node          *node = chart_node(c, i);
        static const char *const across[] = { "x", "x1", "x2", "cx" }, *const down[] = { "y", "y1", "y2", "cy" };
        char        rule[16];
        const char *class_name = svg_attribute(node, "class");
        for (int k = 0; k < 4; k++) {
            if (svg_attribute(node, across[k])) assert_true(svg_number(node, across[k]) >= 0);
            if (svg_attribute(node, across[k])) assert_true(svg_number(node, across[k]) <= PICTURE);
            if (svg_attribute(node, down[k])) assert_true(svg_number(node, down[k]) >= 0);
            if (svg_attribute(node, down[k])) assert_true(svg_number(node, down[k]) <= c->height);
        }
        if (!class_name || class_name[1] < '0' || class_name[1] > '9') continue;
        snprintf(rule, sizeof rule, ".%.2s{", class_name);
        const char *at = strstr(style, rule);
        snprintf(rule, sizeof rule, "var(--c%c)", class_name[1]);
        assert_true(at && strncmp(strchr(at, ':') + 1, rule, strlen(rule)) == 0);
        assert_true(strncmp(at + 4, class_name[0] == 's' ? "stroke:" : "fill:", 5) == 0);
    }
}

/* The chart `id` of a page. */
static inline chart_seen chart_of(const svg_page *page, const char *id, const char *title)
{
    chart_seen c = { .page = page };
    double     left, top, width;
    for (; c.from < page->n; c.from++) {
        const char *is = svg_attribute(&page->nodes[c.from], "id");
        if (strcmp(page->nodes[c.from].tag, "svg") == 0 && is && strcmp(is, id) == 0) break;
    }
    if (c.from == page->n) fail_msg("there is no chart %s", id);
    const svg_node *node = &page->nodes[c.from];
    const char     *box = svg_attribute(node, "viewBox");
    c.end = node->end;
    assert_string_equal(svg_attribute(node, "class"), "chart");
    assert_string_equal(svg_attribute(node, "xmlns"), "http://www.w3.org/2000/svg");
    assert_string_equal(svg_attribute(node, "role"), "img");
    assert_true(box && sscanf(box, "%lf %lf %lf %lf", &left, &top, &width, &c.height) == 4);
    assert_true(left == 0 && top == 0 && width == PICTURE);
    chart_says(&c, chart_find(&c, "title", NULL, 0), title);
    size_t heading = chart_find(&c, "text", "title", 0);
    chart_says(&c, heading, title);
    assert_near(svg_number(chart_node(&c, heading), "x"), FRAME_LEFT, 0, "the title");
    assert_near(svg_number(chart_node(&c, heading), "y"), 18, 0, "the title");
    chart_is_sound(&c);
    return c;
}

/* --- axes --------------------------------------------------------------------------------------------------------- */

static inline double axis_place(const chart_axis *a, double value, double from, double to)
{
    if (!(a->hi > a->lo)) return (from + to) / 2;
    double part = a->log ? log(value / a->lo) / log(a->hi / a->lo) : (value - a->lo) / (a->hi - a->lo);
    return from + (to - from) * part;
}

static inline double axis_x(const chart_axis *a, double value)
{
    return axis_place(a, value, FRAME_LEFT, FRAME_RIGHT);
}

static inline double axis_y(const chart_axis *a, double value)
{
    return axis_place(a, value, FRAME_BOTTOM, FRAME_TOP);
}

static inline void axis_takes(chart_axis *a, double value)
{
    if (!isfinite(value) || (a->log && !(value > 0))) return;
    a->lo = isnan(a->lo) ? value : fmin(a->lo, value);
    a->hi = isnan(a->hi) ? value : fmax(a->hi, value);
}

/* "12.5k" */
static inline double tick_value(const char *text)
{
    static const char letters[] = "kMGTP";
    char             *end;
    double            value = strtod(text, &end);
    const char       *letter = *end ? strchr(letters, *end) : NULL;
    assert_true(end > text && (*end == 0 || (letter && end[1] == 0)));
    assert_true(strlen(text) <= 10);
    if (fabs(value) < 1e-12) assert_true(value == 0 && *text == '0');
    assert_true(fabs(value) < 1e4 || *end == 'P'); /* else the next letter was due */
    return letter ? value * pow(1e3, (double)(letter - letters + 1)) : value;
}

static inline bool one_two_or_five(double step)
{
    double part = step / pow(10, floor(log10(step * 1.0001)));
    return fabs(part - 1) < 1e-3 || fabs(part - 2) < 2e-3 || fabs(part - 5) < 5e-3;
}

/* Ticks (n, ascending) are round, at equal distances, none is missing, and they are neither few nor many. */
static inline void ticks_are_even(const double *ticks, size_t n, const chart_axis *a)
{
    double range = a->hi - a->lo, step = 0;
    if (!(range > 0)) {
        assert_int_equal(n, 1);
        assert_near(ticks[0], a->lo, 5e-4 * fabs(a->lo), "the only tick");
        return;
    }
    if (n < 3 || n > 11) fail_msg("%zu ticks from %g to %g", n, a->lo, a->hi);
    step = (ticks[n - 1] - ticks[0]) / (double)(n - 1);
    assert_true(one_two_or_five(step));
    assert_true(step > range / 6 / 1.76 && step < range / 6 * 1.51);
    for (size_t i = 0; i < n; i++) {
        assert_near(ticks[i], ticks[0] + (double)i * step, 1e-3 * step + 5e-4 * fabs(ticks[i]), "a tick");
        assert_near(remainder(ticks[i], step), 0, 1e-3 * step + 5e-4 * fabs(ticks[i]), "a tick's remainder");
    }
    double slack = 1e-6 * range + 5e-4 * fmax(fabs(a->lo), fabs(a->hi));
    assert_true(ticks[0] >= a->lo - slack && ticks[n - 1] <= a->hi + slack);
    assert_true(ticks[0] - step < a->lo + slack && ticks[n - 1] + step > a->hi - slack);
}

/* 1, 2 and 5 times the powers of ten of less than two decades, else the powers. */
static inline void ticks_are_decades(const double *ticks, size_t n, const chart_axis *a)
{
    bool   few = a->hi / a->lo < 100;
    size_t wanted = 0;
    for (int power = -30; power < 60; power++)
        for (int k = 0; k < (few ? 3 : 1); k++) {
            double value = (k == 0 ? 1 : k == 1 ? 2 : 5) * pow(10, power);
            if (value < a->lo || value > a->hi) continue;
            assert_true(wanted < n);
            assert_near(ticks[wanted++], value, 1e-3 * value, "a tick");
        }
    assert_int_equal(wanted, n);
}

/* Labels of the axis of y have a line of the grid, those of x stand below the frame. Returns how many. */
static inline void axis_is_labelled(const chart_seen *c, const chart_axis *a, bool vertical)
{
    double ticks[64];
    size_t n = 0;
    for (size_t at = c->from; (at = svg_find(c->page, at + 1, c->end, "text", "soft")) < c->end;) {
        const svg_node *node = chart_node(c, at);
        const char     *anchor = svg_attribute(node, "text-anchor");
        bool            is_y = svg_number(node, "x") == FRAME_LEFT - 6 && anchor && strcmp(anchor, "end") == 0;
        bool            is_x = anchor && strcmp(anchor, "middle") == 0;
        if (vertical ? !is_y : !is_x) continue;
        assert_true(n < 64);
        double value = ticks[n++] = tick_value(svg_text(c->page, at));
        double rounding = 5e-4 * fabs(value);
        double lies = svg_number(node, vertical ? "y" : "x") - (vertical ? 4 : 0);
        double lo = vertical ? axis_y(a, value + rounding)
                             : axis_x(a, fmax(value - rounding, a->log ? 1e-300 : value - rounding));
        double hi = vertical ? axis_y(a, fmax(value - rounding, a->log ? 1e-300 : value - rounding))
                             : axis_x(a, value + rounding);
        if (!(lies >= lo - 0.06 && lies <= hi + 0.06))
            fail_msg("tick %g is at %g, wanted %g to %g", value, lies, lo, hi);
        if (!vertical) {
            assert_near(svg_number(node, "y"), FRAME_BOTTOM + 16, 0, "a tick's label");
            continue;
        }
        const svg_node *line = chart_node(c, chart_find(c, "line", "grid", n - 1));
        assert_near(svg_number(line, "y1"), lies, 0.11, "a line of the grid");
        assert_near(svg_number(line, "y2"), lies, 0.11, "a line of the grid");
        assert_true(svg_number(line, "x1") == FRAME_LEFT && svg_number(line, "x2") == FRAME_RIGHT);
    }
    if (vertical) assert_int_equal(chart_count(c, "line", "grid"), n);
    if (a->log)
        ticks_are_decades(ticks, n, a);
    else
        ticks_are_even(ticks, n, a);
}

static inline void axes_are_named(const chart_seen *c, const char *x_name, const char *y_name)
{
    size_t last = chart_count(c, "text", "soft"), x = chart_find(c, "text", "soft", last - 2);
    size_t y = chart_find(c, "text", "soft", last - 1);
    chart_says(c, x, x_name);
    chart_says(c, y, y_name);
    assert_near(svg_number(chart_node(c, x), "x"), FRAME_RIGHT, 0, "the name of x");
    assert_string_equal(svg_attribute(chart_node(c, x), "text-anchor"), "end");
    assert_near(svg_number(chart_node(c, x), "y"), FRAME_BOTTOM + 32, 0, "the name of x");
    assert_true(svg_number(chart_node(c, y), "x") < FRAME_LEFT && svg_number(chart_node(c, y), "y") < FRAME_TOP);
    assert_null(svg_attribute(chart_node(c, y), "text-anchor"));
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

/* Names of the key with squares of their colours, one after the other; none lies on another one. Returns the last. */
typedef struct {
    size_t at;              /* behind it one looks for the next */
    double right, row, top; /* where the last one ends; no name is above `top` */
} chart_key;

static inline void key_names(const chart_seen *c, chart_key *key, int colour, const char *name)
{
    char class_name[8];
    snprintf(class_name, sizeof class_name, "c%d", colour);
    size_t square = key->at;
    do square = svg_find(c->page, square + 1, c->end, "rect", class_name);
    while (square < c->end && svg_number(chart_node(c, square), "height") != 10);
    if (square == c->end) fail_msg("the key has no %s of colour %d", name, colour);
    const svg_node *box = chart_node(c, square);
    size_t          text = svg_find(c->page, square, c->end, "text", NULL);
    assert_int_equal(text, square + 1);
    chart_says(c, text, name);
    double x = svg_number(box, "x"), row = svg_number(chart_node(c, text), "y"),
           wide = 7.0 * (double)tm_utf8_width(name);
    assert_near(svg_number(box, "width"), 10, 0, "a square of the key");
    assert_near(svg_number(box, "y"), row - 9, 0, "a square of the key");
    assert_near(svg_number(chart_node(c, text), "x"), x + 14, 0, "a name of the key");
    if (key->right > 0 && row == key->row)
        assert_true(x >= key->right - 0.51);
    else
        assert_true(row > key->row && (key->right <= 0 || row - key->row >= 12) && x == FRAME_LEFT);
    if (x > FRAME_LEFT) assert_true(x + 14 + wide <= PICTURE);
    assert_true(row - 9 >= key->top);
    key->right = x + 14 + wide;
    key->row = row;
    key->at = text;
}

/* --- lines -------------------------------------------------------------------------------------------------------- */

static inline bool point_shows(const chart_axis *x, const chart_axis *y, double at, double value)
{
    return isfinite(at) && isfinite(value) && (!x->log || at > 0) && (!y->log || value > 0);
}

/* Which points of a series are drawn: all of a short one; of every stretch of a long one its extremes. */
static inline bool point_stays(const chart_series *s, size_t i)
{
    size_t stretch = s->n > SERIES_POINTS ? (2 * s->n + SERIES_POINTS - 1) / SERIES_POINTS : 1;
    size_t first = i - i % stretch, end = first + stretch < s->n ? first + stretch : s->n;
    bool   least = true, most = true;
    for (size_t k = first; k < end; k++) {
        least = least && (s->y[k] > s->y[i] || (s->y[k] >= s->y[i] && k >= i));
        most = most && (s->y[k] < s->y[i] || (s->y[k] <= s->y[i] && k >= i));
    }
    return stretch == 1 || least || most;
}

static inline void line_is_drawn(const svg_node *node, const chart_series *s, const chart_axis *x, const chart_axis *y)
{
    const char *at = svg_attribute(node, "points");
    char       *end;
    assert_non_null(at);
    for (size_t i = 0; i < s->n; i++) {
        if (!point_shows(x, y, s->x[i], s->y[i]) || !point_stays(s, i)) continue;
        double px = strtod(at, &end);
        assert_true(end > at && *end == ',');
        double py = strtod(at = end + 1, &end);
        assert_true(end > at && *end == ' ');
        at = end + 1;
        assert_near(px, axis_x(x, s->x[i]), 0.06, "a point, across,");
        assert_near(py, axis_y(y, s->y[i]), 0.06, "a point, up,");
    }
    assert_string_equal(at, "");
}

static inline void dots_are_drawn(const chart_seen *c, size_t *at, const chart_series *s, const chart_axis *x,
                                  const chart_axis *y)
{
    char class_name[8];
    snprintf(class_name, sizeof class_name, "c%d", s->colour);
    for (size_t i = 0; i < s->n; i++) {
        if (!point_shows(x, y, s->x[i], s->y[i])) continue;
        *at = svg_find(c->page, *at + 1, c->end, "circle", class_name);
        assert_true(*at < c->end);
        const svg_node *node = chart_node(c, *at);
        assert_near(svg_number(node, "cx"), axis_x(x, s->x[i]), 0.06, "a dot, across,");
        assert_near(svg_number(node, "cy"), axis_y(y, s->y[i]), 0.06, "a dot, up,");
        assert_true(svg_number(node, "r") >= 2);
    }
}

static inline void lines_are_drawn(const svg_page *page, const chart_lines_options *o)
{
    chart_seen c = chart_of(page, o->id, o->title);
    chart_axis x = { (double)NAN, (double)NAN, o->log_x }, y = { (double)NAN, (double)NAN, o->log_y };
    chart_key  key = { .at = c.from, .row = FRAME_BOTTOM, .top = FRAME_BOTTOM + 40 };
    size_t     at = c.from, dots = 0;
    axes_are_named(&c, o->x_name, o->y_name);
    for (size_t i = 0; i < o->n; i++)
        for (size_t k = 0; k < o->series[i].n; k++)
            axis_takes(&x, o->series[i].x[k]), axis_takes(&y, o->series[i].y[k]);
    if (o->from_zero) axis_takes(&y, 0);
    if (o->log_x) x.lo /= 1.5, x.hi *= 1.5;
    if (o->log_y) y.lo /= 1.5, y.hi *= 1.5;
    if (!isfinite(x.lo) || !isfinite(y.lo)) {
        assert_int_equal(c.end - c.from, 9); /* itself, twice the title, two names, with their texts: no mark */
        return;
    }
    axis_is_labelled(&c, &y, true);
    axis_is_labelled(&c, &x, false);
    bool shaded = o->shade_to > o->shade_from;
    assert_int_equal(chart_count(&c, "rect", "shade"), shaded);
    if (shaded) {
        const svg_node *shade = chart_node(&c, chart_find(&c, "rect", "shade", 0));
        double          from = axis_x(&x, fmax(o->shade_from, x.lo)), to = axis_x(&x, fmin(o->shade_to, x.hi));
        assert_near(svg_number(shade, "x"), from, 0.06, "the shade");
        assert_near(svg_number(shade, "width"), to - from, 0.06, "the shade's width");
        assert_true(svg_number(shade, "y") == FRAME_TOP && svg_number(shade, "height") == FRAME_BOTTOM - FRAME_TOP);
    }
    for (size_t i = 0; i < o->n; i++) {
        const chart_series *s = &o->series[i];
        char                class_name[16];
        snprintf(class_name, sizeof class_name, "s%d%s", s->colour, s->dashed ? " dashed" : "");
        if (s->dots) {
            dots_are_drawn(&c, &at, s, &x, &y);
            for (size_t k = 0; k < s->n; k++) dots += point_shows(&x, &y, s->x[k], s->y[k]);
        } else {
            at = svg_find(page, at + 1, c.end, "polyline", class_name);
            if (at == c.end) fail_msg("%s has no line %s", s->name, class_name);
            line_is_drawn(chart_node(&c, at), s, &x, &y);
        }
        key_names(&c, &key, s->colour, s->name);
    }
    size_t circles = 0, polylines = 0, want = 0;
    for (size_t i = c.from; i < c.end; i++) {
        circles += strcmp(page->nodes[i].tag, "circle") == 0;
        polylines += strcmp(page->nodes[i].tag, "polyline") == 0;
    }
    for (size_t i = 0; i < o->n; i++) want += !o->series[i].dots;
    assert_int_equal(circles, dots);
    assert_int_equal(polylines, want);
    assert_true(key.row + 16 <= c.height && (c.height <= 330 || key.row + 32 > c.height));
}

/* --- stacks ------------------------------------------------------------------------------------------------------- */

/* Of every row the parts lie side by side in their order, as long as they are large; their sum is behind them. */
static inline void bars_are_drawn(const svg_page *page, const chart_bars_options *o)
{
    enum { LONGEST = 600 };
    chart_seen c = chart_of(page, o->id, o->title);
    chart_key  key = { .at = c.from };
    double     most = 0, bottom = 0;
    size_t     at = c.from, boxes = 0;
    char       text[64], class_name[8];
    for (size_t r = 0; r < o->n_rows; r++) {
        double sum = 0;
        for (size_t i = 0; i < o->n_columns; i++) sum += fmax(0, o->values[r * o->n_columns + i]);
        most = fmax(most, sum);
    }
    for (size_t r = 0; r < o->n_rows && most > 0; r++) {
        double x = FRAME_LEFT, sum = 0, y = 0;
        at = svg_find(page, at + 1, c.end, "text", NULL);
        assert_true(at < c.end);
        chart_says(&c, at, o->rows[r]);
        double label = svg_number(chart_node(&c, at), "y");
        assert_true(svg_number(chart_node(&c, at), "x") == FRAME_LEFT - 6);
        assert_string_equal(svg_attribute(chart_node(&c, at), "text-anchor"), "end");
        for (size_t i = 0; i < o->n_columns; i++) {
            double value = fmax(0, o->values[r * o->n_columns + i]), width = value / most * LONGEST;
            sum += value;
            if (width < 0.05) continue;
            snprintf(class_name, sizeof class_name, "c%zu", i % 10);
            at = svg_find(page, at + 1, c.end, "rect", class_name);
            assert_true(at < c.end);
            const svg_node *box = chart_node(&c, at);
            y = svg_number(box, "y");
            assert_near(svg_number(box, "x"), x, 0.06, "a part's begin");
            assert_near(svg_number(box, "width"), width, 0.06, "a part's width");
            assert_true(svg_number(box, "height") == 24 && y < label && label < y + 24 && y >= bottom);
            snprintf(text, sizeof text, "%s: %.4g %s", o->columns[i], value, o->unit);
            chart_says(&c, svg_find(page, at, c.end, "title", NULL), text);
            x += width;
            boxes++;
        }
        bottom = y + 24;
        at = svg_find(page, at + 1, c.end, "text", "soft");
        assert_true(at < c.end);
        snprintf(text, sizeof text, "%.4g %s", sum, o->unit);
        chart_says(&c, at, text);
        assert_near(svg_number(chart_node(&c, at), "x"), x + 6, 0.06, "a sum");
        assert_near(svg_number(chart_node(&c, at), "y"), label, 0, "a sum");
    }
    key.at = at;
    for (size_t i = 0; i < o->n_columns; i++) {
        key.row = i == 0 ? bottom : key.row;
        if (i % 4 == 0) key.right = 0; /* four in a row */
        key_names(&c, &key, (int)(i % 10), o->columns[i]);
    }
    assert_true(key.row < c.height && key.row + 40 > c.height);
    size_t rects = 0;
    for (size_t i = c.from; i < c.end; i++) rects += strcmp(page->nodes[i].tag, "rect") == 0;
    assert_int_equal(rects, boxes + o->n_columns);
}

/* Every class lies on the sum of those before it; `limit` is a line with its name. */
static inline void areas_are_drawn(const svg_page *page, const chart_areas_options *o)
{
    chart_seen c = chart_of(page, o->id, o->title);
    chart_axis x = { 0, o->n_points > 1 ? (double)o->n_points - 1 : 1, false }, y = { 0, o->limit, false };
    chart_key  key = { .at = c.from, .row = FRAME_BOTTOM, .top = FRAME_BOTTOM + 40 };
    size_t     at = c.from;
    char       class_name[8];
    axes_are_named(&c, o->x_name, o->y_name);
    for (size_t p = 0; p < o->n_points; p++) {
        double sum = 0;
        for (size_t i = 0; i < o->n_columns; i++) sum += o->values[i * o->n_points + p];
        axis_takes(&y, sum);
    }
    axis_is_labelled(&c, &y, true);
    for (size_t i = 0; i < o->n_columns; i++) {
        snprintf(class_name, sizeof class_name, "c%zu", i % 10);
        at = svg_find(page, at + 1, c.end, "polygon", class_name);
        assert_true(at < c.end);
        const char *points = svg_attribute(chart_node(&c, at), "points");
        char       *end;
        assert_non_null(points);
        for (size_t k = 0; k < 2 * o->n_points; k++) { /* the lower edge backwards, then the upper one */
            bool   upper = k >= o->n_points;
            size_t p = upper ? k - o->n_points : o->n_points - 1 - k;
            double sum = 0;
            for (size_t below = 0; below < i + upper; below++) sum += o->values[below * o->n_points + p];
            double px = strtod(points, &end);
            assert_int_equal(*end, ',');
            double py = strtod(end + 1, &end);
            assert_near(px, axis_x(&x, (double)p), 0.06, "an edge, across,");
            assert_near(py, axis_y(&y, sum), 0.06, "an edge, up,");
            points = end + 1;
        }
        assert_string_equal(points, "");
        chart_says(&c, svg_find(page, at, c.end, "title", NULL), o->columns[i]);
        key_names(&c, &key, (int)(i % 10), o->columns[i]);
    }
    assert_int_equal(chart_count(&c, "polyline", "s7 dashed"), o->limit > 0);
    if (!(o->limit > 0)) return;
    size_t line = chart_find(&c, "polyline", "s7 dashed", 0);
    double from, from_y, to, to_y;
    assert_int_equal(
        sscanf(svg_attribute(chart_node(&c, line), "points"), "%lf,%lf %lf,%lf", &from, &from_y, &to, &to_y), 4);
    assert_true(from == FRAME_LEFT && to == FRAME_RIGHT);
    assert_near(from_y, axis_y(&y, o->limit), 0.06, "the limit");
    assert_near(to_y, from_y, 0, "the limit");
    size_t name = svg_find(page, line, c.end, "text", "soft");
    assert_true(key.row + 16 <= c.height);
    chart_says(&c, name, o->limit_name);
    assert_near(svg_number(chart_node(&c, name), "y"), from_y - 4, 0.11, "the limit's name");
}

#endif
