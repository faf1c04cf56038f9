/* SPDX-License-Identifier: Apache-2.0 */
/* cli/reference.c - `trainmark reference`: the published figures that --compare reference knows. */
#include "apps/bench/published.h"
#include "cli/cli.h"
#include "record/table.h"

#include <string.h>

typedef struct {
    const char *file, *output;
    bool        json;
} reference_options;

static tm_status list(tm_cli_line *line, tm_error *err)
{
    const reference_options *o = line->options;
    const char              *workload = line->n_words ? line->words[0] : NULL;
    tm_table_format          format;
    tm_published            *reference;
    if (o->output) TM_TRY(tm_table_format_of(o->output, &format, err));
    TM_TRY(tm_published_read(o->file, &reference, err));
    tm_table *table = tm_published_list(reference, workload);
    tm_status st = TM_OK;
    tm_text   text = { 0 };
    if (tm_table_n_rows(table) == 0)
        st = tm_fail(err, TM_USAGE, "no published figure for workload '%.60s'; `trainmark reference` lists all",
                     workload ? workload : "");
    tm_cli_add_table(table, o->json, line->verbose, &text);
    if (st == TM_OK) st = tm_cli_print(&text, err);
    if (st == TM_OK && o->output) st = tm_table_write(table, o->output, err);
    tm_text_fini(&text);
    tm_table_destroy(table);
    tm_published_destroy(reference);
    return st;
}

static const tm_option rows[] = {
    { "file", 0, TM_OPTION_TEXT, offsetof(reference_options, file), .value = "FILE",
      .help = "a CSV file of published figures instead of the built-in ones" },
    { "output-file", 'o', TM_OPTION_TEXT, offsetof(reference_options, output), .value = "FILE",
      .help = "write the table to FILE: md, csv, tsv, json, jsonl, or these with .gz" },
    TM_OPTION_JSON(reference_options),
};

const tm_cli_command tm_command_reference = {
    .name = "reference",
    .summary = "list published figures",
    .words = "[WORKLOAD]",
    .most = 1,
    .about = "Lists published figures: value, unit, FLOP convention, source and date. WORKLOAD is gemm, gpt, mlp, "
             "scaling, run or mlperf; without it all are listed. `trainmark bench NAME --compare reference` and "
             "`trainmark run MODEL --compare reference` print measured figures beside them.",
    TM_CLI_OPTIONS(rows, reference_options),
    .run = list,
};
