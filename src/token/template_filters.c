/* SPDX-License-Identifier: Apache-2.0 */
/* token/template_filters.c - filters of a template: one table, what is not in it is refused by name. */
#include "token/template_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    P_TRIM,
    P_TOJSON,
    P_LENGTH,
    P_STRING,
    P_LIST,
    P_JOIN,
    P_UPPER,
    P_LOWER,
    P_CAPITAL,
    P_TITLE,
    P_REPLACE,
    P_DEFAULT,
    P_FIRST,
    P_LAST,
    P_ITEMS,
    P_SELECTATTR,
    P_REJECTATTR,
    P_SELECT,
    P_REJECT,
    P_MAP,
    P_INT,
    P_FLOAT,
    P_ABS,
    P_REVERSE,
    P_SAFE,
    P_DICTSORT,
    P_UNIQUE,
    P_SORT,
    P_INDENT,
    FILTERS
};
static const char *const filters[FILTERS] = { "trim",   "tojson",   "length",     "string",     "list",       "join",
                                              "upper",  "lower",    "capitalize", "title",      "replace",    "default",
                                              "first",  "last",     "items",      "selectattr", "rejectattr", "select",
                                              "reject", "map",      "int",        "float",      "abs",        "reverse",
                                              "safe",   "dictsort", "unique",     "sort",       "indent" };

int tm_template_filter(const char *name)
{
    if (strcmp(name, "count") == 0) return P_LENGTH;
    if (strcmp(name, "d") == 0) return P_DEFAULT;
    return tm_v_number_of(filters, FILTERS, name);
}

static tm_v has_none(tm_render *r, const char *what)
{
    return tm_render_fail(r, TM_INVALID, "what is gone through once has no '%s'; put '| list' before it", what);
}

static tm_v length(tm_render *r, const tm_v *v)
{
    if (v->kind == TM_V_DICT) return tm_v_integer((int64_t)v->box->n / 2);
    if (tm_v_is(v, TM_L_ONCE)) return has_none(r, "length");
    tm_v all = tm_v_items(r, v);
    return r->failed ? all : tm_v_integer((int64_t)all.box->n);
}

/* The member of each that `name` says; a dot goes deeper. */
static tm_v attribute(tm_render *r, const tm_v *v, const tm_v *name)
{
    tm_v at = *v;
    for (const char *p = name->text, *end = p + name->length; p < end && !r->failed;) {
        const char *dot = memchr(p, '.', (size_t)(end - p));
        size_t      n = (size_t)((dot ? dot : end) - p);
        at = tm_render_member(r, &at, tm_arena_text_n(r->arena, p, n), n);
        p += n + 1;
    }
    return at;
}

/* select, reject, selectattr, rejectattr: those for which a test holds, or that are true. */
static tm_v choose(tm_render *r, int which, const tm_v *v, const tm_v_arguments *a)
{
    bool by_member = which == P_SELECTATTR || which == P_REJECTATTR,
         wanted = which == P_SELECTATTR || which == P_SELECT;
    size_t         at = by_member ? 1 : 0;
    const tm_v    *member = tm_v_argument(a, 0, NULL), *name = tm_v_argument(a, at, NULL);
    tm_v_arguments rest = { .value = a->value + at + 1, .n = a->n > at + 1 ? a->n - at - 1 : 0 };
    tm_v           all = tm_v_items(r, v), out = tm_v_list_as(r, TM_L_ONCE);
    int            test = -1;
    if (by_member && (!member || member->kind != TM_V_STRING))
        return tm_v_wants(r, filters[which], "the name of a member");
    if (name) {
        const char *text = name->kind == TM_V_STRING ? name->text : "?";
        test = tm_template_test(text);
        if (test < 0) return tm_render_fail(r, TM_UNSUPPORTED, "the test '%s' is not built", text);
    }
    for (size_t i = 0; i < all.box->n && !r->failed; i++) {
        tm_v of = by_member ? attribute(r, &all.box->item[i], member) : all.box->item[i];
        bool is = test < 0 ? tm_v_true(&of) : tm_render_test(r, test, &of, &rest);
        if (is == wanted) tm_v_append(r, &out, all.box->item[i]);
    }
    return out;
}

static tm_v map(tm_render *r, const tm_v *v, const tm_v_arguments *a)
{
    const tm_v *member = tm_v_argument(a, 99, "attribute"), *name = tm_v_argument(a, 0, NULL);
    tm_v        all = tm_v_items(r, v), out = tm_v_list_as(r, TM_L_ONCE);
    int         which = name && name->kind == TM_V_STRING ? tm_template_filter(name->text) : -1;
    if (member ? member->kind != TM_V_STRING : which < 0)
        return tm_render_fail(r, TM_UNSUPPORTED, "'map' takes attribute='name', or the name of a filter");
    tm_v_arguments rest = { .value = a->value + 1, .n = a->n > 1 ? a->n - 1 : 0 };
    for (size_t i = 0; i < all.box->n && !r->failed; i++)
        tm_v_append(r, &out,
                    member ? attribute(r, &all.box->item[i], member)
                           : tm_render_filter(r, which, &all.box->item[i], &rest));
    return out;
}

static tm_v to_number(const tm_v *v, bool real)
{
    char  *end;
    double value = v->kind == TM_V_FLOAT ? v->real : (double)v->integer;
    if (v->kind == TM_V_STRING) {
        value = strtod(v->text, &end);
        if (end == v->text) value = 0;
    }
    return real ? (tm_v){ .kind = TM_V_FLOAT, .real = value } : tm_v_integer((int64_t)value);
}

static tm_v sorted(tm_render *r, const tm_v *v, bool unique)
{
    tm_v all = tm_v_items(r, v), out = tm_v_list_as(r, unique ? TM_L_ONCE : TM_L_LIST);
    for (size_t i = 0; i < all.box->n; i++) {
        bool   known = false;
        size_t at = out.box->n;
        if (unique && !tm_v_can_be_key(&all.box->item[i])) return tm_v_wants(r, "unique", "what may be a key");
        for (size_t k = 0; k < out.box->n && unique; k++)
            known = known || tm_v_equal(&out.box->item[k], &all.box->item[i]);
        if (known) continue;
        tm_v_append(r, &out, all.box->item[i]);
        for (int order; !unique && at > 0; at--) {
            if (!tm_v_compare(&out.box->item[at - 1], &all.box->item[i], &order))
                return tm_v_wants(r, "sort", "numbers or texts");
            if (order <= 0) break;
            out.box->item[at] = out.box->item[at - 1];
            out.box->item[at - 1] = all.box->item[i];
        }
    }
    return out;
}

static tm_v sorted_map(tm_render *r, const tm_v *v)
{
    tm_v keys = tm_v_parts(r, TM_PARTS_KEYS, v), order = sorted(r, &keys, false), out = tm_v_list(r);
    for (size_t i = 0; !r->failed && i < order.box->n; i++) {
        tm_v pair = tm_v_list_as(r, TM_L_TUPLE);
        tm_v_append(r, &pair, order.box->item[i]);
        tm_v_append(r, &pair, *tm_v_at(v, &order.box->item[i]));
        tm_v_append(r, &out, pair);
    }
    return out;
}

static tm_v to_json(tm_render *r, const tm_v *v, const tm_v_arguments *a)
{
    tm_text     out = { 0 };
    const tm_v *indent = tm_v_argument(a, 1, "indent");
    const tm_v *ascii = tm_v_argument(a, 0, "ensure_ascii"), *keys = tm_v_argument(a, 3, "sort_keys");
    if (ascii && tm_v_true(ascii)) return tm_render_fail(r, TM_UNSUPPORTED, "tojson(ensure_ascii=true) is not built");
    if (keys && tm_v_true(keys)) return tm_render_fail(r, TM_UNSUPPORTED, "tojson(sort_keys=true) is not built");
    if (tm_v_argument(a, 2, "separators")) return tm_render_fail(r, TM_UNSUPPORTED, "tojson(separators=) is not built");
    tm_text_add(&out, "");
    tm_v_json(r, v, indent && indent->kind == TM_V_INT ? (int)indent->integer : -1, &out);
    tm_v made = tm_v_string(r, out.data, out.length);
    tm_text_fini(&out);
    return made;
}

/* All lines but the first, and empty ones, begin with so many blanks. */
static tm_v indented(tm_render *r, const tm_v *v, const tm_v_arguments *a)
{
    const tm_v *width = tm_v_argument(a, 0, "width"), *first = tm_v_argument(a, 1, "first");
    int64_t     n = width && width->kind == TM_V_INT ? width->integer : 4;
    tm_text     out = { 0 };
    bool        begins = first && tm_v_true(first);
    tm_text_add(&out, "");
    for (size_t i = 0; i < v->length; i++) {
        for (int64_t k = 0; begins && v->text[i] != '\n' && k < n; k++) tm_text_add(&out, " ");
        begins = v->text[i] == '\n';
        tm_text_add_n(&out, v->text + i, 1);
    }
    tm_v made = tm_v_string(r, out.data, out.length);
    tm_text_fini(&out);
    return made;
}

static tm_v list_filter(tm_render *r, int which, const tm_v *v)
{
    if (which == P_LAST && tm_v_is(v, TM_L_ONCE)) return has_none(r, "last");
    if (which == P_FIRST && tm_v_is(v, TM_L_ONCE) && v->box->n > 0) {
        tm_v_took(v, 1);
        return v->box->item[-1];
    }
    tm_v all = tm_v_items(r, v),
         out = tm_v_list_as(r, which == P_REVERSE && !tm_v_is(v, TM_L_ONCE) ? TM_L_ONCE : TM_L_LIST);
    if (r->failed || which == P_LIST) {
        for (size_t i = 0; !r->failed && i < all.box->n; i++) tm_v_append(r, &out, all.box->item[i]);
        return out;
    }
    if (which == P_REVERSE) {
        for (size_t i = all.box->n; i-- > 0;) tm_v_append(r, &out, all.box->item[i]);
        return v->kind == TM_V_STRING ? tm_v_join(r, &out, NULL) : out;
    }
    if (all.box->n == 0) return (tm_v){ .kind = TM_V_UNDEFINED };
    return all.box->item[which == P_FIRST ? 0 : all.box->n - 1];
}

tm_v tm_render_filter(tm_render *r, int which, const tm_v *v, const tm_v_arguments *a)
{
    const tm_v *first = tm_v_argument(a, 0, NULL), *second = tm_v_argument(a, 1, NULL);
    bool        texts = which <= P_TRIM || (which >= P_UPPER && which <= P_REPLACE) || which == P_INDENT;
    tm_v        text = texts ? tm_v_as_text(r, v) : *v, made;
    switch (which) {
    case P_TRIM:
        return tm_v_strip(&text, first, true, true);
    case P_TOJSON:
        return to_json(r, v, a);
    case P_LENGTH:
        return length(r, v);
    case P_STRING:
        return tm_v_as_text(r, v);
    case P_JOIN:
        first = tm_v_argument(a, 0, "d");
        if (first) made = tm_v_as_text(r, first);
        if (tm_v_argument(a, 9, "attribute")) return tm_render_fail(r, TM_UNSUPPORTED, "join(attribute=) is not built");
        return tm_v_join(r, v, first ? &made : NULL);
    case P_UPPER:
    case P_LOWER:
        return tm_v_letters(r, &text, which == P_UPPER ? TM_CASE_UPPER : TM_CASE_LOWER);
    case P_CAPITAL:
    case P_TITLE:
        return tm_v_letters(r, &text, which == P_CAPITAL ? TM_CASE_CAPITAL : TM_CASE_TITLE);
    case P_REPLACE:
        if (!first || !second || first->kind != TM_V_STRING || second->kind != TM_V_STRING)
            return tm_v_wants(r, "replace", "two texts");
        return tm_v_replace(r, &text, first, second, -1);
    case P_DEFAULT:
        first = tm_v_argument(a, 0, "default_value");
        second = tm_v_argument(a, 1, "boolean");
        if (v->kind == TM_V_UNDEFINED || (second && tm_v_true(second) && !tm_v_true(v)))
            return first ? *first : tm_v_string(r, "", 0);
        return *v;
    case P_ITEMS:
        if (v->kind == TM_V_UNDEFINED) return tm_v_list_as(r, TM_L_ONCE);
        if (v->kind != TM_V_DICT) return tm_v_wants(r, "items", "a map");
        made = tm_v_parts(r, TM_PARTS_ITEMS, v);
        made.form = TM_L_ONCE;
        return made;
    case P_SELECTATTR:
    case P_REJECTATTR:
    case P_SELECT:
    case P_REJECT:
        return choose(r, which, v, a);
    case P_MAP:
        return map(r, v, a);
    case P_INT:
    case P_FLOAT:
        return to_number(v, which == P_FLOAT);
    case P_ABS:
        return v->kind == TM_V_FLOAT ? (tm_v){ .kind = TM_V_FLOAT, .real = fabs(v->real) }
                                     : tm_v_integer(v->integer < 0 ? -v->integer : v->integer);
    case P_SAFE:
        return *v;
    case P_DICTSORT:
        return v->kind == TM_V_DICT ? sorted_map(r, v) : tm_v_wants(r, "dictsort", "a map");
    case P_UNIQUE:
    case P_SORT:
        return sorted(r, v, which == P_UNIQUE);
    case P_INDENT:
        return indented(r, &text, a);
    default:
        return list_filter(r, which, v);
    }
}
