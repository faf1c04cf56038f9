/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/mllogs.h - made-up MLPerf-style logs: a list of lines that a test changes and prints; whole runs of
 * given samples, times and losses. */
#ifndef TM_TESTS_MLLOGS_H
#define TM_TESTS_MLLOGS_H

#include "apps/mlperf/log.h"
#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MLLOG_LINES = 128, MLLOG_BYTES = 160, MLLOG_RAW = 600 };

typedef struct {
    int64_t time_ms;
    char    key[64];
    char    value[MLLOG_BYTES];    /* JSON */
    char    metadata[MLLOG_BYTES]; /* members behind lineno, "" or ", \"samples_count\": 0" */
    char    raw[MLLOG_RAW];        /* printed instead of all this, if not "" */
} mllog_line;

typedef struct {
    mllog_line lines[MLLOG_LINES];
    size_t     n;
} mllog;

/* The shortest logs that comply, and some more lines that are usual: init_start at 0 ms, init_stop at 60000. */
mllog mllog_8b(void);
mllog mllog_lora(void);
mllog mllog_flux(void);
mllog mllog_gpt_oss(void);     /* no benchmark of 5.1.0 */
mllog mllog_tiny(double loss); /* of the built-in model, with that loss in the end */

mllog_line *mllog_find(mllog *log, const char *key, size_t nth);       /* from 0; fails the test if there is none */
void        mllog_set(mllog *log, const char *key, const char *value); /* of every line of that key */
void        mllog_drop(mllog *log, const char *key);
/* Puts a line before `at`, a line of the log, or at the end where it is NULL. Returns it; others move. */
mllog_line *mllog_insert(mllog *log, mllog_line *at, const char *key, const char *value, const char *metadata);
mllog_line *mllog_double(mllog *log, const char *key);
void        mllog_move(mllog *log, const char *key, const char *before); /* the first of each */
void        mllog_print(const mllog *log, tm_text *out);

/* A run of "llama31_8b" or "llama2_70b_lora". */
typedef struct {
    const char *benchmark;
    int64_t     batch, samples;  /* batch 0: not told; samples at the last evaluation */
    int64_t     first, interval; /* samples at the first evaluation and between two; 0: one evaluation, at `samples` */
    int64_t     start_ms, run_ms, eval_ms, init_ms; /* run_start; run_stop - run_start; of each evaluation; before it */
    const char *status;                             /* of run_stop; NULL: no run_stop */
    double      loss;                               /* of the last evaluation */
    double      slope;                              /* by which those before are above, each above the next */
    int64_t     seed;                               /* < 0: no seed line */
    const char *extra;                              /* further lines, before init_stop; NULL: none */
} test_mllog;

/* A run that converged: of the benchmark, batch and samples, with everything else sensible. */
test_mllog test_mllog_good(const char *benchmark, int64_t batch, int64_t samples, int run);
tm_mllog  *test_mllog_make(const test_mllog *log);
/* Writes FOLDER/result_N.txt. */
void test_mllog_write(const test_mllog *log, const char *folder, int number);

#endif
