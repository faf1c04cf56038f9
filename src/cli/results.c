/* SPDX-License-Identifier: Apache-2.0 */
/* cli/results.c - `trainmark results`: the store of results. */
#include "base/file.h"
#include "cli/words.h"
#include "record/table.h"
#include "results/keep.h"

#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: trainmark results [filters] [--all] [--json] [--output-file F]\n"
    "       trainmark results show RUN [--document result|metrics|configuration]\n"
    "       trainmark results export RUN --out DIR\n"
    "       trainmark results import PATH... [--label TEXT]\n"
    "       trainmark results delete RUN...\n\n"
    "Lists the runs and benchmarks of this user, the newest first; every run and benchmark adds one (docs/results.md).\n"
    "RUN is a number of the list, last, or last~N. Patterns may hold * and ?.\n\n"
    "  --kind run|bench, --name PATTERN, --label PATTERN, --device NAME, --precision NAME, --verdict NAME, --host NAME,\n"
    "  --hash HASH      those that are so\n"
    "  --since, --until DATE   2026-01-31 or 2026-01-31T12:00:00Z\n"
    "  --last N         the newest N (default 50 on a terminal's list; 0: all)\n"
    "  --all            every column\n"
    "  --output-file F  md, csv, tsv, json or jsonl, each also with .gz\n"
    "  --store FILE     another store\n";

typedef struct {
    const char     *store, *last, *output, *out, *label, *document;
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

static tm_status print_table(const tm_table *table, bool json, const char *file, tm_error *err)
{
    tm_text text = { 0 };
    tm_table_print(table, json ? TM_TABLE_JSON : TM_TABLE_MARKDOWN, &text);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    if (st == TM_OK && file) st = tm_table_write(table, file, err);
    return st;
}

static tm_status list(results_options *o, tm_store *store, tm_arena *arena, tm_error *err)
{
    tm_stored      *rows;
    size_t          n;
    tm_table_format format;
    o->filter.limit = o->json || o->output ? 0 : 50;
    TM_TRY(tm_cli_whole(o->last, "--last", 0, &o->filter.limit, err));
    if (o->output) TM_TRY(tm_table_format_of(o->output, &format, err));
    TM_TRY(tm_store_list(store, &o->filter, arena, &rows, &n, err));
    tm_table *table = tm_results_table(rows, n, o->all);
    if (n == 0) tm_table_note(table, "no result; a run or a benchmark adds one");
    if (o->filter.limit > 0 && (int64_t)n == o->filter.limit)
        tm_table_note(table, "the newest %zu; --last 0 lists all", n);
    tm_status st = print_table(table, o->json, o->output, err);
    tm_table_destroy(table);
    return st;
}

static tm_status show(const results_options *o, tm_store *store, tm_arena *arena, const char *reference, tm_error *err)
{
    static const char *const names[] = { "result", "metrics", "configuration" };
    tm_stored                row;
    tm_text                  text = { 0 };
    bool                     there = false;
    size_t                   which = 0;
    while (o->document && which < TM_DOCUMENT_COUNT && strcmp(o->document, names[which]) != 0) which++;
    if (which == TM_DOCUMENT_COUNT)
        return tm_fail(err, TM_USAGE, "--document must be one of result, metrics, configuration; found '%.60s'",
                       o->document);
    TM_TRY(tm_store_find(store, reference, arena, &row, err));
    tm_status st = tm_store_document(store, row.id, (tm_document)which, &text, &there, err);
    if (st == TM_OK && !there)
        st = tm_fail(err, TM_INVALID, "result %lld was stored without %s", (long long)row.id,
                     tm_document_file((tm_document)which));
    if (st == TM_OK) st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

static tm_status export(const results_options *o, tm_store *store, tm_arena *arena, const char *reference, tm_error *err)
{
    tm_stored row;
    if (!o->out) return tm_fail(err, TM_USAGE, "missing --out DIR");
    TM_TRY(tm_store_find(store, reference, arena, &row, err));
    return tm_results_export(store, row.id, o->out, err);
}

static tm_status import_one(const results_options *o, tm_store *store, const char *path, tm_error *err)
{
    tm_result *result;
    tm_text    line = { 0 };
    int64_t    id;
    TM_TRY(tm_result_load(path, NULL, &result, err));
    tm_status st = tm_results_keep(store, result, NULL, o->label, &id, err);
    tm_text_printf(&line, "%lld %s\n", (long long)id, path);
    if (st == TM_OK) st = tm_cli_print(&line, err);
    tm_text_fini(&line);
    tm_result_destroy(result);
    return st;
}

static tm_status delete(tm_store *store, tm_arena *arena, char **references, int n, tm_error *err)
{
    int64_t  *ids = tm_arena_take(arena, (size_t)n * sizeof *ids);
    tm_stored row;
    for (int i = 0; i < n; i++) {
        TM_TRY(tm_store_find(store, references[i], arena, &row, err));
        ids[i] = row.id;
    }
    return tm_store_delete(store, ids, (size_t)n, err);
}

static tm_status run(results_options *o, char **words, int n, tm_arena *arena, tm_error *err)
{
    static const char *const verbs[] = { "show", "export", "import", "delete" };
    int                      verb = -1;
    tm_store                *store = NULL;
    for (int i = 0; n > 0 && i < 4; i++)
        if (strcmp(words[0], verbs[i]) == 0) verb = i;
    if (n > 0 && verb < 0)
        return tm_fail(err, TM_USAGE, "unknown command 'results %.100s'; there are show, export, import and delete",
                       words[0]);
    if (n == 1 || (verb < 2 && n > 2))
        return tm_fail(err, TM_USAGE, "`trainmark results %s` takes %s; see `trainmark results --help`", verbs[verb],
                       verb == 2 ? "PATH..." : verb == 3 ? "RUN..." : "one RUN");
    tm_status st = open_store(o, n == 0 || verb == 2, arena, &store, err);
    if (st == TM_OK && n == 0) st = list(o, store, arena, err);
    if (st == TM_OK && verb == 0) st = show(o, store, arena, words[1], err);
    if (st == TM_OK && verb == 1) st = export(o, store, arena, words[1], err);
    for (int i = 1; st == TM_OK && verb == 2 && i < n; i++) st = import_one(o, store, words[i], err);
    if (st == TM_OK && verb == 3) st = delete(store, arena, words + 1, n - 1, err);
    tm_store_close(store);
    return st;
}

tm_status tm_command_results(int argc, char **argv, tm_error *err)
{
    results_options     o = { 0 };
    const tm_cli_option options[] = { { "--store", &o.store, NULL },
                                      { "--last", &o.last, NULL },
                                      { "--output-file", &o.output, NULL },
                                      { "--out", &o.out, NULL },
                                      { "--label", &o.label, NULL },
                                      { "--document", &o.document, NULL },
                                      { "--kind", &o.filter.kind, NULL },
                                      { "--name", &o.filter.name, NULL },
                                      { "--device", &o.filter.device, NULL },
                                      { "--precision", &o.filter.precision, NULL },
                                      { "--verdict", &o.filter.verdict, NULL },
                                      { "--host", &o.filter.host, NULL },
                                      { "--hash", &o.filter.hash, NULL },
                                      { "--since", &o.filter.since, NULL },
                                      { "--until", &o.filter.until, NULL },
                                      { "--json", NULL, &o.json },
                                      { "--all", NULL, &o.all },
                                      { NULL, NULL, NULL } };
    if (tm_cli_wants_help(argc, argv)) return tm_cli_print_help(help, err);
    tm_arena *arena = tm_arena_create();
    char    **words = tm_arena_take(arena, (size_t)argc * sizeof *words);
    int       n;
    tm_status st = tm_cli_words(argc, argv, "results", options, words, &n, 0, -1, err);
    o.filter.label = o.label;
    if (st == TM_OK) st = run(&o, words, n, arena, err);
    tm_arena_destroy(arena);
    return st;
}
