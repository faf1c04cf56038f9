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

/* --- words of the rows WIDE of gcn.def ----------------------------------------------------------- */

/* Is the number of a class whose bit b has (gcn_vector.c, in_class)? */
static u64 is_of_class(u64 a, u64 b)
{
    u64 x = a & ~(u64)0 >> 1, infinite = (u64)0x7ff << 52, from_0 = x == infinite ? 3 : x >> 52 ? 2 : x != 0;
    if (x > infinite) return b >> (x >> 51 & 1) & 1;
    return b >> (a >> 63 ? 5 - from_0 : 6 + from_0) & 1;
}

static u64 quotient_of(double q, u64 c, bool late)
{
    return bits_of_double(q * (!late ? 1 : (c >> 52 & 2047) > 1023 ? 0x1p128 : 0x1p-128));
}

/* The last of the instructions of a division: q is the quotient, right but for special cases. */
static u64 quotient_fixed(u64 q, u64 divisor, u64 dividend)
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

/* --- operands and results ------------------------------------------------------------------------ */

#define WIDE(name, shape, flops, takes, result)                                                                        \
    static void do_##name(u64 *as, const u64 *bs, const u64 *cs, u64 mask)                                             \
    {                                                                                                                  \
        for (int i = 0; i < LANES; i++) {                                                                              \
            u64    a = as[i], b = bs[i], c = cs[i], bit = mask >> i & 1;                                               \
            double da = double_of(a), db = double_of(b), dc = double_of(c);                                            \
            (void)b, (void)c, (void)da, (void)db, (void)dc, (void)bit;                                                 \
            as[i] = (u64)(result);                                                                                     \
        }                                                                                                              \
    }
#include "machine/gcn.def"

/* Operand k as 64 values; the result's own where there is none. Of a float64 operand a number with a point is a double,
 * one of 32 bits its upper half. */
static void wide_source(const wave *w, const instruction *x, int k, u64 *to)
{
    const operand *o = &x->o[k < x->n ? k : 0];
    u64            sign = (u64)1 << (o->count == 2 ? 63 : 31);
    if (o->kind == VECTOR) {
        const u32 *low = w->v[o->at], *high = o->count == 2 ? w->v[o->at + 1] : NULL;
        for (int i = 0; i < LANES; i++) to[i] = low[i] | (high ? (u64)high[i] << 32 : 0);
    } else {
        u64  value = wide_value(w, o);
        bool upper = x->row->takes & FLOATS && o->count == 2 && o->kind == NUMBER && !o->decimal;
        if (upper && value > 64 && value < ~(u64)0 - 15) value <<= 32;
        for (int i = 0; i < LANES; i++) to[i] = value;
    }
    for (int i = 0; i < LANES && (o->absolute || o->negate); i++)
        to[i] = (o->absolute ? to[i] & ~sign : to[i]) ^ (o->negate ? sign : 0);
}

/* A lane's result, if EXEC has the lane: in vector registers, or as a bit. */
static void write_wide(wave *w, const operand *to, const u64 *from)
{
    u64 exec = scalar_pair(w, EXEC), mask = 0;
    for (int i = 0; i < LANES; i++) mask |= (from[i] & 1) << i;
    if (to->kind == SCALAR) set_scalar_pair(w, to->at, mask & exec);
    for (int k = 0; k < to->count && to->kind == VECTOR; k++)
        for (int i = 0; i < LANES; i++)
            if (exec >> i & 1) w->v[to->at + k][i] = (u32)(from[i] >> (32 * k));
}

static bool step_wide(wave *w, const instruction *x)
{
    u64  a[LANES], b[LANES], c[LANES], carry = 0;
    int  first = strchr(x->row->shape, ' ')[1] == 's' ? 2 : 1; /* behind the results */
    bool narrow = first == 2 && x->o[0].count == 1;
    u64  mask = narrow && x->n > 4 ? scalar_value(w, &x->o[4]) : scalar_pair(w, VCC);
    wide_source(w, x, first, a);
    wide_source(w, x, first + 1, b);
    wide_source(w, x, narrow ? 0 : first + 2, c);
    x->row->wide(a, b, c, mask);
    write_wide(w, &x->o[0], a);
    for (int i = 0; i < LANES; i++) carry |= (a[i] >> 32 & 1) << i;
    if (first == 2) set_scalar_pair(w, x->o[1].at, narrow ? carry & scalar_pair(w, EXEC) : ~(u64)0);
    return true;
}

static bool step_quotient_scaled(wave *w, const instruction *x)
{
    u64 a[LANES], b[LANES], c[LANES], mask = 0;
    wide_source(w, x, 2, a);
    wide_source(w, x, 3, b);
    wide_source(w, x, 4, c);
    for (int i = 0; i < LANES; i++) {
        bool late;
        a[i] = bits_of_double(scaled(double_of(a[i]), double_of(b[i]), double_of(c[i]), &late));
        mask |= (u64)late << i;
    }
    write_wide(w, &x->o[0], a);
    set_scalar_pair(w, x->o[1].at, mask & scalar_pair(w, EXEC));
    return true;
}

const row gcn_wide_rows[] = {
#define WIDE(name, shape, of, flags, result)                                                                           \
    { #name, shape, step_wide, .takes = flags, .flops = of, .wide = do_##name },
#include "machine/gcn.def"
    { "v_div_scale_f64", "v2 s2 x2 x2 x2", step_quotient_scaled, .takes = FLOATS, .flops = 1 },
    { 0 },
};
