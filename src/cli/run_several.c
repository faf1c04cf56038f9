/* SPDX-License-Identifier: Apache-2.0 */
/* `trainmark run` as several runs: a sweep, the search for a batch size, --scaling. */
#include "base/plain.h"
#include "cli/run_job.h"
#include "cli/scaling.h"
#include "cli/sweep.h"
#include "train/run/interleave.h"

#include <stdlib.h>
#include <string.h>

/* Is this word one of the options, and is its value the next word? */
static bool is_option(const char *word, const char *const *names, bool *apart)
{
    for (; *names; names++) {
        size_t n = strlen(*names);
        if (strncmp(word, *names, n) != 0 || (word[n] && word[n] != '=')) continue;
        *apart = !word[n];
        return true;
    }
    return false;
}

/* The words behind `run` without options (that take a value) which are not for the runs of this command. */
static char **words_without(const char *const *names, tm_arena *arena, int argc, char **argv, int *n)
{
    char **words = tm_arena_take(arena, (size_t)(argc + 1) * sizeof *words);
    *n = 0;
    for (int i = 1; i < argc; i++) {
        bool apart = false;
        if (!is_option(argv[i], names, &apart)) words[(*n)++] = argv[i];
        i += apart;
    }
    return words;
}

static const char *const own_options[] = { "--out", "-o", "--scaling", "--scaling-mode", NULL };

tm_sweep_options run_search_of(const run_job *j, const tm_cli_line *line)
{
    tm_sweep_options o = {
        .config = j->config, .dry_run = j->cli->dry_run, .memory_bytes = j->cli->memory_bytes, .verbose = j->verbose
    };
    o.argv = words_without(own_options, line->arena, line->argc, line->argv, &o.argc);
    return o;
}

/* Lists where single values belong: several runs; or a batch size to be found, with which this run goes on. Each has
 * --ranks, too. */
static tm_status sweep_or_find(run_job *j, const tm_cli_line *line, int64_t *batch, tm_error *err)
{
    tm_sweep_options sweep = run_search_of(j, line);
    if (!j->cli->dry_run && tm_comm_launched().ranks > 1)
        return tm_fail(err, TM_INVALID, "a sweep starts the ranks of each run itself: use --ranks %lld instead of %s",
                       (long long)tm_config_i64(j->config, "parallelism.ranks"), tm_comm_launched().launcher);
    TM_TRY(tm_run_options_read(j->config, &j->options, err));
    run_name_folder(j);
    sweep.folder = j->folder.data;
    return tm_cli_wants_batch(j->config) ? tm_cli_find_batch(&sweep, batch, err) : tm_cli_sweep(&sweep, err);
}

/* The same command with the batch that was found, also for the ranks that it starts. */
static tm_status configure_with(run_job *j, tm_cli_line *line, int64_t batch, tm_error *err)
{
    char **words = tm_arena_take(line->arena, (size_t)(line->argc + 1) * sizeof *words);
    memcpy(words, line->argv, (size_t)line->argc * sizeof *words);
    words[line->argc++] = tm_arena_format(line->arena, "--training.local_batch_size=%lld", (long long)batch);
    line->argv = words;
    line->options = j->cli = tm_arena_take(line->arena, sizeof *j->cli);
    j->cli->axes = true;
    tm_text_fini(&j->folder);
    j->folder = (tm_text){ 0 };
    tm_config *searched = j->config;
    tm_status  st = tm_cli_configure(line, "tiny-llama", false, &j->config, err);
    tm_config_destroy(searched);
    return st;
}

tm_status run_sweep(run_job *j, tm_cli_line *line, bool *swept, tm_error *err)
{
    size_t  n_axes;
    int64_t batch = 0;
    (void)tm_config_axes(j->config, &n_axes);
    *swept = false;
    if (n_axes == 0) return TM_OK;
    TM_TRY(sweep_or_find(j, line, &batch, err));
    *swept = batch == 0;
    return *swept ? TM_OK : configure_with(j, line, batch, err);
}

tm_status run_scale(run_job *j, const tm_cli_line *line, tm_error *err)
{
    tm_scaling_options options = { .run = { .config = j->config },
                                   .sizes = j->cli->scaling,
                                   .strong = strcmp(j->cli->scaling_mode, "strong") == 0,
                                   .json = j->cli->json };
    size_t             n_axes;
    (void)tm_config_axes(j->config, &n_axes);
    const char *other = j->cli->print_config       ? "--print-config"
                        : j->cli->dry_run          ? "--dry-run"
                        : j->cli->evaluate         ? "--evaluate"
                        : j->cli->ranks > 0        ? "--ranks"
                        : n_axes > 0               ? "several values of a key"
                        : getenv(TM_TURN_VARIABLE) ? TM_TURN_VARIABLE
                                                   : NULL;
    if (other) return tm_fail(err, TM_USAGE, "--scaling cannot be given with %s; leave one out", other);
    if (tm_comm_launched().ranks > 1)
        return tm_fail(err, TM_INVALID, "--scaling starts the ranks of each run itself: do without %s",
                       tm_comm_launched().launcher);
    options.run.argv = words_without(own_options, line->arena, line->argc, line->argv, &options.run.argc);
    TM_TRY(tm_run_options_read(j->config, &j->options, err));
    run_name_folder(j);
    options.run.folder = j->folder.data;
    options.run.verbose = j->verbose;
    return tm_cli_scaling(&options, err);
}
