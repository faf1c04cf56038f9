/* SPDX-License-Identifier: Apache-2.0 */
/* results/verify.h - is a result what its raw samples and its configuration say? Every figure that follows from what
 * the files of a run hold is worked out again: rates and statistics from the step times, losses from metrics.jsonl,
 * the verdict by the rules of a run, the size of the model and the rate of each step from the configuration. The digest
 * over the file finds any changed digit of the rest.
 */
#ifndef TM_RESULTS_VERIFY_H
#define TM_RESULTS_VERIFY_H

#include "base/table.h"
#include "config/config.h"
#include "results/result.h"

#include <stddef.h>

/* Rows: figure, written, recomputed, verdict ("ok", "differs", "not verified"). The last ones are all that nothing in
 * the files tells again, by name. *wrong: how many differ. Numbers agree to 1e-12: libraries of other machines may
 * round logarithms otherwise. `config`: that of the result (tm_results_configuration), NULL: not to be had. TM_INVALID:
 * not a run. The caller destroys the table. */
TM_MUST_USE tm_status tm_results_verify(const tm_result *run, const tm_config *config, tm_table **out, size_t *wrong,
                                        tm_error *err);

/* Fills `config`, which has all rows, with the configuration that a result holds, and finishes it. TM_INVALID: it holds
 * none, or one that this version does not know. */
TM_MUST_USE tm_status tm_results_configuration(const tm_result *run, tm_config *config, tm_error *err);

#endif
