/* SPDX-License-Identifier: Apache-2.0 */
/* cli/scaling.h - `run --scaling 1,2,4`: the same experiment on so many ranks, and what more ranks bring
 * (docs/scaling.md). */
#ifndef TM_CLI_SCALING_H
#define TM_CLI_SCALING_H

#include "cli/sweep.h"

typedef struct {
    tm_sweep_options run;    /* argv: without --out and the options below */
    const char      *sizes;  /* --scaling: numbers of ranks, separated by commas */
    bool             strong; /* --scaling-mode: the same global batch for every size; weak: for every rank */
    bool             json;   /* prints the table as JSON */
} tm_scaling_options;

/* Trains on each number of ranks, one after the other, in processes of its own; prints the table, and writes
 * scaling.json and scaling.csv into the folder after each. The first failure is returned when all are done
 * (TM_INTERRUPTED at once); TM_NEGATIVE: all ran, and losses that have to be equal differ. TM_USAGE: the list. */
TM_MUST_USE tm_status tm_cli_scaling(const tm_scaling_options *options, tm_error *err);

#endif
