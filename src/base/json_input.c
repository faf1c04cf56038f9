/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json_input.h"

#include "base/file.h"
#include "base/text.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 1 << 30, SAFE_DIGITS = 18 };

/* Half a pair in UTF-8, if there were such a thing; and what stands for it while jansson reads: one of the 32
 * characters U+FDD0 to U+FDEF, which are none, that the text does not have. */
static const char half_a_pair[] = "\xED\xA0\x80";

typedef struct {
    const char *at, *end;
    tm_text    *out;
    char        mark[4]; /* "": none is free */
    bool        halves;
} rewriting;

static void choose_mark(rewriting *r)
{
    char escape[8];
    for (int i = 0; i < 32; i++) {
        snprintf(r->mark, sizeof r->mark, "\xEF\xB7%c", 0x90 + i);
        snprintf(escape, sizeof escape, "\\ufd%02x", 0xD0 + i);
        size_t n = (size_t)(r->end - r->at);
        if (!memmem(r->at, n, r->mark, 3) && !memmem(r->at, n, escape, 6)) return;
    }
    r->mark[0] = '\0';
}

/* The four digits behind "\u" at p, or -1. */
static long unit_at(const char *p, const char *end)
{
    char digits[5] = { 0 };
    if (end - p < 6 || p[0] != '\\' || p[1] != 'u') return -1;
    for (int i = 0; i < 4; i++) {
        if (!isxdigit((unsigned char)p[2 + i])) return -1;
        digits[i] = p[2 + i];
    }
    return strtol(digits, NULL, 16);
}

/* A text from its quote on: half a pair is replaced. */
static void rewrite_text(rewriting *r)
{
    const char *from = r->at++;
    while (r->at < r->end && *r->at != '"') {
        long unit = unit_at(r->at, r->end), next = unit >= 0xD800 && unit < 0xDC00 ? unit_at(r->at + 6, r->end) : -1;
        bool whole = next >= 0xDC00 && next < 0xE000;
        if (unit >= 0xD800 && unit < 0xE000 && !whole && *r->mark) {
            tm_text_add_n(r->out, from, (size_t)(r->at - from));
            tm_text_add(r->out, r->mark);
            r->halves = true;
            from = r->at += 6;
        } else {
            r->at += whole ? 12 : *r->at == '\\' && r->at + 1 < r->end ? 2 : 1;
        }
    }
    if (r->at < r->end) r->at++;
    tm_text_add_n(r->out, from, (size_t)(r->at - from));
}

/* A number or a word. */
static void rewrite_word(rewriting *r)
{
    static const char *const none[] = { "NaN", "Infinity", "-Infinity" };
    const char              *from = r->at;
    while (r->at < r->end && (isalnum((unsigned char)*r->at) || (*r->at && strchr("+-.", *r->at)))) r->at++;
    size_t n = (size_t)(r->at - from);
    char   word[400];
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        if (n == strlen(none[i]) && memcmp(from, none[i], n) == 0) {
            tm_text_add(r->out, "null");
            return;
        }
    bool number = n < sizeof word && (isdigit((unsigned char)*from) || *from == '-');
    bool whole = strspn(from + (*from == '-'), "0123456789") >= n - (*from == '-');
    if (number) {
        memcpy(word, from, n);
        word[n] = '\0';
        if (isinf(strtod(word, NULL))) {
            tm_text_add(r->out, "null");
            return;
        }
    }
    tm_text_add_n(r->out, from, n);
    if (number && whole && n > SAFE_DIGITS) tm_text_add(r->out, ".0");
}

static void rewrite(rewriting *r)
{
    while (r->at < r->end)
        if (*r->at == '"')
            rewrite_text(r);
        else if (isalnum((unsigned char)*r->at) || *r->at == '-')
            rewrite_word(r);
        else
            tm_text_add_n(r->out, r->at++, 1);
}

/* Marks in texts become half pairs. */
static void unmark(json_t *value, const char *mark)
{
    const char *key;
    json_t     *item;
    size_t      i;
    json_object_foreach(value, key, item) unmark(item, mark);
    json_array_foreach(value, i, item) unmark(item, mark);
    if (!json_is_string(value)) return;
    tm_text     text = { 0 };
    const char *from = json_string_value(value), *end = from + json_string_length(value), *found;
    while ((found = memmem(from, (size_t)(end - from), mark, 3))) {
        tm_text_add_n(&text, from, (size_t)(found - from));
        tm_text_add(&text, half_a_pair);
        from = found + 3;
    }
    tm_text_add_n(&text, from, (size_t)(end - from));
    if (strstr(text.data, half_a_pair)) json_string_setn_nocheck(value, text.data, text.length);
    tm_text_fini(&text);
}

json_t *tm_json_input(const char *bytes, size_t size, size_t flags, json_error_t *error)
{
    json_t *root = json_loadb(bytes, size, flags, error);
    if (root) return root;
    tm_text      text = { 0 };
    rewriting    r = { .at = bytes, .end = bytes + size, .out = &text };
    json_error_t again = *error;
    tm_text_add(&text, "");
    choose_mark(&r);
    rewrite(&r);
    if (text.length != size || memcmp(text.data, bytes, size) != 0)
        root = json_loadb(text.data, text.length, flags, &again);
    if (!root) *error = again; /* not what was read as Python has it, but what is wrong even so */
    if (root && r.halves) unmark(root, r.mark);
    tm_text_fini(&text);
    return root;
}

const char *tm_json_text_problem(const json_t *text, bool nul)
{
    const char *bytes = json_string_value(text);
    size_t      n = json_string_length(text);
    if (bytes && memmem(bytes, n, half_a_pair, 3))
        return "has half a surrogate pair (as \"\\ud83d\"), which is no character";
    if (bytes && !nul && memchr(bytes, '\0', n)) return "has the character \"\\u0000\", which ends a text here";
    return NULL;
}

json_t *tm_json_input_file(const char *path, size_t flags, json_error_t *error)
{
    tm_text  text = { 0 };
    tm_error err = { 0 };
    json_t  *root = NULL;
    *error = (json_error_t){ .line = -1 };
    if (tm_file_read(path, MAX_BYTES, &text, &err) == TM_OK)
        root = tm_json_input(text.data ? text.data : "", text.length, flags, error);
    else
        snprintf(error->text, sizeof error->text, "%.*s", (int)sizeof error->text - 1, err.text);
    tm_text_fini(&text);
    return root;
}

const char *tm_json_value_text(tm_arena *arena, const json_t *value)
{
    char number[32];
    switch (json_typeof(value)) {
    case JSON_STRING:
        return json_string_value(value);
    case JSON_INTEGER:
        return tm_arena_format(arena, "%lld", (long long)json_integer_value(value));
    case JSON_REAL:
        return tm_arena_text(arena, tm_format_double(number, json_real_value(value)));
    case JSON_TRUE:
        return "true";
    case JSON_FALSE:
        return "false";
    case JSON_NULL:
        return "null";
    case JSON_OBJECT:
        return json_object_size(value) ? "{...}" : "{}";
    case JSON_ARRAY:
        return json_array_size(value) ? "[...]" : "[]";
    }
    return "";
}
