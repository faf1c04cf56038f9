/* SPDX-License-Identifier: Apache-2.0 */
/* The convergence test: the verdicts of the public checker, what is read from a log, and the messages. */
#include "support/test.h"

#include "apps/mlperf/rcp.h"
#include "support/mllogs.h"

static tm_arena *arena;

static int set_up(void **state)
{
    (void)state;
    arena = tm_arena_create();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    tm_arena_destroy(arena);
    return 0;
}

static void exactly(double value, double wanted, const char *what)
{
    if (!(value >= wanted && value <= wanted)) fail_msg("%s: %.17g is not %.17g", what, value, wanted);
}

/* Runs of one result: `counts` pairs of samples and how many runs have them; a count below 0 is a run that was aborted,
 * 0 one without run_stop. The logs are not freed before the test's end: texts point into them. */
typedef struct {
    tm_mllog  *logs[16];
    tm_rcp_run runs[16];
    size_t     n;
} result;

static void add_log(result *r, const test_mllog *log)
{
    r->logs[r->n] = test_mllog_make(log);
    r->runs[r->n] = tm_rcp_scan(r->logs[r->n], arena);
    r->n++;
}

static void add_text(result *r, const char *text)
{
    tm_error err = { 0 };
    assert_int_equal(tm_mllog_parse("text", text, strlen(text), &r->logs[r->n], &err), TM_OK);
    r->runs[r->n] = tm_rcp_scan(r->logs[r->n], arena);
    r->n++;
}

static void free_result(result *r)
{
    for (size_t i = 0; i < r->n; i++) tm_mllog_free(r->logs[i]);
}

static tm_rcp_verdict judge(const result *r, bool full)
{
    tm_rcp_verdict v;
    tm_error       err = { 0 };
    assert_int_equal(tm_rcp_judge(r->runs, r->n, NULL, TM_RULESET_5_1_0, full, arena, &v, &err), TM_OK);
    return v;
}

static result make(const char *benchmark, int64_t batch, const int64_t (*counts)[2])
{
    result r = { 0 };
    for (; counts[0][1] > 0; counts++)
        for (int64_t k = 0; k < counts[0][1]; k++) {
            int64_t    samples = counts[0][0];
            test_mllog log = test_mllog_good(benchmark, batch, samples > 0 ? samples : 3072, (int)r.n);
            if (samples == -1) log.status = "aborted";
            if (samples == -2) log.status = NULL;
            add_log(&r, &log);
        }
    return r;
}

enum { ABORTED = -1, NO_STOP = -2, BOTH = -1, PRUNED = 0, FULL = 1 };

TEST(published_verdicts)
{
    const char *found = "RCP found", *between = "RCP Interpolation", *b8 = "llama31_8b", *lora = "llama2_70b_lora";
    const char *slower = "RCP not found but slower convergence on smaller batch size";
    const struct {
        const char *benchmark;
        int64_t     batch;
        int64_t     counts[5][2]; /* ends with no runs */
        int         pass;
        double      samples; /* 0: not judged */
        const char *message;
        bool        passed;
        double      factor;
    } rows[] = {
        { b8, 32, { { 184320, 10 } }, BOTH, 184320, found, true, 1 },
        { b8, 32, { { 172032, 9 }, { 184320, 1 } }, BOTH, 172032, found, false, 1 },
        { b8, 24, { { 159744, 3 }, { 172032, 7 } }, BOTH, 168960, between, true, 1.006060606060606 },
        { b8, 24, { { 159744, 6 }, { 172032, 4 } }, BOTH, 164352, between, false, 1 },
        { b8, 8, { { 159744, 8 }, { 172032, 2 } }, BOTH, 161280, slower, true, 1 },
        { b8,
          8,
          { { 147456, 8 }, { 159744, 2 } },
          BOTH,
          148992,
          "Missing RCP, please submit RCP with BS = 8",
          false,
          1 },
        { b8, 160, { { 450000, 10 } }, BOTH, 0, "Missing RCP, please submit RCP with BS = 160", false, 1 },
        { lora, 32, { { 4992, 3 }, { 5376, 7 } }, PRUNED, 5280, between, true, 1 },
        { lora, 32, { { 4992, 3 }, { 5376, 7 } }, FULL, 5280, found, false, 1 },
        { lora, 64, { { 6912, 7 }, { 7296, 3 } }, PRUNED, 7008, between, true, 1.0176125244618395 },
        { lora, 64, { { 6912, 7 }, { 7296, 3 } }, FULL, 7008, between, false, 1 },
        { lora, 24, { { 4224, 5 }, { 4608, 5 } }, PRUNED, 4416, between, true, 1.0300207039337475 },
        { lora, 24, { { 4224, 5 }, { 4608, 5 } }, FULL, 4416, between, false, 1 },
        { lora, 8, { { 3072, 9 }, { ABORTED, 1 } }, BOTH, 3072, found, true, 1.034722222222222 },
        { lora, 8, { { 3072, 9 }, { NO_STOP, 1 } }, BOTH, 3072, found, true, 1.034722222222222 },
        { lora, 8, { { 3072, 8 }, { ABORTED, 2 } }, BOTH, 0, "Insufficient convergence", false, 1 },
        { lora, 8, { { 3072, 8 }, { ABORTED, 1 }, { NO_STOP, 1 } }, BOTH, 0, "Insufficient convergence", false, 1 },
        { lora, 8, { { 3072, 5 } }, BOTH, 3072, found, true, 1.034722222222222 },
        { b8, 0, { { 184320, 10 } }, BOTH, 0, "Could not detect global_batch_size", false, 1 },
        /* 10.1: one step behind, as several published logs are, and the true counts */
        { b8, 32, { { 172000, 5 }, { 184288, 5 } }, BOTH, 178144.0, found, true, 1.004011735824202 },
        { b8, 32, { { 172032, 5 }, { 184320, 5 } }, BOTH, 178176.0, found, true, 1.003831417624521 },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        result r = make(rows[i].benchmark, rows[i].batch, rows[i].counts);
        for (int full = 0; full < 2; full++) {
            if (rows[i].pass != BOTH && rows[i].pass != full) continue;
            char what[64];
            snprintf(what, sizeof what, "row %zu, full %d", i, full);
            tm_rcp_verdict v = judge(&r, full);
            assert_string_equal(v.message, rows[i].message);
            if (v.passed != rows[i].passed) fail_msg("%s: passed is %d", what, v.passed);
            assert_int_equal(v.judged, rows[i].samples > 0);
            if (v.judged) exactly(v.samples, rows[i].samples, what);
            exactly(v.factor, rows[i].factor, what);
            assert_int_equal(tm_rcp_scales(&v), rows[i].factor > 1);
        }
        free_result(&r);
    }
}

static void fails(const result *r, const char *message)
{
    tm_rcp_verdict v = judge(r, false);
    assert_string_equal(v.message, message);
    assert_false(v.passed || v.judged);
}

TEST(mixed_results_fail)
{
    static const char *const batches = "Batch sizes in files do not match.";
    static const char *const names = "Benchmark names in files do not match.";
    const int64_t            nine[][2] = { { 3072, 9 }, { 0, 0 } }, two[][2] = { { 3072, 2 }, { 0, 0 } };
    test_mllog others[] = { test_mllog_good("llama2_70b_lora", 16, 3840, 1), test_mllog_good("llama31_8b", 8, 3840, 1),
                            test_mllog_good("llama2_70b_lora", 0, 3072, 0) }; /* it lacks the batch */
    for (int i = 0; i < 3; i++) {
        result r = make("llama2_70b_lora", 8, nine);
        add_log(&r, &others[i]);
        fails(&r, i == 1 ? names : batches);
        tm_rcp_run first = r.runs[0]; /* wherever it stands */
        r.runs[0] = r.runs[9];
        r.runs[9] = first;
        fails(&r, i == 1 ? names : batches);
        r.runs[0] = r.runs[1];
        r.runs[0].benchmark = NULL;
        r.runs[9] = r.runs[1];
        fails(&r, names);
        free_result(&r);
    }
    result r = make("llama2_70b_lora", 8, two);
    fails(&r, "Too few runs: at least 3 are needed to drop the fastest and the slowest");
    free_result(&r);
}

#define EVENT(key, value, metadata)                                                                                    \
    ":::MLLOG {\"key\": \"" key "\", \"value\": " value ", \"metadata\": {" metadata "}}\n"
#define NAME EVENT("submission_benchmark", "\"llama31_8b\"", "")
#define BATCH EVENT("global_batch_size", "32", "")
#define EVAL(n) EVENT("eval_accuracy", "3.2", "\"samples_count\": " #n)
#define STOP(status) EVENT("run_stop", "null", "\"status\": \"" status "\"")

#define NEVER TM_RCP_INFINITE

TEST(what_a_log_says)
{
    const struct {
        const char *text, *problem; /* part of it; NULL: none */
        double      samples;
    } rows[] = {
        { NAME BATCH EVAL(100) EVAL(200) STOP("success") EVAL(300), NULL, 200 },
        { NAME BATCH EVAL(100) STOP("success") EVAL(200) STOP("success"), NULL, 200 },
        { NAME BATCH EVAL(100) STOP("success") STOP("aborted"), NULL, NEVER },
        { NAME BATCH EVAL(100) STOP("aborted") STOP("success"), NULL, 100 },
        { NAME BATCH EVAL(100) STOP("Success"), NULL, NEVER },
        { NAME BATCH EVAL(100), NULL, NEVER },
        { "", NULL, NEVER },
        /* words count, not keys: a note that mentions the batch sets it; the last one wins */
        { NAME BATCH EVENT("note", "16", "\"of\": \"global_batch_size\"") EVAL(100) STOP("success"), NULL, 100 },
        { NAME BATCH EVENT("eval_error", "3", "\"samples_count\": 50") STOP("success"), NULL, 50 },
        { NAME BATCH EVENT("x", "3", "\"samples_count\": 70, \"why\": \"eval_accuracy\"") STOP("success"), NULL, 70 },
        { NAME BATCH EVENT("eval_accuracy", "3", "\"samples_count\": 50.12345") STOP("success"), NULL, 50.12345 },
        { EVENT("eval_accuracy", "1", "\"epoch_num\": 3.12356") STOP("success"), NULL, 3.124 },
        { NAME ":::MLLOG {\"key\": \"eval_accuracy\", \"metadata\": {\"samples_count\": 1}}\n", "without a value",
          NEVER },
        /* run_stop is looked for by key */
        { NAME BATCH EVAL(100) EVENT("x", "null", "\"status\": \"success\", \"y\": \"run_stop\""), NULL, NEVER },
        /* the token need not be at the start; what is before the last one does not matter */
        { "rank 0: " NAME "50% :::MLLOG garbage " BATCH EVAL(100) STOP("success"), NULL, 100 },
        /* lines that mention nothing may be garbage */
        { NAME BATCH ":::MLLOG garbage\n" EVAL(100) STOP("success"), NULL, 100 },
        /* benchmarks that are not in the list count epochs, and so does a log before its benchmark */
        { EVENT("submission_benchmark", "\"bert\"", "") EVENT("eval_accuracy", "1", "\"epoch_num\": 3") STOP("success"),
          NULL, 3 },
        { EVENT("eval_accuracy", "1", "\"epoch_num\": 3, \"samples_count\": 9") NAME BATCH STOP("success"), NULL, 3 },
        /* where the public checker stops */
        { BATCH EVAL(100) NAME STOP("success"), "line 2: an evaluation without a number 'epoch_num'", NEVER },
        { NAME EVENT("eval_accuracy", "1", "\"epoch_num\": 3") STOP("success"), "'samples_count'", NEVER },
        { NAME EVENT("eval_accuracy", "1", "\"samples_count\": \"3\"") STOP("success"), "'samples_count'", NEVER },
        { NAME EVENT("eval_accuracy", "1", "\"samples_count\": NaN") STOP("success"), "'samples_count'", NEVER },
        { NAME STOP("success"), "line 2: run_stop says success before any evaluation", NEVER },
        { NAME EVAL(100) EVENT("run_stop", "null", ""), "line 3: run_stop has no 'status'", NEVER },
        { NAME EVAL(100) ":::MLLOG {\"key\": \"run_stop\"}\n", "run_stop has no 'status'", NEVER },
        { NAME ":::MLLOG {\"key\": \"eval_accuracy\", \"va\n", "line 2: not JSON", NEVER },
        { NAME EVENT("global_batch_size", "\"32\"", ""), "global_batch_size has no number", NEVER },
        { EVENT("note", "\"x\"", "\"of\": \"global_batch_size\"") NAME BATCH EVAL(100) STOP("success"), NULL, 100 },
        { EVENT("submission_benchmark", "null", "") NAME BATCH EVAL(100) STOP("success"), NULL, 100 },
        { EVENT("submission_benchmark", "null", "") BATCH EVAL(100), "'epoch_num'", NEVER },
        { ":::MLLOG [\"global_batch_size\"]\n", "line 1: a value is missing", NEVER },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char   what[32];
        result r = { 0 };
        snprintf(what, sizeof what, "row %zu", i);
        add_text(&r, rows[i].text);
        exactly(r.runs[0].samples, rows[i].samples, what);
        assert_int_equal(r.runs[0].converged, rows[i].samples < TM_RCP_INFINITE);
        if (rows[i].problem) {
            if (!r.runs[0].problem || !strstr(r.runs[0].problem, rows[i].problem))
                fail_msg("%s: the problem is '%s'", what, r.runs[0].problem ? r.runs[0].problem : "none");
            fails(&r, "A log cannot be read for the convergence test");
        } else if (r.runs[0].problem) {
            fail_msg("%s: %s", what, r.runs[0].problem);
        }
        free_result(&r);
    }
    result r = { 0 };
    add_text(&r, rows[7].text);
    exactly(r.runs[0].batch, 16, "the last mention wins");
    free_result(&r);
}

/* --- a user's own records ----------------------------------------------------------------------------------------- */

#define RECORD(benchmark, batch, list)                                                                                 \
    "{\"Benchmark\": \"" benchmark "\", \"BS\": " batch                                                                \
    ", \"Hyperparams\": {\"rate\": 4e-4, \"b\": [null, true, \"it's\"]}, " list "}"
#define FOUR "\"samples to converge\": [40, 10, 30, 20]"

static tm_status parse(const char *text, const tm_reference **out, tm_error *err)
{
    *err = (tm_error){ 0 };
    return tm_reference_parse("own.json", text, strlen(text), arena, out, err);
}

TEST(own_records)
{
    tm_error            err;
    const tm_reference *reference;
    const char         *text =
        "{\"b\": " RECORD("trainmark_tiny", "64", "\"Epochs to converge\": [50, 50, 60.5, 60]") ", \"a\": " RECORD(
            "trainmark_tiny", "16", FOUR ", \"Creator\": 7") "}";
    assert_int_equal(parse(text, &reference, &err), TM_OK);
    assert_int_equal(reference->n, 2);
    assert_int_equal(reference->records[0].batch, 16);
    assert_string_equal(reference->records[0].hyper, "{'rate': 0.0004, 'b': [None, True, \"it's\"]}");
    assert_true(reference->records[0].whole && !reference->records[1].whole);
    exactly(reference->records[0].mean, 25, "mean");
    exactly(reference->records[1].mean, 55, "mean");
    const struct {
        const char         *benchmark;
        const tm_reference *given;
        int64_t             batch, samples;
        bool                passes;
        const char         *printed; /* NULL: refused */
    } rows[] = {
        { "trainmark_tiny", reference, 16, 25, true, "RCP found" },
        { "trainmark_tiny", reference, 64, 55, true,
          "'BS': 64, 'Hyperparams': {'rate': 0.0004, 'b': [None, True, \"it's\"]}, 'Epochs to converge': [50.0, 50.0, "
          "60.0, 60.5], " },
        { "trainmark_tiny", NULL, 16, 25, false, "'RCP Mean': 844.4444444444445, 'RCP Stdev': 69.16646586316233" },
        { "llama31_8b", reference, 16, 25, false, NULL },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const int64_t  counts[][2] = { { rows[i].samples, 10 }, { 0, 0 } };
        tm_text        printed = { 0 };
        result         r = make(rows[i].benchmark, rows[i].batch, counts);
        tm_rcp_verdict v = { 0 };
        tm_status      st = tm_rcp_judge(r.runs, r.n, rows[i].given, TM_RULESET_5_1_0, false, arena, &v, &err);
        assert_int_equal(st, rows[i].printed ? TM_OK : TM_INVALID);
        assert_int_equal(v.passed, rows[i].passes);
        if (st == TM_OK) tm_rcp_print(&v, &printed);
        if (st == TM_OK && !strstr(printed.data, rows[i].printed)) fail_msg("row %zu: %s", i, printed.data);
        tm_text_fini(&printed);
        free_result(&r);
    }
}

TEST(own_records_that_are_wrong)
{
    const char *const rows[][2] = {
        { "", "not JSON" },
        { "[]", "not an object of records" },
        { "{}", "0 records" },
        { "{\"a\": 1}", "no text 'Benchmark'" },
        { "{\"a\": " RECORD("bert", "8", FOUR) "}", "number of runs is not known" },
        { "{\"a\": " RECORD("llama31_8b", "0", FOUR) "}", "'BS'" },
        { "{\"a\": " RECORD("llama31_8b", "8.5", FOUR) "}", "'BS'" },
        { "{\"a\": " RECORD("llama31_8b", "NaN", FOUR) "}", "'BS'" },
        { "{\"a\": " RECORD("llama31_8b", "\"8\"", FOUR) "}", "'BS'" },
        { "{\"a\": " RECORD("llama31_8b", "8", "\"x\": 1") "}", "one of the two" },
        { "{\"a\": " RECORD("llama31_8b", "8", FOUR ", \"Epochs to converge\": []") "}", "one of the two" },
        { "{\"a\": " RECORD("llama31_8b", "8", "\"samples to converge\": [1, 2, 3]") "}", "3 samples" },
        { "{\"a\": " RECORD("llama31_8b", "8", "\"samples to converge\": [1, 2, 3, 0]") "}", "value 4" },
        { "{\"a\": " RECORD("llama31_8b", "8", "\"samples to converge\": [1, NaN, 3, 3]") "}", "value 2" },
        { "{\"a\": " RECORD("llama31_8b", "8", "\"samples to converge\": [\"1\", 2, 3, 3]") "}", "value 1" },
        { "{\"a\": " RECORD("llama31_8b", "8", FOUR) ", \"b\": " RECORD("llama31_8b", "8", FOUR) "}",
          "two records of batch 8" },
        { "{\"a\": " RECORD("llama31_8b", "8", FOUR) ", \"b\": " RECORD("llama2_70b_lora", "9", FOUR) "}",
          "one benchmark" },
        { "{\"a\": {\"Benchmark\": \"llama31_8b\", \"BS\": 8, \"Hyperparams\": [], " FOUR "}}", "Hyperparams" },
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_error            err;
        const tm_reference *reference;
        tm_status           st = parse(rows[i][0], &reference, &err);
        if (st == TM_OK) fail_msg("accepted: %s", rows[i][0]);
        assert_int_equal(tm_status_exit_code(st), 4);
        if (!strstr(err.text, rows[i][1])) fail_msg("'%s' lacks '%s'", err.text, rows[i][1]);
    }
}

TEST_FIXTURE(set_up, tear_down)
