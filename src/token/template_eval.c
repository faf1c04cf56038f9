/* SPDX-License-Identifier: Apache-2.0 */
/* token/template_eval.c - walks the tree of a template. */
#include "token/template_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_CALLS = 200 };
static const int64_t most_work = 50000000; /* steps: a template that goes on for ever ends */
static const size_t  most_bytes = (size_t)1 << 29;

struct tm_scope {
    tm_scope *above;
    tm_v      variables; /* a map */
    bool      macro;     /* what is above it are the template's own variables */
};

tm_v tm_render_fail(tm_render *r, tm_status status, const char *format, ...)
{
    char    text[400];
    va_list args;
    if (!r->failed) {
        va_start(args, format);
        vsnprintf(text, sizeof text, format, args);
        va_end(args);
        r->failed = true;
        (void)tm_fail(r->err, status, "%.200s, line %d: %s", r->tmpl->name, r->line, text);
    }
    return (tm_v){ .kind = TM_V_UNDEFINED };
}

void *tm_render_take(tm_render *r, size_t bytes)
{
    r->taken += bytes;
    if (r->taken > most_bytes) tm_render_fail(r, TM_INVALID, "what the template makes becomes too large");
    return tm_arena_take(r->arena, bytes);
}

bool tm_render_work(tm_render *r, int64_t steps)
{
    if (__builtin_add_overflow(r->work, steps, &r->work) || r->work > most_work)
        tm_render_fail(r, TM_INVALID, "the template does not come to an end");
    return !r->failed;
}

bool tm_render_over(tm_render *r, const tm_v *v)
{
    enum { BYTES = 16 }; /* of a text that take about as long as a step */
    return tm_render_work(r, v->kind == TM_V_STRING                         ? (int64_t)(v->length / BYTES)
                             : v->kind == TM_V_LIST || v->kind == TM_V_DICT ? (int64_t)v->box->n
                                                                            : 0);
}

/* One more step. */
static bool goes_on(tm_render *r)
{
    return tm_render_work(r, 1);
}

/* --- variables ---------------------------------------------------------------------------------------------------- */

enum { F_RAISE, F_NAMESPACE, F_RANGE, F_NOW, F_DICT, FUNCTIONS };
static const char *const functions[FUNCTIONS] = { [F_RAISE] = "raise_exception",
                                                  [F_NAMESPACE] = "namespace",
                                                  [F_RANGE] = "range",
                                                  [F_NOW] = "strftime_now",
                                                  [F_DICT] = "dict" };

/* What Jinja has besides, everywhere or within a macro. */
static const char *const not_built[] = { "cycler", "joiner", "lipsum", "varargs", "kwargs", "caller", "self" };

static void define(tm_render *r, const char *name, tm_v value)
{
    tm_v_put(r, &r->scope->variables, tm_v_string(r, name, strlen(name)), value);
}

static tm_v look_up(tm_render *r, const char *name, size_t n)
{
    for (const tm_scope *scope = r->scope; scope; scope = scope->above) {
        const tm_v *found = tm_v_get(&scope->variables, name, n);
        if (found) return *found;
    }
    for (int i = 0; i < FUNCTIONS; i++)
        if (strcmp(functions[i], name) == 0) return (tm_v){ .kind = TM_V_FUNCTION, .integer = i };
    for (size_t i = 0; i < sizeof not_built / sizeof not_built[0]; i++)
        if (strcmp(not_built[i], name) == 0) return tm_render_fail(r, TM_UNSUPPORTED, "'%s' is not supported", name);
    return (tm_v){ .kind = TM_V_UNDEFINED, .text = name, .length = n };
}

static void enter(tm_render *r)
{
    tm_scope *scope = tm_render_take(r, sizeof *scope);
    *scope = (tm_scope){ .above = r->scope, .variables = tm_v_dict(r) };
    r->scope = scope;
}

/* --- expressions -------------------------------------------------------------------------------------------------- */

static tm_v evaluate(tm_render *r, const tm_x *x);
static void run(tm_render *r, const tm_s *s);

static tm_v_arguments arguments_of(tm_render *r, const tm_x *x)
{
    tm_v_arguments a = { 0 };
    tm_v          *values = tm_render_take(r, (x->n + 1) * sizeof *values);
    tm_v          *named = tm_render_take(r, (2 * x->n + 1) * sizeof *named);
    for (size_t i = 0; i < x->n; i++) {
        tm_v value = evaluate(r, x->item[i].value);
        if (x->item[i].name) {
            named[2 * a.n_named] = tm_v_string(r, x->item[i].name, strlen(x->item[i].name));
            named[2 * a.n_named++ + 1] = value;
        } else {
            values[a.n++] = value;
        }
    }
    a.value = values;
    a.named = named;
    return a;
}

const tm_v *tm_v_argument(const tm_v_arguments *arguments, size_t at, const char *name)
{
    for (size_t i = 0; name && i < arguments->n_named; i++)
        if (strcmp(arguments->named[2 * i].text, name) == 0) return &arguments->named[2 * i + 1];
    return at < arguments->n ? &arguments->value[at] : NULL;
}

/* An argument by name is one of the macro's, and not given by position as well. */
static void check_named(tm_render *r, const tm_s *macro, const tm_v_arguments *arguments, size_t k)
{
    const char *name = arguments->named[2 * k].text;
    size_t      i = 0;
    while (i < macro->n && strcmp(macro->item[i].name, name) != 0) i++;
    if (i == macro->n)
        tm_render_fail(r, TM_INVALID, "'%s' has no argument '%s'", macro->text, name);
    else if (i < arguments->n)
        tm_render_fail(r, TM_INVALID, "'%s' is given '%s' twice", macro->text, name);
}

static tm_v call_macro(tm_render *r, const tm_s *macro, const tm_v_arguments *arguments)
{
    tm_scope *scope = r->scope, *global = scope;
    tm_text  *out = r->out, own = { 0 };
    bool      breaks = r->breaks, continues = r->continues;
    if (++r->depth > MAX_CALLS) return tm_render_fail(r, TM_INVALID, "macros call each other without end");
    while (global->above) global = global->above;
    r->scope = global;
    enter(r);
    for (size_t i = 0; i < macro->n; i++) {
        const tm_v *given = tm_v_argument(arguments, i, macro->item[i].name);
        tm_v        value = { .kind = TM_V_UNDEFINED, .text = macro->item[i].name };
        if (given)
            value = *given;
        else if (macro->item[i].value)
            value = evaluate(r, macro->item[i].value);
        define(r, macro->item[i].name, value);
    }
    if (arguments->n > macro->n) tm_render_fail(r, TM_INVALID, "'%s' takes %zu arguments", macro->text, macro->n);
    for (size_t k = 0; k < arguments->n_named; k++) check_named(r, macro, arguments, k);
    r->out = &own;
    run(r, macro->body);
    r->out = out;
    r->scope = scope;
    r->breaks = breaks, r->continues = continues;
    r->depth--;
    tm_v text = tm_v_string(r, own.data, own.length);
    tm_text_fini(&own);
    return text;
}

static tm_v range(tm_render *r, const tm_v_arguments *a)
{
    int64_t from = 0, to, step = 1;
    tm_v    all = tm_v_list_as(r, TM_L_RANGE);
    char    text[80];
    for (size_t i = 0; i < a->n; i++)
        if (a->value[i].kind != TM_V_INT || a->n > 3)
            return tm_render_fail(r, TM_INVALID, "range takes 1 to 3 integers");
    if (a->n == 0) return tm_render_fail(r, TM_INVALID, "range takes 1 to 3 integers");
    to = a->value[a->n > 1 ? 1 : 0].integer;
    if (a->n > 1) from = a->value[0].integer;
    if (a->n > 2) step = a->value[2].integer;
    if (step == 0 || (step > 0 ? to - from : from - to) > 100000)
        return tm_render_fail(r, TM_INVALID, "range is empty of steps or longer than 100000");
    for (int64_t i = from; step > 0 ? i < to : i > to; i += step)
        tm_v_append(r, &all, (tm_v){ .kind = TM_V_INT, .integer = i });
    if (step == 1)
        snprintf(text, sizeof text, "range(%lld, %lld)", (long long)from, (long long)to);
    else
        snprintf(text, sizeof text, "range(%lld, %lld, %lld)", (long long)from, (long long)to, (long long)step);
    all.text = tm_arena_text(r->arena, text);
    return all;
}

static tm_v now(tm_render *r, const tm_v_arguments *a)
{
    char        text[200];
    time_t      at = (time_t)r->now;
    struct tm   parts;
    const tm_v *format = tm_v_argument(a, 0, "format");
    if (!format || format->kind != TM_V_STRING) return tm_render_fail(r, TM_INVALID, "strftime_now takes a format");
    localtime_r(&at, &parts);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t n = strftime(text, sizeof text, format->text, &parts);
#pragma GCC diagnostic pop
    return tm_v_string(r, text, n);
}

static void put_key(tm_render *r, const tm_v *dict, const tm_v *key, const tm_v *value)
{
    if (tm_v_can_be_key(key))
        tm_v_put(r, dict, *key, *value);
    else
        tm_render_fail(r, TM_INVALID, "a list or a map is no key");
}

/* What a map is made of: another one, or pairs. */
static void put_all(tm_render *r, const tm_v *dict, const tm_v *from)
{
    tm_v pairs = from->kind == TM_V_DICT ? tm_v_parts(r, TM_PARTS_ITEMS, from) : tm_v_items(r, from);
    for (size_t i = 0; i < pairs.box->n && !r->failed; i++) {
        tm_v pair = tm_v_items(r, &pairs.box->item[i]);
        if (r->failed) return;
        if (pair.box->n == 2)
            put_key(r, dict, &pair.box->item[0], &pair.box->item[1]);
        else
            tm_render_fail(r, TM_INVALID, "a map is made of a map or of pairs");
    }
}

static tm_v call_function(tm_render *r, int which, const tm_v_arguments *a)
{
    static const char *const takes[] = { [F_RAISE] = "message", [F_RANGE] = "/start,stop,step", [F_NOW] = "format" };
    const tm_v              *bound[TM_MOST_BOUND], *text;
    tm_v                     made;
    if (which <= F_NOW && which != F_NAMESPACE && !tm_v_bind(r, functions[which], takes[which], 1, a, bound))
        return (tm_v){ .kind = TM_V_UNDEFINED };
    if (which != F_RANGE && a->n > 1)
        return tm_render_fail(r, TM_INVALID, "'%s' takes 1 argument by position at most", functions[which]);
    switch (which) {
    case F_RAISE:
        text = tm_v_argument(a, 0, "message");
        return tm_render_fail(r, TM_INVALID, "the template refuses this conversation: %.300s",
                              text && text->kind == TM_V_STRING ? text->text : "");
    case F_RANGE:
        return range(r, a);
    case F_NOW:
        return now(r, a);
    default:
        made = tm_v_dict(r);
        if (which == F_NAMESPACE) made.kind = TM_V_NAMESPACE;
        if (a->n > 0) put_all(r, &made, &a->value[0]);
        for (size_t i = 0; i < a->n_named; i++) tm_v_put(r, &made, a->named[2 * i], a->named[2 * i + 1]);
        return made;
    }
}

static tm_v call(tm_render *r, const tm_x *x)
{
    tm_v           what = evaluate(r, x->a);
    tm_v_arguments a = arguments_of(r, x);
    r->line = x->line;
    if (what.kind == TM_V_MACRO) return call_macro(r, what.macro, &a);
    if (what.kind == TM_V_FUNCTION) return call_function(r, (int)what.integer, &a);
    if (what.kind == TM_V_METHOD) return tm_render_method(r, (int)what.integer, what.self, &a);
    const char *name = x->a->text && x->a->kind != TM_X_STRING ? x->a->text : "this value";
    return tm_render_fail(r, what.kind == TM_V_UNDEFINED ? TM_UNSUPPORTED : TM_INVALID,
                          "'%s' is not a function that is built", name);
}

tm_v tm_render_index(tm_render *r, const tm_v *v, const tm_v *at)
{
    if (v->kind == TM_V_DICT || (v->kind == TM_V_NAMESPACE && at->kind == TM_V_STRING)) {
        const tm_v *found = tm_v_at(r, v, at);
        return found ? *found : (tm_v){ .kind = TM_V_UNDEFINED };
    }
    if (v->kind == TM_V_UNDEFINED)
        return tm_render_fail(r, TM_INVALID, "'%s' is undefined and has no members", v->text ? v->text : "a value");
    if (tm_v_refuse_marked(r, v, "[]")) return (tm_v){ .kind = TM_V_UNDEFINED };
    bool number = at->kind == TM_V_INT || at->kind == TM_V_BOOL, places = v->kind == TM_V_STRING || tm_v_has_places(v);
    if (!number || !places) return (tm_v){ .kind = TM_V_UNDEFINED };
    tm_v    all = tm_v_items(r, v);
    int64_t n = (int64_t)all.box->n, i = at->integer < 0 ? at->integer + n : at->integer;
    return i >= 0 && i < n ? all.box->item[i] : (tm_v){ .kind = TM_V_UNDEFINED };
}

/* Python's rules: bounds are cut to the list, negative ones count from its end. */
static tm_v slice(tm_render *r, const tm_x *x)
{
    tm_v of = evaluate(r, x->a), part[3], all;
    for (int i = 0; i < 3; i++)
        part[i] = x->item[i].value ? evaluate(r, x->item[i].value) : (tm_v){ .kind = TM_V_NONE };
    for (int i = 0; i < 3; i++)
        if (part[i].kind != TM_V_NONE && part[i].kind != TM_V_INT)
            return tm_render_fail(r, TM_INVALID, "a slice has integers");
    if (tm_v_refuse_marked(r, &of, "[]")) return of;
    if (of.kind != TM_V_STRING && !tm_v_has_places(&of))
        return tm_render_fail(r, TM_INVALID, "only lists and texts have slices");
    all = tm_v_items(r, &of);
    int64_t n = (int64_t)all.box->n, step = part[2].kind == TM_V_INT ? part[2].integer : 1, bound[2];
    if (step == 0) return tm_render_fail(r, TM_INVALID, "a slice has no step of 0");
    for (int i = 0; i < 2; i++) {
        bool    end = (i == 0) == (step < 0); /* the default of this one is the end */
        int64_t low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n;
        int64_t v = part[i].kind == TM_V_INT ? part[i].integer : end ? high : low;
        if (part[i].kind == TM_V_INT && v < 0) v += n;
        bound[i] = v < low ? low : v > high ? high : v;
    }
    tm_v out = tm_v_list_as(r, of.form);
    for (int64_t i = bound[0]; step > 0 ? i < bound[1] : i > bound[1]; i += step)
        tm_v_append(r, &out, all.box->item[i]);
    if (of.kind == TM_V_LIST) return out;
    tm_text text = { 0 };
    for (size_t i = 0; i < out.box->n; i++) tm_text_add_n(&text, out.box->item[i].text, out.box->item[i].length);
    tm_v joined = tm_v_string(r, text.data, text.length);
    tm_text_fini(&text);
    return joined;
}

static tm_v collection(tm_render *r, const tm_x *x)
{
    tm_v made = x->kind == TM_X_DICT ? tm_v_dict(r) : tm_v_list_as(r, x->kind == TM_X_TUPLE ? TM_L_TUPLE : TM_L_LIST);
    for (size_t i = 0; i < x->n && x->kind != TM_X_DICT; i++) tm_v_append(r, &made, evaluate(r, x->item[i].value));
    for (size_t i = 0; i + 1 < x->n && x->kind == TM_X_DICT; i += 2) {
        tm_v key = evaluate(r, x->item[i].value), value = evaluate(r, x->item[i + 1].value);
        put_key(r, &made, &key, &value);
    }
    return made;
}

static tm_v boolean(bool is)
{
    return (tm_v){ .kind = TM_V_BOOL, .integer = is };
}

static tm_v operation(tm_render *r, const tm_x *x)
{
    tm_v a = evaluate(r, x->a), b;
    switch (x->kind) {
    case TM_X_AND:
        return tm_v_true(&a) ? evaluate(r, x->b) : a;
    case TM_X_OR:
        return tm_v_true(&a) ? a : evaluate(r, x->b);
    case TM_X_NOT:
        return boolean(!tm_v_true(&a));
    case TM_X_MINUS:
        if (a.kind != TM_V_INT && a.kind != TM_V_FLOAT) return tm_render_fail(r, TM_INVALID, "'-' takes a number");
        a.integer = -a.integer, a.real = -a.real;
        return a;
    default:
        b = evaluate(r, x->b);
        r->line = x->line;
        return tm_render_binary(r, x->which, &a, &b);
    }
}

static tm_v evaluate(tm_render *r, const tm_x *x)
{
    tm_v           a, b;
    tm_v_arguments arguments;
    if (r->failed || !x) return (tm_v){ .kind = TM_V_UNDEFINED };
    r->line = x->line;
    if (!goes_on(r)) return (tm_v){ .kind = TM_V_UNDEFINED };
    switch (x->kind) {
    case TM_X_STRING:
        return (tm_v){ .kind = TM_V_STRING, .text = x->text, .length = x->length };
    case TM_X_INT:
        return (tm_v){ .kind = TM_V_INT, .integer = x->integer };
    case TM_X_FLOAT:
        return (tm_v){ .kind = TM_V_FLOAT, .real = x->real };
    case TM_X_BOOL:
        return boolean(x->integer != 0);
    case TM_X_NONE:
        return (tm_v){ .kind = TM_V_NONE };
    case TM_X_NAME:
        return look_up(r, x->text, x->length);
    case TM_X_LIST:
    case TM_X_TUPLE:
    case TM_X_DICT:
        return collection(r, x);
    case TM_X_MEMBER:
        a = evaluate(r, x->a);
        return tm_render_member(r, &a, x->text, x->length);
    case TM_X_INDEX:
        a = evaluate(r, x->a);
        b = evaluate(r, x->b);
        return tm_render_index(r, &a, &b);
    case TM_X_SLICE:
        return slice(r, x);
    case TM_X_CALL:
        return call(r, x);
    case TM_X_FILTER:
        a = evaluate(r, x->a);
        arguments = arguments_of(r, x);
        r->line = x->line;
        return r->failed ? a : tm_render_filter(r, x->which, &a, &arguments);
    case TM_X_TEST:
        a = evaluate(r, x->a);
        arguments = arguments_of(r, x);
        return boolean(tm_render_test(r, x->which, &a, &arguments) != x->negated);
    case TM_X_CHOICE:
        b = evaluate(r, x->b);
        return tm_v_true(&b) ? evaluate(r, x->a) : evaluate(r, x->c);
    default:
        return operation(r, x);
    }
}

/* --- statements --------------------------------------------------------------------------------------------------- */

/* One name gets the value, several its parts. */
static void assign(tm_render *r, const tm_s *s, tm_v value)
{
    if (s->n_names == 1) {
        define(r, s->names[0], value);
        return;
    }
    tm_v all = tm_v_items(r, &value);
    if (r->failed) return;
    if (all.box->n != s->n_names) {
        tm_render_fail(r, TM_INVALID, "%zu values for %zu names", all.box->n, s->n_names);
        return;
    }
    for (size_t i = 0; i < s->n_names; i++) define(r, s->names[i], all.box->item[i]);
}

static void put_number(tm_render *r, const tm_v *loop, const char *name, int64_t value, bool truth)
{
    tm_v v = { .kind = truth ? TM_V_BOOL : TM_V_INT, .integer = value };
    tm_v_put(r, loop, tm_v_string(r, name, strlen(name)), v);
}

static void define_loop(tm_render *r, const tm_v *all, size_t i)
{
    int64_t n = (int64_t)all->box->n, at = (int64_t)i;
    tm_v    loop = tm_v_dict(r);
    loop.kind = TM_V_NAMESPACE;
    put_number(r, &loop, "depth", 1, false);
    put_number(r, &loop, "depth0", 0, false);
    put_number(r, &loop, "index", at + 1, false);
    put_number(r, &loop, "index0", at, false);
    put_number(r, &loop, "revindex", n - at, false);
    put_number(r, &loop, "revindex0", n - at - 1, false);
    put_number(r, &loop, "length", n, false);
    put_number(r, &loop, "first", at == 0, true);
    put_number(r, &loop, "last", at == n - 1, true);
    if (i > 0) tm_v_put(r, &loop, tm_v_string(r, "previtem", 8), all->box->item[i - 1]);
    if (at + 1 < n) tm_v_put(r, &loop, tm_v_string(r, "nextitem", 8), all->box->item[i + 1]);
    define(r, "loop", loop);
}

static void run_for(tm_render *r, const tm_s *s)
{
    bool      whole = false; /* was a round gone through to its end? */
    tm_scope *scope = r->scope;
    tm_v      of = evaluate(r, s->a), all = tm_v_items(r, &of), chosen = all;
    if (r->failed) return;
    if (s->b) { /* only those that the condition takes are counted */
        chosen = tm_v_list(r);
        for (size_t i = 0; i < all.box->n && goes_on(r); i++) {
            enter(r);
            assign(r, s, all.box->item[i]);
            tm_v is = evaluate(r, s->b);
            r->scope = scope;
            if (tm_v_true(&is)) tm_v_append(r, &chosen, all.box->item[i]);
        }
    }
    for (size_t i = 0; i < chosen.box->n && !r->breaks && goes_on(r); i++) {
        enter(r);
        assign(r, s, chosen.box->item[i]);
        define_loop(r, &chosen, i);
        run(r, s->body);
        r->scope = scope;
        whole = whole || (!r->continues && !r->breaks);
        r->continues = false;
    }
    r->breaks = false;
    if (!whole) run(r, s->other); /* as Jinja: also if every round was left by continue or break */
}

static void run_set(tm_render *r, const tm_s *s)
{
    tm_v value;
    if (s->a) {
        value = evaluate(r, s->a);
    } else {
        tm_text *out = r->out, own = { 0 };
        r->out = &own;
        run(r, s->body);
        r->out = out;
        value = tm_v_string(r, own.data, own.length);
        tm_text_fini(&own);
    }
    if (r->failed) return;
    if (!s->member) {
        assign(r, s, value);
        return;
    }
    tm_v of = look_up(r, s->names[0], strlen(s->names[0]));
    r->line = s->line;
    if (of.kind != TM_V_NAMESPACE || strcmp(s->names[0], "loop") == 0)
        tm_render_fail(r, TM_INVALID, "'%s' is not a namespace: it has no members to be set", s->names[0]);
    else
        tm_v_put(r, &of, tm_v_string(r, s->member, strlen(s->member)), value);
}

/* Names of its own for a block; their values do not see each other. */
static void run_with(tm_render *r, const tm_s *s)
{
    tm_scope *scope = r->scope;
    tm_v     *values = tm_render_take(r, (s->n + 1) * sizeof *values);
    for (size_t i = 0; i < s->n; i++) values[i] = evaluate(r, s->item[i].value);
    enter(r);
    for (size_t i = 0; i < s->n; i++) define(r, s->item[i].name, values[i]);
    run(r, s->body);
    r->scope = scope;
}

static void run_generation(tm_render *r, const tm_s *s)
{
    size_t begin = r->out->length;
    run(r, s->body);
    if (!r->spans || r->depth > 0) return;
    r->spans->data = tm_grow(r->spans->data, &r->spans->capacity, r->spans->count, sizeof *r->spans->data);
    r->spans->data[r->spans->count++] = (tm_template_span){ begin, r->out->length };
}

static void run(tm_render *r, const tm_s *s)
{
    for (; s && !r->failed && !r->breaks && !r->continues; s = s->next) {
        tm_v value;
        r->line = s->line;
        switch (s->kind) {
        case TM_S_TEXT:
            tm_text_add_n(r->out, s->text, s->length);
            break;
        case TM_S_OUTPUT:
            value = evaluate(r, s->a);
            if (!r->failed) tm_v_print(r, &value, r->out);
            if (r->out->length > most_bytes) tm_render_fail(r, TM_INVALID, "what the template makes becomes too large");
            break;
        case TM_S_IF:
            value = evaluate(r, s->a);
            if (!r->failed) run(r, tm_v_true(&value) ? s->body : s->other);
            break;
        case TM_S_FOR:
            run_for(r, s);
            break;
        case TM_S_SET:
            run_set(r, s);
            break;
        case TM_S_MACRO:
            define(r, s->text, (tm_v){ .kind = TM_V_MACRO, .macro = s });
            break;
        case TM_S_GENERATION:
            run_generation(r, s);
            break;
        case TM_S_WITH:
            run_with(r, s);
            break;
        case TM_S_BREAK:
            r->breaks = true;
            break;
        case TM_S_CONTINUE:
            r->continues = true;
            break;
        }
    }
}

tm_status tm_template_render(const tm_template *tmpl, const json_t *variables, int64_t now_, tm_text *out,
                             tm_template_spans *spans, tm_error *err)
{
    tm_error  own = { 0 };
    tm_render r = { .tmpl = tmpl, .arena = tm_arena_create(), .err = &own, .out = out, .spans = spans, .now = now_ };
    TM_ASSERT(json_is_object(variables));
    tm_text_add(out, "");
    enter(&r);
    r.scope->variables = tm_v_from_json(&r, variables);
    run(&r, tmpl->body);
    tm_arena_destroy(r.arena);
    return r.failed ? tm_fail(err, own.status, "%s", own.text) : TM_OK;
}
