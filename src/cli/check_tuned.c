/* SPDX-License-Identifier: Apache-2.0 */
/* cli/check_tuned.c - a command while the host is tuned. */
#include "cli/check.h"
#include "base/plain.h"
#include "cli/cli.h"
#include "apps/check/tune.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Starts the command; *cause is errno of the exec if it could not be. */
static pid_t start(char **command, int *cause)
{
    int ends[2];
    *cause = 0;
    if (pipe2(ends, O_CLOEXEC) != 0) {
        *cause = errno;
        return -1;
    }
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        signal(SIGINT, SIG_DFL);
        signal(SIGTERM, SIG_DFL);
        signal(SIGPIPE, SIG_DFL);
        signal(SIGXFSZ, SIG_DFL);
        execvp(command[0], command);
        int why = errno;
        _exit(write(ends[1], &why, sizeof why) == sizeof why ? 127 : 126);
    }
    if (child < 0) *cause = errno;
    close(ends[1]);
    if (child > 0 && read(ends[0], cause, sizeof *cause) != sizeof *cause) *cause = 0;
    close(ends[0]);
    return child;
}

/* Waits for its end; a signal to us goes on to it. Its status, or -1. */
static int wait_for(pid_t child)
{
    int  status;
    bool told = false;
    while (waitpid(child, &status, 0) != child) {
        if (errno != EINTR) return -1;
        if (tm_cli_stop && !told) told = kill(child, SIGTERM) == 0;
    }
    return status;
}

static tm_status run_command(char **command, tm_error *err)
{
    int   cause, status = 0;
    pid_t child = start(command, &cause);
    if (child > 0) status = wait_for(child);
    if (child < 0 || cause) return tm_fail(err, TM_INVALID, "cannot run '%.200s': %s", command[0], strerror(cause));
    if (tm_cli_stop) return tm_fail(err, TM_INTERRUPTED, "stopped by a signal");
    if (WIFSIGNALED(status))
        return tm_fail(err, TM_NEGATIVE, "'%.200s' was ended by signal %d", command[0], WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        return tm_fail(err, TM_NEGATIVE, "'%.200s' failed with exit code %d", command[0], WEXITSTATUS(status));
    return TM_OK;
}

tm_status check_run_tuned(const char *sysroot, char **command, tm_error *err)
{
    tm_tuning      *tuning;
    tm_text         notes = { 0 };
    tm_tune_options options = { .sysroot = sysroot };
    tm_status       st = tm_tune_begin(&options, &tuning, &notes, err);
    if (notes.length) tm_plain_put(stderr, notes.data, TM_PLAIN_LINES);
    notes.length = 0;
    if (st == TM_OK) {
        st = run_command(command, err);
        tm_error own = { 0 };
        if (tm_tune_end(tuning, &notes, &own) != TM_OK) {
            *err = own; /* worse than what the command did */
            st = own.status;
        }
        if (notes.length) tm_plain_put(stderr, notes.data, TM_PLAIN_LINES);
    }
    tm_text_fini(&notes);
    return st;
}
