/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cli/asked.h - commands called inside of a test program: what they print, as a text and as JSON that is read
 * back, and a text that is expected of the JSON. What is not there fails the test. */
#ifndef TM_TESTS_CLI_ASKED_H
#define TM_TESTS_CLI_ASKED_H

#include "cli/command.h"
#include "support/fake_run.h"
#include "support/folder.h"
#include "support/test.h"

#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Words of a line, in place: parted by blanks, but within '...'. */
static inline int asked_words(char *line, char **argv, int most)
{
    int n = 0;
    for (char *at = line; *at; n++) {
        bool quoted = *at == '\'';
        assert_true(n < most);
        argv[n] = at += quoted;
        at += strcspn(at, quoted ? "'" : " ");
        if (*at == '\'') *at++ = '\0';
        while (*at == ' ') *at++ = '\0';
    }
    return n;
}

static tm_error asked_error; /* of the last command */

/* Standard output of `trainmark LINE`; the caller frees it. Anything but `wanted` fails. */
static inline tm_text asked(const char *line, tm_status wanted)
{
    char *argv[64] = { (char *)"trainmark" }, *copy = strdup(line);
    int   argc = 1 + asked_words(copy, argv + 1, 62);
    int   file = open(test_in_folder("asked"), O_CREAT | O_TRUNC | O_WRONLY, 0600), kept = dup(STDOUT_FILENO);
    fflush(NULL);
    dup2(file, STDOUT_FILENO);
    asked_error = (tm_error){ 0 };
    tm_status st = tm_cli_dispatch(argc, argv, &asked_error);
    fflush(NULL);
    dup2(kept, STDOUT_FILENO);
    close(file), close(kept);
    free(copy);
    if (st != wanted) fail_msg("%s: %s: %s", line, tm_status_text(st), asked_error.text);
    return fake_read(test_in_folder("asked"));
}

/* The same with --json, read; json_decref it. */
static inline json_t *asked_json(const char *line, tm_status wanted)
{
    tm_text      words = { 0 };
    json_error_t err;
    tm_text_printf(&words, "%s --json", line);
    tm_text out = asked(words.data, wanted);
    json_t *json = json_loads(out.data, JSON_DECODE_ANY, &err);
    if (!json) fail_msg("%s: line %d: %s", words.data, err.line, err.text);
    tm_text_fini(&words);
    tm_text_fini(&out);
    return json;
}

/* "ranks/pipeline/slots", "rows/0/name": a value below `json`, or NULL. */
static inline const json_t *member(const json_t *json, const char *path)
{
    char name[64];
    while (json && *path) {
        size_t n = strcspn(path, "/");
        snprintf(name, sizeof name, "%.*s", (int)n, path);
        json = json_is_array(json) ? json_array_get(json, (size_t)atoi(name)) : json_object_get(json, name);
        path += n + (path[n] == '/');
    }
    return json;
}

static inline double number(const json_t *json, const char *path)
{
    const json_t *value = member(json, path);
    if (!json_is_number(value)) fail_msg("no number '%s'", path);
    return json_number_value(value);
}

static inline const char *string(const json_t *json, const char *path)
{
    const char *value = json_string_value(member(json, path));
    if (!value) fail_msg("no text '%s'", path);
    return value;
}

static inline void is(const char *what, double found, double wanted)
{
    if (!(fabs(found - wanted) <= 1e-9 * fmax(1, fabs(wanted))))
        fail_msg("%s: %.17g, wanted %.17g", what, found, wanted);
}

/* Adds words with one blank between them, from a format. */
static inline void expect(tm_text *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static inline void expect(tm_text *out, const char *format, ...)
{
    char    text[2000];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    for (char *word = strtok(text, " \n"); word; word = strtok(NULL, " \n")) tm_text_printf(out, "%s ", word);
}

/* Fails where two texts have other words. Frees both. */
static inline void words_are(const char *of, tm_text *found, tm_text *wanted)
{
    char *a = found->data, *b = wanted->data, *rest_a, *rest_b;
    char *x = strtok_r(a, " \n", &rest_a), *y = strtok_r(b, " \n", &rest_b);
    for (; x && y && strcmp(x, y) == 0; x = strtok_r(NULL, " \n", &rest_a)) y = strtok_r(NULL, " \n", &rest_b);
    if (x || y)
        fail_msg("%s: '%s' in front of '%.60s', wanted '%s' in front of '%.60s'", of, x ? x : "", x ? rest_a : "",
                 y ? y : "", y ? rest_b : "");
    tm_text_fini(found);
    tm_text_fini(wanted);
}

#endif
