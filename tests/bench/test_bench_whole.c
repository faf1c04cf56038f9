/* SPDX-License-Identifier: Apache-2.0 */
/* What every workload gets, and what is made of its table, by a workload of the test and a clock that it moves
 * (tests/golden/whole-bench-run.txt); what decides between two measurements of a ceiling. */
#include "bench/bench.h"

#include "base/clock.h"
#include "support/fake_clock.h"
#include "support/folder.h"
#include "support/whole.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "support/test.h"

enum { READ_NS = 1000 };

static tm_text *told;

static void add_row(tm_table *table, const char *skipped)
{
    tm_table_row(table);
    if (skipped) tm_table_text(table, "skipped", skipped);
}

static void tell_bench(const tm_bench *b)
{
    const tm_timing *t = &b->timing;
    char             host[72] = "";
    gethostname(host, sizeof host - 1);
    assert_string_equal(b->host, host);
    assert_true(t->end_ns == b->end_ns && t->stop == b->stop && t->threads == b->threads);
    assert_true(b->ceilings.flops == 0 && b->invalid.status == TM_OK);
    int64_t left = b->end_ns - (int64_t)FAKE_BEGIN_S * 1000000000;
    tm_text_printf(told, "  %s, %d threads, seed %llu, budget %.3f s; %g %g %g %g %lld %d %d\n",
                   tm_device_describe(b->device)->name, b->threads, (unsigned long long)b->seed,
                   floor((double)left * 1e-6) * 1e-3, t->warmup_ms, t->rep_ms, t->precision, t->duration_s,
                   (long long)t->min_samples, t->cold, t->settle);
    double before = tm_bench_left(b);
    fake_clock_pass(1500000000 - READ_NS);
    double after = tm_bench_left(b);
    tm_text_printf(told, "  1.5 s later %.9g s less, %s are left\n", before - after, after > 0 ? "some" : "none");
}

static tm_status run(tm_bench *b, tm_error *err)
{
    const char *what = tm_config_text(b->options, "what");
    char        words[600];
    if (strcmp(what, "none") != 0) tm_table_column(b->table, "skipped", 0);
    if (strcmp(what, "tell") == 0) tell_bench(b);
    for (const char *at = what; *at; at++) {
        if (*at == '0') add_row(b->table, NULL);
        if (*at == '1') add_row(b->table, "the first reason");
        if (*at == '2') add_row(b->table, "another reason");
        if (*at == '!') tm_bench_invalid(b, "number %d is wrong", (int)(at - what));
        if (*at == 'F') return tm_fail(err, TM_IO, "it failed");
        if (*at != 'L') continue;
        memset(words, 'x', sizeof words - 1), words[sizeof words - 1] = '\0';
        tm_bench_note(b, "%s", words);
        tm_bench_invalid(b, "%s", words);
    }
    return TM_OK;
}

static const tm_key      keys[] = { { .name = "what", .kind = TM_KEY_TEXT, .fallback = "tell", .help = "what" } };
static const tm_workload workload = { "fake", "a workload of the test", keys, 1, false, false, NULL, run };
static const volatile sig_atomic_t stop = 1;

/* Of "a=b c=d": the options. */
static void run_case(const char *options, bool stopped)
{
    tm_error   err = { 0 };
    tm_config *config = tm_bench_configure(&workload, "help");
    char       words[256];
    snprintf(words, sizeof words, "%s", options);
    for (char *rest = words, *word; (word = strsep(&rest, " "));) {
        char *value = strchr(word, '=');
        if (value) *value++ = '\0', tm_config_set(config, word, value, "the test");
    }
    assert_int_equal(tm_config_finish(config, &err), TM_OK);
    tm_table *table = tm_table_create("fake");
    tm_text_printf(told, "== %s%s\n", options, stopped ? ", stopped" : "");
    fake_clock_start(READ_NS, 0);
    tm_status st = tm_bench_run(&workload, config, NULL, stopped ? &stop : NULL, table, &err);
    fake_clock_stop();
    for (size_t i = 0; i < tm_table_n_notes(table); i++) {
        const char *note = tm_table_note_at(table, i);
        if (strncmp(note, "size of the last-level", 22) == 0) continue;
        /* How far the clocks are apart, when one of them is made up, is the machine's. */
        size_t own = strstr(note, "machine was disturbed") ? 35 : strlen(note);
        tm_text_printf(told, "  note: %.*s\n", (int)own, note);
    }
    bool  disturbed = strstr(err.text, "machine was disturbed") != NULL;
    char *sets = strstr(err.text, "this machine runs: base");
    if (sets) strcpy(sets, "this machine runs: base..."); /* and what else it has */
    tm_text_printf(told, "  %zu rows -> %s: %.*s\n", tm_table_n_rows(table), tm_status_text(st), disturbed ? 26 : 600,
                   err.text);
    tm_table_destroy(table);
    tm_config_destroy(config);
}

static void every_outcome(void **state)
{
    (void)state;
    static const char *const cases[] = {
        "threads=1",
        "threads=1 budget=2 seed=7 warmup-ms=3 rep-ms=4 precision=5 duration=6",
        "threads=1 device=reference isa=base",
        "threads=2 device=null isa=base",
        "threads=1 isa=base budget=1.25",
        "threads=1 isa=none-such",
        "threads=1 what=none",
        "threads=1 what=rows",
        "threads=1 what=0",
        "threads=1 what=1",
        "threads=1 what=12",
        "threads=1 what=10",
        "threads=1 what=01",
        "threads=1 what=1!2",
        "threads=1 what=0!!",
        "threads=1 what=1!F",
        "threads=1 what=F1",
        "threads=1 what=0L",
    };
    tm_text out = { 0 };
    told = &out;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) run_case(cases[i], false);
    run_case("threads=1", true);
    size_t n;
    (void)tm_workloads(&n);
    assert_null(tm_workload_find("fake"));
    assert_string_equal(tm_workload_find("STREAM")->name, "stream");
    assert_int_equal(n, 8);
    whole_is("tests/golden/whole-bench-run.txt", &out);
}

/* --- models ------------------------------------------------------------------------------------------------------- */

#define MODEL                                                                                                          \
    "family: gpt, name: tiny, n_layers: 4, n_heads: 2, ffn_dim: 32, vocab_size: 24, max_seq_len: 64, tied: true, "     \
    "init: gpt2, "

static void a_model_has_a_name_or_a_file(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text; /* of the file; NULL: none is written */
        int64_t     dim, seq;
    } cases[] = {
        { "a.yaml", "model: { " MODEL "dim: 48 }\ntraining: { seq_len: 24 }\n", 48, 24 },
        { "b.yml", "model: { " MODEL "dim: 64 }\ntraining: { seq_len: 40 }\n", 64, 40 },
        { "c.yaml", NULL, 0, 0 },
        { "d.json", "{}", 0, 0 },
        { "tiny-llama", NULL, 0, 0 },
    };
    char old[4096];
    assert_non_null(getcwd(old, sizeof old));
    assert_int_equal(chdir(test_folder()), 0);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_model_shape shape;
        int64_t        seq = 0;
        tm_error       err = { 0 };
        if (cases[i].text) {
            FILE *f = fopen(cases[i].name, "w");
            fputs(cases[i].text, f);
            fclose(f);
        }
        tm_status st = tm_bench_model(cases[i].name, &shape, &seq, &err);
        if (cases[i].dim > 0) {
            if (st != TM_OK) fail_msg("%s: %s", cases[i].name, err.text);
            assert_int_equal(shape.dim, cases[i].dim);
            assert_int_equal(seq, cases[i].seq);
        } else if (i == 2) {
            assert_true(st != TM_OK && strstr(err.text, "c.yaml"));
        } else if (i == 3) {
            assert_int_equal(st, TM_INVALID);
            assert_non_null(strstr(err.text, "unknown model 'd.json'"));
        } else {
            assert_int_equal(st, TM_OK);
            assert_true(shape.dim > 0 && seq > 0);
        }
    }
    assert_int_equal(chdir(old), 0);
}

/* --- ceilings ----------------------------------------------------------------------------------------------------- */

/* By a clock that makes every reading take 30 ms, all measurements of a ceiling give the same: R FLOP/s by one thread.
 */
static void the_better_ceiling_counts(void **state)
{
    (void)state;
    tm_error           err = { 0 };
    tm_ceilings        one, all;
    tm_table          *table = tm_table_create("x");
    tm_bench           b = { .table = table, .threads = 3 };
    const tm_ceilings *known;
    assert_int_equal(tm_device_open("cpu", 1, &b.device, &err), TM_OK);
    fake_clock_start(30000000, 0);
    tm_device_arithmetic(b.device, 1, 0.2, &one);
    /* measured once */
    assert_int_equal(tm_bench_ceilings(&b, &known, &err), TM_OK);
    assert_ptr_equal(known, &b.ceilings);
    all = b.ceilings;
    assert_true(one.flops > 0 && one.flops_bf16 >= one.flops && all.flops == one.flops && all.bytes > 0);
    b.ceilings.flops = 1;
    assert_int_equal(tm_bench_ceilings(&b, &known, &err), TM_OK);
    assert_true(known->flops == 1);
    /* within: nothing is measured again */
    b.ceilings = (tm_ceilings){ .flops = 100, .bytes = 100, .flops_spread = 0.01 };
    assert_int_equal(tm_bench_guard(&b, "slow", TM_F32, 90, 90, &err), TM_OK);
    assert_true(b.ceilings.flops == 100 && b.ceilings.bytes == 100 && b.ceilings.flops_bf16 == 0);
    /* one thread's rate times the threads is the better one; a ceiling of bfloat16 that is not known stays so */
    assert_int_equal(tm_bench_guard(&b, "fast", TM_F32, one.flops, 0, &err), TM_OK);
    assert_true(b.ceilings.flops == 3 * one.flops && b.ceilings.flops_spread == one.flops_spread);
    assert_true(b.ceilings.flops_bf16 == 0 && b.ceilings.bytes == all.bytes);
    assert_int_equal(b.invalid.status, TM_OK);
    /* what is better than both stays, with its own spread */
    b.ceilings = (tm_ceilings){
        .flops = 9 * one.flops, .flops_bf16 = 1, .bytes = 2 * all.bytes, .flops_spread = 0.25, .bytes_spread = 0.5
    };
    assert_int_equal(tm_bench_guard(&b, "bf16", TM_BF16, one.flops, 0, &err), TM_OK);
    assert_true(b.ceilings.flops == 9 * one.flops && b.ceilings.flops_spread == 0.25);
    assert_true(b.ceilings.flops_bf16 == 3 * one.flops_bf16 && b.ceilings.bytes == 2 * all.bytes);
    assert_true(b.ceilings.bytes_spread == 0.5);
    assert_int_equal(b.invalid.status, TM_OK);
    assert_int_equal(tm_table_n_notes(table), 0);
    /* too fast also for them */
    assert_int_equal(tm_bench_guard(&b, "a product", TM_F32, 100 * one.flops, 0, &err), TM_OK);
    assert_int_equal(b.invalid.status, TM_NUMBERS);
    assert_int_equal(tm_bench_guard(&b, "a copy", TM_F32, 1, 100 * all.bytes, &err), TM_OK);
    assert_int_equal(tm_table_n_notes(table), 2);
    assert_non_null(strstr(tm_table_note_at(table, 0), "invalid: a product"));
    assert_non_null(strstr(tm_table_note_at(table, 1), "invalid: a copy"));
    assert_non_null(strstr(b.invalid.text, "a product"));
    fake_clock_stop();
    tm_device_close(b.device);
    tm_table_destroy(table);
}

static const char *highest = ""; /* frequency of the processor, kHz; NULL: nobody knows, "": that of this machine */

FILE *fopen(const char *path, const char *mode)
{
    static char text[32];
    FILE *(*real)(const char *, const char *) = NULL;
    *(void **)&real = dlsym(RTLD_NEXT, "fopen");
    if (!strstr(path, "/cpuinfo_max_freq") || (highest && !*highest)) return real(path, mode);
    if (!highest) return NULL;
    snprintf(text, sizeof text, "%s\n", highest);
    return fmemopen(text, strlen(text), "r");
}

static void ceilings_are_noted(void **state)
{
    (void)state;
    tm_error err = { 0 };
    char     how[160], sheet[256];
    for (int i = 0; i < 6; i++) {
        static const char *const frequencies[] = { "", NULL, "3500000" };
        int                      bf16 = i % 2;
        highest = frequencies[i / 2];
        tm_bench b = { .table = tm_table_create("x"),
                       .ceilings = { .flops = 2.5e11, .flops_bf16 = bf16 ? 5e11 : 2.5e11, .bytes = 4e10 } };
        strcpy(b.ceilings.flops_how, "one way"), strcpy(b.ceilings.bytes_how, "another way");
        assert_int_equal(tm_device_open("cpu", 1, &b.device, &err), TM_OK);
        double flops = tm_device_datasheet_flops(b.device, how);
        if (flops > 0)
            snprintf(sheet, sizeof sheet, "peak by the data sheet: %.4g GFLOP/s (%s)", flops * 1e-9, how);
        else
            snprintf(sheet, sizeof sheet, "peak by the data sheet: unknown (%s)", how);
        if (!highest) assert_true(flops <= 0);
        assert_int_equal(tm_bench_note_ceilings(&b, &err), TM_OK);
        highest = "";
        const char *const wanted[] = { "peak: 250 GFLOP/s float32 measured (one way)", sheet,
                                       "peak of bfloat16 products: 500 GFLOP/s measured",
                                       "memory: 40 GB/s measured (another way)" };
        assert_int_equal(tm_table_n_notes(b.table), 3 + bf16);
        for (int k = 0; k < 3 + bf16; k++)
            assert_string_equal(tm_table_note_at(b.table, (size_t)k), wanted[k + (k >= 2 && !bf16)]);
        tm_device_close(b.device);
        tm_table_destroy(b.table);
    }
}

/* --- random inputs ------------------------------------------------------------------------------------------------ */

/* Parts are parts of the whole, with any number of threads, across the blocks that threads fill; streams and seeds
 * differ. */
static void parts_of_random_inputs(void **state)
{
    (void)state;
    enum { N = 8200 };
    static float whole[N + 1], part[N + 1];
    tm_bench     b = { .seed = 5, .threads = 1 };
    whole[N] = part[N] = 77;
    tm_bench_normal(&b, "one", whole, TM_F32, N);
    assert_true(whole[N] == 77);
    double sum = 0, squares = 0;
    for (int i = 0; i < N; i++) sum += (double)whole[i], squares += (double)whole[i] * (double)whole[i];
    assert_true(fabs(sum / N) < 0.06 && fabs(squares / N - 1) < 0.08);
    for (int i = 4; i < N; i++) assert_true(memcmp(&whole[i - 4], &whole[i], 4) != 0);
    b.threads = 3;
    static const int64_t from[] = { 0, 4, 4092, 4096, 8196 };
    for (int k = 0; k < 5; k++) {
        int64_t n = N - from[k];
        part[n] = 77;
        tm_bench_normal_part(&b, "one", from[k], part, TM_F32, n);
        assert_memory_equal(part, whole + from[k], (size_t)n * 4);
        assert_true(part[n] == 77);
    }
    tm_bench_normal_part(&b, "one", 4, part, TM_F32, 0);
    assert_memory_equal(part, whole + 8196, 4);
    tm_bench_normal(&b, "two", part, TM_F32, 8);
    assert_memory_not_equal(part, whole, 32);
    b.seed = 6;
    tm_bench_normal(&b, "one", part, TM_F32, 8);
    assert_memory_not_equal(part, whole, 32);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_outcome),
    cmocka_unit_test(a_model_has_a_name_or_a_file),
    cmocka_unit_test(the_better_ceiling_counts),
    cmocka_unit_test(ceilings_are_noted),
    cmocka_unit_test(parts_of_random_inputs),
};

TM_TESTS_ALONE(tests, NULL, test_folder_teardown)
