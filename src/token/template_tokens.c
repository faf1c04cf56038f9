/* SPDX-License-Identifier: Apache-2.0 */
/* token/template_tokens.c - what stands where in a template: tokens of a tag, and where it ends. */
#include "token/template_parser.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

void *tm_tmpl_fail(tm_tmpl_parser *p, tm_status status, const char *format, ...)
{
    char    text[400];
    va_list args;
    if (p->failed) return NULL;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p->failed = true;
    p->status = tm_fail(p->err, status, "%.200s, line %d: %s", p->name, p->line, text);
    p->token = (tm_tmpl_token){ .kind = TM_TMPL_END, .text = "" };
    return NULL;
}

bool tm_tmpl_at(const tm_tmpl_parser *p, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(p->end - p->at) >= n && strncmp(p->at, text, n) == 0;
}

void tm_tmpl_skip(tm_tmpl_parser *p, size_t n)
{
    for (; n > 0; n--) p->line += *p->at++ == '\n';
}

static bool is_word(int c)
{
    return isalnum(c) || c == '_';
}

static void skip_space(tm_tmpl_parser *p)
{
    for (size_t n; (n = tm_space_at(p->at, p->end));) tm_tmpl_skip(p, n);
}

/* The end of the tag, with the blanks that go with it. */
bool tm_tmpl_tag_ends(tm_tmpl_parser *p)
{
    const char close[3] = { p->tag == '{' ? '}' : p->tag, '}', '\0' };
    char       dashed[4] = { '-', close[0], '}', '\0' }, kept[4] = { '+', close[0], '}', '\0' };
    if (p->open > 0) return false;
    if (tm_tmpl_at(p, dashed)) {
        tm_tmpl_skip(p, 3);
        skip_space(p);
    } else if (p->tag != '{' && tm_tmpl_at(p, kept)) {
        tm_tmpl_skip(p, 3);
    } else if (tm_tmpl_at(p, close)) {
        tm_tmpl_skip(p, 2);
        if (p->tag != '{' && p->at < p->end && *p->at == '\n') tm_tmpl_skip(p, 1);
    } else {
        return false;
    }
    p->line_begins = p->at[-1] == '\n';
    return true;
}

/* Behind '\\': a character by its number, or the end of a line, which falls out. False: something else stands there. */
static bool read_code(tm_tmpl_parser *p, tm_text *out)
{
    const char      *kinds = "xuU", *kind = *p->at ? strchr(kinds, *p->at) : NULL;
    bool             octal = *p->at >= '0' && *p->at <= '7';
    size_t           most = kind ? (size_t)2 << (kind - kinds) : 3, n = 0;
    char             digits[9] = { 0 };
    utf8proc_uint8_t bytes[4];
    if (*p->at == '\n') {
        tm_tmpl_skip(p, 1);
        return true;
    }
    if (*p->at == 'N') tm_tmpl_fail(p, TM_UNSUPPORTED, "the escape '\\N' in a string is not supported");
    if (!kind && !octal) return false;
    if (kind) tm_tmpl_skip(p, 1);
    while (n < most && p->at < p->end &&
           (kind ? isxdigit((unsigned char)*p->at) != 0 : *p->at >= '0' && *p->at <= '7')) {
        digits[n++] = *p->at;
        tm_tmpl_skip(p, 1);
    }
    long code = strtol(digits, NULL, kind ? 16 : 8);
    if (kind && n < most) tm_tmpl_fail(p, TM_FORMAT, "an escape '\\%c' has %zu digits", *kind, most);
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) || code == 0)
        tm_tmpl_fail(p, TM_UNSUPPORTED, "a string with the character of number 0x%lx is not supported", code);
    else
        tm_text_add_n(out, (const char *)bytes, (size_t)utf8proc_encode_char((utf8proc_int32_t)code, bytes));
    return true;
}

static void read_string(tm_tmpl_parser *p)
{
    char    quote = *p->at;
    tm_text text = { 0 };
    tm_tmpl_skip(p, 1);
    while (p->at < p->end && *p->at != quote) {
        char c = *p->at;
        if (c == '\\' && p->at + 1 < p->end) {
            static const char from[] = "ntrabfv\\'\"", to[] = "\n\t\r\a\b\f\v\\'\"";
            tm_tmpl_skip(p, 1);
            const char *known = *p->at ? strchr(from, *p->at) : NULL;
            if (read_code(p, &text)) continue;
            if (!known) tm_text_add(&text, "\\"); /* as Python leaves what it does not know */
            c = known ? to[known - from] : *p->at;
        }
        tm_text_add_n(&text, &c, 1);
        tm_tmpl_skip(p, 1);
    }
    if (p->at == p->end) tm_tmpl_fail(p, TM_FORMAT, "a string has no end");
    if (p->at < p->end) tm_tmpl_skip(p, 1);
    p->token = (tm_tmpl_token){ .kind = TM_TMPL_STRING,
                                .text = tm_arena_text_n(p->arena, text.data ? text.data : "", text.length),
                                .length = text.length };
    tm_text_fini(&text);
}

static void read_number(tm_tmpl_parser *p)
{
    const char *from = p->at;
    bool        real = false;
    while (p->at < p->end && (isdigit((unsigned char)*p->at) || *p->at == '_')) p->at++;
    if (p->at + 1 < p->end && *p->at == '.' && isdigit((unsigned char)p->at[1])) {
        real = true;
        p->at++;
        while (p->at < p->end && isdigit((unsigned char)*p->at)) p->at++;
    }
    if (p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
        const char *sign = p->at + 1 + (p->at + 1 < p->end && (p->at[1] == '+' || p->at[1] == '-'));
        if (sign < p->end && isdigit((unsigned char)*sign)) {
            real = true;
            p->at = sign;
            while (p->at < p->end && isdigit((unsigned char)*p->at)) p->at++;
        }
    }
    char *text = tm_arena_text_n(p->arena, from, (size_t)(p->at - from)), *to = text;
    for (char *c = text; *c; c++)
        if (*c != '_') *to++ = *c;
    *to = '\0';
    p->token = (tm_tmpl_token){ .kind = real ? TM_TMPL_FLOAT : TM_TMPL_INT, .text = text };
    p->token.real = strtod(text, NULL);
    errno = 0;
    p->token.integer = real ? 0 : strtoll(text, NULL, 10);
    if (errno == ERANGE && !real) tm_tmpl_fail(p, TM_UNSUPPORTED, "an integer of more than 64 bits is not supported");
    if (!real && *text == '0' && text[strspn(text, "0")])
        tm_tmpl_fail(p, TM_FORMAT, "the number %s begins with 0", text);
}

void tm_tmpl_advance(tm_tmpl_parser *p)
{
    static const char *const signs[] = { "==", "!=", "<=", ">=", "//", "**", "+", "-", "*", "/", "%", "~", "<",
                                         ">",  "=",  "(",  ")",  "[",  "]",  "{", "}", ",", ":", ".", "|" };
    if (p->failed) return;
    skip_space(p);
    p->token = (tm_tmpl_token){ .kind = TM_TMPL_END, .text = "" };
    if (p->at == p->end) {
        tm_tmpl_fail(p, TM_FORMAT, "a tag has no end");
        return;
    }
    if (tm_tmpl_tag_ends(p)) return;
    unsigned char c = (unsigned char)*p->at;
    if (c == '\'' || c == '"') {
        read_string(p);
    } else if (isdigit(c)) {
        read_number(p);
    } else if (is_word(c)) {
        const char *from = p->at;
        while (p->at < p->end && is_word((unsigned char)*p->at)) p->at++;
        p->token.kind = TM_TMPL_NAME;
        p->token.length = (size_t)(p->at - from);
        p->token.text = tm_arena_text_n(p->arena, from, p->token.length);
    } else {
        size_t i = 0, n = sizeof signs / sizeof signs[0];
        while (i < n && !tm_tmpl_at(p, signs[i])) i++;
        if (i == n) {
            tm_tmpl_fail(p, TM_FORMAT, "'%c' is not part of the language", c);
            return;
        }
        p->token = (tm_tmpl_token){ .kind = TM_TMPL_SIGN, .text = signs[i], .length = strlen(signs[i]) };
        p->open += strchr("([{", *signs[i]) ? 1 : strchr(")]}", *signs[i]) ? -1 : 0;
        tm_tmpl_skip(p, p->token.length);
    }
}

bool tm_tmpl_is(const tm_tmpl_parser *p, const char *text)
{
    return (p->token.kind == TM_TMPL_SIGN || p->token.kind == TM_TMPL_NAME) && strcmp(p->token.text, text) == 0;
}

bool tm_tmpl_take(tm_tmpl_parser *p, const char *text)
{
    if (!tm_tmpl_is(p, text)) return false;
    tm_tmpl_advance(p);
    return true;
}

void tm_tmpl_want(tm_tmpl_parser *p, const char *text)
{
    if (!tm_tmpl_take(p, text))
        tm_tmpl_fail(p, TM_FORMAT, "'%s' is expected, found '%.40s'", text,
                     p->token.kind == TM_TMPL_END ? "the end of the tag" : p->token.text);
}

const char *tm_tmpl_want_name(tm_tmpl_parser *p)
{
    const char *name = p->token.text;
    if (p->token.kind != TM_TMPL_NAME)
        return tm_tmpl_fail(p, TM_FORMAT, "a name is expected, found '%.40s'", p->token.text);
    tm_tmpl_advance(p);
    return name;
}
