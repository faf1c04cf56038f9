/* SPDX-License-Identifier: Apache-2.0 */
/* cli/plan_trace.c - the simulated step, piece by piece: as trace events for Perfetto, or as a picture (SVG). */
#include "base/file.h"
#include "base/json.h"
#include "cli/plan_one.h"
#include "op/op.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- trace events ------------------------------------------------------------------------------------------------- */

/* A process of the trace is a rank of the pipeline. */
static void name_process(tm_json *json, int part)
{
    tm_json_open(json, NULL, '{');
    tm_json_string(json, "name", "process_name");
    tm_json_string(json, "ph", "M");
    tm_json_i64(json, "pid", part);
    tm_json_open(json, "args", '{');
    tm_text name = { 0 };
    tm_text_printf(&name, "pipeline rank %d", part);
    tm_json_string(json, "name", name.data);
    tm_text_fini(&name);
    tm_json_close(json, '}');
    tm_json_close(json, '}');
}

/* Chrome's trace events, which Perfetto reads: microseconds, a thread for the programs and for each stream. */
static void events(const plan_one *p, tm_text *out)
{
    tm_json json = { .out = out };
    int     named = -1;
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "displayTimeUnit", "ms");
    tm_json_open(&json, "traceEvents", '[');
    for (size_t i = 0; i < p->time.n_pieces; i++) {
        const tm_simulated_piece *piece = &p->time.piece[i];
        while (named < piece->part) name_process(&json, ++named);
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "name", piece->name ? piece->name : piece->program);
        tm_json_string(&json, "cat", piece->program);
        tm_json_string(&json, "ph", "X");
        tm_json_f64(&json, "ts", piece->begin * 1e6);
        tm_json_f64(&json, "dur", piece->seconds * 1e6);
        tm_json_i64(&json, "pid", piece->part);
        tm_json_string(&json, "tid", piece->name ? tm_stream_label(piece->stream) : "programs");
        tm_json_open(&json, "args", '{');
        if (piece->name) tm_json_string(&json, "module", piece->path);
        if (piece->micro_batch >= 0) tm_json_i64(&json, "micro_batch", piece->micro_batch);
        tm_json_close(&json, '}');
        tm_json_close(&json, '}');
    }
    tm_json_close(&json, ']');
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

/* --- the picture -------------------------------------------------------------------------------------------------- */

/* In units of the picture. A lane is that of the programs, or of a stream. */
enum { LEFT = 150, RIGHT = 990, TOP = 46, LANE = 18, GAP = 10, PROGRAMS = TM_STREAMS, LANES };

/* What a colour stands for: programs, then groups of ops. Colours differ for all kinds of colour vision (Okabe and
 * Ito 2008). */
static const struct {
    const char *what, *colour;
} kinds[] = {
    { "micro-batch", "#7f9fd0" }, { "forward", "#56b4e9" },       { "backward", "#0072b2" }, { "update", "#cc79a7" },
    { "linear", "#009e73" },      { "attention", "#f0e442" },     { "loss", "#882255" },     { "experts", "#d55e00" },
    { "optimizer", "#cc79a7" },   { "communication", "#e69f00" }, { "copies", "#999999" },   { "other ops", "#c7d3dd" },
};
enum { MICRO_BATCH, FORWARD, BACKWARD, UPDATE, COMMUNICATION = 9, COPIES, OTHER, KINDS };

static int kind_of(const tm_simulated_piece *piece)
{
    if (!piece->name) {
        for (int k = FORWARD; k <= UPDATE; k++)
            if (strncmp(piece->program, kinds[k].what, strlen(kinds[k].what)) == 0) return k;
        return MICRO_BATCH; /* forward and backward */
    }
    if (piece->stream == TM_ON_COMMUNICATION) return COMMUNICATION;
    if (piece->stream == TM_ON_COPY) return COPIES;
    for (int id = 0; id < TM_OP_COUNT; id++)
        if (strcmp(tm_op_get((tm_op_id)id)->name, piece->name) == 0)
            for (int k = UPDATE + 1; k < COMMUNICATION; k++)
                if (strcmp(kinds[k].what, tm_op_get((tm_op_id)id)->group) == 0) return k;
    return OTHER;
}

static int lane_of(const tm_simulated_piece *piece)
{
    return piece->name ? (int)piece->stream : PROGRAMS;
}

typedef struct {
    const plan_one *p;
    double          scale; /* units of a second */
    int             parts; /* ranks of the pipeline */
    bool            used[LANES];
    bool            shown[KINDS];
    int             lanes; /* used ones */
} picture;

/* From the top: the programs, then the streams that are used, rank by rank. */
static double top_of(const picture *v, int part, int lane)
{
    int above = 0;
    for (int k = 0; lane != PROGRAMS && k < lane; k++) above += v->used[k];
    if (lane != PROGRAMS) above += v->used[PROGRAMS];
    return TOP + part * (v->lanes * LANE + GAP) + above * LANE;
}

static picture survey(const plan_one *p)
{
    picture v = { .p = p, .scale = (RIGHT - LEFT) / p->time.step, .parts = 1 };
    for (size_t i = 0; i < p->time.n_pieces; i++) {
        const tm_simulated_piece *piece = &p->time.piece[i];
        v.used[lane_of(piece)] = v.shown[kind_of(piece)] = true;
        if (piece->part >= v.parts) v.parts = piece->part + 1;
    }
    for (int k = 0; k < LANES; k++) v.lanes += v.used[k];
    return v;
}

static void words(tm_text *out, double x, double y, const char *anchor, const char *text)
{
    tm_text_printf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, text);
}

static void number(tm_text *out, double x, double y, double value)
{
    char text[48];
    snprintf(text, sizeof text, "%.4g", value);
    words(out, x, y, "middle", text);
}

/* 1, 2 or 5 times a power of ten: at most ten of them. */
static double tick_of(double most)
{
    double tick = pow(10, floor(log10(most / 10)));
    while (most / tick > 10) tick *= most / tick > 20 ? most / tick > 50 ? 10 : 5 : 2;
    return tick;
}

static void axis(const picture *v, double bottom, tm_text *out)
{
    const double ms = v->p->time.step * 1e3, tick = tick_of(ms);
    for (int i = 0; i * tick <= ms * (1 + 1e-9); i++) {
        double x = LEFT + i * tick * 1e-3 * v->scale;
        tm_text_printf(out, "<path d=\"M%.1f %dV%.1f\" class=\"g\"/>\n", x, TOP, bottom);
        number(out, x, bottom + 14, i * tick);
    }
    words(out, (LEFT + RIGHT) / 2.0, bottom + 30, "middle", "milliseconds of the step, predicted");
}

static void legend(const picture *v, tm_text *out)
{
    double x = LEFT;
    for (int k = 0; k < KINDS; k++) {
        if (!v->shown[k]) continue;
        tm_text_printf(out, "<rect x=\"%.1f\" y=\"22\" width=\"12\" height=\"12\" fill=\"%s\"/>\n", x, kinds[k].colour);
        words(out, x + 16, 32, "start", kinds[k].what);
        x += 30 + 7.0 * (double)strlen(kinds[k].what);
    }
}

static void lane_names(const picture *v, tm_text *out)
{
    for (int part = 0; part < v->parts; part++)
        for (int lane = 0; lane < LANES; lane++) {
            tm_text name = { 0 };
            if (!v->used[lane]) continue;
            if (v->parts > 1) tm_text_printf(&name, "stage %d ", part);
            tm_text_add(&name, lane == PROGRAMS ? "programs" : tm_stream_label((tm_stream)lane));
            words(out, LEFT - 8, top_of(v, part, lane) + 12, "end", name.data);
            tm_text_fini(&name);
        }
}

static int by_place(const void *a, const void *b)
{
    const tm_simulated_piece *x = a, *y = b;
    if (x->part != y->part) return x->part - y->part;
    if (lane_of(x) != lane_of(y)) return lane_of(x) - lane_of(y);
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static void bar(const picture *v, const tm_simulated_piece *piece, double end, int64_t pieces, tm_text *out)
{
    double x = LEFT + piece->begin * v->scale, width = (end - piece->begin) * v->scale;
    tm_text_printf(out, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%d\" fill=\"%s\"%s><title>", x,
                   top_of(v, piece->part, lane_of(piece)), width > 0.2 ? width : 0.2, LANE - 3,
                   kinds[kind_of(piece)].colour, piece->name ? "" : " class=\"p\"");
    if (pieces > 1)
        tm_text_printf(out, "%lld ops, ", (long long)pieces);
    else
        tm_text_printf(out, "%s, ", piece->name ? piece->name : piece->program);
    if (piece->micro_batch >= 0) tm_text_printf(out, "micro-batch %lld, ", (long long)piece->micro_batch);
    tm_text_printf(out, "%.4g ms</title></rect>\n", (end - piece->begin) * 1e3);
}

/* Neighbours of one colour that are narrower than a quarter of a unit are one bar. */
static void bars(const picture *v, tm_text *out)
{
    const size_t        n = v->p->time.n_pieces;
    tm_simulated_piece *all = tm_alloc((n + 1) * sizeof *all);
    memcpy(all, v->p->time.piece, n * sizeof *all);
    qsort(all, n, sizeof *all, by_place);
    for (size_t i = 0, next; i < n; i = next) {
        double end = all[i].begin + all[i].seconds;
        for (next = i + 1; next < n; next++) {
            const tm_simulated_piece *b = &all[next];
            bool beside = all[i].name && b->name && b->part == all[i].part && lane_of(b) == lane_of(&all[i]) &&
                          kind_of(b) == kind_of(&all[i]) && (b->begin - end) * v->scale < 0.25;
            if (!beside || (b->begin + b->seconds - all[i].begin) * v->scale > 0.25) break;
            end = b->begin + b->seconds;
        }
        bar(v, &all[i], end, (int64_t)(next - i), out);
    }
    free(all);
}

static void draw(const plan_one *p, tm_text *out)
{
    picture v = survey(p);
    double  bottom = TOP + v.parts * (v.lanes * LANE + GAP), height = bottom + 40;
    tm_text_printf(out,
                   "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 1000 %.0f\" width=\"1000\" height=\"%.0f\" "
                   "font-family=\"sans-serif\" font-size=\"11\" role=\"img\">\n<style>.g{stroke:#d8d8d8}"
                   ".p{stroke:#fff;stroke-width:.6}</style>\n<rect width=\"1000\" height=\"%.0f\" fill=\"#fff\"/>\n",
                   height, height, height);
    tm_text_printf(out,
                   "<text x=\"%d\" y=\"14\" font-size=\"13\">One step, %.4g ms; instructions of a program are "
                   "drawn where it runs first</text>\n",
                   LEFT, p->time.step * 1e3);
    legend(&v, out);
    axis(&v, bottom, out);
    lane_names(&v, out);
    bars(&v, out);
    tm_text_add(out, "</svg>\n");
}

tm_status plan_trace_write(const plan_one *p, tm_error *err)
{
    const char  *path = p->cli.trace;
    const size_t n = strlen(path);
    tm_text      out = { 0 };
    if (n > 4 && strcmp(path + n - 4, ".svg") == 0)
        draw(p, &out);
    else
        events(p, &out);
    tm_status st = tm_file_write(path, out.data, out.length, err);
    tm_text_fini(&out);
    return st;
}
