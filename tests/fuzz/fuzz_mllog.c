/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzzes the reading of MLPerf-style logs, their JSON and the compliance check. What is read prints as JSON that reads
 * the same; a log that passes has the lines that every rule set wants. */
#include "fuzz.h"

#include "apps/mlperf/check.h"

#include <math.h>

/* Printed, read and printed again: the same text. */
static void print_and_read(const tm_json_value *value)
{
    tm_arena   *arena = tm_arena_create();
    tm_text     first = { 0 }, second = { 0 };
    const char *problem;
    size_t      where;
    tm_json_print(value, &first);
    const tm_json_value *again = tm_json_parse(arena, first.data, first.length, &problem, &where);
    TM_ASSERT(again);
    tm_json_print(again, &second);
    TM_ASSERT(strcmp(first.data, second.data) == 0);
    TM_ASSERT(tm_json_equal(value, again) || strstr(first.data, "NaN"));
    tm_text_fini(&first);
    tm_text_fini(&second);
    tm_arena_destroy(arena);
}

static bool has_key(const tm_mllog_record *records, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(records[i].key, key) == 0) return true;
    return false;
}

static void check(const tm_mllog *log, const tm_mllog_record *records, size_t n, tm_ruleset ruleset, bool werror)
{
    static const char *const wanted[] = { "submission_org",
                                          "submission_division",
                                          "submission_benchmark",
                                          "cache_clear",
                                          "init_start",
                                          "init_stop",
                                          "run_start",
                                          "run_stop",
                                          "eval_accuracy",
                                          "train_samples",
                                          "eval_samples",
                                          "submission_platform" };
    tm_check_report          report;
    tm_text                  text = { 0 }, json = { 0 };
    tm_check_log(log, ruleset, werror, &report);
    TM_ASSERT(!report.passed || (report.n_sets == 3 && !report.exception));
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++)
        TM_ASSERT(!report.passed || has_key(records, n, wanted[i]));
    tm_check_print(&report, "x", &text);
    tm_check_json(&report, "x", &(tm_json){ .out = &json });
    tm_text_fini(&text);
    tm_text_fini(&json);
    tm_check_report_fini(&report);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tm_mllog *log;
    tm_error  err = { 0 };
    tm_status st = tm_mllog_parse("x", (const char *)data, size, &log, &err);
    TM_ASSERT((st == TM_OK) == (log != NULL));
    if (st != TM_OK) return 0;
    size_t                 n;
    const tm_mllog_record *records = tm_mllog_records(log, &n);
    for (size_t i = 0; i < n; i++) {
        TM_ASSERT((records[i].state == TM_MLLOG_GOOD) == (records[i].problem == NULL));
        TM_ASSERT((records[i].state == TM_MLLOG_GOOD) == (records[i].value && records[i].metadata));
        if (records[i].object) print_and_read(records[i].object);
    }
    for (int r = 0; r < TM_RULESET_COUNT; r++) check(log, records, n, (tm_ruleset)r, r == 1);
    tm_mllog_free(log);
    return 0;
}
