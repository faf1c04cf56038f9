/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/sweep_plan.h"

#include "base/cpu.h"
#include "base/file.h"
#include "base/log.h"
#include "base/program.h"
#include "cli/explain_ranks.h"

#include <stdlib.h>
#include <string.h>

int64_t sweep_memory(const tm_sweep_options *o)
{
    return o->memory_bytes > 0 ? o->memory_bytes : tm_memory_available_bytes("") / 20 * 19;
}

static char **words_of(const tm_sweep_options *o, char *const *more, int n, char *first, int *argc)
{
    char **words = tm_alloc((size_t)(o->argc + n + 6) * sizeof *words);
    *argc = 0;
    if (first) words[(*argc)++] = first;
    words[(*argc)++] = (char *)"run";
    for (int i = 0; i < o->argc; i++) words[(*argc)++] = o->argv[i];
    for (int i = 0; i < n; i++) words[(*argc)++] = more[i];
    words[*argc] = NULL;
    return words;
}

static tm_status plan(tm_config *config, const tm_cli_options *cli, int64_t *bytes, tm_error *err)
{
    tm_run_options run;
    tm_device     *device;
    tm_step       *step;
    rank_plans     ranks;
    TM_TRY(tm_run_options_read(config, &run, err));
    TM_TRY(tm_cli_open_device(cli, &run, true, &device, err));
    tm_chooser chooser = tm_device_chooser(device);
    tm_status  st = tm_step_create(&run.step, &chooser, &step, err);
    if (st == TM_OK) {
        st = explain_each_rank(&run.step, step, &chooser, &ranks, err);
        *bytes = (int64_t)explain_most(&ranks);
        tm_step_destroy(step);
    }
    tm_device_close(device);
    return st;
}

static tm_log_level level_of(const tm_config *config)
{
    static const char *const names[] = { "debug", "info", "warn", "error" };
    for (int i = 0; i < 4; i++)
        if (strcmp(tm_config_text(config, "log.level"), names[i]) == 0) return (tm_log_level)i;
    return TM_LOG_INFO;
}

tm_status sweep_plan_bytes(const tm_sweep_options *o, char *const *more, int n, int64_t *bytes, tm_error *err)
{
    tm_cli_options cli = { .axes = true };
    tm_config     *config = NULL;
    int            argc;
    char         **words = words_of(o, more, n, NULL, &argc);
    tm_arena      *arena = tm_arena_create();
    tm_cli_line    line = {
           .command = &tm_command_run, .name = "run", .argc = argc, .argv = words, .options = &cli, .arena = arena
    };
    line.words = tm_arena_take(arena, ((size_t)argc + 1) * sizeof *line.words);
    tm_log_set_level(TM_LOG_WARN); /* the notes were told once */
    tm_status st = tm_cli_configure(&line, "tiny-llama", false, &config, err);
    if (st == TM_OK) st = plan(config, &cli, bytes, err);
    tm_log_set_level(level_of(o->config));
    tm_config_destroy(config);
    tm_arena_destroy(arena);
    free(words);
    return st;
}

/* --- a run -------------------------------------------------------------------------------------------------------- */

tm_status sweep_start(const tm_sweep_options *o, char *const *more, int n, const char *folder, const char *log,
                      child_end *end, tm_error *err)
{
    char    self[TM_PROGRAM_PATH];
    tm_text output = { 0 };
    int     argc;
    *end = (child_end){ .code = -1 };
    TM_TRY(tm_program_path(self, err));
    char **words = words_of(o, more, n, self, &argc);
    words[argc++] = (char *)"--out";
    words[argc++] = (char *)folder;
    words[argc] = NULL;
    tm_status st = child_run(words, &output, end, err);
    free(words);
    tm_text_add(&output, end->said);
    if (log && output.length) {
        tm_status written = tm_file_write(log, output.data, output.length, err);
        if (st == TM_OK) st = written;
    }
    tm_text_fini(&output);
    return st;
}
