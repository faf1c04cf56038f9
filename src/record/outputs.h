/* SPDX-License-Identifier: Apache-2.0 */
/* record/outputs.h - all outputs of a run: the ones that it wants, open, on a bus of events, and closed again. The
 * table of them is sinks.def. */
#ifndef TM_RECORD_OUTPUTS_H
#define TM_RECORD_OUTPUTS_H

#include "base/event.h"
#include "config/config.h"
#include "apps/check/check.h"
#include "system/environment.h"
#include "train/run/run.h"

/* What an output may want to know. All of it outlives the outputs. */
typedef struct {
    const char           *folder; /* of the run; it is there */
    const tm_config      *config;
    const tm_run_options *run;
    const tm_environment *environment;
    const tm_checks      *checks;   /* of the host */
    const char           *command;  /* arguments, secrets masked */
    const char           *perf_csv; /* --perf-csv: a file that the result is appended to; NULL: none */
    const char           *compare;  /* --compare: published figures; NULL: none */
    bool                  quiet;    /* -q: the console tells the result only */
    bool                  verbose;  /* -v: the console tells every table */
    bool                  json;     /* --json: the console tells nothing */
} tm_output_options;

typedef struct tm_outputs tm_outputs;

/* Opens those that the run wants. After a failure nothing is open, and no empty file stays behind. */
TM_MUST_USE tm_status tm_outputs_open(const tm_output_options *options, tm_outputs **out, tm_error *err);
/* For tm_run; valid until they are closed. */
const tm_event_bus *tm_outputs_bus(const tm_outputs *outputs);
/* Closes all. `st` is how the run ended: if that was well, the first failure of an output takes its place; otherwise
 * *err stays and what else went wrong is a warning in the log. *began: did the run ever start? If not, no empty file
 * stays. */
TM_MUST_USE tm_status tm_outputs_close(tm_outputs *outputs, tm_status st, bool *began, tm_error *err);

#endif
