/* SPDX-License-Identifier: Apache-2.0 */
/* tests/bench/tables.h - runs a workload with given ceilings by a clock that moves with its kernels, and tells its
 * whole table. By the real clock what is measured is told as "#", and what follows from it as quotients and products.
 */
#ifndef TM_TESTS_BENCH_TABLES_H
#define TM_TESTS_BENCH_TABLES_H

#include "base/clock.h"
#include "bench/bench.h"
#include "device/backend.h"
#include "support/fake_clock.h"
#include "support/whole.h"

#include <ctype.h>
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

/* "a*b/c+d", from left to right. */
static inline double relation(const tm_table *table, size_t row, const char *expression)
{
    double value = 0;
    char   op = '+', name[64];
    for (const char *at = expression; *at;) {
        size_t n = strcspn(at, "*/+");
        snprintf(name, sizeof name, "%.*s", (int)n, at);
        double x = number_at(table, row, name);
        value = op == '*' ? value * x : op == '/' ? value / x : value + x;
        op = at[n];
        at += n + (op != '\0');
    }
    return value;
}

/* Is `name` a word of the list? */
static inline bool in_list(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *at = list; (at = strstr(at, name)); at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0')) return true;
    return false;
}

static inline void add_masked(tm_text *out, const char *words)
{
    for (const char *at = words; *at; at++) {
        if (!isdigit((unsigned char)*at) || (at > words && isalpha((unsigned char)at[-1]))) {
            tm_text_printf(out, "%c", *at);
            continue;
        }
        at += strspn(at, "0123456789.") - 1;
        if (at[1] == 'e') at += 1 + strspn(at + 2, "+-0123456789");
        tm_text_add(out, "#");
    }
}

/* Of "needs 4 PiB, 22 GiB are available" the second part is the machine's. */
static inline void add_words(tm_text *out, const char *column, const char *words, bool exact)
{
    bool   memory = strstr(words, "available") || strstr(words, "may be used");
    size_t own = strlen(words);
    /* What disturbed the machine, by two clocks that have nothing to do with each other. */
    if (strcmp(column, "reason") == 0 && (!exact || strstr(words, "clock"))) own = 0;
    if (strcmp(column, "skipped") == 0 && (!exact || memory)) own = strcspn(words, ",");
    tm_text_printf(out, "'%.*s", (int)own, words);
    add_masked(out, words + own);
    tm_text_add(out, "'");
}

static inline void add_cell(tm_text *out, const tm_column *column, const tm_cell *cell, bool masked, bool exact)
{
    static const char *const from_enough_samples = "half_width_pct fwd_half_width_pct bwd_half_width_pct cv "
                                                   "samples_per_second_lo samples_per_second_hi tokens_per_second_lo "
                                                   "tokens_per_second_hi";
    if (cell->kind == TM_CELL_EMPTY || (!exact && in_list(from_enough_samples, column->name))) return;
    tm_text_printf(out, " %s=", column->name);
    if (masked)
        tm_text_add(out, "#");
    else if (cell->kind == TM_CELL_TEXT)
        add_words(out, column->name, cell->text, exact);
    else if (cell->kind == TM_CELL_I64)
        tm_text_printf(out, "%lld", (long long)cell->i64);
    else if (cell->kind == TM_CELL_F64)
        tm_text_printf(out, exact ? "%.8g" : "%.4g", cell->f64);
    else
        tm_text_add(out, cell->truth ? "yes" : "no");
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

/* Rows and notes of the table; `measured`: columns that are not told, `relations`: expressions that are, both
 * separated by blanks; `masked`: beginnings of notes whose numbers are not told, separated by "|". */
static inline void tell(tm_text *out, const trial *what, const char *measured, const char *relations,
                        const char *masked)
{
    tried           t = try_workload(what);
    const tm_table *table = t.table;
    bool            exact = is_exact(what);
    tm_text_printf(out, "== %s, %s: %s%s\n", what->workload->name, what->device, what->arguments,
                   what->stopped ? ", stopped" : "");
    for (size_t row = 0; row < tm_table_n_rows(table); row++) {
        for (size_t i = 0; i < tm_table_n_columns(table); i++) {
            const tm_column *column = tm_table_column_at(table, i);
            add_cell(out, column, tm_table_cell(table, row, i), in_list(measured, column->name), exact);
        }
        char list[512];
        snprintf(list, sizeof list, "%s", relations);
        for (char *rest = list, *word; (word = strsep(&rest, " "));) {
            double value = *word ? relation(table, row, word) : (double)NAN;
            if (!isnan(value)) tm_text_printf(out, " (%s: %.6g)", word, value);
        }
        tm_text_add(out, "\n");
        check_intervals(table, row);
        /* A sample of ranks lasts, also where ranks waited for a processor before. */
        if (what->world && !exact && !isnan(number_at(table, row, "median_ms")))
            assert_true(number_at(table, row, "median_ms") * number_at(table, row, "loops") > 0.09);
    }
    for (size_t i = 0; i < tm_table_n_notes(table); i++) {
        const char *note = tm_table_note_at(table, i);
        bool        hide = false;
        for (const char *at = masked; *at;) {
            size_t n = strcspn(at, "|");
            hide = hide || strncmp(note, at, n) == 0;
            at += n + (at[n] == '|');
        }
        tm_text_add(out, "note: ");
        if (strncmp(note, "peak by the data sheet", 22) == 0)
            tm_text_add(out, "peak by the data sheet"); /* the machine's */
        else if (strncmp(note, "link: ", 6) == 0)
            tm_text_printf(out, "link: #%s", note + 6 + strspn(note + 6, "0123456789")); /* how many were fast enough */
        else if (hide)
            add_masked(out, note);
        else
            tm_text_add(out, note);
        tm_text_add(out, "\n");
    }
    for (char *at = t.err.text; (at = strstr(at, "trainmark-startup-")); at += 18) { /* a folder of that run */
        char *begin = at;
        while (begin > t.err.text && begin[-1] != ' ') begin--;
        memmove(begin, at, strlen(at) + 1);
        at = begin;
        memset(at + 18, '#', strcspn(at + 18, "/"));
    }
    tm_text_printf(out, "-> %s%s%s\n", tm_status_text(t.status), *t.err.text ? ": " : "", t.err.text);
    tried_fini(&t);
}

/* All columns with the digits that people see. */
static inline void tell_columns(tm_text *out, const tm_table *table)
{
    for (size_t i = 0; i < tm_table_n_columns(table); i++) {
        const tm_column *column = tm_table_column_at(table, i);
        tm_text_printf(out, "%s%s:%d", i ? " " : "columns: ", column->name, column->digits);
    }
    tm_text_add(out, "\n");
}

#endif
