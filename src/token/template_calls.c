/* SPDX-License-Identifier: Apache-2.0 */
/* token/template_calls.c - operators, methods and tests of a template: a table each, what is not in it is refused by
 * name. */
#include "token/template_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- operators ---------------------------------------------------------------------------------------------------- */

enum { O_EQ, O_NE, O_LE, O_GE, O_LT, O_GT, O_IN, O_ADD, O_SUB, O_CAT, O_MUL, O_DIV, O_FLOOR, O_MOD, O_POW, OPERATORS };
static const char *const operators[OPERATORS] = { "==", "!=", "<=", ">=", "<",  ">", "in", "+",
                                                  "-",  "~",  "*",  "/",  "//", "%", "**" };

int tm_template_operator(const char *text)
{
    return tm_v_number_of(operators, OPERATORS, text);
}

static bool contains(tm_render *r, const tm_v *all, const tm_v *what)
{
    if (all->kind == TM_V_STRING && what->kind == TM_V_STRING)
        return tm_v_find(all->text, all->length, what->text, what->length) != NULL;
    if (all->kind == TM_V_DICT || all->kind == TM_V_NAMESPACE) return tm_v_at(all, what) != NULL;
    if (all->kind != TM_V_LIST) {
        if (all->kind != TM_V_UNDEFINED) tm_v_wants(r, "in", "a list, a map or a string after it");
        return false;
    }
    size_t n = all->box->n, i = 0;
    while (i < n && !tm_v_equal(&all->box->item[i], what)) i++;
    tm_v_took(all, i < n ? i + 1 : n);
    return i < n;
}

static tm_v arithmetic(tm_render *r, int which, const tm_v *a, const tm_v *b)
{
    bool   real = a->kind == TM_V_FLOAT || b->kind == TM_V_FLOAT || which == O_DIV;
    double x = a->kind == TM_V_FLOAT ? a->real : (double)a->integer,
           y = b->kind == TM_V_FLOAT ? b->real : (double)b->integer;
    int64_t i = a->integer, k = b->integer, result = 0;
    if ((which == O_DIV || which == O_FLOOR || which == O_MOD) && !(y < 0) && !(y > 0))
        return tm_render_fail(r, TM_INVALID, "division by zero");
    if (real || which == O_POW) {
        double v = which == O_ADD   ? x + y
                   : which == O_SUB ? x - y
                   : which == O_MUL ? x * y
                   : which == O_DIV ? x / y
                   : which == O_POW ? pow(x, y)
                   : which == O_MOD ? x - y * floor(x / y)
                                    : floor(x / y);
        if (which == O_POW && !real && k >= 0 && fabs(v) < 9e15) return tm_v_integer((int64_t)v);
        return (tm_v){ .kind = TM_V_FLOAT, .real = v };
    }
    bool over = false;
    if (which == O_ADD) over = __builtin_add_overflow(i, k, &result);
    if (which == O_SUB) over = __builtin_sub_overflow(i, k, &result);
    if (which == O_MUL) over = __builtin_mul_overflow(i, k, &result);
    if (which == O_FLOOR || which == O_MOD) {
        int64_t quotient = k == -1 ? -(i + 0) : i / k, rest = k == -1 ? 0 : i % k;
        if (rest != 0 && (rest < 0) != (k < 0)) quotient--, rest += k;
        result = which == O_MOD ? rest : quotient;
    }
    return over ? tm_render_fail(r, TM_INVALID, "a number is too large") : tm_v_integer(result);
}

tm_v tm_render_binary(tm_render *r, int which, const tm_v *a, const tm_v *b)
{
    int order = 0;
    if (which == O_EQ || which == O_NE)
        return (tm_v){ .kind = TM_V_BOOL, .integer = tm_v_equal(a, b) == (which == O_EQ) };
    if (which == O_IN) return (tm_v){ .kind = TM_V_BOOL, .integer = contains(r, b, a) };
    if (which <= O_GT) {
        if (!tm_v_compare(a, b, &order)) return tm_v_wants(r, operators[which], "two numbers or two texts");
        bool is = which == O_LE ? order <= 0 : which == O_GE ? order >= 0 : which == O_LT ? order < 0 : order > 0;
        return (tm_v){ .kind = TM_V_BOOL, .integer = is };
    }
    if (which == O_CAT) {
        tm_v x = tm_v_as_text(r, a), y = tm_v_as_text(r, b);
        return tm_v_concatenated(r, &x, &y);
    }
    if (which == O_ADD && a->kind == TM_V_STRING && b->kind == TM_V_STRING) return tm_v_concatenated(r, a, b);
    if (which == O_ADD && a->kind == TM_V_LIST && b->kind == TM_V_LIST && a->form == b->form && a->form <= TM_L_TUPLE) {
        tm_v all = tm_v_list_as(r, a->form);
        for (size_t i = 0; i < a->box->n; i++) tm_v_append(r, &all, a->box->item[i]);
        for (size_t i = 0; i < b->box->n; i++) tm_v_append(r, &all, b->box->item[i]);
        return all;
    }
    if (which == O_MUL && a->kind == TM_V_STRING && b->kind == TM_V_INT) {
        size_t times = b->integer > 0 && a->length ? (size_t)b->integer : 0;
        if (a->length && times > (1 << 20) / a->length)
            return tm_render_fail(r, TM_INVALID, "a string becomes too long");
        char *text = tm_render_take(r, times * a->length + 1);
        for (size_t i = 0; i < times; i++) memcpy(text + i * a->length, a->text, a->length);
        return (tm_v){ .kind = TM_V_STRING, .text = text, .length = times * a->length };
    }
    bool numbers = (a->kind == TM_V_INT || a->kind == TM_V_FLOAT || a->kind == TM_V_BOOL) &&
                   (b->kind == TM_V_INT || b->kind == TM_V_FLOAT || b->kind == TM_V_BOOL);
    return numbers ? arithmetic(r, which, a, b)
                   : tm_v_wants(r, operators[which],
                                which == O_ADD ? "two numbers, two texts or two lists" : "two numbers");
}

/* --- methods ------------------------------------------------------------------------------------------------------ */

enum {
    M_STRIP,
    M_LSTRIP,
    M_RSTRIP,
    M_SPLIT,
    M_STARTS,
    M_ENDS,
    M_LOWER,
    M_UPPER,
    M_CAPITAL,
    M_TITLE,
    M_REPLACE,
    M_JOIN,
    M_ITEMS,
    M_KEYS,
    M_VALUES,
    M_GET,
    M_FIND,
    M_COUNT,
    METHODS
};
static const char *const methods[METHODS] = { "strip", "lstrip", "rstrip",     "split", "startswith", "endswith",
                                              "lower", "upper",  "capitalize", "title", "replace",    "join",
                                              "items", "keys",   "values",     "get",   "find",       "count" };

int tm_template_method(const char *name)
{
    return tm_v_number_of(methods, METHODS, name);
}

/* Is `part` at the begin or end? It may be a tuple of texts. */
static bool has_end(const tm_v *v, const tm_v *part, bool begin)
{
    if (part->kind == TM_V_LIST) {
        for (size_t i = 0; i < part->box->n; i++)
            if (has_end(v, &part->box->item[i], begin)) return true;
        return false;
    }
    if (part->kind != TM_V_STRING || part->length > v->length) return false;
    return memcmp(begin ? v->text : v->text + v->length - part->length, part->text, part->length) == 0;
}

static tm_v text_method(tm_render *r, int which, const tm_v *v, const tm_v_arguments *a)
{
    static const tm_v none = { .kind = TM_V_NONE };
    const tm_v       *first = tm_v_argument(a, 0, NULL), *second = tm_v_argument(a, 1, NULL);
    const tm_v       *third = tm_v_argument(a, 2, NULL), *most = tm_v_argument(a, 1, "maxsplit");
    bool              text = first && first->kind == TM_V_STRING;
    switch (which) {
    case M_STRIP:
        return tm_v_strip(v, first, true, true);
    case M_LSTRIP:
        return tm_v_strip(v, first, true, false);
    case M_RSTRIP:
        return tm_v_strip(v, first, false, true);
    case M_SPLIT:
        return tm_v_split(r, v,
                          first                        ? first
                          : tm_v_argument(a, 9, "sep") ? tm_v_argument(a, 9, "sep")
                                                       : &none,
                          most && most->kind == TM_V_INT ? most->integer : -1);
    case M_STARTS:
    case M_ENDS:
        if (!text && !(first && tm_v_is(first, TM_L_TUPLE))) return tm_v_wants(r, methods[which], "a text");
        return (tm_v){ .kind = TM_V_BOOL, .integer = has_end(v, first, which == M_STARTS) };
    case M_LOWER:
    case M_UPPER:
    case M_CAPITAL:
    case M_TITLE:
        return tm_v_letters(r, v, which - M_LOWER);
    case M_JOIN:
        return first ? tm_v_join(r, first, v) : tm_v_wants(r, "join", "a list");
    case M_REPLACE:
        if (!text || !second || second->kind != TM_V_STRING) return tm_v_wants(r, "replace", "two texts");
        return tm_v_replace(r, v, first, second, third && third->kind == TM_V_INT ? third->integer : -1);
    default: {
        if (!text) return tm_v_wants(r, methods[which], "a text");
        const char *at = tm_v_find(v->text, v->length, first->text, first->length);
        if (which == M_FIND)
            return tm_v_integer(at ? (int64_t)tm_utf8_width(tm_arena_text_n(r->arena, v->text, (size_t)(at - v->text)))
                                   : -1);
        int64_t n = 0;
        for (const char *p = v->text;
             first->length && (p = tm_v_find(p, (size_t)(v->text + v->length - p), first->text, first->length));
             p += first->length)
            n++;
        return tm_v_integer(n);
    }
    }
}

tm_v tm_render_method(tm_render *r, int which, const tm_v *self, const tm_v_arguments *a)
{
    if (self->kind == TM_V_STRING && which < M_ITEMS) return text_method(r, which, self, a);
    if (self->kind == TM_V_STRING && which > M_GET) return text_method(r, which, self, a);
    if (self->kind == TM_V_DICT && which >= M_ITEMS && which <= M_VALUES)
        return tm_v_parts(r, (tm_v_part)(which - M_ITEMS), self);
    const tm_v *key = tm_v_argument(a, 0, "key"), *other = tm_v_argument(a, 1, "default");
    if (self->kind == TM_V_DICT && which == M_GET && key) {
        const tm_v *found = tm_v_at(self, key);
        return found ? *found : other ? *other : (tm_v){ .kind = TM_V_NONE };
    }
    return tm_render_fail(r, TM_INVALID, "this value has no '%s'", methods[which]);
}

tm_v tm_render_member(tm_render *r, const tm_v *v, const char *name, size_t n)
{
    int which = tm_template_method(name);
    if (v->kind == TM_V_UNDEFINED)
        return tm_render_fail(r, TM_INVALID, "'%s' is undefined and has no '%s'", v->text ? v->text : "a value", name);
    if (v->kind == TM_V_DICT || v->kind == TM_V_NAMESPACE) {
        bool        method = v->kind == TM_V_DICT && which >= M_ITEMS && which <= M_GET;
        const tm_v *found = method ? NULL : tm_v_get(v, name, n);
        if (found) return *found;
        if (!method) return (tm_v){ .kind = TM_V_UNDEFINED, .text = name, .length = n };
    } else if (which < 0 || v->kind != TM_V_STRING) {
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
    IS_IN,
    IS_ODD,
    IS_EVEN,
    IS_CALLABLE,
    IS_DIVISIBLE,
    TESTS
};
static const char *const tests[TESTS] = { "defined",  "undefined", "none",    "string",   "mapping",
                                          "iterable", "sequence",  "boolean", "true",     "false",
                                          "number",   "integer",   "float",   "eq",       "ne",
                                          "in",       "odd",       "even",    "callable", "divisibleby" };

int tm_template_test(const char *name)
{
    if (strcmp(name, "equalto") == 0 || strcmp(name, "sameas") == 0 || strcmp(name, "==") == 0) return IS_EQ;
    if (strcmp(name, "!=") == 0) return IS_NE;
    return tm_v_number_of(tests, TESTS, name);
}

bool tm_render_test(tm_render *r, int which, const tm_v *v, const tm_v_arguments *a)
{
    const tm_v *other = tm_v_argument(a, 0, NULL);
    tm_v_kind   k = v->kind;
    bool        compares = which == IS_EQ || which == IS_NE || which == IS_IN || which == IS_DIVISIBLE;
    if (compares ? a->n != 1 : a->n > 0) {
        tm_v_wants(r, tests[which],
                   !compares ? "nothing"
                   : other   ? "one value to compare with"
                             : "a value to compare with");
        return false;
    }
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
        return tm_v_equal(v, other);
    case IS_NE:
        return !tm_v_equal(v, other);
    case IS_IN:
        return contains(r, other, v);
    case IS_CALLABLE:
        return k == TM_V_MACRO || k == TM_V_FUNCTION || k == TM_V_METHOD;
    default:
        if (k != TM_V_INT || (other && (other->kind != TM_V_INT || other->integer == 0))) {
            tm_v_wants(r, tests[which], "an integer");
            return false;
        }
        return which == IS_DIVISIBLE ? v->integer % other->integer == 0 : (v->integer % 2 != 0) == (which == IS_ODD);
    }
}
