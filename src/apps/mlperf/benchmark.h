/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/benchmark.h - the benchmarks that are known here: what makes a run of one a success, and when it is
 * evaluated. Sources: rules of MLPerf Training v5.1 and v6.0; those named trainmark_* are our own (docs/mlperf.md).
 */
#ifndef TM_MLPERF_BENCHMARK_H
#define TM_MLPERF_BENCHMARK_H

#include "apps/mlperf/check.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Validation losses that runs of the built-in benchmarks have to reach: nats per token, nats per token of an answer,
 * mean square error. */
#define TM_MLPERF_TINY_TARGET 2.5
#define TM_MLPERF_TINY_LORA_TARGET 1.95
#define TM_MLPERF_TINY_FLUX_TARGET 1.05

typedef struct {
    const char *name;             /* the value of submission_benchmark */
    double      target;           /* an evaluation at most this is a success */
    int64_t     interval_samples; /* an evaluation every ceil(this / batch) steps */
    double      skip_per_sample;  /* the first floor(skip_per_sample * batch + skip) evaluations are left out */
    int64_t     skip;
    int64_t     eval_samples; /* samples of an evaluation; 0: what the configuration says */
    const char *model;        /* preset that has to be trained, unchanged */
    const char *source;       /* data.source that it is trained on */
    const char *protocol;     /* data.flow_protocol; NULL: a language */
    bool        adapters;     /* it trains LoRA adapters of a base model, not the weights */
    bool public;              /* known to the public checker */
    tm_ruleset since;         /* the first round that has it */
} tm_mlperf_benchmark;

/* All rows, ends with name NULL. */
extern const tm_mlperf_benchmark tm_mlperf_benchmarks[];
/* NULL if unknown. */
const tm_mlperf_benchmark *tm_mlperf_benchmark_find(const char *name);

/* Steps between evaluations of a run with `batch` samples per step, and the step of the first one. */
int64_t tm_mlperf_eval_steps(const tm_mlperf_benchmark *benchmark, int64_t batch);
int64_t tm_mlperf_first_eval_step(const tm_mlperf_benchmark *benchmark, int64_t batch);

#endif
