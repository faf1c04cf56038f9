/* SPDX-License-Identifier: Apache-2.0 */
/* base/process.h - child processes: started without a shell, stopped, continued and ended as a group.
 *
 * Every child leads a process group of its own, so that signals reach what it starts, too. A small guard process waits
 * beside it: when this program ends in whatever way, also by SIGKILL, the guard kills the group. What leaves its group
 * on purpose (setsid) is out of reach. One thread.
 */
#ifndef TM_BASE_PROCESS_H
#define TM_BASE_PROCESS_H

#include "base/status.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/types.h>

typedef struct tm_process tm_process;

typedef struct {
    char *const       *argv;     /* argv[0] is looked up in PATH; ends with NULL */
    const char *const *settings; /* "NAME=value", added to the environment; ends with NULL; NULL = none */
    const char        *input;    /* a file for standard input; NULL: it is empty */
    bool               output;   /* standard output comes through a pipe; else it is thrown away */
    const char        *channel;  /* "NAME": a socket is passed, its number in this variable; NULL = none */
} tm_process_options;

/* Starts a child. TM_INVALID, with the system's reason, when the program cannot be executed; TM_IO when the system has
 * no more processes or descriptors. Standard error is kept (tm_process_last_words). */
TM_MUST_USE tm_status tm_process_start(const tm_process_options *options, tm_process **out, tm_error *err);

/* Descriptors that do not block, -1 where there is none: standard output of the child, and our end of the channel. */
int   tm_process_output(const tm_process *process);
int   tm_process_channel(const tm_process *process);
pid_t tm_process_id(const tm_process *process);

/* Waits until `fd` can be read or is at its end (true), taking in standard error of all `n` processes meanwhile; false
 * after `timeout_ns` or as soon as *stop is set (may be NULL). */
bool tm_process_wait(tm_process *const *processes, int n, int fd, long long timeout_ns,
                     const volatile sig_atomic_t *stop);

/* Stops the group (SIGSTOP) and waits until the child stands still; lets it go on (SIGCONT). TM_INTERNAL if the child
 * does not stop within 10 s; a child that has ended is no error. */
TM_MUST_USE tm_status tm_process_stop(tm_process *process, tm_error *err);
void                  tm_process_continue(tm_process *process);

/* Has the child ended? Then *status is what waitpid tells. Does not wait. */
bool tm_process_ended(tm_process *process, int *status);
/* "exit code 3", "signal 9 (Killed)". */
const char *tm_process_status_text(int status, char out[64]);
/* The last lines of standard error, at most 10 and 4400 bytes, so that a message of a tm_error is whole; "" if there
 * are none. Valid until the process is closed. */
const char *tm_process_last_words(tm_process *process);

/* Ends the group: SIGTERM, then SIGKILL after `grace_seconds` (0: at once). Reaps child and guard, frees. NULL is fine.
 */
void tm_process_close(tm_process *process, double grace_seconds);

#endif
