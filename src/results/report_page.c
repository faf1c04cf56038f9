/* SPDX-License-Identifier: Apache-2.0 */
/* results/report_page.c - the page: headline, charts, lines of a step, figures, what the run was. */
#include "results/chart.h"
#include "results/headline.h"
#include "results/internal.h"
#include "results/page_script.h"
#include "results/report_figures.h"

#include <math.h>
#include <string.h>

static const char page_style[] =
    "body{background:var(--page);color:var(--ink);font:15px/1.5 system-ui,sans-serif;max-width:1180px;margin:24px "
    "auto;padding:0 16px}h1{font-size:24px;margin:0}h2{font-size:18px;margin:32px 0 8px}"
    "table{border-collapse:collapse;width:100%}"
    "td,th{border-bottom:1px solid var(--line);padding:5px 8px;text-align:left;vertical-align:top;"
    "overflow-wrap:anywhere}th{font-weight:600}td.number{font-variant-numeric:tabular-nums}"
    ".about,.note,span.soft{color:var(--soft)}.about{margin:0 0 16px}.note{font-size:13px;margin:8px 0}"
    "span.soft{display:block;font-size:13px}.run{margin:12px 0}"
    ".verdict{display:inline-block;padding:0 10px;border-radius:12px;border:1px "
    "solid;font-weight:600;white-space:nowrap}"
    ".valid{color:var(--good)}.noisy,.not-judged{color:var(--warn)}.invalid{color:var(--bad)}"
    ":root{--good:#1a7f37;--warn:#9a6700;--bad:#cf222e}"
    "@media(prefers-color-scheme:dark){:root{--good:#3fb950;--warn:#d29922;--bad:#f85149}}\n"
    ".cards{display:grid;gap:12px;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));margin:12px 0 20px}"
    ".card{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:10px 14px}"
    ".card b{display:block;font-size:24px;line-height:1.3}.what{font-size:13px;font-weight:600}"
    ".charts{display:grid;gap:16px;grid-template-columns:repeat(auto-fit,minmax(min(100%,500px),1fr))}"
    ".charts div{border:1px solid var(--line);border-radius:8px;padding:8px;break-inside:avoid;min-width:0}"
    ".charts div.wide{border:0;padding:0}p.title{font-weight:600;margin:8px}"
    ".pictures{display:grid;gap:12px;grid-template-columns:repeat(auto-fill,minmax(150px,1fr))}figure{margin:0}"
    "figure img{width:100%;image-rendering:auto}figcaption{font-size:12px}"
    ".wide{overflow-x:auto}.lines{font-size:12px}.lines td,.lines th{white-space:nowrap;padding:4px 5px}"
    ".lines td+td,.lines th+th{text-align:right}#headline td{min-width:110px}#headline "
    "th,#figures th{overflow-wrap:normal}#figures td{min-width:90px}#headline td+td{white-space:normal}"
    "td.best b{color:var(--good)}pre{background:var(--card);border:1px solid var(--line);border-radius:8px;"
    "padding:12px;white-space:pre-wrap;overflow-wrap:anywhere;max-height:24em;overflow-y:auto}"
    "details{margin:8px 0}summary{cursor:pointer;font-weight:600}svg.chart:focus{outline:2px solid var(--c20)}"
    "#tip{position:fixed;z-index:1;pointer-events:none;white-space:pre;max-width:90vw;background:var(--ink);"
    "color:var(--page);border-radius:6px;padding:6px 10px;font-size:13px}#tip[hidden]{display:none}"
    "@media(max-width:600px){body{margin:12px auto;padding:0 10px}.cards{grid-template-columns:repeat(2,1fr);gap:8px}"
    ".card{padding:8px 10px}.card b{font-size:20px}#figures td,#figures th{padding:4px}}"
    "@media print{body{max-width:none;margin:0;print-color-adjust:exact}#tip{display:none}pre{max-height:none}}\n";

static void add_cell(tm_text *out, const char *tag, const char *class_name, const char *text)
{
    tm_text_printf(out, "<%s%s%s%s>", tag, class_name ? " class=\"" : "", class_name ? class_name : "",
                   class_name ? "\"" : "");
    chart_escape(out, text);
    tm_text_printf(out, "</%s>", tag);
}

/* A rounded figure; the one of result.json, digit for digit, as its title. */
static void add_figure(tm_text *out, const char *shown, const char *exact)
{
    tm_text_add(out, "<td class=\"number\"");
    if (strcmp(shown, exact) != 0) {
        tm_text_add(out, " title=\"");
        chart_escape(out, exact);
        tm_text_add(out, "\"");
    }
    tm_text_add(out, ">");
    chart_escape(out, shown);
    tm_text_add(out, "</td>");
}

/* Rows that no run has are left out. */
static void add_figures(const report_runs *r, tm_text *out)
{
    tm_text_add(out, "<div class=\"wide\"><table id=\"figures\"><tr><th></th>");
    for (size_t i = 0; i < r->n; i++) add_cell(out, "th", NULL, r->names[i]);
    tm_text_add(out, "</tr>\n");
    for (const report_figure *f = report_figures; f->name; f++) {
        if (report_is_empty(r, f)) continue;
        tm_text_printf(out, "<tr data-path=\"%s\">", f->path);
        add_cell(out, "th", NULL, f->name);
        for (size_t i = 0; i < r->n; i++) add_figure(out, report_shown(r, i, f), tm_result_shown(r->runs[i], f->path));
        tm_text_add(out, "</tr>\n");
    }
    tm_text_add(out, "</table></div>\n");
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
        for (size_t i = 0; i < r->n; i++) add_figure(out, report_leaf(r, i, below), tm_result_shown(r->runs[i], below));
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
    size_t  k, rows = 0;
    json_t *one;
    for (size_t i = 0; i < r->n; i++)
        rows += json_array_size(results_member(results_tree(r->runs[i]), "checks/not_passed"));
    if (rows == 0) return;
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

/* --- numbers ------------------------------------------------------------------------------------------------------ */

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
    json_t *value = json_object_get(one, name);
    if (json_is_string(value)) return json_string_value(value);
    if (!json_is_number(value)) return "";
    return tm_arena_format(r->arena, "%.4g", json_number_value(value));
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
        tm_text_add(out, "</h2><div class=\"wide\"><table class=\"looks\"><tr>");
        for (int m = 0; m < LOOK_MEMBERS; m++) add_cell(out, "th", NULL, look_members[m]);
        tm_text_add(out, "</tr>\n");
        for (size_t k = 0; k < n; k++) {
            tm_text_add(out, "<tr>");
            for (int m = 0; m < LOOK_MEMBERS; m++)
                add_cell(out, "td", m ? "number" : NULL,
                         member_text(r, json_array_get(tensors, rows[k]), look_members[m]));
            tm_text_add(out, "</tr>\n");
        }
        tm_text_add(out, "</table></div>\n");
    }
}

/* --- lines of a step ---------------------------------------------------------------------------------------------- */

static bool has_roofs(const report_roof *roof)
{
    return roof->flops_known && roof->bytes_known;
}

/* The least time by both roofs, as a part of the line's. */
static const char *part_of_roof(const report_runs *r, const report_roof *roof, const report_line *line)
{
    double least = fmax(line->flops / roof->flops, line->bytes / roof->bytes);
    return tm_arena_format(r->arena, "%.0f %%", 100 * least / line->seconds);
}

static void add_line(const report_runs *r, size_t run, const report_line *line, const report_roof *roof, tm_text *out)
{
    double whole = tm_result_number(r->runs[run], "phases/step_seconds");
    bool   work = line->flops > 0;
    tm_text_add(out, "<tr>");
    add_cell(out, "td", NULL, line->name);
    add_cell(out, "td", NULL, report_amount(r->arena, FIGURE_SECONDS, line->seconds));
    add_cell(out, "td", NULL, tm_arena_format(r->arena, "%.1f %%", 100 * line->seconds / whole));
    add_cell(out, "td", NULL, work ? report_rate(r->arena, line->flops / line->seconds, "FLOP/s") : "");
    add_cell(out, "td", NULL, report_rate(r->arena, line->bytes / line->seconds, "B/s"));
    add_cell(out, "td", NULL, work ? report_amount(r->arena, FIGURE_COUNT, line->flops / line->bytes) : "");
    if (has_roofs(roof)) add_cell(out, "td", NULL, part_of_roof(r, roof, line));
    tm_text_add(out, "</tr>\n");
}

static void add_table(const report_runs *r, size_t run, tm_text *out)
{
    report_roof roof = report_roof_of(r, run);
    report_line line;
    tm_text_add(out, "<div class=\"wide\"><table class=\"lines\"><tr><th>line</th><th>time</th><th>share</th>"
                     "<th>products</th><th>operands</th><th>FLOP/B</th>");
    tm_text_add(out, has_roofs(&roof) ? "<th>of roof</th></tr>\n" : "</tr>\n");
    for (size_t i = 0; report_line_of(r, run, i, &line); i++)
        if (line.seconds > 0) add_line(r, run, &line, &roof, out);
    tm_text_add(out, "</table></div>\n");
}

static void add_lines(const report_runs *r, tm_text *out)
{
    report_line line;
    for (size_t run = 0; run < r->n; run++) {
        if (!report_line_of(r, run, 0, &line)) continue;
        tm_text_add(out, "<details><summary>Lines of a step of ");
        chart_escape(out, r->names[run]);
        tm_text_add(out, "</summary>");
        add_table(r, run, out);
        tm_text_add(out, "</details>\n");
    }
}

static void add_origin(const report_runs *r, tm_text *out)
{
    const char *host = tm_result_shown(r->runs[0], "environment/os/host");
    tm_text_add(out, "Roofs: measured by trainmark bench");
    if (r->roofs.host) tm_text_add(out, " on host "), chart_escape(out, r->roofs.host);
    if (r->roofs.host && *host && strcmp(host, r->roofs.host) != 0)
        tm_text_add(out, ", which is another host than that of "), chart_escape(out, r->names[0]);
    tm_text_add(out, ". ");
}

/* Where the roofs are from, or how to get them. */
static void add_roofs(const report_runs *r, tm_text *out)
{
    report_roof roof = report_roof_of(r, 0);
    report_line line;
    if (!report_line_of(r, 0, 0, &line)) return;
    tm_text_add(out, "<p class=\"note\" id=\"roofs\">");
    if (isfinite(r->roofs.bytes)) add_origin(r, out);
    if (roof.passed)
        tm_text_add(out, "A line is faster than a roof, which is left out: the machine was busy when it was measured. "
                         "Measure again when it is calm. ");
    if (!roof.flops_known || !roof.bytes_known)
        tm_text_add(out, "A dashed roof is not the machine's: it is the most that a line of the step reaches. ");
    if (!isfinite(r->roofs.bytes))
        tm_text_add(out, "To measure the machine's: <code>trainmark bench stream --output-file machine.json</code>, "
                         "then <code>trainmark report RUN machine.json -o page.html</code>. ");
    tm_text_add(out, "Bytes are those of the operands, each counted once. Only products of matrices count as FLOPs, so "
                     "lines without any are in the table alone.</p>\n");
}

/* --- text --------------------------------------------------------------------------------------------------------- */

static void add_samples(const report_runs *r, tm_text *out)
{
    for (size_t i = 0; i < r->n; i++) {
        const char *text = tm_result_string(r->runs[i], "sample");
        if (!text || !*text) continue;
        tm_text_add(out, "<h2>Text that ");
        chart_escape(out, r->names[i]);
        tm_text_add(out, " wrote after its last step</h2><pre class=\"sample\">");
        chart_escape_lines(out, text);
        tm_text_add(out, "</pre>\n");
    }
}

void report_page_begin(const report_runs *r, const char *title, tm_text *out)
{
    tm_text_add(out,
                "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                "<meta name=\"viewport\" content=\"width=device-width\"><meta name=\"color-scheme\" "
                "content=\"light dark\"><meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
                "style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:\"><title>trainmark: ");
    for (size_t i = 0; i < r->n; i++) tm_text_add(out, i ? ", " : ""), chart_escape(out, r->names[i]);
    tm_text_printf(out, "</title><style>%s%s</style></head><body>\n<h1>%s</h1>\n", chart_style(), page_style, title);
}

void report_page_end(tm_text *out)
{
    tm_text_printf(out, "<script>%s</script></body></html>\n", page_script);
}

/* What was trained, on what, when. */
static void add_about(const report_runs *r, tm_text *out)
{
    static const char *const paths[] = {
        "model", "precision", "data_source", "environment/cpu/model", "environment/os/host", "finished"
    };
    bool any = false;
    tm_text_add(out, "<p class=\"about\">");
    for (size_t p = 0; p < sizeof paths / sizeof paths[0]; p++) {
        const char *text = tm_result_shown(r->runs[0], paths[p]);
        bool        same = *text != 0;
        for (size_t i = 1; i < r->n; i++) same = same && strcmp(text, tm_result_shown(r->runs[i], paths[p])) == 0;
        if (!same) continue;
        tm_text_add(out, any ? " · " : "");
        chart_escape(out, text);
        any = true;
    }
    tm_text_add(out, "</p>\n");
}

void report_page_chart(const report_runs *r, const report_chart *c, tm_text *out)
{
    tm_text chart = { 0 };
    for (size_t part = 0; c->draw(r, part, &chart), chart.length > 0; part++) {
        tm_text_printf(out, "<div>%s</div>\n", chart.data);
        chart.length = 0;
    }
    tm_text_fini(&chart);
}

void report_page(const report_runs *r, tm_text *out)
{
    report_page_begin(r, "Training report", out);
    add_about(r, out);
    report_headline(r, out);
    tm_text_add(out, "<div class=\"charts\">\n");
    for (const report_chart *c = report_charts; c->name; c++) report_page_chart(r, c, out);
    report_line line;
    bool        beside = r->n == 1 && report_line_of(r, 0, 0, &line);
    if (beside) {
        tm_text_add(out, "<div><p class=\"title\">Lines of a step</p>");
        add_table(r, 0, out);
        tm_text_add(out, "</div>\n");
    }
    tm_text_add(out, "</div>\n");
    add_roofs(r, out);
    if (!beside) add_lines(r, out);
    add_samples(r, out);
    report_add_pictures(r, out);
    tm_text_add(out, "<h2>Figures</h2>\n");
    add_figures(r, out);
    add_looks(r, out);
    add_checks(r, out);
    tm_text_add(out, "<h2>What was run, on what</h2>\n");
    add_section(r, "Configuration", "configuration", out);
    add_section(r, "System", "environment", out);
    add_section(r, "Machine during the counted steps", "machine", out);
    report_page_end(out);
}
