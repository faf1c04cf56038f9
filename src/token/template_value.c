/* SPDX-License-Identifier: Apache-2.0 */
/* token/template_value.c - values of a template while it is rendered: made, compared, printed. */
#include "token/template_ast.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* --- making ------------------------------------------------------------------------------------------------------- */

tm_v tm_v_string(tm_render *r, const char *text, size_t n)
{
    char *copy = tm_render_take(r, n + 1);
    if (n) memcpy(copy, text, n);
    return (tm_v){ .kind = TM_V_STRING, .text = copy, .length = n };
}

bool tm_v_refuse_marked(tm_render *r, const tm_v *v, const char *what)
{
    if (v->kind != TM_V_STRING || !v->integer) return false;
    tm_render_fail(r, TM_UNSUPPORTED,
                   "'%s' with a text that 'safe' has marked is not supported: Jinja escapes what it is "
                   "put together with; leave 'safe' out",
                   what);
    return true;
}

static tm_v with_box(tm_render *r, tm_v_kind kind)
{
    return (tm_v){ .kind = kind, .box = tm_render_take(r, sizeof(tm_box)) };
}

tm_v tm_v_list(tm_render *r)
{
    return with_box(r, TM_V_LIST);
}

tm_v tm_v_list_as(tm_render *r, tm_l_form form)
{
    tm_v made = tm_v_list(r);
    made.form = form;
    return made;
}

tm_v tm_v_dict(tm_render *r)
{
    return with_box(r, TM_V_DICT);
}

void tm_v_append(tm_render *r, const tm_v *list, tm_v item)
{
    tm_box *box = list->box;
    if (box->n == box->capacity) {
        size_t more = box->capacity ? 2 * box->capacity : 8;
        tm_v  *grown = tm_render_take(r, more * sizeof *grown);
        if (box->n) memcpy(grown, box->item, box->n * sizeof *grown);
        box->item = grown;
        box->capacity = more;
    }
    box->item[box->n++] = item;
}

const tm_v *tm_v_get(const tm_v *dict, const char *key, size_t n)
{
    for (size_t i = 0; i + 1 < dict->box->n; i += 2) {
        const tm_v *k = &dict->box->item[i];
        if (k->kind == TM_V_STRING && k->length == n && memcmp(k->text, key, n) == 0) return k + 1;
    }
    return NULL;
}

const tm_v *tm_v_at(tm_render *r, const tm_v *dict, const tm_v *key)
{
    for (size_t i = 0; i + 1 < dict->box->n; i += 2)
        if (tm_v_equal(r, &dict->box->item[i], key)) return &dict->box->item[i + 1];
    return NULL;
}

void tm_v_put(tm_render *r, const tm_v *dict, tm_v key, tm_v value)
{
    const tm_v *there = tm_v_at(r, dict, &key);
    if (there) {
        dict->box->item[there - dict->box->item] = value;
        return;
    }
    tm_v_append(r, dict, key);
    tm_v_append(r, dict, value);
}

tm_v tm_v_from_json(tm_render *r, const json_t *json)
{
    const char *key;
    json_t     *value;
    size_t      i;
    tm_v        v;
    switch (json_typeof(json)) {
    case JSON_STRING:
        return (tm_v){ .kind = TM_V_STRING, .text = json_string_value(json), .length = json_string_length(json) };
    case JSON_INTEGER:
        return (tm_v){ .kind = TM_V_INT, .integer = (int64_t)json_integer_value(json) };
    case JSON_REAL:
        return (tm_v){ .kind = TM_V_FLOAT, .real = json_real_value(json) };
    case JSON_TRUE:
    case JSON_FALSE:
        return (tm_v){ .kind = TM_V_BOOL, .integer = json_is_true(json) };
    case JSON_ARRAY:
        v = tm_v_list(r);
        json_array_foreach(json, i, value) tm_v_append(r, &v, tm_v_from_json(r, value));
        return v;
    case JSON_OBJECT:
        v = tm_v_dict(r);
        json_object_foreach((json_t *)(uintptr_t)json, key, value)
        {
            tm_v_append(r, &v, tm_v_string(r, key, strlen(key)));
            tm_v_append(r, &v, tm_v_from_json(r, value));
        }
        return v;
    default:
        return (tm_v){ .kind = TM_V_NONE };
    }
}

/* --- asking ------------------------------------------------------------------------------------------------------- */

static bool is_number(const tm_v *v)
{
    return v->kind == TM_V_INT || v->kind == TM_V_FLOAT || v->kind == TM_V_BOOL;
}

static double number(const tm_v *v)
{
    return v->kind == TM_V_FLOAT ? v->real : (double)v->integer;
}

bool tm_v_is(const tm_v *v, tm_l_form form)
{
    return v->kind == TM_V_LIST && v->form == form;
}

bool tm_v_has_places(const tm_v *v)
{
    return tm_v_is(v, TM_L_LIST) || tm_v_is(v, TM_L_TUPLE) || tm_v_is(v, TM_L_RANGE);
}

/* Python's hashable: what does not change. */
bool tm_v_can_be_key(const tm_v *v)
{
    for (size_t i = 0; tm_v_is(v, TM_L_TUPLE) && i < v->box->n; i++)
        if (!tm_v_can_be_key(&v->box->item[i])) return false;
    return v->kind != TM_V_DICT && (v->kind != TM_V_LIST || v->form == TM_L_TUPLE || v->form == TM_L_RANGE);
}

bool tm_v_true(const tm_v *v)
{
    if (tm_v_is(v, TM_L_ONCE)) return true;
    switch (v->kind) {
    case TM_V_UNDEFINED:
    case TM_V_NONE:
        return false;
    case TM_V_BOOL:
    case TM_V_INT:
        return v->integer != 0;
    case TM_V_FLOAT:
        return v->real < 0 || v->real > 0;
    case TM_V_STRING:
        return v->length > 0;
    case TM_V_LIST:
    case TM_V_DICT:
        return v->box->n > 0;
    default:
        return true;
    }
}

/* Do they hold the same items, in any order? Those of a map's views differ from each other. */
static bool same_items(tm_render *r, const tm_v *a, const tm_v *b)
{
    for (size_t i = 0; i < a->box->n; i++) {
        bool found = false;
        for (size_t k = 0; k < b->box->n && !found; k++) found = tm_v_equal(r, &a->box->item[i], &b->box->item[k]);
        if (!found) return false;
    }
    return true;
}

bool tm_v_equal(tm_render *r, const tm_v *a, const tm_v *b)
{
    if (!tm_render_work(r, 1)) return false;
    if (is_number(a) && is_number(b)) {
        if (a->kind != TM_V_FLOAT && b->kind != TM_V_FLOAT) return a->integer == b->integer;
        return !(number(a) < number(b)) && !(number(a) > number(b));
    }
    if (a->kind != b->kind) return false;
    if (a->kind == TM_V_STRING)
        return a->length == b->length && tm_render_over(r, a) && memcmp(a->text, b->text, a->length) == 0;
    if (a->kind == TM_V_NONE || a->kind == TM_V_UNDEFINED) return true;
    if (a->kind != TM_V_LIST && a->kind != TM_V_DICT) /* functions, namespaces: the same one */
        return a->box == b->box && a->macro == b->macro && a->self == b->self && a->integer == b->integer;
    if (a->form != b->form || a->box->n != b->box->n) return false;
    if (tm_v_is(a, TM_L_KEYS) || tm_v_is(a, TM_L_ITEMS)) return same_items(r, a, b);
    if (tm_v_is(a, TM_L_VALUES) || tm_v_is(a, TM_L_ONCE)) return a->box == b->box; /* the same one */
    for (size_t i = 0; a->kind == TM_V_LIST && i < a->box->n; i++)
        if (!tm_v_equal(r, &a->box->item[i], &b->box->item[i])) return false;
    for (size_t i = 0; a->kind == TM_V_DICT && i < a->box->n; i += 2) {
        bool same = false;
        for (size_t k = 0; k < b->box->n; k += 2)
            same = same || (tm_v_equal(r, &a->box->item[i], &b->box->item[k]) &&
                            tm_v_equal(r, &a->box->item[i + 1], &b->box->item[k + 1]));
        if (!same) return false;
    }
    return true;
}

bool tm_v_compare(tm_render *r, const tm_v *a, const tm_v *b, int *order)
{
    tm_render_over(r, a);
    tm_render_work(r, 1);
    if (is_number(a) && is_number(b)) {
        *order = number(a) < number(b) ? -1 : number(a) > number(b);
        return true;
    }
    if (a->kind == TM_V_LIST && b->kind == TM_V_LIST && a->form == b->form && a->form <= TM_L_TUPLE) {
        size_t i = 0;
        while (i < a->box->n && i < b->box->n && tm_v_equal(r, &a->box->item[i], &b->box->item[i])) i++;
        if (i < a->box->n && i < b->box->n) return tm_v_compare(r, &a->box->item[i], &b->box->item[i], order);
        *order = a->box->n < b->box->n ? -1 : a->box->n > b->box->n;
        return true;
    }
    if (a->kind != TM_V_STRING || b->kind != TM_V_STRING) return false;
    size_t n = a->length < b->length ? a->length : b->length;
    int    way = memcmp(a->text, b->text, n);
    *order = way ? (way < 0 ? -1 : 1) : a->length < b->length ? -1 : a->length > b->length;
    return true;
}

tm_v tm_v_items(tm_render *r, const tm_v *v)
{
    tm_v all;
    if (v->kind == TM_V_LIST) {
        if (v->form != TM_L_ONCE) return *v;
        all = tm_v_list(r);
        *all.box = *v->box;
        tm_v_took(v, v->box->n);
        return all;
    }
    all = tm_v_list(r);
    if (v->kind == TM_V_UNDEFINED) return all;
    if (v->kind == TM_V_DICT) {
        for (size_t i = 0; i < v->box->n; i += 2) tm_v_append(r, &all, v->box->item[i]);
        return all;
    }
    if (v->kind != TM_V_STRING) {
        tm_render_fail(r, TM_INVALID, "only lists, maps and texts can be gone through");
        return all; /* empty: callers go through it all the same */
    }
    for (size_t i = 0; i < v->length;) {
        size_t n = tm_utf8_length((const unsigned char *)v->text + i);
        n = n ? n : 1;
        tm_v_append(r, &all, tm_v_string(r, v->text + i, n));
        i += n;
    }
    return all;
}

void tm_v_took(const tm_v *v, size_t n)
{
    if (!tm_v_is(v, TM_L_ONCE)) return;
    v->box->item += n;
    v->box->n -= n;
    v->box->capacity = v->box->n;
}

/* --- printing ----------------------------------------------------------------------------------------------------- */

/* As Python's repr: the shortest digits, with a point or an exponent. */
static void print_real(double value, tm_text *out)
{
    char text[40];
    if (isnan(value) || isinf(value)) {
        tm_text_add(out, isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
        return;
    }
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (!(strtod(text, NULL) < value) && !(strtod(text, NULL) > value)) break;
    }
    char *e = strchr(text, 'e');
    int   exponent = e ? (int)strtol(e + 1, NULL, 10) : 0;
    if (e && exponent > 0 && exponent < 16) { /* %g changes to exponents earlier than Python */
        snprintf(text, sizeof text, "%.1f", value);
        e = NULL;
    }
    tm_text_add(out, text);
    if (!e && !strchr(text, '.')) tm_text_add(out, ".0");
}

/* As repr: what is no blank and has no shape is escaped. */
static void show_letter(const char *text, size_t n, tm_text *out)
{
    utf8proc_int32_t c;
    if (utf8proc_iterate((const utf8proc_uint8_t *)text, (utf8proc_ssize_t)n, &c) < 0) c = ' '; /* bytes as they are */
    utf8proc_category_t category = utf8proc_category(c);
    if (category == UTF8PROC_CATEGORY_CN || category >= UTF8PROC_CATEGORY_ZS)
        tm_text_printf(out, c < 256 ? "\\x%02x" : c < 65536 ? "\\u%04x" : "\\U%08x", (unsigned)c);
    else
        tm_text_add_n(out, text, n);
}

static void show_string(const tm_v *v, tm_text *out)
{
    bool        doubled = memchr(v->text, '\'', v->length) && !memchr(v->text, '"', v->length);
    const char *quote = doubled ? "\"" : "'";
    tm_text_add(out, quote);
    for (size_t i = 0, n; i < v->length; i += n) {
        char c = v->text[i];
        n = tm_utf8_length((const unsigned char *)v->text + i);
        n = n ? n : 1;
        if (c == '\n')
            tm_text_add(out, "\\n");
        else if (c == '\r')
            tm_text_add(out, "\\r");
        else if (c == '\t')
            tm_text_add(out, "\\t");
        else if (c == '\\')
            tm_text_add(out, "\\\\");
        else if (c == *quote)
            tm_text_printf(out, "\\%c", c);
        else if (c == ' ')
            tm_text_add(out, " ");
        else
            show_letter(v->text + i, n, out);
    }
    tm_text_add(out, quote);
}

/* A list or a map. */
static void show_items(tm_render *r, const tm_v *v, tm_text *out)
{
    static const char *const begins[] = { "[", "(", "dict_keys([", "dict_values([", "dict_items([" };
    static const char *const ends[] = { "]", ")", "])", "])", "])" };
    bool                     dict = v->kind == TM_V_DICT;
    if (tm_v_is(v, TM_L_RANGE) && v->text) {
        tm_text_add(out, v->text);
        return;
    }
    if (v->form > TM_L_ITEMS) {
        tm_render_fail(r, TM_INVALID, "%s has no text; put '| list' behind it",
                       v->form == TM_L_RANGE ? "a part of a range" : "what is gone through once");
        return;
    }
    tm_text_add(out, dict ? "{" : begins[v->form]);
    for (size_t i = 0; i < v->box->n; i++) {
        if (i) tm_text_add(out, dict && i % 2 ? ": " : ", ");
        tm_v_show(r, &v->box->item[i], out);
    }
    if (tm_v_is(v, TM_L_TUPLE) && v->box->n == 1) tm_text_add(out, ",");
    tm_text_add(out, dict ? "}" : ends[v->form]);
}

void tm_v_show(tm_render *r, const tm_v *v, tm_text *out)
{
    if (v->kind == TM_V_STRING) {
        show_string(v, out);
    } else if (v->kind == TM_V_LIST || v->kind == TM_V_DICT) {
        show_items(r, v, out);
    } else if (v->kind == TM_V_UNDEFINED) {
        tm_text_add(out, "Undefined");
    } else if (v->kind > TM_V_DICT) {
        tm_render_fail(r, TM_INVALID, "a %s has no text; call it, or leave it out",
                       v->kind == TM_V_NAMESPACE ? "namespace" : "function");
    } else {
        tm_v_print(r, v, out);
    }
}

void tm_v_print(tm_render *r, const tm_v *v, tm_text *out)
{
    if (v->kind == TM_V_UNDEFINED) return;
    switch (v->kind) {
    case TM_V_STRING:
        tm_text_add_n(out, v->text, v->length);
        break;
    case TM_V_NONE:
        tm_text_add(out, "None");
        break;
    case TM_V_BOOL:
        tm_text_add(out, v->integer ? "True" : "False");
        break;
    case TM_V_INT:
        tm_text_printf(out, "%lld", (long long)v->integer);
        break;
    case TM_V_FLOAT:
        print_real(v->real, out);
        break;
    default:
        tm_v_show(r, v, out);
    }
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

/* A character beyond ASCII as "\u00e9", or as two of them. */
static void escape_letter(int32_t c, tm_text *out)
{
    if (c > 0xFFFF)
        tm_text_printf(out, "\\u%04x\\u%04x", (unsigned)(0xD800 + ((c - 0x10000) >> 10)),
                       (unsigned)(0xDC00 + ((c - 0x10000) & 0x3FF)));
    else
        tm_text_printf(out, "\\u%04x", (unsigned)c);
}

static void quote_json(const tm_v *v, bool ascii, tm_text *out)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    tm_text_add(out, "\"");
    for (size_t i = 0, n; i < v->length; i += n) {
        char             c = v->text[i];
        const char      *known = c ? strchr(from, c) : NULL;
        utf8proc_int32_t letter = 0;
        utf8proc_ssize_t bytes = 0;
        n = 1;
        if (ascii && (unsigned char)c >= 127)
            bytes = utf8proc_iterate((const utf8proc_uint8_t *)v->text + i, (utf8proc_ssize_t)(v->length - i), &letter);
        if (bytes > 1) n = (size_t)bytes;
        if (known)
            tm_text_printf(out, "\\%c", to[known - from]);
        else if ((unsigned char)c < 32)
            tm_text_printf(out, "\\u%04x", (unsigned)c);
        else if (bytes > 1)
            escape_letter(letter, out);
        else
            tm_text_add_n(out, &c, 1);
    }
    tm_text_add(out, "\"");
}

static void new_line(int64_t indent, int depth, tm_text *out)
{
    if (indent < 0) return;
    tm_text_add(out, "\n");
    for (int64_t i = 0; i < indent * depth; i++) tm_text_add(out, " ");
}

static void write_number(tm_render *r, const tm_v *v, tm_text *out)
{
    if (v->kind == TM_V_FLOAT && isnan(v->real))
        tm_text_add(out, "NaN");
    else if (v->kind == TM_V_FLOAT && isinf(v->real))
        tm_text_add(out, v->real < 0 ? "-Infinity" : "Infinity");
    else
        tm_v_print(r, v, out);
}

static void write_json(tm_render *r, const tm_v *v, const tm_json_format *f, int depth, tm_text *out);

/* A key is a text; numbers, truths and nothing become one. */
static void write_key(tm_render *r, const tm_v *key, const tm_json_format *f, tm_text *out)
{
    if (key->kind == TM_V_STRING || key->kind > TM_V_STRING) {
        if (key->kind != TM_V_STRING) tm_render_fail(r, TM_INVALID, "tojson takes texts and numbers as keys");
        write_json(r, key, f, 0, out);
        return;
    }
    tm_text_add(out, "\"");
    write_json(r, key, f, 0, out);
    tm_text_add(out, "\"");
}

/* The places of a map's keys, in order. */
static void sort_keys(tm_render *r, const tm_v *v, size_t *at)
{
    int order = 0;
    for (size_t n = 0; 2 * n < v->box->n; n++) {
        size_t k = n;
        for (; k > 0; k--) {
            if (!tm_v_compare(r, &v->box->item[at[k - 1]], &v->box->item[2 * n], &order))
                tm_render_fail(r, TM_INVALID, "tojson(sort_keys) takes keys of one kind");
            if (r->failed || order <= 0) break;
            at[k] = at[k - 1];
        }
        at[k] = 2 * n;
    }
}

static void write_items(tm_render *r, const tm_v *v, const tm_json_format *f, int depth, tm_text *out)
{
    bool    dict = v->kind == TM_V_DICT;
    size_t  step = dict ? 2 : 1, n = v->box->n / step;
    size_t *at = tm_render_take(r, (n + 1) * sizeof *at);
    for (size_t i = 0; i < n; i++) at[i] = i * step;
    if (dict && f->sorted) sort_keys(r, v, at);
    tm_text_add(out, dict ? "{" : "[");
    for (size_t i = 0; i < n && !r->failed; i++) {
        const tm_v *item = &v->box->item[at[i]];
        if (i) tm_text_add(out, f->item);
        new_line(f->indent, depth + 1, out);
        if (dict) write_key(r, item, f, out), tm_text_add(out, f->key);
        write_json(r, dict ? item + 1 : item, f, depth + 1, out);
    }
    if (n) new_line(f->indent, depth, out);
    tm_text_add(out, dict ? "}" : "]");
}

static void write_json(tm_render *r, const tm_v *v, const tm_json_format *f, int depth, tm_text *out)
{
    if (v->kind == TM_V_STRING)
        quote_json(v, f->ascii, out);
    else if (v->kind == TM_V_NONE)
        tm_text_add(out, "null");
    else if (v->kind == TM_V_BOOL)
        tm_text_add(out, v->integer ? "true" : "false");
    else if (v->kind == TM_V_INT || v->kind == TM_V_FLOAT)
        write_number(r, v, out);
    else if (v->kind == TM_V_DICT || (v->kind == TM_V_LIST && v->form <= TM_L_TUPLE))
        write_items(r, v, f, depth, out);
    else
        tm_render_fail(r, TM_INVALID, "tojson takes what JSON has: no functions, nothing undefined");
}

void tm_v_json(tm_render *r, const tm_v *v, const tm_json_format *format, tm_text *out)
{
    write_json(r, v, format, 0, out);
}
