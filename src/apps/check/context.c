/* SPDX-License-Identifier: Apache-2.0 */
/* apps/check/context.c - how a check reads and what it says. */
#include "apps/check/context.h"

#include "base/root.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* --- saying ---------------------------------------------------------------------------------- */

static const char *format_text(tm_arena *arena, const char *format, va_list args) __attribute__((format(printf, 2, 0)));
static const char *format_text(tm_arena *arena, const char *format, va_list args)
{
    char text[2048];
    vsnprintf(text, sizeof text, format, args);
    return tm_arena_text(arena, text);
}

#define FORMAT_INTO(field)                                                                                             \
    do {                                                                                                               \
        va_list args;                                                                                                  \
        va_start(args, format);                                                                                        \
        c->field = format_text(c->arena, format, args);                                                                \
        va_end(args);                                                                                                  \
    } while (0)

void check_say(check *c, tm_check_status status, const char *format, ...)
{
    TM_ASSERT(c->status == TM_CHECK_STATUSES && (c->row->outcomes & 1u << status));
    c->status = status;
    FORMAT_INTO(observed);
}

void check_expect(check *c, const char *format, ...)
{
    FORMAT_INTO(expected);
}

void check_source(check *c, const char *format, ...)
{
    FORMAT_INTO(source);
}

void check_remedy(check *c, const char *format, ...)
{
    FORMAT_INTO(remedy);
}

void check_skip_unreadable(check *c, const char *path)
{
    int cause = errno;
    check_say(c, TM_CHECK_SKIP, "%s: %s", path, cause ? strerror(cause) : "empty");
}

void check_list_add(tm_text *list, size_t *count, size_t most, const char *format, ...)
{
    char    word[256];
    va_list args;
    if ((*count)++ >= most) return;
    va_start(args, format);
    vsnprintf(word, sizeof word, format, args);
    va_end(args);
    if (list->length > 0) tm_text_add(list, ", ");
    tm_text_add(list, word);
}

void check_list_end(tm_text *list, size_t count, size_t most)
{
    if (count > most) tm_text_printf(list, " and %zu more", count - most);
}

/* --- reading --------------------------------------------------------------------------------- */

const char *check_path(check *c, const char *format, ...)
{
    char    path[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof path, format, args);
    va_end(args);
    return tm_arena_text(c->arena, path);
}

/* What a stranger wrote goes into reports: control characters do not. */
static void make_printable(char *text, bool lines)
{
    for (unsigned char *p = (unsigned char *)text; *p; p++)
        if ((*p < 0x20 && !(lines && (*p == '\n' || *p == '\t'))) || *p == 0x7F) *p = *p == '\t' ? ' ' : '?';
}

const char *check_line(check *c, const char *path)
{
    char text[4096];
    if (!tm_root_read_line(c->sysroot, path, text, sizeof text)) return NULL;
    text[strcspn(text, "\n")] = '\0';
    make_printable(text, false);
    return tm_arena_text(c->arena, text);
}

const char *check_line_in(check *c, const char *folder, const char *name)
{
    return check_line(c, check_path(c, "%s/%s", folder, name));
}

const char *check_content(check *c, const char *path)
{
    enum { LIMIT = 1 << 20 };
    tm_text text = { 0 };
    char   *copy = NULL;
    if (tm_root_read(c->sysroot, path, LIMIT, &text)) {
        for (size_t i = 0; i < text.length; i++)
            if (text.data[i] == '\0') text.data[i] = '?';
        make_printable(text.data, true);
        copy = tm_arena_text_n(c->arena, text.data, text.length);
    }
    int cause = errno;
    tm_text_fini(&text);
    errno = cause;
    return copy;
}

const char **check_list(check *c, const char *path, const char *prefix, bool number, size_t *n)
{
    enum { LIMIT = 65536 };
    size_t       all, length = strlen(prefix);
    const char **names = tm_root_list(c->sysroot, path, LIMIT, c->arena, &all);
    *n = 0;
    for (size_t i = 0; i < all; i++) {
        if (strncmp(names[i], prefix, length) != 0) continue;
        if (number &&
            (!isdigit((unsigned char)names[i][length]) || names[i][length + strspn(names[i] + length, "0123456789")]))
            continue;
        names[(*n)++] = names[i];
    }
    return names;
}

/* --- small parsers --------------------------------------------------------------------------- */

bool check_number(const char *text, int64_t *out)
{
    char *end;
    if (!text) return false;
    errno = 0;
    *out = strtoll(text, &end, 0);
    bool any = end != text;
    while (isspace((unsigned char)*end)) end++;
    return any && *end == '\0' && errno == 0;
}

int64_t check_field(const char *text, const char *name)
{
    size_t n = strlen(name);
    for (const char *line = text; line && *line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL) {
        while (*line == ' ') line++;
        if (strncmp(line, name, n) != 0) continue;
        const char *value = line + n + (line[n] == ':');
        if (*value != ' ' && *value != '\t') continue;
        while (*value == ' ' || *value == '\t') value++;
        if (!isdigit((unsigned char)*value)) return -1;
        return strtoll(value, NULL, 10);
    }
    return -1;
}

int64_t check_count_cpus(const char *list)
{
    enum { MOST = 1 << 20 };
    int64_t count = 0;
    for (const char *p = list; *p;) {
        char *end;
        if (!isdigit((unsigned char)*p)) return -1;
        long long from = strtoll(p, &end, 10), to = from;
        if (*end == '-') {
            p = end + 1;
            if (!isdigit((unsigned char)*p)) return -1;
            to = strtoll(p, &end, 10);
        }
        if (to < from || to > MOST) return -1;
        count += to - from + 1;
        if (*end == ',')
            end++;
        else if (*end)
            return -1;
        p = end;
    }
    return count <= MOST ? count : -1;
}

const char *check_choice(check *c, const char *text)
{
    const char *from = strchr(text, '['), *to = from ? strchr(from, ']') : NULL;
    if (to) return tm_arena_text_n(c->arena, from + 1, (size_t)(to - from - 1));
    return text;
}

const char *check_env(const check *c, const char *name)
{
    size_t n = strlen(name);
    for (char **variable = c->host->environment; variable && *variable; variable++)
        if (strncmp(*variable, name, n) == 0 && (*variable)[n] == '=')
            return (*variable)[n + 1] ? *variable + n + 1 : NULL;
    return NULL;
}

bool check_running(check *c, const char *name)
{
    size_t       n;
    const char **pids = check_list(c, "/proc", "", true, &n);
    for (size_t i = 0; i < n; i++) {
        const char *own = check_line(c, check_path(c, "/proc/%s/comm", pids[i]));
        if (own && strcmp(own, name) == 0) return true;
    }
    return false;
}

char *check_utc(int64_t wall_ms, char out[32])
{
    time_t    seconds = (time_t)(wall_ms / 1000);
    struct tm parts;
    strcpy(out, "unknown");
    if (wall_ms < 0 || wall_ms >= INT64_C(253402300800000) || !gmtime_r(&seconds, &parts)) return out;
    strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &parts);
    return out;
}

bool check_argument(const char *cmdline, const char *name, const char *value)
{
    size_t n = strlen(name), m = strlen(value);
    for (const char *word = cmdline; *word; word += strcspn(word, " \t\n")) {
        word += strspn(word, " \t\n");
        size_t length = strcspn(word, " \t\n");
        if (strncmp(word, name, n) != 0 || word[n] != '=') continue;
        for (const char *part = word + n; part < word + length; part += 1 + strcspn(part + 1, ", \t\n"))
            if (strncmp(part + 1, value, m) == 0 && strchr(", \t\n", part[1 + m])) return true; /* '\0' counts */
    }
    return false;
}
