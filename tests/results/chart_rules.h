/* SPDX-License-Identifier: Apache-2.0 */
/* tests/results/chart_rules.h - charts read back: what a reader takes from the marks, by the ticks beside them, is the
 * data that the chart was made of. Here the frame, its axes and its key; the marks: chart_marks.h. */
#ifndef TM_TESTS_RESULTS_CHART_RULES_H
#define TM_TESTS_RESULTS_CHART_RULES_H

#include "base/plain.h"
#include "base/text.h"
#include "results/chart.h"
#include "svg.h"

#include <math.h>

/* The frame of the marks, in units of the picture. */
enum { PICTURE = 500, EDGE = 10, FRAME_LEFT = 62, FRAME_RIGHT = 474, FRAME_TOP = 56, FRAME_BOTTOM = 256 };

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

/* A text that may have been cut, which an ellipsis then shows. */
static inline void short_says(const char *is, const char *wanted)
{
    static const char dots[] = "…";
    size_t            n = strlen(is), m = sizeof dots - 1;
    tm_text           plain = { 0 };
    tm_plain_add(&plain, wanted, 0);
    if (n > m && strcmp(is + n - m, dots) == 0)
        assert_true(tm_utf8_width(plain.data) > tm_utf8_width(is) && strncmp(is, plain.data, n - m) == 0);
    else
        assert_string_equal(is, plain.data);
    tm_text_fini(&plain);
}

/* The room that a text takes at most: 7 for a letter, more in a heading. */
typedef struct {
    double left, top, right, bottom;
} chart_box;

static inline chart_box text_box(const chart_seen *c, size_t i)
{
    const svg_node *node = chart_node(c, i);
    const char     *anchor = svg_attribute(node, "text-anchor");
    bool            heading = svg_is(node, "text", "title");
    double          x = svg_number(node, "x"), y = svg_number(node, "y");
    double          wide = (heading ? 8.5 : 7) * (double)tm_utf8_width(svg_text(c->page, i));
    double          left = !anchor ? x : strcmp(anchor, "end") == 0 ? x - wide : x - wide / 2;
    return (chart_box){ left, y - (heading ? 12 : 10), left + wide, y + 3 };
}

static inline bool boxes_meet(const chart_box *a, const chart_box *b)
{
    return a->left < b->right && b->left < a->right && a->top < b->bottom && b->top < a->bottom;
}

/* Every text is in the picture, and none lies on another one. */
static inline void texts_are_apart(const chart_seen *c)
{
    chart_box boxes[256];
    size_t    nodes[256], n = 0;
    for (size_t i = c->from + 1; i < c->end; i++) {
        if (strcmp(chart_node(c, i)->tag, "text") != 0) continue;
        assert_true(n < 256);
        boxes[n] = text_box(c, i);
        nodes[n] = i;
        if (boxes[n].left < 0 || boxes[n].top < 0 || boxes[n].right > PICTURE || boxes[n].bottom > c->height)
            fail_msg("'%s' is not in the picture: %g to %g", svg_text(c->page, i), boxes[n].left, boxes[n].right);
        for (size_t k = 0; k < n; k++)
            if (boxes_meet(&boxes[k], &boxes[n]))
                fail_msg("'%s' lies on '%s'", svg_text(c->page, i), svg_text(c->page, nodes[k]));
        n++;
    }
}

/* The colour of a class ("c12", "s3 dashed"); -1: it is none of a colour. */
static inline int colour_of(const char *class_name)
{
    char *end;
    if (!class_name || (*class_name != 'c' && *class_name != 's')) return -1;
    long colour = strtol(class_name + 1, &end, 10);
    return end > class_name + 1 && (*end == 0 || *end == ' ') ? (int)colour : -1;
}

/* What is in the picture, its colours in the style sheet, no text on another one. */
static inline void chart_is_sound(const chart_seen *c)
{
    const char *style = chart_style();
    for (size_t i = c->from + 1; i < c->end; i++) {
        const svg_node          *node = chart_node(c, i);
        static const char *const across[] = { "x", "x1", "x2", "cx" }, *const down[] = { "y", "y1", "y2", "cy" };
        char        rule[40];
        const char *class_name = svg_attribute(node, "class");
        for (int k = 0; k < 4; k++) {
            if (svg_attribute(node, across[k])) assert_true(svg_number(node, across[k]) >= 0);
            if (svg_attribute(node, across[k])) assert_true(svg_number(node, across[k]) <= PICTURE);
            if (svg_attribute(node, down[k])) assert_true(svg_number(node, down[k]) >= 0);
            if (svg_attribute(node, down[k])) assert_true(svg_number(node, down[k]) <= c->height);
        }
        int colour = colour_of(class_name);
        if (colour < 0) continue;
        snprintf(rule, sizeof rule, ".%c%d{%s:var(--c%d)}", *class_name, colour, *class_name == 's' ? "stroke" : "fill",
                 colour);
        if (!strstr(style, rule)) fail_msg("the style has no rule %s", rule);
    }
    texts_are_apart(c);
}

/* The chart `id` of a page. */
static inline chart_seen chart_of(const svg_page *page, const char *id, const char *title)
{
    chart_seen c = { .page = page };
    double     left = 0, top = 0, width = 0;
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
    short_says(svg_text(page, heading), title);
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
        if (vertical ? !is_y : !is_x || svg_number(node, "y") != FRAME_BOTTOM + 18) continue;
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
            assert_near(svg_number(node, "y"), FRAME_BOTTOM + 18, 0, "a tick's label");
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
    assert_near(svg_number(chart_node(c, x), "y"), FRAME_BOTTOM + 34, 0, "the name of x");
    assert_true(svg_number(chart_node(c, y), "x") == EDGE && svg_number(chart_node(c, y), "y") < FRAME_TOP);
    assert_null(svg_attribute(chart_node(c, y), "text-anchor"));
}

/* --- keys --------------------------------------------------------------------------------------------------------- */

/* Names of the key, in rows below the frame, each behind a mark of its colour. */
typedef struct {
    size_t at;  /* behind it one looks for the next */
    double row; /* of the last one */
} chart_key;

/* The next name of the key has a mark of this colour (and of this outline, NULL: any) before it. Returns its text. */
static inline const char *key_next(const chart_seen *c, chart_key *key, int colour, const char *outline)
{
    size_t text = svg_find(c->page, key->at + 1, c->end, "text", NULL), mark = text;
    assert_true(text < c->end);
    while (mark > key->at && colour_of(svg_attribute(chart_node(c, mark), "class")) != colour) mark--;
    if (mark == key->at) fail_msg("'%s' of the key has no colour %d", svg_text(c->page, text), colour);
    if (outline) {
        for (mark = key->at + 1; mark < text; mark++) {
            const char *is = svg_attribute(chart_node(c, mark), "d");
            if (is && strcmp(is, outline) == 0) break;
        }
        if (mark == text) fail_msg("'%s' of the key has not the marks of its line", svg_text(c->page, text));
    }
    double row = svg_number(chart_node(c, text), "y");
    assert_true(row >= key->row && (row - key->row < 1 || row - key->row >= 14));
    key->row = row;
    key->at = text;
    return svg_text(c->page, text);
}

#endif
