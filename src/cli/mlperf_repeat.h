/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf_repeat.h - the same training, N times with N seeds, a log each: what `mlperf run` and `mlperf reference`
 * share. */
#ifndef TM_CLI_MLPERF_REPEAT_H
#define TM_CLI_MLPERF_REPEAT_H

#include "base/arena.h"
#include "base/status.h"
#include "mlperf/check.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    int64_t     runs;
    const char *folder;    /* of result_0.txt ... */
    bool        seeded;    /* seeds are seed, seed + 1, ...; else from the system's entropy */
    int64_t     seed;
    tm_ruleset  ruleset;   /* 5.1.0 by default */
    const char *reference; /* --reference F, or NULL */
    const char *output;    /* --output F, or NULL */
    char      **words;     /* arguments of `trainmark run`; (n) */
    int         n;
} tm_repeat;

/* Reads a command line: own options, the rest is for `trainmark run`. `runs` when neither --runs nor NEXP says; LOGDIR
 * and SEED are honoured. Strings live in `arena` or argv. TM_USAGE. */
TM_MUST_USE tm_status tm_repeat_read(int argc, char **argv, int64_t runs, bool with_reference, bool with_output,
                                     tm_arena *arena, tm_repeat *out, tm_error *err);

/* Trains what is not there yet: each run is a process of its own with caches and clock of its own; its log becomes
 * result_I.txt when it is whole, so that a command that was cut short goes on where it stopped. TM_INVALID if the folder
 * holds runs of another command. A run that missed its target is a result, a run that fails is not: its exit code is
 * passed on. TM_INTERRUPTED when stopped. */
TM_MUST_USE tm_status tm_repeat_run(const tm_repeat *repeat, tm_error *err);

#endif
