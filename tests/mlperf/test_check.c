/* SPDX-License-Identifier: Apache-2.0 */
/* Compliance: the public checker's verdict for every change of a compliant log that its rules were tried on
 * (checks.txt); reports; and that a log without a required line never passes, whatever else happens to it. */
#include "apps/mlperf/check.h"

#include "base/file.h"
#include "apps/mlperf/benchmark.h"
#include "support/mllogs.h"

#include "support/test.h"
#include <jansson.h>

/* --- running ------------------------------------------------------------------------------------------------------ */

typedef struct {
    bool    passed;
    tm_text text; /* the printed report */
} outcome;

/* The report as JSON says the same. */
static void json_is_the_report(const char *text, const tm_check_report *report)
{
    json_t *json = json_loads(text, 0, NULL);
    if (!json) fail_msg("no JSON: %s", text);
    assert_string_equal(json_string_value(json_object_get(json, "file")), "run.txt");
    assert_string_equal(json_string_value(json_object_get(json, "verdict")), report->passed ? "SUCCESS" : "FAILED");
    assert_int_equal(json_array_size(json_object_get(json, "warnings")), report->warnings.n);
    const json_t *list = json_object_get(json, "messages");
    assert_int_equal(json_array_size(list), report->messages.n);
    for (size_t i = 0; i < report->messages.n; i++) {
        const json_t *message = json_array_get(list, i);
        assert_string_equal(json_string_value(json_object_get(message, "text")), report->messages.messages[i].text);
        assert_int_equal(json_integer_value(json_object_get(message, "line")), report->messages.messages[i].line);
    }
    json_decref(json);
}

static outcome check_text(const tm_text *text, tm_ruleset ruleset, bool werror, tm_text *json)
{
    tm_mllog       *log;
    tm_check_report report;
    tm_error        err = { 0 };
    outcome         o = { 0 };
    assert_int_equal(tm_mllog_parse("x", text->data ? text->data : "", text->length, &log, &err), TM_OK);
    tm_check_log(log, ruleset, werror, &report);
    o.passed = report.passed;
    assert_true(report.passed == (report.messages.n == 0));
    tm_check_print(&report, "run.txt", &o.text);
    tm_check_json(&report, "run.txt", &(tm_json){ .out = json });
    json_is_the_report(json->data, &report);
    tm_check_report_fini(&report);
    assert_null(report.messages.messages);
    tm_mllog_free(log);
    return o;
}

static outcome check(const mllog *log, tm_ruleset ruleset, bool werror, tm_text *json)
{
    tm_text text = { 0 };
    mllog_print(log, &text);
    outcome o = check_text(&text, ruleset, werror, json);
    tm_text_fini(&text);
    return o;
}

/* `words`, " & " between them, have to be in the report, those behind "!" must not be. */
static void wants(const mllog *log, tm_ruleset ruleset, bool werror, bool pass, const char *words, const char *whole)
{
    tm_text json = { 0 };
    outcome o = check(log, ruleset, werror, &json);
    bool    right = o.passed == pass;
    for (const char *w = words, *end; *w; w = *end ? end + 3 : end) {
        bool not = *w == '!';
        end = strstr(w, " & ");
        if (!end) end = w + strlen(w);
        right = right && (memmem(o.text.data, o.text.length, w + not, (size_t)(end - w) - not ) == NULL) == not ;
    }
    if (*whole) right = right && strcmp(o.text.data, whole) == 0;
    if (!right)
        fail_msg("wanted %s, '%s' and\n%s, found\n%s%s", pass ? "SUCCESS" : "FAILED", words, whole, o.text.data,
                 json.data);
    tm_text_fini(&json);
    tm_text_fini(&o.text);
}

/* --- the table of verdicts ---------------------------------------------------------------------------------------- */

TEST(the_shortest_logs_pass)
{
    const mllog logs[] = { mllog_gpt_oss(), mllog_8b(), mllog_lora(), mllog_flux(), mllog_tiny(TM_MLPERF_TINY_TARGET) };
    for (size_t i = 0; i < 5; i++)
        for (int r = i == 0 ? TM_RULESET_6_0_0 : 0; r < TM_RULESET_COUNT; r++)
            wants(&logs[i], (tm_ruleset)r, true, true, "SUCCESS", "");
}

/* Without one of its lines a log fails, but for a few keys. */
TEST(only_some_lines_may_be_left_out)
{
    static const char *const optional[] = { "submission_status", "seed", "opt_learning_rate_warmup_factor",
                                            "eval_start", "eval_stop" };
    const mllog              logs[] = { mllog_8b(), mllog_lora(), mllog_flux(), mllog_gpt_oss() };
    for (size_t k = 0; k < 4; k++)
        for (size_t i = 0; i < logs[k].n; i++) {
            mllog       log = logs[k];
            const char *key = logs[k].lines[i].key;
            bool        may = false, disclosed = strncmp(key, "lowest_", 7) == 0 || strstr(key, "_parallelism") ||
                                          strcmp(key, "micro_batch_size") == 0 || strcmp(key, "config_filename") == 0;
            for (size_t j = 0; j < 5; j++) may = may || strcmp(key, optional[j]) == 0;
            mllog_drop(&log, key);
            for (int r = k == 3 ? TM_RULESET_6_0_0 : 0; r < TM_RULESET_COUNT; r++) {
                bool passes_it = may || (disclosed && r < TM_RULESET_6_1_0);
                wants(&log, (tm_ruleset)r, false, passes_it, passes_it ? "SUCCESS" : key, "");
            }
        }
}

static mllog log_of(const char *name)
{
    if (strcmp(name, "8b") == 0) return mllog_8b();
    if (strcmp(name, "lora") == 0) return mllog_lora();
    if (strcmp(name, "flux") == 0) return mllog_flux();
    if (strcmp(name, "gpt_oss") == 0) return mllog_gpt_oss();
    if (strcmp(name, "tiny") == 0) return mllog_tiny(TM_MLPERF_TINY_TARGET);
    assert_string_equal(name, "none");
    return (mllog){ .n = 0 };
}

/* "KEY OP REST", as checks.txt says. */
static void change(mllog *log, char *text)
{
    char  left[64], op[8] = "";
    int   at = 0, nth = -1, times = 1;
    char *number;
    if (sscanf(text, "%63s %7s %n", left, op, &at) < 2) fail_msg("'%s'", text);
    const char *rest = text + at;
    if ((number = strchr(left, '#')) != NULL) {
        nth = atoi(number + 1);
        *number = '\0';
    }
    if (left[0] == '-') {
        mllog_drop(log, text + 2);
    } else if (left[0] == '+') {
        for (times = left[1] ? atoi(left + 1) : 1; times > 0; times--) mllog_double(log, text + strcspn(text, " ") + 1);
    } else if (strcmp(op, "<") == 0) {
        mllog_move(log, left, rest);
    } else if (strcmp(op, "<<") == 0) {
        mllog_insert(log, mllog_find(log, rest, 0), left, "null", "");
    } else if (strcmp(op, "!") == 0) {
        int where;
        if (sscanf(left, "%dx%d", &where, &times) == 0)
            snprintf(mllog_find(log, left, 0)->raw, MLLOG_BYTES, "%s", rest);
        else
            for (; times > 0; times--)
                snprintf(mllog_insert(log, &log->lines[where], "", "", "")->raw, MLLOG_BYTES, "%s", rest);
    } else if (strcmp(op, "@") == 0) {
        snprintf(mllog_find(log, left, nth < 0 ? 0 : (size_t)nth)->metadata, MLLOG_BYTES, "%s%s", *rest ? ", " : "",
                 rest);
    } else if (strcmp(op, "~") == 0) {
        mllog_find(log, left, nth < 0 ? 0 : (size_t)nth)->time_ms = 1700000000000 + atoll(rest);
    } else if (nth < 0) {
        mllog_find(log, left, 0);
        mllog_set(log, left, rest);
    } else {
        snprintf(mllog_find(log, left, (size_t)nth)->value, MLLOG_BYTES, "%s", rest);
    }
}

/* One case; `whole` is the report it is to have, or "". */
static void one_case(char *line, const char *whole)
{
    char *changes = strchr(line, ':'), *verdicts = strstr(line, " => ");
    if (!changes || !verdicts) fail_msg("%s", line);
    *changes++ = *verdicts = '\0';
    mllog log = log_of(line);
    for (char *next = NULL, *c = *changes ? changes + 1 : changes; *c; c = next) {
        next = strstr(c, "; ");
        if (next) *next = '\0';
        next = next ? next + 2 : strchr(c, '\0');
        change(&log, c);
    }
    verdicts += 4;
    bool   werror = *verdicts == 'E';
    size_t n = strspn(verdicts += werror, "PF-");
    bool   fails = memchr(verdicts, 'F', n) != NULL;
    for (size_t r = 0; r < n; r++)
        if (verdicts[r] != '-')
            wants(&log, (tm_ruleset)r, werror, verdicts[r] == 'P',
                  (verdicts[r] == 'F') == fails && verdicts[n] ? verdicts + n + 1 : "", r == 0 ? whole : "");
}

TEST(cases_of_the_table)
{
    tm_text  text = { 0 };
    tm_error err = { 0 };
    int      n = 0;
    if (tm_file_read("tests/mlperf/checks.txt", 1 << 20, &text, &err) != TM_OK) fail_msg("%s", err.text);
    for (char *at = text.data, *end; *at; at = end) {
        end = strchr(at, '\n');
        *end++ = '\0';
        if (!*at || *at == '#') continue;
        char *whole = strncmp(end, "run.txt", 7) == 0 ? end : strchr(end, '\0');
        if (*whole) {
            end = strstr(end, "\n\n");
            end = end ? end + 1 : strchr(whole, '\0');
            if (*end) *end++ = '\0';
        }
        one_case(at, whole);
        n++;
    }
    assert_int_equal(n, 140);
    tm_text_fini(&text);
}
