/* SPDX-License-Identifier: Apache-2.0 */
/* tests/results/chart_rules.h - charts read back, as a text of what they tell (chart_tells). Every mark lies where its
 * own title says, by the ticks beside it; texts lie in the picture and on no other one. */
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

/* The heading is the title, or its beginning and an ellipsis. */
static inline void heading_is_title(const chart_seen *c)
{
    const char *title = svg_text(c->page, chart_find(c, "title", NULL, 0));
    const char *heading = svg_text(c->page, chart_find(c, "text", "title", 0)), *cut = strstr(heading, "…");
    if (!*heading || strncmp(title, heading, cut ? (size_t)(cut - heading) : strlen(title) + 1) != 0)
        fail_msg("the heading is '%s', the title '%s'", heading, title);
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

/* The chart `id` of a page. */
static inline chart_seen chart_of(const svg_page *page, const char *id)
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
    texts_are_apart(&c);
    heading_is_title(&c);
    return c;
}

/* --- axes --------------------------------------------------------------------------------------------------------- */

/* "12.5k": *end is behind it. */
static inline double letter_number(const char *text, const char **end)
{
    static const char letters[] = "kMGTP";
    char             *behind;
    double            value = strtod(text, &behind);
    if (behind == text) fail_msg("'%s' is no number", text);
    const char *letter = *behind ? strchr(letters, *behind) : NULL;
    *end = behind + (letter != NULL);
    return letter ? value * pow(1e3, (double)(letter - letters + 1)) : value;
}

/* "6.68 MiB", "125 ms", "3 TFLOP/s": in bytes, seconds, whatever else; *end is behind the thousands. */
static inline double amount_with_unit(const char *text, const char **end)
{
    static const struct {
        const char *name;
        double      value;
    } units[] = { { " KiB", 1024 }, { " MiB", 0x1p20 }, { " GiB", 0x1p30 }, { " TiB", 0x1p40 },
                  { " ms", 1e-3 },  { " µs", 1e-6 },    { " min", 60 },     { " M", 1e6 },
                  { " G", 1e9 },    { " T", 1e12 },     { " P", 1e15 } };
    char  *behind;
    double value = strtod(text, &behind);
    if (behind == text) fail_msg("'%s' is no number", text);
    *end = behind;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        size_t n = strlen(units[i].name);
        if (strncmp(behind, units[i].name, n) != 0) continue;
        *end = behind + n;
        return value * units[i].value;
    }
    return value;
}

/* From the left edge of the frame to the right one, or from the bottom to the top. */
static inline double axis_place(const chart_axis *a, double value, bool vertical)
{
    double from = vertical ? FRAME_BOTTOM : FRAME_LEFT, to = vertical ? FRAME_TOP : FRAME_RIGHT;
    if (!(a->hi > a->lo)) return (from + to) / 2;
    double part = a->log ? log(value / a->lo) / log(a->hi / a->lo) : (value - a->lo) / (a->hi - a->lo);
    return from + (to - from) * part;
}

/* Labels have four digits. */
static inline void lies_at(const chart_axis *a, bool vertical, double place, double value, const char *what)
{
    assert_true(vertical ? place >= FRAME_TOP && place <= FRAME_BOTTOM : place >= FRAME_LEFT && place <= FRAME_RIGHT);
    double p = axis_place(a, value * (1 - 6e-4), vertical), q = axis_place(a, value * (1 + 6e-4), vertical);
    if (!(place >= fmin(p, q) - 0.3 && place <= fmax(p, q) + 0.3)) fail_msg("%s: %g lies at %g", what, value, place);
}

/* 1, 2 or 5 times a power of ten. */
static inline bool is_round(double step)
{
    double part = step / pow(10, floor(log10(step * 1.0001)));
    return fabs(part - 1) < 1e-3 || fabs(part - 2) < 2e-3 || fabs(part - 5) < 5e-3;
}

enum { MOST_TICKS = 64 };

/* Ticks are round, none is missing between the ends, and they are neither few nor many. */
static inline void ticks_are_whole(const double *ticks, size_t n, const chart_axis *a)
{
    if (a->log) {
        bool few = a->hi / a->lo < 100;
        for (size_t i = 0; i < n; i++) assert_true(is_round(ticks[i]));
        for (size_t i = 1; i < n; i++) assert_true(ticks[i] / ticks[i - 1] < (few ? 2.51 : 10.1));
        assert_true(ticks[0] / a->lo < 10.1 && a->hi / ticks[n - 1] < 10.1 && (!few || n > 1 || a->hi / a->lo < 2.51));
        return;
    }
    if (n == 1) return;
    double step = (ticks[n - 1] - ticks[0]) / (double)(n - 1), slack = 1e-3 * step;
    assert_true(n >= 3 && n <= 11 && is_round(step));
    assert_near(remainder(ticks[0], step), 0, slack + 5e-4 * fabs(ticks[0]), "the first tick");
    for (size_t i = 1; i < n; i++) assert_near(ticks[i] - ticks[i - 1], step, slack + 1e-3 * fabs(ticks[i]), "a step");
    assert_true(ticks[0] - step < a->lo + slack && ticks[n - 1] + step > a->hi - slack);
}

/* The axis from what is drawn: the first tick and the last one; all others lie between where they have to. */
static inline chart_axis axis_of(const chart_seen *c, bool vertical, bool log_scale)
{
    double ticks[MOST_TICKS], places[MOST_TICKS];
    size_t n = 0;
    for (size_t at = c->from; (at = svg_find(c->page, at + 1, c->end, "text", "soft")) < c->end;) {
        const svg_node *node = chart_node(c, at);
        const char     *anchor = svg_attribute(node, "text-anchor"), *end;
        bool            is_y = svg_number(node, "x") == FRAME_LEFT - 6 && anchor && strcmp(anchor, "end") == 0;
        bool            is_x = anchor && strcmp(anchor, "middle") == 0;
        if (vertical ? !is_y : !is_x) continue;
        assert_true(n < MOST_TICKS);
        ticks[n] = letter_number(svg_text(c->page, at), &end);
        assert_true(*end == 0 && strlen(svg_text(c->page, at)) <= 10);
        places[n++] = svg_number(node, vertical ? "y" : "x") - (vertical ? 4 : 0);
        if (!vertical) assert_near(svg_number(node, "y"), FRAME_BOTTOM + 18, 0, "a label");
        if (!vertical) continue;
        const svg_node *line = chart_node(c, chart_find(c, "line", "grid", n - 1));
        assert_near(svg_number(line, "y1"), places[n - 1], 0.11, "a line of the grid");
        assert_near(svg_number(line, "y2"), places[n - 1], 0.11, "a line of the grid");
        assert_true(svg_number(line, "x1") == FRAME_LEFT && svg_number(line, "x2") == FRAME_RIGHT);
    }
    assert_true(n > 0);
    chart_axis a = { ticks[0], ticks[0], log_scale };
    if (n > 1) {
        double from = vertical ? FRAME_BOTTOM : FRAME_LEFT, to = vertical ? FRAME_TOP : FRAME_RIGHT;
        double first = log_scale ? log(ticks[0]) : ticks[0], last = log_scale ? log(ticks[n - 1]) : ticks[n - 1];
        double slope = (last - first) / (places[n - 1] - places[0]);
        a.lo = first + slope * (from - places[0]), a.hi = first + slope * (to - places[0]);
        if (log_scale) a.lo = exp(a.lo), a.hi = exp(a.hi);
    }
    for (size_t i = 0; i < n; i++) lies_at(&a, vertical, places[i], ticks[i], "a tick");
    ticks_are_whole(ticks, n, &a);
    return a;
}

/* --- what is told ------------------------------------------------------------------------------------------------- */

/* A chart while it is read. */
typedef struct {
    chart_seen  c;
    chart_axis  x, y;
    const char *x_name, *y_name; /* NULL: bars have no axes */
    double      behind, scale;   /* where the next part of a bar begins; units of the picture for one of its values */
    double      below[64];       /* where the next area begins */
    int         areas;
    tm_text    *out;
} chart_reader;

static inline double next_number(const char **at)
{
    char  *end;
    double value = strtod(*at, &end);
    assert_true(end > *at);
    *at = end + (*end == ' ' || *end == ',');
    return value;
}

/* Points, and what they are of: data-x and data-y. */
static inline void tell_line(chart_reader *r, size_t i)
{
    const svg_node *node = chart_node(&r->c, i);
    const char     *at = svg_attribute(node, "points"), *xs = svg_attribute(node, "data-x");
    const char     *ys = svg_attribute(node, "data-y"), *title = svg_text(r->c.page, i);
    tm_text_printf(r->out, "%s%s:", strstr(svg_attribute(node, "class"), "dashed") ? "- " : "", title);
    for (int k = 0; *at; k++) {
        double px = next_number(&at), py = next_number(&at), x = next_number(&xs), y = next_number(&ys);
        lies_at(&r->x, false, px, x, title);
        lies_at(&r->y, true, py, y, title);
        tm_text_printf(r->out, "%s %.6g %.6g", k ? "," : "", x, y);
    }
    assert_true(*xs == 0 && *ys == 0);
    tm_text_add(r->out, "\n");
}

/* "run, step 3: 1.25 nats": there it lies. Of a roofline "line: 3 GFLOP/s, 2 FLOP per byte". */
static inline void lies_as_told(const chart_reader *r, double px, double py, const char *title)
{
    char        before[80];
    const char *at = strrchr(title, ':'), *end;
    double      x, y;
    assert_non_null(at);
    y = letter_number(at + 2, &end);
    if (strstr(end, " GFLOP/s, ") == end) {
        x = letter_number(end + 10, &end);
        assert_string_equal(end, " FLOP per byte");
    } else {
        snprintf(before, sizeof before, ", %s ", r->x_name);
        while (at > title && strncmp(at, before, strlen(before)) != 0) at--;
        x = letter_number(at + strlen(before), &(const char *){ NULL });
        assert_true(*end == ' ' && strcmp(end + 1, r->y_name) == 0);
    }
    lies_at(&r->x, false, px, x, title);
    lies_at(&r->y, true, py, y, title);
}

/* Part by part from the left to the right, as wide as the value in its title. */
static inline void tell_part(chart_reader *r, size_t i)
{
    const svg_node *node = chart_node(&r->c, i);
    const char     *title = svg_text(r->c.page, i), *end;
    double          width = svg_number(node, "width"), value = amount_with_unit(strrchr(title, ':') + 2, &end);
    if (!(r->scale > 0)) r->scale = width / value;
    assert_near(svg_number(node, "x"), r->behind, 0.11, title);
    assert_near(width, r->scale * value, 0.11 + 1.2e-3 * width, title);
    assert_true(svg_number(node, "height") == 22);
    r->behind += width;
    tm_text_printf(r->out, "# %s\n", title);
}

/* A roof has its height, or its slope, in its name: "memory: 3 GB/s, measured". */
static inline void tell_roof(chart_reader *r, size_t i)
{
    const svg_node *node = chart_node(&r->c, i);
    const char     *points = svg_attribute(node, "points"), *title = svg_text(r->c.page, i), *end;
    const char     *digits = strpbrk(title, "0123456789");
    double          rate = amount_with_unit(digits, &end) / 1e9, last = 0;
    bool            bytes = *end == 'B';
    assert_true(bytes || strncmp(end, "FLOP/s", 6) == 0);
    for (int k = 0; k < 2; k++) {
        double px = next_number(&points), py = next_number(&points);
        double x = r->x.lo * pow(r->x.hi / r->x.lo, (px - FRAME_LEFT) / (FRAME_RIGHT - FRAME_LEFT));
        double y = r->y.lo * pow(r->y.hi / r->y.lo, (FRAME_BOTTOM - py) / (FRAME_BOTTOM - FRAME_TOP));
        if (fabs(y / (bytes ? rate * x : rate) - 1) > 0.02) fail_msg("%s: %g at %g", title, y, x);
        assert_true(k == 0 || px > last);
        last = px;
    }
    tm_text_printf(r->out, "%s%s\n", strstr(svg_attribute(node, "class"), "dashed") ? "- " : "", title);
}

/* An area lies on the one before it; `below` (n) is the upper edge so far. Its upper edge, in whole units of the axis.
 */
static inline void tell_area(chart_reader *r, size_t i)
{
    const char *points = svg_attribute(chart_node(&r->c, i), "points");
    double      edges[128];
    size_t      n = 0;
    for (; *points; n++) {
        assert_true(n < 128);
        (void)next_number(&points);
        edges[n] = next_number(&points);
    }
    for (size_t k = 0; k < n / 2; k++)
        assert_near(edges[n / 2 - 1 - k], r->areas ? r->below[k] : FRAME_BOTTOM, 0, "the lower edge of an area");
    tm_text_printf(r->out, "~ %s:", svg_text(r->c.page, i));
    for (size_t k = 0; k < n / 2; k++) {
        r->below[k] = edges[n / 2 + k];
        assert_true(r->below[k] >= FRAME_TOP - 0.06 && r->below[k] <= FRAME_BOTTOM); /* to the place that is printed */
        tm_text_printf(r->out, " %.0f",
                       r->y.lo + (r->y.hi - r->y.lo) * (FRAME_BOTTOM - r->below[k]) / (FRAME_BOTTOM - FRAME_TOP));
    }
    tm_text_add(r->out, "\n");
    r->areas++;
}

/* One node of the picture. */
static inline void tell_node(chart_reader *r, size_t i)
{
    const svg_node *node = chart_node(&r->c, i);
    const char     *class_name = svg_attribute(node, "class"), *title = svg_text(r->c.page, i);
    double          px = 0, py = 0;
    if (strcmp(node->tag, "polyline") == 0 && svg_attribute(node, "data-x")) tell_line(r, i);
    if (strcmp(node->tag, "polyline") == 0 && !svg_attribute(node, "data-x") && *title) tell_roof(r, i);
    if (svg_is(node, "circle", "hit")) lies_as_told(r, svg_number(node, "cx"), svg_number(node, "cy"), title);
    if (strcmp(node->tag, "path") == 0 && *title) {
        assert_int_equal(sscanf(svg_attribute(node, "transform"), "translate(%lf %lf)", &px, &py), 2);
        lies_as_told(r, px, py, title);
        tm_text_printf(r->out, "* %s\n", title);
    }
    if (strcmp(node->tag, "rect") == 0 && strstr(class_name, " part")) tell_part(r, i);
    if (strcmp(node->tag, "polygon") == 0) tell_area(r, i);
    if (strcmp(node->tag, "polyline") == 0 && !*title) { /* a limit, and its name */
        const char *points = svg_attribute(node, "points");
        double      place[4];
        for (int k = 0; k < 4; k++) place[k] = next_number(&points);
        assert_true(place[0] == FRAME_LEFT && place[2] == FRAME_RIGHT && place[1] == place[3]);
        tm_text_printf(r->out, "- %s: %.0f\n", svg_text(r->c.page, node->end),
                       r->y.lo + (r->y.hi - r->y.lo) * (FRAME_BOTTOM - place[1]) / (FRAME_BOTTOM - FRAME_TOP));
    }
    if (svg_is(node, "rect", "shade") && svg_number(node, "y") == FRAME_TOP) {
        double wide = (r->x.hi - r->x.lo) / (FRAME_RIGHT - FRAME_LEFT), from = svg_number(node, "x");
        assert_true(svg_number(node, "height") == FRAME_BOTTOM - FRAME_TOP);
        tm_text_printf(r->out, "[%.2f .. %.2f]\n", r->x.lo + (from - FRAME_LEFT) * wide,
                       r->x.lo + (from + svg_number(node, "width") - FRAME_LEFT) * wide);
    }
    if (svg_is(node, "text", "label")) tm_text_printf(r->out, "%s\n", title);
    if (!svg_is(node, "text", NULL)) return;
    bool row = !r->x_name && svg_number(node, "x") == EDGE && svg_is(chart_node(&r->c, node->end), "text", "soft");
    if (!row) {
        tm_text_printf(r->out, "| %s\n", title);
        return;
    }
    r->behind = EDGE; /* of a bar: its name, and what all of it is */
    tm_text_printf(r->out, "= %s %s\n", title, svg_text(r->c.page, node->end));
}

/* What the chart of this id tells, line by line: its title, axes, lines ("- " dashed ones), "* " marks, "# " parts of
 * bars, which "= " are named, "~ " areas, "[from .. to]" what is shaded, "| " names of the key. */
static inline void chart_tells(const svg_page *page, const char *id, bool log_x, bool log_y, tm_text *out)
{
    chart_reader r = { .c = chart_of(page, id), .out = out };
    size_t       last = 0, n = 0;
    bool         has_areas = false; /* whose axis of x has no ticks */
    for (size_t i = r.c.from; i < r.c.end; i++) has_areas = has_areas || strcmp(page->nodes[i].tag, "polygon") == 0;
    out->length = 0;
    tm_text_add(out, svg_text(page, chart_find(&r.c, "title", NULL, 0)));
    for (size_t i = r.c.from; (i = svg_find(page, i + 1, r.c.end, "text", "soft")) < r.c.end; n++) last = i;
    if (last && svg_number(chart_node(&r.c, last), "x") == EDGE) {
        r.y_name = svg_text(page, last);
        r.x_name = svg_text(page, chart_find(&r.c, "text", "soft", n - 2));
        tm_text_printf(out, "; %s over %s", r.y_name, r.x_name);
    }
    if (r.y_name && n > 2) r.y = axis_of(&r.c, true, log_y);
    if (r.y_name && n > 2 && !has_areas) r.x = axis_of(&r.c, false, log_x);
    bool zero = !log_y && r.y.hi > r.y.lo && fabs(r.y.lo) < 1e-3 * (r.y.hi - r.y.lo);
    tm_text_add(out, zero ? "; from zero\n" : "\n");
    for (size_t i = r.c.from + 1; i < r.c.end; i++) tell_node(&r, i);
}

#endif
