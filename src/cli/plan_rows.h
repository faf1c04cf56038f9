/* SPDX-License-Identifier: Apache-2.0 */
/* cli/plan_rows.h - `trainmark plan --rows FILE`: published figures beside what is predicted for them. */
#ifndef TM_CLI_PLAN_ROWS_H
#define TM_CLI_PLAN_ROWS_H

#include "base/status.h"

#include <stdbool.h>

typedef struct {
    const char *file;      /* CSV with the columns of plan/rows.h */
    bool        leave_out; /* predict each row with constants that were fitted without its source */
    bool        fit;       /* print constants that are fitted to the rows, in place of predictions */
    bool        json, verbose;
} tm_plan_rows_options;

TM_MUST_USE tm_status tm_cli_plan_rows(const tm_plan_rows_options *options, tm_error *err);
/* Every constant: name, value, unit, prior, source. */
TM_MUST_USE tm_status tm_cli_plan_constants(bool json, bool verbose, tm_error *err);

/* Runs of the store (NULL: the user's) that were predicted: both speeds and the errors. */
TM_MUST_USE tm_status tm_cli_plan_accuracy(const char *store, bool json, bool verbose, tm_error *err);

#endif
