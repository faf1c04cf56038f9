/* SPDX-License-Identifier: Apache-2.0 */
/* token/template_parse.c - a chat template into a tree. The text is cut into what stands outside and inside of tags
 * with Jinja's rules for blanks (trim_blocks, lstrip_blocks, '-' and '+' at the ends of tags); expressions bind as
 * Jinja's. */
#include "token/template_ast.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 100 };

typedef enum { T_END, T_NAME, T_STRING, T_INT, T_FLOAT, T_SIGN } token_kind;
typedef struct {
    token_kind  kind;
    const char *text; /* in the arena; of a sign and a name its characters */
    size_t      length;
    int64_t     integer;
    double      real;
} token;

typedef struct {
    tm_arena   *arena;
    tm_error   *err;
    const char *name;
    const char *at, *end; /* of the template */
    int         line, depth, loops;
    bool        failed, marks, line_begins;
    token       token; /* inside of a tag */
    int         open;  /* brackets */
    char        tag;   /* '%' or '{': what the tag ends with */
    tm_status   status;
} parser;

static void *fail(parser *p, tm_status status, const char *format, ...)
{
    char    text[400];
    va_list args;
    if (p->failed) return NULL;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    p->failed = true;
    p->status = tm_fail(p->err, status, "%.200s, line %d: %s", p->name, p->line, text);
    p->token = (token){ .kind = T_END, .text = "" };
    return NULL;
}

/* --- tokens ------------------------------------------------------------------------------------------------------- */

static bool at_text(const parser *p, const char *text)
{
    size_t n = strlen(text);
    return (size_t)(p->end - p->at) >= n && strncmp(p->at, text, n) == 0;
}

static void skip(parser *p, size_t n)
{
    for (; n > 0; n--) p->line += *p->at++ == '\n';
}

static bool is_word(int c)
{
    return isalnum(c) || c == '_';
}

/* The end of the tag, with the blanks that go with it. */
static bool tag_ends(parser *p)
{
    const char close[3] = { p->tag == '{' ? '}' : p->tag, '}', '\0' };
    char       dashed[4] = { '-', close[0], '}', '\0' }, kept[4] = { '+', close[0], '}', '\0' };
    if (p->open > 0) return false;
    if (at_text(p, dashed)) {
        skip(p, 3);
        while (p->at < p->end && isspace((unsigned char)*p->at)) skip(p, 1);
    } else if (p->tag != '{' && at_text(p, kept)) {
        skip(p, 3);
    } else if (at_text(p, close)) {
        skip(p, 2);
        if (p->tag != '{' && p->at < p->end && *p->at == '\n') skip(p, 1);
    } else {
        return false;
    }
    p->line_begins = p->at[-1] == '\n';
    return true;
}

static void read_string(parser *p)
{
    char    quote = *p->at;
    tm_text text = { 0 };
    skip(p, 1);
    while (p->at < p->end && *p->at != quote) {
        char c = *p->at;
        if (c == '\\' && p->at + 1 < p->end) {
            static const char from[] = "ntrabfv\\'\"", to[] = "\n\t\r\a\b\f\v\\'\"";
            skip(p, 1);
            const char *known = strchr(from, *p->at);
            if (!*p->at || !known) { /* as Python leaves what it does not know */
                if (*p->at == 'u' || *p->at == 'x' || *p->at == 'U' || *p->at == 'N' || isdigit((unsigned char)*p->at))
                    fail(p, TM_UNSUPPORTED, "the escape '\\%c' in a string is not built", *p->at);
                tm_text_add(&text, "\\");
                c = *p->at;
            } else {
                c = to[known - from];
            }
        }
        tm_text_add_n(&text, &c, 1);
        skip(p, 1);
    }
    if (p->at == p->end) fail(p, TM_FORMAT, "a string has no end");
    if (p->at < p->end) skip(p, 1);
    p->token = (token){ .kind = T_STRING,
                        .text = tm_arena_text_n(p->arena, text.data ? text.data : "", text.length),
                        .length = text.length };
    tm_text_fini(&text);
}

static void read_number(parser *p)
{
    const char *from = p->at;
    bool        real = false;
    while (p->at < p->end && (isdigit((unsigned char)*p->at) || *p->at == '_')) p->at++;
    if (p->at + 1 < p->end && *p->at == '.' && isdigit((unsigned char)p->at[1])) {
        real = true;
        p->at++;
        while (p->at < p->end && isdigit((unsigned char)*p->at)) p->at++;
    }
    if (p->at < p->end && (*p->at == 'e' || *p->at == 'E')) {
        const char *sign = p->at + 1 + (p->at + 1 < p->end && (p->at[1] == '+' || p->at[1] == '-'));
        if (sign < p->end && isdigit((unsigned char)*sign)) {
            real = true;
            p->at = sign;
            while (p->at < p->end && isdigit((unsigned char)*p->at)) p->at++;
        }
    }
    char *text = tm_arena_text_n(p->arena, from, (size_t)(p->at - from)), *to = text;
    for (char *c = text; *c; c++)
        if (*c != '_') *to++ = *c;
    *to = '\0';
    p->token = (token){ .kind = real ? T_FLOAT : T_INT, .text = text };
    p->token.real = strtod(text, NULL);
    p->token.integer = real ? 0 : strtoll(text, NULL, 10);
}

static void advance(parser *p)
{
    static const char *const signs[] = { "==", "!=", "<=", ">=", "//", "**", "+", "-", "*", "/", "%", "~", "<",
                                         ">",  "=",  "(",  ")",  "[",  "]",  "{", "}", ",", ":", ".", "|" };
    if (p->failed) return;
    while (p->at < p->end && isspace((unsigned char)*p->at)) skip(p, 1);
    p->token = (token){ .kind = T_END, .text = "" };
    if (p->at == p->end) {
        fail(p, TM_FORMAT, "a tag has no end");
        return;
    }
    if (tag_ends(p)) return;
    unsigned char c = (unsigned char)*p->at;
    if (c == '\'' || c == '"') {
        read_string(p);
    } else if (isdigit(c)) {
        read_number(p);
    } else if (is_word(c)) {
        const char *from = p->at;
        while (p->at < p->end && is_word((unsigned char)*p->at)) p->at++;
        p->token.kind = T_NAME;
        p->token.length = (size_t)(p->at - from);
        p->token.text = tm_arena_text_n(p->arena, from, p->token.length);
    } else {
        size_t i = 0, n = sizeof signs / sizeof signs[0];
        while (i < n && !at_text(p, signs[i])) i++;
        if (i == n) {
            fail(p, TM_FORMAT, "'%c' is no part of the language", c);
            return;
        }
        p->token = (token){ .kind = T_SIGN, .text = signs[i], .length = strlen(signs[i]) };
        p->open += strchr("([{", *signs[i]) ? 1 : strchr(")]}", *signs[i]) ? -1 : 0;
        skip(p, p->token.length);
    }
}

static bool is(const parser *p, const char *text)
{
    return (p->token.kind == T_SIGN || p->token.kind == T_NAME) && strcmp(p->token.text, text) == 0;
}

static bool take(parser *p, const char *text)
{
    if (!is(p, text)) return false;
    advance(p);
    return true;
}

static void want(parser *p, const char *text)
{
    if (!take(p, text))
        fail(p, TM_FORMAT, "'%s' is expected, found '%.40s'", text,
             p->token.kind == T_END ? "the end of the tag" : p->token.text);
}

static const char *want_name(parser *p)
{
    const char *name = p->token.text;
    if (p->token.kind != T_NAME) return fail(p, TM_FORMAT, "a name is expected, found '%.40s'", p->token.text);
    advance(p);
    return name;
}

/* --- expressions -------------------------------------------------------------------------------------------------- */

static tm_x *expression(parser *p);
static tm_x *unary(parser *p, bool filters);

static tm_x *node(parser *p, tm_x_kind kind, tm_x *a, tm_x *b)
{
    tm_x *x = tm_arena_take(p->arena, sizeof *x);
    *x = (tm_x){ .kind = kind, .line = p->line, .a = a, .b = b };
    return x;
}

static void add_item(parser *p, tm_x *x, const char *name, tm_x *value)
{
    tm_x_argument *more = tm_arena_take(p->arena, (x->n + 1) * sizeof *more);
    if (x->n) memcpy(more, x->item, x->n * sizeof *more);
    more[x->n] = (tm_x_argument){ name, value };
    x->item = more;
    x->n++;
}

/* Behind '(': arguments and ')'. */
static void arguments(parser *p, tm_x *x)
{
    while (!p->failed && !is(p, ")")) {
        parser before = *p;
        if (p->token.kind == T_NAME) { /* name = value? */
            const char *name = want_name(p);
            if (take(p, "=")) {
                add_item(p, x, name, expression(p));
                if (!take(p, ",")) break;
                continue;
            }
            *p = before;
        }
        add_item(p, x, NULL, expression(p));
        if (!take(p, ",")) break;
    }
    want(p, ")");
}

static tm_x *list_of(parser *p, const char *close)
{
    tm_x *x = node(p, TM_X_LIST, NULL, NULL);
    while (!p->failed && !is(p, close)) {
        add_item(p, x, NULL, expression(p));
        if (!take(p, ",")) break;
    }
    want(p, close);
    return x;
}

static tm_x *dict_of(parser *p)
{
    tm_x *x = node(p, TM_X_DICT, NULL, NULL);
    while (!p->failed && !is(p, "}")) {
        add_item(p, x, NULL, expression(p));
        want(p, ":");
        add_item(p, x, NULL, expression(p));
        if (!take(p, ",")) break;
    }
    want(p, "}");
    return x;
}

static tm_x *string_of(parser *p)
{
    tm_text all = { 0 };
    tm_x   *x = node(p, TM_X_STRING, NULL, NULL);
    tm_text_add(&all, "");
    for (; p->token.kind == T_STRING && !p->failed; advance(p)) tm_text_add_n(&all, p->token.text, p->token.length);
    x->text = tm_arena_text_n(p->arena, all.data, all.length);
    x->length = all.length;
    tm_text_fini(&all);
    return x;
}

static tm_x *name_of(parser *p)
{
    static const char *const truths[] = { "false", "False", "true", "True" }, *const nothings[] = { "none", "None" };
    tm_x *x = node(p, TM_X_NAME, NULL, NULL);
    x->text = want_name(p);
    x->length = x->text ? strlen(x->text) : 0;
    for (int i = 0; x->text && i < 4; i++)
        if (strcmp(x->text, truths[i]) == 0) x->kind = TM_X_BOOL, x->integer = i / 2;
    for (int i = 0; x->text && i < 2; i++)
        if (strcmp(x->text, nothings[i]) == 0) x->kind = TM_X_NONE;
    return x;
}

static tm_x *primary(parser *p)
{
    token t = p->token;
    tm_x *x;
    if (t.kind == T_STRING) return string_of(p);
    if (t.kind == T_NAME) return name_of(p);
    if (t.kind == T_INT || t.kind == T_FLOAT) {
        x = node(p, t.kind == T_INT ? TM_X_INT : TM_X_FLOAT, NULL, NULL);
        x->integer = t.integer;
        x->real = t.real;
        advance(p);
        return x;
    }
    if (take(p, "[")) return list_of(p, "]");
    if (take(p, "{")) return dict_of(p);
    if (take(p, "(")) {
        if (is(p, ")")) return list_of(p, ")");
        x = expression(p);
        if (!is(p, ",")) {
            want(p, ")");
            return x;
        }
        tm_x *tuple = node(p, TM_X_LIST, NULL, NULL);
        add_item(p, tuple, NULL, x);
        while (take(p, ",") && !is(p, ")")) add_item(p, tuple, NULL, expression(p));
        want(p, ")");
        return tuple;
    }
    return fail(p, TM_FORMAT, "a value is expected, found '%.40s'", t.kind == T_END ? "the end of the tag" : t.text);
}

/* Behind '[': an index, or up to three numbers with colons. */
static tm_x *subscript(parser *p, tm_x *of)
{
    tm_x *part[3] = { NULL, NULL, NULL };
    int   n = 0;
    bool  slice = false;
    for (;;) {
        if (!is(p, ":") && !is(p, "]")) part[n] = expression(p);
        if (n == 2 || !take(p, ":")) break;
        slice = true;
        n++;
    }
    want(p, "]");
    if (!slice)
        return part[0] || p->failed ? node(p, TM_X_INDEX, of, part[0]) : fail(p, TM_FORMAT, "an index is empty");
    tm_x *x = node(p, TM_X_SLICE, of, NULL);
    for (int i = 0; i < 3; i++) add_item(p, x, NULL, part[i]);
    return x;
}

static tm_x *postfix(parser *p, tm_x *x)
{
    while (!p->failed) {
        if (take(p, ".")) {
            x = node(p, p->token.kind == T_INT ? TM_X_INDEX : TM_X_MEMBER, x, NULL);
            if (x->kind == TM_X_INDEX) {
                x->b = primary(p);
            } else {
                x->text = want_name(p);
                x->length = x->text ? strlen(x->text) : 0;
            }
        } else if (take(p, "[")) {
            x = subscript(p, x);
        } else if (take(p, "(")) {
            x = node(p, TM_X_CALL, x, NULL);
            arguments(p, x);
        } else {
            break;
        }
    }
    return x;
}

/* Behind "is" [not] NAME: an argument without brackets. */
static bool argument_follows(const parser *p)
{
    static const char *const words[] = { "else", "or", "and", "is", "if", "not", "in" };
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (is(p, words[i])) return false;
    return p->token.kind == T_NAME || p->token.kind == T_STRING || p->token.kind == T_INT || p->token.kind == T_FLOAT ||
           is(p, "[") || is(p, "{");
}

static tm_x *filters_and_tests(parser *p, tm_x *x)
{
    while (!p->failed) {
        if (take(p, "|")) {
            x = node(p, TM_X_FILTER, x, NULL);
            x->text = want_name(p);
            x->which = x->text ? tm_template_filter(x->text) : 0;
            if (x->which < 0) return fail(p, TM_UNSUPPORTED, "the filter '%s' is not built", x->text);
            if (take(p, "(")) arguments(p, x);
        } else if (take(p, "is")) {
            x = node(p, TM_X_TEST, x, NULL);
            x->negated = take(p, "not");
            x->text = want_name(p);
            x->which = x->text ? tm_template_test(x->text) : 0;
            if (x->which < 0) return fail(p, TM_UNSUPPORTED, "the test 'is %s' is not built", x->text);
            if (take(p, "("))
                arguments(p, x);
            else if (argument_follows(p))
                add_item(p, x, NULL, postfix(p, primary(p)));
        } else if (is(p, "(")) {
            x = postfix(p, x);
        } else {
            break;
        }
    }
    return x;
}

static tm_x *unary(parser *p, bool filters)
{
    tm_x *x;
    if (++p->depth > MAX_DEPTH) return fail(p, TM_UNSUPPORTED, "expressions are nested more than %d deep", MAX_DEPTH);
    if (take(p, "-"))
        x = node(p, TM_X_MINUS, unary(p, false), NULL);
    else if (take(p, "+"))
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

static const char *operator_here(const parser *p, int level)
{
    for (const char *const *op = levels[level]; *op; op++)
        if (is(p, *op)) return *op;
    return NULL;
}

static tm_x *binary(parser *p, int level)
{
    if (level == LEVELS) return unary(p, true);
    tm_x       *left = binary(p, level + 1), *all = NULL;
    const char *op;
    while (!p->failed && (op = operator_here(p, level))) {
        advance(p);
        bool negated = strcmp(op, "not") == 0;
        if (negated) {
            want(p, "in");
            op = "in";
        }
        tm_x *right = binary(p, level + 1), *x = node(p, TM_X_BINARY, left, right);
        x->which = tm_template_operator(op);
        if (negated) x = node(p, TM_X_NOT, x, NULL);
        if (level > 0) {
            left = x;
            continue;
        }
        all = all ? node(p, TM_X_AND, all, x) : x; /* a < b < c */
        left = right;
    }
    return all ? all : left;
}

static tm_x *not_expression(parser *p)
{
    if (++p->depth > MAX_DEPTH) return fail(p, TM_UNSUPPORTED, "expressions are nested more than %d deep", MAX_DEPTH);
    tm_x *x = take(p, "not") ? node(p, TM_X_NOT, not_expression(p), NULL) : binary(p, 0);
    p->depth--;
    return x;
}

static tm_x *and_expression(parser *p)
{
    tm_x *x = not_expression(p);
    while (!p->failed && take(p, "and")) x = node(p, TM_X_AND, x, not_expression(p));
    return x;
}

static tm_x *or_expression(parser *p)
{
    tm_x *x = and_expression(p);
    while (!p->failed && take(p, "or")) x = node(p, TM_X_OR, x, and_expression(p));
    return x;
}

static tm_x *expression(parser *p)
{
    if (++p->depth > MAX_DEPTH) return fail(p, TM_UNSUPPORTED, "expressions are nested more than %d deep", MAX_DEPTH);
    tm_x *x = or_expression(p);
    while (!p->failed && take(p, "if")) {
        tm_x *choice = node(p, TM_X_CHOICE, x, or_expression(p));
        choice->c = take(p, "else") ? expression(p) : NULL;
        x = choice;
    }
    p->depth--;
    return x;
}

/* A tuple without brackets, as behind "set x =" and "in". */
static tm_x *tuple(parser *p)
{
    tm_x *x = expression(p);
    if (!is(p, ",")) return x;
    tm_x *all = node(p, TM_X_LIST, NULL, NULL);
    add_item(p, all, NULL, x);
    while (!p->failed && take(p, ",") && p->token.kind != T_END) add_item(p, all, NULL, expression(p));
    return all;
}

/* --- statements --------------------------------------------------------------------------------------------------- */

static tm_s *block(parser *p, const char *const *ends, const char **ended);

static tm_s *statement(parser *p, tm_s_kind kind)
{
    tm_s *s = tm_arena_take(p->arena, sizeof *s);
    *s = (tm_s){ .kind = kind, .line = p->line };
    return s;
}

static void end_of_tag(parser *p)
{
    if (p->token.kind != T_END) fail(p, TM_FORMAT, "the end of the tag is expected, found '%.40s'", p->token.text);
}

static tm_s *if_statement(parser *p)
{
    static const char *const ends[] = { "elif", "else", "endif", NULL }, *const last[] = { "endif", NULL };
    const char *ended = NULL;
    tm_s       *s = statement(p, TM_S_IF);
    s->a = tuple(p);
    end_of_tag(p);
    s->body = block(p, ends, &ended);
    if (p->failed || !ended) return s;
    if (strcmp(ended, "elif") == 0) {
        s->other = if_statement(p);
    } else {
        end_of_tag(p);
        if (strcmp(ended, "else") == 0) {
            s->other = block(p, last, &ended);
            end_of_tag(p);
        }
    }
    return s;
}

static void add_name(parser *p, tm_s *s, const char *name)
{
    const char **more = tm_arena_take(p->arena, (s->n_names + 1) * sizeof *more);
    if (s->n_names) memcpy(more, s->names, s->n_names * sizeof *more);
    more[s->n_names++] = name;
    s->names = more;
}

static void names(parser *p, tm_s *s)
{
    bool open = take(p, "(");
    do add_name(p, s, want_name(p));
    while (!p->failed && take(p, ","));
    if (open) want(p, ")");
}

static tm_s *for_statement(parser *p)
{
    static const char *const ends[] = { "else", "endfor", NULL }, *const last[] = { "endfor", NULL };
    const char *ended = NULL;
    tm_s       *s = statement(p, TM_S_FOR);
    names(p, s);
    want(p, "in");
    s->a = or_expression(p); /* "if" behind it is the loop's own */
    if (take(p, "if")) s->b = expression(p);
    if (is(p, "recursive")) return fail(p, TM_UNSUPPORTED, "recursive loops are not built");
    end_of_tag(p);
    p->loops++;
    s->body = block(p, ends, &ended);
    p->loops--;
    end_of_tag(p);
    if (ended && strcmp(ended, "else") == 0) {
        s->other = block(p, last, &ended);
        end_of_tag(p);
    }
    return s;
}

static tm_s *set_statement(parser *p)
{
    static const char *const ends[] = { "endset", NULL };
    const char              *ended;
    tm_s                    *s = statement(p, TM_S_SET);
    names(p, s);
    if (s->n_names == 1 && take(p, ".")) s->member = want_name(p);
    if (take(p, "=")) {
        s->a = tuple(p);
        end_of_tag(p);
        return s;
    }
    if (s->n_names != 1 || s->member) return fail(p, TM_FORMAT, "'=' is expected, found '%.40s'", p->token.text);
    end_of_tag(p);
    s->body = block(p, ends, &ended);
    end_of_tag(p);
    return s;
}

static tm_s *macro_statement(parser *p)
{
    static const char *const ends[] = { "endmacro", NULL };
    const char              *ended;
    tm_s                    *s = statement(p, TM_S_MACRO);
    tm_x                    *parameters = node(p, TM_X_LIST, NULL, NULL);
    s->text = want_name(p);
    want(p, "(");
    while (!p->failed && !is(p, ")")) {
        const char *name = want_name(p);
        add_item(p, parameters, name, take(p, "=") ? expression(p) : NULL);
        if (!take(p, ",")) break;
    }
    want(p, ")");
    end_of_tag(p);
    s->item = parameters->item;
    s->n = parameters->n;
    int loops = p->loops;
    p->loops = 0;
    s->body = block(p, ends, &ended);
    p->loops = loops;
    end_of_tag(p);
    return s;
}

static tm_s *generation_statement(parser *p)
{
    static const char *const ends[] = { "endgeneration", NULL };
    const char              *ended;
    tm_s                    *s = statement(p, TM_S_GENERATION);
    end_of_tag(p);
    s->body = block(p, ends, &ended);
    end_of_tag(p);
    p->marks = true;
    return s;
}

static tm_s *leave_statement(parser *p, tm_s_kind kind, const char *word)
{
    if (p->loops == 0) return fail(p, TM_FORMAT, "'%s' stands outside of a loop", word);
    end_of_tag(p);
    return statement(p, kind);
}

/* Behind "{%": a statement, or NULL at one of the ends, which *ended then is. */
static tm_s *tag(parser *p, const char *const *ends, const char **ended)
{
    const char *word = want_name(p);
    tm_s       *s = NULL;
    if (!word) return NULL;
    for (; *ends; ends++)
        if (strcmp(word, *ends) == 0) {
            *ended = *ends;
            return NULL;
        }
    if (++p->depth > MAX_DEPTH) return fail(p, TM_UNSUPPORTED, "blocks are nested more than %d deep", MAX_DEPTH);
    if (strcmp(word, "if") == 0)
        s = if_statement(p);
    else if (strcmp(word, "for") == 0)
        s = for_statement(p);
    else if (strcmp(word, "set") == 0)
        s = set_statement(p);
    else if (strcmp(word, "macro") == 0)
        s = macro_statement(p);
    else if (strcmp(word, "generation") == 0)
        s = generation_statement(p);
    else if (strcmp(word, "break") == 0 || strcmp(word, "continue") == 0)
        s = leave_statement(p, *word == 'b' ? TM_S_BREAK : TM_S_CONTINUE, word);
    else if (strncmp(word, "end", 3) == 0 || strcmp(word, "else") == 0 || strcmp(word, "elif") == 0)
        fail(p, TM_FORMAT, "'%s' has no beginning", word);
    else
        fail(p, TM_UNSUPPORTED, "the tag '%s' is not built", word);
    p->depth--;
    return s;
}

/* The text up to the next tag. NULL: there is none. */
static tm_s *text_statement(parser *p)
{
    const char *from = p->at, *to = from;
    bool        begins = p->line_begins;
    while (to < p->end && !(to[0] == '{' && to + 1 < p->end && strchr("{%#", to[1]))) to++;
    skip(p, (size_t)(to - from));
    if (to < p->end) {
        char kind = to[1], sign = to + 2 < p->end ? to[2] : ' ';
        if (sign == '-') {
            while (to > from && isspace((unsigned char)to[-1])) to--;
        } else if (kind != '{' && sign != '+') {
            const char *blank = to;
            while (blank > from && isspace((unsigned char)blank[-1]) && blank[-1] != '\n') blank--;
            if (blank == from ? begins : blank[-1] == '\n') to = blank;
        }
    }
    if (to == from) return NULL;
    tm_s *s = statement(p, TM_S_TEXT);
    s->text = tm_arena_text_n(p->arena, from, (size_t)(to - from));
    s->length = (size_t)(to - from);
    return s;
}

static void comment(parser *p)
{
    while (p->at < p->end && !at_text(p, "#}")) skip(p, 1);
    if (p->at == p->end) {
        fail(p, TM_FORMAT, "a comment has no end");
        return;
    }
    p->at -= p->at[-1] == '-' || p->at[-1] == '+';
    p->tag = '#';
    p->open = 0;
    tag_ends(p);
}

/* Statements up to a tag of one of the names, whose rest is left; *ended: which. Of the whole template: to its end. */
static tm_s *block(parser *p, const char *const *ends, const char **ended)
{
    tm_s *first = NULL, **last = &first;
    *ended = NULL;
    while (!p->failed) {
        tm_s *s = text_statement(p);
        if (s) *last = s, last = &s->next;
        if (p->at == p->end) {
            if (*ends) fail(p, TM_FORMAT, "'%s' is missing", ends[0]);
            break;
        }
        char kind = p->at[1];
        skip(p, 2);
        if (kind == '#') {
            comment(p);
            continue;
        }
        p->tag = kind == '{' ? '{' : '%';
        p->open = 0;
        if (p->at < p->end && (*p->at == '-' || *p->at == '+')) skip(p, 1);
        advance(p);
        if (kind == '{') {
            s = statement(p, TM_S_OUTPUT);
            s->a = tuple(p);
            end_of_tag(p);
        } else {
            s = tag(p, ends, ended);
            if (*ended) break;
        }
        if (s) *last = s, last = &s->next;
    }
    return first;
}

tm_status tm_template_parse(const char *name, const char *text, size_t bytes, tm_template **out, tm_error *err)
{
    static const char *const no_end[] = { NULL };
    const char              *ended;
    tm_template             *t = tm_alloc(sizeof *t);
    *out = NULL;
    *t = (tm_template){ .arena = tm_arena_create() };
    t->name = tm_arena_text(t->arena, name);
    char  *copy = tm_arena_text_n(t->arena, text, bytes);
    size_t n = 0;
    for (size_t i = 0; i < bytes; i++) { /* \r\n and \r are \n */
        if (copy[i] == '\r' && i + 1 < bytes && copy[i + 1] == '\n') continue;
        copy[n++] = copy[i] == '\r' ? '\n' : copy[i];
    }
    if (n > 0 && copy[n - 1] == '\n') n--;
    copy[n] = '\0';
    parser p = {
        .arena = t->arena, .err = err, .name = t->name, .at = copy, .end = copy + n, .line = 1, .line_begins = true
    };
    t->body = block(&p, no_end, &ended);
    t->marks = p.marks;
    if (p.failed) {
        tm_template_free(t);
        return p.status;
    }
    *out = t;
    return TM_OK;
}

void tm_template_free(tm_template *tmpl)
{
    if (!tmpl) return;
    tm_arena_destroy(tmpl->arena);
    free(tmpl);
}

bool tm_template_marks_generation(const tm_template *tmpl)
{
    return tmpl->marks;
}
