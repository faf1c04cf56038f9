/* SPDX-License-Identifier: Apache-2.0 */
/* cli/plan_one.h - private to the room: one training as `plan` sees it: configured, planned and simulated. */
#ifndef TM_CLI_PLAN_ONE_H
#define TM_CLI_PLAN_ONE_H

#include "cli/cli.h"
#include "cli/explain_ranks.h"
#include "plan/simulate.h"
#include "plan/theirs.h"

extern const tm_cli_command tm_command_plan;

typedef struct {
    tm_arena       *arena;
    tm_config      *config;
    tm_cli_line    *line;
    tm_cli_options  cli;
    tm_machine_plan machine; /* what a step gets out of the platform */
    tm_run_options  run;
    tm_device      *device;
    tm_step        *step; /* of rank 0 */
    rank_plans      ranks;
    tm_simulation   time;   /* of the slowest rank; time.step 0: not simulated */
    double          bytes;  /* of the plan that needs most, of those that were made */
    double          tokens; /* of a step, of all ranks */
} plan_one;

/* The words behind `plan`, with `more` (n words) behind them. Ended with plan_one_fini, also on failure. */
TM_MUST_USE tm_status plan_one_open(char *const *words, int argc, char *const *more, int n, plan_one *out,
                                    tm_error *err);
/* Fills in step, time and bytes; the platform must be given. */
TM_MUST_USE tm_status plan_one_compute(plan_one *p, bool traced, tm_error *err);
/* Behind it: the plans of all ranks. */
TM_MUST_USE tm_status plan_one_ranks(plan_one *p, tm_error *err);
void                  plan_one_fini(plan_one *p);

/* Bytes that a rank may have. */
double plan_one_room(const plan_one *p);
/* Half of the 90 % interval of its time, of its logarithm. */
double plan_one_width(const plan_one *p);
/* Sequences of the largest micro-batch whose plan fits, `most` at most; 0: not even one. Where the sequences of a step
 * are given, one that divides those of a rank. Behind plan_one_ranks. */
int64_t plan_one_largest(const plan_one *p, int64_t most);

/* --search, --as: the whole output. */
TM_MUST_USE tm_status plan_search(char *const *words, int argc, const plan_one *given, tm_text *out, tm_error *err);
TM_MUST_USE tm_status plan_as(plan_one *p, tm_text *out, tm_error *err);
/* What the time supposes unless options say otherwise: rows of experts, the data loader. */
void plan_print_supposed(const plan_one *p, tm_text *out);
/* What is predicted for our program. */
TM_MUST_USE tm_status plan_print(const plan_one *p, tm_text *out, tm_error *err);

/* Writes the pieces of the step to cli.trace: a picture, if its name ends in ".svg", else trace events. TM_IO. */
TM_MUST_USE tm_status plan_trace_write(const plan_one *p, tm_error *err);

/* Cost and energy of so many tokens at that rate, and of a million; nothing where neither prices nor watts are known.
 */
void plan_print_cost(const plan_one *p, double tokens_per_second, tm_text *out);
void plan_cost_json(const plan_one *p, double tokens_per_second, tm_json *json);

#endif
