/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/check/report.h"

#include "base/file.h"
#include "apps/check/context.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- for people ------------------------------------------------------------------------------ */

static void print_counts(const tm_checks *checks, tm_text *out)
{
    for (int s = 0; s < TM_CHECK_STATUSES; s++)
        tm_text_printf(out, "%s%zu %s", s ? ", " : "", checks->counts[s], tm_check_status_name((tm_check_status)s));
}

/* Words in lines of at most the view's width, behind `column` characters of the first line. */
static void add_words(const tm_check_view *view, const char *words, size_t column, tm_text *out)
{
    if (view->width > column)
        tm_text_fill(out, words, column, column, view->width);
    else
        tm_text_printf(out, "%s\n", words);
}

static void add_status(const tm_check_view *view, tm_check_status status, tm_text *out)
{
    static const char *const codes[TM_CHECK_STATUSES] = {
        [TM_CHECK_PASS] = "32", [TM_CHECK_WARN] = "33", [TM_CHECK_FAIL] = "1;31", [TM_CHECK_SKIP] = "2"
    };
    const char *name = tm_check_status_name(status);
    if (view->colour && codes[status])
        tm_text_printf(out, "  \033[%sm%s\033[0m  ", codes[status], name);
    else
        tm_text_printf(out, "  %s  ", name);
}

static void add_detail(const tm_check_view *view, const char *name, const char *words, tm_text *out)
{
    size_t before = out->length;
    if (!*words) return;
    tm_text_printf(out, "%24s%-9s ", "", name);
    add_words(view, words, out->length - before, out);
}

static void add_check(const tm_check_view *view, const tm_check_result *r, tm_text *out)
{
    enum { OBSERVED = 24 };
    add_status(view, r->status, out);
    tm_text_printf(out, "%-14s  ", r->id);
    add_words(view, r->observed, OBSERVED, out);
    bool bad = r->status == TM_CHECK_WARN || r->status == TM_CHECK_FAIL;
    if (!bad && !view->verbose) return;
    add_detail(view, "expected:", r->expected, out);
    add_detail(view, "source:", r->source, out);
    if (bad) add_detail(view, "remedy:", r->remedy, out);
}

static bool same_skip(const tm_check_result *a, const tm_check_result *b)
{
    return a->status == TM_CHECK_SKIP && b->status == TM_CHECK_SKIP && strcmp(a->group, b->group) == 0 &&
           strcmp(a->observed, b->observed) == 0;
}

/* Checks that are skipped for one reason are one line, where the first of them is. */
static void add_skipped(const tm_check_view *view, const tm_checks *checks, size_t i, tm_text *out)
{
    enum { REASON = 24 };
    char   count[32];
    size_t n = 0;
    for (size_t k = 0; k < checks->n; k++) n += same_skip(&checks->results[k], &checks->results[i]);
    for (size_t k = 0; k < i; k++)
        if (same_skip(&checks->results[k], &checks->results[i])) return;
    if (n == 1) {
        add_check(view, &checks->results[i], out);
        return;
    }
    tm_text words = { 0 };
    snprintf(count, sizeof count, "%zu checks", n);
    add_status(view, TM_CHECK_SKIP, out);
    tm_text_printf(out, "%-14s  ", count);
    tm_text_printf(&words, "%s; --verbose lists them", checks->results[i].observed);
    add_words(view, words.data, REASON, out);
    tm_text_fini(&words);
}

void tm_checks_print(const tm_checks *checks, const tm_check_view *view, tm_text *out)
{
    static const char *const words[TM_CHECK_STATUSES] = { "pass", "warn", "fail", "info", "skipped" };
    const char              *group = "";
    for (size_t i = 0; i < checks->n; i++) {
        const tm_check_result *r = &checks->results[i];
        if (strcmp(r->group, group) != 0) tm_text_printf(out, "%s%s\n", i ? "\n" : "", r->group);
        group = r->group;
        if (r->status == TM_CHECK_SKIP && !view->verbose)
            add_skipped(view, checks, i, out);
        else
            add_check(view, r, out);
    }
    bool failed = tm_checks_failed(checks);
    tm_text_printf(out, "\n%s:", checks->host);
    add_status(&(tm_check_view){ .colour = view->colour }, failed ? TM_CHECK_FAIL : TM_CHECK_PASS, out);
    for (int s = 0; s < TM_CHECK_STATUSES; s++)
        tm_text_printf(out, "%s%zu %s", s ? ", " : "", checks->counts[s], words[s]);
    tm_text_printf(out, " (%.1f s)\n", checks->seconds);
}

tm_table *tm_checks_table(const tm_checks *checks)
{
    static const tm_column columns[] = { { "id", 0 },       { "group", 0 },  { "status", 0 }, { "observed", 0 },
                                         { "expected", 0 }, { "source", 0 }, { "remedy", 0 } };
    tm_table              *table = tm_table_create("check");
    tm_text                counts = { 0 };
    tm_table_columns(table, columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < checks->n; i++) {
        const tm_check_result *r = &checks->results[i];
        tm_table_row(table);
        tm_table_text(table, "id", r->id);
        tm_table_text(table, "group", r->group);
        tm_table_text(table, "status", tm_check_status_name(r->status));
        tm_table_text(table, "observed", r->observed);
        tm_table_text(table, "expected", r->expected);
        tm_table_text(table, "source", r->source);
        if (*r->remedy) tm_table_text(table, "remedy", r->remedy);
    }
    print_counts(checks, &counts);
    tm_table_note(table, "%s: %s", checks->host, counts.data);
    tm_text_fini(&counts);
    return table;
}

/* --- JSON ------------------------------------------------------------------------------------ */

static void print_counts_json(const tm_checks *checks, tm_json *json)
{
    for (int s = 0; s < TM_CHECK_STATUSES; s++) {
        char name[8];
        snprintf(name, sizeof name, "%s", tm_check_status_name((tm_check_status)s));
        for (char *p = name; *p; p++) *p = (char)tolower((unsigned char)*p);
        tm_json_i64(json, name, (int64_t)checks->counts[s]);
    }
}

void tm_checks_print_summary(const tm_checks *checks, tm_json *json, const char *key)
{
    tm_json_open(json, key, '{');
    print_counts_json(checks, json);
    tm_json_open(json, "not_passed", '[');
    for (size_t i = 0; i < checks->n; i++) {
        const tm_check_result *r = &checks->results[i];
        if (r->status != TM_CHECK_WARN && r->status != TM_CHECK_FAIL) continue;
        tm_json_open(json, NULL, '{');
        tm_json_string(json, "id", r->id);
        tm_json_string(json, "status", tm_check_status_name(r->status));
        tm_json_string(json, "observed", r->observed);
        tm_json_close(json, '}');
    }
    tm_json_close(json, ']');
    tm_json_close(json, '}');
}

void tm_checks_print_json(const tm_checks *checks, tm_text *out)
{
    char    now[32];
    tm_json json = { .out = out, .indent = true };
    tm_json_open(&json, NULL, '{');
    tm_json_string(&json, "format", "trainmark.check/1");
    tm_json_string(&json, "host", checks->host);
    tm_json_string(&json, "time", check_utc(checks->wall_ms, now));
    tm_json_i64(&json, "wall_ms", checks->wall_ms);
    tm_json_f64(&json, "seconds", checks->seconds);
    tm_json_string(&json, "verdict", tm_checks_failed(checks) ? "FAIL" : "PASS");
    tm_json_open(&json, "counts", '{');
    print_counts_json(checks, &json);
    tm_json_close(&json, '}');
    tm_json_open(&json, "checks", '[');
    for (size_t i = 0; i < checks->n; i++) {
        const tm_check_result *r = &checks->results[i];
        tm_json_open(&json, NULL, '{');
        tm_json_string(&json, "id", r->id);
        tm_json_string(&json, "group", r->group);
        tm_json_string(&json, "status", tm_check_status_name(r->status));
        tm_json_string(&json, "observed", r->observed);
        tm_json_string(&json, "expected", r->expected);
        tm_json_string(&json, "source", r->source);
        tm_json_string(&json, "remedy", *r->remedy ? r->remedy : NULL);
        tm_json_close(&json, '}');
    }
    tm_json_close(&json, ']');
    tm_json_close(&json, '}');
    tm_text_add(out, "\n");
}

static tm_status parse_result(const json_t *item, const char *name, tm_checks *checks, tm_error *err)
{
    tm_check_result r = { .id = json_string_value(json_object_get(item, "id")),
                          .group = json_string_value(json_object_get(item, "group")),
                          .observed = json_string_value(json_object_get(item, "observed")),
                          .expected = json_string_value(json_object_get(item, "expected")),
                          .source = json_string_value(json_object_get(item, "source")),
                          .remedy = json_string_value(json_object_get(item, "remedy")) };
    const char     *status = json_string_value(json_object_get(item, "status"));
    r.status = status ? tm_check_status_find(status) : TM_CHECK_STATUSES;
    if (!r.id || r.status == TM_CHECK_STATUSES)
        return tm_fail(err, TM_FORMAT, "'%s': check %zu has no id or no known status", name, checks->n + 1);
    tm_checks_add(checks, &r);
    return TM_OK;
}

tm_status tm_checks_parse(const char *text, size_t bytes, const char *name, tm_checks *checks, tm_error *err)
{
    json_error_t  problem;
    json_t       *object = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &problem), *item;
    const json_t *list = json_object_get(object, "checks");
    const char   *format = json_string_value(json_object_get(object, "format"));
    const char   *host = json_string_value(json_object_get(object, "host"));
    tm_status     st = TM_OK;
    size_t        i;
    if (!object)
        st = tm_fail(err, TM_FORMAT, "'%s', line %d: %.200s", name, problem.line, problem.text);
    else if (!format || strcmp(format, "trainmark.check/1") != 0 || !host || !json_is_array(list) ||
             json_array_size(list) == 0)
        st = tm_fail(err, TM_FORMAT, "'%s' is not the report of `trainmark check --json`, or holds no check", name);
    if (st == TM_OK) {
        snprintf(checks->host, sizeof checks->host, "%s", host);
        checks->wall_ms = json_integer_value(json_object_get(object, "wall_ms"));
        checks->seconds = json_number_value(json_object_get(object, "seconds"));
        json_array_foreach(list, i, item) if (st == TM_OK) st = parse_result(item, name, checks, err);
    }
    json_decref(object);
    return st;
}

tm_status tm_checks_dump(const tm_checks *checks, const char *folder, tm_error *err)
{
    tm_text path = { 0 }, json = { 0 };
    tm_text_printf(&path, "%s/smoke", folder);
    tm_status st = tm_folder_make(path.data, err);
    tm_text_printf(&path, "/%s.json", checks->host);
    tm_checks_print_json(checks, &json);
    if (st == TM_OK) st = tm_file_write(path.data, json.data, json.length, err);
    tm_text_fini(&path);
    tm_text_fini(&json);
    return st;
}
