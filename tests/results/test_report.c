/* SPDX-License-Identifier: Apache-2.0 */
/* The report of two made-up runs in every form beside the files it was made of: each cell, each row, each mark of a
 * chart. The runs are those of support/told_runs.h, of which one says all, one little. */
#include "results/report.h"
#include "chart_rules.h"
#include "figure_rules.h"
#include "base/csv.h"
#include "base/file.h"
#include "support/folder.h"

#include "support/test.h"

enum { MOST_RUNS = 2, MOST_FIGURES = 64 };

/* --- tables ------------------------------------------------------------------------------------------------------- */

/* The text of the k-th child of node i. */
static const char *child(const svg_page *page, size_t i, size_t k)
{
    size_t at = i + 1;
    while (k-- > 0 && at < page->nodes[i].end) at = page->nodes[at].end;
    return at < page->nodes[i].end ? svg_text(page, at) : "(none)";
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

/* The text of a table: its cells between '|', the exact figure of one that is rounded, a line for each row. */
static void table_tells(const svg_page *page, size_t table, tm_text *out)
{
    for (size_t row = table; (row = row_after(page, row, page->nodes[table].end)) < page->nodes[table].end;) {
        for (size_t at = row + 1; at < page->nodes[row].end; at = page->nodes[at].end) {
            const char *exact = svg_attribute(&page->nodes[at], "title");
            tm_text_printf(out, "%s%s", at > row + 1 ? "|" : "", exact ? exact : svg_text(page, at));
        }
        tm_text_add(out, "\n");
    }
}

/* The figures of all forms, by their paths; those that a run has by their names, too. */
typedef struct {
    char  *names[MOST_FIGURES], *paths[MOST_FIGURES];
    size_t n;
} figures;

/* What people look for is there, by its name. */
static void figures_have_their_names(const figures *f)
{
    static const char some[] = /* "NAME=PATH; ..." */
        "tokens per second and device (median)=tokens_per_second_per_device/median; "
        "from=tokens_per_second_per_device/lo; to=tokens_per_second_per_device/hi; "
        "over all counted steps=tokens_per_second_per_device_overall/value; step time (median)=step_time/median; "
        "step time p95=step_time/p95; variation of step times=step_time/variation_percent; steps=steps/done; "
        "loss, first step=loss/first; loss, last step=loss/last; loss, validation=loss/validation; "
        "loss, least possible=loss/floor; memory planned=memory/planned_bytes; memory used=memory/used_bytes; "
        "memory of the whole process=memory/resident_bytes; number format=precision; total time=seconds; "
        "time to first step=first_step_seconds; configuration=configuration_hash; weights=weights_hash";
    char text[sizeof some], *rest = strcpy(text, some);
    for (char *name; (name = strsep(&rest, ";"));) {
        char  *path = strchr(name += *name == ' ', '=');
        size_t k = 0;
        *path++ = '\0';
        while (k < f->n && strcmp(f->paths[k], path) != 0) k++;
        assert_true(k < f->n);
        if (f->names[k]) assert_string_equal(f->names[k], name);
    }
    for (size_t i = 0; i < f->n; i++)
        for (size_t k = 0; k < i; k++) assert_string_not_equal(f->paths[i], f->paths[k]);
    assert_string_equal(f->paths[0], "verdict");
}

static bool is_told(const source *runs, size_t n, const char *path)
{
    for (size_t i = 0; i < n; i++) {
        json_t *one = at_path(runs[i].tree, path);
        if (one && !json_is_null(one) && !(json_is_string(one) && !*json_string_value(one))) return true;
    }
    return false;
}

/* What was not looked at has not failed; the file's own word is the cell's title. */
static void check_says(const svg_page *page, size_t cell, const source *run)
{
    const char *text = svg_text(page, cell), *reason = json_string_value(at_path(run->tree, "certificate/reason"));
    bool        done = json_is_true(at_path(run->tree, "certificate/done"));
    json_t     *agree = at_path(run->tree, "certificate/gradients");
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
    assert_string_equal(child(page, row, 0), "");
    for (size_t i = 0; i < n; i++) assert_string_equal(child(page, row, i + 1), runs[i].name);
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
                figure_says(page, at, at_path(runs[column - 1].tree, f->paths[k]));
        }
        assert_int_equal(column, n + 1);
    }
    assert_int_equal(row_after(page, row, end), end);
    figures_have_their_names(f);
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
        assert_string_equal(cells.data + at[0], runs[i].name);
        for (size_t k = 0; k < f->n; k++) cell_says(cells.data + at[k + 1], at_path(runs[i].tree, f->paths[k]));
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
        assert_string_equal(json_string_value(json_object_get(one, "run")), runs[i].name);
        assert_int_equal(json_object_size(one), f->n + 1);
        for (size_t k = 0; k < f->n; k++) {
            json_t *is = json_object_get(one, f->paths[k]), *wanted = at_path(runs[i].tree, f->paths[k]);
            if (json_is_number(wanted))
                assert_near(json_number_value(is), json_number_value(wanted), 0, f->paths[k]);
            else
                assert_true(wanted ? json_equal(is, wanted) : json_is_null(is));
        }
    }
    json_decref(all);
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
    svg_page page = svg_read(out[1].data);
    figures_are_told(&page, &f, runs, n);
    for (size_t i = 0; i < page.n; i++) /* nothing is loaded from elsewhere, nor may it be */
        for (int k = 0; k < page.nodes[i].n; k++)
            assert_true(strcmp(page.nodes[i].names[k], "xmlns") == 0 || !strstr(page.nodes[i].values[k], "//"));
    assert_true(strstr(out[1].data, "content=\"default-src 'none'; ") && !strstr(out[1].data, "url("));
    svg_close(&page);
    markdown_says(out[2].data, out[1].data, &f, n);
    json_says(out[3].data, &f, runs, n);
    for (int i = 0; i < 4; i++) tm_text_fini(&out[i]);
    for (size_t k = 0; k < f.n; k++) free(f.names[k]), free(f.paths[k]);
}

/* Alone and side by side, each of the two first. */
TEST(figures_are_those_of_the_files)
{
    source one = open_source("rich", told_text(rich), told_text(metrics)),
           other = open_source("po<or", told_text(poor), (tm_text){ 0 });
    const source both[] = { one, other }, turned[] = { other, one };
    report_says(both, 1);
    report_says(both, 2);
    report_says(turned, 1);
    report_says(turned, 2);
    close_source(&one);
    close_source(&other);
}

/* What of two runs is told in rows: checks, everything below what was run on what; tensors, of which ten are farthest.
 */
TEST(rows_of_what_was_run)
{
    tm_text two = { 0 }, html = { 0 }, told = { 0 };
    tm_text_add(&two,
                "'checks': null => 'checks': {'fail': 1, 'not_passed': [{'id': 'numa', 'status': 'WARN', "
                "'observed': 'a<b & c'}, {'id': 'memlock', 'observed': 8}]}; 'environment': null => 'environment': "
                "{'os': {'host': 'h', 'n': {'deep': true, 'none': {}}}, 'w': null, 'x': -2.123456789, 'y': false}; "
                "'configuration': null => 'configuration': {'model.dim': 64, 'exp_name': '<e>'}; "
                "'microscope': { => 'microscope': {'last': {'step': 7, 'reference': 'flo|at<32>', 'tensors': [");
    for (int i = 0; i < 12; i++)
        tm_text_printf(&two, "%s{'name': 't%d', 'kind': '%s', 'relative_error': %s, 'cosine': 0.12345678}",
                       i ? ", " : "", i, i % 2 ? "backward" : "factor",
                       i == 9       ? "null"
                       : i == 11    ? "0.5"
                       : i % 5 == 2 ? "0.25"
                                    : "0.125");
    tm_text_add(&two, "]}}, 'ignored': {");
    source a = open_source("a", changed(rich, two.data), told_text(metrics)),
           b = open_source("b", changed(poor, "'environment': null => 'environment': {'os': {'host': 'k'}, 'x': 7}"),
                           (tm_text){ 0 });
    const tm_result *runs[] = { a.run, b.run };
    tm_error         err = { 0 };
    assert_int_equal(tm_results_report(runs, 2, TM_REPORT_HTML, &html, &err), TM_OK);
    svg_page page = svg_read(html.data);
    for (size_t i = 0; i < page.n; i++) {
        const char *id = svg_attribute(&page.nodes[i], "id");
        bool        rows = svg_is(&page.nodes[i], "table", "looks") || (id && strcmp(id, "checks") == 0);
        if (strcmp(page.nodes[i].tag, "h2") == 0 && strncmp(svg_text(&page, i), "Numbers of", 10) == 0)
            tm_text_printf(&told, "%s\n", svg_text(&page, i));
        if (rows) table_tells(&page, i, &told);
        if (strcmp(page.nodes[i].tag, "details") != 0 || strncmp(child(&page, i, 0), "Lines of a step", 15) == 0)
            continue;
        tm_text_printf(&told, "%s\n", child(&page, i, 0));
        table_tells(&page, i, &told);
    }
    assert_string_equal(told.data,
                        "Numbers of a beside those of flo|at<32>, the farthest, before step 7\n"
                        "name|kind|format|relative_error|cosine|underflow|overflow|amax|reference_amax\n"
                        "t0|factor||0.125|0.1235||||\nt1|backward||0.125|0.1235||||\nt2|factor||0.25|0.1235||||\n"
                        "t3|backward||0.125|0.1235||||\nt4|factor||0.125|0.1235||||\nt5|backward||0.125|0.1235||||\n"
                        "t6|factor||0.125|0.1235||||\nt7|backward||0.25|0.1235||||\nt9|backward|||0.1235||||\n"
                        "t11|backward||0.5|0.1235||||\n"
                        "run|check|status|observed\na|numa|WARN|a<b & c\na|memlock||\n"
                        "Configuration\nmodel.dim|64|\nexp_name|<e>|\n"
                        "System\nos/host|h|k\nos/n/deep|true|\nw||\nx|-2.123456789|7\ny|false|\n"
                        "Machine during the counted steps\nverdict|invalid|\nreason|others computed, too|\n"
                        "seconds|11.5|0\nsamples|23|0\nprocessors|4|\nsteal_percent|0.25|\nthrottled_percent||\n");
    svg_close(&page);
    close_source(&a);
    close_source(&b);
    tm_text_fini(&html);
    tm_text_fini(&told);
    tm_text_fini(&two);
}

/* --- charts ------------------------------------------------------------------------------------------------------- */

#define RICH_LOSS                                                                                                      \
    "Loss; nats per pair over step\nrich: 31 8, 32 4, 34 2\n| rich\n* rich, validation, step 32: 1.11 nats per pair\n" \
    "| rich, validation\n- entropy of the data 1.75: 31 1.75, 34 1.75\n| entropy of the data 1.75\n"
#define POOR_LOSS                                                                                                      \
    "Loss; mean square error over step\n- least possible loss 0.25: 0 0.25, 1 0.25\n| least possible loss 0.25\n"
#define SPEED "Speed of each step, for each device; tokens/s over step; from zero\n"
#define RICH_SPEED "rich: 31 8192, 32 4096, 33 2730.67, 34 2048\n| rich\n"
#define LEDGER "Where a step's time goes\n"
#define RICH_LEDGER "= rich 1.5 s\n# rich, data: 125 ms\n# rich, forward: 750 ms\n# rich, unaccounted: 625 ms\n"
#define POOR_LEDGER "= po<or 500 ms\n# po<or, data: 125 ms\n# po<or, forward: 250 ms\n# po<or, unaccounted: 125 ms\n"
#define ROOFLINE "Roofline: lines of a step, and the machine's limits; GFLOP/s over FLOP per byte of the operands\n"
#define ROOFS "arithmetic: 40 TFLOP/s, of the device's data sheet\n"
#define AXES_OF_NUMBERS                                                                                                \
    "Relative error of each tensor (the last look of the microscope); relative error over tensor, in the order of "    \
    "the "                                                                                                             \
    "program\n"

/* Charts of the rich run, the poor one, both; NULL: they have none. */
static const struct {
    const char *id, *of[3];
} charts[] = {
    { "loss", { RICH_LOSS, POOR_LOSS, RICH_LOSS } },
    { "loss-2", { NULL, NULL, POOR_LOSS } },
    { "speed",
      { SPEED "[34.00 .. 34.00]\n" RICH_SPEED "| the steps that count\n",
        SPEED "[1.00 .. 2.00]\npo<or: 1 8192, 2 4096\n| po<or\n| the steps that count\n",
        SPEED RICH_SPEED "po<or: 1 8192, 2 4096\n| po<or\n" } },
    { "ledger",
      { LEDGER             RICH_LEDGER "| data 125 ms\n| forward 750 ms\n| unaccounted 625 ms\n",
        LEDGER             POOR_LEDGER "| data 125 ms\n| forward 250 ms\n| unaccounted 125 ms\n",
        LEDGER RICH_LEDGER POOR_LEDGER "| data\n| forward\n| unaccounted\n" } },
    { "memory",
      { "Memory along a step (names: at its fullest point); KiB over from the first instruction of the step to its "
        "last; "
        "from zero\n~ weights: 2.00 KiB: 1 2 3\n~ activations: 4.00 KiB: 3 6 4\n- planned 6.00 KiB: 6\n| weights 2.00 "
        "KiB\n| activations 4.00 KiB\n",
        NULL,
        "Memory at the fullest point of a step, by class\n= rich 6.00 KiB\n# rich, weights: 2.00 KiB\n# rich, "
        "activations: 4.00 KiB\n= po<or 0 B\n| weights\n| activations\n" } },
    { "roofline",
      { ROOFLINE "- memory: at least 2.67 MB/s\n" ROOFS
                 "forward\n* forward: 1.333 GFLOP/s, 500 FLOP per byte\nridge: 15M "
                 "FLOP/B\n| memory: at least 2.67 MB/s\n| " ROOFS,
        NULL,
        ROOFLINE "- memory: at least 2.67 MB/s\n" ROOFS "forward\n* rich, forward: 1.333 GFLOP/s, 500 FLOP per "
                 "byte\nridge: 15M FLOP/B\n| memory: at least 2.67 MB/s\n| " ROOFS "| rich\n| po<or\n" } },
    { "numbers",
      { AXES_OF_NUMBERS
        "* rich, forward, tensor, in the order of the program 1: 0.002 relative error\n| rich, forward\n",
        NULL,
        AXES_OF_NUMBERS
        "* rich, forward, tensor, in the order of the program 1: 0.002 relative error\n| rich, forward\n" } },
};
enum { CHARTS = sizeof charts / sizeof charts[0] };

static void chart_is(const char *text, size_t k, size_t which)
{
    tm_text  told = { 0 };
    svg_page page = svg_read(text);
    bool     roofline = strcmp(charts[k].id, "roofline") == 0;
    chart_tells(&page, charts[k].id, roofline, roofline || strcmp(charts[k].id, "numbers") == 0, &told);
    assert_string_equal(told.data, charts[k].of[which]);
    svg_close(&page);
    tm_text_fini(&told);
}

/* Each in the page, in their order, and alone, with its style inside. */
TEST(charts_of_runs)
{
    static const char memory[] = "[11, 12, 13] => [1024, 2048, 3072]; [21, 22, 23] => [2048, 4096, 1024]; "
                                 "'planned_bytes': 6000 => 'planned_bytes': 6144";
    source            a = open_source("rich", changed(rich, memory), told_text(metrics)),
           b = open_source("po<or", told_text(poor), (tm_text){ 0 });
    const tm_result *runs[] = { a.run, b.run };
    for (size_t which = 0; which < 3; which++) {
        const tm_result *const *of = which == 1 ? runs + 1 : runs;
        size_t                  n = which == 2 ? 2 : 1;
        tm_text                 html = { 0 };
        tm_error                err = { 0 };
        assert_int_equal(tm_results_report(of, n, TM_REPORT_HTML, &html, &err), TM_OK);
        svg_page page = svg_read(html.data);
        size_t   at = 0;
        for (size_t k = 0; k < CHARTS; k++) {
            tm_text out = { 0 };
            if (!charts[k].of[which]) continue;
            at = svg_find(&page, at + 1, page.n, "svg", "chart");
            assert_string_equal(svg_attribute(&page.nodes[at], "id"), charts[k].id);
            chart_is(html.data, k, which);
            if (k == 1 || (which == 2 && k == 0)) continue; /* losses of several units are not drawn alone */
            assert_int_equal(tm_results_plot(of, n, charts[k].id, &out, &err), TM_OK);
            chart_is(out.data, k, which);
            assert_non_null(strstr(out.data, chart_style()));
            tm_text_fini(&out);
        }
        assert_int_equal(svg_find(&page, at + 1, page.n, "svg", "chart"), page.n);
        svg_close(&page);
        tm_text_fini(&html);
    }
    close_source(&a);
    close_source(&b);
}

TEST(charts_that_cannot_be_drawn)
{
    source a = open_source("rich", told_text(rich), told_text(metrics)),
           b = open_source("po<or", told_text(poor), (tm_text){ 0 });
    const tm_result *both[] = { a.run, b.run };
    static const struct {
        size_t      first, n;
        const char *chart, *says;
        tm_status   status;
    } rows[] = { { 0, 2, "loss", "different units", TM_INVALID },
                 { 1, 1, "memory", "'po<or' holds nothing for the chart memory", TM_INVALID },
                 { 1, 1, "numbers", "'po<or' holds nothing for the chart numbers", TM_INVALID },
                 { 0, 1, "pie", "'pie'", TM_USAGE } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_text  out = { 0 };
        tm_error err = { 0 };
        assert_int_equal(tm_results_plot(both + rows[i].first, rows[i].n, rows[i].chart, &out, &err), rows[i].status);
        if (!strstr(err.text, rows[i].says)) fail_msg("%s", err.text);
        for (size_t k = 0; tm_report_chart(k) && rows[i].status == TM_USAGE; k++)
            assert_non_null(strstr(err.text, tm_report_chart(k)));
        tm_text_fini(&out);
    }
    close_source(&a);
    close_source(&b);
}
