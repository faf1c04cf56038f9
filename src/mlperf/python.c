/* SPDX-License-Identifier: Apache-2.0 */
#include "mlperf/python.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char *tm_python_float(char out[32], double value)
{
    if (!isfinite(value)) return strcpy(out, isnan(value) ? "nan" : value > 0 ? "inf" : "-inf");
    if (fabs(value) >= 1e16) { /* tm_format_double stays without an exponent a little longer */
        for (int digits = 1; digits <= 17; digits++) {
            snprintf(out, 32, "%.*e", digits - 1, value);
            double back = strtod(out, NULL);
            if (!(back < value) && !(back > value)) break;
        }
        return out;
    }
    if (value == 0) return strcpy(out, signbit(value) ? "-0.0" : "0.0");
    tm_format_double(out, value);
    if (!strpbrk(out, ".e")) strcat(out, ".0");
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
