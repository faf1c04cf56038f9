/* SPDX-License-Identifier: Apache-2.0 */
/* cli/bench.c - `trainmark bench`: benchmarks of parts. */
#include "apps/bench/bench.h"
#include "apps/bench/published.h"
#include "cli/bench_jobs.h"
#include "cli/bench_store.h"
#include "cli/cli.h"
#include "cli/ranks.h"
#include "record/table.h"

#include <stdio.h>
#include <string.h>

/* The published figures of the same cases, under the table. */
static void add_comparison(const tm_published *reference, const tm_table *table, bool verbose, tm_text *out)
{
    tm_table *comparison = tm_published_compare(reference, table);
    tm_text_add(out, "\n");
    if (tm_table_n_rows(comparison) > 0)
        tm_cli_add_table(comparison, false, verbose, out);
    else
        tm_text_printf(out, "no published figure for these cases; `trainmark reference %s` lists those there are\n",
                       tm_table_name(table));
    tm_table_destroy(comparison);
}

/* The table goes to standard output, to --output-file and into the store, also when its numbers are invalid or it was
 * cut short. */
static tm_status give_out(const tm_config *config, const tm_table *table, const tm_published *reference, bool valid,
                          bool verbose, tm_error *err)
{
    tm_text     text = { 0 };
    const char *file = tm_config_text(config, "output-file");
    tm_cli_add_table(table, tm_config_bool(config, "json"), verbose, &text);
    if (reference) add_comparison(reference, table, verbose, &text);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    if (st == TM_OK && file) st = tm_table_write(table, file, err);
    if (st == TM_OK) st = tm_bench_store(config, table, valid, NULL, err);
    return st;
}

static tm_status measure(const tm_workload *workload, tm_config *config, tm_comm *world, bool verbose, tm_error *err)
{
    tm_table_format format;
    const char     *file = tm_config_text(config, "output-file");
    if (file) TM_TRY(tm_table_format_of(file, &format, err));
    const char   *compare = tm_config_text(config, "compare");
    tm_published *reference = NULL;
    if (compare && tm_config_bool(config, "json"))
        return tm_fail(err, TM_USAGE, "--compare prints a second table and cannot be given with --json; leave one out");
    if (compare) TM_TRY(tm_published_read(compare, &reference, err));
    tm_table *table = tm_table_create(workload->name);
    tm_status st = tm_bench_run(workload, config, world, &tm_cli_stop, table, err);
    bool      first = !world || tm_comm_rank(world) == 0; /* of ranks, the first has all numbers */
    tm_error  writing = { 0 };
    if ((st == TM_OK || st == TM_NUMBERS || st == TM_INTERRUPTED) && tm_table_n_rows(table) > 0 && first &&
        give_out(config, table, reference, st != TM_NUMBERS, verbose, &writing) != TM_OK) {
        *err = writing;
        st = writing.status;
    }
    tm_table_destroy(table);
    tm_published_destroy(reference);
    return st;
}

/* Alone; as one of several ranks; or as the process that starts them. */
static tm_status run(const tm_workload *workload, tm_config *config, const tm_cli_line *line, tm_error *err)
{
    tm_comm *world = NULL;
    bool     started = false;
    TM_TRY(tm_config_apply_arguments(config, line->n_words, line->words, err));
    TM_TRY(tm_config_finish(config, err));
    if (!workload->ranks) return measure(workload, config, NULL, line->verbose, err);
    int64_t      ranks = tm_config_i64(config, "ranks"), launched = tm_comm_launched().ranks;
    int64_t      few = ranks > 0 || launched > 1 ? ranks : workload->ranks_here(config);
    tm_cli_start start = { .ranks = few, .mpi = tm_config_text(config, "mpi") };
    tm_status    st = tm_cli_start_ranks(&start, line, &started, err);
    if (st != TM_OK || started) return st;
    st = tm_cli_open_ranks(ranks > 0 ? ranks : launched, tm_config_f64(config, "deadline"), &world, err);
    if (st == TM_OK) st = measure(workload, config, world, line->verbose, err);
    tm_cli_close_ranks(world, st, err);
    return st;
}

static tm_status run_workload(tm_cli_line *line, tm_error *err)
{
    tm_cli_heed_stop();
    char               help[64];
    const tm_workload *workload = tm_workload_find(line->command->name);
    snprintf(help, sizeof help, "trainmark bench %s --help", workload->name);
    tm_config *config = tm_bench_configure(workload, help);
    tm_status  st = tm_cli_take_common(line, err);
    if (st == TM_OK) st = run(workload, config, line, err);
    tm_config_destroy(config);
    return st;
}

static tm_config *keys_of(const tm_cli_command *command)
{
    return tm_bench_configure(tm_workload_find(command->name), NULL);
}

typedef struct {
    const char *output;
    bool        json;
} jobs_options;

/* `trainmark bench jobs FILE`: a list of benchmarks. Both options are the jobs' own. */
static tm_status run_jobs(tm_cli_line *line, tm_error *err)
{
    tm_cli_heed_stop();
    const jobs_options *o = line->options;
    char              **argv = tm_arena_take(line->arena, ((size_t)line->n_words + 3) * sizeof *argv);
    int                 argc = 0;
    for (int i = 1; i < line->n_words; i++) argv[argc++] = line->words[i];
    if (o->json) argv[argc++] = (char *)"--json";
    if (o->output) argv[argc++] = tm_arena_format(line->arena, "--output-file=%s", o->output);
    return tm_bench_jobs(line->words[0], argc, argv, line->verbose, err);
}

static const tm_option jobs_rows[] = {
    { "output-file", 0, TM_OPTION_TEXT, offsetof(jobs_options, output), .value = "FILE",
      .help = "write the tables to FILE, too: .md, or .json with --json" },
    { "json", 0, TM_OPTION_FLAG, offsetof(jobs_options, json), .help = "print the tables as an array of JSON" },
};

static const tm_cli_command jobs_command = {
    .name = "jobs",
    .summary = "run a list of benchmarks as one: a job file",
    .words = "FILE.yaml [--option value ...]",
    .least = 1,
    .most = -1,
    .passes = true,
    .about =
        "FILE is a YAML list of benchmarks, {gemm: {M: 4096, ...}} or {workload: gemm, name: LABEL, M: 4096, ...}, or "
        "a map with `jobs`, that list, and `global`, options of all that have them (docs/results.md). Options on the "
        "command line are for all jobs.",
    TM_CLI_OPTIONS(jobs_rows, jobs_options),
    .run = run_jobs,
};

static const tm_cli_command *workload_command(size_t i, tm_cli_command *storage)
{
    size_t                    n;
    const tm_workload *const *workloads = tm_workloads(&n);
    if (i == n) return &jobs_command;
    if (i > n) return NULL;
    *storage = (tm_cli_command){ .name = workloads[i]->name,
                                 .summary = workloads[i]->summary,
                                 .keys = keys_of,
                                 .reads = true,
                                 .run = run_workload };
    return storage;
}

const tm_cli_command tm_command_bench = {
    .name = "bench",
    .summary = "measure a component of training on this machine",
    .about =
        "Measures components of training. Each workload is a command with options of its own; how calls are timed: "
        "docs/timing.md.",
    .nested = workload_command,
};
