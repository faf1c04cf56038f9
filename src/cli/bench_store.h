/* SPDX-License-Identifier: Apache-2.0 */
/* cli/bench_store.h - a benchmark's table on its way into the store of results. */
#ifndef TM_CLI_BENCH_STORE_H
#define TM_CLI_BENCH_STORE_H

#include "base/table.h"
#include "config/config.h"

/* Into the store that the option `store` of the finished configuration names, or the user's. valid: none of its numbers
 * is worthless. label may be NULL. A store that nobody named and that cannot be used is a warning. */
TM_MUST_USE tm_status tm_bench_store(const tm_config *config, const tm_table *table, bool valid, const char *label,
                                     tm_error *err);

#endif
