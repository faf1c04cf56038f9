/* SPDX-License-Identifier: Apache-2.0 */
#include "config/shell.h"

#include "base/text.h"
#include "config/internal.h"

#include <ctype.h>
#include <string.h>

enum { MAX_VARIABLES = 1000, MAX_VALUE = 1 << 16 };

typedef struct {
    tm_arena     *arena;
    const char   *name; /* of the file */
    char *const  *environment;
    const char   *p, *end; /* what is left */
    int           line;
    tm_yaml      *map;
    tm_yaml_item *last;
    tm_error     *err;
} reader;

static bool is_name(char c)
{
    return isalnum((unsigned char)c) || c == '_';
}

static tm_status refuse(const reader *r, const char *at, const char *why)
{
    size_t n = 0;
    while (at + n < r->end && at[n] != '\n' && n < 80) n++;
    return tm_fail(
        r->err, TM_FORMAT,
        "%s:%d: '%.*s' %s; of shell files only export NAME=VALUE is read, nothing is executed: leave it out, "
        "or write what it sets",
        r->name, r->line, (int)n, at, why);
}

static tm_yaml_item *find(const reader *r, const char *name)
{
    tm_yaml_item *item = r->map->first;
    while (item && strcmp(item->key, name) != 0) item = item->next;
    return item;
}

static void keep(reader *r, const char *name, const char *text)
{
    tm_yaml      *value = tm_arena_take(r->arena, sizeof *value);
    tm_yaml_item *item = find(r, name);
    *value = (tm_yaml){ .kind = TM_YAML_SCALAR, .line = r->line, .text = text, .nodes = 1, .height = 1 };
    if (!item) {
        item = tm_arena_take(r->arena, sizeof *item);
        if (r->last)
            r->last->next = item;
        else
            r->map->first = item;
        r->last = item;
        r->map->count++;
    }
    *item = (tm_yaml_item){ .key = name, .line = r->line, .value = value, .next = item->next };
}

/* Behind the parenthesis that closes the one at p. */
static const char *behind_parenthesis(const reader *r, const char *p)
{
    int depth = 0;
    for (; p < r->end && *p != '\n'; p++) {
        depth += (*p == '(') - (*p == ')');
        if (depth == 0) return p + 1;
    }
    return NULL;
}

/* $NAME, ${NAME}, ${NAME:-default} or $(...) at r->p. *computed: only a shell knows it. */
static tm_status expand(reader *r, tm_text *out, bool *computed)
{
    const char *start = r->p++;
    bool        braces = r->p < r->end && *r->p == '{';
    if (r->p < r->end && *r->p == '(') {
        *computed = true;
        r->p = behind_parenthesis(r, r->p);
        if (r->p) return TM_OK;
        r->p = start;
        return refuse(r, start, "has no end");
    }
    r->p += braces;
    const char *from = r->p, *fallback = NULL, *fallback_end = NULL;
    while (r->p < r->end && is_name(*r->p)) r->p++;
    char *name = tm_arena_text_n(r->arena, from, (size_t)(r->p - from));
    if (braces && r->end - r->p > 2 && strncmp(r->p, ":-", 2) == 0) {
        fallback = fallback_end = r->p + 2;
        while (fallback_end < r->end && *fallback_end != '}' && *fallback_end != '\n') fallback_end++;
        r->p = fallback_end;
    }
    if (!*name || (braces && (r->p >= r->end || *r->p != '}'))) return refuse(r, start, "is no plain variable");
    r->p += braces;
    const tm_yaml_item *before = find(r, name);
    const char         *value = before ? before->value->text : tm_environment_find(r->environment, name);
    *computed |= before && strcmp(before->value->text, TM_SHELL_COMPUTED) == 0;
    if (!value && !fallback) return refuse(r, start, "is set by nothing");
    if (value && (*value || !fallback))
        tm_text_add(out, value);
    else
        tm_text_add_n(out, fallback, (size_t)(fallback_end - fallback));
    return TM_OK;
}

/* A value, quoted or not, from r->p to where it ends. */
static tm_status read_value(reader *r, const char **text)
{
    tm_text     out = { 0 };
    const char *start = r->p;
    char        quote = 0;
    bool        computed = false;
    tm_status   st = TM_OK;
    tm_text_add(&out, "");
    while (st == TM_OK && r->p < r->end && (*r->p != '\n' || quote)) {
        char c = *r->p;
        if (!quote && (c == ';' || isspace((unsigned char)c) || c == '&')) break;
        if (c == '\n' || out.length > MAX_VALUE) {
            st = refuse(r, start, "does not end in its line");
        } else if (c == '\'' || c == '"') {
            if (quote && c != quote)
                tm_text_add_n(&out, &c, 1);
            else
                quote = quote ? 0 : c;
            r->p++;
        } else if (c == '$' && quote != '\'') {
            st = expand(r, &out, &computed);
        } else if ((c == '`' || c == '\\' || c == '|' || c == '<' || c == '>') && quote != '\'') {
            st = refuse(r, start, "is more than a value");
        } else {
            tm_text_add_n(&out, r->p++, 1);
        }
    }
    if (st == TM_OK && quote) st = refuse(r, start, "has no closing quote");
    *text = computed ? TM_SHELL_COMPUTED : tm_arena_text(r->arena, out.data);
    tm_text_fini(&out);
    return st;
}

static void skip_blanks(reader *r)
{
    while (r->p < r->end && (*r->p == ' ' || *r->p == '\t' || *r->p == '\r')) r->p++;
}

/* [export] NAME=VALUE */
static tm_status read_statement(reader *r)
{
    static const char word[] = "export";
    const char       *start = r->p, *text;
    if ((size_t)(r->end - r->p) > sizeof word && strncmp(r->p, word, sizeof word - 1) == 0 &&
        (r->p[sizeof word - 1] == ' ' || r->p[sizeof word - 1] == '\t')) {
        r->p += sizeof word;
        skip_blanks(r);
    }
    const char *from = r->p;
    while (r->p < r->end && is_name(*r->p)) r->p++;
    if (r->p == from || isdigit((unsigned char)*from) || r->p >= r->end || *r->p != '=')
        return refuse(r, start, "is no export NAME=VALUE");
    char *name = tm_arena_text_n(r->arena, from, (size_t)(r->p++ - from));
    TM_TRY(read_value(r, &text));
    if (r->map->count >= MAX_VARIABLES) return refuse(r, start, "is one of more than 1000 variables");
    keep(r, name, text);
    return TM_OK;
}

/* Statements of a line, and a remark behind them. */
static tm_status read_line(reader *r)
{
    for (;;) {
        skip_blanks(r);
        if (r->p >= r->end || *r->p == '\n') return TM_OK;
        if (*r->p == '#') {
            while (r->p < r->end && *r->p != '\n') r->p++;
            return TM_OK;
        }
        const char *start = r->p;
        TM_TRY(read_statement(r));
        skip_blanks(r);
        if (r->p >= r->end || *r->p == '\n' || *r->p == '#') continue;
        if (*r->p == ';')
            r->p++;
        else if (r->end - r->p > 1 && strncmp(r->p, "&&", 2) == 0)
            r->p += 2;
        else
            return refuse(r, start, "is more than export NAME=VALUE");
    }
}

tm_status tm_shell_parse(tm_arena *arena, const char *bytes, size_t length, const char *name, char *const *environment,
                         const tm_yaml **root, tm_error *err)
{
    reader r = { .arena = arena,
                 .name = name,
                 .environment = environment,
                 .p = bytes,
                 .end = bytes + length,
                 .line = 1,
                 .map = tm_arena_take(arena, sizeof *r.map),
                 .err = err };
    *r.map = (tm_yaml){ .kind = TM_YAML_MAP, .line = 1, .nodes = 1, .height = 2 };
    *root = NULL;
    if (memchr(bytes, '\0', length))
        return tm_fail(err, TM_FORMAT, "'%s' holds a NUL byte; a shell file is text", name);
    for (; r.p < r.end; r.p++, r.line++) {
        TM_TRY(read_line(&r));
        if (r.p >= r.end) break;
    }
    if (r.map->count) *root = r.map;
    return TM_OK;
}
