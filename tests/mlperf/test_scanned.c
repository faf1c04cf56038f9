/* SPDX-License-Identifier: Apache-2.0 */
/* What readers say of odd lines, to the letter: each line's state, the scan for the convergence test and its verdict,
 * the check of seeds. After a change that is meant:
 *     TM_RECORD=1 build/release/tests/mlperf/test_scanned; git diff tests/mlperf/whole-scanned.txt
 */
#include "support/whole.h"

#include "base/arena.h"
#include "mlperf/log.h"
#include "mlperf/rcp.h"
#include "mlperf/seeds.h"
#include "mlperf/submission.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "support/test.h"

#define LINE(key, value, more)                                                                                         \
    ":::MLLOG {\"time_ms\": 5, \"key\": \"" key "\", \"value\": " value                                                \
    ", \"metadata\": {\"file\": \"a.py\", \"lineno\": 7" more "}}\n"
#define HEAD LINE("submission_benchmark", "\"llama31_8b\"", "") LINE("global_batch_size", "32", "")
#define EVAL(loss, samples) LINE("eval_accuracy", loss, ", \"samples_count\": " samples)
#define STOP(status) LINE("run_stop", "null", ", \"status\": " status)

static const char *const logs[] = {
    "",
    "no token at all\n",
    ":::MLLOG 3\n:::MLLOG [1]\n:::MLLOG {\n:::MLLOG {\"key\": \"x\"}\n:::MLLOG {\"time_ms\": 1}\n",
    ":::MLLOG {\"time_ms\": 1, \"key\": \"x\"}\n:::MLLOG {\"time_ms\": 1, \"key\": \"x\", \"value\": 1}\n",
    ":::MLLOG {\"time_ms\": 1, \"key\": 4, \"value\": 1, \"metadata\": {}}\n",
    ":::MLLOG {\"time_ms\": \"x\", \"key\": \"k\", \"value\": 1, \"metadata\": {}}\n",
    ":::MLLOG {\"time_ms\": \" 1_2.5 \", \"key\": \"k\", \"value\": 1, \"metadata\": {}}\n",
    ":::MLLOG {\"time_ms\": null, \"key\": \"k\", \"value\": 1, \"metadata\": {}}\n",
    ":::MLLOG {\"time_ms\": true, \"key\": \"k\", \"value\": 1, \"metadata\": []}\n",
    ":::MLLOG {\"time_ms\": NaN, \"key\": \"k\", \"value\": 1, \"metadata\": 2}\n",
    ":::MLLOG {\"a\": \"\\u12\"}\n:::MLLOG {\"a\": \"\\u123g\"}\n:::MLLOG {\"a\": \"\\x\"}\n:::MLLOG {\"a\": \"\n",
    ":::MLLOG {\"a\" 1}\n:::MLLOG {a: 1}\n:::MLLOG {\"a\": 1,}\n:::MLLOG [1 2]\n:::MLLOG {\"a\": 1 \"b\": 2}\n",
    ":::MLLOG {\"a\": tru}\n:::MLLOG {\"a\": -}\n:::MLLOG {\"a\": 1.}\n:::MLLOG {\"a\": 1e}\n:::MLLOG {} {}\n",
    HEAD EVAL("3.2", "64") STOP("\"success\""),
    HEAD EVAL("3.2", "64") EVAL("3.1", "128") STOP("\"success\""),
    HEAD EVAL("3.2", "64") STOP("\"aborted\""),
    HEAD EVAL("3.2", "64") STOP("3"),
    HEAD EVAL("3.2", "64") LINE("run_stop", "null", ""),
    HEAD EVAL("3.2", "64"),
    HEAD STOP("\"success\""),
    HEAD LINE("eval_accuracy", "3.2", "") STOP("\"success\""),
    HEAD EVAL("3.2", "\"64\"") STOP("\"success\""),
    HEAD EVAL("3.2", "NaN") STOP("\"success\""),
    HEAD EVAL("3.2", "true") STOP("\"success\""),
    HEAD ":::MLLOG {\"key\": \"eval_accuracy\", \"metadata\": {\"samples_count\": 64}}\n" STOP("\"success\""),
    HEAD ":::MLLOG eval_accuracy\n",
    HEAD ":::MLLOG not what is looked for\n" EVAL("3.2", "64") STOP("\"success\""),
    HEAD ":::MLLOG {\"key\": \"global_batch_size\"}\n",
    HEAD ":::MLLOG {\"key\": \"submission_benchmark\"}\n",
    LINE("global_batch_size", "32", "") EVAL("3.2", "64") STOP("\"success\""),
    LINE("global_batch_size", "32", "") LINE("eval_accuracy", "3.2", ", \"epoch_num\": 1.23456") STOP("\"success\""),
    LINE("submission_benchmark", "4", "") LINE("global_batch_size", "32", "")
        LINE("eval_accuracy", "3.2", ", \"epoch_num\": 1.23456") STOP("\"success\""),
    LINE("submission_benchmark", "\"no_such\"", "") LINE("global_batch_size", "32", "")
        LINE("eval_error", "3.2", ", \"epoch_num\": 0.0005") STOP("\"success\""),
    LINE("submission_benchmark", "\"llama31_8b\"", "") EVAL("3.2", "64") STOP("\"success\""),
    HEAD LINE("global_batch_size", "\"x\"", "") EVAL("3.2", "64") STOP("\"success\""),
    HEAD LINE("global_batch_size", "1.5", "") EVAL("3.2", "64") STOP("\"success\""),
    HEAD LINE("global_batch_size", "0", "") EVAL("3.2", "64") STOP("\"success\""),
    HEAD LINE("global_batch_size", "-8", "") EVAL("3.2", "64") STOP("\"success\""),
    HEAD LINE("global_batch_size", "2e15", "") EVAL("3.2", "64") STOP("\"success\""),
    HEAD LINE("global_batch_size", "1", "") EVAL("3.2", "64") STOP("\"success\""),
    HEAD LINE("seed", "3", ""),
    HEAD LINE("seed", "3", "") LINE("seed", "3", ""),
    HEAD LINE("seed", "3", "") LINE("seed", "4", "") LINE("seed", "\" 1_0 \"", ""),
    HEAD LINE("seed", "3.5", "") LINE("seed", "\"x\\n\"", "") LINE("seed", "[1, \"b\"]", "") LINE("seed", "null", ""),
    HEAD LINE("seed", "true", "") LINE("seed", "1", "") LINE("seed", "2.0", ""),
    ":::MLLOG {\"time_ms\": 5, \"key\": \"seed\", \"value\": 3, \"metadata\": {\"file\": \"a\"}}\n"
    ":::MLLOG {\"time_ms\": 5, \"key\": \"seed\", \"value\": 4, \"metadata\": {\"lineno\": 3}}\n"
    ":::MLLOG {\"time_ms\": 5, \"key\": \"seed\", \"value\": 5, \"metadata\": []}\n:::MLLOG {\n",
};

static void add_records(tm_text *out, const tm_mllog *log)
{
    size_t                 n;
    const tm_mllog_record *r = tm_mllog_records(log, &n);
    for (size_t i = 0; i < n; i++)
        tm_text_printf(out, "  %lld, %lld: %d %s, %g '%s' %.*s\n", (long long)r[i].line, (long long)r[i].index,
                       (int)r[i].state, r[i].problem ? r[i].problem : "good", r[i].time_ms, r[i].key,
                       (int)(r[i].text_bytes < 30 ? r[i].text_bytes : 30), r[i].text);
}

static void add_notes(tm_text *out, const char *title, const tm_notes *notes)
{
    for (size_t i = 0; i < notes->n; i++) tm_text_printf(out, "  %s: %s\n", title, notes->items[i]);
}

static void add_log(tm_text *out, const char *bytes, tm_arena *arena)
{
    tm_error       err = { 0 };
    tm_mllog      *log;
    tm_submission *s = tm_submission_create("folder", TM_RULESET_6_0_0);
    tm_rcp_run     runs[3];
    tm_rcp_verdict verdict;
    for (int i = 0; i < 2; i++) {
        assert_int_equal(tm_mllog_parse("a log", bytes, strlen(bytes), &log, &err), TM_OK);
        tm_submission_add(s, i ? "result_1.txt" : "result_0.txt", log);
    }
    assert_int_equal(tm_mllog_parse("a log", bytes, strlen(bytes), &log, &err), TM_OK);
    add_records(out, log);
    for (int i = 0; i < 3; i++) runs[i] = tm_rcp_scan(log, arena);
    tm_text_printf(out, "  scan: %s; %sconverged, %.9g samples, batch %d %g, %s\n",
                   runs[0].problem ? runs[0].problem : "fine", runs[0].converged ? "" : "not ", runs[0].samples,
                   runs[0].has_batch, runs[0].batch, runs[0].benchmark ? runs[0].benchmark : "no benchmark");
    for (size_t n = 2; n < 4; n++)
        if (tm_rcp_judge(runs, n, NULL, TM_RULESET_6_0_0, n == 2, arena, &verdict, &err) == TM_OK)
            tm_rcp_print(&verdict, out);
    tm_seeds_report seeds = tm_seeds_check(s);
    tm_text_printf(out, "  seeds: %s, %zu\n", seeds.passed ? "passed" : "failed", seeds.n);
    add_notes(out, "error", &seeds.errors);
    add_notes(out, "warning", &seeds.warnings);
    tm_mllog_free(log);
    tm_submission_close(s);
}

static void odd_lines_are_told(void **state)
{
    (void)state;
    tm_text   out = { 0 };
    tm_arena *arena = tm_arena_create();
    for (size_t i = 0; i < sizeof logs / sizeof *logs; i++) {
        tm_text_printf(&out, "-- %zu\n", i);
        add_log(&out, logs[i], arena);
    }
    tm_arena_destroy(arena);
    whole_is("tests/mlperf/whole-scanned.txt", &out);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(odd_lines_are_told) };

TM_TESTS(tests, NULL, NULL)
