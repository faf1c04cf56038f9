/* SPDX-License-Identifier: Apache-2.0 */
/* token/template_calls.c - methods and tests of a template: a table each, what is not in it is refused by name. */
#include "token/template_text.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- methods ------------------------------------------------------------------------------------------------------ */

/* What a method takes: names of arguments (token/template_text.h), of which the first `least` must be there. */
typedef struct {
    const char *name, *takes;
    size_t      least;
} signature;

enum {
    M_STRIP,
    M_LSTRIP,
    M_RSTRIP,
    M_SPLIT,
    M_RSPLIT,
    M_LINES,
    M_STARTS,
    M_ENDS,
    M_LOWER,
    M_UPPER,
    M_CAPITAL,
    M_TITLE,
    M_REPLACE,
    M_JOIN,
    M_FIND,
    M_RFIND,
    M_INDEX,
    M_RINDEX,
    M_COUNT,
    M_CUT_BEGIN,
    M_CUT_END,
    M_PARTITION,
    M_RPARTITION,
    M_LJUST,
    M_RJUST,
    M_ZFILL,
    M_IS_DIGIT,
    M_IS_ALPHA,
    M_IS_ALNUM,
    M_IS_SPACE,
    M_IS_LOWER,
    M_IS_UPPER,
    M_ITEMS,
    M_KEYS,
    M_VALUES,
    M_GET,
    METHODS
};
static const signature methods[METHODS] = {
    [M_STRIP] = { "strip", "/chars", 0 },
    [M_LSTRIP] = { "lstrip", "/chars", 0 },
    [M_RSTRIP] = { "rstrip", "/chars", 0 },
    [M_SPLIT] = { "split", "sep,maxsplit", 0 },
    [M_RSPLIT] = { "rsplit", "sep,maxsplit", 0 },
    [M_LINES] = { "splitlines", "keepends", 0 },
    [M_STARTS] = { "startswith", "/prefix,start,end", 1 },
    [M_ENDS] = { "endswith", "/suffix,start,end", 1 },
    [M_LOWER] = { "lower", "", 0 },
    [M_UPPER] = { "upper", "", 0 },
    [M_CAPITAL] = { "capitalize", "", 0 },
    [M_TITLE] = { "title", "", 0 },
    [M_REPLACE] = { "replace", "/old,new,count", 2 },
    [M_JOIN] = { "join", "/iterable", 1 },
    [M_FIND] = { "find", "/sub,start,end", 1 },
    [M_RFIND] = { "rfind", "/sub,start,end", 1 },
    [M_INDEX] = { "index", "/sub,start,end", 1 },
    [M_RINDEX] = { "rindex", "/sub,start,end", 1 },
    [M_COUNT] = { "count", "/sub,start,end", 1 },
    [M_CUT_BEGIN] = { "removeprefix", "/prefix", 1 },
    [M_CUT_END] = { "removesuffix", "/suffix", 1 },
    [M_PARTITION] = { "partition", "/sep", 1 },
    [M_RPARTITION] = { "rpartition", "/sep", 1 },
    [M_LJUST] = { "ljust", "/width,fillchar", 1 },
    [M_RJUST] = { "rjust", "/width,fillchar", 1 },
    [M_ZFILL] = { "zfill", "/width", 1 },
    [M_IS_DIGIT] = { "isdigit", "", 0 },
    [M_IS_ALPHA] = { "isalpha", "", 0 },
    [M_IS_ALNUM] = { "isalnum", "", 0 },
    [M_IS_SPACE] = { "isspace", "", 0 },
    [M_IS_LOWER] = { "islower", "", 0 },
    [M_IS_UPPER] = { "isupper", "", 0 },
    [M_ITEMS] = { "items", "", 0 },
    [M_KEYS] = { "keys", "", 0 },
    [M_VALUES] = { "values", "", 0 },
    [M_GET] = { "get", "/key,default", 1 },
};

int tm_template_method(const char *name)
{
    for (int i = 0; i < METHODS; i++)
        if (strcmp(methods[i].name, name) == 0) return i;
    return -1;
}

/* What Python's texts, lists and maps have besides: a template that asks for it gets no silent nothing. */
static bool is_pythons(const tm_v *v, const char *name)
{
    static const char texts[] = " casefold center encode expandtabs format format_map isascii isdecimal isidentifier "
                                "isnumeric isprintable istitle maketrans swapcase translate ",
                      lists[] = " append clear copy count extend index insert pop remove reverse sort ",
                      maps[] = " clear copy fromkeys pop popitem setdefault update ",
                      numbers[] =
                          " as_integer_ratio bit_count bit_length conjugate denominator from_bytes fromhex hex imag "
                          "is_integer numerator real to_bytes ";
    char        word[40];
    const char *of = v->kind == TM_V_STRING                          ? texts
                     : v->kind == TM_V_LIST                          ? lists
                     : v->kind == TM_V_DICT                          ? maps
                     : v->kind >= TM_V_BOOL && v->kind <= TM_V_FLOAT ? numbers
                                                                     : "";
    snprintf(word, sizeof word, " %.36s ", name);
    return strncmp(name, "__", 2) == 0 || strstr(of, word) != NULL;
}

/* Is `part` at the begin or end? It may be a tuple of texts. */
static bool has_end(tm_render *r, const tm_v *v, const tm_v *part, bool begin)
{
    if (tm_v_is(part, TM_L_TUPLE)) {
        for (size_t i = 0; i < part->box->n; i++)
            if (has_end(r, v, &part->box->item[i], begin)) return true;
        return false;
    }
    if (part->kind != TM_V_STRING) tm_v_wants(r, begin ? "startswith" : "endswith", "a text");
    if (part->kind != TM_V_STRING || part->length > v->length) return false;
    return memcmp(begin ? v->text : v->text + v->length - part->length, part->text, part->length) == 0;
}

/* The bytes of a text's first n characters. */
static size_t bytes_of(const tm_v *v, int64_t n)
{
    size_t at = 0;
    for (; n > 0 && at < v->length; n--) {
        size_t bytes = tm_utf8_length((const unsigned char *)v->text + at);
        at += bytes ? bytes : 1;
    }
    return at;
}

static int64_t width_of(tm_render *r, const char *text, size_t bytes)
{
    return (int64_t)tm_utf8_width(tm_arena_text_n(r->arena, text, bytes));
}

/* The part from character start to end, as slices count; false: start is behind the text. *skipped: characters before.
 */
static bool part_of(tm_render *r, const char *what, const tm_v *v, const tm_v *const bound[], tm_v *out,
                    int64_t *skipped)
{
    int64_t n = width_of(r, v->text, v->length);
    int64_t from = tm_v_integer_or(r, what, bound[1], 0), to = tm_v_integer_or(r, what, bound[2], n);
    if (from < 0) from = from + n < 0 ? 0 : from + n;
    if (to < 0) to = to + n < 0 ? 0 : to + n;
    if (to > n) to = n;
    *out = *v;
    *skipped = from;
    if (from > n || from > to) return false;
    size_t begin = bytes_of(v, from);
    out->text += begin;
    out->length = bytes_of(v, to) - begin;
    return true;
}

/* find, index, count and theirs from the end. */
static tm_v search(tm_render *r, int which, const tm_v *v, const tm_v *const bound[])
{
    tm_v        in;
    int64_t     skipped, n = 0;
    const tm_v *what = bound[0];
    bool        back = which == M_RFIND || which == M_RINDEX;
    if (what->kind != TM_V_STRING) return tm_v_wants(r, methods[which].name, "a text");
    bool        there = part_of(r, methods[which].name, v, bound, &in, &skipped);
    const char *at = there ? tm_v_find(in.text, in.length, what->text, what->length) : NULL, *next = at;
    if (which == M_COUNT && what->length == 0) return tm_v_integer(there ? width_of(r, in.text, in.length) + 1 : 0);
    for (; next && which == M_COUNT; n++)
        next = tm_v_find(next + what->length, (size_t)(in.text + in.length - next) - what->length, what->text,
                         what->length);
    if (which == M_COUNT) return tm_v_integer(n);
    for (const char *p = there ? in.text + in.length - what->length : NULL; back && at && p >= at; p--)
        if (memcmp(p, what->text, what->length) == 0) {
            at = p;
            break;
        }
    if (!at && (which == M_INDEX || which == M_RINDEX))
        return tm_render_fail(r, TM_INVALID, "'%s': not found", methods[which].name);
    return tm_v_integer(at ? skipped + width_of(r, in.text, (size_t)(at - in.text)) : -1);
}

static tm_v partition(tm_render *r, const tm_v *v, const tm_v *by, bool back)
{
    if (by->kind != TM_V_STRING || by->length == 0) return tm_v_wants(r, "partition", "a non-empty text");
    const char *at = tm_v_find(v->text, v->length, by->text, by->length);
    for (const char *p = v->text + v->length - by->length; back && at && p > at; p--)
        if (memcmp(p, by->text, by->length) == 0) at = p + 0, p = at;
    tm_v        out = tm_v_list_as(r, TM_L_TUPLE), none = tm_v_string(r, "", 0);
    size_t      before = at ? (size_t)(at - v->text) : 0;
    const char *rest = at ? at + by->length : NULL;
    if (!at && back) tm_v_append(r, &out, none), tm_v_append(r, &out, none);
    tm_v_append(r, &out, at ? tm_v_string(r, v->text, before) : *v);
    if (at) tm_v_append(r, &out, *by), tm_v_append(r, &out, tm_v_string(r, rest, v->length - before - by->length));
    if (!at && !back) tm_v_append(r, &out, none), tm_v_append(r, &out, none);
    return out;
}

/* ljust, rjust and zfill. */
static tm_v filled(tm_render *r, int which, const tm_v *v, const tm_v *const bound[])
{
    int64_t     width = tm_v_integer_or(r, methods[which].name, bound[0], 0), n = width_of(r, v->text, v->length);
    const char *with = which == M_ZFILL ? "0" : bound[1] && bound[1]->kind == TM_V_STRING ? bound[1]->text : " ";
    bool        sign = which == M_ZFILL && v->length > 0 && (*v->text == '-' || *v->text == '+');
    tm_text     out = { 0 };
    if (tm_utf8_width(with) != 1) return tm_v_wants(r, methods[which].name, "one character to fill with");
    if (width > 1 << 20) return tm_render_fail(r, TM_INVALID, "a string becomes too long");
    tm_text_add(&out, "");
    if (sign || which == M_LJUST) tm_text_add_n(&out, v->text, sign ? 1 : v->length);
    for (; n < width; n++) tm_text_add(&out, with);
    if (which != M_LJUST) tm_text_add_n(&out, v->text + sign, v->length - sign);
    tm_v made = tm_v_string(r, out.data, out.length);
    tm_text_fini(&out);
    return made;
}

/* isdigit and the like, of ASCII texts. */
static tm_v is_made_of(tm_render *r, int which, const tm_v *v)
{
    bool all = v->length > 0, cased = false;
    for (size_t i = 0; i < v->length; i++) {
        unsigned char c = (unsigned char)v->text[i];
        if (c >= 128)
            return tm_render_fail(r, TM_UNSUPPORTED, "'%s' of letters beyond ASCII is not supported",
                                  methods[which].name);
        bool digit = isdigit(c), alpha = isalpha(c);
        cased = cased || alpha;
        all = all && (which == M_IS_DIGIT   ? digit
                      : which == M_IS_ALPHA ? alpha
                      : which == M_IS_ALNUM ? digit || alpha
                      : which == M_IS_SPACE ? tm_space_at(v->text + i, v->text + i + 1) > 0
                      : which == M_IS_LOWER ? !isupper(c)
                                            : !islower(c));
    }
    return (tm_v){ .kind = TM_V_BOOL, .integer = all && (which < M_IS_LOWER || cased) };
}

/* Python's text.join takes texts only. */
static tm_v joined(tm_render *r, const tm_v *between, const tm_v *list)
{
    tm_v all = tm_v_items(r, list);
    for (size_t i = 0; !r->failed && i < all.box->n; i++)
        if (all.box->item[i].kind != TM_V_STRING) tm_v_wants(r, "join", "texts");
    return r->failed ? all : tm_v_join(r, &all, between);
}

static tm_v text_method(tm_render *r, int which, const tm_v *v, const tm_v *const bound[])
{
    const tm_v *first = bound[0], *second = bound[1];
    bool        text = first && first->kind == TM_V_STRING;
    tm_v        part;
    int64_t     skipped;
    switch (which) {
    case M_STRIP:
    case M_LSTRIP:
    case M_RSTRIP:
        if (first && !text && first->kind != TM_V_NONE) return tm_v_wants(r, methods[which].name, "a text");
        return tm_v_strip(r, v, first, which != M_RSTRIP, which != M_LSTRIP);
    case M_SPLIT:
        return tm_v_split(r, v, first, tm_v_integer_or(r, "split", second, -1));
    case M_RSPLIT:
        return tm_v_split_back(r, v, first, tm_v_integer_or(r, "rsplit", second, -1));
    case M_LINES:
        return tm_v_lines(r, v, first && tm_v_true(first));
    case M_STARTS:
    case M_ENDS:
        (void)has_end(r, v, first, which == M_STARTS); /* a wrong kind fails wherever the part is */
        if (!part_of(r, methods[which].name, v, bound, &part, &skipped)) return (tm_v){ .kind = TM_V_BOOL };
        return (tm_v){ .kind = TM_V_BOOL, .integer = has_end(r, &part, first, which == M_STARTS) };
    case M_LOWER:
    case M_UPPER:
    case M_CAPITAL:
    case M_TITLE:
        return tm_v_letters(r, v, which - M_LOWER);
    case M_JOIN:
        return joined(r, v, first);
    case M_REPLACE:
        if (!text || second->kind != TM_V_STRING) return tm_v_wants(r, "replace", "two texts");
        return tm_v_replace(r, v, first, second, tm_v_integer_or(r, "replace", bound[2], -1));
    case M_CUT_BEGIN:
    case M_CUT_END:
        if (!text) return tm_v_wants(r, methods[which].name, "a text");
        if (!has_end(r, v, first, which == M_CUT_BEGIN)) return *v;
        return tm_v_string(r, v->text + (which == M_CUT_BEGIN ? first->length : 0), v->length - first->length);
    case M_PARTITION:
    case M_RPARTITION:
        return partition(r, v, first, which == M_RPARTITION);
    case M_LJUST:
    case M_RJUST:
    case M_ZFILL:
        return filled(r, which, v, bound);
    default:
        return which < M_CUT_BEGIN ? search(r, which, v, bound) : is_made_of(r, which, v);
    }
}

tm_v tm_render_method(tm_render *r, int which, const tm_v *self, const tm_v_arguments *a)
{
    const tm_v *bound[TM_MOST_BOUND];
    if (!tm_render_over(r, self)) return (tm_v){ .kind = TM_V_UNDEFINED };
    if (!tm_v_bind(r, methods[which].name, methods[which].takes, methods[which].least, a, bound))
        return (tm_v){ .kind = TM_V_UNDEFINED };
    if (tm_v_refuse_marked(r, self, methods[which].name)) return (tm_v){ .kind = TM_V_UNDEFINED };
    if (self->kind == TM_V_STRING && which < M_ITEMS) return text_method(r, which, self, bound);
    if (self->kind == TM_V_DICT && which >= M_ITEMS && which <= M_VALUES)
        return tm_v_parts(r, (tm_v_part)(which - M_ITEMS), self);
    if (self->kind == TM_V_DICT && which == M_GET) {
        const tm_v *found = tm_v_at(r, self, bound[0]);
        return found ? *found : bound[1] ? *bound[1] : (tm_v){ .kind = TM_V_NONE };
    }
    return tm_render_fail(r, TM_INVALID, "this value has no '%s'", methods[which].name);
}

tm_v tm_render_member(tm_render *r, const tm_v *v, const char *name, size_t n)
{
    int which = tm_template_method(name);
    if (v->kind == TM_V_UNDEFINED)
        return tm_render_fail(r, TM_INVALID, "'%s' is undefined and has no '%s'", v->text ? v->text : "a value", name);
    if (is_pythons(v, name)) return tm_render_fail(r, TM_UNSUPPORTED, "'%s' of this value is not supported", name);
    if (v->kind == TM_V_DICT || v->kind == TM_V_NAMESPACE) {
        bool        method = v->kind == TM_V_DICT && which >= M_ITEMS && which <= M_GET;
        const tm_v *found = method ? NULL : tm_v_get(v, name, n);
        if (found) return *found;
        if (!method) return (tm_v){ .kind = TM_V_UNDEFINED, .text = name, .length = n };
    } else if (which < 0 || which >= M_ITEMS || v->kind != TM_V_STRING) {
        return (tm_v){ .kind = TM_V_UNDEFINED, .text = name, .length = n };
    }
    tm_v *self = tm_render_take(r, sizeof *self);
    *self = *v;
    return (tm_v){ .kind = TM_V_METHOD, .integer = which, .self = self };
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

enum {
    IS_DEFINED,
    IS_UNDEFINED,
    IS_NONE,
    IS_STRING,
    IS_MAPPING,
    IS_ITERABLE,
    IS_SEQUENCE,
    IS_BOOLEAN,
    IS_TRUE,
    IS_FALSE,
    IS_NUMBER,
    IS_INTEGER,
    IS_FLOAT,
    IS_EQ,
    IS_NE,
    IS_LT,
    IS_LE,
    IS_GT,
    IS_GE,
    IS_SAME,
    IS_IN,
    IS_DIVISIBLE, /* the last that takes a value */
    IS_ODD,
    IS_EVEN,
    IS_CALLABLE,
    IS_LOWER,
    IS_UPPER,
    TESTS
};
static const char *const tests[TESTS] = { "defined",  "undefined", "none", "string",      "mapping", "iterable",
                                          "sequence", "boolean",   "true", "false",       "number",  "integer",
                                          "float",    "eq",        "ne",   "lt",          "le",      "gt",
                                          "ge",       "sameas",    "in",   "divisibleby", "odd",     "even",
                                          "callable", "lower",     "upper" };

int tm_template_test(const char *name)
{
    static const struct {
        const char *name;
        int         which;
    } others[] = { { "equalto", IS_EQ }, { "==", IS_EQ },       { "!=", IS_NE },
                   { "<", IS_LT },       { "lessthan", IS_LT }, { "<=", IS_LE },
                   { ">", IS_GT },       { ">=", IS_GE },       { "greaterthan", IS_GT } };
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(others[i].name, name) == 0) return others[i].which;
    return tm_v_number_of(tests, TESTS, name);
}

/* Python's `is`: of numbers and texts it is its own affair. */
static bool is_same(tm_render *r, const tm_v *a, const tm_v *b)
{
    if (a->kind != b->kind) return false;
    if (a->kind == TM_V_INT || a->kind == TM_V_FLOAT || a->kind == TM_V_STRING || tm_v_is(a, TM_L_TUPLE) ||
        a->kind >= TM_V_FUNCTION)
        tm_render_fail(r, TM_UNSUPPORTED, "'sameas' of two such values is not supported; compare with ==");
    if (a->kind == TM_V_UNDEFINED) return false;
    return a->box == b->box && a->integer == b->integer && a->macro == b->macro;
}

/* Has the test as many arguments as it takes? */
static bool fits(tm_render *r, int which, const tm_v_arguments *a)
{
    bool compares = which >= IS_EQ && which <= IS_DIVISIBLE;
    if (a->n_named > 0) {
        tm_render_fail(r, TM_UNSUPPORTED, "'%s' has no argument '%s'", tests[which], a->named[0].text);
        return false;
    }
    if (compares ? a->n == 1 : a->n == 0) return true;
    tm_v_wants(r, tests[which],
               !compares                   ? "nothing"
               : tm_v_argument(a, 0, NULL) ? "one value to compare with"
                                           : "a value to compare with");
    return false;
}

bool tm_render_test(tm_render *r, int which, const tm_v *v, const tm_v_arguments *a)
{
    static const char *const orders[] = { "<", "<=", ">", ">=" };
    const tm_v              *other = tm_v_argument(a, 0, NULL);
    tm_v_kind                k = v->kind;
    tm_v                     made;
    if (!fits(r, which, a)) return false;
    switch (which) {
    case IS_DEFINED:
        return k != TM_V_UNDEFINED;
    case IS_UNDEFINED:
        return k == TM_V_UNDEFINED;
    case IS_NONE:
        return k == TM_V_NONE;
    case IS_STRING:
        return k == TM_V_STRING;
    case IS_MAPPING:
        return k == TM_V_DICT;
    case IS_ITERABLE:
    case IS_SEQUENCE:
        if (k == TM_V_LIST) return which == IS_ITERABLE || tm_v_has_places(v);
        return k == TM_V_STRING || k == TM_V_DICT || k == TM_V_UNDEFINED;
    case IS_BOOLEAN:
        return k == TM_V_BOOL;
    case IS_TRUE:
        return k == TM_V_BOOL && v->integer;
    case IS_FALSE:
        return k == TM_V_BOOL && !v->integer;
    case IS_NUMBER:
        return k == TM_V_INT || k == TM_V_FLOAT || k == TM_V_BOOL;
    case IS_INTEGER:
        return k == TM_V_INT;
    case IS_FLOAT:
        return k == TM_V_FLOAT;
    case IS_EQ:
        return tm_v_equal(r, v, other);
    case IS_NE:
        return !tm_v_equal(r, v, other);
    case IS_LT:
    case IS_LE:
    case IS_GT:
    case IS_GE:
        made = tm_render_binary(r, tm_template_operator(orders[which - IS_LT]), v, other);
        return made.integer != 0;
    case IS_SAME:
        return is_same(r, v, other);
    case IS_LOWER:
    case IS_UPPER:
        made = tm_v_as_text(r, v);
        made = is_made_of(r, which == IS_LOWER ? M_IS_LOWER : M_IS_UPPER, &made);
        return made.integer != 0;
    case IS_IN:
        made = tm_render_binary(r, tm_template_operator("in"), v, other);
        return made.integer != 0;
    case IS_CALLABLE:
        /* what is undefined has a method that says so when it is called */
        return k == TM_V_MACRO || k == TM_V_FUNCTION || k == TM_V_METHOD || k == TM_V_UNDEFINED;
    default:
        if (k != TM_V_INT || (other && (other->kind != TM_V_INT || other->integer == 0))) {
            tm_v_wants(r, tests[which], "an integer");
            return false;
        }
        return which == IS_DIVISIBLE ? v->integer % other->integer == 0 : (v->integer % 2 != 0) == (which == IS_ODD);
    }
}
