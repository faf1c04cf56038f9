/* SPDX-License-Identifier: Apache-2.0 */
/* cli/report.c - `trainmark report`: runs as one page. */
#include "results/report.h"

#include "base/file.h"
#include "cli/cli.h"

#include <string.h>

typedef struct {
    const char *out, *chart, *plot, *store;
} report_options;

static tm_status write_files(const report_options *o, const tm_result *const *runs, size_t n, tm_error *err)
{
    tm_report_format format = TM_REPORT_MARKDOWN;
    tm_text          text = { 0 }, svg = { 0 };
    if (o->out) TM_TRY(tm_report_format_of(o->out, &format, err));
    tm_status st = TM_OK;
    if (o->plot) st = tm_results_plot(runs, n, o->chart, &svg, err);
    if (st == TM_OK && o->plot) st = tm_file_write(o->plot, svg.data, svg.length, err);
    if (st == TM_OK && (o->out || !o->plot)) st = tm_results_report(runs, n, format, &text, err);
    if (st == TM_OK && text.length)
        st = o->out ? tm_file_write(o->out, text.data, text.length, err) : tm_cli_print(&text, err);
    tm_text_fini(&text);
    tm_text_fini(&svg);
    return st;
}

static tm_status report(tm_cli_line *line, tm_error *err)
{
    const report_options *o = line->options;
    bool                  chosen;
    const char           *store = tm_store_path(line->arena, o->store, &chosen);
    tm_result           **runs = tm_arena_take(line->arena, (size_t)line->n_words * sizeof *runs);
    tm_status             st = TM_OK;
    for (int i = 0; st == TM_OK && i < line->n_words; i++) st = tm_result_load(line->words[i], store, &runs[i], err);
    if (st == TM_OK) st = write_files(o, (const tm_result *const *)runs, (size_t)line->n_words, err);
    for (int i = 0; i < line->n_words; i++) tm_result_destroy(runs[i]);
    return st;
}

static const tm_option rows[] = {
    { "out", 'o', TM_OPTION_TEXT, offsetof(report_options, out), .value = "FILE",
      .help =
          "report.html: one file with charts that loads nothing; .md or .csv: the figures; default: as .md on standard "
          "output" },
    { "plot", 0, TM_OPTION_TEXT, offsetof(report_options, plot), .value = "FILE", .help = "write one chart as SVG" },
    { "chart", 0, TM_OPTION_CHOICE, offsetof(report_options, chart), .value = "NAME", .fallback = "loss",
      .choices = "loss|speed|ledger|memory|roofline", .help = "which one" },
    { "store", 0, TM_OPTION_TEXT, offsetof(report_options, store), .value = "FILE",
      .help = "another store of results" },
};

const tm_cli_command tm_command_report = {
    .name = "report",
    .summary = "make a page of one or several runs",
    .words = "RUN...",
    .least = 1,
    .most = -1,
    .about = "Verdict, loss, speed, where the time and the memory of a step go, roofline, figures, checks, system and "
             "configuration; several runs side by side. RUN is a run directory, a result.json, or a stored result "
             "(docs/report.md).",
    TM_CLI_OPTIONS(rows, report_options),
    .run = report,
};
