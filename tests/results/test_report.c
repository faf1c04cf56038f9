/* SPDX-License-Identifier: Apache-2.0 */
/* The report of two made-up runs in every form beside the files it was made of: each cell, each row, each mark of a
 * chart. The runs are those of support/told_runs.h, of which one says all, one little. */
#include "results/report.h"
#include "figure_rules.h"
#include "report_rules.h"
#include "base/csv.h"
#include "base/file.h"
#include "support/folder.h"

#include <math.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/test.h"

/* --- tables ------------------------------------------------------------------------------------------------------- */

/* The text of the k-th child of node i. */
static const char *child(const svg_page *page, size_t i, size_t k)
{
    size_t at = i + 1;
    while (k-- > 0 && at < page->nodes[i].end) at = page->nodes[at].end;
    return at < page->nodes[i].end ? svg_text(page, at) : "(none)";
}

static size_t children(const svg_page *page, size_t i)
{
    size_t n = 0;
    for (size_t at = i + 1; at < page->nodes[i].end; at = page->nodes[at].end) n++;
    return n;
}

/* The node of this tag with the attribute `name` = `value`. */
static size_t find_by(const svg_page *page, const char *tag, const char *name, const char *value)
{
    for (size_t i = 0; i < page->n; i++) {
        const char *is = svg_attribute(&page->nodes[i], name);
        if (strcmp(page->nodes[i].tag, tag) == 0 && is && strcmp(is, value) == 0) return i;
    }
    fail_msg("there is no <%s %s=\"%s\">", tag, name, value);
    return 0;
}

static size_t row_after(const svg_page *page, size_t at, size_t end)
{
    do at++;
    while (at < end && strcmp(page->nodes[at].tag, "tr") != 0);
    return at;
}

/* The figures of all forms, by their paths; those that a run has by their names, too. */
typedef struct {
    char  *names[MOST_FIGURES], *paths[MOST_FIGURES];
    size_t n;
} figures;

/* What people look for is there, by its name. */
static void figures_have_their_names(const figures *f)
{
    static const char *const some[][2] = { { "tokens per second and device (median)",
                                             "tokens_per_second_per_device/median" },
                                           { "from", "tokens_per_second_per_device/lo" },
                                           { "to", "tokens_per_second_per_device/hi" },
                                           { "over all counted steps", "tokens_per_second_per_device_overall/value" },
                                           { "step time (median)", "step_time/median" },
                                           { "step time p95", "step_time/p95" },
                                           { "variation of step times", "step_time/variation_percent" },
                                           { "steps", "steps/done" },
                                           { "loss, first step", "loss/first" },
                                           { "loss, last step", "loss/last" },
                                           { "loss, validation", "loss/validation" },
                                           { "loss, least possible", "loss/floor" },
                                           { "memory planned", "memory/planned_bytes" },
                                           { "memory used", "memory/used_bytes" },
                                           { "memory of the whole process", "memory/resident_bytes" },
                                           { "number format", "precision" },
                                           { "total time", "seconds" },
                                           { "time to first step", "first_step_seconds" },
                                           { "configuration", "configuration_hash" },
                                           { "weights", "weights_hash" } };
    for (size_t i = 0; i < sizeof some / sizeof some[0]; i++) {
        size_t k = 0;
        while (k < f->n && strcmp(f->paths[k], some[i][1]) != 0) k++;
        assert_true(k < f->n);
        if (f->names[k]) assert_string_equal(f->names[k], some[i][0]);
    }
    for (size_t i = 0; i < f->n; i++)
        for (size_t k = 0; k < i; k++) assert_string_not_equal(f->paths[i], f->paths[k]);
    assert_string_equal(f->paths[0], "verdict");
}

static bool is_told(const source *runs, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++) {
        json_t *one = member(runs[i].tree, path);
        if (one && !json_is_null(one) && !(json_is_string(one) && !*json_string_value(one))) return true;
    }
    return false;
}

/* What was not looked at has not failed; the file's own word is the cell's title. */
static void check_says(const svg_page *page, size_t cell, const source *run)
{
    const char *text = svg_text(page, cell), *reason = json_string_value(member(run->tree, "certificate/reason"));
    bool        done = json_is_true(member(run->tree, "certificate/done"));
    json_t     *agree = member(run->tree, "certificate/gradients");
    const char *state = !done ? "not run" : json_is_true(agree) && !reason ? "passed" : "failed";
    cell_says(svg_attribute(&page->nodes[cell], "title"), agree);
    assert_true(strncmp(text, state, strlen(state)) == 0);
    if (reason) assert_string_equal(text + strlen(state) + 2, reason);
}

/* A row for each figure that a run has, in the order of the other forms. */
static void figures_are_told(const svg_page *page, figures *f, const source *runs, size_t n)
{
    size_t table = find_by(page, "table", "id", "figures"), end = page->nodes[table].end;
    size_t row = row_after(page, table, end);
    assert_int_equal(children(page, row), n + 1);
    assert_string_equal(child(page, row, 0), "");
    for (size_t i = 0; i < n; i++) assert_string_equal(child(page, row, i + 1), runs[i].shown);
    for (size_t k = 0; k < f->n; k++) {
        if (!is_told(runs, n, f->paths[k])) continue;
        row = row_after(page, row, end);
        assert_true(row < end);
        assert_string_equal(svg_attribute(&page->nodes[row], "data-path"), f->paths[k]);
        f->names[k] = strdup(child(page, row, 0));
        size_t column = 0;
        for (size_t at = row + 1; at < page->nodes[row].end; at = page->nodes[at].end, column++) {
            assert_true(svg_is(&page->nodes[at], column ? "td" : "th", column ? "number" : NULL));
            if (column && strcmp(f->paths[k], "certificate/gradients") == 0)
                check_says(page, at, &runs[column - 1]);
            else if (column)
                figure_says(page, at, member(runs[column - 1].tree, f->paths[k]));
        }
        assert_int_equal(column, n + 1);
    }
    assert_int_equal(row_after(page, row, end), end);
    figures_have_their_names(f);
}

/* How far a tensor is: what has no error is farthest. */
static double how_far(json_t *tensor)
{
    double error = number_of(tensor, "relative_error");
    return isnan(error) ? HUGE_VAL : error;
}

static bool is_far(json_t *tensors, size_t i)
{
    size_t  before = 0, k;
    json_t *one;
    json_array_foreach(tensors, k, one) before += how_far(one) > how_far(json_array_get(tensors, i)) ||
                                                  (k < i && !(how_far(one) < how_far(json_array_get(tensors, i))));
    return before < FARTHEST;
}

static void looks_are_told(const svg_page *page, const source *runs, size_t n)
{
    static const char *const columns[] = { "name",      "kind",     "format", "relative_error", "cosine",
                                           "underflow", "overflow", "amax",   "reference_amax" };
    size_t                   table = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *tensors = member(runs[i].tree, "microscope/last/tensors");
        if (json_array_size(tensors) == 0) continue;
        table = svg_find(page, table + 1, page->n, "table", "looks");
        assert_true(table < page->n);
        char   heading[256];
        size_t row = row_after(page, table, page->nodes[table].end), above = table;
        while (strcmp(page->nodes[above].tag, "h2") != 0) above--;
        snprintf(heading, sizeof heading, "Numbers of %s beside those of %s, the farthest, before step %lld",
                 runs[i].shown, json_string_value(member(runs[i].tree, "microscope/last/reference")),
                 (long long)number_of(runs[i].tree, "microscope/last/step"));
        assert_string_equal(svg_text(page, above), heading);
        for (size_t k = 0; k < 9; k++) assert_string_equal(child(page, row, k), columns[k]);
        for (size_t t = 0; t < json_array_size(tensors); t++) {
            if (!is_far(tensors, t)) continue;
            row = row_after(page, row, page->nodes[table].end);
            assert_true(row < page->nodes[table].end);
            for (size_t k = 0; k < 9; k++) {
                json_t     *wanted = member(json_array_get(tensors, t), columns[k]);
                const char *cell = child(page, row, k);
                if (json_is_number(wanted))
                    assert_near(strtod(cell, NULL), json_number_value(wanted), 5e-4 * fabs(json_number_value(wanted)),
                                cell);
                else
                    cell_says(cell, wanted);
            }
        }
        assert_int_equal(row_after(page, row, page->nodes[table].end), page->nodes[table].end);
    }
    assert_int_equal(svg_find(page, table + 1, page->n, "table", "looks"), page->n);
}

static void checks_are_told(const svg_page *page, const source *runs, size_t n)
{
    size_t rows = 0;
    for (size_t i = 0; i < n; i++) rows += json_array_size(member(runs[i].tree, "checks/not_passed"));
    if (rows == 0) {
        for (size_t i = 0; i < page->n; i++) {
            const char *id = svg_attribute(&page->nodes[i], "id");
            assert_true(!id || strcmp(id, "checks") != 0);
        }
        return;
    }
    size_t table = find_by(page, "table", "id", "checks"), end = page->nodes[table].end, k;
    size_t row = row_after(page, table, end);
    for (size_t i = 0; i < n; i++) {
        json_t *one;
        json_array_foreach(member(runs[i].tree, "checks/not_passed"), k, one)
        {
            static const char *const members[] = { "id", "status", "observed" };
            row = row_after(page, row, end);
            assert_true(row < end);
            assert_string_equal(child(page, row, 0), runs[i].shown);
            for (size_t m = 0; m < 3; m++) {
                json_t *text = member(one, members[m]);
                cell_says(child(page, row, m + 1), json_is_string(text) ? text : NULL);
            }
        }
    }
    assert_int_equal(row_after(page, row, end), end);
}

/* Every leaf of the first run's member, those of the others beside; returns the last row. */
static size_t leaves_are_told(const svg_page *page, size_t row, size_t end, const source *runs, size_t n,
                              const char *path, const char *below)
{
    const char *key;
    json_t     *one;
    json_object_foreach(member(runs[0].tree, path), key, one)
    {
        char deeper[256], shown[256];
        snprintf(deeper, sizeof deeper, "%s/%s", path, key);
        snprintf(shown, sizeof shown, "%s%s%s", below, *below ? "/" : "", key);
        if (json_is_object(one)) {
            row = leaves_are_told(page, row, end, runs, n, deeper, shown);
            continue;
        }
        row = row_after(page, row, end);
        assert_true(row < end);
        assert_string_equal(child(page, row, 0), shown);
        size_t cell = row + 1;
        for (size_t i = 0; i < n; i++) {
            cell = page->nodes[cell].end;
            const char *exact = svg_attribute(&page->nodes[cell], "title"), *text = svg_text(page, cell);
            cell_says(exact ? exact : text, member(runs[i].tree, deeper));
            if (json_is_real(member(runs[i].tree, deeper))) digits_are_few(text);
        }
    }
    return row;
}

static void sections_are_told(const svg_page *page, const source *runs, size_t n)
{
    static const char *const sections[][2] = { { "Configuration", "configuration" },
                                               { "System", "environment" },
                                               { "Machine during the counted steps", "machine" } };
    size_t                   at = 0;
    for (size_t s = 0; s < 3; s++) {
        if (!json_is_object(member(runs[0].tree, sections[s][1]))) continue;
        do at = svg_find(page, at + 1, page->n, "details", NULL);
        while (at < page->n && strncmp(child(page, at, 0), "Lines of a step", 15) == 0);
        assert_true(at < page->n);
        assert_string_equal(child(page, at, 0), sections[s][0]);
        size_t end = page->nodes[at].end, row = leaves_are_told(page, at, end, runs, n, sections[s][1], "");
        assert_int_equal(row_after(page, row, end), end);
    }
    assert_int_equal(svg_find(page, at + 1, page->n, "details", NULL), page->n);
}

static void page_has_its_heading(const svg_page *page, const source *runs, size_t n)
{
    tm_text title = { 0 };
    tm_text_add(&title, "trainmark: ");
    for (size_t i = 0; i < n; i++) tm_text_printf(&title, "%s%s", i ? ", " : "", runs[i].shown);
    assert_string_equal(svg_text(page, svg_find(page, 0, page->n, "title", NULL)), title.data);
    assert_string_equal(svg_text(page, svg_find(page, 0, page->n, "h1", NULL)), "Training report");
    tm_text_fini(&title);
    const char *style = svg_text(page, svg_find(page, 0, page->n, "style", NULL));
    size_t      at = find_by(page, n == 1 ? "p" : "table", n == 1 ? "class" : "id", n == 1 ? "run" : "headline");
    for (size_t i = 0; i < n; i++) {
        char        text[64], rule[64];
        const char *verdict = json_string_value(member(runs[i].tree, "verdict"));
        if (n > 1 && i == 0) at = row_after(page, at, page->n); /* the heading */
        if (n > 1) at = row_after(page, at, page->n);
        snprintf(text, sizeof text, "verdict %s", verdict);
        size_t badge = svg_find(page, at, page->nodes[at].end, "span", text);
        assert_true(badge < page->nodes[at].end);
        assert_string_equal(svg_text(page, badge), verdict);
        assert_string_equal(child(page, at, 0), runs[i].shown);
        assert_non_null(strstr(svg_text(page, at), json_string_value(member(runs[i].tree, "reason"))));
        snprintf(rule, sizeof rule, ".%s", verdict);
        assert_non_null(strstr(style, rule));
    }
}

/* --- forms -------------------------------------------------------------------------------------------------------- */

/* A cell of markdown is that of the page: the same figures, no entity, what would be markup behind a backslash. */
static void markdown_says(const char *text, const char *html, const figures *f, size_t n)
{
    tm_text  wanted = { 0 };
    svg_page page = svg_read(html);
    size_t   row = find_by(&page, "table", "id", "figures");
    tm_text_add(&wanted, "# Training report\n\n| |");
    row = row_after(&page, row, page.n);
    for (size_t line = 0, k = 0; k <= f->n; k++) {
        if (k > 0 && !f->names[k - 1]) continue;
        if (line++ > 0) {
            row = row_after(&page, row, page.n);
            tm_text_printf(&wanted, "| %s |", f->names[k - 1]);
        }
        for (size_t i = 0; i < n; i++) {
            tm_text_add(&wanted, " ");
            for (const char *c = child(&page, row, i + 1); *c; c++)
                tm_text_printf(&wanted, strchr("|<&*`[\\", *c) ? "\\%c" : "%c", *c);
            tm_text_add(&wanted, " |");
        }
        tm_text_add(&wanted, line > 1 ? "\n" : n == 1 ? "\n|---|---|\n" : "\n|---|---|---|\n");
    }
    assert_string_equal(text, wanted.data);
    svg_close(&page);
    tm_text_fini(&wanted);
}

/* Every digit; takes the paths of all figures. */
static void csv_says(const char *text, figures *f, const source *runs, size_t n)
{
    tm_text cells = { 0 };
    size_t  at[MOST_FIGURES + 1];
    f->n = tm_csv_read(&text, &cells, at, MOST_FIGURES + 1) - 1;
    assert_string_equal(cells.data + at[0], "run");
    for (size_t k = 0; k < f->n; k++) f->paths[k] = strdup(cells.data + at[k + 1]);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(tm_csv_read(&text, &cells, at, MOST_FIGURES + 1), f->n + 1);
        assert_string_equal(cells.data + at[0], runs[i].shown);
        for (size_t k = 0; k < f->n; k++) cell_says(cells.data + at[k + 1], member(runs[i].tree, f->paths[k]));
    }
    assert_string_equal(text, "");
    tm_text_fini(&cells);
}

static void json_says(const char *text, const figures *f, const source *runs, size_t n)
{
    json_t *all = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
    assert_int_equal(json_array_size(all), n);
    assert_int_equal(text[strlen(text) - 1], '\n');
    for (size_t i = 0; i < n; i++) {
        json_t *one = json_array_get(all, i);
        assert_string_equal(json_string_value(json_object_get(one, "run")), runs[i].shown);
        assert_int_equal(json_object_size(one), f->n + 1);
        for (size_t k = 0; k < f->n; k++) {
            json_t *is = json_object_get(one, f->paths[k]), *wanted = member(runs[i].tree, f->paths[k]);
            if (json_is_number(wanted))
                assert_near(json_number_value(is), json_number_value(wanted), 0, f->paths[k]);
            else
                assert_true(wanted ? json_equal(is, wanted) : json_is_null(is));
        }
    }
    json_decref(all);
}

static void page_says(const char *text, figures *f, const source *runs, size_t n)
{
    svg_page page = svg_read(text);
    size_t   charts = svg_find(&page, 0, page.n, "div", "charts"), drawn = 0, at = charts + 1;
    page_has_its_heading(&page, runs, n);
    assert_true(charts < page.n);
    for (size_t i = 0; tm_report_chart(i); i++) {
        size_t parts = chart_is_drawn(&page, tm_report_chart(i), runs, n);
        for (size_t part = 0; part < parts; part++) {
            char id[32];
            snprintf(id, sizeof id, "%s-%zu", tm_report_chart(i), part + 1);
            if (part == 0) *strrchr(id, '-') = 0;
            while (strcmp(page.nodes[at].tag, "svg") != 0) at++; /* in their order */
            assert_string_equal(svg_attribute(&page.nodes[at++], "id"), id);
        }
        drawn += parts;
    }
    assert_int_equal(svg_find(&page, at, page.n, "svg", "chart"), page.n);
    assert_true(drawn >= 3);
    figures_are_told(&page, f, runs, n);
    looks_are_told(&page, runs, n);
    checks_are_told(&page, runs, n);
    sections_are_told(&page, runs, n);
    svg_close(&page);
}

/* Each chart alone has its style inside, and is refused where there is nothing to draw. */
static void plots_say(const source *runs, const tm_result *const *results, size_t n)
{
    for (size_t i = 0; tm_report_chart(i); i++) {
        const char *chart = tm_report_chart(i);
        tm_text     out = { 0 };
        tm_error    err = { 0 };
        tm_status   st = tm_results_plot(results, n, chart, &out, &err);
        bool        mixed = n == 2 && strcmp(loss_unit(&runs[0]), loss_unit(&runs[1])) != 0;
        if (strcmp(chart, "loss") == 0) assert_int_equal(st, mixed ? TM_INVALID : TM_OK);
        if (st == TM_OK) {
            svg_page page = svg_read(out.data);
            assert_int_equal(chart_is_drawn(&page, chart, runs, n), 1);
            assert_string_equal(svg_text(&page, svg_find(&page, 0, page.n, "style", NULL)), chart_style());
            svg_close(&page);
        } else if (strcmp(chart, "loss") == 0) {
            assert_non_null(strstr(err.text, "different units"));
        } else {
            char wanted[160];
            snprintf(wanted, sizeof wanted, "'%s' holds nothing for the chart %s", runs[0].name, chart);
            assert_int_equal(st, TM_INVALID);
            assert_non_null(strstr(err.text, wanted));
            assert_true(strcmp(chart, "memory") == 0 || strcmp(chart, "roofline") == 0 ||
                        strcmp(chart, "numbers") == 0);
            svg_page none = { .n = 0 };
            assert_int_equal(chart_is_drawn(&none, chart, runs, n), 0);
        }
        tm_text_fini(&out);
    }
    tm_text  out = { 0 };
    tm_error err = { 0 };
    assert_int_equal(tm_results_plot(results, n, "pie", &out, &err), TM_USAGE);
    assert_non_null(strstr(err.text, "'pie'"));
    for (size_t i = 0; tm_report_chart(i); i++) assert_non_null(strstr(err.text, tm_report_chart(i)));
    tm_text_fini(&out);
}

static void report_says(const source *runs, size_t n)
{
    static const tm_report_format order[] = { TM_REPORT_CSV, TM_REPORT_HTML, TM_REPORT_MARKDOWN, TM_REPORT_JSON };
    const tm_result              *results[MOST_RUNS];
    tm_error                      err = { 0 };
    tm_text                       out[4] = { { 0 } };
    figures                       f = { .n = 0 };
    for (size_t i = 0; i < n; i++) results[i] = runs[i].run;
    for (int i = 0; i < 4; i++) assert_int_equal(tm_results_report(results, n, order[i], &out[i], &err), TM_OK);
    csv_says(out[0].data, &f, runs, n);
    page_says(out[1].data, &f, runs, n);
    markdown_says(out[2].data, out[1].data, &f, n);
    json_says(out[3].data, &f, runs, n);
    plots_say(runs, results, n);
    for (int i = 0; i < 4; i++) tm_text_fini(&out[i]);
    for (size_t k = 0; k < f.n; k++) free(f.names[k]), free(f.paths[k]);
}

/* Alone and side by side, each of the two first. */
static void both_ways(source one, source other)
{
    const source both[] = { one, other }, turned[] = { other, one };
    report_says(both, 1);
    report_says(both, 2);
    report_says(turned, 1);
    report_says(turned, 2);
    close_source(&one);
    close_source(&other);
}

TEST(reports_say_all)
{
    both_ways(open_source("rich", "rich", told_text(rich), told_text(metrics)),
              open_source("po<or", "po<or", told_text(poor), (tm_text){ 0 }));
}

/* What of two runs is told in rows: figures, checks, everything below what was run on what; tensors, of which ten are
 * farthest. */
TEST(rows_of_what_was_run)
{
    tm_text tensors = { 0 };
    tm_text_add(&tensors, "\"microscope\": {\"last\": {\"step\": 7, \"reference\": \"flo|at<32>\", \"tensors\": [");
    for (int i = 0; i < 14; i++)
        tm_text_printf(&tensors,
                       "%s{\"name\": \"t%d\", \"kind\": \"%s\", \"relative_error\": %s, \"cosine\": 0.12345678}",
                       i ? ", " : "", i, i % 2 ? "backward" : "factor",
                       i == 9       ? "null"
                       : i % 5 == 2 ? "0.25"
                       : i % 3      ? "0.125"
                                    : "0.5");
    tm_text_add(&tensors, "]}}, \"ignored\": {");
    const char *const two[] = {
        "\"checks\": null",
        "\"checks\": {\"fail\": 1, \"not_passed\": [{\"id\": \"numa\", \"status\": \"WARN\", \"observed\": \"a<b & "
        "c\"}, {\"id\": \"memlock\", \"observed\": 8}]}",
        "\"environment\": null",
        "\"environment\": {\"os\": {\"host\": \"h\", \"n\": {\"deep\": true, \"none\": {}}}, \"z\": [1], \"w\": null, "
        "\"x\": -2.50, \"y\": false}",
        "\"configuration\": null",
        "\"configuration\": {\"model.dim\": 64, \"exp_name\": \"<e>\"}",
        "\"model\": \"llama-small\"",
        "\"model\": \"a | b, \\\"c\\\"\"",
        "\"microscope\": {",
        tensors.data,
        NULL
    };
    const char *const one[] = { "\"environment\": null", "\"environment\": {\"os\": {\"host\": \"k\"}, \"x\": 7}",
                                NULL };
    both_ways(open_source("a/rich", "rich", changed(rich, two), told_text(metrics)),
              open_source("po<or/result.json", "po<or/result.json", changed(poor, one), (tm_text){ 0 }));
    tm_text_fini(&tensors);
}

static tm_result *rich_run(void)
{
    tm_text json = told_text(rich), lines = told_text(metrics);
    return parsed("rich", &json, &lines);
}

/* Phases of more kinds than there are colours are summed up: no two have the same, and no time is lost. */
TEST(many_phases)
{
    const char *begin = "\"mean_seconds\": {";
    for (int n = 0; n <= 70; n += 7) {
        tm_text  phases = { 0 }, out = { 0 };
        tm_error err = { 0 };
        int      colours[64];
        double   width = 0;
        tm_text_add(&phases, begin);
        for (int i = 0; i < n; i++) tm_text_printf(&phases, "\"phase%02d\": 0.5, ", i);
        const char      *pairs[] = { begin, phases.data, NULL };
        tm_result       *run = run_of("many", rich, pairs, NULL);
        const tm_result *one = run;
        assert_int_equal(tm_results_plot(&one, 1, "ledger", &out, &err), TM_OK);
        svg_page page = svg_read(out.data);
        size_t   names = key_colours(&page, "ledger", colours, 64);
        for (size_t i = 0; i < names; i++)
            for (size_t k = 0; k < i; k++) assert_true(colours[i] != colours[k]);
        for (size_t i = 0; i < page.n; i++) {
            const char *class_name = svg_attribute(&page.nodes[i], "class");
            if (class_name && strstr(class_name, " part")) width += svg_number(&page.nodes[i], "width");
        }
        assert_near(width, PICTURE - 2 * EDGE, 2, "the bar");
        if (n <= 7) assert_null(strstr(out.data, "others"));
        if (n >= 14) assert_non_null(strstr(out.data, "others"));
        svg_close(&page);
        tm_result_destroy(run);
        tm_text_fini(&phases);
        tm_text_fini(&out);
    }
}

/* Two pixels to a unit, where librsvg is. */
TEST(pictures_have_their_size)
{
    tm_text          svg = { 0 }, png = { 0 };
    tm_error         err = { 0 };
    int              width, height;
    tm_result       *run = rich_run();
    const tm_result *one = run;
    assert_int_equal(tm_results_plot(&one, 1, "loss", &svg, &err), TM_OK);
    assert_int_equal(sscanf(strstr(svg.data, "viewBox="), "viewBox=\"0 0 %d %d\"", &width, &height), 2);
    pid_t child = fork(); /* fontconfig never lets its files go */
    if (child == 0) {
        tm_status st = tm_results_raster(&svg, &png, &err);
        if (st != TM_OK) _exit(st == TM_UNSUPPORTED ? 0 : 1);
        const unsigned char *size = (const unsigned char *)png.data + 16;
        bool                 wide = (size[0] << 24 | size[1] << 16 | size[2] << 8 | size[3]) == 2 * width;
        bool                 high = (size[4] << 24 | size[5] << 16 | size[6] << 8 | size[7]) == 2 * height;
        _exit(memcmp(png.data, "\x89PNG\r\n\x1a\n", 8) == 0 && wide && high ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    tm_text_fini(&svg);
    tm_text_fini(&png);
    tm_result_destroy(run);
}

/* A folder of a run: its metrics are those of the file beside. */
TEST_WITH(folders_have_metrics, NULL, test_folder_teardown)
{
    tm_text    json = told_text(rich), lines = told_text(metrics);
    tm_error   err = { 0 };
    tm_result *run = NULL, *whole = rich_run();
    size_t     n, wanted;
    assert_int_equal(tm_file_write(test_in_folder("result.json"), json.data, json.length, &err), TM_OK);
    assert_int_equal(tm_file_write(test_in_folder("metrics.jsonl"), lines.data, lines.length, &err), TM_OK);
    assert_int_equal(tm_result_load(test_folder(), NULL, &run, &err), TM_OK);
    (void)tm_result_steps(run, &n);
    (void)tm_result_steps(whole, &wanted);
    assert_true(n == wanted && n > 0);
    tm_result_destroy(run);
    tm_result_destroy(whole);
    tm_text_fini(&json);
    tm_text_fini(&lines);
}
