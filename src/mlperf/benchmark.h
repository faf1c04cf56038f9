/* SPDX-License-Identifier: Apache-2.0 */
/* mlperf/benchmark.h - the benchmarks that are known here: what makes a run of one a success, and when it is evaluated.
 * Sources: MLPerf Training v5.1 rules for llama31_8b and llama2_70b_lora; trainmark_tiny is our own (docs/mlperf.md).
 */
#ifndef TM_MLPERF_BENCHMARK_H
#define TM_MLPERF_BENCHMARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Validation loss in nats per token that a run of the built-in model has to reach. */
#define TM_MLPERF_TINY_TARGET 2.5

typedef struct {
    const char *name;             /* the value of submission_benchmark */
    double      target;           /* an evaluation at most this is a success; nats per token */
    int64_t     interval_samples; /* an evaluation every ceil(this / batch) steps */
    double      skip_per_sample;  /* the first floor(skip_per_sample * batch + skip) evaluations are left out */
    int64_t     skip;
    int64_t     eval_samples; /* sequences of an evaluation; 0: what the configuration says */
    const char *model;        /* preset that has to be trained, unchanged */
    const char *source;       /* data.source that it is trained on */
    bool        adapters;     /* it trains LoRA adapters, not the weights */
    bool public;              /* known to the public checker */
} tm_mlperf_benchmark;

/* All rows, ends with name NULL. */
extern const tm_mlperf_benchmark tm_mlperf_benchmarks[];
/* NULL if unknown. */
const tm_mlperf_benchmark *tm_mlperf_benchmark_find(const char *name);

/* Steps between evaluations of a run with `batch` sequences per step, and the step of the first one. */
int64_t tm_mlperf_eval_steps(const tm_mlperf_benchmark *benchmark, int64_t batch);
int64_t tm_mlperf_first_eval_step(const tm_mlperf_benchmark *benchmark, int64_t batch);

#endif
