/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/mlperf/value.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- parsing ------------------------------------------------------------------------------------------------------ */

typedef struct {
    tm_arena   *arena;
    const char *begin, *at, *end;
    const char *problem;
    int         depth;
} parser;

static bool parse_value(parser *p, tm_json_value *value);

static bool stop(parser *p, const char *problem)
{
    p->problem = problem;
    return false;
}

static char peek(const parser *p)
{
    return p->at < p->end ? *p->at : '\0';
}

static void skip_space(parser *p)
{
    while (p->at < p->end && (*p->at == ' ' || *p->at == '\t' || *p->at == '\n' || *p->at == '\r')) p->at++;
}

static bool take(parser *p, char wanted)
{
    if (p->at >= p->end || *p->at != wanted) return false;
    p->at++;
    return true;
}

static bool take_word(parser *p, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, word, n) != 0) return false;
    p->at += n;
    return true;
}

static size_t skip_digits(parser *p)
{
    const char *from = p->at;
    while (p->at < p->end && *p->at >= '0' && *p->at <= '9') p->at++;
    return (size_t)(p->at - from);
}

static bool parse_number(parser *p, tm_json_value *value)
{
    const char *from = p->at;
    take(p, '-');
    bool   zero = peek(p) == '0';
    size_t digits = zero ? 1 : skip_digits(p);
    if (zero) p->at++;
    if (digits == 0) return stop(p, "expected a value");
    value->integer = true;
    const char *point = p->at;
    if (take(p, '.')) {
        value->integer = skip_digits(p) == 0;
        if (value->integer) p->at = point; /* "1." is the number 1 and something else */
    }
    const char *exponent = p->at;
    if (take(p, 'e') || take(p, 'E')) {
        if (!take(p, '-')) take(p, '+');
        if (skip_digits(p) == 0)
            p->at = exponent;
        else
            value->integer = false;
    }
    if (value->integer && digits > TM_JSON_DIGITS) return stop(p, "an integer of more than 4300 digits");
    value->kind = TM_JSON_NUMBER;
    value->text = tm_arena_text_n(p->arena, from, (size_t)(p->at - from));
    value->number = strtod(value->text, NULL); /* the program never leaves the C locale */
    return true;
}

/* As UTF-8, lone surrogates too; returns the bytes. U+0000 gets the two-byte form. */
static size_t encode(char *out, uint32_t c)
{
    if (c > 0 && c < 0x80) return out[0] = (char)c, 1;
    if (c < 0x800) {
        out[0] = (char)(0xC0 | c >> 6);
        out[1] = (char)(0x80 | (c & 63));
        return 2;
    }
    if (c < 0x10000) {
        out[0] = (char)(0xE0 | c >> 12);
        out[1] = (char)(0x80 | (c >> 6 & 63));
        out[2] = (char)(0x80 | (c & 63));
        return 3;
    }
    out[0] = (char)(0xF0 | c >> 18);
    out[1] = (char)(0x80 | (c >> 12 & 63));
    out[2] = (char)(0x80 | (c >> 6 & 63));
    out[3] = (char)(0x80 | (c & 63));
    return 4;
}

static bool take_hex4(parser *p, uint32_t *out)
{
    if (p->end - p->at < 4) return false;
    uint32_t c = 0;
    for (int i = 0; i < 4; i++) {
        char h = p->at[i];
        int  digit = h >= '0' && h <= '9'   ? h - '0'
                     : h >= 'a' && h <= 'f' ? h - 'a' + 10
                     : h >= 'A' && h <= 'F' ? h - 'A' + 10
                                            : -1;
        if (digit < 0) return false;
        c = c << 4 | (uint32_t)digit;
    }
    p->at += 4;
    *out = c;
    return true;
}

static bool parse_escape(parser *p, char *out, size_t *n)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    char              c = peek(p);
    p->at++;
    const char *known = c ? strchr(from, c) : NULL;
    if (known) {
        out[(*n)++] = to[known - from];
        return true;
    }
    uint32_t high, low;
    if (c != 'u') return stop(p, "unknown escape in a string");
    if (!take_hex4(p, &high)) return stop(p, "\\u without four hexadecimal digits");
    const char *behind = p->at;
    if (high >= 0xD800 && high < 0xDC00 && take_word(p, "\\u") && take_hex4(p, &low) && low >= 0xDC00 && low < 0xE000)
        high = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    else
        p->at = behind;
    *n += encode(out + *n, high);
    return true;
}

/* Behind the opening quote. A Latin-1 byte makes two bytes of UTF-8 at most, an escape fewer than it has. */
static const char *parse_text(parser *p)
{
    const char *close = p->at;
    size_t      wide = 0;
    for (; close < p->end && *close != '"'; close++) {
        if (*close == '\\' && close + 1 < p->end) close++;
        wide += (unsigned char)*close >= 0x80;
    }
    if (close >= p->end) return stop(p, "a string without its closing quote"), NULL;
    char  *out = tm_arena_take(p->arena, (size_t)(close - p->at) + wide + 1);
    size_t n = 0;
    while (*p->at != '"') { /* escapes end before it, too */
        unsigned char c = (unsigned char)*p->at;
        if (c < 0x20) return stop(p, "a control character in a string"), NULL;
        p->at++;
        if (c == '\\') {
            if (!parse_escape(p, out, &n)) return NULL;
        } else if (c < 0x80) {
            out[n++] = (char)c;
        } else {
            n += encode(out + n, c);
        }
    }
    p->at++;
    return out;
}

/* The items of a list, or the members of an object, behind the opening bracket. */
static bool parse_items(parser *p, tm_json_value *value, char close)
{
    const tm_json_value **link = &value->first;
    int                   members = 0;
    if (++p->depth > TM_JSON_DEPTH) return stop(p, "nested deeper than 200 levels");
    value->kind = close == '}' ? TM_JSON_OBJECT : TM_JSON_LIST;
    skip_space(p);
    if (take(p, close)) return p->depth--, true;
    do {
        tm_json_value *item = tm_arena_take(p->arena, sizeof *item);
        skip_space(p);
        if (close == '}') {
            if (++members > TM_JSON_MEMBERS) return stop(p, "an object of more than 4096 members");
            if (!take(p, '"')) return stop(p, "expected a member's name in double quotes");
            item->name = parse_text(p);
            if (!item->name) return false;
            skip_space(p);
            if (!take(p, ':')) return stop(p, "expected ':'");
            skip_space(p);
        }
        if (!parse_value(p, item)) return false;
        *link = item;
        link = &item->next;
        skip_space(p);
    } while (take(p, ','));
    if (!take(p, close)) return stop(p, close == '}' ? "expected ',' or '}'" : "expected ',' or ']'");
    p->depth--;
    return true;
}

static bool parse_constant(parser *p, tm_json_value *value)
{
    static const struct {
        const char  *word;
        tm_json_kind kind;
        double       number;
    } constants[] = { { "null", TM_JSON_NULL, 0 },
                      { "true", TM_JSON_BOOL, 1 },
                      { "false", TM_JSON_BOOL, 0 },
                      { "NaN", TM_JSON_NUMBER, (double)NAN },
                      { "Infinity", TM_JSON_NUMBER, (double)INFINITY },
                      { "-Infinity", TM_JSON_NUMBER, -(double)INFINITY } };
    for (size_t i = 0; i < sizeof constants / sizeof *constants; i++) {
        if (!take_word(p, constants[i].word)) continue;
        value->kind = constants[i].kind;
        value->boolean = value->kind == TM_JSON_BOOL && constants[i].number > 0;
        value->number = constants[i].number;
        value->text = constants[i].word;
        return true;
    }
    return false;
}

static bool parse_value(parser *p, tm_json_value *value)
{
    if (take(p, '{')) return parse_items(p, value, '}');
    if (take(p, '[')) return parse_items(p, value, ']');
    if (take(p, '"')) {
        value->kind = TM_JSON_TEXT;
        value->text = parse_text(p);
        return value->text != NULL;
    }
    return parse_constant(p, value) || parse_number(p, value);
}

const tm_json_value *tm_json_parse(tm_arena *arena, const char *bytes, size_t length, const char **problem,
                                   size_t *where)
{
    parser         p = { .arena = arena, .begin = bytes, .at = bytes, .end = bytes + length };
    tm_json_value *value = tm_arena_take(arena, sizeof *value);
    skip_space(&p);
    if (parse_value(&p, value)) {
        skip_space(&p);
        if (p.at == p.end) return value;
        stop(&p, "more text after the value");
    }
    *problem = p.problem;
    *where = (size_t)(p.at - p.begin);
    return NULL;
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

const tm_json_value *tm_json_member(const tm_json_value *object, const char *name)
{
    const tm_json_value *found = NULL;
    if (!object || object->kind != TM_JSON_OBJECT) return NULL;
    for (const tm_json_value *m = object->first; m; m = m->next)
        if (strcmp(m->name, name) == 0) found = m;
    return found;
}

bool tm_json_is_text(const tm_json_value *value, const char *text)
{
    return value && value->kind == TM_JSON_TEXT && strcmp(value->text, text) == 0;
}

bool tm_json_is_number(const tm_json_value *value)
{
    return value && (value->kind == TM_JSON_NUMBER || value->kind == TM_JSON_BOOL);
}

static bool same_double(double a, double b)
{
    return !(a < b) && !(a > b) && !isnan(a) && !isnan(b);
}

/* Above 2^53 two integers may share a double, and an integer may round to a float it does not equal. */
static bool same_number(const tm_json_value *a, const tm_json_value *b)
{
    const double exact = 9007199254740992.0;
    if (!same_double(a->number, b->number)) return false;
    if (fabs(a->number) < exact || (!a->integer && !b->integer)) return true;
    if (a->integer && b->integer) return strcmp(a->text, b->text) == 0;
    if (isinf(a->number)) return false; /* a long integer is not infinite */
    char text[400];
    snprintf(text, sizeof text, "%.0f", a->number); /* all digits of a double that is an integer */
    return strcmp(text, a->integer ? a->text : b->text) == 0;
}

static bool same_object(const tm_json_value *a, const tm_json_value *b)
{
    for (const tm_json_value *m = a->first; m; m = m->next) {
        const tm_json_value *other = tm_json_member(b, m->name);
        if (!other || !tm_json_equal(tm_json_member(a, m->name), other)) return false;
    }
    for (const tm_json_value *m = b->first; m; m = m->next)
        if (!tm_json_member(a, m->name)) return false;
    return true;
}

bool tm_json_equal(const tm_json_value *a, const tm_json_value *b)
{
    if (tm_json_is_number(a) && tm_json_is_number(b)) return same_number(a, b);
    if (a->kind != b->kind) return false;
    if (a->kind == TM_JSON_TEXT) return strcmp(a->text, b->text) == 0;
    if (a->kind == TM_JSON_OBJECT) return same_object(a, b);
    if (a->kind != TM_JSON_LIST) return true;
    const tm_json_value *x = a->first, *y = b->first;
    for (; x && y; x = x->next, y = y->next)
        if (!tm_json_equal(x, y)) return false;
    return !x && !y;
}

/* --- printing ----------------------------------------------------------------------------------------------------- */

/* The code point at s, which ends with NUL; *length of its bytes. U+FFFD for what is not UTF-8 (surrogates count). */
static uint32_t decode(const unsigned char *s, size_t *length)
{
    size_t   n = s[0] >= 0xF0 ? 4 : s[0] >= 0xE0 ? 3 : 2;
    uint32_t c = s[0] & (0xFFu >> (n + 1));
    *length = 1;
    if (s[0] < 0x80) return s[0];
    if (s[0] < 0xC0 || s[0] > 0xF4) return 0xFFFD;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xC0) != 0x80) return 0xFFFD;
        c = c << 6 | (s[i] & 63u);
    }
    *length = n;
    return c;
}

void tm_json_print_text(const char *text, tm_text *out)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    tm_text_add_n(out, "\"", 1);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t      n;
        uint32_t    c = decode(s, &n);
        const char *special = c < 0x80 && c ? strchr(from, (int)c) : NULL;
        if (special)
            tm_text_add_n(out, (char[]){ '\\', to[special - from] }, 2);
        else if (c >= 0x20 && c < 0x7F)
            tm_text_add_n(out, (const char *)s, 1);
        else if (c == 0x7F)
            tm_text_add_n(out, "\x7f", 1); /* ASCII: Python leaves it */
        else if (c < 0x10000)
            tm_text_printf(out, "\\u%04x", (unsigned)c);
        else
            tm_text_printf(out, "\\u%04x\\u%04x", (unsigned)(0xD800 + ((c - 0x10000) >> 10)),
                           (unsigned)(0xDC00 + ((c - 0x10000) & 0x3FF)));
        s += n;
    }
    tm_text_add_n(out, "\"", 1);
}

void tm_json_print(const tm_json_value *value, tm_text *out)
{
    switch (value->kind) {
    case TM_JSON_NULL:
    case TM_JSON_BOOL:
    case TM_JSON_NUMBER:
        tm_text_add(out, value->kind == TM_JSON_NULL ? "null" : value->text);
        return;
    case TM_JSON_TEXT:
        tm_json_print_text(value->text, out);
        return;
    case TM_JSON_LIST:
    case TM_JSON_OBJECT:
        break;
    }
    bool object = value->kind == TM_JSON_OBJECT;
    tm_text_add_n(out, object ? "{" : "[", 1);
    for (const tm_json_value *item = value->first; item; item = item->next) {
        if (item != value->first) tm_text_add_n(out, ", ", 2);
        if (object) {
            tm_json_print_text(item->name, out);
            tm_text_add_n(out, ": ", 2);
        }
        tm_json_print(item, out);
    }
    tm_text_add_n(out, object ? "}" : "]", 1);
}
