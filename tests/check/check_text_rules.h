/* SPDX-License-Identifier: Apache-2.0 */
/* tests/check/check_text_rules.h - rules of the text that `trainmark check` prints: it has the rows of the JSON. */
#ifndef TM_TESTS_SYSTEM_CHECK_TEXT_RULES_H
#define TM_TESTS_SYSTEM_CHECK_TEXT_RULES_H

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* A line of the text that begins so; it may not be missing. */
static inline void text_has_line(const char *text, const char *line, const char *words)
{
    size_t n = strlen(line);
    for (const char *at = text; at; at = strchr(at, '\n') ? strchr(at, '\n') + 1 : NULL)
        if (strncmp(at, line, n) == 0) return;
    fail_msg("%s: no line '%s' in\n%s", words, line, text);
}

static inline const char *string_of(json_t *row, const char *name)
{
    const char *text = json_string_value(json_object_get(row, name));
    return text ? text : "";
}

/* The text has every check below its group, with what helps where it is needed, and counts them. */
static inline void text_has_rows(const char *text, json_t *rows, const char *words)
{
    static const char *const names[] = { "PASS", "WARN", "FAIL", "INFO", "SKIP" };
    int                      counts[5] = { 0 };
    size_t                   i;
    json_t                  *row;
    const char              *group = "", *at = text;
    char                     line[600], *end;
    json_array_foreach(rows, i, row)
    {
        const char *status = string_of(row, "status");
        bool        helps = strcmp(status, "FAIL") == 0 || strcmp(status, "WARN") == 0;
        for (int k = 0; k < 5; k++) counts[k] += strcmp(names[k], status) == 0;
        if (strcmp(group, string_of(row, "group")) != 0) {
            group = string_of(row, "group");
            snprintf(line, sizeof line, "%s\n", group);
            text_has_line(text, line, words);
        }
        snprintf(line, sizeof line, "  %s  %-14s  %s\n", status, string_of(row, "id"), string_of(row, "observed"));
        text_has_line(text, line, words);
        const char *own = strstr(text, line);
        assert_true(own > at); /* in the order of the rows */
        at = own;
        for (int k = 0; k < 3; k++) {
            static const char *const helping[] = { "expected", "source", "remedy" };
            snprintf(line, sizeof line, "\n                        %s:", helping[k]);
            end = strstr(own, line);
            const char *next = strstr(own + 1, "\n  ");
            while (next && strncmp(next, "\n   ", 4) == 0) next = strstr(next + 1, "\n  ");
            bool shown = end && (!next || end < next);
            if (shown != helps) fail_msg("%s: %s of %s", words, helping[k], string_of(row, "id"));
            if (shown && !strstr(end, string_of(row, helping[k])))
                fail_msg("%s: %s", words, string_of(row, helping[k]));
        }
    }
    snprintf(line, sizeof line, ":  %s  %d pass, %d warn, %d fail, %d info, %d skipped (", counts[2] ? "FAIL" : "PASS",
             counts[0], counts[1], counts[2], counts[3], counts[4]);
    if (!strstr(text, line)) fail_msg("%s: no '%s' in\n%s", words, line, text);
}

#endif
