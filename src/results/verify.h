/* SPDX-License-Identifier: Apache-2.0 */
/* results/verify.h - is a result what its raw samples say? Every derived figure of a result.json is worked out again
 * from the step times, and from metrics.jsonl where that is there; the digest over the file finds any changed digit of
 * the rest.
 */
#ifndef TM_RESULTS_VERIFY_H
#define TM_RESULTS_VERIFY_H

#include "base/table.h"
#include "results/result.h"

#include <stddef.h>

/* Rows: figure, written, recomputed, verdict ("ok", "differs", "missing"). *wrong: how many are not ok. Numbers agree
 * to 1e-12: libraries of other machines may round logarithms otherwise. TM_INVALID: not a run. The caller destroys the
 * table. */
TM_MUST_USE tm_status tm_results_verify(const tm_result *run, tm_table **out, size_t *wrong, tm_error *err);

#endif
