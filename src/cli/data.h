/* SPDX-License-Identifier: Apache-2.0 */
/* cli/data.h - the commands behind `trainmark data`. One is a file cli/data_NAME.c and a line in data.def. */
#ifndef TM_CLI_DATA_H
#define TM_CLI_DATA_H

#include "base/status.h"
#include "base/table.h"

#include <stdbool.h>

/* The table on stdout, as JSON or for people. */
TM_MUST_USE tm_status tm_data_print(const tm_table *table, bool json, bool verbose, tm_error *err);

#endif
