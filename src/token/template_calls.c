/* SPDX-License-Identifier: Apache-2.0 */
/* token/template_calls.c - operators, filters, tests and methods of a template: a table each, what is not in it is
 * refused by name. */
#include "token/template_ast.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static tm_v integer(int64_t value)
{
    return (tm_v){ .kind = TM_V_INT, .integer = value };
}

static tm_v wants(tm_render *r, const char *what, const char *wanted)
{
    return tm_render_fail(r, TM_INVALID, "'%s' takes %s", what, wanted);
}

/* The value as it is printed, for '~' and string. */
static tm_v as_text(tm_render *r, const tm_v *v)
{
    tm_text text = { 0 };
    tm_v_print(v, &text);
    tm_v made = tm_v_string(r, text.data, text.length);
    tm_text_fini(&text);
    return made;
}

static tm_v two_texts(tm_render *r, const tm_v *a, const tm_v *b)
{
    char *text = tm_arena_take(r->arena, a->length + b->length + 1);
    if (a->length) memcpy(text, a->text, a->length);
    if (b->length) memcpy(text + a->length, b->text, b->length);
    return (tm_v){ .kind = TM_V_STRING, .text = text, .length = a->length + b->length };
}

static const char *find_text(const char *in, size_t n, const char *what, size_t length)
{
    for (size_t i = 0; length <= n && i + length <= n; i++)
        if (memcmp(in + i, what, length) == 0) return in + i;
    return NULL;
}

/* --- operators ---------------------------------------------------------------------------------------------------- */

enum { O_EQ, O_NE, O_LE, O_GE, O_LT, O_GT, O_IN, O_ADD, O_SUB, O_CAT, O_MUL, O_DIV, O_FLOOR, O_MOD, O_POW, OPERATORS };
static const char *const operators[OPERATORS] = { "==", "!=", "<=", ">=", "<",  ">", "in", "+",
                                                  "-",  "~",  "*",  "/",  "//", "%", "**" };

static int find_name(const char *const *names, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(names[i], name) == 0) return i;
    return -1;
}

int tm_template_operator(const char *text)
{
    return find_name(operators, OPERATORS, text);
}

static bool contains(tm_render *r, const tm_v *all, const tm_v *what)
{
    if (all->kind == TM_V_STRING && what->kind == TM_V_STRING)
        return find_text(all->text, all->length, what->text, what->length) != NULL;
    if (all->kind == TM_V_DICT || all->kind == TM_V_NAMESPACE)
        return what->kind == TM_V_STRING && tm_v_get(all, what->text, what->length);
    if (all->kind != TM_V_LIST) {
        if (all->kind != TM_V_UNDEFINED) wants(r, "in", "a list, a map or a string after it");
        return false;
    }
    for (size_t i = 0; i < all->box->n; i++)
        if (tm_v_equal(&all->box->item[i], what)) return true;
    return false;
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
        if (which == O_POW && !real && k >= 0 && fabs(v) < 9e15) return integer((int64_t)v);
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
    return over ? tm_render_fail(r, TM_INVALID, "a number is too large") : integer(result);
}

tm_v tm_render_binary(tm_render *r, int which, const tm_v *a, const tm_v *b)
{
    int order = 0;
    if (which == O_EQ || which == O_NE)
        return (tm_v){ .kind = TM_V_BOOL, .integer = tm_v_equal(a, b) == (which == O_EQ) };
    if (which == O_IN) return (tm_v){ .kind = TM_V_BOOL, .integer = contains(r, b, a) };
    if (which <= O_GT) {
        if (!tm_v_compare(a, b, &order)) return wants(r, operators[which], "two numbers or two texts");
        bool is = which == O_LE ? order <= 0 : which == O_GE ? order >= 0 : which == O_LT ? order < 0 : order > 0;
        return (tm_v){ .kind = TM_V_BOOL, .integer = is };
    }
    if (which == O_CAT) {
        tm_v x = as_text(r, a), y = as_text(r, b);
        return two_texts(r, &x, &y);
    }
    if (which == O_ADD && a->kind == TM_V_STRING && b->kind == TM_V_STRING) return two_texts(r, a, b);
    if (which == O_ADD && a->kind == TM_V_LIST && b->kind == TM_V_LIST) {
        tm_v all = tm_v_list(r);
        for (size_t i = 0; i < a->box->n; i++) tm_v_append(r, &all, a->box->item[i]);
        for (size_t i = 0; i < b->box->n; i++) tm_v_append(r, &all, b->box->item[i]);
        return all;
    }
    if (which == O_MUL && a->kind == TM_V_STRING && b->kind == TM_V_INT) {
        tm_v all = tm_v_string(r, "", 0);
        if (b->integer > 0 && a->length && b->integer > (int64_t)(1 << 20) / (int64_t)a->length)
            return tm_render_fail(r, TM_INVALID, "a string becomes too long");
        for (int64_t i = 0; i < b->integer; i++) all = two_texts(r, &all, a);
        return all;
    }
    bool numbers = (a->kind == TM_V_INT || a->kind == TM_V_FLOAT || a->kind == TM_V_BOOL) &&
                   (b->kind == TM_V_INT || b->kind == TM_V_FLOAT || b->kind == TM_V_BOOL);
    return numbers ? arithmetic(r, which, a, b)
                   : wants(r, operators[which], which == O_ADD ? "two numbers, two texts or two lists" : "two numbers");
}

/* --- what texts have ---------------------------------------------------------------------------------------------- */

static bool in_set(char c, const tm_v *set)
{
    if (!set || set->kind != TM_V_STRING) return isspace((unsigned char)c) || (c >= 28 && c <= 31);
    return set->length > 0 && memchr(set->text, c, set->length) != NULL;
}

/* left, right: which ends. `set`: bytes that go, NULL or none: blanks. */
static tm_v strip(const tm_v *v, const tm_v *set, bool left, bool right)
{
    tm_v out = *v;
    while (left && out.length > 0 && in_set(out.text[0], set)) out.text++, out.length--;
    while (right && out.length > 0 && in_set(out.text[out.length - 1], set)) out.length--;
    return out;
}

enum { CASE_LOWER, CASE_UPPER, CASE_CAPITAL, CASE_TITLE };
/* Of ASCII texts: the cases of other letters are not known here, and not guessed. */
static tm_v letters(tm_render *r, const tm_v *v, int how)
{
    for (size_t i = 0; i < v->length; i++)
        if ((unsigned char)v->text[i] >= 128)
            return tm_render_fail(r, TM_UNSUPPORTED,
                                  "upper and lower case of '%.60s' is not built: letters beyond ASCII", v->text);
    char *text = tm_arena_text_n(r->arena, v->text, v->length);
    bool  begins = true;
    for (size_t i = 0; i < v->length; i++) {
        unsigned char c = (unsigned char)text[i];
        bool          up = how == CASE_UPPER || (how == CASE_CAPITAL && i == 0) || (how == CASE_TITLE && begins);
        if (c < 128) text[i] = (char)(up ? toupper(c) : tolower(c));
        begins = c < 128 && !isalpha(c);
    }
    return (tm_v){ .kind = TM_V_STRING, .text = text, .length = v->length };
}

static tm_v replace(tm_render *r, const tm_v *v, const tm_v *from, const tm_v *to, int64_t most)
{
    tm_text     out = { 0 };
    const char *at = v->text, *end = v->text + v->length, *next;
    tm_text_add(&out, "");
    while (most != 0 && from->length > 0 && (next = find_text(at, (size_t)(end - at), from->text, from->length))) {
        tm_text_add_n(&out, at, (size_t)(next - at));
        tm_text_add_n(&out, to->text, to->length);
        at = next + from->length;
        most -= most > 0;
    }
    tm_text_add_n(&out, at, (size_t)(end - at));
    tm_v made = tm_v_string(r, out.data, out.length);
    tm_text_fini(&out);
    return made;
}

static tm_v split_blanks(tm_render *r, const tm_v *v)
{
    tm_v   all = tm_v_list(r);
    size_t i = 0;
    while (i < v->length) {
        while (i < v->length && isspace((unsigned char)v->text[i])) i++;
        size_t from = i;
        while (i < v->length && !isspace((unsigned char)v->text[i])) i++;
        if (i > from) tm_v_append(r, &all, tm_v_string(r, v->text + from, i - from));
    }
    return all;
}

static tm_v split(tm_render *r, const tm_v *v, const tm_v *by, int64_t most)
{
    tm_v        all = tm_v_list(r);
    const char *at = v->text, *end = v->text + v->length, *next;
    if (!by || by->kind == TM_V_NONE) return split_blanks(r, v);
    if (by->kind != TM_V_STRING || by->length == 0) return wants(r, "split", "a non-empty string");
    while (most != 0 && (next = find_text(at, (size_t)(end - at), by->text, by->length))) {
        tm_v_append(r, &all, tm_v_string(r, at, (size_t)(next - at)));
        at = next + by->length;
        most -= most > 0;
    }
    tm_v_append(r, &all, tm_v_string(r, at, (size_t)(end - at)));
    return all;
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
    return find_name(methods, METHODS, name);
}

/* Is `part` at the begin or end? It may be a list of texts. */
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

static tm_v join(tm_render *r, const tm_v *list, const tm_v *between)
{
    tm_text out = { 0 };
    tm_v    all = tm_v_items(r, list);
    if (r->failed) return all;
    tm_text_add(&out, "");
    for (size_t i = 0; i < all.box->n; i++) {
        if (i && between) tm_text_add_n(&out, between->text, between->length);
        tm_v_print(&all.box->item[i], &out);
    }
    tm_v made = tm_v_string(r, out.data, out.length);
    tm_text_fini(&out);
    return made;
}

static tm_v text_method(tm_render *r, int which, const tm_v *v, const tm_v_arguments *a)
{
    static const tm_v none = { .kind = TM_V_NONE };
    const tm_v       *first = tm_v_argument(a, 0, NULL), *second = tm_v_argument(a, 1, NULL);
    const tm_v       *third = tm_v_argument(a, 2, NULL), *most = tm_v_argument(a, 1, "maxsplit");
    bool              text = first && first->kind == TM_V_STRING;
    switch (which) {
    case M_STRIP:
        return strip(v, first, true, true);
    case M_LSTRIP:
        return strip(v, first, true, false);
    case M_RSTRIP:
        return strip(v, first, false, true);
    case M_SPLIT:
        return split(r, v,
                     first                        ? first
                     : tm_v_argument(a, 9, "sep") ? tm_v_argument(a, 9, "sep")
                                                  : &none,
                     most && most->kind == TM_V_INT ? most->integer : -1);
    case M_STARTS:
    case M_ENDS:
        if (!text && !(first && first->kind == TM_V_LIST)) return wants(r, methods[which], "a text");
        return (tm_v){ .kind = TM_V_BOOL, .integer = has_end(v, first, which == M_STARTS) };
    case M_LOWER:
    case M_UPPER:
    case M_CAPITAL:
    case M_TITLE:
        return letters(r, v, which - M_LOWER);
    case M_JOIN:
        return first ? join(r, first, v) : wants(r, "join", "a list");
    case M_REPLACE:
        if (!text || !second || second->kind != TM_V_STRING) return wants(r, "replace", "two texts");
        return replace(r, v, first, second, third && third->kind == TM_V_INT ? third->integer : -1);
    default: {
        if (!text) return wants(r, methods[which], "a text");
        const char *at = find_text(v->text, v->length, first->text, first->length);
        if (which == M_FIND)
            return integer(at ? (int64_t)tm_utf8_width(tm_arena_text_n(r->arena, v->text, (size_t)(at - v->text)))
                              : -1);
        int64_t n = 0;
        for (const char *p = v->text;
             first->length && (p = find_text(p, (size_t)(v->text + v->length - p), first->text, first->length));
             p += first->length)
            n++;
        return integer(n);
    }
    }
}

/* Pairs, keys or values of a map. */
static tm_v parts(tm_render *r, int which, const tm_v *v)
{
    tm_v all = tm_v_list(r);
    for (size_t i = 0; i < v->box->n; i += 2) {
        tm_v pair = tm_v_list(r);
        if (which == M_ITEMS) {
            tm_v_append(r, &pair, v->box->item[i]);
            tm_v_append(r, &pair, v->box->item[i + 1]);
        }
        tm_v_append(r, &all, which == M_ITEMS ? pair : v->box->item[which == M_KEYS ? i : i + 1]);
    }
    return all;
}

tm_v tm_render_method(tm_render *r, int which, const tm_v *self, const tm_v_arguments *a)
{
    if (self->kind == TM_V_STRING && which < M_ITEMS) return text_method(r, which, self, a);
    if (self->kind == TM_V_STRING && which > M_GET) return text_method(r, which, self, a);
    if (self->kind == TM_V_DICT && which >= M_ITEMS && which <= M_VALUES) return parts(r, which, self);
    const tm_v *key = tm_v_argument(a, 0, "key"), *other = tm_v_argument(a, 1, "default");
    if (self->kind == TM_V_DICT && which == M_GET && key) {
        const tm_v *found = key->kind == TM_V_STRING ? tm_v_get(self, key->text, key->length) : NULL;
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
    tm_v *self = tm_arena_take(r->arena, sizeof *self);
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
    if (strcmp(name, "equalto") == 0 || strcmp(name, "sameas") == 0) return IS_EQ;
    return find_name(tests, TESTS, name);
}

bool tm_render_test(tm_render *r, int which, const tm_v *v, const tm_v_arguments *a)
{
    const tm_v *other = tm_v_argument(a, 0, NULL);
    tm_v_kind   k = v->kind;
    if ((which == IS_EQ || which == IS_NE || which == IS_IN || which == IS_DIVISIBLE) && !other) {
        wants(r, tests[which], "a value to compare with");
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
        return k == TM_V_STRING || k == TM_V_LIST || k == TM_V_DICT || k == TM_V_UNDEFINED;
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
            wants(r, tests[which], "an integer");
            return false;
        }
        return which == IS_DIVISIBLE ? v->integer % other->integer == 0 : (v->integer % 2 != 0) == (which == IS_ODD);
    }
}

/* --- filters ------------------------------------------------------------------------------------------------------ */

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
    return find_name(filters, FILTERS, name);
}

static tm_v length(tm_render *r, const tm_v *v)
{
    if (v->kind == TM_V_DICT) return integer((int64_t)v->box->n / 2);
    tm_v all = tm_v_items(r, v);
    return r->failed ? all : integer((int64_t)all.box->n);
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
    tm_v           all = tm_v_items(r, v), out = tm_v_list(r);
    int            test = -1;
    if (by_member && (!member || member->kind != TM_V_STRING)) return wants(r, filters[which], "the name of a member");
    if (name) {
        const char *text = name->kind == TM_V_STRING ? name->text : "?";
        test = strcmp(text, "==") == 0 ? IS_EQ : strcmp(text, "!=") == 0 ? IS_NE : tm_template_test(text);
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
    tm_v        all = tm_v_items(r, v), out = tm_v_list(r);
    int         which = name && name->kind == TM_V_STRING ? tm_template_filter(name->text) : -1;
    if (!member && which < 0)
        return tm_render_fail(r, TM_UNSUPPORTED, "'map' takes attribute=, or the name of a filter");
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
    return real ? (tm_v){ .kind = TM_V_FLOAT, .real = value } : integer((int64_t)value);
}

static tm_v sorted(tm_render *r, const tm_v *v, bool unique)
{
    tm_v all = tm_v_items(r, v), out = tm_v_list(r);
    for (size_t i = 0; i < all.box->n; i++) {
        bool   known = false;
        size_t at = out.box->n;
        for (size_t k = 0; k < out.box->n && unique; k++)
            known = known || tm_v_equal(&out.box->item[k], &all.box->item[i]);
        if (known) continue;
        tm_v_append(r, &out, all.box->item[i]);
        for (int order; !unique && at > 0; at--) {
            if (!tm_v_compare(&out.box->item[at - 1], &all.box->item[i], &order))
                return wants(r, "sort", "numbers or texts");
            if (order <= 0) break;
            out.box->item[at] = out.box->item[at - 1];
            out.box->item[at - 1] = all.box->item[i];
        }
    }
    return out;
}

static tm_v sorted_map(tm_render *r, const tm_v *v)
{
    tm_v keys = parts(r, M_KEYS, v), order = sorted(r, &keys, false), out = tm_v_list(r);
    for (size_t i = 0; i < order.box->n && !r->failed; i++) {
        tm_v pair = tm_v_list(r);
        tm_v_append(r, &pair, order.box->item[i]);
        tm_v_append(r, &pair, *tm_v_get(v, order.box->item[i].text, order.box->item[i].length));
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
    tm_v all = tm_v_items(r, v), out = tm_v_list(r);
    if (r->failed || which == P_LIST) {
        for (size_t i = 0; !r->failed && i < all.box->n; i++) tm_v_append(r, &out, all.box->item[i]);
        return out;
    }
    if (which == P_REVERSE) {
        for (size_t i = all.box->n; i-- > 0;) tm_v_append(r, &out, all.box->item[i]);
        return v->kind == TM_V_STRING ? join(r, &out, NULL) : out;
    }
    if (all.box->n == 0) return (tm_v){ .kind = TM_V_UNDEFINED };
    return all.box->item[which == P_FIRST ? 0 : all.box->n - 1];
}

tm_v tm_render_filter(tm_render *r, int which, const tm_v *v, const tm_v_arguments *a)
{
    const tm_v *first = tm_v_argument(a, 0, NULL), *second = tm_v_argument(a, 1, NULL);
    bool        texts = which <= P_TRIM || (which >= P_UPPER && which <= P_REPLACE) || which == P_INDENT;
    tm_v        text = texts ? as_text(r, v) : *v;
    switch (which) {
    case P_TRIM:
        return strip(&text, first, true, true);
    case P_TOJSON:
        return to_json(r, v, a);
    case P_LENGTH:
        return length(r, v);
    case P_STRING:
        return as_text(r, v);
    case P_JOIN:
        first = tm_v_argument(a, 0, "d");
        if (tm_v_argument(a, 9, "attribute")) return tm_render_fail(r, TM_UNSUPPORTED, "join(attribute=) is not built");
        return join(r, v, first && first->kind == TM_V_STRING ? first : NULL);
    case P_UPPER:
    case P_LOWER:
        return letters(r, &text, which == P_UPPER ? CASE_UPPER : CASE_LOWER);
    case P_CAPITAL:
    case P_TITLE:
        return letters(r, &text, which == P_CAPITAL ? CASE_CAPITAL : CASE_TITLE);
    case P_REPLACE:
        if (!first || !second || first->kind != TM_V_STRING || second->kind != TM_V_STRING)
            return wants(r, "replace", "two texts");
        return replace(r, &text, first, second, -1);
    case P_DEFAULT:
        first = tm_v_argument(a, 0, "default_value");
        second = tm_v_argument(a, 1, "boolean");
        if (v->kind == TM_V_UNDEFINED || (second && tm_v_true(second) && !tm_v_true(v)))
            return first ? *first : tm_v_string(r, "", 0);
        return *v;
    case P_ITEMS:
        if (v->kind == TM_V_UNDEFINED) return tm_v_list(r);
        return v->kind == TM_V_DICT ? parts(r, M_ITEMS, v) : wants(r, "items", "a map");
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
                                     : integer(v->integer < 0 ? -v->integer : v->integer);
    case P_SAFE:
        return *v;
    case P_DICTSORT:
        return v->kind == TM_V_DICT ? sorted_map(r, v) : wants(r, "dictsort", "a map");
    case P_UNIQUE:
    case P_SORT:
        return sorted(r, v, which == P_UNIQUE);
    case P_INDENT:
        return indented(r, &text, a);
    default:
        return list_filter(r, which, v);
    }
}
