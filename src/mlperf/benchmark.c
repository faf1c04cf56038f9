/* SPDX-License-Identifier: Apache-2.0 */
#include "mlperf/benchmark.h"

#include "base/status.h"

#include <string.h>

const tm_mlperf_benchmark tm_mlperf_benchmarks[] = {
    { .name = "llama31_8b",
      .target = 3.3,
      .interval_samples = 12288,
      .eval_samples = 1024,
      .model = "llama3.1_8B",
      .source = "megatron",
      .public = true },
    { .name = "llama2_70b_lora",
      .target = 0.925,
      .interval_samples = 384,
      .skip_per_sample = 0.125,
      .skip = 2,
      .eval_samples = 173,
      .model = "llama2_70B",
      .source = "govreport",
      .adapters = true,
      .public = true },
    { .name = "trainmark_tiny",
      .target = TM_MLPERF_TINY_TARGET,
      .interval_samples = 80,
      .model = "tiny-llama",
      .source = "synthetic" },
    { .name = NULL },
};

const tm_mlperf_benchmark *tm_mlperf_benchmark_find(const char *name)
{
    for (const tm_mlperf_benchmark *b = tm_mlperf_benchmarks; b->name; b++)
        if (strcmp(b->name, name) == 0) return b;
    return NULL;
}

int64_t tm_mlperf_eval_steps(const tm_mlperf_benchmark *benchmark, int64_t batch)
{
    TM_ASSERT(batch > 0);
    return (benchmark->interval_samples + batch - 1) / batch;
}

int64_t tm_mlperf_first_eval_step(const tm_mlperf_benchmark *benchmark, int64_t batch)
{
    int64_t skipped = (int64_t)(benchmark->skip_per_sample * (double)batch) + benchmark->skip;
    return tm_mlperf_eval_steps(benchmark, batch) * (skipped + 1);
}
