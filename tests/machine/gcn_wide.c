/* SPDX-License-Identifier: Apache-2.0 */
/* Vector instructions on 64 bits, whole numbers with carries and float64, of each lane by itself. */
#include "machine/gcn.h"

#include <math.h>

static inline double double_of(u64 x)
{
    double d;
    memcpy(&d, &x, 8);
    return d;
}

static inline u64 bits_of_double(double d)
{
    u64 x;
    memcpy(&x, &d, 8);
    return x;
}

/* Operand k as 64 values. Of a float64 operand a number with a point is a double, one of 32 bits its upper half. */
static void wide(const wave *w, const instruction *x, int k, u64 *to)
{
    const operand *o = &x->o[k];
    bool           floats = x->row->takes & FLOATS;
    if (o->kind == VECTOR) {
        const u32 *low = w->v[o->at], *high = o->count == 2 ? w->v[o->at + 1] : NULL;
        for (int i = 0; i < LANES; i++) to[i] = low[i] | (high ? (u64)high[i] << 32 : 0);
    } else {
        u64 value = scalar_value(w, o);
        if (floats && o->count == 2 && o->kind == NUMBER) {
            if (o->decimal)
                value = bits_of_double((double)float_of((u32)value));
            else if (value > 64 && value < ~(u64)0 - 15)
                value <<= 32;
        }
        for (int i = 0; i < LANES; i++) to[i] = value;
    }
    u64 keep = o->absolute ? ~(u64)0 >> 1 : ~(u64)0, flip = o->negate ? (u64)1 << 63 : 0;
    for (int i = 0; i < LANES && (o->absolute || o->negate); i++) to[i] = (to[i] & keep) ^ flip;
}

static void write_wide(wave *w, int at, const u64 *from)
{
    u64 exec = scalar_pair(w, EXEC);
    for (int i = 0; i < LANES; i++)
        if (exec >> i & 1) w->v[at][i] = (u32)from[i], w->v[at + 1][i] = (u32)(from[i] >> 32);
}

static void write_narrow(wave *w, int at, const u64 *from)
{
    u64 exec = scalar_pair(w, EXEC);
    for (int i = 0; i < LANES; i++)
        if (exec >> i & 1) w->v[at][i] = (u32)from[i];
}

/* --- whole numbers with carries
 * ----------------------------------------------------------------------------------------- */

enum { ADD_CO, SUB_CO, SUBREV_CO };

/* d, carry out, a, b, and of those that take one the carry in. */
static bool step_carry(wave *w, const instruction *x)
{
    u64 a[LANES], b[LANES], in = x->n > 4 ? scalar_value(w, &x->o[4]) : 0, out = 0;
    wide(w, x, 2, a);
    wide(w, x, 3, b);
    for (int i = 0; i < LANES; i++) {
        u64 left = (u32)(x->row->kind == SUBREV_CO ? b[i] : a[i]),
            right = (u32)(x->row->kind == SUBREV_CO ? a[i] : b[i]);
        u64 carry = in >> i & 1, q = x->row->kind == ADD_CO ? left + right + carry : left - right - carry;
        a[i] = (u32)q;
        out |= (q >> 32 & 1) << i;
    }
    write_narrow(w, x->o[0].at, a);
    set_scalar_pair(w, x->o[1].at, out & scalar_pair(w, EXEC));
    return true;
}

/* --- comparisons
 * -------------------------------------------------------------------------------------------------------- */

enum { EQ_U, NE_U, LT_U, LT_I, GE_I, LT_F, NLT_F, LE_F, NLE_F, GT_F, NGT_F, GE_F, NGE_F };

static bool compared(int how, u64 a, u64 b)
{
    switch (how) {
    case EQ_U:
        return a == b;
    case NE_U:
        return a != b;
    case LT_U:
        return a < b;
    case LT_I:
        return (i64)a < (i64)b;
    case GE_I:
        return (i64)a >= (i64)b;
    case LT_F:
        return double_of(a) < double_of(b);
    case NLT_F:
        return !(double_of(a) < double_of(b));
    case LE_F:
    case NLE_F:
        return (double_of(a) <= double_of(b)) == (how == LE_F);
    case GT_F:
    case NGT_F:
        return (double_of(a) > double_of(b)) == (how == GT_F);
    default:
        return (double_of(a) >= double_of(b)) == (how == GE_F);
    }
}

static bool step_compare_wide(wave *w, const instruction *x)
{
    u64 a[LANES], b[LANES], mask = 0;
    wide(w, x, 1, a);
    wide(w, x, 2, b);
    for (int i = 0; i < LANES; i++) mask |= (u64)compared(x->row->kind, a[i], b[i]) << i;
    set_scalar_pair(w, x->o[0].at, mask & scalar_pair(w, EXEC));
    return true;
}

/* Is the number of a class whose bit b has (gcn_vector.c, in_class)? */
static bool step_class(wave *w, const instruction *x)
{
    u64 a[LANES], b[LANES], mask = 0;
    wide(w, x, 1, a);
    wide(w, x, 2, b);
    for (int i = 0; i < LANES; i++) {
        u64 number = a[i] & ~(u64)0 >> 1, infinite = (u64)0x7ff << 52, sign = a[i] >> 63, kind;
        if (number > infinite)
            kind = number >> 51 & 1;
        else if (number == infinite)
            kind = sign ? 2 : 9;
        else if (number >> 52)
            kind = sign ? 3 : 8;
        else
            kind = number ? (sign ? 4 : 7) : (sign ? 5 : 6);
        mask |= (b[i] >> kind & 1) << i;
    }
    set_scalar_pair(w, x->o[0].at, mask & scalar_pair(w, EXEC));
    return true;
}

/* --- float64
 * ------------------------------------------------------------------------------------------------------------- */

enum { ADD, MUL, FMA, LDEXP, RCP, RSQ, MAX, LSHR, FIXUP, FMAS };

/* The last of the instructions of a division: q is the quotient, right but for special cases. */
static u64 division_fixed(u64 q, u64 divisor, u64 dividend)
{
    double d = double_of(divisor), n = double_of(dividend);
    u64    sign = (divisor ^ dividend) & (u64)1 << 63, quiet = (u64)1 << 51;
    if (isnan(n)) return dividend | quiet;
    if (isnan(d)) return divisor | quiet;
    if ((n == 0 && d == 0) || (isinf(n) && isinf(d))) return (u64)0xfff8 << 48;
    if (d == 0 || isinf(n)) return sign | (u64)0x7ff << 52;
    if (isinf(d) || n == 0) return sign;
    return sign | (q & ~(u64)0 >> 1);
}

static u64 of_three(int how, u64 a, u64 b, u64 c, bool late)
{
    switch (how) {
    case ADD:
        return bits_of_double(double_of(a) + double_of(b));
    case MUL:
        return bits_of_double(double_of(a) * double_of(b));
    case FMA:
        return bits_of_double(fma(double_of(a), double_of(b), double_of(c)));
    case LDEXP:
        return bits_of_double(ldexp(double_of(a), (i32)(u32)b));
    case RCP:
        return bits_of_double(1 / double_of(a));
    case RSQ:
        return bits_of_double(1 / sqrt(double_of(a)));
    case LSHR:
        return b >> (a & 63);
    case MAX:
        return bits_of_double(fmax(double_of(a), double_of(b)));
    case FIXUP:
        return division_fixed(a, b, c);
    default:
        return bits_of_double(fma(double_of(a), double_of(b), double_of(c)) * (!late                     ? 1
                                                                               : (c >> 52 & 2047) > 1023 ? 0x1p128
                                                                                                         : 0x1p-128));
    }
}

static bool step_wide(wave *w, const instruction *x)
{
    u64 a[LANES], b[LANES] = { 0 }, c[LANES] = { 0 }, late = x->row->kind == FMAS ? scalar_pair(w, VCC) : 0;
    wide(w, x, 1, a);
    if (x->n > 2) wide(w, x, 2, b);
    if (x->n > 3) wide(w, x, 3, c);
    for (int i = 0; i < LANES; i++) a[i] = of_three(x->row->kind, a[i], b[i], c[i], late >> i & 1);
    write_wide(w, x->o[0].at, a);
    return true;
}

/* d += a b */
static bool step_accumulate(wave *w, const instruction *x)
{
    u64 a[LANES], b[LANES], c[LANES];
    wide(w, x, 0, c);
    wide(w, x, 1, a);
    wide(w, x, 2, b);
    for (int i = 0; i < LANES; i++) a[i] = of_three(FMA, a[i], b[i], c[i], false);
    write_wide(w, x->o[0].at, a);
    return true;
}

static bool step_to_float(wave *w, const instruction *x)
{
    u64 a[LANES];
    wide(w, x, 1, a);
    for (int i = 0; i < LANES; i++) a[i] = bits_of((float)double_of(a[i]));
    write_narrow(w, x->o[0].at, a);
    return true;
}

static bool step_to_double(wave *w, const instruction *x)
{
    const operand *o = &x->o[1];
    u64            a[LANES];
    for (int i = 0; i < LANES; i++) {
        u32 bits = o->kind == VECTOR ? w->v[o->at][i] : (u32)scalar_value(w, o);
        if (o->absolute) bits &= 0x7fffffff;
        if (o->negate) bits ^= 0x80000000;
        a[i] = bits_of_double((double)float_of(bits));
    }
    write_wide(w, x->o[0].at, a);
    return true;
}

enum { SIGNED, UNSIGNED };

static bool step_from_whole(wave *w, const instruction *x)
{
    const operand *o = &x->o[1];
    u64            a[LANES];
    for (int i = 0; i < LANES; i++) {
        u32 bits = o->kind == VECTOR ? w->v[o->at][i] : (u32)scalar_value(w, o);
        a[i] = bits_of_double(x->row->kind == UNSIGNED ? (double)bits : (double)(i32)bits);
    }
    write_wide(w, x->o[0].at, a);
    return true;
}

static int exponent(double x)
{
    return (int)(bits_of_double(x) >> 52 & 2047);
}

/* The first of the instructions of a division: a scaled so that no step overflows or loses bits; *late: the last but
 * one scales back. */
static double scaled(double a, double d, double n, bool *late)
{
    *late = false;
    if (d == 0 || n == 0) return (double)NAN;
    if (exponent(n) - exponent(d) >= 768) {
        *late = true;
        return a == d ? ldexp(a, 128) : a;
    }
    if (exponent(d) == 0) return ldexp(a, 128);
    if (exponent(1 / d) == 0 && exponent(n / d) == 0) {
        *late = true;
        return a == d ? ldexp(a, 128) : a;
    }
    if (exponent(1 / d) == 0) return ldexp(a, -128);
    if (exponent(n / d) == 0) {
        *late = true;
        return a == n ? ldexp(a, 128) : a;
    }
    return exponent(n) <= 53 ? ldexp(a, 128) : a;
}

static bool step_scaled(wave *w, const instruction *x)
{
    u64 a[LANES], b[LANES], c[LANES], mask = 0;
    wide(w, x, 2, a);
    wide(w, x, 3, b);
    wide(w, x, 4, c);
    for (int i = 0; i < LANES; i++) {
        bool late;
        a[i] = bits_of_double(scaled(double_of(a[i]), double_of(b[i]), double_of(c[i]), &late));
        mask |= (u64)late << i;
    }
    set_scalar_pair(w, x->o[1].at, mask & scalar_pair(w, EXEC));
    write_wide(w, x->o[0].at, a);
    return true;
}

const row gcn_wide_rows[] = {
    { "v_add_co_u32", "v s2 x x", step_carry, .kind = ADD_CO },
    { "v_addc_co_u32", "v s2 x x z2", step_carry, .kind = ADD_CO },
    { "v_sub_co_u32", "v s2 x x", step_carry, .kind = SUB_CO },
    { "v_subb_co_u32", "v s2 x x z2", step_carry, .kind = SUB_CO },
    { "v_subrev_co_u32", "v s2 x x", step_carry, .kind = SUBREV_CO },
    { "v_subbrev_co_u32", "v s2 x x z2", step_carry, .kind = SUBREV_CO },
    { "v_cmp_eq_u64", "s2 x2 x2", step_compare_wide, .kind = EQ_U },
    { "v_cmp_ne_u64", "s2 x2 x2", step_compare_wide, .kind = NE_U },
    { "v_cmp_lt_u64", "s2 x2 x2", step_compare_wide, .kind = LT_U },
    { "v_cmp_lt_i64", "s2 x2 x2", step_compare_wide, .kind = LT_I },
    { "v_cmp_ge_i64", "s2 x2 x2", step_compare_wide, .kind = GE_I },
    { "v_cmp_lt_f64", "s2 x2 x2", step_compare_wide, .takes = FLOATS, .kind = LT_F },
    { "v_cmp_nlt_f64", "s2 x2 x2", step_compare_wide, .takes = FLOATS, .kind = NLT_F },
    { "v_cmp_le_f64", "s2 x2 x2", step_compare_wide, .takes = FLOATS, .kind = LE_F },
    { "v_cmp_nle_f64", "s2 x2 x2", step_compare_wide, .takes = FLOATS, .kind = NLE_F },
    { "v_cmp_gt_f64", "s2 x2 x2", step_compare_wide, .takes = FLOATS, .kind = GT_F },
    { "v_cmp_ngt_f64", "s2 x2 x2", step_compare_wide, .takes = FLOATS, .kind = NGT_F },
    { "v_cmp_ge_f64", "s2 x2 x2", step_compare_wide, .takes = FLOATS, .kind = GE_F },
    { "v_cmp_nge_f64", "s2 x2 x2", step_compare_wide, .takes = FLOATS, .kind = NGE_F },
    { "v_cmp_class_f64", "s2 x2 x", step_class, .takes = FLOATS },
    { "v_lshrrev_b64", "v2 x x2", step_wide, .kind = LSHR },
    { "v_add_f64", "v2 x2 x2", step_wide, .takes = FLOATS, .kind = ADD, .flops = 1 },
    { "v_mul_f64", "v2 x2 x2", step_wide, .takes = FLOATS, .kind = MUL, .flops = 1 },
    { "v_max_f64", "v2 x2 x2", step_wide, .takes = FLOATS, .kind = MAX, .flops = 1 },
    { "v_fma_f64", "v2 x2 x2 x2", step_wide, .takes = FLOATS, .kind = FMA, .flops = 2 },
    { "v_fmac_f64", "v2 x2 x2", step_accumulate, .takes = FLOATS, .flops = 2 },
    { "v_ldexp_f64", "v2 x2 x", step_wide, .takes = FLOATS, .kind = LDEXP },
    { "v_rcp_f64", "v2 x2", step_wide, .takes = FLOATS, .kind = RCP, .flops = 1 },
    { "v_rsq_f64", "v2 x2", step_wide, .takes = FLOATS, .kind = RSQ, .flops = 1 },
    { "v_div_scale_f64", "v2 s2 x2 x2 x2", step_scaled, .takes = FLOATS, .flops = 1 },
    { "v_div_fmas_f64", "v2 x2 x2 x2", step_wide, .takes = FLOATS | READS_VCC, .kind = FMAS, .flops = 2 },
    { "v_div_fixup_f64", "v2 x2 x2 x2", step_wide, .takes = FLOATS, .kind = FIXUP, .flops = 1 },
    { "v_cvt_f32_f64", "v x2", step_to_float, .takes = FLOATS },
    { "v_cvt_f64_f32", "v2 x", step_to_double, .takes = FLOATS },
    { "v_cvt_f64_i32", "v2 x", step_from_whole, .kind = SIGNED },
    { "v_cvt_f64_u32", "v2 x", step_from_whole, .kind = UNSIGNED },
    { 0 },
};
