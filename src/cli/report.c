/* SPDX-License-Identifier: Apache-2.0 */
/* cli/report.c - `trainmark report`: runs as one page. */
#include "results/report.h"

#include "base/file.h"
#include "cli/cli.h"
#include "record/table.h"
#include "results/certificate.h"
#include "results/fleet.h"

#include <string.h>

typedef struct {
    const char *out, *chart, *plot, *store, *thresholds, *cell;
    double      tolerance;
    bool        fleet, json;
    bool        verbose; /* all columns: -v */
} report_options;

static bool ends_in(const char *path, const char *end)
{
    size_t n = strlen(path), m = strlen(end);
    return n > m && strcmp(path + n - m, end) == 0;
}

static tm_status write_chart(const report_options *o, const tm_result *const *runs, size_t n, tm_error *err)
{
    tm_text   svg = { 0 }, png = { 0 };
    bool      raster = ends_in(o->plot, ".png");
    tm_status st = tm_results_plot(runs, n, o->chart, &svg, err);
    if (st == TM_OK && raster) st = tm_results_raster(&svg, &png, err);
    const tm_text *file = raster ? &png : &svg;
    if (st == TM_OK) st = tm_file_write(o->plot, file->data, file->length, err);
    tm_text_fini(&svg);
    tm_text_fini(&png);
    return st;
}

static tm_status print_figures(const tm_result *const *runs, size_t n, tm_error *err)
{
    tm_text   text = { 0 };
    tm_status st = tm_results_report(runs, n, TM_REPORT_JSON, &text, err);
    if (st == TM_OK) st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

static tm_status write_files(const report_options *o, const tm_result *const *runs, size_t n, tm_error *err)
{
    tm_report_format format = o->json ? TM_REPORT_JSON : TM_REPORT_MARKDOWN;
    tm_text          text = { 0 };
    if (o->out) TM_TRY(tm_report_format_of(o->out, &format, err));
    tm_status st = o->plot ? write_chart(o, runs, n, err) : TM_OK;
    if (st == TM_OK && (o->out || !o->plot)) st = tm_results_report(runs, n, format, &text, err);
    if (st == TM_OK && text.length)
        st = o->out ? tm_file_write(o->out, text.data, text.length, err) : tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st == TM_OK && o->json && (o->out || o->plot) ? print_figures(runs, n, err) : st;
}

/* --- many hosts --------------------------------------------------------------------------------------------------- */

static tm_status write_page(const char *path, const tm_result *const *runs, size_t n, const tm_table *table,
                            tm_error *err)
{
    tm_text   text = { 0 };
    tm_status st = tm_results_fleet_page(runs, n, table, &text, err);
    if (st == TM_OK) st = tm_file_write(path, text.data, text.length, err);
    tm_text_fini(&text);
    return st;
}

static tm_status write_fleet(const report_options *o, const tm_result *const *runs, size_t n, tm_error *err)
{
    tm_fleet_options fleet = { .tolerance = o->tolerance, .cell = o->cell };
    tm_report_format format = TM_REPORT_MARKDOWN;
    tm_text          text = { 0 };
    tm_table        *table = NULL;
    size_t           failed;
    if (o->out) TM_TRY(tm_report_format_of(o->out, &format, err));
    if (o->thresholds) TM_TRY(tm_thresholds_read(o->thresholds, &fleet.limits, err));
    tm_status st = tm_results_fleet(runs, n, &fleet, &table, &failed, err);
    if (st == TM_OK && o->out)
        st = format == TM_REPORT_HTML ? write_page(o->out, runs, n, table, err) : tm_table_write(table, o->out, err);
    if (st == TM_OK && (o->json || !o->out)) {
        tm_cli_add_table(table, o->json, o->verbose, &text);
        st = tm_cli_print(&text, err);
    }
    if (st == TM_OK && failed) st = tm_fail(err, TM_NEGATIVE, "%zu of %zu runs do not pass", failed, n);
    tm_text_fini(&text);
    tm_table_destroy(table);
    tm_thresholds_destroy(fleet.limits);
    return st;
}

/* --- certificates of nodes ---------------------------------------------------------------------------------------- */

static bool are_certificates(const tm_result *const *results, size_t n)
{
    return n > 0 && tm_result_kind_of(results[0]) == TM_RESULT_CERTIFICATE;
}

/* The tables as HTML, or as they are: of several, the first one is for people only. */
static tm_status write_tables(const report_options *o, const tm_table *brief, const tm_table *whole, tm_text *page,
                              tm_error *err)
{
    tm_report_format format = TM_REPORT_MARKDOWN;
    tm_text          text = { 0 };
    tm_status        st = TM_OK;
    if (o->out) TM_TRY(tm_report_format_of(o->out, &format, err));
    if (o->out && format == TM_REPORT_HTML)
        st = tm_file_write(o->out, page->data, page->length, err);
    else if (o->out)
        st = tm_table_write(whole, o->out, err);
    if (st != TM_OK || (o->out && !o->json)) return st;
    if (brief != whole && !o->json) tm_cli_add_table(brief, false, true, &text);
    if (brief != whole && !o->json) tm_text_add(&text, "\n");
    tm_cli_add_table(whole, o->json, true, &text);
    st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

static tm_status write_certificate(const report_options *o, const tm_result *const *results, size_t n, tm_error *err)
{
    enum { MOST = 1000 };
    tm_text page = { 0 };
    if (o->plot) return tm_fail(err, TM_INVALID, "--plot draws charts of runs; '%s' is a certificate", o->plot);
    if (n > 1) return tm_fail(err, TM_INVALID, "several certificates are one page with --fleet");
    tm_table *table = tm_results_certificate_table(results[0], MOST);
    tm_results_certificate_page(results[0], &page);
    tm_status st = write_tables(o, table, table, &page, err);
    tm_table_destroy(table);
    tm_text_fini(&page);
    return st;
}

static tm_status write_certificates(const report_options *o, const tm_result *const *results, size_t n, tm_error *err)
{
    size_t    failed;
    tm_text   page = { 0 };
    tm_table *nodes = NULL, *details = NULL;
    if (o->thresholds || o->cell)
        return tm_fail(err, TM_INVALID, "--thresholds and --cell are for runs; '%s' is a certificate",
                       tm_result_name(results[0]));
    TM_TRY(tm_results_certificates(results, n, &nodes, &details, &failed, err));
    tm_results_certificates_page(nodes, details, &page);
    tm_status st = write_tables(o, nodes, details, &page, err);
    if (st == TM_OK && failed)
        st = tm_fail(err, TM_NEGATIVE, "the latest certificate of %zu node%s fails", failed, failed == 1 ? "" : "s");
    tm_table_destroy(nodes);
    tm_table_destroy(details);
    tm_text_fini(&page);
    return st;
}

/* The word "certificates" stands for all of the store. */
static tm_status expand(tm_cli_line *line, const char *path, const char *const **words, size_t *n, tm_error *err)
{
    tm_store    *store = NULL;
    tm_stored   *rows;
    const char **all;
    *words = (const char *const *)line->words, *n = (size_t)line->n_words;
    if (*n != 1 || strcmp(line->words[0], "certificates") != 0 || tm_file_exists("certificates")) return TM_OK;
    if (!path)
        return tm_fail(err, TM_INVALID, "there is no store of results; name one with --store or TRAINMARK_STORE");
    TM_TRY(tm_store_open(path, false, &store, err));
    tm_status st = tm_store_list(store, &(tm_store_filter){ .kind = "certificate" }, line->arena, &rows, n, err);
    tm_store_close(store);
    if (st != TM_OK) return st;
    if (*n == 0) return tm_fail(err, TM_INVALID, "'%s' holds no certificate; `trainmark certify` adds one", path);
    all = tm_arena_take(line->arena, *n * sizeof *all);
    for (size_t i = 0; i < *n; i++) all[i] = tm_arena_format(line->arena, "%lld", (long long)rows[i].id);
    *words = all;
    return TM_OK;
}

static tm_status check_options(const tm_cli_line *line, tm_error *err)
{
    static const char *const of_fleet[] = { "thresholds", "cell", "tolerance" };
    const report_options    *o = line->options;
    for (size_t i = 0; !o->fleet && i < line->command->n_options; i++)
        for (int k = 0; k < 3; k++)
            if (line->given >> i & 1U && strcmp(line->command->options[i].name, of_fleet[k]) == 0)
                return tm_fail(
                    err, TM_USAGE,
                    "--thresholds, --cell and --tolerance are of --fleet; a single run is compared with limits "
                    "by `trainmark compare RUN --thresholds FILE`");
    for (size_t i = 0; !o->plot && i < line->command->n_options; i++)
        if (line->given >> i & 1U && strcmp(line->command->options[i].name, "chart") == 0)
            return tm_fail(err, TM_USAGE, "--chart names the chart of --plot FILE; a page has all of them");
    if (o->fleet && o->plot) return tm_fail(err, TM_USAGE, "--plot draws one chart, --fleet a page; leave one out");
    if (o->plot && !ends_in(o->plot, ".svg") && !ends_in(o->plot, ".png"))
        return tm_fail(err, TM_USAGE, "--plot %s: a chart is SVG or PNG; give a name that ends in .svg or .png",
                       o->plot);
    return TM_OK;
}

static tm_status write_report(const report_options *o, const tm_result *const *results, size_t n, tm_error *err)
{
    if (are_certificates(results, n)) return (o->fleet ? write_certificates : write_certificate)(o, results, n, err);
    return (o->fleet ? write_fleet : write_files)(o, results, n, err);
}

static tm_status report(tm_cli_line *line, tm_error *err)
{
    report_options    *o = line->options;
    bool               chosen;
    size_t             n;
    const char *const *words;
    const char        *store = tm_store_path(line->arena, o->store, &chosen);
    TM_TRY(check_options(line, err));
    TM_TRY(expand(line, store, &words, &n, err));
    tm_result **results = tm_arena_take(line->arena, n * sizeof *results);
    tm_status   st = TM_OK;
    memset(results, 0, n * sizeof *results);
    o->verbose = line->verbose;
    for (size_t i = 0; st == TM_OK && i < n; i++) st = tm_result_load(words[i], store, &results[i], err);
    if (st == TM_OK) st = write_report(o, (const tm_result *const *)results, n, err);
    for (size_t i = 0; i < n; i++) tm_result_destroy(results[i]);
    return st;
}

static const tm_option rows[] = {
    { "out", 'o', TM_OPTION_TEXT, offsetof(report_options, out), .value = "FILE",
      .help = "file: .html with charts; .md, .csv or .json; default: markdown on stdout" },
    { "plot", 0, TM_OPTION_TEXT, offsetof(report_options, plot), .value = "FILE",
      .help = "write one chart; FILE ends in .svg, or in .png where librsvg is installed" },
    { "chart", 0, TM_OPTION_CHOICE, offsetof(report_options, chart), .value = "NAME", .fallback = "loss",
      .choices = "loss|speed|ledger|memory|roofline|numbers", .help = "the chart" },
    { "fleet", 0, TM_OPTION_FLAG, offsetof(report_options, fleet),
      .help = "judge the runs of many hosts on one page; exit code 5 if one fails" },
    { "tolerance", 0, TM_OPTION_F64, offsetof(report_options, tolerance), .value = "PERCENT", .fallback = "5", .lo = 0,
      .hi = 100, .help = "with --fleet: how much slower than the median of all runs a run may be" },
    { "thresholds", 0, TM_OPTION_TEXT, offsetof(report_options, thresholds), .value = "FILE",
      .help = "with --fleet: limits for every run" },
    { "cell", 0, TM_OPTION_TEXT, offsetof(report_options, cell), .value = "NAME",
      .help = "with --fleet: cell of the limits; default: that of each run" },
    { "json", 0, TM_OPTION_FLAG, offsetof(report_options, json),
      .help = "print the figures as JSON; with --fleet: the gates" },
    { "store", 0, TM_OPTION_TEXT, offsetof(report_options, store), .value = "FILE",
      .help = "another store of results" },
};

const tm_cli_command tm_command_report = {
    .name = "report",
    .summary = "write a report of one or several runs",
    .words = "RUN...",
    .least = 1,
    .most = -1,
    .about =
        "Writes a page with verdict, loss, speed, time and memory of a step, roofline, figures, checks, system and "
        "configuration; several runs side by side. RUN is a run directory, a result.json, or a stored result. A table "
        "of `trainmark bench stream --output-file FILE.json` beside them gives the roofs of the roofline "
        "(docs/report.md). RUN is also a certificate of nodes; with --fleet several, or the word certificates for all "
        "of the store (docs/certify.md).",
    TM_CLI_OPTIONS(rows, report_options),
    .run = report,
};
