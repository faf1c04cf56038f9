/* SPDX-License-Identifier: Apache-2.0 */
/* cli/sweep.h - one experiment, several runs: lists where single values belong are axes, every combination is a run
 * (docs/sweeps.md). And the batch that fits, where the experiment says `auto`.
 */
#ifndef TM_CLI_SWEEP_H
#define TM_CLI_SWEEP_H

#include "cli/cli.h"

typedef struct {
    const tm_config *config; /* finished, with its axes */
    int              argc;   /* the words of the command line behind `run`, --out left out */
    char           **argv;
    const char      *folder;       /* for all of it */
    bool             dry_run;      /* lists the runs and what they need */
    bool             verbose;      /* tables have all columns */
    int64_t          memory_bytes; /* --memory; 0: what this machine has */
} tm_sweep_options;

/* Trains every combination in a process of its own, the last axis fastest. Folder/runs_summary.csv is replaced whole
 * after each run. Runs that an earlier call of the same command has done are not done again, and a larger batch is not
 * tried where a smaller one of the same settings did not fit. The first failure is returned when all are done;
 * TM_INTERRUPTED at once. */
TM_MUST_USE tm_status tm_cli_sweep(const tm_sweep_options *options, tm_error *err);

/* Is the only axis a batch size that is to be found? */
bool tm_cli_wants_batch(const tm_config *config);
/* The largest training.local_batch_size whose plan fits into memory, and which did run for two steps: *batch. */
TM_MUST_USE tm_status tm_cli_find_batch(const tm_sweep_options *options, int64_t *batch, tm_error *err);
/* That batch by plans alone, up to `most`, for the configuration as it is otherwise; 0: not even one sequence fits. The
 * plan of a batch of `now` has so many `bytes`. *refused: why no plan of a larger one can be made, where that ends the
 * search. Fails where no plan can be made. */
TM_MUST_USE tm_status tm_cli_largest_batch(const tm_sweep_options *options, int64_t now, int64_t bytes, int64_t most,
                                           int64_t *batch, tm_error *refused, tm_error *err);

#endif
