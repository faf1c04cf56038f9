/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/mlperf/benchmark.h"

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
    { .name = "flux1",
      .target = 0.586,
      .interval_samples = 262144,
      .eval_samples = 29696,
      .model = "flux_12b",
      .source = "latents",
      .protocol = "mlperf",
      .public = true },
    { .name = "gpt_oss_20b",
      .target = 3.34,
      .interval_samples = 12288,
      .eval_samples = 1024,
      .model = "gpt_oss_20B_mlperf",
      .source = "megatron",
      .public = true,
      .since = TM_RULESET_6_0_0 },
    { .name = "trainmark_tiny",
      .target = TM_MLPERF_TINY_TARGET,
      .interval_samples = 80,
      .model = "tiny-llama",
      .source = "synthetic" },
    { .name = "trainmark_tiny_lora",
      .target = TM_MLPERF_TINY_LORA_TARGET,
      .interval_samples = 64,
      .model = "micro-llama",
      .source = "reports",
      .adapters = true },
    { .name = "trainmark_tiny_flux",
      .target = TM_MLPERF_TINY_FLUX_TARGET,
      .interval_samples = 640,
      .model = "tiny-flux",
      .source = "gaussians",
      .protocol = "mlperf" },
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
