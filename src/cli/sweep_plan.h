/* SPDX-License-Identifier: Apache-2.0 */
/* cli/sweep_plan.h - private to the room: what a run of a sweep needs, and runs as processes. */
#ifndef TM_CLI_SWEEP_PLAN_H
#define TM_CLI_SWEEP_PLAN_H

#include "cli/child.h"
#include "cli/sweep.h"

extern const tm_cli_command tm_command_run;

/* Bytes of the plan with `more` (n words) behind the words of the command line. TM_NOMEM never: whether it fits is the
 * caller's question. */
TM_MUST_USE tm_status sweep_plan_bytes(const tm_sweep_options *o, char *const *more, int n, int64_t *bytes,
                                       tm_error *err);
/* What a plan may need: --memory, or 95 % of what is free. 0: not known. */
int64_t sweep_memory(const tm_sweep_options *o);

/* `trainmark run` with the words of the command line, `more`, and --out folder; its standard output goes to the file
 * `log` (NULL: nowhere). TM_INTERRUPTED when the user wants to stop. */
TM_MUST_USE tm_status sweep_start(const tm_sweep_options *o, char *const *more, int n, const char *folder,
                                  const char *log, child_end *end, tm_error *err);

#endif
