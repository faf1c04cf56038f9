/* SPDX-License-Identifier: Apache-2.0 */
/* results/baseline.h - several starts against several starts of a baseline: is this slower? (stats/starts.h) */
#ifndef TM_RESULTS_BASELINE_H
#define TM_RESULTS_BASELINE_H

#include "base/table.h"
#include "results/result.h"
#include "stats/starts.h"

/* The starts of one side, and what each is called in messages. */
typedef struct {
    const char             *name; /* "A", "the baseline" */
    const tm_result *const *runs;
    size_t                  n; /* at least 1 */
} tm_baseline_side;

typedef struct {
    tm_starts_result judged;
    size_t    counted[2]; /* of A and of the baseline; runs that are invalid, noisy or without a rate do not count */
    tm_table *sides;      /* rows of A and the baseline: starts, what counts of them, why not the rest, their rate */
    tm_table *verdict;    /* one row */
} tm_baseline_result;

/* Judges tokens per second and device (images, where samples are images): the median of each start. accepted: relative,
 * as in tm_starts_judge. TM_INVALID, naming both: a benchmark; two runs of one side that measure different things, or
 * are the same run; no run of a side has a rate. Destroy the tables. */
TM_MUST_USE tm_status tm_results_baseline(const tm_baseline_side *a, const tm_baseline_side *base, double accepted,
                                          tm_baseline_result *out, tm_error *err);

#endif
