/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/mlperf/python.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Adds 1 to the last of the decimal digits "d.ddd" in front of the exponent; false where that would need another digit.
 */
static bool next_up(char *text)
{
    for (char *c = strchr(text, 'e') - 1; c >= text; c--) {
        if (*c == '.') continue;
        if (*c != '9') return ++*c, true;
        *c = '0';
    }
    return false;
}

static bool reads_back(const char *text, double value)
{
    double back = strtod(text, NULL);
    return !(back < value) && !(back > value);
}

/* The shortest "d.ddde+XX" that reads back as `value`, which is positive or 0. Just below a power of two doubles lie
 * twice as close: there the nearest decimal may be another double while the next one up is this. */
static void shortest(double value, char text[32])
{
    for (int digits = 1; digits < 17; digits++) {
        snprintf(text, 32, "%.*e", digits - 1, value);
        if (reads_back(text, value)) return;
        if (next_up(text) && reads_back(text, value)) return;
    }
    snprintf(text, 32, "%.16e", value);
}

char *tm_python_float(char out[32], double value)
{
    char text[32], digits[20];
    if (!isfinite(value)) return strcpy(out, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
    shortest(fabs(value), text);
    int         exponent = (int)strtol(strchr(text, 'e') + 1, NULL, 10), n = 0;
    const char *sign = signbit(value) ? "-" : "";
    for (const char *c = text; *c != 'e'; c++)
        if (*c != '.') digits[n++] = *c;
    if (exponent < -4 || exponent >= 16) {
        snprintf(out, 32, "%s%c%s%.*se%c%02d", sign, digits[0], n > 1 ? "." : "", n - 1, digits + 1,
                 exponent < 0 ? '-' : '+', abs(exponent));
    } else if (exponent < 0) {
        snprintf(out, 32, "%s0.%.*s%.*s", sign, -exponent - 1, "000", n, digits);
    } else {
        int before = exponent + 1; /* digits in front of the point, filled up with zeros */
        snprintf(out, 32, "%s%.*s%.*s.%.*s", sign, n < before ? n : before, digits, n < before ? before - n : 0,
                 "000000000000000", n > before ? n - before : 1, n > before ? digits + before : "0");
    }
    return out;
}

/* Of `length` bytes of UTF-8. Python escapes what is not printable; the first 32 characters of Latin-1's upper half are
 * not. */
static void print_text(const char *text, tm_text *out)
{
    char quote = strchr(text, '\'') && !strchr(text, '"') ? '"' : '\'';
    tm_text_add_n(out, &quote, 1);
    for (const unsigned char *s = (const unsigned char *)text; *s;) {
        size_t n = tm_utf8_length(s);
        if (*s == '\n' || *s == '\r' || *s == '\t')
            tm_text_printf(out, "\\%c", *s == '\n' ? 'n' : *s == '\r' ? 'r' : 't');
        else if (*s == 0xC0 && s[1] == 0x80) /* the reader's U+0000 */
            tm_text_add(out, "\\x00"), n = 2;
        else if (n == 0 || *s < 0x20 || *s == 0x7F)
            tm_text_printf(out, "\\x%02x", *s), n = 1;
        else if (*s == 0xC2 && s[1] < 0xA0)
            tm_text_printf(out, "\\x%02x", s[1]);
        else if (*s == (unsigned char)quote || *s == '\\')
            tm_text_printf(out, "\\%c", *s);
        else
            tm_text_add_n(out, (const char *)s, n);
        s += n;
    }
    tm_text_add_n(out, &quote, 1);
}

void tm_python_print(const tm_json_value *value, tm_text *out)
{
    char number[32];
    bool object = value->kind == TM_JSON_OBJECT;
    switch (value->kind) {
    case TM_JSON_NULL:
        tm_text_add(out, "None");
        return;
    case TM_JSON_BOOL:
        tm_text_add(out, value->boolean ? "True" : "False");
        return;
    case TM_JSON_NUMBER:
        tm_text_add(out, value->integer ? value->text : tm_python_float(number, value->number));
        return;
    case TM_JSON_TEXT:
        print_text(value->text, out);
        return;
    case TM_JSON_LIST:
    case TM_JSON_OBJECT:
        break;
    }
    tm_text_add(out, object ? "{" : "[");
    for (const tm_json_value *v = value->first; v; v = v->next) {
        if (v != value->first) tm_text_add(out, ", ");
        if (object) {
            print_text(v->name, out);
            tm_text_add(out, ": ");
        }
        tm_python_print(v, out);
    }
    tm_text_add(out, object ? "}" : "]");
}

/* Digits without what Python ignores: white space around, '+', single '_' between digits, leading zeros. */
static const char *digits_of(const char *text, tm_arena *arena)
{
    size_t n = strlen(text), out = 0;
    while (n > 0 && isspace((unsigned char)*text)) text++, n--;
    while (n > 0 && isspace((unsigned char)text[n - 1])) n--;
    bool  negative = n > 0 && *text == '-';
    char *digits = tm_arena_take(arena, n + 2);
    if (n > 0 && (*text == '-' || *text == '+')) text++, n--;
    for (size_t i = 0; i < n; i++) {
        bool between = i > 0 && i + 1 < n && isdigit((unsigned char)text[i - 1]) && isdigit((unsigned char)text[i + 1]);
        if (isdigit((unsigned char)text[i]))
            digits[1 + out++] = text[i];
        else if (text[i] != '_' || !between)
            return NULL;
    }
    if (out == 0) return NULL;
    char *first = digits + 1;
    while (first[0] == '0' && first[1]) first++;
    if (negative && strcmp(first, "0") != 0) *--first = '-';
    return first;
}

const char *tm_python_int(const tm_json_value *value, tm_arena *arena)
{
    if (value->kind == TM_JSON_BOOL) return value->boolean ? "1" : "0";
    if (value->kind == TM_JSON_TEXT) return digits_of(value->text, arena);
    if (value->kind != TM_JSON_NUMBER) return NULL;
    if (value->integer) return digits_of(value->text, arena);
    if (!isfinite(value->number)) return NULL;
    double whole = trunc(value->number);
    return tm_arena_format(arena, "%.0f", whole == 0 ? 0.0 : whole);
}
