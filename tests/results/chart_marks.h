/* SPDX-License-Identifier: Apache-2.0 */
/* tests/results/chart_marks.h - charts read back: lines, bars, areas, points below roofs. */
#ifndef TM_TESTS_RESULTS_CHART_MARKS_H
#define TM_TESTS_RESULTS_CHART_MARKS_H

#include "chart_rules.h"

enum { SERIES_POINTS = 1000 };

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

/* The next number of a list; the list goes on behind it. */
static inline double next_number(const char **at)
{
    char  *end;
    double value = strtod(*at, &end);
    assert_true(end > *at);
    *at = end + (*end == ' ' || *end == ',');
    return value;
}

/* The points, and the same for who points at them: six digits. */
static inline void line_is_drawn(const svg_node *node, const chart_series *s, const chart_axis *x, const chart_axis *y)
{
    const char *at = svg_attribute(node, "points"), *xs = svg_attribute(node, "data-x");
    const char *ys = svg_attribute(node, "data-y");
    assert_true(at && xs && ys);
    for (size_t i = 0; i < s->n; i++) {
        if (!point_shows(x, y, s->x[i], s->y[i]) || !point_stays(s, i)) continue;
        assert_near(next_number(&at), axis_x(x, s->x[i]), 0.06, "a point, across,");
        assert_near(next_number(&at), axis_y(y, s->y[i]), 0.06, "a point, up,");
        assert_near(next_number(&xs), s->x[i], 5e-6 * fabs(s->x[i]), "the step of a point");
        assert_near(next_number(&ys), s->y[i], 5e-6 * fabs(s->y[i]), "the value of a point");
    }
    assert_string_equal(at, "");
    assert_string_equal(xs, "");
    assert_string_equal(ys, "");
}

/* Where a mark is moved to. */
static inline void mark_place(const svg_node *node, double *x, double *y)
{
    const char *place = svg_attribute(node, "transform");
    assert_true(place && sscanf(place, "translate(%lf %lf)", x, y) == 2);
}

static inline void value_is_told(const chart_seen *c, size_t i, const chart_lines_options *o, const chart_series *s,
                                 size_t k)
{
    tm_text wanted = { 0 };
    tm_plain_add(&wanted, s->name, 0);
    tm_text_printf(&wanted, ", %s %.9g: ", o->x_name, s->x[k]);
    const char *is = svg_text(c->page, i);
    assert_true(strncmp(is, wanted.data, wanted.length) == 0);
    char  *end;
    double value = strtod(is + wanted.length, &end);
    double unit = strchr("kMGTP", *end) && *end ? pow(1e3, (double)(strchr("kMGTP", *end) - "kMGTP") + 1) : 1;
    assert_near(value * unit, s->y[k], 5e-4 * fabs(s->y[k]), "a title");
    tm_text_fini(&wanted);
}

/* Hollow marks, of one outline, with their values. Returns the outline. */
static inline const char *dots_are_drawn(const chart_seen *c, size_t *at, const chart_lines_options *o,
                                         const chart_series *s, const chart_axis *x, const chart_axis *y)
{
    char        class_name[16];
    const char *outline = NULL;
    double      px, py;
    snprintf(class_name, sizeof class_name, "s%d mark", s->colour);
    for (size_t i = 0; i < s->n; i++) {
        if (!point_shows(x, y, s->x[i], s->y[i])) continue;
        *at = svg_find(c->page, *at + 1, c->end, "path", class_name);
        assert_true(*at < c->end);
        mark_place(chart_node(c, *at), &px, &py);
        assert_near(px, axis_x(x, s->x[i]), 0.06, "a dot, across,");
        assert_near(py, axis_y(y, s->y[i]), 0.06, "a dot, up,");
        outline = svg_attribute(chart_node(c, *at), "d");
        value_is_told(c, *at, o, s, i);
    }
    return outline;
}

/* The line, and the mark at its end by which it is told from others without colour; NULL: it is dashed instead. */
static inline const char *series_is_drawn(const chart_seen *c, size_t *at, const chart_series *s, const chart_axis *x,
                                          const chart_axis *y)
{
    char   class_name[16];
    double px = 0, py = 0;
    bool   any = false;
    snprintf(class_name, sizeof class_name, "s%d%s", s->colour, s->dashed ? " dashed" : "");
    *at = svg_find(c->page, *at + 1, c->end, "polyline", class_name);
    if (*at == c->end) fail_msg("%s has no line %s", s->name, class_name);
    line_is_drawn(chart_node(c, *at), s, x, y);
    for (size_t i = 0; i < s->n; i++)
        if (point_shows(x, y, s->x[i], s->y[i]) && point_stays(s, i))
            px = axis_x(x, s->x[i]), py = axis_y(y, s->y[i]), any = true;
    if (s->dashed || !any) return NULL;
    double is_x, is_y;
    snprintf(class_name, sizeof class_name, "c%d", s->colour);
    size_t mark = svg_find(c->page, *at, c->end, "path", class_name);
    mark_place(chart_node(c, mark), &is_x, &is_y);
    assert_near(is_x, px, 0.06, "the end of a line");
    assert_near(is_y, py, 0.06, "the end of a line");
    return svg_attribute(chart_node(c, mark), "d");
}

static inline void shade_is_drawn(const chart_seen *c, const chart_lines_options *o, const chart_axis *x)
{
    bool shaded = o->shade_to > o->shade_from;
    assert_int_equal(chart_count(c, "rect", "shade"), shaded ? 2 : 0); /* and in the key */
    if (!shaded) return;
    const svg_node *shade = chart_node(c, chart_find(c, "rect", "shade", 0));
    double          from = axis_x(x, fmax(o->shade_from, x->lo)), to = axis_x(x, fmin(o->shade_to, x->hi));
    assert_near(svg_number(shade, "x"), from, 0.06, "the shade");
    assert_near(svg_number(shade, "width"), to - from, 0.06, "the shade's width");
    assert_true(svg_number(shade, "y") == FRAME_TOP && svg_number(shade, "height") == FRAME_BOTTOM - FRAME_TOP);
    size_t name = svg_find(c->page, chart_find(c, "rect", "shade", 1), c->end, "text", NULL);
    short_says(svg_text(c->page, name), o->shade_name);
}

static inline void lines_are_drawn(const svg_page *page, const chart_lines_options *o)
{
    chart_seen c = chart_of(page, o->id, o->title);
    chart_axis x = { (double)NAN, (double)NAN, false }, y = { (double)NAN, (double)NAN, o->log_y };
    chart_key  key = { .at = c.from, .row = FRAME_BOTTOM + 36 };
    size_t     at = c.from, polylines = 0, want = 0;
    axes_are_named(&c, o->x_name, o->y_name);
    for (size_t i = 0; i < o->n; i++)
        for (size_t k = 0; k < o->series[i].n; k++)
            axis_takes(&x, o->series[i].x[k]), axis_takes(&y, o->series[i].y[k]);
    if (o->from_zero) axis_takes(&y, 0);
    if (o->log_y) y.lo /= 1.5, y.hi *= 1.5;
    if (!isfinite(x.lo) || !isfinite(y.lo)) {
        assert_int_equal(c.end - c.from, 9); /* itself, twice the title, two names, with their texts: no mark */
        return;
    }
    axis_is_labelled(&c, &y, true);
    axis_is_labelled(&c, &x, false);
    shade_is_drawn(&c, o, &x);
    for (size_t i = 0; i < o->n; i++) {
        const chart_series *s = &o->series[i];
        const char *outline = s->dots ? dots_are_drawn(&c, &at, o, s, &x, &y) : series_is_drawn(&c, &at, s, &x, &y);
        short_says(key_next(&c, &key, s->colour, outline), s->name);
        want += !s->dots;
    }
    for (size_t i = c.from; i < c.end; i++) polylines += strcmp(page->nodes[i].tag, "polyline") == 0;
    assert_int_equal(polylines, want);
    assert_true(key.row + 3 <= c.height && c.height <= key.row + 48);
}

/* --- stacks ------------------------------------------------------------------------------------------------------- */

/* Names of parts, each in its colour, with their values if there are any. */
static inline void parts_are_named(const chart_seen *c, size_t at, const char *const *names, const char *const *shown,
                                   const int *colours, size_t n)
{
    chart_key key = { .at = at };
    for (size_t i = 0; i < n; i++) {
        const char *is = key_next(c, &key, colours[i], NULL);
        size_t      m = shown ? strlen(shown[i]) + 1 : 0, length = strlen(is);
        char        name[256];
        assert_true(length > m && length < sizeof name);
        if (shown) assert_true(is[length - m] == ' ' && strcmp(is + length - m + 1, shown[i]) == 0);
        snprintf(name, sizeof name, "%.*s", (int)(length - m), is);
        short_says(name, names[i]);
        for (size_t k = 0; k < i; k++) assert_true(colours[i] != colours[k]);
    }
    assert_true(key.row < c->height && key.row + 40 > c->height);
}

/* Of every row the parts lie side by side in their order, as long as they are large; name and sum are above them. */
static inline void bars_are_drawn(const svg_page *page, const chart_bars_options *o)
{
    enum { LONGEST = PICTURE - 2 * EDGE };
    chart_seen c = chart_of(page, o->id, o->title);
    double     most = 0;
    size_t     at = chart_find(&c, "text", "title", 0), boxes = 0;
    char       class_name[16];
    for (size_t r = 0; r < o->n_rows; r++) {
        double sum = 0;
        for (size_t i = 0; i < o->n_columns; i++) sum += fmax(0, o->values[r * o->n_columns + i]);
        most = fmax(most, sum);
    }
    for (size_t r = 0; r < o->n_rows && most > 0; r++) {
        double x = EDGE;
        at = svg_find(page, at + 1, c.end, "text", NULL);
        assert_true(at < c.end);
        short_says(svg_text(page, at), o->rows[r]);
        double label = svg_number(chart_node(&c, at), "y");
        at = svg_find(page, at + 1, c.end, "text", "soft");
        assert_true(at < c.end);
        chart_says(&c, at, o->sums[r]);
        assert_near(svg_number(chart_node(&c, at), "y"), label, 0, "a sum");
        for (size_t i = 0; i < o->n_columns; i++) {
            double  value = fmax(0, o->values[r * o->n_columns + i]), width = value / most * LONGEST;
            tm_text text = { 0 };
            if (width < 0.05) continue;
            snprintf(class_name, sizeof class_name, "c%d part", o->colours[i]);
            at = svg_find(page, at + 1, c.end, "rect", class_name);
            assert_true(at < c.end);
            const svg_node *box = chart_node(&c, at);
            assert_near(svg_number(box, "x"), x, 0.06, "a part's begin");
            assert_near(svg_number(box, "width"), width, 0.06, "a part's width");
            assert_true(svg_number(box, "height") == 22 && svg_number(box, "y") > label);
            tm_text_printf(&text, "%s, %s: %s", o->rows[r], o->columns[i], o->shown[r * o->n_columns + i]);
            chart_says(&c, svg_find(page, at, c.end, "title", NULL), text.data);
            tm_text_fini(&text);
            x += width;
            boxes++;
        }
    }
    parts_are_named(&c, at, o->columns, o->n_rows == 1 ? o->shown : NULL, o->colours, o->n_columns);
    size_t rects = 0;
    for (size_t i = c.from; i < c.end; i++) rects += strcmp(page->nodes[i].tag, "rect") == 0;
    assert_int_equal(rects, boxes + o->n_columns);
}

/* Every class lies on the sum of those before it; `limit` is a line with its name. */
static inline void areas_are_drawn(const svg_page *page, const chart_areas_options *o)
{
    chart_seen c = chart_of(page, o->id, o->title);
    chart_axis x = { 0, o->n_points > 1 ? (double)o->n_points - 1 : 1, false }, y = { 0, o->limit, false };
    size_t     at = c.from, first = c.end;
    char       class_name[16], text[128];
    axes_are_named(&c, o->x_name, o->y_name);
    for (size_t p = 0; p < o->n_points; p++) {
        double sum = 0;
        for (size_t i = 0; i < o->n_columns; i++) sum += o->values[i * o->n_points + p];
        axis_takes(&y, sum);
    }
    axis_is_labelled(&c, &y, true);
    for (size_t i = 0; i < o->n_columns; i++) {
        snprintf(class_name, sizeof class_name, "c%d part", o->colours[i]);
        at = svg_find(page, at + 1, c.end, "polygon", class_name);
        assert_true(at < c.end);
        const char *points = svg_attribute(chart_node(&c, at), "points");
        assert_non_null(points);
        for (size_t k = 0; k < 2 * o->n_points; k++) { /* the lower edge backwards, then the upper one */
            bool   upper = k >= o->n_points;
            size_t p = upper ? k - o->n_points : o->n_points - 1 - k;
            double sum = 0;
            for (size_t below = 0; below < i + upper; below++) sum += o->values[below * o->n_points + p];
            assert_near(next_number(&points), axis_x(&x, (double)p), 0.06, "an edge, across,");
            assert_near(next_number(&points), axis_y(&y, sum), 0.06, "an edge, up,");
        }
        assert_string_equal(points, "");
        snprintf(text, sizeof text, "%s: %s", o->columns[i], o->shown[i]);
        chart_says(&c, svg_find(page, at, c.end, "title", NULL), text);
    }
    first = svg_find(page, at, c.end, "polyline", "s28 dashed");
    assert_int_equal(first<c.end, o->limit> 0);
    if (o->limit > 0) {
        const char *points = svg_attribute(chart_node(&c, first), "points");
        double      line[4];
        for (int k = 0; k < 4; k++) line[k] = next_number(&points);
        assert_true(line[0] == FRAME_LEFT && line[2] == FRAME_RIGHT);
        assert_near(line[1], axis_y(&y, o->limit), 0.06, "the limit");
        assert_near(line[3], line[1], 0, "the limit");
        at = svg_find(page, first, c.end, "text", "soft");
        chart_says(&c, at, o->limit_name);
        assert_near(svg_number(chart_node(&c, at), "y"), line[1] - 4, 0.11, "the limit's name");
    }
    parts_are_named(&c, at, o->columns, o->shown, o->colours, o->n_columns);
}

/* --- roofline ----------------------------------------------------------------------------------------------------- */

/* The axes again from what is drawn: two ticks and their places. */
static inline chart_axis axis_of_ticks(const chart_seen *c, bool vertical)
{
    double values[2] = { 0, 0 }, places[2] = { 0, 0 };
    size_t n = 0;
    for (size_t at = c->from; (at = svg_find(c->page, at + 1, c->end, "text", "soft")) < c->end;) {
        const svg_node *node = chart_node(c, at);
        const char     *anchor = svg_attribute(node, "text-anchor");
        bool            is_y = svg_number(node, "x") == FRAME_LEFT - 6 && anchor && strcmp(anchor, "end") == 0;
        bool            is_x = anchor && strcmp(anchor, "middle") == 0;
        if (vertical ? !is_y : !is_x) continue;
        values[n > 0] = tick_value(svg_text(c->page, at));
        places[n > 0] = svg_number(node, vertical ? "y" : "x") - (vertical ? 4 : 0);
        n++;
    }
    assert_true(n >= 2);
    double slope = log(values[1] / values[0]) / (places[1] - places[0]);
    double from = vertical ? FRAME_BOTTOM : FRAME_LEFT, to = vertical ? FRAME_TOP : FRAME_RIGHT;
    return (chart_axis){ values[0] * exp(slope * (from - places[0])), values[0] * exp(slope * (to - places[0])), true };
}

/* Two roofs that meet at the ridge; a mark where FLOPs, bytes and seconds of each line put it, with its figures. */
static inline void roofline_reads_back(const svg_page *page, const chart_roofline_options *o)
{
    chart_seen c = chart_of(page, o->id, o->title);
    chart_axis x = axis_of_ticks(&c, false), y = axis_of_ticks(&c, true);
    double     line[4], ridge = o->peak_flops / o->peak_bytes, px, py;
    size_t     memory = chart_find(&c, "polyline", o->bytes_known ? "s28" : "s28 dashed", 0), labels = 0, want = 0;
    size_t     peak = svg_find(page, memory + 1, c.end, "polyline", o->flops_known ? "s28" : "s28 dashed");
    axes_are_named(&c, "FLOP per byte of the operands", "GFLOP/s");
    assert_true(peak < c.end);
    const char *points = svg_attribute(chart_node(&c, memory), "points");
    for (int k = 0; k < 4; k++) line[k] = next_number(&points);
    assert_near(line[2], axis_x(&x, ridge), 0.3, "the ridge");
    assert_near(line[3], axis_y(&y, o->peak_flops / 1e9), 0.3, "the ridge");
    double bytes = o->peak_bytes / 1e9 * x.lo * pow(x.hi / x.lo, (line[0] - FRAME_LEFT) / (FRAME_RIGHT - FRAME_LEFT));
    assert_near(line[1], axis_y(&y, bytes), 0.3, "the memory's roof");
    points = svg_attribute(chart_node(&c, peak), "points");
    for (int k = 0; k < 4; k++)
        assert_near(next_number(&points), k == 2 ? FRAME_RIGHT : line[k % 2 + 2], 0.11, "a roof");
    size_t at = peak;
    for (size_t i = 0; i < o->n; i++) {
        const chart_work *w = &o->works[i];
        char              class_name[8], wanted[256];
        snprintf(class_name, sizeof class_name, "c%d", w->colour);
        at = svg_find(page, at + 1, c.end, "path", class_name);
        assert_true(at < c.end);
        mark_place(chart_node(&c, at), &px, &py);
        assert_near(px, axis_x(&x, w->flops / w->bytes), 0.3, w->name);
        assert_near(py, axis_y(&y, w->flops / w->seconds / 1e9), 0.3, w->name);
        assert_true(px > FRAME_LEFT && px < FRAME_RIGHT && py > FRAME_TOP && py < FRAME_BOTTOM);
        snprintf(wanted, sizeof wanted, "%s: ", w->name);
        const char *told = svg_text(page, at);
        assert_true(strncmp(told, wanted, strlen(wanted)) == 0);
        want += w->label != NULL;
    }
    for (size_t i = svg_find(page, c.from, c.end, "text", "label"); i < c.end;
         i = svg_find(page, i + 1, c.end, "text", "label")) {
        chart_box box = text_box(&c, i);
        labels++;
        for (size_t k = c.from; k < c.end; k++) { /* no label lies on a mark */
            if (strcmp(chart_node(&c, k)->tag, "path") != 0) continue;
            mark_place(chart_node(&c, k), &px, &py);
            chart_box mark = { px - 4, py - 4, px + 4, py + 4 };
            assert_false(boxes_meet(&box, &mark));
        }
    }
    assert_int_equal(labels, want + 1); /* and the ridge */
}

#endif
