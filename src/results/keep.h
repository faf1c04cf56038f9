/* SPDX-License-Identifier: Apache-2.0 */
/* results/keep.h - results on their way into the store, and out of it again. */
#ifndef TM_RESULTS_KEEP_H
#define TM_RESULTS_KEEP_H

#include "base/table.h"
#include "results/result.h"
#include "results/store.h"

/* Puts a result into the store with its documents. folder: the run directory, NULL: none; label may be NULL. */
TM_MUST_USE tm_status tm_results_keep(tm_store *store, const tm_result *result, const char *folder, const char *label,
                                      int64_t *id, tm_error *err);
/* Writes the documents of a stored result into `folder`, which is made: a run directory again. TM_INVALID if there is a
 * result.json in it. */
TM_MUST_USE tm_status tm_results_export(tm_store *store, int64_t id, const char *folder, tm_error *err);
/* Stored results as a table of columns for people. `all`: every column of the store, else those
 * that any row fills. */
tm_table *tm_results_table(const tm_stored *rows, size_t n, bool all);

#endif
