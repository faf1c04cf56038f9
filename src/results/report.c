/* SPDX-License-Identifier: Apache-2.0 */
/* results/report.c - the page: figures as result.json has them, charts, what the run was. */
#include "results/report.h"

#include "base/csv.h"
#include "base/json.h"
#include "results/chart.h"
#include "results/internal.h"
#include "results/report_charts.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The figures of a report: what people read, and where it is in result.json. */
static const struct {
    const char *name, *path;
} figures[] = {
    { "verdict", "verdict" },
    { "reason", "reason" },
    { "model", "model" },
    { "parameters", "parameters" },
    { "number format", "precision" },
    { "device", "device" },
    { "threads", "threads" },
    { "data", "data_source" },
    { "steps", "steps/done" },
    { "stopped because", "steps/stopped" },
    { "tokens per second and device (median)", "tokens_per_second_per_device/median" },
    { "from", "tokens_per_second_per_device/lo" },
    { "to", "tokens_per_second_per_device/hi" },
    { "over all counted steps", "tokens_per_second_per_device_overall/value" },
    { "step time (median), s", "step_time/median" },
    { "step time p95, s", "step_time/p95" },
    { "variation of step times, %", "step_time/variation_percent" },
    { "steady state reached", "steady_state/reached" },
    { "loss, first step", "loss/first" },
    { "loss, last step", "loss/last" },
    { "loss, validation", "loss/validation" },
    { "loss, entropy of the data", "loss/floor" },
    { "numbers, first tensor beyond the bound", "microscope/first_divergent_tensor" },
    { "before step", "microscope/first_divergent_step" },
    { "memory planned, bytes", "memory/planned_bytes" },
    { "memory used, bytes", "memory/used_bytes" },
    { "machine undisturbed", "machine/verdict" },
    { "machine", "machine/reason" },
    { "gradients certified", "certificate/gradients" },
    { "first step after, s", "first_step_seconds" },
    { "seconds in all", "seconds" },
    { "finished", "finished" },
    { "host", "environment/os/host" },
    { "processor", "environment/cpu/model" },
    { "commit", "environment/build/commit" },
    { "configuration", "configuration_hash" },
    { "weights", "weights_hash" },
};
enum { FIGURES = sizeof figures / sizeof figures[0] };

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

tm_status report_prepare(const tm_result *const *runs, size_t n, report_runs *r, tm_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (tm_result_kind_of(runs[i]) != TM_RESULT_RUN)
            return tm_fail(err, TM_INVALID, "'%s' is a benchmark; a report takes runs", tm_result_name(runs[i]));
    *r = (report_runs){ .runs = runs, .n = n, .arena = tm_arena_create() };
    const char **names = tm_arena_take(r->arena, n * sizeof *names);
    for (size_t i = 0; i < n; i++) {
        const char *name = tm_result_name(runs[i]), *slash = strrchr(name, '/');
        names[i] = slash && slash[1] ? slash + 1 : name;
        if (strcmp(names[i], "result.json") == 0) names[i] = name;
    }
    r->names = names;
    return TM_OK;
}

/* --- HTML --------------------------------------------------------------------------------------------------------- */

static const char page_style[] =
    "body{background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif;max-width:1100px;margin:24px auto;"
    "padding:0 16px}h1{font-size:24px}h2{font-size:18px;margin-top:32px}table{border-collapse:collapse;width:100%}"
    "td,th{border-bottom:1px solid var(--line);padding:4px "
    "8px;text-align:left;vertical-align:top;overflow-wrap:anywhere}"
    "th{font-weight:600}.verdict{display:inline-block;padding:2px 10px;border-radius:12px;border:1px solid var(--line)}"
    ".valid{color:var(--c2)}.noisy{color:var(--c5)}.invalid{color:var(--c7)}.charts{display:grid;gap:16px;"
    "grid-template-columns:repeat(auto-fit,minmax(460px,1fr))}.charts div{border:1px solid "
    "var(--line);border-radius:8px;"
    "padding:8px}details{margin:8px 0}code,.number{font-family:ui-monospace,monospace;font-size:13px}\n";

static void add_cell(tm_text *out, const char *tag, const char *class_name, const char *text)
{
    tm_text_printf(out, "<%s%s%s%s>", tag, class_name ? " class=\"" : "", class_name ? class_name : "",
                   class_name ? "\"" : "");
    chart_escape(out, text);
    tm_text_printf(out, "</%s>", tag);
}

static void add_figures(const report_runs *r, tm_text *out)
{
    tm_text_add(out, "<table id=\"figures\"><tr><th></th>");
    for (size_t i = 0; i < r->n; i++) add_cell(out, "th", NULL, r->names[i]);
    tm_text_add(out, "</tr>\n");
    for (size_t f = 0; f < FIGURES; f++) {
        tm_text_printf(out, "<tr data-path=\"%s\">", figures[f].path);
        add_cell(out, "th", NULL, figures[f].name);
        for (size_t i = 0; i < r->n; i++) add_cell(out, "td", "number", tm_result_shown(r->runs[i], figures[f].path));
        tm_text_add(out, "</tr>\n");
    }
    tm_text_add(out, "</table>\n");
}

/* Every leaf below a member, as rows; those of the runs side by side. */
static void add_leaves(const report_runs *r, const char *path, json_t *first, tm_text *out)
{
    const char *key;
    json_t     *value;
    json_object_foreach(first, key, value)
    {
        const char *below = tm_arena_format(r->arena, "%s/%s", path, key);
        if (json_is_object(value)) {
            add_leaves(r, below, value, out);
            continue;
        }
        tm_text_add(out, "<tr>");
        add_cell(out, "th", NULL, strchr(below, '/') + 1);
        for (size_t i = 0; i < r->n; i++) add_cell(out, "td", "number", tm_result_shown(r->runs[i], below));
        tm_text_add(out, "</tr>\n");
    }
}

static void add_section(const report_runs *r, const char *title, const char *path, tm_text *out)
{
    json_t *first = results_member(results_tree(r->runs[0]), path);
    if (!json_is_object(first)) return;
    tm_text_printf(out, "<details><summary>%s</summary><table>", title);
    add_leaves(r, path, first, out);
    tm_text_add(out, "</table></details>\n");
}

static void add_checks(const report_runs *r, tm_text *out)
{
    size_t  k;
    json_t *one;
    tm_text_add(out, "<h2>System checks that did not pass</h2><table id=\"checks\"><tr><th>run</th><th>check</th>"
                     "<th>status</th><th>observed</th></tr>\n");
    for (size_t i = 0; i < r->n; i++) {
        json_array_foreach(results_member(results_tree(r->runs[i]), "checks/not_passed"), k, one)
        {
            static const char *const members[] = { "id", "status", "observed" };
            tm_text_add(out, "<tr>");
            add_cell(out, "td", NULL, r->names[i]);
            for (int m = 0; m < 3; m++) {
                const char *text = json_string_value(json_object_get(one, members[m]));
                add_cell(out, "td", NULL, text ? text : "");
            }
            tm_text_add(out, "</tr>\n");
        }
    }
    tm_text_add(out, "</table>\n");
}

/* The tensors that were farthest from the reference in the last look of the microscope. */
enum { FARTHEST = 10 };

/* Numbers of the at most FARTHEST tensors, ascending; returns how many. */
static size_t farthest(const report_runs *r, json_t *tensors, size_t rows[FARTHEST])
{
    size_t  n = 0, count = json_array_size(tensors);
    double *errors = tm_arena_take(r->arena, (count + 1) * sizeof *errors);
    for (size_t i = 0; i < count; i++) {
        json_t *error = json_object_get(json_array_get(tensors, i), "relative_error");
        errors[i] = json_is_number(error) ? json_number_value(error) : HUGE_VAL; /* null: the reference is 0 */
    }
    for (size_t i = 0; i < count; i++) {
        size_t before = 0;
        for (size_t k = 0; k < count; k++) before += errors[k] > errors[i] || (k < i && errors[k] >= errors[i]);
        if (before < FARTHEST) rows[n++] = i;
    }
    return n;
}

static const char *const look_members[] = { "name",      "kind",     "format", "relative_error", "cosine",
                                            "underflow", "overflow", "amax",   "reference_amax" };
enum { LOOK_MEMBERS = sizeof look_members / sizeof look_members[0] };

static const char *member_text(const report_runs *r, json_t *one, const char *name)
{
    char    text[32];
    json_t *value = json_object_get(one, name);
    if (json_is_string(value)) return json_string_value(value);
    if (!json_is_number(value)) return "";
    snprintf(text, sizeof text, "%.4g", json_number_value(value));
    return tm_arena_text(r->arena, text);
}

static void add_looks(const report_runs *r, tm_text *out)
{
    for (size_t i = 0; i < r->n; i++) {
        size_t  rows[FARTHEST];
        json_t *tensors = results_member(results_tree(r->runs[i]), "microscope/last/tensors");
        size_t  n = farthest(r, tensors, rows);
        if (n == 0) continue;
        tm_text_add(out, "<h2>Numbers of ");
        chart_escape(out, r->names[i]);
        tm_text_add(out, " beside those of ");
        chart_escape(out, tm_result_shown(r->runs[i], "microscope/last/reference"));
        tm_text_add(out, ", the farthest, before step ");
        chart_escape(out, tm_result_shown(r->runs[i], "microscope/last/step"));
        tm_text_add(out, "</h2><table class=\"looks\"><tr>");
        for (int m = 0; m < LOOK_MEMBERS; m++) add_cell(out, "th", NULL, look_members[m]);
        tm_text_add(out, "</tr>\n");
        for (size_t k = 0; k < n; k++) {
            tm_text_add(out, "<tr>");
            for (int m = 0; m < LOOK_MEMBERS; m++)
                add_cell(out, "td", m ? "number" : NULL,
                         member_text(r, json_array_get(tensors, rows[k]), look_members[m]));
            tm_text_add(out, "</tr>\n");
        }
        tm_text_add(out, "</table>\n");
    }
}

void report_page_begin(const report_runs *r, const char *title, tm_text *out)
{
    tm_text_add(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                     "<meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" "
                     "content=\"light dark\"><title>trainmark: ");
    for (size_t i = 0; i < r->n; i++) tm_text_add(out, i ? ", " : ""), chart_escape(out, r->names[i]);
    tm_text_printf(out, "</title><style>%s%s</style></head><body>\n<h1>%s</h1>\n", chart_style(), page_style, title);
}

static void print_html(const report_runs *r, tm_text *out)
{
    report_page_begin(r, "Training report", out);
    for (size_t i = 0; i < r->n; i++) {
        const char *verdict = tm_result_shown(r->runs[i], "verdict");
        tm_text_add(out, "<p><b>");
        chart_escape(out, r->names[i]);
        tm_text_add(out, "</b> <span class=\"verdict ");
        chart_escape(out, verdict);
        tm_text_add(out, "\">");
        chart_escape(out, verdict);
        tm_text_add(out, "</span> ");
        chart_escape(out, tm_result_shown(r->runs[i], "reason"));
        tm_text_add(out, "</p>\n");
    }
    tm_text_add(out, "<div class=\"charts\">\n");
    for (const report_chart *c = report_charts; c->name; c++) {
        tm_text chart = { 0 };
        c->draw(r, &chart);
        if (chart.length > 0) tm_text_printf(out, "<div>%s</div>\n", chart.data);
        tm_text_fini(&chart);
    }
    tm_text_add(out, "</div>\n<h2>Figures</h2>\n");
    add_figures(r, out);
    add_looks(r, out);
    add_checks(r, out);
    tm_text_add(out, "<h2>What was run, on what</h2>\n");
    add_section(r, "Configuration", "configuration", out);
    add_section(r, "System", "environment", out);
    add_section(r, "Machine during the counted steps", "machine", out);
    tm_text_add(out, "</body></html>\n");
}

/* --- markdown and CSV --------------------------------------------------------------------------------------------- */

/* A bar would end the cell. */
static void add_markdown(tm_text *out, const char *text)
{
    tm_text escaped = { 0 };
    chart_escape(&escaped, text);
    for (const char *c = escaped.data; c && *c; c++)
        if (*c == '|')
            tm_text_add(out, "\\|");
        else
            tm_text_add_n(out, c, 1);
    tm_text_fini(&escaped);
}

static void print_markdown(const report_runs *r, tm_text *out)
{
    tm_text_add(out, "# Training report\n\n| |");
    for (size_t i = 0; i < r->n; i++) tm_text_add(out, " "), add_markdown(out, r->names[i]), tm_text_add(out, " |");
    tm_text_add(out, "\n|---|");
    for (size_t i = 0; i < r->n; i++) tm_text_add(out, "---|");
    tm_text_add(out, "\n");
    for (size_t f = 0; f < FIGURES; f++) {
        tm_text_printf(out, "| %s |", figures[f].name);
        for (size_t i = 0; i < r->n; i++) {
            tm_text_add(out, " ");
            add_markdown(out, tm_result_shown(r->runs[i], figures[f].path));
            tm_text_add(out, " |");
        }
        tm_text_add(out, "\n");
    }
}

static void print_csv(const report_runs *r, tm_text *out)
{
    tm_csv_add(out, "run", true);
    for (size_t f = 0; f < FIGURES; f++) tm_csv_add(out, figures[f].path, false);
    tm_text_add(out, "\n");
    for (size_t i = 0; i < r->n; i++) {
        tm_csv_add(out, r->names[i], true);
        for (size_t f = 0; f < FIGURES; f++) tm_csv_add(out, tm_result_shown(r->runs[i], figures[f].path), false);
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
        for (size_t f = 0; f < FIGURES; f++) {
            const char *text = tm_result_shown(r->runs[i], figures[f].path);
            double      value = tm_result_number(r->runs[i], figures[f].path);
            if (!isnan(value))
                tm_json_f64(&json, figures[f].path, value);
            else if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)
                tm_json_bool(&json, figures[f].path, *text == 't');
            else
                tm_json_string(&json, figures[f].path, *text ? text : NULL);
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
    if (format == TM_REPORT_HTML) print_html(&r, out);
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
    tm_text             svg = { 0 };
    while (c->name && strcmp(c->name, chart) != 0) c++;
    if (!c->name)
        return tm_fail(err, TM_USAGE,
                       "unknown chart '%.60s'; there are loss, speed, ledger, memory, roofline and numbers", chart);
    TM_TRY(report_prepare(runs, n, &r, err));
    c->draw(&r, &svg);
    tm_arena_destroy(r.arena);
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
