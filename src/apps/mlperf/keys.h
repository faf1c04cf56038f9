/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/keys.h - the mlperf.* rows, and what a benchmark decides about a run. */
#ifndef TM_MLPERF_KEYS_H
#define TM_MLPERF_KEYS_H

#include "config/config.h"
#include "apps/mlperf/benchmark.h"

/* Its rule settles evaluations and target; it has to be called behind that of train. */
void tm_mlperf_configure(tm_config *config);

/* The benchmark that a run logs; NULL: none (mlperf.enable is false). For finished configurations. */
const tm_mlperf_benchmark *tm_mlperf_benchmark_of(const tm_config *config);

#endif
