/* SPDX-License-Identifier: Apache-2.0 */
/* results/chart_roofline.c - what the lines of a step reach, below what the machine can do. */
#include "base/arena.h"
#include "results/chart_frame.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SLANT = 24 }; /* boxes along the memory's roof, which no label crosses */

typedef struct {
    double left, top, right, bottom;
} box;

typedef struct {
    const chart_roofline_options *o;
    chart_scale                   x, y;
    double                        ridge; /* FLOP per byte */
    box                          *taken; /* marks and labels */
    size_t                        n_taken;
} roofline;

static double intensity(const chart_work *w)
{
    return w->flops / w->bytes;
}

static double reached(const chart_work *w)
{
    return w->flops / w->seconds / 1e9;
}

static bool overlap(const box *a, const box *b)
{
    return a->left < b->right && b->left < a->right && a->top < b->bottom && b->top < a->bottom;
}

static bool is_free(const roofline *r, const box *b)
{
    if (b->left < CHART_LEFT || b->right > CHART_RIGHT || b->top < CHART_TOP || b->bottom > CHART_BOTTOM) return false;
    for (size_t i = 0; i < r->n_taken; i++)
        if (overlap(b, &r->taken[i])) return false;
    return true;
}

/* Where a label of this width stands: beside its mark, above or below, or as near as there is room. */
static bool find_place(const roofline *r, double x, double y, double width, box *out)
{
    enum { ROW = 15, REACH = 24, GAP = 9 };
    for (int reach = 0; reach <= REACH; reach++)
        for (int aside = 0; 2 * aside <= reach; aside++)
            for (int turn = 0; turn < 6; turn++) {
                int    far = reach - 2 * aside;
                double shift = (turn % 2 ? far : -far) * ROW, away = GAP + 30 * aside;
                double left = turn < 2 ? x + away : turn < 4 ? x - away - width : x - width / 2;
                if (turn >= 4 && far == 0) continue;
                *out = (box){ left, y + shift - 7, left + width, y + shift + 7 };
                if (is_free(r, out)) return true;
            }
    return false;
}

static void add_label(roofline *r, tm_text *out, double x, double y, const char *label)
{
    box place;
    if (!find_place(r, x, y, chart_text_width(label), &place)) return; /* its title still tells */
    r->taken[r->n_taken++] = place;
    double end = fmin(fmax(x, place.left), place.right), middle = (place.top + place.bottom) / 2;
    double edge = middle > y + 7 ? place.top : middle < y - 7 ? place.bottom : middle;
    if (fabs(edge - y) > 9 || fabs(end - x) > 12)
        tm_text_printf(out, "<line class=\"leader\" x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\"/>", x, y, end,
                       edge);
    tm_text_printf(out, "<text class=\"label\" x=\"%.1f\" y=\"%.1f\">", place.left, middle + 4);
    chart_escape(out, label);
    tm_text_add(out, "</text>");
}

/* The scales hold every point, the ridge and both roofs beside it. */
static void find_scales(roofline *r)
{
    const chart_roofline_options *o = r->o;
    r->x = chart_scale_new(true);
    r->y = chart_scale_new(true);
    r->ridge = o->peak_flops / o->peak_bytes;
    chart_scale_take(&r->x, r->ridge / 4);
    chart_scale_take(&r->x, r->ridge * 4);
    chart_scale_take(&r->y, o->peak_flops / 1e9);
    chart_scale_take(&r->y, o->peak_flops / 4e9);
    for (size_t i = 0; i < o->n; i++) {
        chart_scale_take(&r->x, intensity(&o->works[i]));
        chart_scale_take(&r->y, reached(&o->works[i]));
    }
    r->x.lo /= 2, r->x.hi *= 2;
    r->y.lo /= 2, r->y.hi *= 2;
}

static void add_roofs(roofline *r, tm_text *out)
{
    const chart_roofline_options *o = r->o;
    double from = fmax(r->x.lo, r->y.lo * 1e9 / o->peak_bytes), top = chart_y(&r->y, o->peak_flops / 1e9);
    double ridge = chart_x(&r->x, r->ridge);
    tm_text_printf(out, "<polyline class=\"s%d%s\" points=\"%.1f,%.1f %.1f,%.1f\"><title>", CHART_GREY,
                   o->bytes_known ? "" : " dashed", chart_x(&r->x, from), chart_y(&r->y, from * o->peak_bytes / 1e9),
                   ridge, top);
    chart_escape(out, o->bytes_name);
    tm_text_printf(out, "</title></polyline><polyline class=\"s%d%s\" points=\"%.1f,%.1f %d,%.1f\"><title>", CHART_GREY,
                   o->flops_known ? "" : " dashed", ridge, top, CHART_RIGHT, top);
    chart_escape(out, o->flops_name);
    tm_text_add(out, "</title></polyline>");
    r->taken[r->n_taken++] = (box){ ridge, top - 2, CHART_RIGHT, top + 2 };
    for (int i = 0; i < SLANT; i++) {
        double part = (i + 0.5) / SLANT, x = chart_x(&r->x, from) + part * (ridge - chart_x(&r->x, from));
        double y = chart_y(&r->y, from * o->peak_bytes / 1e9) * (1 - part) + top * part;
        r->taken[r->n_taken++] = (box){ x - 4, y - 4, x + 4, y + 4 };
    }
}

static void add_works(roofline *r, tm_text *out)
{
    const chart_roofline_options *o = r->o;
    for (size_t i = 0; i < o->n; i++) {
        double x = chart_x(&r->x, intensity(&o->works[i])), y = chart_y(&r->y, reached(&o->works[i]));
        r->taken[r->n_taken++] = (box){ x - 6, y - 6, x + 6, y + 6 };
    }
    for (size_t i = 0; i < o->n; i++) {
        const chart_work *w = &o->works[i];
        double            x = chart_x(&r->x, intensity(w)), y = chart_y(&r->y, reached(w));
        if (w->label) add_label(r, out, x, y, w->label);
    }
    for (size_t i = 0; i < o->n; i++) {
        const chart_work *w = &o->works[i];
        chart_add_mark(out, w->colour, w->shape, false, chart_x(&r->x, intensity(w)), chart_y(&r->y, reached(w)));
        tm_text_add(out, "><title>");
        chart_escape(out, w->name);
        tm_text_add(out, ": ");
        chart_number(out, reached(w));
        tm_text_add(out, " GFLOP/s, ");
        chart_number(out, intensity(w));
        tm_text_add(out, " FLOP per byte</title></path>");
    }
}

/* The sample rises as much as the roof does. */
static void add_roof_key(tm_text *out, chart_key *key, int rise, bool known, const char *name)
{
    chart_key_advance(key, name);
    tm_text_printf(out, "<line class=\"s%d%s\" x1=\"%.0f\" x2=\"%.0f\" y1=\"%d\" y2=\"%d\" stroke-width=\"2\"/>",
                   CHART_GREY, known ? "" : " dashed", key->x, key->x + 23, key->row - 4 + rise, key->row - 4 - rise);
    chart_key_name(out, key, name);
}

void chart_roofline(tm_text *out, const chart_roofline_options *o)
{
    roofline  r = { .o = o };
    chart_key key = chart_key_new(CHART_KEYS), last = key;
    tm_text   label = { 0 };
    find_scales(&r);
    r.taken = tm_alloc((2 * o->n + SLANT + 4) * sizeof *r.taken);
    chart_key_advance(&last, o->bytes_name);
    chart_key_advance(&last, o->flops_name);
    for (size_t i = 0; i < o->n_groups; i++) chart_key_advance(&last, o->groups[i]);
    chart_begin(out, o->id, o->title, chart_height(&last));
    chart_ticks(out, &r.y, true);
    chart_ticks(out, &r.x, false);
    add_roofs(&r, out);
    add_works(&r, out);
    tm_text_add(&label, "ridge: ");
    chart_number(&label, r.ridge);
    tm_text_add(&label, " FLOP/B");
    double x = chart_x(&r.x, r.ridge), y = chart_y(&r.y, o->peak_flops / 1e9);
    tm_text_printf(out, "<circle class=\"c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"/>", CHART_GREY, x, y);
    add_label(&r, out, x, y - 14, label.data);
    add_roof_key(out, &key, 5, o->bytes_known, o->bytes_name);
    add_roof_key(out, &key, 0, o->flops_known, o->flops_name);
    for (size_t i = 0; i < o->n_groups; i++) {
        chart_key_advance(&key, o->groups[i]);
        chart_add_mark(out, chart_colour(i), (int)(i % CHART_SHAPES), false, key.x + 12, key.row - 4);
        tm_text_add(out, "/>");
        chart_key_name(out, &key, o->groups[i]);
    }
    chart_name_axes(out, "FLOP per byte of the operands", "GFLOP/s");
    tm_text_add(out, "</svg>\n");
    tm_text_fini(&label);
    free(r.taken);
}
