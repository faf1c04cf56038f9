/* SPDX-License-Identifier: Apache-2.0 */
/* What every workload gets, and what is made of its table, by a workload of the test and a clock that it moves;
 * what decides between two measurements of a ceiling. */
#include "apps/bench/bench.h"

#include "support/fake_clock.h"
#include "support/folder.h"

#include "support/test.h"

enum { READ_NS = 1000 };

/* What the workload is asked to find in its bench. */
static struct {
    const char *device;
    int         threads;
    uint64_t    seed;
    double      budget, warmup_ms, rep_ms, precision, duration, later; /* later: seconds that are less after 1.5 s */
    bool        found;
} wanted_bench;

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
    assert_string_equal(tm_device_describe(b->device)->name, wanted_bench.device);
    assert_int_equal(b->threads, wanted_bench.threads);
    assert_int_equal(b->seed, wanted_bench.seed);
    assert_true(t->min_samples == 3 && !t->cold && !t->settle);
    const double is[] = { t->warmup_ms, t->rep_ms, t->precision, t->duration_s };
    const double options[] = { wanted_bench.warmup_ms, wanted_bench.rep_ms, wanted_bench.precision,
                               wanted_bench.duration };
    for (int i = 0; i < 4; i++) assert_true(fabs(is[i] - options[i]) < 1e-12);
    /* The budget runs from the begin, which takes some readings of the clock. */
    double left = (double)(b->end_ns - (int64_t)FAKE_BEGIN_S * 1000000000) * 1e-9;
    assert_true(left >= wanted_bench.budget && left < wanted_bench.budget + 0.001);
    double before = tm_bench_left(b);
    fake_clock_pass(1500000000 - READ_NS);
    double after = tm_bench_left(b);
    assert_true(fabs(before - after - wanted_bench.later) < 1e-4 && after >= 0 && before <= wanted_bench.budget);
    wanted_bench.found = true;
}

static tm_status run(tm_bench *b, tm_error *err)
{
    const char *what = tm_config_text(b->options, "what");
    if (strcmp(what, "none") != 0) tm_table_column(b->table, "skipped", 0);
    if (strcmp(what, "tell") == 0) tell_bench(b);
    for (const char *at = what; *at; at++) {
        if (*at == '0') add_row(b->table, NULL);
        if (*at == '1') add_row(b->table, "the first reason");
        if (*at == '2') add_row(b->table, "another reason");
        if (*at == '!') tm_bench_invalid(b, "number %d is wrong", (int)(at - what));
        if (*at == 'F') return tm_fail(err, TM_IO, "it failed");
    }
    return TM_OK;
}

static const tm_key      keys[] = { { .name = "what", .kind = TM_KEY_TEXT, .fallback = "tell", .help = "what" } };
static const tm_workload workload = { "fake", "a workload of the test", keys, 1, false, false, NULL, run };
static const volatile sig_atomic_t stop = 1;

/* Of "a=b c=d": the options. `words`: what the error begins with; `notes`: separated by "|", the notes but those on
 * caches and on the machine. */
static void outcome_is(const char *options, bool stopped, tm_status status, size_t rows, const char *words,
                       const char *notes)
{
    tm_error   err = { 0 };
    tm_config *config = tm_bench_configure(&workload, "help");
    char       copy[256];
    tm_text    all = { 0 };
    bool       judged = false;
    snprintf(copy, sizeof copy, "%s", options);
    for (char *rest = copy, *word; (word = strsep(&rest, " "));) {
        char *value = strchr(word, '=');
        if (value) *value++ = '\0', tm_config_set(config, word, value, "the test");
    }
    assert_int_equal(tm_config_finish(config, &err), TM_OK);
    tm_table *table = tm_table_create("fake");
    tm_text_add(&all, "");
    fake_clock_start(READ_NS, 0);
    tm_status st = tm_bench_run(&workload, config, NULL, stopped ? &stop : NULL, table, &err);
    fake_clock_stop();
    for (size_t i = 0; i < tm_table_n_notes(table); i++) {
        const char *note = tm_table_note_at(table, i);
        bool        machine = strncmp(note, "machine: not-judged (", 21) == 0;
        judged = judged || machine || strstr(note, "the machine was disturbed: ");
        if (machine) assert_non_null(strstr(note, " s are too short to judge the machine by (1 s is needed)"));
        if (machine || strncmp(note, "size of the last-level", 22) == 0 || strstr(note, "machine was disturbed"))
            continue;
        tm_text_printf(&all, "%s%s", all.length ? "|" : "", note);
    }
    if (st != status || strncmp(err.text, words, strlen(words)) != 0 || (!*words && *err.text) ||
        tm_table_n_rows(table) != rows)
        fail_msg("%s: %zu rows, %s: %s", options, tm_table_n_rows(table), tm_status_text(st), err.text);
    if (strcmp(all.data, notes) != 0) fail_msg("%s: notes '%s', wanted '%s'", options, all.data, notes);
    assert_int_equal(judged, status != TM_UNSUPPORTED);
    tm_text_fini(&all);
    tm_table_destroy(table);
    tm_config_destroy(config);
}

TEST(every_outcome)
{
    static const char only_cpu[] = "--isa base is for device cpu, found device ",
                      none[] = "nothing was measured: the first reason";
    static const char disturbed[] = "the machine was disturbed: "; /* one of its clocks is made up */
    char              text[600];
    size_t            n;
    wanted_bench.device = "cpu", wanted_bench.threads = 1, wanted_bench.seed = 1, wanted_bench.budget = 60,
    wanted_bench.later = 1.5;
    wanted_bench.warmup_ms = 25, wanted_bench.rep_ms = 100, wanted_bench.precision = 0.01, wanted_bench.duration = 0;
    outcome_is("threads=1", false, TM_NUMBERS, 0, disturbed, "");
    wanted_bench.seed = 7, wanted_bench.budget = 2, wanted_bench.later = 1.5, wanted_bench.warmup_ms = 3,
    wanted_bench.rep_ms = 4;
    wanted_bench.precision = 0.05, wanted_bench.duration = 6, wanted_bench.found = false;
    outcome_is("threads=1 budget=2 seed=7 warmup-ms=3 rep-ms=4 precision=5 duration=6", false, TM_NUMBERS, 0, disturbed,
               "");
    assert_true(wanted_bench.found);
    snprintf(text, sizeof text, "%sreference; leave it out", only_cpu);
    outcome_is("threads=1 device=reference isa=base", false, TM_UNSUPPORTED, 0, text, "");
    outcome_is("threads=1 isa=none-such", false, TM_UNSUPPORTED, 0,
               "no 'none-such' kernels (--isa); this machine runs: base", "");
    /* One row that is measured is enough; if none is, the first says why. What is wrong, or fails, comes before that.
     */
    outcome_is("threads=1 what=none", false, TM_OK, 0, "", "");
    outcome_is("threads=1 what=0", false, TM_OK, 1, "", "");
    outcome_is("threads=1 what=12", false, TM_NUMBERS, 2, none, "invalid: nothing was measured: the first reason");
    outcome_is("threads=1 what=10", false, TM_OK, 2, "", "");
    outcome_is("threads=1 what=1!2", false, TM_NUMBERS, 2, "number 1 is wrong",
               "invalid: number 1 is wrong|invalid: nothing was measured: the first reason");
    outcome_is("threads=1 what=0!!", false, TM_NUMBERS, 1, "number 1 is wrong",
               "invalid: number 1 is wrong|invalid: number 2 is wrong");
    outcome_is("threads=1 what=1!F", false, TM_IO, 1, "it failed", "invalid: number 1 is wrong");
    (void)tm_workloads(&n);
    assert_null(tm_workload_find("fake"));
    assert_string_equal(tm_workload_find("STREAM")->name, "stream");
    assert_int_equal(n, 8);
}

/* --- ceilings ----------------------------------------------------------------------------------------------------- */

/* By a clock that makes every reading take 30 ms, all measurements of a ceiling give the same: R FLOP/s by one thread.
 */
TEST(the_better_ceiling_counts)
{
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

/* --- budgets --------------------------------------------------------------------------------------------------------
 */

TEST(shares_of_a_budget)
{
    const double least[] = { 10, 80, 90 };
    assert_true(fabs(tm_bench_share(600, least, 3) - 150) < 1e-9); /* 10 + 420 / 3 */
    assert_true(fabs(tm_bench_share(180, least, 3) - 10) < 1e-9);  /* nothing is left over */
    assert_true(fabs(tm_bench_share(50, least, 3) - 10) < 1e-9);   /* the first come first */
    assert_true(fabs(tm_bench_share(7, least, 3) - 7) < 1e-9);
    assert_true(fabs(tm_bench_share(100, &least[2], 1) - 100) < 1e-9); /* the last has it all */
    assert_true(tm_bench_share(0, least, 3) == 0);
}

TESTS_ALONE
TEST_FIXTURE(NULL, test_folder_teardown)
