/* SPDX-License-Identifier: Apache-2.0 */
/* token/template_operators.c - operators between two values of a template. */
#include "token/template_text.h"

#include <math.h>
#include <string.h>

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
    if ((all->kind == TM_V_DICT || tm_v_is(all, TM_L_KEYS)) && !tm_v_can_be_key(what)) {
        tm_render_fail(r, TM_INVALID, "a list or a map is no key");
        return false;
    }
    if (all->kind == TM_V_DICT || all->kind == TM_V_NAMESPACE) return tm_v_at(r, all, what) != NULL;
    if (all->kind != TM_V_LIST) {
        if (all->kind != TM_V_UNDEFINED) tm_v_wants(r, "in", "a list, a map or a string after it");
        return false;
    }
    size_t n = all->box->n, i = 0;
    while (i < n && !tm_v_equal(r, &all->box->item[i], what)) i++;
    tm_v_took(all, i < n ? i + 1 : n);
    return i < n;
}

/* Python's x // y, or x % y, whose sign is that of y. */
static double divided(double x, double y, bool rest)
{
    double mod = fmod(x, y), whole = (x - mod) / y;
    if (mod < 0 || mod > 0) {
        if ((y < 0) != (mod < 0)) mod += y, whole -= 1;
    } else {
        mod = copysign(0, y);
    }
    if (rest) return mod;
    if (!(whole < 0) && !(whole > 0)) return copysign(0, x / y);
    double down = floor(whole);
    return whole - down > 0.5 ? down + 1 : down;
}

static tm_v arithmetic(tm_render *r, int which, const tm_v *a, const tm_v *b)
{
    bool   real = a->kind == TM_V_FLOAT || b->kind == TM_V_FLOAT || which == O_DIV;
    double x = a->kind == TM_V_FLOAT ? a->real : (double)a->integer,
           y = b->kind == TM_V_FLOAT ? b->real : (double)b->integer;
    int64_t i = a->integer, k = b->integer, result = 0;
    if ((which == O_DIV || which == O_FLOOR || which == O_MOD) && !(y < 0) && !(y > 0))
        return tm_render_fail(r, TM_INVALID, "division by zero");
    bool over = false;
    if (which == O_POW && !real && k >= 0) {
        for (result = 1; k > 0 && !over && result != 0 && (result != 1 || i != 1); k--) {
            if (i == -1 && k > 2) k -= (k - 1) / 2 * 2; /* the sign is all */
            over = __builtin_mul_overflow(result, i, &result);
        }
        return over ? tm_render_fail(r, TM_INVALID, "a number is too large") : tm_v_integer(result);
    }
    if (real || which == O_POW) {
        double v = which == O_ADD   ? x + y
                   : which == O_SUB ? x - y
                   : which == O_MUL ? x * y
                   : which == O_DIV ? x / y
                   : which == O_POW ? pow(x, y)
                                    : divided(x, y, which == O_MOD);
        if (which == O_POW && (isnan(v) || (isinf(v) && !isinf(x) && !isinf(y))))
            return tm_render_fail(r, TM_INVALID, "a power is no number, or too large");
        return (tm_v){ .kind = TM_V_FLOAT, .real = v };
    }
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
    tm_render_over(r, a);
    tm_render_over(r, b);
    if (which == O_EQ || which == O_NE)
        return (tm_v){ .kind = TM_V_BOOL, .integer = tm_v_equal(r, a, b) == (which == O_EQ) };
    if (which == O_IN) return (tm_v){ .kind = TM_V_BOOL, .integer = contains(r, b, a) };
    if (which <= O_GT) {
        if (!tm_v_compare(r, a, b, &order)) return tm_v_wants(r, operators[which], "two numbers or two texts");
        bool is = which == O_LE ? order <= 0 : which == O_GE ? order >= 0 : which == O_LT ? order < 0 : order > 0;
        return (tm_v){ .kind = TM_V_BOOL, .integer = is };
    }
    if (which == O_CAT) {
        tm_v x = tm_v_as_text(r, a), y = tm_v_as_text(r, b);
        return tm_v_concatenated(r, &x, &y);
    }
    if (tm_v_refuse_marked(r, a, operators[which]) || tm_v_refuse_marked(r, b, operators[which]))
        return (tm_v){ .kind = TM_V_UNDEFINED };
    if (which == O_ADD && a->kind == TM_V_STRING && b->kind == TM_V_STRING) return tm_v_concatenated(r, a, b);
    if (which == O_ADD && a->kind == TM_V_LIST && b->kind == TM_V_LIST && a->form == b->form && a->form <= TM_L_TUPLE) {
        tm_v all = tm_v_list_as(r, a->form);
        for (size_t i = 0; i < a->box->n; i++) tm_v_append(r, &all, a->box->item[i]);
        for (size_t i = 0; i < b->box->n; i++) tm_v_append(r, &all, b->box->item[i]);
        return all;
    }
    if (which == O_MUL && b->kind == TM_V_STRING && a->kind == TM_V_INT) return tm_render_binary(r, which, b, a);
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
