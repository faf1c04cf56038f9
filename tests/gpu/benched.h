/* SPDX-License-Identifier: Apache-2.0 */
/* tests/gpu/benched.h - workloads of `bench` on the devices cuda and hip: their tables, and what they leave behind. */
#ifndef TESTS_GPU_BENCHED_H
#define TESTS_GPU_BENCHED_H

#include "apps/bench/bench.h"
#include "gpu/emulated.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

static const char *const devices[] = { "cuda", "hip" };
static const char *const libraries[] = { "cublasLt", "hipBLASLt" };

typedef struct {
    tm_table *table;
    tm_status status;
    tm_error  err;
} measured;

/* words: options, "M=4 N=5"; each row takes the fewest samples. */
static inline measured measure(const char *workload, const char *device, const char *words)
{
    measured           m = { .table = tm_table_create(workload) };
    const tm_workload *found = tm_workload_find(workload);
    tm_config         *config = tm_bench_configure(found, "help");
    char               list[4800];
    snprintf(list, sizeof list, "device=%s threads=1 rep-ms=0 warmup-ms=0 precision=0 %s", device, words);
    for (char *rest = list, *word; (word = strsep(&rest, " "));) {
        char *value = strchr(word, '=');
        if (!value) continue;
        *value++ = '\0';
        tm_config_set(config, word, value, "the test");
    }
    assert_int_equal(tm_config_finish(config, &m.err), TM_OK);
    m.status = tm_bench_run(found, config, NULL, NULL, m.table, &m.err);
    /* That others took the processors is no matter of these tests. */
    if (m.status == TM_NUMBERS && strncmp(m.err.text, "the machine was disturbed", 25) == 0) m.status = TM_OK;
    tm_config_destroy(config);
    return m;
}

static inline const tm_cell *cell(const measured *m, size_t row, const char *column)
{
    int at = tm_table_find(m->table, column);
    if (at < 0) fail_msg("no column %s", column);
    return tm_table_cell(m->table, row, (size_t)at);
}

static inline const char *text(const measured *m, size_t row, const char *column)
{
    if (row >= tm_table_n_rows(m->table)) return "";
    const tm_cell *c = cell(m, row, column);
    return c->kind == TM_CELL_TEXT ? c->text : "";
}

static inline bool has_note(const measured *m, const char *words)
{
    for (size_t i = 0; i < tm_table_n_notes(m->table); i++)
        if (strstr(tm_table_note_at(m->table, i), words)) return true;
    return false;
}

/* Measures, and ends so: `said` is in the error, in why the first row was skipped, or in a note. NULL: the first row is
 * right. */
static inline void ends(const char *workload, const char *device, const char *words, tm_status wanted, const char *said)
{
    measured m = measure(workload, device, words);
    bool     is = said ? strstr(m.err.text, said) || strstr(text(&m, 0, "skipped"), said) || has_note(&m, said)
                       : cell(&m, 0, "correct")->truth;
    if (m.status != wanted || !is)
        fail_msg("%s on %s, %s: status %d, '%s', '%s'", workload, device, words, (int)m.status, m.err.text,
                 tm_table_n_rows(m.table) ? text(&m, 0, "skipped") : "no row");
    tm_table_destroy(m.table);
}

/* Stand-ins for libraries that are loaded: a count that one of them keeps. */
static inline int count_of(const char *variable, const char *name)
{
    int (*count)(void);
    void *library = dlopen(getenv(variable), RTLD_NOW | RTLD_NOLOAD);
    if (!library) return 0;
    *(void **)&count = dlsym(library, name);
    assert_non_null(count);
    return count();
}

static inline void check_nothing_is_left(bool hip, const char *where)
{
    int memory = count_of("TRAINMARK_GPU_RUNTIME", "standin_held");
    int objects = count_of(hip ? "TRAINMARK_HIPBLASLT" : "TRAINMARK_CUBLASLT", "standin_blas_held");
    if (memory || objects)
        fail_msg("%s: %d blocks of memory, %d objects of the library are left", where, memory, objects);
}

/* Skips the test where there is no compiler. */
static inline void begin(int hip)
{
    if (gpu_is_real() || !emulated_device(devices[hip])) skip();
    setenv("STANDIN_GPU_CACHE", "20000", 1);
}

#endif
