/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf_base.c - the model that the runs of a benchmark fine-tune: an experiment (mlperf.base) that is trained and
 * exported once per folder, before the first run. */
#include "cli/mlperf_repeat.h"

#include "base/again.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "cli/child.h"
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* The experiment that mlperf.base names: beside the file that says so, or as typed. NULL: none. */
static tm_status read_key(const tm_repeat *r, tm_arena *arena, const char **out, tm_error *err)
{
    tm_cli_options cli = { 0 };
    tm_config     *config = NULL;
    char         **argv = tm_arena_take(arena, ((size_t)r->n + 3) * sizeof *argv);
    argv[0] = tm_arena_text(arena, "run");
    for (int i = 0; i < r->n; i++) argv[i + 1] = r->words[i];
    argv[r->n + 1] = tm_arena_text(arena, "--mlperf.enable=true"); /* as the runs are told */
    tm_cli_line line = {
        .command = &tm_command_run, .name = "run", .argc = r->n + 2, .argv = argv, .options = &cli, .arena = arena
    };
    line.words = tm_arena_take(arena, ((size_t)r->n + 3) * sizeof *line.words);
    line.quiet = true; /* its notes are told by the runs */
    tm_status st = tm_cli_configure(&line, "tiny-llama", true, &config, err);
    tm_log_set_level(TM_LOG_INFO);
    *out = NULL;
    if (st == TM_OK && tm_config_text(config, "mlperf.base")) {
        const char *path = tm_config_text(config, "mlperf.base"), *file = tm_config_file(config);
        const char *slash = file ? strrchr(file, '/') : NULL;
        bool        beside = strncmp(tm_config_origin(config, "mlperf.base"), "file ", 5) == 0;
        *out = path[0] == '/' || !beside || !slash ? tm_arena_text(arena, path)
                                                   : tm_arena_format(arena, "%.*s/%s", (int)(slash - file), file, path);
    }
    tm_config_destroy(config);
    return st;
}

/* Runs this program to its end; its failure is ours. */
static tm_status call(tm_arena *arena, const char *what, const char *const *words, tm_error *err)
{
    char       *argv[12], text[64];
    int         n = 0, status = 0;
    tm_process *process;
    TM_TRY(tm_repeat_program(arena, &argv[n++], err));
    while (*words) argv[n++] = tm_arena_text(arena, *words++);
    argv[n] = NULL;
    tm_cli_heed_stop();
    TM_TRY(tm_process_start(&(tm_process_options){ .argv = argv }, &process, err));
    tm_status st = child_wait(process, &status, err);
    if (st == TM_OK && !(WIFEXITED(status) && WEXITSTATUS(status) == 0))
        st = tm_fail(err, WIFEXITED(status) ? tm_repeat_status(WEXITSTATUS(status)) : TM_INTERNAL,
                     "%s ended with %s:\n%s", what, tm_process_status_text(status, text),
                     tm_process_last_words(process));
    tm_process_close(process, 10);
    return st;
}

tm_status tm_repeat_make_base(const tm_repeat *r, tm_arena *arena, const char **model, tm_error *err)
{
    const char *experiment;
    tm_text     line = { 0 };
    *model = NULL;
    TM_TRY(read_key(r, arena, &experiment, err));
    if (!experiment) return TM_OK;
    char *absolute = realpath(r->folder, NULL);
    if (!absolute) return tm_fail(err, TM_IO, "cannot find '%s': %s", r->folder, strerror(errno));
    const char *run = tm_arena_format(arena, "%s/runs/base", absolute);
    const char *draft = tm_arena_format(arena, "%s/runs/base_model.part", absolute);
    *model = tm_arena_format(arena, "%s/runs/base_model", absolute);
    free(absolute);
    int64_t begin = tm_now_ns();
    if (tm_file_exists(tm_arena_format(arena, "%s/config.json", *model))) {
        tm_text_add(&line, "base model: there already\n");
    } else {
        const char *const train[] = { "run", experiment, "--checkpoint.enable=true", "--out", run, NULL };
        const char *const export[] = { "export", run, "-o", draft, NULL };
        TM_TRY(call(arena, "the training of the base model", train, err));
        TM_TRY(call(arena, "the export of the base model", export, err));
        if (tm_again_rename(AT_FDCWD, draft, *model) != 0)
            return tm_fail(err, TM_IO, "cannot rename '%s' to '%s': %s", draft, *model, strerror(errno));
        tm_text_printf(&line, "base model: %s, %.1f s in all\n", experiment, (double)(tm_now_ns() - begin) * 1e-9);
    }
    tm_status st = tm_repeat_tell(r, &line, err);
    tm_text_fini(&line);
    return st;
}
