/* SPDX-License-Identifier: Apache-2.0 */
/* cli/bench.c - `trainmark bench`: benchmarks of parts. */
#include "bench/bench.h"
#include "bench/published.h"
#include "cli/bench_jobs.h"
#include "cli/bench_store.h"
#include "cli/cli.h"
#include "record/table.h"

#include <stdio.h>
#include <string.h>

static void usage(tm_text *out)
{
    size_t                    n;
    const tm_workload *const *workloads = tm_workloads(&n);
    tm_text_add(out, "usage: trainmark bench NAME [--option value ...] [--output-file F.md|csv|tsv|json|jsonl[.gz]] "
                     "[--json]\n       trainmark bench JOBS.yaml [--option value ...]\n\nworkloads:\n");
    for (size_t i = 0; i < n; i++) tm_text_printf(out, "  %-10s %s\n", workloads[i]->name, workloads[i]->summary);
    tm_text_add(out, "\n`trainmark bench NAME --help` lists the options. How calls are timed: docs/timing.md.\n"
                     "A job file is a list of benchmarks that run as one: docs/results.md.\n");
}

static tm_status print_usage(tm_error *err)
{
    tm_text text = { 0 };
    usage(&text);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

static tm_status unknown(const char *name, tm_error *err)
{
    size_t                    n;
    const tm_workload *const *workloads = tm_workloads(&n);
    const char               *nearest = NULL;
    int                       best = 3; /* farther is no help */
    for (size_t i = 0; i < n; i++) {
        int distance = tm_edit_distance(name, workloads[i]->name);
        if (distance >= best) continue;
        best = distance;
        nearest = workloads[i]->name;
    }
    return tm_fail(err, TM_USAGE, "unknown workload '%.200s'; %s%s%s`trainmark bench` lists all", name,
                   nearest ? "did you mean '" : "", nearest ? nearest : "", nearest ? "'? " : "");
}

static tm_status print_help(const tm_workload *workload, const tm_config *config, tm_error *err)
{
    tm_text text = { 0 };
    tm_text_printf(&text, "usage: trainmark bench %s [--option value ...]\n\n%s\n\n", workload->name,
                   workload->summary);
    tm_config_print_help(config, NULL, &text);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

/* The published figures of the same cases, under the table. */
static void add_comparison(const tm_published *reference, const tm_table *table, tm_text *out)
{
    tm_table *comparison = tm_published_compare(reference, table);
    tm_text_add(out, "\n");
    if (tm_table_n_rows(comparison) > 0)
        tm_table_print(comparison, TM_TABLE_MARKDOWN, out);
    else
        tm_text_printf(out, "no published figure for these cases; `trainmark reference %s` lists those there are\n",
                       tm_table_name(table));
    tm_table_destroy(comparison);
}

/* The table goes to standard output, to --output-file and into the store, also when its numbers are invalid or it was
 * cut short. */
static tm_status give_out(const tm_config *config, const tm_table *table, const tm_published *reference, bool valid,
                          tm_error *err)
{
    tm_text     text = { 0 };
    const char *file = tm_config_text(config, "output-file");
    tm_table_print(table, tm_config_bool(config, "json") ? TM_TABLE_JSON : TM_TABLE_MARKDOWN, &text);
    if (reference) add_comparison(reference, table, &text);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    if (st == TM_OK && file) st = tm_table_write(table, file, err);
    if (st == TM_OK) st = tm_bench_store(config, table, valid, NULL, err);
    return st;
}

static tm_status run(const tm_workload *workload, tm_config *config, int argc, char **argv, tm_error *err)
{
    tm_table_format format;
    TM_TRY(tm_config_apply_arguments(config, argc, argv, err));
    TM_TRY(tm_config_finish(config, err));
    const char *file = tm_config_text(config, "output-file");
    if (file) TM_TRY(tm_table_format_of(file, &format, err));
    const char   *compare = tm_config_text(config, "compare");
    tm_published *reference = NULL;
    if (compare && tm_config_bool(config, "json"))
        return tm_fail(err, TM_USAGE, "--compare prints a second table, which --json has no place for; leave one out");
    if (compare) TM_TRY(tm_published_read(compare, &reference, err));
    tm_table *table = tm_table_create(workload->name);
    tm_status st = tm_bench_run(workload, config, &tm_cli_stop, table, err);
    tm_error  writing = { 0 };
    if ((st == TM_OK || st == TM_NUMBERS || st == TM_INTERRUPTED) && tm_table_n_rows(table) > 0 &&
        give_out(config, table, reference, st != TM_NUMBERS, &writing) != TM_OK) {
        *err = writing;
        st = writing.status;
    }
    tm_table_destroy(table);
    tm_published_destroy(reference);
    return st;
}

static bool is_job_file(const char *word)
{
    const char *dot = strrchr(word, '.');
    return dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
}

tm_status tm_command_bench(int argc, char **argv, tm_error *err)
{
    if (argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return print_usage(err);
    if (is_job_file(argv[1])) return tm_bench_jobs(argv[1], argc - 2, argv + 2, err);
    const tm_workload *workload = tm_workload_find(argv[1]);
    if (!workload) return unknown(argv[1], err);
    char help[64];
    snprintf(help, sizeof help, "trainmark bench %s --help", workload->name);
    tm_config *config = tm_bench_configure(workload, help);
    tm_status  st = tm_cli_wants_help(argc, argv) ? print_help(workload, config, err)
                                                  : run(workload, config, argc - 2, argv + 2, err);
    tm_config_destroy(config);
    return st;
}
