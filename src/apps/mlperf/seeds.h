/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/seeds.h - the seed check: every log has a seed, and no two logs have the same one from the same line. */
#ifndef TM_MLPERF_SEEDS_H
#define TM_MLPERF_SEEDS_H

#include "apps/mlperf/notes.h"
#include "apps/mlperf/submission.h"

typedef struct {
    bool     passed;
    size_t   n; /* seeds found */
    tm_notes errors, warnings;
} tm_seeds_report;

/* Texts live in the submission's arena. */
tm_seeds_report tm_seeds_check(const tm_submission *submission);

#endif
