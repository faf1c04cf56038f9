/* SPDX-License-Identifier: Apache-2.0 */
/* Scores and seeds: the worked examples to the last digit, runs that do not count, seeds that repeat. */
#include "support/test.h"

#include "apps/mlperf/score.h"
#include "apps/mlperf/seeds.h"
#include "support/folder.h"
#include "support/mllogs.h"

static char *folder;

static int set_up(void **state)
{
    (void)state;
    folder = test_tree_make();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    test_tree_remove(folder);
    return 0;
}

static void exactly(double value, double wanted, const char *what)
{
    if (!(value >= wanted && value <= wanted)) fail_msg("%s: %.17g is not %.17g", what, value, wanted);
}

static tm_submission *open_it(void)
{
    tm_submission *s;
    tm_error       err = { 0 };
    if (tm_submission_open(folder, TM_RULESET_5_1_0, &s, &err) != TM_OK) fail_msg("%s", err.text);
    return s;
}

static tm_score score_of(const tm_submission *s)
{
    tm_score score;
    tm_error err = { 0 };
    if (tm_score_compute(s, NULL, &score, &err) != TM_OK) fail_msg("%s", err.text);
    return score;
}

typedef struct {
    int64_t samples, run_ms;
} run_row;

static void write_runs(const char *benchmark, int64_t batch, const run_row *rows, int n)
{
    for (int i = 0; i < n; i++) {
        test_mllog log = test_mllog_good(benchmark, batch, rows[i].samples, i);
        log.run_ms = rows[i].run_ms;
        test_mllog_write(&log, folder, i);
    }
}

static const run_row rows_a[] = { { 172032, 5750000 }, { 184320, 6160123 }, { 172032, 5752501 }, { 172032, 5748250 },
                                  { 184320, 6159877 }, { 172032, 5751999 }, { 184320, 6161000 }, { 172032, 5747003 },
                                  { 184320, 6158500 }, { 172032, 5753333 } };
static const run_row rows_b[] = { { 2688, 540100 }, { 3072, 612250 }, { 3072, 611980 }, { 2688, 541000 },
                                  { 3072, 613300 }, { 2688, 539750 }, { 3072, 612001 }, { 3072, 612777 },
                                  { 2688, 540444 }, { 3072, 611500 } };
static const run_row rows_c[] = { { 3072, 612250 }, { 3072, 611980 }, { 2688, 541000 },
                                  { 3456, 684300 }, { 3072, 613300 }, { 3072, 612001 },
                                  { 3456, 685777 }, { 3072, 611500 }, { 2688, 540444 } };

static void write_c(void)
{
    write_runs("llama2_70b_lora", 8, rows_c, 9);
    test_mllog log = test_mllog_good("llama2_70b_lora", 8, 3840, 9);
    log.run_ms = 770000;
    log.status = "aborted";
    log.loss = 0.93;
    test_mllog_write(&log, folder, 9);
}

static void figures(const tm_score *score, double minutes, double factor, double scaled, double samples)
{
    exactly(score->minutes, minutes, "minutes");
    exactly(score->factor, factor, "factor");
    exactly(score->scaled, scaled, "scaled");
    exactly(score->rcp.samples, samples, "samples");
}

TEST(worked_examples)
{
    write_runs("llama31_8b", 32, rows_a, 10); /* 10.2 */
    tm_submission *s = open_it();
    tm_score       score = score_of(s);
    assert_true(score.valid && score.closed && !score.problem && score.rcp.batch == 32);
    figures(&score, 98.40538125, 1.0125603864734298, 99.64139086956521, 176640);
    assert_string_equal(score.rcp_word, "Pass");
    assert_string_equal(s->benchmark, "llama31_8b");
    exactly(score.runs[0].start_ms, 1700000060000, "start");
    exactly(score.runs[9].stop_ms, 1700000060000 + 9 * 10000000.0 + 5753333, "stop");
    tm_submission_close(s);
    write_runs("llama2_70b_lora", 8, rows_b, 10); /* 10.3: fails; the minutes are reported all the same, unscaled */
    s = open_it();
    score = score_of(s);
    assert_true(!score.valid && !score.problem && score.bad == 0);
    figures(&score, 9.754275, 1, 9.754275, 2928);
    assert_string_equal(score.rcp_word, "Fail");
    tm_submission_close(s);
    write_c(); /* 10.4: one run did not converge */
    s = open_it();
    score = score_of(s);
    assert_true(score.valid && score.bad == 1);
    assert_string_equal(score.runs[9].problem, "does not comply");
    exactly(score.runs[9].minutes, 770000.0 / 60 / 1000, "minutes of the run that does not count");
    figures(&score, 10.358558333333331, 1.0188034188034187, 10.55333464387464, 3120);
    tm_submission_close(s);
}

/* What the convergence test says is one word of the summary; runs that do not count are none of the times. */
TEST(words_and_runs_that_do_not_count)
{
    static const struct {
        int64_t     batch, samples;
        int         runs, aborted[2]; /* -1: none */
        size_t      bad;
        const char *word, *problem; /* NULL: none */
    } rows[] = { { 32, 184320, 10, { -1, -1 }, 0, "Pass", NULL },
                 { 32, 184320, 10, { 0, -1 }, 1, "Pass", NULL },
                 { 32, 184320, 10, { 0, 5 }, 2, "Unknown state", "too many runs" },
                 { 32, 184320, 3, { -1, -1 }, 0, "Pass", NULL },
                 { 32, 184320, 2, { -1, -1 }, 0, "Unknown state", "too few runs" },
                 { 32, 12288, 10, { -1, -1 }, 0, "Fail", NULL },
                 { 40, 12288, 10, { -1, -1 }, 0, "Interp. Fail", NULL },
                 { 8, 12288, 10, { -1, -1 }, 0, "Missing", NULL },
                 { 256, 184320, 10, { -1, -1 }, 0, "Missing", NULL } };
    const tm_reference nothing = { .kind = tm_reference_kind_find("llama31_8b") };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *all = folder, *own = test_tree_make();
        folder = own;
        for (int k = 0; k < rows[i].runs; k++) {
            test_mllog log = test_mllog_good("llama31_8b", rows[i].batch, rows[i].samples, k);
            log.run_ms = 60000 * (k + 1);
            if (k == rows[i].aborted[0] || k == rows[i].aborted[1]) log.status = "aborted", log.loss = 9;
            test_mllog_write(&log, folder, k);
        }
        tm_submission *s = open_it();
        tm_score       score = score_of(s);
        tm_error       err = { 0 };
        assert_true(score.closed && score.bad == rows[i].bad && score.wanted == 10);
        assert_string_equal(score.rcp_word, rows[i].word);
        assert_true(rows[i].problem ? score.problem && strstr(score.problem, rows[i].problem) : !score.problem);
        assert_int_equal(score.valid, rows[i].runs == 10 && !rows[i].problem && strcmp(rows[i].word, "Pass") == 0);
        if (rows[i].batch == 32 && !rows[i].problem) /* without the fastest, and the slowest or the one that failed */
            exactly(score.minutes, rows[i].runs == 3 ? 2 : rows[i].bad ? 6.5 : 5.5, "minutes");
        s->division = "open"; /* no convergence test, no factor; without a benchmark any number of runs will do */
        s->benchmark = NULL;
        score = score_of(s);
        assert_true(!score.closed && score.wanted == 0 && score.valid == !rows[i].problem);
        assert_string_equal(score.rcp_word, "");
        exactly(score.factor, 1, "factor");
        exactly(score.scaled, score.minutes, "scaled");
        s->division = "closed";
        s->benchmark = "llama31_8b";
        assert_int_equal(tm_score_compute(s, &nothing, &score, &err), TM_OK);
        if (!rows[i].problem) assert_string_equal(score.rcp_word, "No RCP");
        tm_submission_close(s);
        test_tree_remove(own);
        folder = all;
    }
}

/* --- seeds -------------------------------------------------------------------------------------------------------- */

static void write_seeds(const char *const *extra, int n)
{
    for (int i = 0; i < n; i++) {
        test_mllog log = test_mllog_good("llama31_8b", 32, 184320, i);
        log.seed = -1;
        log.extra = extra[i];
        test_mllog_write(&log, folder, i);
    }
}

#define SEED(value)                                                                                                    \
    ":::MLLOG {\"time_ms\": 1, \"key\": \"seed\", \"value\": " value                                                   \
    ", \"metadata\": {\"file\": \"a.py\", \"lineno\": 7}}\n"
#define SEED_AT(value, metadata)                                                                                       \
    ":::MLLOG {\"time_ms\": 1, \"key\": \"seed\", \"value\": " value ", \"metadata\": " metadata "}\n"

TEST(seeds)
{
    const struct {
        const char *extra[3];
        const char *error; /* part of the first one; NULL: passes */
        size_t      errors, warnings, n;
    } rows[] = {
        { { SEED("1"), SEED("2"), SEED("3") }, NULL, 0, 0, 3 },
        { { SEED("1"), SEED("\"2\""), SEED("3.7") }, NULL, 0, 0, 3 },
        { { SEED("1"), SEED("2"), NULL }, "Result file result_2.txt logs no seed.", 1, 0, 2 },
        { { SEED("5"), SEED("2"), SEED("\" 5 \"") },
          "Result file result_2.txt logs seed 5 on \"a.py\":7. However, result file result_0.txt already logs the same "
          "seed",
          1,
          0,
          2 },
        { { SEED("5"), SEED("2"), SEED("5.7") }, "logs seed 5 on", 1, 0, 2 },
        { { SEED("5"), SEED("2"), SEED_AT("5", "{\"file\": \"a.py\", \"lineno\": 8}") }, NULL, 0, 0, 3 },
        { { SEED("5"), SEED("2"), SEED_AT("5", "{\"file\": \"b.py\", \"lineno\": 7}") }, NULL, 0, 0, 3 },
        { { SEED("5"), SEED("2"), SEED_AT("5", "{\"file\": \"a.py\", \"lineno\": 7.0}") }, "logs seed 5", 1, 0, 2 },
        { { SEED("1"), SEED("2"), SEED("3") SEED("4") }, NULL, 0, 1, 4 },
        { { SEED("1"), SEED("2"), SEED("3") SEED("3") }, "result file result_2.txt already logs", 1, 1, 3 },
        { { SEED("1"), SEED("2"), SEED("\"5.5\"") }, "seed \"5.5\" is not an integer", 1, 0, 2 },
        { { SEED("1"), SEED("2"), SEED("null") }, "seed null is not an integer", 1, 0, 2 },
        { { SEED("1"), SEED("2"), SEED("NaN") }, "is not an integer", 1, 0, 2 },
        { { SEED("1"), SEED("2"), SEED_AT("3", "{\"file\": \"a.py\"}") }, "lacks 'file' or 'lineno'", 1, 0, 2 },
        { { SEED("1"), SEED("2"), SEED("3") ":::MLLOG {broken\n" }, "result_2.txt cannot be parsed", 1, 0, 3 },
        { { SEED("98765432109876543210987654321"), SEED("98765432109876543210987654320"), SEED("3") }, NULL, 0, 0, 3 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_seeds(rows[i].extra, 3);
        tm_submission  *s = open_it();
        tm_seeds_report r = tm_seeds_check(s);
        if (r.passed != !rows[i].error || r.errors.n != rows[i].errors || r.warnings.n != rows[i].warnings ||
            r.n != rows[i].n)
            fail_msg("row %zu: %zu errors, %zu warnings, %zu seeds; first error: %s", i, r.errors.n, r.warnings.n, r.n,
                     r.errors.n ? r.errors.items[0] : "none");
        if (rows[i].error && !strstr(r.errors.items[0], rows[i].error)) fail_msg("row %zu: %s", i, r.errors.items[0]);
        tm_submission_close(s);
    }
}

TEST_FIXTURE(set_up, tear_down)
