/* SPDX-License-Identifier: Apache-2.0 */
/* tests/results/made_runs.h - the runs of support/told_runs.h with single members changed. */
#ifndef TM_TESTS_RESULTS_MADE_RUNS_H
#define TM_TESTS_RESULTS_MADE_RUNS_H

#include "base/text.h"
#include "record/table.h"
#include "results/result.h"
#include "support/fake_run.h"
#include "support/told_runs.h"

#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char rich[] = "rich", poor[] = "poor", metrics[] = "metrics"; /* runs of support/told_runs.h */

/* result.json of the run with every FROM as TO: "FROM => TO; FROM => TO", where ' stands for a quote. Each must be
 * there.
 */
static inline tm_text changed(const char *run, const char *changes)
{
    tm_text text = told_text(run);
    char   *copy = strdup(changes ? changes : "");
    for (char *c = copy; *c; c++)
        if (*c == '\'') *c = '"';
    for (char *from = copy, *next; *from; from = next) {
        tm_text     out = { 0 };
        const char *at = text.data, *found;
        char       *to = strstr(from, " => "), *end = strstr(from, "; ");
        next = end ? end + 2 : from + strlen(from);
        if (end) *end = '\0';
        *to = '\0', to += 4;
        if (!strstr(at, from)) fail_msg("%s has no '%s'", run, from);
        for (; (found = strstr(at, from)); at = found + strlen(from)) {
            tm_text_add_n(&out, at, (size_t)(found - at));
            tm_text_add(&out, to);
        }
        tm_text_add(&out, at);
        tm_text_fini(&text);
        text = out;
    }
    free(copy);
    return text;
}

static inline tm_result *parsed(const char *name, tm_text *json, tm_text *lines)
{
    tm_error   err = { 0 };
    tm_result *run = NULL;
    if (tm_result_parse(name, json, lines, NULL, &run, &err) != TM_OK) fail_msg("%s: %s", name, err.text);
    tm_text_fini(json);
    if (lines) tm_text_fini(lines);
    return run;
}

static inline tm_result *run_of(const char *name, const char *path, const char *changes, const char *lines)
{
    tm_text json = changed(path, changes), text = { 0 };
    if (lines) tm_text_add(&text, lines);
    return parsed(name, &json, lines ? &text : NULL);
}

/* A member by its path, "steps/first"; NULL: there is none. */
static inline json_t *at_path(json_t *at, const char *path)
{
    char name[96];
    for (const char *slash; at && (slash = strchr(path, '/')); path = slash + 1) {
        snprintf(name, sizeof name, "%.*s", (int)(slash - path), path);
        at = json_object_get(at, name);
    }
    return json_object_get(at, path);
}

static inline double number_at(json_t *tree, const char *path)
{
    json_t *one = at_path(tree, path);
    return json_is_number(one) ? json_number_value(one) : (double)NAN;
}

/* A run, and the file again, read without it. */
typedef struct {
    const char *name;
    tm_result  *run;
    json_t     *tree;
} source;

/* Takes the texts; lines without data: no metrics.jsonl. */
static inline source open_source(const char *name, tm_text json, tm_text lines)
{
    source s = { .name = name, .tree = json_loads(json.data, 0, NULL) };
    assert_non_null(s.tree);
    s.run = parsed(name, &json, lines.data ? &lines : NULL);
    return s;
}

static inline void close_source(source *s)
{
    tm_result_destroy(s->run);
    json_decref(s->tree);
}

/* To the digits that differ by the order of sums; no number is like another. */
static inline bool close_to(double a, double b)
{
    return (!isfinite(a) && !isfinite(b)) || fabs(a - b) <= 1e-12 * fmax(fabs(a), fabs(b));
}

#endif
