/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/mllogs.h - synthetic MLPerf-style logs: compliant ones, from what a test wants to be in them. */
#ifndef TM_TESTS_MLLOGS_H
#define TM_TESTS_MLLOGS_H

#include "base/text.h"
#include "apps/mlperf/log.h"

#include <stdint.h>

typedef struct {
    const char *benchmark;       /* "llama31_8b" or "llama2_70b_lora" */
    int64_t     batch, samples;  /* samples at the last evaluation */
    int64_t     first, interval; /* samples at the first evaluation and between two; 0: one evaluation, at `samples` */
    int64_t     start_ms, run_ms, eval_ms, init_ms; /* run_start; run_stop - run_start; of each evaluation; before it */
    const char *status;                             /* of run_stop; NULL: no run_stop */
    double      loss; /* of the last evaluation; those before are above it, falling evenly by `slope` */
    double      slope;
    int64_t     seed;  /* < 0: no seed line */
    const char *extra; /* further lines, before init_stop; NULL: none */
} test_mllog;

/* A run that converged: of the benchmark, batch and samples, with everything else sensible. */
test_mllog test_mllog_good(const char *benchmark, int64_t batch, int64_t samples, int run);
void       test_mllog_print(const test_mllog *log, tm_text *out);
tm_mllog  *test_mllog_make(const test_mllog *log);
/* Writes FOLDER/result_N.txt. */
void test_mllog_write(const test_mllog *log, const char *folder, int number);

#endif
