/* SPDX-License-Identifier: Apache-2.0 */
/* cli/compare.c - `trainmark compare`: two results, a result and published figures, a result and its limits. */
#include "apps/bench/published.h"
#include "cli/cli.h"
#include "cli/compare_baseline.h"
#include "record/table.h"
#include "results/compare.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *store, *thresholds, *write, *cell;
    double      slowdown;
    int64_t     top;
    bool        json, baseline;
    bool        verbose; /* all columns: -v */
    const char *path;    /* of the store, or NULL */
} compare_options;

static tm_status print(const tm_table *table, const compare_options *o, tm_error *err)
{
    tm_text text = { 0 };
    tm_cli_add_table(table, o->json, o->verbose, &text);
    tm_text_add(&text, o->json ? "" : "\n");
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

/* One below the other, or as a list; NULL: none. */
static tm_status print_tables(const tm_table *const *tables, size_t n, const compare_options *o, tm_error *err)
{
    tm_text     text = { 0 };
    const char *between = o->json ? "[\n" : "";
    for (size_t i = 0; i < n; i++) {
        if (!tables[i]) continue;
        tm_text_add(&text, between);
        tm_cli_add_table(tables[i], o->json, o->verbose, &text);
        if (!o->json) tm_text_add(&text, "\n");
        between = o->json ? ",\n" : "";
    }
    tm_text_add(&text, o->json ? "]\n" : "");
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

/* The first `most` rows; 0: all. */
static tm_table *head_of(tm_table *all, int64_t most)
{
    tm_table *table = tm_table_create(tm_table_name(all));
    for (size_t c = 0; c < tm_table_n_columns(all); c++) tm_table_columns(table, tm_table_column_at(all, c), 1);
    for (size_t r = 0; r < tm_table_n_rows(all) && (most == 0 || (int64_t)r < most); r++) {
        tm_table_row(table);
        tm_table_i64(table, "rank", tm_table_cell(all, r, 0)->i64);
        for (size_t c = 1; c < tm_table_n_columns(all); c++)
            tm_table_text(table, tm_table_column_at(all, c)->name, tm_table_cell(all, r, c)->text);
    }
    if (tm_table_n_rows(all) == 0) tm_table_note(table, "nothing else differs that was recorded");
    if (tm_table_n_rows(all) > tm_table_n_rows(table))
        tm_table_note(table, "%zu more; --top 0 lists all", tm_table_n_rows(all) - tm_table_n_rows(table));
    tm_table_destroy(all);
    return table;
}

static tm_status compare_two(const compare_options *o, const tm_result *a, const tm_result *b, tm_error *err)
{
    tm_table *figures = tm_results_compare(a, b), *differences = head_of(tm_results_differences(a, b), o->top);
    tm_status st = TM_OK;
    if (tm_table_n_rows(figures) == 0)
        st = tm_fail(err, TM_INVALID, "'%s' and '%s' have no figure in common: a run and a benchmark, or other cases",
                     tm_result_name(a), tm_result_name(b));
    tm_table_note(figures, "a: %s, b: %s; intervals are of these starts, not of what another start would show",
                  tm_result_name(a), tm_result_name(b));
    const tm_table *tables[] = { figures, differences };
    if (st == TM_OK) st = print_tables(tables, 2, o, err);
    tm_table_destroy(figures);
    tm_table_destroy(differences);
    return st;
}

static tm_status compare_published(const compare_options *o, const tm_result *a, const char *path, tm_error *err)
{
    tm_published *published;
    TM_TRY(tm_published_read(path, &published, err));
    tm_table *measured = tm_results_measured(a), *table = tm_published_compare(published, measured);
    tm_status st = TM_OK;
    if (tm_table_n_rows(table) == 0)
        st = tm_fail(err, TM_INVALID, "no published figure belongs to '%s'; `trainmark reference` lists all",
                     tm_result_name(a));
    if (st == TM_OK) st = print(table, o, err);
    tm_table_destroy(table);
    tm_table_destroy(measured);
    tm_published_destroy(published);
    return st;
}

/* --- gates -------------------------------------------------------------------------------------------------------- */

static tm_status print_gates(const tm_gate *gates, size_t n, const char *cell, const compare_options *o, tm_error *err)
{
    static const tm_column columns[] = {
        { "metric", 0 }, { "kind", 0 }, { "limit", 6 }, { "measured", 6 }, { "verdict", 0 }
    };
    tm_table *table = tm_table_create("gates");
    size_t    failed = 0;
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < n; i++) {
        tm_table_row(table);
        tm_table_text(table, "metric", gates[i].metric);
        tm_table_text(table, "kind", tm_gate_kind_name(gates[i].kind));
        tm_table_f64(table, "limit", gates[i].limit);
        tm_table_f64(table, "measured", gates[i].measured);
        tm_table_text(table, "verdict", gates[i].kind == TM_GATE_INFO ? "RECORD" : gates[i].passed ? "PASS" : "FAIL");
        failed += !gates[i].passed;
    }
    tm_table_note(table, "cell %s: %zu of %zu pass", cell, n - failed, n);
    tm_status st = print(table, o, err);
    tm_table_destroy(table);
    if (st == TM_OK && failed) st = tm_fail(err, TM_NEGATIVE, "%zu of %zu limits are exceeded", failed, n);
    return st;
}

static tm_status judge(const compare_options *o, const tm_result *a, tm_error *err)
{
    const tm_metric *metrics;
    const tm_gate   *gates;
    const char      *cells[2], *cell = o->cell;
    size_t           n, n_gates;
    tm_thresholds   *limits;
    tm_error         ignored = { 0 };
    TM_TRY(tm_results_metrics(a, &metrics, &n, cells, err));
    TM_TRY(tm_thresholds_read(o->thresholds, &limits, err));
    if (!cell) cell = tm_thresholds_has(limits, cells[1], &ignored) == TM_OK ? cells[1] : cells[0];
    tm_status st = tm_thresholds_judge(limits, cell, metrics, n, &gates, &n_gates, err);
    if (st == TM_OK) st = print_gates(gates, n_gates, cell, o, err);
    tm_thresholds_destroy(limits);
    return st;
}

static tm_status write_limits(const compare_options *o, const tm_result *a, tm_error *err)
{
    const tm_metric *metrics;
    const char      *cells[2];
    size_t           n;
    TM_TRY(tm_results_metrics(a, &metrics, &n, cells, err));
    return tm_thresholds_write(o->write, o->cell ? o->cell : cells[0], metrics, n, err);
}

/* --- the command -------------------------------------------------------------------------------------------------- */

/* A against B, published figures, or nothing but limits. */
static tm_status compare(compare_options *o, char **words, int n, tm_error *err)
{
    tm_result *a = NULL, *b = NULL;
    tm_status  st = tm_result_load(words[0], o->path, &a, err);
    bool       published = n > 1 && (strcmp(words[1], "reference") == 0 || strstr(words[1], ".csv"));
    if (st == TM_OK && published) st = compare_published(o, a, words[1], err);
    if (st == TM_OK && n > 1 && !published) st = tm_result_load(words[1], o->path, &b, err);
    if (st == TM_OK && b) st = compare_two(o, a, b, err);
    if (st == TM_OK && o->write) st = write_limits(o, a, err);
    if (st == TM_OK && o->thresholds) st = judge(o, a, err);
    tm_result_destroy(a);
    tm_result_destroy(b);
    return st;
}

/* Prints figures (of one run each), differences (of the first of each), sides and verdict. */
static tm_status print_baseline(const compare_options *o, const compare_side *a, const compare_side *base,
                                const tm_baseline_result *r, tm_error *err)
{
    bool      single = a->n == 1 && base->n == 1;
    tm_table *figures = single ? tm_results_compare(base->runs[0], a->runs[0]) : NULL;
    tm_table *differences = head_of(tm_results_differences(base->runs[0], a->runs[0]), o->top);
    if (figures)
        tm_table_note(figures, "a: %s, b: %s; intervals are of these starts, not of what another start would show",
                      tm_result_name(base->runs[0]), tm_result_name(a->runs[0]));
    const tm_table *tables[] = { figures, differences, r->sides, r->verdict };
    tm_status       st = print_tables(tables, sizeof tables / sizeof tables[0], o, err);
    tm_table_destroy(figures);
    tm_table_destroy(differences);
    return st;
}

/* A... --baseline [B...]. */
static tm_status gate(compare_options *o, char **words, int before, int n, tm_arena *arena, tm_error *err)
{
    compare_side       a = { 0 }, base = { 0 };
    tm_baseline_result r = { 0 };
    tm_status          st = compare_side_load(words, before, o->path, arena, &a, err);
    if (st == TM_OK && a.n > 1 && (o->thresholds || o->write))
        st = tm_fail(err, TM_USAGE, "--thresholds and --write-thresholds are of one run, found %zu; name one", a.n);
    if (st == TM_OK && n > before) st = compare_side_load(words + before, n - before, o->path, arena, &base, err);
    if (st == TM_OK && n == before) st = compare_side_find(&a, o->path, arena, &base, err);
    if (st == TM_OK) st = compare_judge(&a, &base, o->slowdown, &r, err);
    if (st == TM_OK) st = print_baseline(o, &a, &base, &r, err);
    if (st == TM_OK && o->write) st = write_limits(o, a.runs[0], err);
    if (st == TM_OK && o->thresholds) st = judge(o, a.runs[0], err);
    if (st == TM_OK) st = compare_verdict(&r, o->slowdown, err);
    tm_table_destroy(r.sides);
    tm_table_destroy(r.verdict);
    compare_side_fini(&a);
    compare_side_fini(&base);
    return st;
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    compare_options *o = line->options;
    o->verbose = line->verbose;
    bool chosen;
    int  before = o->baseline ? compare_words_before(line) : line->n_words;
    o->path = tm_store_path(line->arena, o->store, &chosen);
    if (before == 0)
        return tm_fail(err, TM_USAGE,
                       "the runs to judge stand in front of --baseline, those of the baseline behind it");
    if (o->baseline) return gate(o, line->words, before, line->n_words, line->arena, err);
    if (line->n_words > 2)
        return tm_fail(err, TM_USAGE, "unexpected '%.200s'; several runs of a side are for --baseline", line->words[2]);
    if (line->n_words == 1 && !o->thresholds && !o->write)
        return tm_fail(err, TM_USAGE,
                       "compare '%.200s' with what? A second result, reference, --baseline or --thresholds",
                       line->words[0]);
    return compare(o, line->words, line->n_words, err);
}

static const tm_option rows[] = {
    { "baseline", 0, TM_OPTION_FLAG, offsetof(compare_options, baseline),
      .help = "is A slower than B, or than its newest stored results? 5: yes, 3: no verdict" },
    { "max-slowdown", 0, TM_OPTION_F64, offsetof(compare_options, slowdown), .value = "PERCENT", .fallback = "2.5",
      .lo = 0.01, .hi = 1e6, .help = "slowdown that --baseline accepts; twice that is seen" },
    { "thresholds", 0, TM_OPTION_TEXT, offsetof(compare_options, thresholds), .value = "FILE",
      .help = "compare A with a file of limits (docs/check.md): exit code 5 if one is not kept" },
    { "write-thresholds", 0, TM_OPTION_TEXT, offsetof(compare_options, write), .value = "FILE",
      .help = "write such a file from A" },
    { "cell", 0, TM_OPTION_TEXT, offsetof(compare_options, cell), .value = "KEY",
      .help = "the cell of the file of limits; default: that of the run" },
    { "top", 0, TM_OPTION_I64, offsetof(compare_options, top), .value = "N", .fallback = "20", .lo = 0, .hi = 1e9,
      .help = "number of differences that are listed; 0: all" },
    { "store", 0, TM_OPTION_TEXT, offsetof(compare_options, store), .value = "FILE",
      .help = "another store of results" },
    TM_OPTION_JSON(compare_options),
};

const tm_cli_command tm_command_compare = {
    .name = "compare",
    .summary = "compare two results: figures with intervals, differences, limits",
    .words = "A... [--baseline] [B...]",
    .least = 1,
    .most = -1,
    .about =
        "A and B are run directories, result.json files, tables of `bench --output-file F.json`, or stored results (a "
        "number, last, last~N). B may be `reference`, the published figures of the same case, or a CSV file of such. "
        "Prints the figures with the interval of their change, then the differences in configuration and environment, "
        "the likeliest causes first. --baseline judges several starts of A against several of B, which stand behind "
        "it; "
        "a folder stands for the runs in it. At least five of each side, started in turns, allow a verdict "
        "(docs/results.md).",
    TM_CLI_OPTIONS(rows, compare_options),
    .run = run,
};
