/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *text;
    int         exit_code;
} status_table[TM_STATUS_COUNT] = {
#define X(id, code, text) [TM_##id] = { text, code },
    TM_STATUS_LIST(X)
#undef X
};

const char *tm_status_text(tm_status status)
{
    TM_ASSERT(status < TM_STATUS_COUNT);
    return status_table[status].text;
}

int tm_status_exit_code(tm_status status)
{
    TM_ASSERT(status < TM_STATUS_COUNT);
    return status_table[status].exit_code;
}

tm_status tm_fail_at(tm_error *err, tm_status status, const char *file, int line, const char *format, ...)
{
    TM_ASSERT(status != TM_OK);
    if (err && err->status == TM_OK) {
        err->status = status;
        err->file = file;
        err->line = line;
        err->n = 1;
        va_list args;
        va_start(args, format);
        vsnprintf(err->text, sizeof err->text, format, args);
        va_end(args);
    }
    return status;
}

/* --- several failures --------------------------------------------------------------------------------------------- */

static const char left_out[] = "  ... and ";
enum { LONGEST = sizeof((tm_error *)0)->text / 2 }; /* line of several */

const char *tm_error_next(const tm_error *err, const char *at, size_t *length)
{
    if (err->status == TM_OK) return NULL;
    if (!at)
        at = err->n > 1 ? strchr(err->text, '\n') : err->text;
    else if (err->n > 1)
        at += strcspn(at, "\n");
    else
        return NULL;
    if (!at || (err->n > 1 && (!*at || strncmp(at + 1, left_out, strlen(left_out)) == 0))) return NULL;
    at += err->n > 1 ? strlen("\n  ") : 0;
    *length = err->n > 1 ? strcspn(at, "\n") : strlen(at);
    return at;
}

static bool is_told(const tm_error *err, const char *story, size_t n)
{
    size_t length;
    for (const char *line = NULL; (line = tm_error_next(err, line, &length));)
        if (length == n && strncmp(line, story, n) == 0) return true;
    return false;
}

/* A line for each of the failures, where they have room, and the number of all. */
static void add_line(tm_error *err, const char *story, size_t n)
{
    char   list[sizeof err->text - 80]; /* that is for the first line and the last */
    size_t used = 0, length;
    int    told = 0;
    for (const char *line = NULL; (line = tm_error_next(err, line, &length)); told++)
        used += (size_t)snprintf(list + used, sizeof list - used, "\n  %.*s",
                                 (int)(length < LONGEST ? length : LONGEST), line);
    bool fits = n > 0 && told == err->n && used + n + 4 < sizeof list;
    if (fits) snprintf(list + used, sizeof list - used, "\n  %.*s", (int)n, story);
    told += fits;
    err->n++;
    int head = snprintf(err->text, sizeof err->text, "%d problems%s", err->n, list);
    if (told < err->n)
        snprintf(err->text + head, sizeof err->text - (size_t)head, "\n%s%d more", left_out, err->n - told);
}

/* A story is a line. */
static void join_lines(char *text)
{
    for (char *p = text; (p = strchr(p, '\n'));) *p = ' ';
}

static void add_story(tm_error *err, tm_status status, const char *file, int line, const char *story, size_t n)
{
    if (err->status == TM_OK) {
        tm_fail_at(err, status, file, line, "%.*s", (int)n, story);
        return;
    }
    if (err->n <= 1) join_lines(err->text);
    if (!is_told(err, story, n)) add_line(err, story, n < LONGEST ? n : LONGEST);
}

tm_status tm_also_at(tm_error *err, tm_status status, const char *file, int line, const char *format, ...)
{
    char    story[LONGEST];
    va_list args;
    TM_ASSERT(status != TM_OK);
    if (!err) return status;
    va_start(args, format);
    vsnprintf(story, sizeof story, format, args);
    va_end(args);
    join_lines(story);
    add_story(err, status, file, line, story, strlen(story));
    return status;
}

tm_status tm_also_of(tm_error *err, tm_status status, tm_error *own)
{
    size_t length;
    int    told = 0;
    if (status == TM_OK || !err) return status;
    if (err->status == TM_OK) {
        *err = *own;
    } else {
        if (own->n <= 1) join_lines(own->text);
        for (const char *line = NULL; (line = tm_error_next(own, line, &length)); told++)
            add_story(err, own->status, own->file, own->line, line, length);
        for (; told < own->n; told++) add_line(err, "", 0);
    }
    *own = (tm_error){ 0 };
    return status;
}

void tm_assert_failed(const char *expression, const char *file, int line)
{
    fprintf(stderr, "trainmark: bug: %s:%d: %s\n", file, line, expression);
    abort();
}
