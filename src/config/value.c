/* SPDX-License-Identifier: Apache-2.0 */
/* config/value.c - text to the canonical text of a kind, and the check of ranges. */
#include "config/internal.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static const char *shown(const tm_given *given)
{
    return given->secret ? "***" : given->text;
}

static tm_status wrong_kind(const tm_key *key, const tm_given *given, const char *wanted, tm_error *err)
{
    return tm_fail(err, TM_INVALID, "'%s' (%s) must be %s, found '%.200s'", key->name, tm_place(given->origin), wanted,
                   shown(given));
}

static tm_status coerce_bool(tm_arena *arena, const tm_key *key, const tm_given *given, const char **out, tm_error *err)
{
    static const char *const yes[] = { "true", "yes", "on", "1" }, *const no[] = { "false", "no", "off", "0" };
    (void)arena;
    for (size_t i = 0; i < 4; i++) {
        if (strcasecmp(given->text, yes[i]) == 0) *out = "true";
        if (strcasecmp(given->text, no[i]) == 0) *out = "false";
    }
    return *out ? TM_OK : wrong_kind(key, given, "true or false", err);
}

/* A decimal number and nothing else: no hexadecimal, no nan, no infinity, no white space. */
static bool parse_number(const char *text, double *value)
{
    if (!*text || strspn(text, "0123456789+-.eE") != strlen(text)) return false;
    char *end;
    *value = strtod(text, &end);
    return *end == '\0' && end != text && isfinite(*value);
}

/* 010 is 8 to YAML 1.1 (PyYAML, so to most programs that read these files), 10 to others. */
static tm_status check_leading_zero(const tm_key *key, const tm_given *given, tm_error *err)
{
    const char *digits = given->text + (*given->text == '+' || *given->text == '-');
    size_t      n = strspn(digits, "0123456789");
    if (n < 2 || digits[n] || *digits != '0') return TM_OK;
    return tm_fail(err, TM_INVALID,
                   "'%s' (%s) is '%.200s', which is octal to some programs and decimal to others; write it without the "
                   "leading 0",
                   key->name, tm_place(given->origin), shown(given));
}

static tm_status coerce_i64(tm_arena *arena, const tm_key *key, const tm_given *given, const char **out, tm_error *err)
{
    char *end;
    TM_TRY(check_leading_zero(key, given, err));
    errno = 0;
    bool      digits = *given->text && strspn(given->text, "0123456789+-") == strlen(given->text);
    long long value = strtoll(given->text, &end, 10);
    if (digits && !*end && errno == ERANGE)
        return tm_fail(err, TM_INVALID, "'%s' (%s) is out of range: found '%.200s', wanted an integer of 64 bits",
                       key->name, tm_place(given->origin), shown(given));
    if (!digits || *end || end == given->text) {
        double number; /* 1e3 and 50.0 are integers, too */
        if (!parse_number(given->text, &number) || fabs(number) > 9007199254740992.0 ||
            fabs(number - trunc(number)) > 0)
            return wrong_kind(key, given, "an integer", err);
        value = (long long)number;
    }
    *out = tm_arena_format(arena, "%lld", value);
    return TM_OK;
}

static tm_status coerce_f64(tm_arena *arena, const tm_key *key, const tm_given *given, const char **out, tm_error *err)
{
    double value;
    char   text[32];
    TM_TRY(check_leading_zero(key, given, err));
    if (!parse_number(given->text, &value)) return wrong_kind(key, given, "a number", err);
    *out = tm_arena_text(arena, tm_format_double(text, value));
    return TM_OK;
}

/* Calls visit-like: next alternative of "a=x=y|b" into name[]; returns NULL at the end. */
static const char *next_word(const char *p, char word[64], char *separator)
{
    if (!*p) return NULL;
    size_t n = strcspn(p, "|=");
    TM_ASSERT(n < 64);
    memcpy(word, p, n);
    word[n] = '\0';
    *separator = p[n];
    return p[n] ? p + n + 1 : p + n;
}

/* Letters of the choice in a text: all of them, or those in front of ":7", where numbers may be. */
static size_t choice_length(const tm_key *key, const char *text)
{
    enum { MOST_DIGITS = 4 };
    size_t n = strcspn(text, ":"), digits = text[n] ? strspn(text + n + 1, "0123456789") : 0;
    bool   number = key->numbered && digits >= 1 && digits <= MOST_DIGITS && !text[n + 1 + digits];
    return number ? n : strlen(text);
}

static tm_status coerce_choice(tm_arena *arena, const tm_key *key, const tm_given *given, const char **out,
                               tm_error *err)
{
    char        word[64], canonical[64] = "", separator = '|', before = '|';
    const char *names[32];
    size_t      n = 0;
    tm_text     wanted = { 0 };
    size_t      length = choice_length(key, given->text);
    const char *found = tm_arena_format(arena, "%.*s", (int)length, given->text);
    for (const char *p = key->choices; (p = next_word(p, word, &separator)); before = separator) {
        if (before == '|') {
            strcpy(canonical, word);
            tm_text_printf(&wanted, "%s%s", n ? ", " : "", word);
            TM_ASSERT(n < 32);
            names[n++] = tm_arena_text(arena, word);
        }
        if (!*out && tm_names_equal(word, found))
            *out = tm_arena_format(arena, "%s%s", canonical, given->text + length);
    }
    tm_status st = TM_OK;
    if (!*out) {
        const char *near = tm_nearest(given->text, names, n);
        st = tm_fail(err, TM_INVALID, "'%s' (%s) must be one of %s%s; found '%.200s'%s%s%s", key->name,
                     tm_place(given->origin), wanted.data, key->numbered ? ", also NAME:NUMBER" : "", shown(given),
                     near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    }
    tm_text_fini(&wanted);
    return st;
}

tm_status tm_value_coerce(tm_arena *arena, const tm_key *key, const tm_given *given, const char **out, tm_error *err)
{
    *out = NULL;
    if (given->text && !*given->text && key->kind != TM_KEY_TEXT && key->kind < TM_KEY_LIST && !key->fallback)
        return TM_OK;
    if (!given->text) {
        if (!key->fallback) return TM_OK;
        return tm_fail(err, TM_INVALID, "'%s' (%s) must have a value, found null; the default is %s", key->name,
                       tm_place(given->origin), *key->fallback ? key->fallback : "empty");
    }
    switch (key->kind) {
    case TM_KEY_BOOL:
        return coerce_bool(arena, key, given, out, err);
    case TM_KEY_I64:
        return coerce_i64(arena, key, given, out, err);
    case TM_KEY_F64:
        return coerce_f64(arena, key, given, out, err);
    case TM_KEY_CHOICE:
        return coerce_choice(arena, key, given, out, err);
    case TM_KEY_TEXT:
    case TM_KEY_LIST:
    case TM_KEY_MAPS:
    case TM_KEY_LISTS:
        break;
    }
    *out = tm_arena_text(arena, given->text);
    return TM_OK;
}

tm_status tm_value_check_range(const tm_key *key, const tm_value *value, tm_error *err)
{
    if (!value->text || (key->kind != TM_KEY_I64 && key->kind != TM_KEY_F64) || !(key->lo < key->hi)) return TM_OK;
    double number = strtod(value->text, NULL);
    if (number >= key->lo && number <= key->hi) return TM_OK;
    char lo[32], hi[32];
    return tm_fail(err, TM_INVALID, "'%s' (%s) is out of range: found %s, wanted %s to %s", key->name,
                   tm_place(value->origin), value->secret ? "***" : value->text, tm_format_double(lo, key->lo),
                   tm_format_double(hi, key->hi));
}
