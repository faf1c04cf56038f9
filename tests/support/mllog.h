/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/mllog.h - made-up MLPerf-style logs: a list of lines that a test changes and prints. */
#ifndef TM_TESTS_MLLOG_H
#define TM_TESTS_MLLOG_H

#include "base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MLLOG_LINES = 128, MLLOG_BYTES = 160 };

typedef struct {
    int64_t time_ms;
    char    key[64];
    char    value[MLLOG_BYTES];    /* JSON */
    char    metadata[MLLOG_BYTES]; /* members behind lineno, "" or ", \"samples_count\": 0" */
    char    raw[MLLOG_BYTES];      /* printed instead of all this, if not "" */
} mllog_line;

typedef struct {
    mllog_line lines[MLLOG_LINES];
    size_t     n;
} mllog;

/* The shortest logs that comply, and some more lines that are usual: init_start at 0 ms, init_stop at 60000. */
mllog mllog_8b(void);
mllog mllog_lora(void);
mllog mllog_flux(void);
mllog mllog_gpt_oss(void); /* no benchmark of 5.1.0 */
/* The same for the benchmark of the built-in model, with a last evaluation of `loss`. */
mllog mllog_tiny(double loss);

/* The `nth` line of that key, from 0; fails the test if there is none. */
mllog_line *mllog_find(mllog *log, const char *key, size_t nth);
/* Sets the value of every line of that key. */
void mllog_set(mllog *log, const char *key, const char *value);
void mllog_drop(mllog *log, const char *key); /* every line */
/* Puts a line before `at`, a line of the log, or at the end where it is NULL. Returns it; others move. */
mllog_line *mllog_insert(mllog *log, mllog_line *at, const char *key, const char *value, const char *metadata);
/* A second line behind the first of that key. */
mllog_line *mllog_double(mllog *log, const char *key);
/* Moves the first line of `key` before the first of `before`. */
void mllog_move(mllog *log, const char *key, const char *before);
void mllog_print(const mllog *log, tm_text *out);

#endif
