/* SPDX-License-Identifier: Apache-2.0 */
#include "support/members.h"

#include "support/folder.h"

#include <ctype.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

char *test_folder_text(const char *name)
{
    FILE *f = fopen(test_in_folder(name), "rb");
    if (!f) fail_msg("no %s", name);
    char  *text = calloc(1, 1 << 20);
    size_t n = fread(text, 1, (1 << 20) - 1, f);
    fclose(f);
    text[n] = '\0';
    return text;
}

const char *test_blank(const char *at)
{
    while (isspace((unsigned char)*at)) at++;
    return at;
}

const char *test_behind(const char *at)
{
    int depth = 0;
    at = test_blank(at);
    do {
        if (*at == '"')
            for (at++; *at != '"'; at++) at += *at == '\\';
        else if (*at == '{' || *at == '[')
            depth++;
        else if (*at == '}' || *at == ']')
            depth--;
        else if (!strchr(",: \n\t\r", *at))
            while (!strchr(",:]} \n\t\r", at[1])) at++;
        if (!*at) fail_msg("the text ends in a value");
        at++;
        if (depth > 0) at = test_blank(at);
    } while (depth > 0);
    return at;
}

const char *test_member(const char *at, const char *name)
{
    char quoted[80];
    snprintf(quoted, sizeof quoted, "\"%s\"", name);
    at = test_blank(at);
    bool list = *at == '[';
    if (*at != '{' && !list) fail_msg("'%s' is looked for in no object", name);
    long wanted = list ? strtol(name, NULL, 10) : -1;
    for (at = test_blank(at + 1); *at != '}' && *at != ']'; at = test_blank(at)) {
        bool is = list ? wanted-- == 0 : strncmp(at, quoted, strlen(quoted)) == 0;
        if (!list) {
            at = test_blank(test_behind(at));
            if (*at++ != ':') fail_msg("no colon behind a name");
        }
        if (is) return test_blank(at);
        at = test_blank(test_behind(at));
        if (*at == ',') at++;
    }
    return NULL;
}

const char *test_value_at(const char *text, const char *path)
{
    char part[80];
    while (*path) {
        size_t n = strcspn(path, "/");
        snprintf(part, sizeof part, "%.*s", (int)n, path);
        text = test_member(text, part);
        if (!text) fail_msg("no '%s'", part);
        path += n + (path[n] == '/');
    }
    return text;
}

double test_number_at(const char *text, const char *path)
{
    const char *at = test_value_at(text, path);
    char       *end;
    double      value = strtod(at, &end);
    if (end == at) fail_msg("%s is no number: %.20s", path, at);
    return value;
}

void test_is(const char *text, const char *path, double wanted)
{
    double value = test_number_at(text, path);
    if (!(fabs(value - wanted) <= 1e-9 * fabs(wanted) + 1e-12)) fail_msg("%s is %.15g, not %.15g", path, value, wanted);
}

void test_is_text(const char *text, const char *path, const char *wanted)
{
    const char *at = test_value_at(text, path);
    size_t      n = strlen(wanted);
    if (strncmp(at, wanted, n) != 0 || !strchr(",\n} ]", at[n])) fail_msg("%s is %.60s, not %s", path, at, wanted);
}

size_t test_elements(const char *text, const char *path)
{
    char   name[24];
    size_t n = 0;
    for (text = test_value_at(text, path);; n++) {
        snprintf(name, sizeof name, "%zu", n);
        if (!test_member(text, name)) return n;
    }
}
