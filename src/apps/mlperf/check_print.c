/* SPDX-License-Identifier: Apache-2.0 */
/* apps/mlperf/check_print.c - a compliance report as text and as JSON. */
#include "apps/mlperf/benchmark.h"
#include "apps/mlperf/check.h"

static void print_list(const tm_check_list *list, const char *level, tm_text *out)
{
    for (size_t i = 0; i < list->n; i++) {
        const tm_check_message *m = &list->messages[i];
        tm_text_printf(out, "  %s", level);
        if (m->line) tm_text_printf(out, "line %lld (record %lld): ", (long long)m->line, (long long)m->index);
        tm_text_add(out, m->text);
        if (m->set) tm_text_printf(out, " [%s]", m->set);
        tm_text_add(out, "\n");
    }
}

/* Chosen by a benchmark of our own? */
static bool is_private(const tm_check_report *report)
{
    const tm_mlperf_benchmark *b = report->benchmark ? tm_mlperf_benchmark_find(report->benchmark) : NULL;
    return b && !b->public;
}

void tm_check_print(const tm_check_report *report, const char *name, tm_text *out)
{
    tm_text_printf(out, "%s: %s", name, report->passed ? "SUCCESS" : "FAILED");
    for (size_t i = 0; i < report->n_sets; i++) tm_text_printf(out, "%s%s", i ? ", " : " (", report->sets[i]);
    tm_text_add(out, report->n_sets ? ")\n" : "\n");
    print_list(&report->messages, "", out);
    print_list(&report->warnings, "warning: ", out);
    if (report->exception) tm_text_add(out, "  the public checker stops with an exception here\n");
    if (is_private(report))
        tm_text_printf(out, "  %s is a benchmark of trainmark's own: the public checker does not know it\n",
                       report->benchmark);
}

static void json_list(const tm_check_list *list, const char *name, tm_json *json)
{
    tm_json_open(json, name, '[');
    for (size_t i = 0; i < list->n; i++) {
        const tm_check_message *m = &list->messages[i];
        tm_json_open(json, NULL, '{');
        tm_json_string(json, "set", m->set);
        tm_json_string(json, "key", m->key);
        if (m->line) {
            tm_json_i64(json, "line", m->line);
            tm_json_i64(json, "record", m->index);
        }
        tm_json_string(json, "text", m->text);
        tm_json_close(json, '}');
    }
    tm_json_close(json, ']');
}

void tm_check_json(const tm_check_report *report, const char *name, tm_json *json)
{
    tm_json_open(json, NULL, '{');
    tm_json_string(json, "file", name);
    tm_json_string(json, "verdict", report->passed ? "SUCCESS" : "FAILED");
    tm_json_string(json, "benchmark", report->benchmark);
    tm_json_bool(json, "known_to_public_checker", !is_private(report));
    tm_json_bool(json, "public_checker_exception", report->exception);
    tm_json_open(json, "rule_sets", '[');
    for (size_t i = 0; i < report->n_sets; i++) tm_json_string(json, NULL, report->sets[i]);
    tm_json_close(json, ']');
    json_list(&report->messages, "messages", json);
    json_list(&report->warnings, "warnings", json);
    tm_json_close(json, '}');
}
