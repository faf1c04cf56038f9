/* SPDX-License-Identifier: Apache-2.0 */
/* cli/bench_jobs.c - a job file is a list of benchmarks:
 *
 *     global: {budget: 10}            # options of all that have them; or the list alone
 *     jobs:
 *       - gemm: {M: 4096, N: 4096, K: 4096}
 *       - workload: stream
 *         name: memory                # the label in the store
 */
#include "cli/bench_jobs.h"

#include "base/file.h"
#include "apps/bench/bench.h"
#include "cli/bench_store.h"
#include "cli/cli.h"
#include "config/yaml.h"
#include "record/table.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
    const char        *name; /* or NULL */
    const tm_workload *workload;
    tm_config         *config;
} job;

typedef struct {
    tm_arena   *arena;
    const char *path;
    job        *jobs;
    int         n;
    bool        verbose; /* all columns */
} job_list;

static tm_status wrong(const job_list *l, int line, const char *what, tm_error *err)
{
    return tm_fail(err, TM_FORMAT, "%s:%d: %s; a job is a map: {workload: gemm, M: 256, ...} or {gemm: {M: 256, ...}}",
                   l->path, line, what);
}

/* A value as an argument: lists as [a, b]. NULL: neither scalar nor list of scalars. */
static const char *argument(tm_arena *arena, const char *key, const tm_yaml *value)
{
    tm_text     text = { 0 };
    const char *out = NULL;
    bool        plain = value->kind != TM_YAML_MAP;
    tm_text_printf(&text, "--%s=%s", key, value->kind == TM_YAML_LIST ? "[" : "");
    if (value->kind == TM_YAML_SCALAR) tm_text_add(&text, value->text);
    for (const tm_yaml_item *i = value->kind == TM_YAML_LIST ? value->first : NULL; i; i = i->next) {
        plain = plain && i->value->kind == TM_YAML_SCALAR;
        if (plain) tm_text_printf(&text, "%s%s", i == value->first ? "" : ", ", i->value->text);
    }
    if (value->kind == TM_YAML_LIST) tm_text_add(&text, "]");
    if (plain) out = tm_arena_text(arena, text.data);
    tm_text_fini(&text);
    return out;
}

/* The options of a map, in front of those that are there. */
static tm_status add_options(const job_list *l, const tm_yaml *map, char **argv, int *argc, tm_error *err)
{
    for (const tm_yaml_item *i = map->first; i; i = i->next) {
        if (strcmp(i->key, "workload") == 0 || strcmp(i->key, "name") == 0) continue;
        const char *word = argument(l->arena, i->key, i->value);
        if (!word) return wrong(l, i->line, "an option's value must be plain or a list of plain values", err);
        argv[(*argc)++] = (char *)word;
    }
    return TM_OK;
}

static tm_status read_job(job_list *l, const tm_yaml_item *item, const tm_yaml *global, int argc, char **argv,
                          tm_error *err)
{
    const tm_yaml *map = item->value, *named = map->kind == TM_YAML_MAP ? tm_yaml_get(map, "workload") : NULL;
    const tm_yaml *label = map->kind == TM_YAML_MAP ? tm_yaml_get(map, "name") : NULL;
    job           *j = &l->jobs[l->n];
    if (map->kind != TM_YAML_MAP || !map->first) return wrong(l, item->line, "this is not a job", err);
    if (!named) label = map->first->value->kind == TM_YAML_MAP ? tm_yaml_get(map->first->value, "name") : NULL;
    if (!named && (map->count != 1 || map->first->value->kind != TM_YAML_MAP))
        return wrong(l, item->line, "this job names no workload", err);
    const char *workload = named ? (named->kind == TM_YAML_SCALAR ? named->text : "") : map->first->key;
    *j = (job){ .name = label && label->kind == TM_YAML_SCALAR ? label->text : NULL,
                .workload = tm_workload_find(workload) };
    if (!j->workload)
        return tm_fail(err, TM_INVALID, "%s:%d: unknown workload '%.60s'; `trainmark bench` lists all", l->path,
                       item->line, workload);
    j->config = tm_bench_configure(j->workload, tm_arena_format(l->arena, "trainmark bench %s --help", workload));
    l->n++;
    const tm_yaml *own = named ? map : map->first->value;
    char         **words = tm_arena_take(l->arena, ((global ? global->count : 0) + own->count + 1) * sizeof *words);
    int            n = 0;
    for (const tm_yaml_item *i = global ? global->first : NULL; i; i = i->next)
        if (tm_config_is_row(j->config, i->key)) words[n++] = (char *)argument(l->arena, i->key, i->value);
    TM_TRY(add_options(l, own, words, &n, err));
    tm_error  cause = { 0 };
    tm_status st = tm_config_apply_arguments(j->config, n, words, &cause);
    if (st == TM_OK) st = tm_config_apply_arguments(j->config, argc, argv, &cause);
    if (st == TM_OK) st = tm_config_finish(j->config, &cause);
    size_t length;
    for (const char *line = NULL; (line = tm_error_next(&cause, line, &length));)
        tm_also(err, st == TM_USAGE ? TM_INVALID : st, "%s:%d: %.*s", l->path, item->line, (int)length, line);
    return st;
}

static tm_status read_jobs(job_list *l, const tm_text *text, int argc, char **argv, tm_error *err)
{
    const tm_yaml *root, *list, *global = NULL;
    TM_TRY(tm_yaml_parse(l->arena, text->data, text->length, l->path, &root, err));
    list = root;
    if (root && root->kind == TM_YAML_MAP) {
        list = tm_yaml_get(root, "jobs");
        global = tm_yaml_get(root, "global");
    }
    if (!list || list->kind != TM_YAML_LIST || list->count == 0 || (global && global->kind != TM_YAML_MAP))
        return wrong(l, 1, "a job file is a list of jobs, or a map with `jobs` and `global`", err);
    for (const tm_yaml_item *i = global ? global->first : NULL; i; i = i->next)
        if (!argument(l->arena, i->key, i->value))
            return wrong(l, i->line, "an option's value must be plain or a list of plain values", err);
    l->jobs = tm_arena_take(l->arena, list->count * sizeof *l->jobs);
    tm_status st = TM_OK;
    for (const tm_yaml_item *i = list->first; i; i = i->next) {
        tm_error  own = { 0 };
        tm_status its = read_job(l, i, global, argc, argv, &own);
        if (tm_also_of(err, its, &own) != TM_OK) st = err->status;
    }
    return st;
}

/* One after the other in one text: of JSON an array, else tables under headings. */
static void add_heading(const job *j, bool json, int number, tm_text *out)
{
    if (json)
        tm_text_add(out, number == 0 ? "" : ",\n");
    else
        tm_text_printf(out, "%s## %s\n\n", number == 0 ? "" : "\n", j->name ? j->name : j->workload->name);
}

/* *printed: the tables that there are already. */
static tm_status run_job(const job *j, int *printed, bool json, bool verbose, tm_text *file, tm_error *err)
{
    tm_text   text = { 0 };
    tm_error  writing = { 0 };
    tm_table *table = tm_table_create(j->workload->name);
    tm_status st = tm_bench_run(j->workload, j->config, NULL, &tm_cli_stop, table, err), own = TM_OK;
    bool      done = st == TM_OK || st == TM_NUMBERS || st == TM_INTERRUPTED;
    if (done && tm_table_n_rows(table) > 0) {
        add_heading(j, json, *printed, &text);
        tm_cli_add_table(table, json, verbose, &text);
        add_heading(j, json, *printed, file);
        tm_table_print(table, json ? TM_TABLE_JSON : TM_TABLE_MARKDOWN, file);
        ++*printed;
        own = tm_cli_print(&text, &writing);
        if (own == TM_OK) own = tm_bench_store(j->config, table, st != TM_NUMBERS, j->name, &writing);
    }
    if (own != TM_OK) *err = writing;
    tm_text_fini(&text);
    tm_table_destroy(table);
    return own != TM_OK ? own : st;
}

static tm_status run_jobs(const job_list *l, tm_error *err)
{
    tm_text         file = { 0 };
    tm_status       first = TM_OK;
    tm_table_format format = TM_TABLE_MARKDOWN;
    const char     *path = tm_config_text(l->jobs[0].config, "output-file");
    bool            json = tm_config_bool(l->jobs[0].config, "json");
    if (path) TM_TRY(tm_table_format_of(path, &format, err));
    if (path && (format != (json ? TM_TABLE_JSON : TM_TABLE_MARKDOWN) || strstr(path, ".gz")))
        return tm_fail(err, TM_USAGE,
                       "--output-file of a job file: .md, or .json with --json; its tables have different "
                       "columns");
    int     printed = 0;
    tm_text begin = { 0 };
    tm_text_add(&begin, json ? "[\n" : "");
    if (json) tm_text_add(&file, "[\n");
    tm_status begun = tm_cli_print(&begin, err);
    tm_text_fini(&begin);
    TM_TRY(begun);
    for (int i = 0; i < l->n && first != TM_INTERRUPTED; i++) {
        tm_error  own = { 0 };
        tm_status st = run_job(&l->jobs[i], &printed, json, l->verbose, &file, &own);
        if (st == TM_OK || first != TM_OK) continue;
        first = tm_fail(err, st, "job %d (%s): %s", i + 1,
                        l->jobs[i].name ? l->jobs[i].name : l->jobs[i].workload->name, own.text);
    }
    if (json) tm_text_add(&file, "]\n");
    tm_text end = { 0 };
    tm_text_add(&end, json ? "]\n" : "");
    tm_status st = tm_cli_print(&end, err);
    if (st == TM_OK && path) st = tm_file_write(path, file.data, file.length, err);
    tm_text_fini(&end);
    tm_text_fini(&file);
    return first != TM_OK ? first : st;
}

tm_status tm_bench_jobs(const char *path, int argc, char **argv, bool verbose, tm_error *err)
{
    job_list  l = { .arena = tm_arena_create(), .path = path, .verbose = verbose };
    tm_text   text = { 0 };
    tm_status st = tm_file_read(path, TM_YAML_MAX_BYTES, &text, err);
    if (st == TM_OK) st = read_jobs(&l, &text, argc, argv, err);
    if (st == TM_OK) st = run_jobs(&l, err);
    for (int i = 0; i < l.n; i++) tm_config_destroy(l.jobs[i].config);
    tm_text_fini(&text);
    tm_arena_destroy(l.arena);
    return st;
}
