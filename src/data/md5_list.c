/* SPDX-License-Identifier: Apache-2.0 */
#include "data/md5_list.h"

#include "base/arena.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { DIGITS = TM_MD5_HEX - 1 };

static bool take_digits(const char *line, char out[TM_MD5_HEX])
{
    for (int i = 0; i < DIGITS; i++) {
        char c = line[i];
        if (c >= 'A' && c <= 'F') c = (char)(c - 'A' + 'a');
        if (!(c >= '0' && c <= '9') && !(c >= 'a' && c <= 'f')) return false;
        out[i] = c;
    }
    out[DIGITS] = '\0';
    return true;
}

/* NULL if an escape is unknown. */
static char *take_name(const char *p, size_t n, bool escaped)
{
    char  *name = tm_alloc(n + 1);
    size_t length = 0;
    for (size_t i = 0; i < n; i++) {
        char c = p[i];
        if (escaped && c == '\\') {
            c = ++i < n && p[i] == 'n' ? '\n' : i < n && p[i] == '\\' ? '\\' : '\0';
        }
        if (c == '\0') {
            free(name);
            return NULL;
        }
        name[length++] = c;
    }
    name[length] = '\0';
    return name;
}

static bool take_line(const char *line, size_t n, tm_md5_line *out)
{
    bool   escaped = n > 0 && line[0] == '\\';
    size_t at = escaped;
    if (n < at + DIGITS + 3 || !take_digits(line + at, out->md5)) return false;
    const char *rest = line + at + DIGITS;
    if (rest[0] != ' ' || (rest[1] != ' ' && rest[1] != '*')) return false;
    out->name = take_name(rest + 2, n - at - DIGITS - 2, escaped);
    return out->name != NULL;
}

tm_status tm_md5_list_parse(const char *name, const char *text, size_t n, tm_md5_list *out, tm_error *err)
{
    *out = (tm_md5_list){ 0 };
    tm_status st = TM_OK;
    for (size_t at = 0, number = 1; at < n && st == TM_OK; number++) {
        const char *end = memchr(text + at, '\n', n - at);
        size_t      length = end ? (size_t)(end - text) - at : n - at;
        tm_md5_line line;
        if (out->count == TM_MD5_MAX_LINES || !take_line(text + at, length, &line)) {
            st = tm_fail(err, TM_FORMAT,
                         "'%s': line %zu is not '<32 hexadecimal digits>  <name>' as md5sum writes it (at most %d "
                         "lines)",
                         name, number, TM_MD5_MAX_LINES);
        } else {
            out->lines = tm_grow(out->lines, &out->room, out->count, sizeof *out->lines);
            out->lines[out->count++] = line;
        }
        at += length + 1;
    }
    if (st == TM_OK && out->count == 0) st = tm_fail(err, TM_FORMAT, "'%s' lists no files", name);
    if (st != TM_OK) tm_md5_list_free(out);
    return st;
}

void tm_md5_list_free(tm_md5_list *list)
{
    for (size_t i = 0; i < list->count; i++) free(list->lines[i].name);
    free(list->lines);
    *list = (tm_md5_list){ 0 };
}
