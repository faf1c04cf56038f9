/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bench/tables.h - runs a workload with given ceilings by a clock that moves with its kernels. */
#ifndef TM_TESTS_BENCH_TABLES_H
#define TM_TESTS_BENCH_TABLES_H

#include "base/clock.h"
#include "apps/bench/bench.h"
#include "device/backend.h"
#include "support/fake_clock.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* What a trial does not say is nothing. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

typedef struct {
    const tm_workload *workload;
    const char        *device, *arguments; /* "M=4 N=5" */
    double             seconds;            /* of budget; 0: a minute */
    struct tm_comm    *world;
    bool               stopped;   /* by the user, before it begins */
    bool               real;      /* by the system's clock, as are ranks, */
    int64_t            region_ns; /* that a kernel takes; 0: 37 us; below: none */
    bool               exact;     /* unless this says otherwise */
    const tm_backend  *backend;   /* of a device of the test's own */
} trial;

typedef struct {
    tm_config *config;
    tm_table  *table;
    tm_status  status;
    tm_error   err;
    tm_error   invalid;
} tried;

static inline bool is_exact(const trial *t)
{
    return t->exact || (!t->real && !t->world);
}

static inline void set_words(tm_config *config, const char *arguments)
{
    char words[512];
    snprintf(words, sizeof words, "%s", arguments);
    for (char *rest = words, *word; (word = strsep(&rest, " "));) {
        char *value = strchr(word, '=');
        if (!value) continue;
        *value++ = '\0';
        for (char *c = value; *c; c++)
            if (*c == '+') *c = ' ';
        tm_config_set(config, word, value, "the test");
    }
}

/* The ceilings are beyond all machines: 1e15 FLOP/s, of bfloat16 twice as many, 1e14 bytes/s. */
static inline tried try_workload(const trial *t)
{
    static const volatile sig_atomic_t stop = 1;
    tried                              out = { 0 };
    tm_error                           err = { 0 };
    out.config = tm_bench_configure(t->workload, "help");
    set_words(out.config, t->arguments);
    assert_int_equal(tm_config_finish(out.config, &err), TM_OK);
    out.table = tm_table_create(t->workload->name);
    tm_bench bench = { .options = out.config, .threads = 1, .table = out.table, .world = t->world };
    double   seconds = t->seconds > 0 ? t->seconds : 60;
    if (is_exact(t)) fake_clock_start(20, t->region_ns == 0 ? 37000 : t->region_ns < 0 ? 0 : t->region_ns);
    bench.seed = (uint64_t)tm_config_i64(out.config, "seed");
    bench.end_ns = tm_now_ns() + (int64_t)(seconds * 1e9);
    bench.stop = t->stopped ? &stop : NULL;
    bench.timing = (tm_timing){ .min_samples = 3, .end_ns = bench.end_ns, .threads = 1, .stop = bench.stop };
    if (tm_config_is_set(out.config, "rep-ms")) bench.timing.rep_ms = tm_config_f64(out.config, "rep-ms");
    if (tm_config_is_set(out.config, "warmup-ms")) bench.timing.warmup_ms = tm_config_f64(out.config, "warmup-ms");
    if (tm_config_is_set(out.config, "duration")) bench.timing.duration_s = tm_config_f64(out.config, "duration");
    if (tm_config_is_set(out.config, "precision"))
        bench.timing.precision = tm_config_f64(out.config, "precision") / 100;
    bench.ceilings = (tm_ceilings){ .flops = 1e15, .flops_bf16 = 2e15, .bytes = 1e14 };
    strcpy(bench.ceilings.flops_how, "dreamt"), strcpy(bench.ceilings.bytes_how, "remembered");
    strcpy(bench.host, "here");
    if (t->backend)
        assert_int_equal(tm_device_open_backend(t->backend, 1, false, &bench.device, &err), TM_OK);
    else
        assert_int_equal(tm_device_open(t->device, 1, &bench.device, &err), TM_OK);
    if (strcmp(t->device, "cpu") == 0) assert_int_equal(tm_device_limit_isa(bench.device, "base", &err), TM_OK);
    out.status = t->workload->run(&bench, &out.err);
    out.invalid = bench.invalid;
    tm_device_close(bench.device);
    fake_clock_stop();
    return out;
}

static inline void tried_fini(tried *t)
{
    tm_table_destroy(t->table);
    tm_config_destroy(t->config);
}

static inline double number_at(const tm_table *table, size_t row, const char *column)
{
    int at = tm_table_find(table, column);
    if (at < 0) return (double)NAN;
    const tm_cell *cell = tm_table_cell(table, row, (size_t)at);
    return cell->kind == TM_CELL_F64 ? cell->f64 : cell->kind == TM_CELL_I64 ? (double)cell->i64 : (double)NAN;
}

/* A rate lies in its interval, and the interval around a median is that wide. */
static inline void check_intervals(const tm_table *table, size_t row)
{
    static const char *const rates[] = { "samples_per_second", "tokens_per_second" };
    for (int i = 0; i < 2; i++) {
        char lo[64], hi[64];
        if (tm_table_find(table, rates[i]) < 0) continue;
        snprintf(lo, sizeof lo, "%s_lo", rates[i]), snprintf(hi, sizeof hi, "%s_hi", rates[i]);
        double rate = number_at(table, row, rates[i]), least = number_at(table, row, lo),
               most = number_at(table, row, hi);
        if (isnan(least) || isnan(most)) continue;
        if (!(least <= rate * (1 + 1e-12) && most >= rate * (1 - 1e-12) && least <= most))
            fail_msg("row %zu: %s %.17g, from %.17g to %.17g", row, rates[i], rate, least, most);
    }
    double low = number_at(table, row, "p5_ms"), high = number_at(table, row, "p95_ms");
    double median = number_at(table, row, "median_ms");
    if (!isnan(low) && !isnan(high)) assert_true(low > 0 && low <= median && median <= high);
}

#endif
