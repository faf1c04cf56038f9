/* SPDX-License-Identifier: Apache-2.0 */
/* cli/child.h - private to the room: processes that are waited for, and how they ended. */
#ifndef TM_CLI_CHILD_H
#define TM_CLI_CHILD_H

#include "base/process.h"
#include "base/status.h"
#include "base/text.h"

#include <stdbool.h>

typedef struct {
    int    code;       /* exit code; -1: killed by a signal */
    bool   nomem;      /* it did not fit: the plan, the allocation, or killed for memory */
    char   words[700]; /* the beginning of its error; without one the last on standard error */
    char   said[4500]; /* the last on standard error, for a log */
    double seconds;
} child_end;

/* Waits for a process that prints nothing we keep; *status as waitpid tells. TM_INTERRUPTED when the user wants to
 * stop. */
TM_MUST_USE tm_status child_wait(tm_process *process, int *status, tm_error *err);
/* Runs a program; its standard output, 64 MiB of it at most, is appended to `output`. TM_INTERRUPTED when the user
 * wants to stop. */
TM_MUST_USE tm_status child_run(char *const *argv, tm_text *output, child_end *end, tm_error *err);
/* The same with all options; `output` of them is set. */
TM_MUST_USE tm_status child_run_with(tm_process_options options, tm_text *output, child_end *end, tm_error *err);
/* And for at most so many seconds: then it is ended, and *late is set. */
TM_MUST_USE tm_status child_run_within(tm_process_options options, double seconds, tm_text *output, child_end *end,
                                       bool *late, tm_error *err);

#endif
