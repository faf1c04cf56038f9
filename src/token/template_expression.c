/* SPDX-License-Identifier: Apache-2.0 */
/* token/template_expression.c - expressions of a template into trees; they bind as Jinja's. */
#include "token/template_parser.h"

#include <stdio.h>
#include <string.h>

static tm_x *unary(tm_tmpl_parser *p, bool filters);

tm_x *tm_tmpl_node(tm_tmpl_parser *p, tm_x_kind kind, tm_x *a, tm_x *b)
{
    tm_x *x = tm_arena_take(p->arena, sizeof *x);
    *x = (tm_x){ .kind = kind, .line = p->line, .a = a, .b = b };
    return x;
}

void tm_tmpl_add(tm_tmpl_parser *p, tm_x *x, const char *name, tm_x *value)
{
    tm_x_argument *more = tm_arena_take(p->arena, (x->n + 1) * sizeof *more);
    if (x->n) memcpy(more, x->item, x->n * sizeof *more);
    more[x->n] = (tm_x_argument){ name, value };
    x->item = more;
    x->n++;
}

/* Behind '(': arguments and ')'. */
static void arguments(tm_tmpl_parser *p, tm_x *x)
{
    while (!p->failed && !tm_tmpl_is(p, ")")) {
        tm_tmpl_parser before = *p;
        if (p->token.kind == TM_TMPL_NAME) { /* name = value? */
            const char *name = tm_tmpl_want_name(p);
            if (tm_tmpl_take(p, "=")) {
                tm_tmpl_add(p, x, name, tm_tmpl_expression(p));
                if (!tm_tmpl_take(p, ",")) break;
                continue;
            }
            *p = before;
        }
        tm_tmpl_add(p, x, NULL, tm_tmpl_expression(p));
        if (!tm_tmpl_take(p, ",")) break;
    }
    tm_tmpl_want(p, ")");
}

static tm_x *list_of(tm_tmpl_parser *p)
{
    tm_x *x = tm_tmpl_node(p, TM_X_LIST, NULL, NULL);
    while (!p->failed && !tm_tmpl_is(p, "]")) {
        tm_tmpl_add(p, x, NULL, tm_tmpl_expression(p));
        if (!tm_tmpl_take(p, ",")) break;
    }
    tm_tmpl_want(p, "]");
    return x;
}

static tm_x *dict_of(tm_tmpl_parser *p)
{
    tm_x *x = tm_tmpl_node(p, TM_X_DICT, NULL, NULL);
    while (!p->failed && !tm_tmpl_is(p, "}")) {
        tm_tmpl_add(p, x, NULL, tm_tmpl_expression(p));
        tm_tmpl_want(p, ":");
        tm_tmpl_add(p, x, NULL, tm_tmpl_expression(p));
        if (!tm_tmpl_take(p, ",")) break;
    }
    tm_tmpl_want(p, "}");
    return x;
}

static tm_x *string_of(tm_tmpl_parser *p)
{
    tm_text all = { 0 };
    tm_x   *x = tm_tmpl_node(p, TM_X_STRING, NULL, NULL);
    tm_text_add(&all, "");
    for (; p->token.kind == TM_TMPL_STRING && !p->failed; tm_tmpl_advance(p))
        tm_text_add_n(&all, p->token.text, p->token.length);
    x->text = tm_arena_text_n(p->arena, all.data, all.length);
    x->length = all.length;
    tm_text_fini(&all);
    return x;
}

static tm_x *name_of(tm_tmpl_parser *p)
{
    static const char *const truths[] = { "false", "False", "true", "True" }, *const nothings[] = { "none", "None" };
    tm_x *x = tm_tmpl_node(p, TM_X_NAME, NULL, NULL);
    x->text = tm_tmpl_want_name(p);
    x->length = x->text ? strlen(x->text) : 0;
    for (int i = 0; x->text && i < 4; i++)
        if (strcmp(x->text, truths[i]) == 0) x->kind = TM_X_BOOL, x->integer = i / 2;
    for (int i = 0; x->text && i < 2; i++)
        if (strcmp(x->text, nothings[i]) == 0) x->kind = TM_X_NONE;
    return x;
}

static tm_x *primary(tm_tmpl_parser *p)
{
    tm_tmpl_token t = p->token;
    tm_x         *x;
    if (t.kind == TM_TMPL_STRING) return string_of(p);
    if (t.kind == TM_TMPL_NAME) return name_of(p);
    if (t.kind == TM_TMPL_INT || t.kind == TM_TMPL_FLOAT) {
        x = tm_tmpl_node(p, t.kind == TM_TMPL_INT ? TM_X_INT : TM_X_FLOAT, NULL, NULL);
        x->integer = t.integer;
        x->real = t.real;
        tm_tmpl_advance(p);
        return x;
    }
    if (tm_tmpl_take(p, "[")) return list_of(p);
    if (tm_tmpl_take(p, "{")) return dict_of(p);
    if (tm_tmpl_take(p, "(")) {
        if (tm_tmpl_take(p, ")")) return tm_tmpl_node(p, TM_X_TUPLE, NULL, NULL);
        x = tm_tmpl_expression(p);
        if (!tm_tmpl_is(p, ",")) {
            tm_tmpl_want(p, ")");
            return x;
        }
        tm_x *tuple = tm_tmpl_node(p, TM_X_TUPLE, NULL, NULL);
        tm_tmpl_add(p, tuple, NULL, x);
        while (tm_tmpl_take(p, ",") && !tm_tmpl_is(p, ")")) tm_tmpl_add(p, tuple, NULL, tm_tmpl_expression(p));
        tm_tmpl_want(p, ")");
        return tuple;
    }
    return tm_tmpl_fail(p, TM_FORMAT, "a value is expected, found '%.40s'",
                        t.kind == TM_TMPL_END ? "the end of the tag" : t.text);
}

/* Behind '[': an index, or up to three numbers with colons. */
static tm_x *subscript(tm_tmpl_parser *p, tm_x *of)
{
    tm_x *part[3] = { NULL, NULL, NULL };
    int   n = 0;
    bool  slice = false;
    for (;;) {
        if (!tm_tmpl_is(p, ":") && !tm_tmpl_is(p, "]")) part[n] = tm_tmpl_expression(p);
        if (n == 2 || !tm_tmpl_take(p, ":")) break;
        slice = true;
        n++;
    }
    tm_tmpl_want(p, "]");
    if (!slice)
        return part[0] || p->failed ? tm_tmpl_node(p, TM_X_INDEX, of, part[0])
                                    : tm_tmpl_fail(p, TM_FORMAT, "an index is empty");
    tm_x *x = tm_tmpl_node(p, TM_X_SLICE, of, NULL);
    for (int i = 0; i < 3; i++) tm_tmpl_add(p, x, NULL, part[i]);
    return x;
}

static tm_x *postfix(tm_tmpl_parser *p, tm_x *x)
{
    while (!p->failed) {
        if (tm_tmpl_take(p, ".")) {
            x = tm_tmpl_node(p, p->token.kind == TM_TMPL_INT ? TM_X_INDEX : TM_X_MEMBER, x, NULL);
            if (x->kind == TM_X_INDEX) {
                x->b = primary(p);
            } else {
                x->text = tm_tmpl_want_name(p);
                x->length = x->text ? strlen(x->text) : 0;
            }
        } else if (tm_tmpl_take(p, "[")) {
            x = subscript(p, x);
        } else if (tm_tmpl_take(p, "(")) {
            x = tm_tmpl_node(p, TM_X_CALL, x, NULL);
            arguments(p, x);
        } else {
            break;
        }
    }
    return x;
}

/* Behind "is" [not] NAME: an argument without brackets. */
static bool argument_follows(const tm_tmpl_parser *p)
{
    static const char *const words[] = { "else", "or", "and", "is", "if", "not", "in" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (tm_tmpl_is(p, words[i])) return false;
    return p->token.kind == TM_TMPL_NAME || p->token.kind == TM_TMPL_STRING || p->token.kind == TM_TMPL_INT ||
           p->token.kind == TM_TMPL_FLOAT || tm_tmpl_is(p, "[") || tm_tmpl_is(p, "{");
}

static tm_x *filters_and_tests(tm_tmpl_parser *p, tm_x *x)
{
    while (!p->failed) {
        if (tm_tmpl_take(p, "|")) {
            x = tm_tmpl_node(p, TM_X_FILTER, x, NULL);
            x->text = tm_tmpl_want_name(p);
            x->which = x->text ? tm_template_filter(x->text) : 0;
            if (x->which < 0) return tm_tmpl_fail(p, TM_UNSUPPORTED, "the filter '%s' is not supported", x->text);
            if (tm_tmpl_take(p, "(")) arguments(p, x);
        } else if (tm_tmpl_take(p, "is")) {
            x = tm_tmpl_node(p, TM_X_TEST, x, NULL);
            x->negated = tm_tmpl_take(p, "not");
            x->text = tm_tmpl_want_name(p);
            x->which = x->text ? tm_template_test(x->text) : 0;
            if (x->which < 0) return tm_tmpl_fail(p, TM_UNSUPPORTED, "the test 'is %s' is not supported", x->text);
            if (tm_tmpl_take(p, "("))
                arguments(p, x);
            else if (argument_follows(p))
                tm_tmpl_add(p, x, NULL, postfix(p, primary(p)));
        } else if (tm_tmpl_is(p, "(")) {
            x = postfix(p, x);
        } else {
            break;
        }
    }
    return x;
}

static tm_x *unary(tm_tmpl_parser *p, bool filters)
{
    tm_x *x;
    if (++p->depth > TM_TMPL_MAX_DEPTH)
        return tm_tmpl_fail(p, TM_UNSUPPORTED, "expressions are nested more than %d deep", TM_TMPL_MAX_DEPTH);
    if (tm_tmpl_take(p, "-"))
        x = tm_tmpl_node(p, TM_X_MINUS, unary(p, false), NULL);
    else if (tm_tmpl_take(p, "+"))
        x = unary(p, false);
    else
        x = postfix(p, primary(p));
    p->depth--;
    return filters ? filters_and_tests(p, x) : x;
}

/* From the loosest to the tightest: comparisons, + -, ~, * / // %, **. */
static const char *const levels[][12] = { { "==", "!=", "<=", ">=", "<", ">", "in", "not", NULL },
                                          { "+", "-", NULL },
                                          { "~", NULL },
                                          { "*", "/", "//", "%", NULL },
                                          { "**", NULL } };
enum { LEVELS = sizeof levels / sizeof levels[0] };

static const char *operator_here(const tm_tmpl_parser *p, int level)
{
    for (const char *const *op = levels[level]; *op; op++)
        if (tm_tmpl_is(p, *op)) return *op;
    return NULL;
}

static tm_x *binary(tm_tmpl_parser *p, int level)
{
    if (level == LEVELS) return unary(p, true);
    tm_x       *left = binary(p, level + 1), *all = NULL;
    const char *op;
    while (!p->failed && (op = operator_here(p, level))) {
        tm_tmpl_advance(p);
        bool negated = strcmp(op, "not") == 0;
        if (negated) {
            tm_tmpl_want(p, "in");
            op = "in";
        }
        tm_x *right = binary(p, level + 1), *x = tm_tmpl_node(p, TM_X_BINARY, left, right);
        x->which = tm_template_operator(op);
        if (negated) x = tm_tmpl_node(p, TM_X_NOT, x, NULL);
        if (level > 0) {
            left = x;
            continue;
        }
        all = all ? tm_tmpl_node(p, TM_X_AND, all, x) : x; /* a < b < c */
        left = right;
    }
    return all ? all : left;
}

static tm_x *not_expression(tm_tmpl_parser *p)
{
    if (++p->depth > TM_TMPL_MAX_DEPTH)
        return tm_tmpl_fail(p, TM_UNSUPPORTED, "expressions are nested more than %d deep", TM_TMPL_MAX_DEPTH);
    tm_x *x = tm_tmpl_take(p, "not") ? tm_tmpl_node(p, TM_X_NOT, not_expression(p), NULL) : binary(p, 0);
    p->depth--;
    return x;
}

static tm_x *and_expression(tm_tmpl_parser *p)
{
    tm_x *x = not_expression(p);
    while (!p->failed && tm_tmpl_take(p, "and")) x = tm_tmpl_node(p, TM_X_AND, x, not_expression(p));
    return x;
}

tm_x *tm_tmpl_or(tm_tmpl_parser *p)
{
    tm_x *x = and_expression(p);
    while (!p->failed && tm_tmpl_take(p, "or")) x = tm_tmpl_node(p, TM_X_OR, x, and_expression(p));
    return x;
}

tm_x *tm_tmpl_expression(tm_tmpl_parser *p)
{
    if (++p->depth > TM_TMPL_MAX_DEPTH)
        return tm_tmpl_fail(p, TM_UNSUPPORTED, "expressions are nested more than %d deep", TM_TMPL_MAX_DEPTH);
    tm_x *x = tm_tmpl_or(p);
    while (!p->failed && tm_tmpl_take(p, "if")) {
        tm_x *choice = tm_tmpl_node(p, TM_X_CHOICE, x, tm_tmpl_or(p));
        choice->c = tm_tmpl_take(p, "else") ? tm_tmpl_expression(p) : NULL;
        x = choice;
    }
    p->depth--;
    return x;
}

/* A tuple without brackets, as behind "set x =" and "in". */
tm_x *tm_tmpl_tuple(tm_tmpl_parser *p, tm_x *one(tm_tmpl_parser *p))
{
    tm_x *x = one(p);
    if (!tm_tmpl_is(p, ",")) return x;
    tm_x *all = tm_tmpl_node(p, TM_X_TUPLE, NULL, NULL);
    tm_tmpl_add(p, all, NULL, x);
    while (!p->failed && tm_tmpl_take(p, ",") && p->token.kind != TM_TMPL_END) tm_tmpl_add(p, all, NULL, one(p));
    return all;
}
