/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf_repeat.h - the same training, N times with N seeds, a log each: what `mlperf run` and `mlperf reference`
 * share. */
#ifndef TM_CLI_MLPERF_REPEAT_H
#define TM_CLI_MLPERF_REPEAT_H

#include "base/arena.h"
#include "base/process.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/mlperf.h"
#include "apps/mlperf/check.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int64_t     runs;
    const char *folder; /* of result_0.txt ... */
    int64_t     seed;
    const char *ruleset_name;
    const char *reference_path; /* --reference F, or NULL */
    const char *output;         /* --output F, or NULL */
    bool        json;           /* results as JSON; what is said on the way goes to standard error */
    bool        dry_run;
    int64_t     ranks; /* of each run */

    bool       seeded; /* seeds are seed, seed + 1, ...; else from the system's entropy */
    tm_ruleset ruleset;
    char     **words; /* arguments of `trainmark run`; (n) */
    int        n;
} tm_repeat;

#define TM_REPEAT_ROWS(usual_runs)                                                                                     \
    { "out",          'o',                                                                                             \
      TM_OPTION_TEXT, offsetof(tm_repeat, folder),                                                                     \
      .value = "DIR", .help = "directory for the logs; or the variable LOGDIR" },                                      \
        { "runs",                                                                                                      \
          0,                                                                                                           \
          TM_OPTION_I64,                                                                                               \
          offsetof(tm_repeat, runs),                                                                                   \
          .value = "N",                                                                                                \
          .fallback = usual_runs,                                                                                      \
          .lo = 1,                                                                                                     \
          .hi = 10000,                                                                                                 \
          .help = "number of runs; or the variable NEXP" },                                                            \
        { "seed",          0,                                                                                          \
          TM_OPTION_I64,   offsetof(tm_repeat, seed),                                                                  \
          .value = "S",    .lo = 0,                                                                                    \
          .hi = INT32_MAX, .help = "seeds S, S + 1, ... (or the variable SEED) instead of the system's entropy" },     \
        { "ranks",                                                                                                     \
          0,                                                                                                           \
          TM_OPTION_I64,                                                                                               \
          offsetof(tm_repeat, ranks),                                                                                  \
          .value = "N",                                                                                                \
          .fallback = "1",                                                                                             \
          .lo = 1,                                                                                                     \
          .hi = 256,                                                                                                   \
          .help = "processes of each run, started under MPI (docs/ranks.md)" },                                        \
        { "dry-run", 0, TM_OPTION_FLAG, offsetof(tm_repeat, dry_run),                                                  \
          .help = "print the plan of a run and what is not supported, then stop" },                                    \
        TM_MLPERF_RULESET(tm_repeat), TM_OPTION_JSON(tm_repeat)

/* Fills line->options, a tm_repeat whose rows are read; the other words are for `trainmark run`. The variables NEXP,
 * LOGDIR and SEED count where the command line does not say. TM_USAGE. */
TM_MUST_USE tm_status tm_repeat_read(tm_cli_line *line, tm_repeat **out, tm_error *err);

/* With --dry-run: what one run would be, as `trainmark run --dry-run` says it. */
TM_MUST_USE tm_status tm_repeat_plan(const tm_repeat *repeat, tm_arena *arena, tm_error *err);

/* Trains what is not there yet: the base model, if mlperf.base names one (DIR/runs/base_model), then the runs: each run
 * is a process of its own with caches and clock of its own; its log becomes result_I.txt when it is whole, so that a
 * command that was cut short goes on where it stopped. TM_INVALID if the folder holds runs of another command. A run
 * that missed its target is a result, a run that fails is not: its exit code is passed on. TM_INTERRUPTED when stopped.
 */
TM_MUST_USE tm_status tm_repeat_run(const tm_repeat *repeat, tm_error *err);

extern const tm_cli_command tm_command_run;

/* --- for the files behind this one ------------------------------------------------------------------------------- */

/* *model: the folder of the base model that the runs fine-tune, made if it is not there; NULL: they have none. */
TM_MUST_USE tm_status tm_repeat_make_base(const tm_repeat *repeat, tm_arena *arena, const char **model, tm_error *err);
/* The path of this program. */
TM_MUST_USE tm_status tm_repeat_program(tm_arena *arena, char **out, tm_error *err);
/* The status that has this exit code. */
tm_status tm_repeat_status(int exit_code);
/* What is said on the way: with --json standard output holds nothing but the result. */
TM_MUST_USE tm_status tm_repeat_tell(const tm_repeat *repeat, const tm_text *line, tm_error *err);

#endif
