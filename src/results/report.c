/* SPDX-License-Identifier: Apache-2.0 */
/* results/report.c - the forms of a report besides the page, and single charts. */
#include "results/report.h"

#include "base/csv.h"
#include "base/json.h"
#include "base/plain.h"
#include "results/chart.h"
#include "results/report_figures.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tm_status tm_report_format_of(const char *path, tm_report_format *format, tm_error *err)
{
    static const char *const ends[] = { ".html", ".md", ".csv", ".json" };
    const char              *dot = strrchr(path, '.');
    for (int i = 0; dot && i < 4; i++) {
        *format = (tm_report_format)i;
        if (strcmp(dot, ends[i]) == 0) return TM_OK;
    }
    return tm_fail(err, TM_USAGE,
                   "'%s': the extension decides the format of the report; wanted .html, .md, .csv or .json", path);
}

/* --- markdown and CSV --------------------------------------------------------------------------------------------- */

/* Control characters shown; what would end the cell, or begin markup, with a backslash before it. */
static void add_markdown(tm_text *out, const char *text)
{
    tm_text plain = { 0 };
    tm_plain_add(&plain, text, 0);
    for (const char *c = plain.data; *c; c++) {
        if (strchr("|<&*`[\\", *c)) tm_text_add(out, "\\");
        tm_text_add_n(out, c, 1);
    }
    tm_text_fini(&plain);
}

static void print_markdown(const report_runs *r, tm_text *out)
{
    tm_text_add(out, "# Training report\n\n| |");
    for (size_t i = 0; i < r->n; i++) tm_text_add(out, " "), add_markdown(out, r->names[i]), tm_text_add(out, " |");
    tm_text_add(out, "\n|---|");
    for (size_t i = 0; i < r->n; i++) tm_text_add(out, "---|");
    tm_text_add(out, "\n");
    for (const report_figure *f = report_figures; f->name; f++) {
        if (report_is_empty(r, f)) continue;
        tm_text_printf(out, "| %s |", f->name);
        for (size_t i = 0; i < r->n; i++) {
            tm_text_add(out, " ");
            add_markdown(out, report_shown(r, i, f));
            tm_text_add(out, " |");
        }
        tm_text_add(out, "\n");
    }
}

static void print_csv(const report_runs *r, tm_text *out)
{
    tm_csv_add(out, "run", true);
    for (const report_figure *f = report_figures; f->name; f++) tm_csv_add(out, f->path, false);
    tm_text_add(out, "\n");
    for (size_t i = 0; i < r->n; i++) {
        tm_csv_add(out, r->names[i], true);
        for (const report_figure *f = report_figures; f->name; f++)
            tm_csv_add(out, tm_result_shown(r->runs[i], f->path), false);
        tm_text_add(out, "\n");
    }
}

/* The figures of each run under their paths in result.json; null where a run has none. */
static void print_json(const report_runs *r, tm_text *out)
{
    tm_json json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '[');
    for (size_t i = 0; i < r->n; i++) {
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "run", r->names[i]);
        for (const report_figure *f = report_figures; f->name; f++) {
            const char *text = tm_result_shown(r->runs[i], f->path);
            double      value = tm_result_number(r->runs[i], f->path);
            if (!isnan(value))
                tm_json_f64(&json, f->path, value);
            else if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
                tm_json_bool(&json, f->path, *text == 't');
            else
                tm_json_string(&json, f->path, *text ? text : NULL);
        }
        tm_json_close(&json, '}');
    }
    tm_json_close(&json, ']');
    if (out->data[out->length - 1] != '\n') tm_text_add(out, "\n");
}

tm_status tm_results_report(const tm_result *const *runs, size_t n, tm_report_format format, tm_text *out,
                            tm_error *err)
{
    report_runs r;
    TM_TRY(report_prepare(runs, n, &r, err));
    if (format == TM_REPORT_HTML) report_page(&r, out);
    if (format == TM_REPORT_MARKDOWN) print_markdown(&r, out);
    if (format == TM_REPORT_CSV) print_csv(&r, out);
    if (format == TM_REPORT_JSON) print_json(&r, out);
    tm_arena_destroy(r.arena);
    return TM_OK;
}

/* --- one chart ---------------------------------------------------------------------------------------------------- */

const char *tm_report_chart(size_t i)
{
    return report_charts[i].name;
}

tm_status tm_results_plot(const tm_result *const *runs, size_t n, const char *chart, tm_text *out, tm_error *err)
{
    report_runs         r;
    const report_chart *c = report_charts;
    tm_text             svg = { 0 }, more = { 0 };
    while (c->name && strcmp(c->name, chart) != 0) c++;
    if (!c->name)
        return tm_fail(err, TM_USAGE,
                       "unknown chart '%.60s'; there are loss, speed, ledger, memory, roofline and numbers", chart);
    TM_TRY(report_prepare(runs, n, &r, err));
    c->draw(&r, 0, &svg);
    c->draw(&r, 1, &more);
    tm_arena_destroy(r.arena);
    bool whole = more.length == 0;
    tm_text_fini(&more);
    if (!whole) {
        tm_text_fini(&svg);
        return tm_fail(err, TM_INVALID,
                       "the losses of these runs have different units, which one chart cannot show: plot the runs of "
                       "each unit alone, or make a page (-o report.html)");
    }
    const char *body = svg.data ? strstr(svg.data, "><title>") : NULL;
    tm_status   st =
        body ? TM_OK
               : tm_fail(err, TM_INVALID, "'%s' holds nothing for the chart %s: it was written by an older version",
                         tm_result_name(runs[0]), chart);
    if (body) {
        tm_text_add_n(out, svg.data, (size_t)(body - svg.data) + 1);
        tm_text_printf(out, "<style>%s</style>", chart_style());
        tm_text_add(out, body + 1);
    }
    tm_text_fini(&svg);
    return st;
}
