/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/child.h"

#include "base/clock.h"
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LOOK_NS = 20000000 };

static tm_status interrupted(tm_error *err)
{
    return tm_fail(err, TM_INTERRUPTED, "interrupted; the same command continues from here");
}

/* Takes in what the child prints until it has ended, or until the `end`, when *late is set. */
static tm_status follow(tm_process *process, int64_t end, int *status, tm_text *output, bool *late, tm_error *err)
{
    enum { LOG_LIMIT = 64 << 20 };
    bool open = true;
    while (open || !tm_process_ended(process, status)) {
        char part[16384];
        if (tm_cli_stop) return interrupted(err);
        *late = tm_now_ns() >= end;
        if (*late) return TM_OK;
        if (!tm_process_wait(&process, 1, open ? tm_process_output(process) : -1, LOOK_NS, &tm_cli_stop) || !open)
            continue;
        ssize_t got = read(tm_process_output(process), part, sizeof part);
        if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) open = false;
        if (got > 0 && output->length < LOG_LIMIT) tm_text_add_n(output, part, (size_t)got);
    }
    return TM_OK;
}

/* The last line that tells of an error, and those behind it; NULL: there is none. */
static const char *error_in(const char *words)
{
    static const char ours[] = "trainmark: ", note[] = "trainmark: note: ";
    const char       *found = NULL;
    for (const char *line = words; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, ours, sizeof ours - 1) == 0 && strncmp(line, note, sizeof note - 1) != 0) found = line;
    return found;
}

static void judge(tm_process *process, int status, child_end *end)
{
    const char *words = tm_process_last_words(process), *error = error_in(words);
    size_t      n = strlen(words), room = sizeof end->words - 1;
    snprintf(end->words, sizeof end->words, "%s", error ? error : n > room ? words + n - room : words);
    snprintf(end->said, sizeof end->said, "%s", words);
    end->code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; /* by the kernel, which had no memory left */
    bool starved = end->code == 1 && strstr(words, "out of memory: cannot allocate"); /* tm_alloc: base/arena.c */
    end->nomem = killed || starved || (end->code == 4 && strstr(words, tm_status_text(TM_NOMEM)));
}

tm_status child_wait(tm_process *process, int *status, tm_error *err)
{
    while (!tm_process_ended(process, status)) {
        if (tm_cli_stop) return interrupted(err);
        (void)tm_process_wait(&process, 1, -1, LOOK_NS, &tm_cli_stop);
    }
    return TM_OK;
}

tm_status child_run_within(tm_process_options options, double seconds, tm_text *output, child_end *end, bool *late,
                           tm_error *err)
{
    tm_process *process;
    int         status = 0;
    int64_t     begin = tm_now_ns();
    *end = (child_end){ .code = -1 };
    *late = false;
    options.output = true;
    tm_cli_heed_stop();
    TM_TRY(tm_process_start(&options, &process, err));
    tm_status st =
        follow(process, seconds > 0 ? begin + (int64_t)(seconds * 1e9) : INT64_MAX, &status, output, late, err);
    end->seconds = (double)(tm_now_ns() - begin) * 1e-9;
    if (st == TM_OK && !*late) judge(process, status, end);
    tm_process_close(process, *late ? 1 : 10);
    return st;
}

tm_status child_run_with(tm_process_options options, tm_text *output, child_end *end, tm_error *err)
{
    bool late;
    return child_run_within(options, 0, output, end, &late, err);
}

tm_status child_run(char *const *argv, tm_text *output, child_end *end, tm_error *err)
{
    return child_run_with((tm_process_options){ .argv = argv }, output, end, err);
}
