/* SPDX-License-Identifier: Apache-2.0 */
/* cli/reference.c - `trainmark reference`: the published figures that --compare reference knows. */
#include "bench/published.h"
#include "cli/cli.h"
#include "record/table.h"

#include <string.h>

static const char help[] =
    "usage: trainmark reference [WORKLOAD] [--file F.csv] [--output-file F.md|csv|tsv|json|jsonl[.gz]] [--json]\n\n"
    "Lists published figures: value, unit, FLOP convention, source and date. WORKLOAD: gemm, gpt, mlp, scaling, run "
    "or\n"
    "mlperf; without it all. `trainmark bench NAME --compare reference` and `trainmark run MODEL --compare reference`\n"
    "print measured ones beside them.\n";

typedef struct {
    const char *workload, *file, *output;
    bool        json;
} options;

static tm_status read_options(int argc, char **argv, options *o, tm_error *err)
{
    *o = (options){ 0 };
    for (int i = 1; i < argc; i++) {
        const char **value = strcmp(argv[i], "--file") == 0          ? &o->file
                             : strcmp(argv[i], "--output-file") == 0 ? &o->output
                                                                     : NULL;
        if (value && i + 1 == argc) return tm_fail(err, TM_USAGE, "option '%s' needs a value", argv[i]);
        if (value)
            *value = argv[++i];
        else if (strcmp(argv[i], "--json") == 0)
            o->json = true;
        else if (argv[i][0] == '-' || o->workload)
            return tm_fail(err, TM_USAGE, "unknown option '%s'; `trainmark reference --help` tells those there are",
                           argv[i]);
        else
            o->workload = argv[i];
    }
    tm_table_format format;
    return o->output ? tm_table_format_of(o->output, &format, err) : TM_OK;
}

tm_status tm_command_reference(int argc, char **argv, tm_error *err)
{
    if (tm_cli_wants_help(argc, argv)) return tm_cli_print_help(help, err);
    options       o;
    tm_published *reference;
    TM_TRY(read_options(argc, argv, &o, err));
    TM_TRY(tm_published_read(o.file, &reference, err));
    tm_table *table = tm_published_list(reference, o.workload);
    tm_status st = TM_OK;
    tm_text   text = { 0 };
    if (tm_table_n_rows(table) == 0)
        st = tm_fail(err, TM_USAGE, "no published figure for workload '%.60s'; `trainmark reference` lists all",
                     o.workload);
    tm_table_print(table, o.json ? TM_TABLE_JSON : TM_TABLE_MARKDOWN, &text);
    if (st == TM_OK) st = tm_cli_print(&text, err);
    if (st == TM_OK && o.output) st = tm_table_write(table, o.output, err);
    tm_text_fini(&text);
    tm_table_destroy(table);
    tm_published_destroy(reference);
    return st;
}
