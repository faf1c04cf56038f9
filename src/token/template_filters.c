/* SPDX-License-Identifier: Apache-2.0 */
/* token/template_filters.c - filters of a template: one table, what is not in it is refused by name. */
#include "token/template_text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a filter takes: names of arguments (token/template_text.h), of which the first `least` must be there; NULL: it
 * looks at them itself. */
typedef struct {
    const char *name, *takes;
    size_t      least;
} signature;

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
    P_SUM,
    P_MIN,
    P_MAX,
    P_ROUND,
    P_BATCH,
    FILTERS
};
static const signature filters[FILTERS] = {
    [P_TRIM] = { "trim", "chars", 0 },
    [P_TOJSON] = { "tojson", "ensure_ascii,indent,separators,sort_keys", 0 },
    [P_LENGTH] = { "length", "", 0 },
    [P_STRING] = { "string", "", 0 },
    [P_LIST] = { "list", "", 0 },
    [P_JOIN] = { "join", "d,attribute", 0 },
    [P_UPPER] = { "upper", "", 0 },
    [P_LOWER] = { "lower", "", 0 },
    [P_CAPITAL] = { "capitalize", "", 0 },
    [P_TITLE] = { "title", "", 0 },
    [P_REPLACE] = { "replace", "old,new,count", 2 },
    [P_DEFAULT] = { "default", "default_value,boolean", 0 },
    [P_FIRST] = { "first", "", 0 },
    [P_LAST] = { "last", "", 0 },
    [P_ITEMS] = { "items", "", 0 },
    [P_SELECTATTR] = { "selectattr", NULL, 0 },
    [P_REJECTATTR] = { "rejectattr", NULL, 0 },
    [P_SELECT] = { "select", NULL, 0 },
    [P_REJECT] = { "reject", NULL, 0 },
    [P_MAP] = { "map", NULL, 0 },
    [P_INT] = { "int", "default,base", 0 },
    [P_FLOAT] = { "float", "default", 0 },
    [P_ABS] = { "abs", "", 0 },
    [P_REVERSE] = { "reverse", "", 0 },
    [P_SAFE] = { "safe", "", 0 },
    [P_DICTSORT] = { "dictsort", "case_sensitive,by,reverse", 0 },
    [P_UNIQUE] = { "unique", "case_sensitive,attribute", 0 },
    [P_SORT] = { "sort", "reverse,case_sensitive,attribute", 0 },
    [P_INDENT] = { "indent", "width,first,blank", 0 },
    [P_SUM] = { "sum", "attribute,start", 0 },
    [P_MIN] = { "min", "case_sensitive,attribute", 0 },
    [P_MAX] = { "max", "case_sensitive,attribute", 0 },
    [P_ROUND] = { "round", "precision,method", 0 },
    [P_BATCH] = { "batch", "linecount,fill_with", 1 },
};

int tm_template_filter(const char *name)
{
    if (strcmp(name, "count") == 0) return P_LENGTH;
    if (strcmp(name, "d") == 0) return P_DEFAULT;
    for (int i = 0; i < FILTERS; i++)
        if (strcmp(filters[i].name, name) == 0) return i;
    return -1;
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

/* The member of each that `name` says; a dot goes deeper, a number is a place. What is not there is `other`, if given.
 */
static tm_v attribute(tm_render *r, const tm_v *v, const tm_v *name, const tm_v *other)
{
    tm_v at = *v;
    if (name->kind == TM_V_INT) return tm_render_index(r, v, name);
    if (name->kind != TM_V_STRING) return tm_v_wants(r, "attribute", "the name of a member");
    for (const char *p = name->text, *end = p + name->length; p <= end && !r->failed;) {
        const char *dot = memchr(p, '.', (size_t)(end - p));
        size_t      n = (size_t)((dot ? dot : end) - p);
        const char *part = tm_arena_text_n(r->arena, p, n);
        tm_v        place = tm_v_integer(strtol(part, NULL, 10));
        const tm_v *own = at.kind == TM_V_DICT ? tm_v_get(&at, part, n) : NULL;
        if (own)
            at = *own;
        else if (n > 0 && strspn(part, "0123456789") == n)
            at = tm_render_index(r, &at, &place);
        else
            at = tm_render_member(r, &at, part, n);
        if (at.kind == TM_V_UNDEFINED && other) at = *other;
        p += n + 1;
    }
    return at;
}

/* Texts count in lower case, unless the filter is told otherwise. */
static tm_v key_of(tm_render *r, const tm_v *v, const tm_v *sensitive)
{
    if (v->kind != TM_V_STRING || (sensitive && tm_v_true(sensitive))) return *v;
    return tm_v_letters(r, v, TM_CASE_LOWER);
}

/* select, reject, selectattr, rejectattr: those for which a test holds, or that are true. */
/* What is false has no items for filters that ask first: none, 0. */
static tm_v items_if_true(tm_render *r, const tm_v *v)
{
    return v->kind <= TM_V_FLOAT && !tm_v_true(v) ? tm_v_list(r) : tm_v_items(r, v);
}

static tm_v choose(tm_render *r, int which, const tm_v *v, const tm_v_arguments *a)
{
    bool by_member = which == P_SELECTATTR || which == P_REJECTATTR,
         wanted = which == P_SELECTATTR || which == P_SELECT;
    size_t         at = by_member ? 1 : 0;
    const tm_v    *member = tm_v_argument(a, 0, NULL), *name = tm_v_argument(a, at, NULL);
    tm_v_arguments rest = {
        .value = a->value + at + 1, .n = a->n > at + 1 ? a->n - at - 1 : 0, .named = a->named, .n_named = a->n_named
    };
    tm_v all = items_if_true(r, v), out = tm_v_list_as(r, TM_L_ONCE);
    int  test = -1;
    if (by_member && (!member || (member->kind != TM_V_STRING && member->kind != TM_V_INT)))
        return tm_v_wants(r, filters[which].name, "the name of a member");
    if (!name && a->n_named > 0)
        return tm_render_fail(r, TM_UNSUPPORTED, "'%s' has no argument '%s'", filters[which].name, a->named[0].text);
    if (name) {
        const char *text = name->kind == TM_V_STRING ? name->text : "?";
        test = tm_template_test(text);
        if (test < 0) return tm_render_fail(r, TM_UNSUPPORTED, "the test '%s' is not supported", text);
    }
    for (size_t i = 0; i < all.box->n && !r->failed; i++) {
        tm_v of = by_member ? attribute(r, &all.box->item[i], member, NULL) : all.box->item[i];
        bool is = test < 0 ? tm_v_true(&of) : tm_render_test(r, test, &of, &rest);
        if (is == wanted) tm_v_append(r, &out, all.box->item[i]);
    }
    return out;
}

static tm_v map(tm_render *r, const tm_v *v, const tm_v_arguments *a)
{
    const tm_v *member = tm_v_argument(a, 99, "attribute"), *other = tm_v_argument(a, 99, "default");
    const tm_v *name = tm_v_argument(a, 0, NULL);
    tm_v        all = items_if_true(r, v), out = tm_v_list_as(r, TM_L_ONCE);
    int         which = name && name->kind == TM_V_STRING ? tm_template_filter(name->text) : -1;
    if (a->n > 0 ? which < 0 : !member || (member->kind != TM_V_STRING && member->kind != TM_V_INT))
        return tm_render_fail(r, TM_UNSUPPORTED, "'map' takes attribute='name', or the name of a filter");
    if (a->n == 0 && a->n_named > 1 + (other != NULL))
        return tm_render_fail(r, TM_UNSUPPORTED, "'map' with attribute takes 'default' only");
    tm_v_arguments rest = {
        .value = a->value + 1, .n = a->n > 1 ? a->n - 1 : 0, .named = a->named, .n_named = a->n_named
    };
    for (size_t i = 0; i < all.box->n && !r->failed; i++)
        tm_v_append(r, &out,
                    a->n == 0 ? attribute(r, &all.box->item[i], member, other)
                              : tm_render_filter(r, which, &all.box->item[i], &rest));
    return out;
}

/* Digits of Python's int() in a base, underscores between them; false: it is none. Too large ones fail. */
static bool read_integer(tm_render *r, const tm_v *text, int64_t base, int64_t *out)
{
    tm_v        of = tm_v_strip(r, text, NULL, true, true);
    const char *p = of.text, *end = p + of.length;
    bool        minus = p < end && *p == '-', digits = false, over = false;
    if (p < end && (*p == '-' || *p == '+')) p++;
    if (end - p > 2 && *p == '0' && strchr("xXoObB", p[1])) {
        int64_t own = strchr("xX", p[1]) ? 16 : strchr("oO", p[1]) ? 8 : 2;
        if (base == 0 || base == own) base = own, p += 2, p += *p == '_';
    }
    if (base == 0) base = 10;
    for (*out = 0; p < end; p++) {
        if (*p == '_' && digits && p + 1 < end && p[1] != '_') continue;
        int64_t digit = *p >= '0' && *p <= '9'                 ? *p - '0'
                        : (*p | 32) >= 'a' && (*p | 32) <= 'z' ? (*p | 32) - 'a' + 10
                                                               : 99;
        if (digit >= base || (unsigned char)*p >= 128) return false;
        over = over || __builtin_mul_overflow(*out, base, out) || __builtin_add_overflow(*out, digit, out);
        digits = true;
    }
    if (over) tm_render_fail(r, TM_UNSUPPORTED, "an integer of more than 64 bits is not supported");
    if (minus) *out = -*out;
    return digits;
}

/* Python's float(); false: it is none. */
static bool read_real(tm_render *r, const tm_v *text, double *out)
{
    static const char *const words[] = { "inf", "infinity", "nan" };
    tm_v                     of = tm_v_strip(r, text, NULL, true, true);
    char                     plain[400], *end;
    size_t                   n = 0, sign = of.length > 0 && (*of.text == '-' || *of.text == '+');
    if (of.length == 0 || of.length >= sizeof plain) return false;
    for (size_t i = 0; i < of.length; i++) {
        char c = of.text[i];
        bool between = c == '_' && i > 0 && i + 1 < of.length && isdigit((unsigned char)of.text[i - 1]) &&
                       isdigit((unsigned char)of.text[i + 1]);
        if (!between) plain[n++] = (char)((c >= 'A' && c <= 'Z') ? c | 32 : c);
    }
    plain[n] = '\0';
    bool word = false;
    for (size_t i = 0; i < 3; i++) word = word || strcmp(plain + sign, words[i]) == 0;
    if (!word && plain[strspn(plain, "0123456789+-.e")]) return false;
    *out = strtod(plain, &end);
    return end != plain && !*end;
}

/* int and float: what is no number is the default. */
static tm_v to_number(tm_render *r, const tm_v *v, bool real, const tm_v *const bound[])
{
    const tm_v *other = bound[0];
    int64_t     base = real ? 10 : tm_v_integer_or(r, "int", bound[1], 10), whole = 0;
    double      value = v->kind == TM_V_FLOAT ? v->real : (double)v->integer;
    bool        is = v->kind == TM_V_INT || v->kind == TM_V_FLOAT || v->kind == TM_V_BOOL;
    if (base != 0 && (base < 2 || base > 36)) return tm_v_wants(r, "int", "a base of 2 to 36");
    if (v->kind == TM_V_UNDEFINED)
        return tm_render_fail(r, TM_INVALID, "'%s' is undefined and no number", v->text ? v->text : "a value");
    if (v->kind >= TM_V_NAMESPACE) return tm_v_wants(r, real ? "float" : "int", "a number or a text");
    if (!real && v->kind == TM_V_STRING && read_integer(r, v, base, &whole)) return tm_v_integer(whole);
    if (v->kind == TM_V_STRING) is = read_real(r, v, &value);
    if (!real && is && v->kind != TM_V_FLOAT && v->kind != TM_V_STRING) return tm_v_integer(v->integer);
    if (!real && is && (isnan(value) || isinf(value))) is = false;
    if (!is) return other ? *other : real ? (tm_v){ .kind = TM_V_FLOAT } : tm_v_integer(0);
    if (!real && fabs(value) >= 9.2e18)
        return tm_render_fail(r, TM_UNSUPPORTED, "an integer of more than 64 bits is not supported");
    return real ? (tm_v){ .kind = TM_V_FLOAT, .real = value } : tm_v_integer((int64_t)value);
}

/* What an item is sorted by: members of it, "a,b" several, or itself. */
static tm_v sorting_key(tm_render *r, const tm_v *item, const tm_v *by, const tm_v *sensitive)
{
    tm_v part, all = tm_v_list_as(r, TM_L_TUPLE);
    if (!by || by->kind == TM_V_NONE) return key_of(r, item, sensitive);
    if (by->kind != TM_V_STRING) {
        part = attribute(r, item, by, NULL);
        return key_of(r, &part, sensitive);
    }
    for (const char *p = by->text, *end = p + by->length; p <= end;) {
        size_t n = strcspn(p, ",");
        tm_v   name = tm_v_string(r, p, n);
        part = attribute(r, item, &name, NULL);
        if (!by->text[strcspn(by->text, ",")]) return key_of(r, &part, sensitive);
        tm_v_append(r, &all, key_of(r, &part, sensitive));
        p += n + 1;
    }
    return all;
}

/* Sorted by keys[], which is sorted along; equal ones keep their order, also from the largest to the smallest. */
static void put_sorted(tm_render *r, const char *what, const tm_v *out, const tm_v *keys, tm_v item, tm_v key,
                       bool down)
{
    size_t at = out->box->n;
    tm_v_append(r, out, item);
    tm_v_append(r, keys, key);
    for (int order; at > 0 && !r->failed; at--) {
        if (!tm_v_compare(r, &keys->box->item[at - 1], &key, &order)) {
            tm_v_wants(r, what, "numbers or texts");
            return;
        }
        if (down ? order >= 0 : order <= 0) return;
        out->box->item[at] = out->box->item[at - 1], keys->box->item[at] = keys->box->item[at - 1];
        out->box->item[at - 1] = item, keys->box->item[at - 1] = key;
    }
}

static tm_v sorted(tm_render *r, const tm_v *v, const tm_v *const bound[])
{
    tm_v all = tm_v_items(r, v), out = tm_v_list(r), keys = tm_v_list(r);
    for (size_t i = 0; i < all.box->n && !r->failed; i++)
        put_sorted(r, "sort", &out, &keys, all.box->item[i], sorting_key(r, &all.box->item[i], bound[2], bound[1]),
                   bound[0] && tm_v_true(bound[0]));
    return out;
}

static tm_v unique(tm_render *r, const tm_v *v, const tm_v *const bound[])
{
    tm_v all = tm_v_items(r, v), out = tm_v_list_as(r, TM_L_ONCE), keys = tm_v_list(r);
    for (size_t i = 0; i < all.box->n && !r->failed; i++) {
        tm_v of = bound[1] ? attribute(r, &all.box->item[i], bound[1], NULL) : all.box->item[i];
        tm_v key = key_of(r, &of, bound[0]);
        bool known = false;
        if (!tm_v_can_be_key(&key)) return tm_v_wants(r, "unique", "what may be a key");
        for (size_t k = 0; k < keys.box->n; k++) known = known || tm_v_equal(r, &keys.box->item[k], &key);
        if (known) continue;
        tm_v_append(r, &out, all.box->item[i]);
        tm_v_append(r, &keys, key);
    }
    return out;
}

static tm_v sorted_map(tm_render *r, const tm_v *v, const tm_v *const bound[])
{
    tm_v        pairs = tm_v_parts(r, TM_PARTS_ITEMS, v), out = tm_v_list(r), keys = tm_v_list(r);
    const char *by = bound[1] && bound[1]->kind == TM_V_STRING ? bound[1]->text : bound[1] ? "?" : "key";
    bool        value = strcmp(by, "value") == 0;
    if (!value && strcmp(by, "key") != 0) return tm_v_wants(r, "dictsort", "by='key' or by='value'");
    for (size_t i = 0; !r->failed && i < pairs.box->n; i++) {
        const tm_v *pair = &pairs.box->item[i];
        put_sorted(r, "dictsort", &out, &keys, *pair, key_of(r, &pair->box->item[value], bound[0]),
                   bound[2] && tm_v_true(bound[2]));
    }
    return out;
}

/* The largest or smallest, the first of equal ones; undefined where there is none. */
static tm_v extreme(tm_render *r, int which, const tm_v *v, const tm_v *const bound[])
{
    tm_v all = tm_v_items(r, v), best = { .kind = TM_V_UNDEFINED }, key = best;
    for (size_t i = 0; i < all.box->n && !r->failed; i++) {
        tm_v of = bound[1] ? attribute(r, &all.box->item[i], bound[1], NULL) : all.box->item[i],
             k = key_of(r, &of, bound[0]);
        int order = 0;
        if (i > 0 && !tm_v_compare(r, &k, &key, &order)) return tm_v_wants(r, filters[which].name, "numbers or texts");
        if (i == 0 || (which == P_MAX ? order > 0 : order < 0)) best = all.box->item[i], key = k;
    }
    return best;
}

static tm_v sum(tm_render *r, const tm_v *v, const tm_v *const bound[])
{
    tm_v    all = tm_v_items(r, v);
    int64_t total = tm_v_integer_or(r, "sum", bound[1], 0);
    for (size_t i = 0; i < all.box->n && !r->failed; i++) {
        tm_v of = bound[0] && bound[0]->kind != TM_V_NONE ? attribute(r, &all.box->item[i], bound[0], NULL)
                                                          : all.box->item[i];
        if (of.kind != TM_V_INT && of.kind != TM_V_BOOL)
            return tm_render_fail(r, TM_UNSUPPORTED, "'sum' of other values than integers is not supported");
        if (__builtin_add_overflow(total, of.integer, &total))
            return tm_render_fail(r, TM_INVALID, "a number is too large");
    }
    return tm_v_integer(total);
}

static tm_v rounded(tm_render *r, const tm_v *v, const tm_v *const bound[])
{
    int64_t     digits = tm_v_integer_or(r, "round", bound[0], 0);
    const char *how = bound[1] && bound[1]->kind == TM_V_STRING ? bound[1]->text : bound[1] ? "?" : "common";
    double      value = v->kind == TM_V_FLOAT ? v->real : (double)v->integer, power;
    char        text[400];
    if (v->kind != TM_V_INT && v->kind != TM_V_FLOAT) return tm_v_wants(r, "round", "a number");
    if (digits < 0 || digits > 15)
        return tm_render_fail(r, TM_UNSUPPORTED, "'round' to %lld digits is not supported", (long long)digits);
    if (strcmp(how, "common") == 0) {
        if (v->kind == TM_V_INT) return *v;
        if (isnan(value) || isinf(value)) return *v;
        snprintf(text, sizeof text, "%.*f", (int)digits, value);
        return (tm_v){ .kind = TM_V_FLOAT, .real = strtod(text, NULL) };
    }
    if (strcmp(how, "ceil") != 0 && strcmp(how, "floor") != 0) return tm_v_wants(r, "round", "common, ceil or floor");
    power = pow(10, (double)digits);
    return (tm_v){ .kind = TM_V_FLOAT, .real = (*how == 'c' ? ceil(value * power) : floor(value * power)) / power };
}

/* Lists of so many items, the last one filled up. */
static tm_v batches(tm_render *r, const tm_v *v, const tm_v *const bound[])
{
    tm_v    all = tm_v_items(r, v), out = tm_v_list_as(r, TM_L_ONCE), part = tm_v_list(r);
    int64_t size = tm_v_integer_or(r, "batch", bound[0], 0);
    if (size < 1) return tm_v_wants(r, "batch", "a positive number");
    for (size_t i = 0; i < all.box->n && !r->failed; i++) {
        if ((int64_t)part.box->n == size) tm_v_append(r, &out, part), part = tm_v_list(r);
        tm_v_append(r, &part, all.box->item[i]);
    }
    if (part.box->n == 0) return out;
    for (size_t i = part.box->n; bound[1] && bound[1]->kind != TM_V_NONE && (int64_t)i < size; i++)
        tm_v_append(r, &part, *bound[1]);
    tm_v_append(r, &out, part);
    return out;
}

static tm_v to_json(tm_render *r, const tm_v *v, const tm_v *const bound[])
{
    tm_text        out = { 0 };
    const tm_v    *between = bound[2] && bound[2]->kind != TM_V_NONE ? bound[2] : NULL;
    tm_json_format format = { .ascii = bound[0] && tm_v_true(bound[0]),
                              .sorted = bound[3] && tm_v_true(bound[3]),
                              .indent = -1 };
    if (bound[1] && bound[1]->kind == TM_V_STRING)
        return tm_render_fail(r, TM_UNSUPPORTED, "tojson(indent=a text) is not supported");
    format.indent = tm_v_integer_or(r, "tojson", bound[1], -1);
    if (bound[1] && bound[1]->kind == TM_V_INT && format.indent < 0) format.indent = 0; /* lines without indentation */
    if (format.indent > 1000) return tm_render_fail(r, TM_INVALID, "a string becomes too long");
    format.item = format.indent < 0 ? ", " : ",";
    format.key = ": ";
    if (between) {
        const tm_v *item = between->box ? between->box->item : NULL;
        if (between->kind != TM_V_LIST || between->box->n != 2 || item[0].kind != TM_V_STRING ||
            item[1].kind != TM_V_STRING)
            return tm_v_wants(r, "tojson", "two texts as separators");
        format.item = item[0].text, format.key = item[1].text;
    }
    tm_text_add(&out, "");
    tm_v_json(r, v, &format, &out);
    tm_v made = tm_v_string(r, out.data, out.length);
    tm_text_fini(&out);
    return made;
}

/* All lines but the first begin with a text or so many blanks; empty ones where `blank` says so. */
static tm_v indented(tm_render *r, const tm_v *v, const tm_v *const bound[])
{
    tm_v    end = tm_v_string(r, "\n", 1), whole = tm_v_concatenated(r, v, &end), lines = tm_v_lines(r, &whole, false);
    tm_text with = { 0 }, out = { 0 };
    bool    first = bound[1] && tm_v_true(bound[1]), blank = bound[2] && tm_v_true(bound[2]);
    int64_t n = bound[0] && bound[0]->kind == TM_V_STRING ? 0 : tm_v_integer_or(r, "indent", bound[0], 4);
    if (n > 1000) return tm_render_fail(r, TM_INVALID, "a string becomes too long");
    tm_text_add(&with, bound[0] && bound[0]->kind == TM_V_STRING ? bound[0]->text : "");
    while (n-- > 0) tm_text_add(&with, " ");
    tm_text_add(&out, "");
    for (size_t i = 0; i < lines.box->n; i++) {
        const tm_v *line = &lines.box->item[i];
        if (i > 0) tm_text_add(&out, "\n");
        if (i == 0 ? first : blank || line->length > 0) tm_text_add_n(&out, with.data, with.length);
        tm_text_add_n(&out, line->text, line->length);
    }
    tm_v made = tm_v_string(r, out.data, out.length);
    tm_text_fini(&out);
    tm_text_fini(&with);
    return made;
}

static tm_v join(tm_render *r, const tm_v *v, const tm_v *const bound[])
{
    tm_v between, of = tm_v_items(r, v), parts = tm_v_list(r);
    if (bound[0]) between = tm_v_as_text(r, bound[0]);
    bool by_member = bound[1] && bound[1]->kind != TM_V_NONE;
    for (size_t i = 0; i < of.box->n && by_member && !r->failed; i++)
        tm_v_append(r, &parts, attribute(r, &of.box->item[i], bound[1], NULL));
    return tm_v_join(r, by_member ? &parts : &of, bound[0] ? &between : NULL);
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

/* Filters that make a text of what they are given first. */
static tm_v text_filter(tm_render *r, int which, const tm_v *v, const tm_v *const bound[])
{
    tm_v text = tm_v_as_text(r, v);
    switch (which) {
    case P_TRIM:
        if (bound[0] && bound[0]->kind != TM_V_STRING && bound[0]->kind != TM_V_NONE)
            return tm_v_wants(r, "trim", "a text");
        return tm_v_strip(r, &text, bound[0], true, true);
    case P_UPPER:
    case P_LOWER:
        return tm_v_letters(r, &text, which == P_UPPER ? TM_CASE_UPPER : TM_CASE_LOWER);
    case P_CAPITAL:
    case P_TITLE:
        return tm_v_letters(r, &text, which == P_CAPITAL ? TM_CASE_CAPITAL : TM_CASE_WORDS);
    case P_REPLACE:
        if (bound[0]->kind != TM_V_STRING || bound[1]->kind != TM_V_STRING)
            return tm_v_wants(r, "replace", "two texts");
        return tm_v_replace(r, &text, bound[0], bound[1], tm_v_integer_or(r, "replace", bound[2], -1));
    case P_INDENT:
        if (v->kind != TM_V_STRING) return tm_v_wants(r, "indent", "a text");
        return indented(r, &text, bound);
    default:
        return text;
    }
}

static tm_v number_filter(tm_render *r, int which, const tm_v *v, const tm_v *const bound[])
{
    if (which == P_ROUND) return rounded(r, v, bound);
    if (which != P_ABS) return to_number(r, v, which == P_FLOAT, bound);
    if (v->kind == TM_V_FLOAT) return (tm_v){ .kind = TM_V_FLOAT, .real = fabs(v->real) };
    if (v->kind != TM_V_INT && v->kind != TM_V_BOOL) return tm_v_wants(r, "abs", "a number");
    if (v->integer == INT64_MIN) return tm_render_fail(r, TM_INVALID, "a number is too large");
    return tm_v_integer(v->integer < 0 ? -v->integer : v->integer);
}

tm_v tm_render_filter(tm_render *r, int which, const tm_v *v, const tm_v_arguments *a)
{
    const tm_v *bound[TM_MOST_BOUND] = { NULL };
    tm_v        made;
    if (!tm_render_over(r, v)) return (tm_v){ .kind = TM_V_UNDEFINED };
    if (filters[which].takes &&
        !tm_v_bind(r, filters[which].name, filters[which].takes, filters[which].least, a, bound))
        return (tm_v){ .kind = TM_V_UNDEFINED };
    bool keeps = which == P_TOJSON || which == P_LENGTH || which == P_DEFAULT || which == P_SAFE;
    if (!keeps && tm_v_refuse_marked(r, v, filters[which].name)) return (tm_v){ .kind = TM_V_UNDEFINED };
    switch (which) {
    case P_TOJSON:
        return to_json(r, v, bound);
    case P_LENGTH:
        return length(r, v);
    case P_JOIN:
        return join(r, v, bound);
    case P_TRIM:
    case P_STRING:
    case P_UPPER:
    case P_LOWER:
    case P_CAPITAL:
    case P_TITLE:
    case P_REPLACE:
    case P_INDENT:
        return text_filter(r, which, v, bound);
    case P_DEFAULT:
        if (v->kind == TM_V_UNDEFINED || (bound[1] && tm_v_true(bound[1]) && !tm_v_true(v)))
            return bound[0] ? *bound[0] : tm_v_string(r, "", 0);
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
    case P_ABS:
    case P_ROUND:
        return number_filter(r, which, v, bound);
    case P_SAFE:
        made = tm_v_as_text(r, v);
        made.integer = 1;
        return made;
    case P_DICTSORT:
        return v->kind == TM_V_DICT ? sorted_map(r, v, bound) : tm_v_wants(r, "dictsort", "a map");
    case P_UNIQUE:
        return unique(r, v, bound);
    case P_SORT:
        return sorted(r, v, bound);
    case P_MIN:
    case P_MAX:
        return extreme(r, which, v, bound);
    case P_SUM:
        return sum(r, v, bound);
    case P_BATCH:
        return batches(r, v, bound);
    default:
        return list_filter(r, which, v);
    }
}
