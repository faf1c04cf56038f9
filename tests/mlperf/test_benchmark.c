/* SPDX-License-Identifier: Apache-2.0 */
/* When the benchmarks are evaluated. */
#include "apps/mlperf/benchmark.h"

#include "support/test.h"

TEST(evaluations_by_batch)
{
    const struct {
        const char *name;
        int64_t     batch, interval, first; /* sequences */
    } cases[] = {
        { "llama31_8b", 32, 12288, 12288 },    { "llama31_8b", 36, 12312, 12312 },
        { "llama31_8b", 12289, 12289, 12289 }, { "llama2_70b_lora", 8, 384, 1536 },
        { "llama2_70b_lora", 9, 387, 1548 },   { "llama2_70b_lora", 16, 384, 1920 },
        { "llama2_70b_lora", 64, 384, 4224 },  { "llama2_70b_lora", 72, 432, 5184 },
        { "trainmark_tiny", 16, 80, 80 },      { "flux1", 2048, 262144, 262144 },
        { "flux1", 1152, 262656, 262656 },     { "flux1", 64, 262144, 262144 },
        { "gpt_oss_20b", 32, 12288, 12288 },   { "trainmark_tiny_lora", 8, 64, 64 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tm_mlperf_benchmark *b = tm_mlperf_benchmark_find(cases[i].name);
        assert_non_null(b);
        assert_int_equal(tm_mlperf_eval_steps(b, cases[i].batch) * cases[i].batch, cases[i].interval);
        assert_int_equal(tm_mlperf_first_eval_step(b, cases[i].batch) * cases[i].batch, cases[i].first);
    }
    assert_null(tm_mlperf_benchmark_find("llama3"));
}

/* Of the rules of MLPerf Training v5.1 and v6.0; docs/mlperf.md has ours. */
TEST(figures_of_the_rules)
{
    const struct {
        const char *name;
        double      target;
        int64_t     interval, eval_samples;
    } rules[] = { { "llama31_8b", 3.3, 12288, 1024 },     { "llama2_70b_lora", 0.925, 384, 173 },
                  { "flux1", 0.586, 262144, 29696 },      { "gpt_oss_20b", 3.34, 12288, 1024 },
                  { "trainmark_tiny", 2.5, 80, 0 },       { "trainmark_tiny_lora", 1.95, 64, 0 },
                  { "trainmark_tiny_flux", 1.05, 640, 0 } };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        const tm_mlperf_benchmark *b = tm_mlperf_benchmark_find(rules[i].name);
        assert_true(b && b->target <= rules[i].target && b->target >= rules[i].target);
        assert_int_equal(b->interval_samples, rules[i].interval);
        assert_int_equal(b->eval_samples, rules[i].eval_samples);
    }
}
