/* SPDX-License-Identifier: Apache-2.0 */
/* When the benchmarks are evaluated. */
#include "mlperf/benchmark.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

static void evaluations_by_batch(void **unused)
{
    (void)unused;
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

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(evaluations_by_batch) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
