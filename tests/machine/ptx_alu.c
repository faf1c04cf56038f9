/* SPDX-License-Identifier: Apache-2.0 */
/* PTX: arithmetic, comparisons, conversions, moves, shuffles. */
#include "machine/ptx.h"

#include <math.h>
#include <string.h>

/* An instruction of up to three sources: its lanes are computed all, as nothing here can trap, and those that are on
 * are written. 16 bits are kept in 32. */
#define ALU(name, TD, TA, TB, TC, ...)                                                                                 \
    static void name(ptx_block *block, ptx_warp *w, const ptx_instruction *x, u32 on)                                  \
    {                                                                                                                  \
        (void)block;                                                                                                   \
        const TA *pa = ptx_place(w, x->o[1].at);                                                                       \
        const TB *pb = ptx_place(w, x->n > 2 ? x->o[2].at : 0);                                                        \
        const TC *pc = ptx_place(w, x->n > 3 ? x->o[3].at : 0);                                                        \
        TD        d[LANES];                                                                                            \
        for (int i = 0; i < LANES; i++) {                                                                              \
            TA a = pa[i];                                                                                              \
            TB b = pb[i];                                                                                              \
            TC c = pc[i];                                                                                              \
            (void)b, (void)c;                                                                                          \
            d[i] = (TD)(__VA_ARGS__);                                                                                  \
        }                                                                                                              \
        if (sizeof(TD) == 8)                                                                                           \
            ptx_put64(w, x->o[0].at, on, (const u64 *)d);                                                              \
        else                                                                                                           \
            ptx_put32(w, x->o[0].at, on, (const u32 *)d);                                                              \
    }
#define ALU3(name, T, ...) ALU(name, T, T, T, T, __VA_ARGS__)

/* a * b + c, rounded down: the nearest one, or the one below it where that is too large. */
static float fma_down(float a, float b, float c)
{
    float  nearest = fmaf(a, b, c);
    double p = (double)a * (double)b, d = (double)c, s = p + d, back = s - p, rest = (p - (s - back)) + (d - back);
    bool   above = (double)nearest > s || ((double)nearest == s && rest < 0);
    return above ? nextafterf(nearest, -INFINITY) : nearest;
}

/* Between 0 and 1; a NaN becomes 0. */
static float saturate(float v)
{
    return v > 0.0f ? v < 1.0f ? v : 1.0f : 0.0f;
}

static float flush(float v)
{
    return fabsf(v) < 0x1p-126f ? copysignf(0.0f, v) : v;
}

static u32 bits_of(float v)
{
    u32 u;
    memcpy(&u, &v, sizeof u);
    return u;
}

static u32 to_bf16(float v)
{
    u32 u = bits_of(v);
    return v != v ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

/* The size of a number in a format with `mantissa` bits and a bias of its exponent: to nearest even. */
static u32 narrow(float size, int mantissa, int bias)
{
    int exponent;
    frexpf(size, &exponent);
    if (size == 0.0f || exponent < 2 - bias) exponent = 2 - bias; /* subnormal */
    u32 steps = (u32)rintf(ldexpf(size, mantissa + 1 - exponent));
    return steps + ((u32)(exponent - 2 + bias) << mantissa);
}

static u32 to_f16(float v)
{
    u32 sign = bits_of(v) >> 16 & 0x8000;
    if (v != v) return 0x7fff;
    return sign | (fabsf(v) < 65520.0f ? narrow(fabsf(v), 10, 15) : 0x7c00);
}

/* The OCP formats of 8 bits: what is too large becomes the largest. */
static u32 to_fp8(float v, int mantissa, int bias, float largest)
{
    u32 sign = bits_of(v) >> 24 & 0x80;
    return v != v ? 0x7f : sign | narrow(fminf(fabsf(v), largest), mantissa, bias);
}

ALU3(add_f32, f32, a + b)
ALU3(sub_f32, f32, a - b)
ALU3(mul_f32, f32, a *b)
ALU3(fma_f32, f32, fmaf(a, b, c))
ALU3(fma_rm_f32, f32, fma_down(a, b, c))
ALU3(div_f32, f32, a / b)
ALU3(neg_f32, f32, -a)
ALU3(abs_f32, f32, fabsf(a))
ALU3(min_f32, f32, fminf(a, b))
ALU3(max_f32, f32, fmaxf(a, b))
ALU3(sqrt_f32, f32, sqrtf(a))
ALU3(rcp_f32, f32, 1.0f / a)
ALU3(rsqrt_f32, f32, 1.0f / sqrtf(a))
ALU3(ex2_f32, f32, flush(exp2f(a)))
ALU3(lg2_f32, f32, log2f(a))
ALU3(sat_f32, f32, saturate(a))

ALU3(add_32, u32, a + b)
ALU3(sub_32, u32, a - b)
ALU3(mul_32, u32, a *b)
ALU3(mad_32, u32, a *b + c)
ALU3(neg_32, u32, -a)
ALU3(div_u32, u32, b ? a / b : ~(u32)0)
ALU3(div_s32, i32, b == 0 ? -1 : b == -1 ? (i32) - (u32)a : a / b)
ALU3(rem_s32, i32, b == 0 ? a : b == -1 ? 0 : a % b)
ALU3(min_s32, i32, a < b ? a : b)
ALU3(max_s32, i32, a > b ? a : b)
ALU3(min_u32, u32, a < b ? a : b)
ALU3(max_u32, u32, a > b ? a : b)
ALU3(and_32, u32, a &b)
ALU3(or_32, u32, a | b)
ALU3(xor_32, u32, a ^ b)
ALU3(not_32, u32, ~a)
ALU3(shl_32, u32, b < 32 ? a << b : 0)
ALU3(shr_u32, u32, b < 32 ? a >> b : 0)
ALU(shr_s32, i32, i32, u32, u32, a >> (b < 32 ? b : 31))

ALU3(add_64, u64, a + b)
ALU3(sub_64, u64, a - b)
ALU3(mul_64, u64, a *b)
ALU3(mad_64, u64, a *b + c)
ALU3(neg_64, u64, -a)
ALU3(div_u64, u64, b ? a / b : ~(u64)0)
ALU3(max_u64, u64, a > b ? a : b)
ALU3(and_64, u64, a &b)
ALU3(or_64, u64, a | b)
ALU3(not_64, u64, ~a)
ALU(shl_64, u64, u64, u32, u32, b < 64 ? a << b : 0)
ALU(shr_u64, u64, u64, u32, u32, b < 64 ? a >> b : 0)
ALU(mul_wide_s32, i64, i32, i32, i32, (i64)a *b)
ALU(mul_wide_u32, u64, u32, u32, u32, (u64)a *b)

ALU(f32_from_f16, f32, u32, u32, u32, ptx_from_f16(a))
ALU(f16_from_f32, u32, f32, f32, f32, to_f16(a))
ALU(bf16x2_from_f32, u32, f32, f32, f32, to_bf16(a) << 16 | to_bf16(b))
ALU(e4m3x2_from_f32, u32, f32, f32, f32, to_fp8(a, 3, 7, 448.0f) << 8 | to_fp8(b, 3, 7, 448.0f))
ALU(e5m2x2_from_f32, u32, f32, f32, f32, to_fp8(a, 2, 15, 57344.0f) << 8 | to_fp8(b, 2, 15, 57344.0f))
ALU(f32_from_s32, f32, i32, i32, i32, a)
ALU(f32_from_u32, f32, u32, u32, u32, a)
ALU(s64_from_s32, i64, i32, i32, i32, a)
ALU(u64_from_u32, u64, u32, u32, u32, a)
ALU(u32_from_u64, u32, u64, u64, u64, a)
ALU(u16_from_u32, u32, u32, u32, u32, a & 0xffff)

ALU(to_shared, u64, u64, u64, u64, a - SHARED_BASE)
ALU(from_shared, u64, u64, u64, u64, a + SHARED_BASE)
ALU(from_param, u64, u64, u64, u64, a + PARAM_BASE)
ALU3(move_32, u32, a)
ALU3(move_64, u64, a)

/* The low bits of the first source, as many as the fourth says, put into the second from bit `third` on. */
static void bfi_32(ptx_block *block, ptx_warp *w, const ptx_instruction *x, u32 on)
{
    (void)block;
    const u32 *a = ptx_place(w, x->o[1].at), *b = ptx_place(w, x->o[2].at), *from = ptx_place(w, x->o[3].at);
    const u32 *count = ptx_place(w, x->o[4].at);
    u32        d[LANES];
    for (int i = 0; i < LANES; i++) {
        u32 at = from[i] & 0xff, n = count[i] & 0xff;
        u32 mask = at > 31 ? 0 : (u32)((((u64)1 << (n > 32 ? 32 : n)) - 1) << at);
        d[i] = (b[i] & ~mask) | (at > 31 ? 0 : a[i] << at & mask);
    }
    ptx_put32(w, x->o[0].at, on, d);
}

#define SELECT(name, T, put)                                                                                           \
    static void name(ptx_block *block, ptx_warp *w, const ptx_instruction *x, u32 on)                                  \
    {                                                                                                                  \
        (void)block;                                                                                                   \
        const T *a = ptx_place(w, x->o[1].at), *b = ptx_place(w, x->o[2].at);                                          \
        u32      which = w->file[x->o[3].at];                                                                          \
        T        d[LANES];                                                                                             \
        for (int i = 0; i < LANES; i++) d[i] = which >> i & 1 ? a[i] : b[i];                                           \
        put(w, x->o[0].at, on, d);                                                                                     \
    }
SELECT(select_32, u32, ptx_put32)
SELECT(select_64, u64, ptx_put64)

/* --- predicates: a word, a bit for each lane */

static void put_predicate(ptx_warp *w, int at, u32 on, u32 value)
{
    w->file[at] = (w->file[at] & ~on) | (value & on);
}

/* The patterns' order of comparisons. Unordered ones are true of a NaN. */
enum { EQ, NE, LT, LE, GT, GE, EQU, NEU, LTU, LEU, GTU, GEU };

#define EACH(condition)                                                                                                \
    for (int i = 0; i < LANES; i++) r |= (u32)(condition) << i;                                                        \
    break

#define COMPARE(name, T)                                                                                               \
    static void name(ptx_block *block, ptx_warp *w, const ptx_instruction *x, u32 on)                                  \
    {                                                                                                                  \
        (void)block;                                                                                                   \
        const T *a = ptx_place(w, x->o[1].at), *b = ptx_place(w, x->o[2].at);                                          \
        u32      r = 0;                                                                                                \
        switch (x->picks[0]) {                                                                                         \
        case EQ:                                                                                                       \
            EACH(a[i] == b[i]);                                                                                        \
        case NE:                                                                                                       \
            EACH(a[i]<b[i] || a[i]> b[i]);                                                                             \
        case LT:                                                                                                       \
            EACH(a[i] < b[i]);                                                                                         \
        case LE:                                                                                                       \
            EACH(a[i] <= b[i]);                                                                                        \
        case GT:                                                                                                       \
            EACH(a[i] > b[i]);                                                                                         \
        case GE:                                                                                                       \
            EACH(a[i] >= b[i]);                                                                                        \
        case EQU:                                                                                                      \
            EACH(!(a[i] < b[i] || a[i] > b[i]));                                                                       \
        case NEU:                                                                                                      \
            EACH(a[i] != b[i]);                                                                                        \
        case LTU:                                                                                                      \
            EACH(!(a[i] >= b[i]));                                                                                     \
        case LEU:                                                                                                      \
            EACH(!(a[i] > b[i]));                                                                                      \
        case GTU:                                                                                                      \
            EACH(!(a[i] <= b[i]));                                                                                     \
        default:                                                                                                       \
            EACH(!(a[i] < b[i]));                                                                                      \
        }                                                                                                              \
        put_predicate(w, x->o[0].at, on, r);                                                                           \
    }
COMPARE(compare_f32, f32)
COMPARE(compare_s32, i32)
COMPARE(compare_u32, u32)
COMPARE(compare_s64, i64)
COMPARE(compare_u64, u64)

static void compare_s16(ptx_block *block, ptx_warp *w, const ptx_instruction *x, u32 on)
{
    (void)block;
    const u32 *a = ptx_place(w, x->o[1].at), *b = ptx_place(w, x->o[2].at);
    u32        r = 0;
    for (int i = 0; i < LANES; i++) r |= (u32)((a[i] & 0xffff) == (b[i] & 0xffff)) << i;
    put_predicate(w, x->o[0].at, on, x->picks[0] == EQ ? r : ~r);
}

static void logic(ptx_block *block, ptx_warp *w, const ptx_instruction *x, u32 on)
{
    (void)block;
    u32 a = w->file[x->o[1].at], b = w->file[x->o[x->n - 1].at];
    u32 results[] = { a & b, a | b, a ^ b };
    put_predicate(w, x->o[0].at, on, results[x->picks[0]]);
}

static void not_predicate(ptx_block *block, ptx_warp *w, const ptx_instruction *x, u32 on)
{
    (void)block;
    put_predicate(w, x->o[0].at, on, ~w->file[x->o[1].at]);
}

static void move_predicate(ptx_block *block, ptx_warp *w, const ptx_instruction *x, u32 on)
{
    (void)block;
    put_predicate(w, x->o[0].at, on, w->file[x->o[1].at]);
}

/* --- between registers and lanes */

/* {a, b} = c or c = {a, b}: halves, the low one first. */
static void unpack(ptx_block *block, ptx_warp *w, const ptx_instruction *x, u32 on)
{
    (void)block;
    const u64 *wide = ptx_place(w, x->o[1].at);
    const u32 *narrow = ptx_place(w, x->o[1].at);
    int        bits = x->picks[0] ? 32 : 16;
    for (int k = 0; k < 2; k++) {
        u32 d[LANES];
        for (int i = 0; i < LANES; i++)
            d[i] = (u32)((x->picks[0] ? wide[i] : (u64)narrow[i]) >> (k * bits) & (((u64)1 << bits) - 1));
        ptx_put32(w, block->module->list[x->o[0].first + k], on, d);
    }
}

static void pack(ptx_block *block, ptx_warp *w, const ptx_instruction *x, u32 on)
{
    const int *of = block->module->list + x->o[1].first;
    const u32 *low = ptx_place(w, of[0]), *high = ptx_place(w, of[1]);
    u64        d[LANES];
    u32        e[LANES];
    for (int i = 0; i < LANES; i++) d[i] = low[i] | (u64)high[i] << 32;
    for (int i = 0; i < LANES; i++) e[i] = (low[i] & 0xffff) | high[i] << 16;
    if (x->picks[0])
        ptx_put64(w, x->o[0].at, on, d);
    else
        ptx_put32(w, x->o[0].at, on, e);
}

/* shfl.sync: the lane that each reads, within segments (the third source: clamp and segment mask). */
static void shuffle(ptx_block *b, ptx_warp *w, const ptx_instruction *x, u32 on)
{
    const u32 *a = ptx_place(w, x->o[1].at), *by = ptx_place(w, x->o[2].at), *limits = ptx_place(w, x->o[3].at);
    u32        d[LANES], inside = 0;
    for (int i = 0; i < LANES; i++) {
        int clamp = (int)(limits[i] & 31), segment = (int)(limits[i] >> 8 & 31), step = (int)(by[i] & 31);
        int least = i & segment, most = least | (clamp & ~segment), from = i;
        switch (x->picks[0]) {
        case 0:
            from = i ^ step;
            break;
        case 1:
            from = i + step;
            break;
        case 2:
            from = i - step;
            break;
        default:
            from = least | (step & ~segment);
        }
        bool in = x->picks[0] == 2 ? from >= most : from <= most;
        if (!in) from = i;
        inside |= (u32)in << i;
        d[i] = a[from];
        if ((on >> i & 1) && !(on >> from & 1)) {
            ptx_fail(b, w, x, "lane %d reads lane %d, which is not there", i, from);
            return;
        }
    }
    ptx_put32(w, x->o[0].at, on, d);
    if (x->o[0].count) put_predicate(w, x->o[0].first, on, inside);
}

/* elect.sync: the lowest lane. */
static void elect(ptx_block *block, ptx_warp *w, const ptx_instruction *x, u32 on)
{
    (void)block;
    u32 lane[LANES], first = (u32)ptx_first(on);
    for (int i = 0; i < LANES; i++) lane[i] = first;
    if (x->o[0].at >= 0) ptx_put32(w, x->o[0].at, on, lane);
    put_predicate(w, x->o[0].first, on, (u32)1 << first);
}

#define COMPARISONS "eq|ne|lt|le|gt|ge"

const ptx_row ptx_alu_rows[] = { { "add.rn.f32", "Ttt", add_f32, 1, 0 },
                                 { "sub.rn.f32", "Ttt", sub_f32, 1, 0 },
                                 { "mul.rn.f32", "Ttt", mul_f32, 1, 0 },
                                 { "fma.rn.f32", "Tttt", fma_f32, 2, 0 },
                                 { "fma.rm.f32", "Tttt", fma_rm_f32, 2, 0 },
                                 { "div.rn.f32", "Ttt", div_f32, 1, 0 },
                                 { "neg.f32", "Tt", neg_f32, 0, 0 },
                                 { "abs.f32", "Tt", abs_f32, 0, 0 },
                                 { "min.f32", "Ttt", min_f32, 1, 0 },
                                 { "max.f32", "Ttt", max_f32, 1, 0 },
                                 { "sqrt.rn.f32", "Tt", sqrt_f32, 1, 0 },
                                 { "rcp.rn.f32", "Tt", rcp_f32, 1, 0 },
                                 { "rsqrt.approx.f32", "Tt", rsqrt_f32, 1, 0 },
                                 { "ex2.approx.ftz.f32", "Tt", ex2_f32, 1, 0 },
                                 { "lg2.approx.f32", "Tt", lg2_f32, 1, 0 },
                                 { "add.s32", "Ttt", add_32, 0, 0 },
                                 { "sub.s32", "Ttt", sub_32, 0, 0 },
                                 { "mul.lo.s32", "Ttt", mul_32, 0, 0 },
                                 { "mad.lo.s32", "Tttt", mad_32, 0, 0 },
                                 { "neg.s32", "Tt", neg_32, 0, 0 },
                                 { "div.u32", "Ttt", div_u32, 0, 0 },
                                 { "div.s32", "Ttt", div_s32, 0, 0 },
                                 { "rem.s32", "Ttt", rem_s32, 0, 0 },
                                 { "min.s32", "Ttt", min_s32, 0, 0 },
                                 { "max.s32", "Ttt", max_s32, 0, 0 },
                                 { "min.u32", "Ttt", min_u32, 0, 0 },
                                 { "max.u32", "Ttt", max_u32, 0, 0 },
                                 { "and.b32|b16", "Ttt", and_32, 0, 0 },
                                 { "or.b32|b16", "Ttt", or_32, 0, 0 },
                                 { "xor.b32", "Ttt", xor_32, 0, 0 },
                                 { "not.b32", "Tt", not_32, 0, 0 },
                                 { "shl.b32", "Ttr", shl_32, 0, 0 },
                                 { "shr.u32", "Ttr", shr_u32, 0, 0 },
                                 { "shr.s32", "Ttr", shr_s32, 0, 0 },
                                 { "bfi.b32", "Ttttt", bfi_32, 0, 0 },
                                 { "add.s64", "Ttt", add_64, 0, 0 },
                                 { "sub.s64", "Ttt", sub_64, 0, 0 },
                                 { "mul.lo.s64", "Ttt", mul_64, 0, 0 },
                                 { "mad.lo.s64", "Tttt", mad_64, 0, 0 },
                                 { "neg.s64", "Tt", neg_64, 0, 0 },
                                 { "div.u64", "Ttt", div_u64, 0, 0 },
                                 { "max.u64", "Ttt", max_u64, 0, 0 },
                                 { "and.b64", "Ttt", and_64, 0, 0 },
                                 { "or.b64", "Ttt", or_64, 0, 0 },
                                 { "not.b64", "Tt", not_64, 0, 0 },
                                 { "shl.b64", "Ttr", shl_64, 0, 0 },
                                 { "shr.u64", "Ttr", shr_u64, 0, 0 },
                                 { "mul.wide.s32", "Wtt", mul_wide_s32, 0, 0 },
                                 { "mul.wide.u32", "Wtt", mul_wide_u32, 0, 0 },
                                 { "mul.wide.u16", "Wtt", mul_32, 0, 0 },
                                 { "cvt.f32.f16", "Ut", f32_from_f16, 0, 0 },
                                 { "cvt.rn.f16.f32", "Ut", f16_from_f32, 0, 0 },
                                 { "cvt.rn.bf16x2.f32", "Rtt", bf16x2_from_f32, 0, 0 },
                                 { "cvt.rn.satfinite.e4m3x2.f32", "Htt", e4m3x2_from_f32, 0, 0 },
                                 { "cvt.rn.satfinite.e5m2x2.f32", "Htt", e5m2x2_from_f32, 0, 0 },
                                 { "cvt.rn.f32.s32", "Ut", f32_from_s32, 0, 0 },
                                 { "cvt.rn.f32.u32|u16", "Ut", f32_from_u32, 0, 0 },
                                 { "cvt.sat.f32.f32", "Ut", sat_f32, 0, 0 },
                                 { "cvt.s64.s32", "Ut", s64_from_s32, 0, 0 },
                                 { "cvt.u64.u32", "Ut", u64_from_u32, 0, 0 },
                                 { "cvt.u32.u64", "Ut", u32_from_u64, 0, 0 },
                                 { "cvt.u16.u32", "Ut", u16_from_u32, 0, 0 },
                                 { "cvt.u32.u16", "Ut", move_32, 0, 0 },
                                 { "cvta.to.shared.u64", "Tt", to_shared, 0, 0 },
                                 { "cvta.to.global.u64", "Tt", move_64, 0, 0 },
                                 { "cvta.shared.u64", "Tt", from_shared, 0, 0 },
                                 { "cvta.param.u64", "Tt", from_param, 0, 0 },
                                 { "mov.b32|u32|s32|f32|b16|u16", "Tt", move_32, 0, 0 },
                                 { "mov.b64|u64", "Tt", move_64, 0, 0 },
                                 { "mov.b32|b64", "{t", unpack, 0, 0 },
                                 { "mov.b32|b64", "T}", pack, 0, 0 },
                                 { "selp.b32|f32|u32|b16", "Tttp", select_32, 0, 0 },
                                 { "selp.b64|u64", "Tttp", select_64, 0, 0 },
                                 { "setp.eq|ne|lt|le|gt|ge|equ|neu|ltu|leu|gtu|geu.f32", "Ptt", compare_f32, 0, 0 },
                                 { "setp." COMPARISONS ".s32", "Ptt", compare_s32, 0, 0 },
                                 { "setp." COMPARISONS ".u32|u16|b32", "Ptt", compare_u32, 0, 0 },
                                 { "setp." COMPARISONS ".s64", "Ptt", compare_s64, 0, 0 },
                                 { "setp." COMPARISONS ".u64|b64", "Ptt", compare_u64, 0, 0 },
                                 { "setp.eq|ne.s16", "Ptt", compare_s16, 0, 0 },
                                 { "and|or|xor.pred", "Ppp", logic, 0, 0 },
                                 { "mov.pred", "Pp", move_predicate, 0, 0 },
                                 { "not.pred", "Pp", not_predicate, 0, 0 },
                                 { "shfl.sync.bfly|down|up|idx.b32", "Srrrr", shuffle, 0, MASKED },
                                 { "elect.sync", "Sr", elect, 0, MASKED },
                                 { 0 } };
