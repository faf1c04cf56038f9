/* SPDX-License-Identifier: Apache-2.0 */
/* mlperf/seeds.h - the seed check: every log has a seed, and no two logs have the same one from the same line. */
#ifndef TM_MLPERF_SEEDS_H
#define TM_MLPERF_SEEDS_H

#include "mlperf/submission.h"

typedef struct {
    bool   passed;
    size_t n;                  /* seeds found */
    char **errors, **warnings; /* complete sentences; (n_errors), (n_warnings) */
    size_t n_errors, n_warnings;
} tm_seeds_report;

/* Texts live in the submission's arena. */
tm_seeds_report tm_seeds_check(const tm_submission *submission);

/* Python's int() of a value, as decimal digits: 5, "5", " 5 ", 5.0 and 5.7 are "5"; NULL for "5.5", null and the like.
 */
const char *tm_seed_number(const tm_json_value *value, tm_arena *arena);

#endif
