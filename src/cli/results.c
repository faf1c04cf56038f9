/* SPDX-License-Identifier: Apache-2.0 */
/* cli/results.c - `trainmark results`: the store of results. */
#include "base/json.h"
#include "cli/cli.h"
#include "record/table.h"
#include "results/keep.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const char     *store, *output, *out, *label, *document;
    int64_t         last;
    bool            json, all;
    tm_store_filter filter;
} results_options;

static tm_status open_store(const results_options *o, bool make, tm_arena *arena, tm_store **out, tm_error *err)
{
    bool        chosen;
    const char *path = tm_store_path(arena, o->store, &chosen);
    if (!path)
        return tm_fail(err, TM_INVALID, "%s; name a file with --store or TRAINMARK_STORE",
                       chosen ? "the store is switched off (none)" : "there is no HOME or XDG_DATA_HOME for the store");
    return tm_store_open(path, make, out, err);
}

static tm_status print_table(const tm_table *table, const results_options *o, bool verbose, tm_error *err)
{
    tm_text text = { 0 };
    tm_cli_add_table(table, o->json, verbose, &text);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    if (st == TM_OK && o->output) st = tm_table_write(table, o->output, err);
    return st;
}

/* --- list --------------------------------------------------------------------------------------------------------- */

static tm_status list(const tm_cli_line *line, tm_store *store, tm_error *err)
{
    results_options *o = line->options;
    tm_stored       *rows;
    size_t           n;
    tm_table_format  format;
    bool             whole = o->json || o->output;
    o->filter.limit = o->last >= 0 ? o->last : whole ? 0 : 50;
    if (o->output) TM_TRY(tm_table_format_of(o->output, &format, err));
    TM_TRY(tm_store_list(store, &o->filter, line->arena, &rows, &n, err));
    tm_table *table = tm_results_table(rows, n, o->all);
    if (n == 0) tm_table_note(table, "no result; a run or a benchmark adds one");
    if (o->filter.limit > 0 && (int64_t)n == o->filter.limit)
        tm_table_note(table, "the newest %zu; --last 0 lists all", n);
    tm_status st = print_table(table, o, line->verbose, err);
    tm_table_destroy(table);
    return st;
}

static tm_status run_list(tm_cli_line *line, tm_error *err)
{
    results_options *o = line->options;
    tm_store        *store;
    TM_TRY(open_store(o, true, line->arena, &store, err));
    tm_status st = list(line, store, err);
    tm_store_close(store);
    return st;
}

#define STORE_ROW                                                                                                      \
    {                                                                                                                  \
        "store", 0, TM_OPTION_TEXT, offsetof(results_options, store), .value = "FILE",                                 \
                                                                      .help = "another store of results"               \
    }
#define FILTER(name, member, what, words)                                                                              \
    {                                                                                                                  \
        name, 0, TM_OPTION_TEXT, offsetof(results_options, filter.member), .value = what, .help = words                \
    }

static const tm_option list_rows[] = {
    { "kind", 0, TM_OPTION_CHOICE, offsetof(results_options, filter.kind), .value = "KIND",
      .choices = "run|bench|certificate", .help = "runs, benchmarks or certificates only" },
    FILTER("name", name, "PATTERN", "of this model or workload; a pattern with * and ?"),
    FILTER("label", label, "PATTERN", "of this label (store.label, sweeps, job files)"),
    FILTER("device", device, "NAME", "of this device"),
    FILTER("precision", precision, "NAME", "of this number format"),
    FILTER("verdict", verdict, "NAME", "with this verdict"),
    FILTER("host", host, "NAME", "of this host"),
    FILTER("hash", hash, "HASH", "of this configuration"),
    FILTER("since", since, "DATE", "finished then or later: 2026-01-31 or 2026-01-31T12:00:00Z"),
    FILTER("until", until, "DATE", "finished then or earlier"),
    { "last", 0, TM_OPTION_I64, offsetof(results_options, last), .value = "N", .fallback = "-1", .lo = -1, .hi = 1e15,
      .help = "the newest N; 0: all; -1: 50, all with --json and --output-file" },
    { "all", 0, TM_OPTION_FLAG, offsetof(results_options, all), .help = "every column" },
    { "output-file", 'o', TM_OPTION_TEXT, offsetof(results_options, output), .value = "FILE",
      .help = "write the table to FILE: md, csv, tsv, json, jsonl, or these with .gz" },
    STORE_ROW,
    TM_OPTION_JSON(results_options),
};

/* --- show --------------------------------------------------------------------------------------------------------- */

/* Lines of JSON as an array of them. */
static void lines_to_array(tm_text *text)
{
    tm_text out = { 0 };
    tm_text_add(&out, "[");
    for (const char *line = text->data; line && *line;) {
        size_t n = strcspn(line, "\n");
        if (n) tm_text_printf(&out, "%s\n  %.*s", out.length > 1 ? "," : "", (int)n, line);
        line += n + (line[n] == '\n');
    }
    tm_text_add(&out, "\n]\n");
    tm_text_fini(text);
    *text = out;
}

static tm_status show(tm_cli_line *line, tm_error *err)
{
    static const char *const names[] = { "result", "metrics", "configuration" };
    const results_options   *o = line->options;
    tm_store                *store;
    tm_stored                row;
    tm_text                  text = { 0 };
    bool                     there = false;
    int                      which = 0;
    while (strcmp(o->document, names[which]) != 0) which++;
    if (o->json && which == TM_DOCUMENT_CONFIGURATION)
        return tm_fail(err, TM_USAGE, "config.yaml is YAML; `--document result` has the configuration as JSON");
    TM_TRY(open_store(o, false, line->arena, &store, err));
    tm_status st = tm_store_find(store, line->words[0], line->arena, &row, err);
    if (st == TM_OK) st = tm_store_document(store, row.id, (tm_document)which, &text, &there, err);
    if (st == TM_OK && !there)
        st = tm_fail(err, TM_INVALID, "result %lld was stored without %s", (long long)row.id,
                     tm_document_file((tm_document)which));
    if (st == TM_OK && o->json && which == TM_DOCUMENT_METRICS) lines_to_array(&text);
    if (st == TM_OK) st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    tm_store_close(store);
    return st;
}

static const tm_option show_rows[] = {
    { "document", 0, TM_OPTION_CHOICE, offsetof(results_options, document), .value = "NAME", .fallback = "result",
      .choices = "result|metrics|configuration", .help = "result.json, metrics.jsonl or config.yaml" },
    STORE_ROW,
    TM_OPTION_JSON(results_options),
};

static const tm_cli_command show_command = {
    .name = "show",
    .summary = "print a document of a stored result",
    .words = "RUN",
    .least = 1,
    .most = 1,
    .about = "RUN is a number of `trainmark results`, last, or last~N (N before the last one).",
    TM_CLI_OPTIONS(show_rows, results_options),
    .run = show,
};

/* What a command did to one result, as a line of JSON, or in words where there is something to know. */
static tm_status tell(const results_options *o, const char *did, int64_t id, const char *path, tm_error *err)
{
    tm_text out = { 0 };
    if (o->json) {
        tm_json json = { .out = &out };
        tm_json_open(&json, NULL, '{');
        tm_json_i64(&json, did, id);
        if (path) tm_json_string(&json, "path", path);
        tm_json_close(&json, '}');
        tm_text_add(&out, "\n");
    } else if (path) {
        tm_text_printf(&out, "%lld %s\n", (long long)id, path);
    }
    tm_status st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    return st;
}

/* --- export ------------------------------------------------------------------------------------------------------- */

static tm_status export(tm_cli_line *line, tm_error *err)
{
    const results_options *o = line->options;
    tm_store              *store;
    tm_stored              row;
    TM_TRY(open_store(o, false, line->arena, &store, err));
    tm_status st = tm_store_find(store, line->words[0], line->arena, &row, err);
    if (st == TM_OK) st = tm_results_export(store, row.id, o->out, err);
    if (st == TM_OK && o->json) st = tell(o, "exported", row.id, o->out, err);
    tm_store_close(store);
    return st;
}

static const tm_option export_rows[] = {
    { "out", 'o', TM_OPTION_TEXT, offsetof(results_options, out), .value = "DIR", .required = true,
      .help = "output directory, which is created" },
    STORE_ROW,
    TM_OPTION_JSON(results_options),
};

static const tm_cli_command export_command = {
    .name = "export",
    .summary = "write the documents of a stored result: a run directory again",
    .words = "RUN",
    .least = 1,
    .most = 1,
    .about = "RUN is a number of `trainmark results`, last, or last~N (N before the last one).",
    TM_CLI_OPTIONS(export_rows, results_options),
    .run = export,
};

/* --- import ------------------------------------------------------------------------------------------------------- */

static tm_status import_one(const results_options *o, tm_store *store, const char *path, tm_error *err)
{
    tm_result *result;
    int64_t    id;
    TM_TRY(tm_result_load(path, NULL, &result, err));
    tm_status st = tm_results_keep(store, result, NULL, o->label, &id, err);
    if (st == TM_OK) st = tell(o, "imported", id, path, err);
    tm_result_destroy(result);
    return st;
}

static tm_status import(tm_cli_line *line, tm_error *err)
{
    const results_options *o = line->options;
    tm_store              *store;
    TM_TRY(open_store(o, true, line->arena, &store, err));
    tm_status st = TM_OK;
    for (int i = 0; st == TM_OK && i < line->n_words; i++) st = import_one(o, store, line->words[i], err);
    tm_store_close(store);
    return st;
}

static const tm_option import_rows[] = {
    { "label", 0, TM_OPTION_TEXT, offsetof(results_options, label), .value = "TEXT", .help = "label of the results" },
    STORE_ROW,
    TM_OPTION_JSON(results_options),
};

static const tm_cli_command import_command = {
    .name = "import",
    .summary = "add results of other machines to the store",
    .words = "PATH...",
    .least = 1,
    .most = -1,
    .about = "PATH is a run directory, a result.json, or a table of `bench --output-file F.json`.",
    TM_CLI_OPTIONS(import_rows, results_options),
    .run = import,
};

/* --- delete ------------------------------------------------------------------------------------------------------- */

static tm_status delete (tm_cli_line *line, tm_error *err)
{
    int64_t  *ids = tm_arena_take(line->arena, (size_t)line->n_words * sizeof *ids);
    tm_store *store;
    tm_stored row;
    TM_TRY(open_store(line->options, false, line->arena, &store, err));
    tm_status st = TM_OK;
    for (int i = 0; st == TM_OK && i < line->n_words; i++) {
        st = tm_store_find(store, line->words[i], line->arena, &row, err);
        ids[i] = st == TM_OK ? row.id : 0;
    }
    if (st == TM_OK) st = tm_store_delete(store, ids, (size_t)line->n_words, err);
    for (int i = 0; st == TM_OK && i < line->n_words; i++) st = tell(line->options, "deleted", ids[i], NULL, err);
    tm_store_close(store);
    return st;
}

static const tm_option delete_rows[] = { STORE_ROW, TM_OPTION_JSON(results_options) };

static const tm_cli_command delete_command = {
    .name = "delete",
    .summary = "remove stored results, all or none",
    .words = "RUN...",
    .least = 1,
    .most = -1,
    .about = "RUN is a number of `trainmark results`, last, or last~N (N before the last one).",
    TM_CLI_OPTIONS(delete_rows, results_options),
    .run = delete,
};

/* --- the command -------------------------------------------------------------------------------------------------- */

static const tm_cli_command *const commands[] = { &show_command, &export_command, &import_command, &delete_command,
                                                  NULL };

const tm_cli_command tm_command_results = {
    .name = "results",
    .summary = "list, show, export, import and delete stored runs and benchmarks",
    .about = "Lists the runs and benchmarks of this user, the newest first; every run and benchmark adds one "
             "(docs/results.md).",
    .commands = commands,
    TM_CLI_OPTIONS(list_rows, results_options),
    .run = run_list,
};
