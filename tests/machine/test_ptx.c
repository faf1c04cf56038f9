/* SPDX-License-Identifier: Apache-2.0 */
/* The interpreter of PTX by small texts of the test's own: no compiler is needed. Arithmetic against C, layouts against
 * the formulas of NVIDIA's PTX ISA; each rule of memory with a text that keeps it and one that does not. */
#include "machine/trial.h"
#include "support/test.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- arithmetic: a, b, c are in %r10, %r11, %r12 (and %d.., %f.., %h..), the result in .13 */

typedef struct values {
    uint32_t a, b, c;
    int32_t  sa, sb;
    uint64_t la, lb, lc;
    float    x, y, z;
} values;

static uint64_t bits(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return u;
}

static uint64_t double_bits(double d)
{
    uint64_t x;
    memcpy(&x, &d, 8);
    return x;
}

static uint64_t bf16_bits(float f)
{
    return (bits(f) + 0x7fff + (bits(f) >> 16 & 1)) >> 16;
}

/* f16 by search: the nearest of all, the even one of two. */
static uint64_t f16_bits(float f)
{
    uint64_t best = 0;
    double   least = HUGE_VAL;
    for (uint32_t u = 0; u < 0x7c00; u++) {
        uint32_t e = u >> 10;
        double   v = e ? ldexp(1024 + (u & 1023), (int)e - 25) : ldexp(u, -24), d = fabs(fabs((double)f) - v);
        if (d < least || (d == least && u % 2 == 0)) least = d, best = u;
    }
    if (fabs((double)f) >= 65520) best = 0x7c00;
    return best | (signbit(f) ? 0x8000 : 0);
}

/* The same for e4m3 and e5m2, which have no infinity to go to. */
static uint64_t fp8_bits(float f, int mantissa, int bias, uint32_t end)
{
    uint64_t best = 0;
    double   least = HUGE_VAL;
    for (uint32_t u = 0; u < end; u++) {
        int    e = (int)(u >> mantissa), m = (int)(u & ((1u << mantissa) - 1));
        double v = e ? ldexp((1 << mantissa) + m, e - bias - mantissa) : ldexp(m, 1 - bias - mantissa);
        double d = fabs(fabs((double)f) - v);
        if (d < least || (d == least && u % 2 == 0)) least = d, best = u;
    }
    return best | (signbit(f) ? 0x80 : 0);
}

#define FORMULAS(X)                                                                                                    \
    X("add.s32 %r13, %r10, %r11;", (uint32_t)(v->a + v->b))                                                            \
    X("sub.s32 %r13, %r10, %r11;", (uint32_t)(v->a - v->b))                                                            \
    X("mul.lo.s32 %r13, %r10, %r11;", (uint32_t)(v->a * v->b))                                                         \
    X("mad.lo.s32 %r13, %r10, %r11, %r12;", (uint32_t)(v->a * v->b + v->c))                                            \
    X("neg.s32 %r13, %r10;", (uint32_t)(0 - v->a))                                                                     \
    X("div.u32 %r13, %r10, %r11;", v->b ? v->a / v->b : 0xffffffff)                                                    \
    X("div.s32 %r13, %r10, %r11;", v->b ? (uint32_t)((int64_t)v->sa / v->sb) : 0xffffffff)                             \
    X("rem.s32 %r13, %r10, %r11;", v->b ? (uint32_t)((int64_t)v->sa % v->sb) : v->a)                                   \
    X("min.s32 %r13, %r10, %r11;", v->sa < v->sb ? v->a : v->b)                                                        \
    X("max.s32 %r13, %r10, %r11;", v->sa > v->sb ? v->a : v->b)                                                        \
    X("min.u32 %r13, %r10, %r11;", v->a < v->b ? v->a : v->b)                                                          \
    X("max.u32 %r13, %r10, %r11;", v->a > v->b ? v->a : v->b)                                                          \
    X("and.b32 %r13, %r10, %r11;", v->a & v->b)                                                                        \
    X("or.b32 %r13, %r10, %r11;", v->a | v->b)                                                                         \
    X("xor.b32 %r13, %r10, %r11;", v->a ^ v->b)                                                                        \
    X("not.b32 %r13, %r10;", (uint32_t)~v->a)                                                                          \
    X("shl.b32 %r13, %r10, %r12;", v->c < 32 ? (uint32_t)(v->a << v->c) : 0)                                           \
    X("shr.u32 %r13, %r10, %r12;", v->c < 32 ? v->a >> v->c : 0)                                                       \
    X("shr.s32 %r13, %r10, %r12;", (uint32_t)(v->sa >> (v->c < 32 ? v->c : 31)))                                       \
    X("bfi.b32 %r13, %r10, %r11, 5, 9;", (v->b & ~0x3fe0u) | (v->a & 0x1ff) << 5)                                      \
    X("bfe.u32 %r13, %r10, 5, 9;", v->a / 32 % 512)                                                                    \
    X("bfe.u32 %r13, %r10, %r12, 40;", v->c % 256 < 32 ? v->a >> v->c % 256 : 0)                                       \
    X("selp.b32 %r13, %r10, %r11, %p10;", v->sa < v->sb ? v->a : v->b)                                                 \
    X("setp.ge.u32 %p11, %r10, %r11; selp.u16 %h13, 7, 5, %p11; cvt.u32.u16 %r13, %h13;", v->a >= v->b ? 7 : 5)        \
    X("setp.ge.u32 %p11, %r10, %r11; selp.u32 %r13, 1, 0, %p11;", v->a >= v->b)                                        \
    X("setp.lt.s64 %p11, %d10, %d11; selp.u32 %r13, 1, 0, %p11;", (int64_t)v->la < (int64_t)v->lb)                     \
    X("setp.gt.u64 %p11, %d10, %d11; selp.u32 %r13, 1, 0, %p11;", v->la > v->lb)                                       \
    X("setp.eq.s16 %p11, %h10, %h11; selp.u32 %r13, 1, 0, %p11;", (uint16_t)v->a == (uint16_t)v->b)                    \
    X("setp.le.f32 %p11, %f10, %f11; selp.u32 %r13, 1, 0, %p11;", v->x <= v->y)                                        \
    X("setp.ne.f32 %p11, %f10, %f10; selp.u32 %r13, 1, 0, %p11;", 0)                                                   \
    X("setp.geu.f32 %p11, %f10, %f11; selp.u32 %r13, 1, 0, %p11;", !(v->x < v->y))                                     \
    X("setp.lt.u32 %p11, %r10, %r11; and.pred %p12, %p10, %p11; selp.u32 %r13, 1, 0, %p12;",                           \
      v->sa < v->sb && v->a < v->b)                                                                                    \
    X("setp.lt.u32 %p11, %r10, %r11; or.pred %p12, %p10, %p11; selp.u32 %r13, 1, 0, %p12;",                            \
      v->sa < v->sb || v->a < v->b)                                                                                    \
    X("setp.lt.u32 %p11, %r10, %r11; xor.pred %p12, %p10, %p11; selp.u32 %r13, 1, 0, %p12;",                           \
      (v->sa < v->sb) != (v->a < v->b))                                                                                \
    X("not.pred %p12, %p10; mov.pred %p13, %p12; selp.u32 %r13, 1, 0, %p13;", !(v->sa < v->sb))                        \
    X("add.s64 %d13, %d10, %d11;", v->la + v->lb)                                                                      \
    X("sub.s64 %d13, %d10, %d11;", v->la - v->lb)                                                                      \
    X("mul.lo.s64 %d13, %d10, %d11;", v->la * v->lb)                                                                   \
    X("mad.lo.s64 %d13, %d10, %d11, %d12;", v->la * v->lb + v->lc)                                                     \
    X("xor.b64 %d13, %d10, %d11;", v->la ^ v->lb)                                                                      \
    X("neg.s64 %d13, %d10;", 0 - v->la)                                                                                \
    X("div.u64 %d13, %d10, %d11;", v->lb ? v->la / v->lb : UINT64_MAX)                                                 \
    X("max.u64 %d13, %d10, %d11;", v->la > v->lb ? v->la : v->lb)                                                      \
    X("and.b64 %d13, %d10, %d11;", v->la & v->lb)                                                                      \
    X("or.b64 %d13, %d10, %d11;", v->la | v->lb)                                                                       \
    X("not.b64 %d13, %d10;", ~v->la)                                                                                   \
    X("shl.b64 %d13, %d10, %r12;", v->c < 64 ? v->la << v->c : 0)                                                      \
    X("shr.u64 %d13, %d10, %r12;", v->c < 64 ? v->la >> v->c : 0)                                                      \
    X("mul.wide.s32 %d13, %r10, %r11;", (uint64_t)((int64_t)v->sa * v->sb))                                            \
    X("mul.wide.u32 %d13, %r10, %r11;", (uint64_t)v->a * v->b)                                                         \
    X("mul.wide.u16 %r13, %h10, %h11;", (v->a & 0xffff) * (v->b & 0xffff))                                             \
    X("cvt.s64.s32 %d13, %r10;", (uint64_t)(int64_t)v->sa)                                                             \
    X("cvt.s64.s32 %d13, %d10;", (uint64_t)(int64_t)(int32_t)v->la)                                                    \
    X("cvt.u64.u32 %d13, %r10;", v->a)                                                                                 \
    X("cvt.u32.u64 %r13, %d10;", (uint32_t)v->la)                                                                      \
    X("cvt.u32.u16 %r13, %h10;", v->a & 0xffff)                                                                        \
    X("mov.b32 {%h13, %h14}, %r10; mov.b32 %r13, {%h14, %h13};", v->a >> 16 | (v->a & 0xffff) << 16)                   \
    X("mov.b64 {%r14, %r15}, %d10; mov.b64 %d13, {%r15, %r14};", v->la >> 32 | v->la << 32)                            \
    X("cvta.shared.u64 %d14, %d10; cvta.to.shared.u64 %d13, %d14;", v->la)                                             \
    X("add.rn.f32 %f13, %f10, %f11; mov.b32 %r13, %f13;", bits(v->x + v->y))                                           \
    X("sub.rn.f32 %f13, %f10, %f11; mov.b32 %r13, %f13;", bits(v->x - v->y))                                           \
    X("mul.rn.f32 %f13, %f10, %f11; mov.b32 %r13, %f13;", bits(v->x * v->y))                                           \
    X("fma.rn.f32 %f13, %f10, %f11, %f12; mov.b32 %r13, %f13;", bits(fmaf(v->x, v->y, v->z)))                          \
    X("div.rn.f32 %f13, %f10, %f11; mov.b32 %r13, %f13;", bits(v->x / v->y))                                           \
    X("neg.f32 %f13, %f10; mov.b32 %r13, %f13;", bits(-v->x))                                                          \
    X("abs.f32 %f13, %f10; mov.b32 %r13, %f13;", bits(fabsf(v->x)))                                                    \
    X("min.f32 %f13, %f10, %f11; mov.b32 %r13, %f13;", bits(v->x < v->y ? v->x : v->y))                                \
    X("max.f32 %f13, %f10, %f11; mov.b32 %r13, %f13;", bits(v->x > v->y ? v->x : v->y))                                \
    X("sqrt.rn.f32 %f13, %f12; mov.b32 %r13, %f13;", bits(sqrtf(v->z)))                                                \
    X("rcp.rn.f32 %f13, %f10; mov.b32 %r13, %f13;", bits(1 / v->x))                                                    \
    X("cvt.sat.f32.f32 %f13, %f10; mov.b32 %r13, %f13;", bits(v->x > 0 ? v->x < 1 ? v->x : 1 : 0))                     \
    X("cvt.rn.f64.s32 %d13, %r10;", double_bits(v->sa))                                                                \
    X("cvt.rn.f32.s32 %f13, %r10; mov.b32 %r13, %f13;", bits((float)v->sa))                                            \
    X("cvt.rn.f32.u32 %f13, %r10; mov.b32 %r13, %f13;", bits((float)v->a))                                             \
    X("cvt.rn.f32.u16 %f13, %h10; mov.b32 %r13, %f13;", bits((float)(v->a & 0xffff)))                                  \
    X("cvt.rn.bf16x2.f32 %r13, %f10, %f11;", bf16_bits(v->x) << 16 | bf16_bits(v->y))                                  \
    X("cvt.rn.f16.f32 %h13, %f10; cvt.u32.u16 %r13, %h13;", f16_bits(v->x))                                            \
    X("cvt.rn.satfinite.e4m3x2.f32 %h13, %f10, %f11; cvt.u32.u16 %r13, %h13;",                                         \
      fp8_bits(v->x, 3, 7, 0x7f) << 8 | fp8_bits(v->y, 3, 7, 0x7f))                                                    \
    X("cvt.rn.satfinite.e5m2x2.f32 %h13, %f10, %f11; cvt.u32.u16 %r13, %h13;",                                         \
      fp8_bits(v->x, 2, 15, 0x7c) << 8 | fp8_bits(v->y, 2, 15, 0x7c))

static uint64_t expected(int which, const values *v)
{
    int n = 0;
#define X(text, value)                                                                                                 \
    if (n++ == which) return (uint64_t)(value);
    FORMULAS(X)
#undef X
    return 0;
}

static values values_of(int i)
{
    static const uint32_t ints[] = { 0, 1, 2, 7, 0x7fffffff, 0x80000000, 0xffffffff, 0xfffffff9, 0x12345678, 100 };
    static const float    floats[] = { 0.3f, -1.5f, 1.0f, 3e-7f, 1234.5f, -60000.0f, 447.0f, 2.5f, 1e-3f, 70000.0f };
    values                v = { .a = ints[i % 10], .b = ints[(i * 7 + (i > 20)) % 10], .c = (uint32_t)(i * 3 % 70) };
    v.sa = (int32_t)v.a;
    v.sb = (int32_t)v.b;
    v.la = (uint64_t)v.a << 32 | v.b;
    v.lb = (uint64_t)v.b << (i % 40) | v.c;
    v.lc = v.la ^ 0x5555;
    v.x = floats[i % 10];
    v.y = floats[i * 3 % 10];
    v.z = fabsf(floats[(i + 4) % 10]);
    return v;
}

TEST(arithmetic)
{
    static const char *const texts[] = {
#define X(text, value) text,
        FORMULAS(X)
#undef X
    };
    for (size_t k = 0; k < sizeof texts / sizeof *texts; k++) {
        trial   t = trial_begin(32);
        values *in = trial_in_of(&t);
        char    body[2048];
        for (int i = 0; i < 32; i++) in[i] = values_of(i);
        snprintf(body, sizeof body,
                 "mul.wide.u32 %%d4, %%r1, %d; add.s64 %%d4, %%d4, %%d0; ld.global.u32 %%r10, [%%d4];"
                 "ld.global.u32 %%r11, [%%d4+4]; ld.global.u32 %%r12, [%%d4+8]; ld.global.u64 %%d10, [%%d4+24];"
                 "ld.global.u64 %%d11, [%%d4+32]; ld.global.u64 %%d12, [%%d4+40]; ld.global.f32 %%f10, [%%d4+48];"
                 "ld.global.f32 %%f11, [%%d4+52]; ld.global.f32 %%f12, [%%d4+56]; cvt.u16.u32 %%h10, %%r10;"
                 "cvt.u16.u32 %%h11, %%r11; setp.lt.s32 %%p10, %%r10, %%r11; mul.wide.u32 %%d5, %%r1, 8;"
                 "add.s64 %%d5, %%d5, %%d1; %s %s st.global.u64 [%%d5], %%d13;",
                 (int)sizeof(values), texts[k], strstr(texts[k], "%d13") ? "" : "cvt.u64.u32 %d13, %r13;");
        trial_must_run(&t, body);
        const uint64_t *out = trial_out_of(&t);
        for (int i = 0; i < 32; i++) {
            uint64_t want = expected((int)k, &in[i]);
            if (out[i] != want)
                fail_msg("%s, lane %d: %llx, not %llx", texts[k], i, (unsigned long long)out[i],
                         (unsigned long long)want);
        }
        trial_end(&t);
    }
}

TEST(transcendental)
{
    static const struct {
        const char *op;
        double (*of)(double);
    } rows[] = { { "ex2.approx.ftz.f32", exp2 }, { "lg2.approx.f32", log2 }, { "rsqrt.approx.f32", NULL } };
    for (size_t k = 0; k < 3; k++) {
        trial  t = trial_begin(32);
        float *in = trial_in_of(&t), *out = trial_out_of(&t);
        char   body[512];
        for (int i = 0; i < 32; i++) in[i] = 0.1f + 0.7f * (float)i;
        snprintf(body, sizeof body,
                 "mul.wide.u32 %%d4, %%r1, 4; add.s64 %%d4, %%d4, %%d0; ld.global.f32 %%f1, [%%d4]; %s %%f2, %%f1;"
                 "mul.wide.u32 %%d5, %%r1, 4; add.s64 %%d5, %%d5, %%d1; st.global.f32 [%%d5], %%f2;",
                 rows[k].op);
        trial_must_run(&t, body);
        for (int i = 0; i < 32; i++) {
            double want = rows[k].of ? rows[k].of((double)in[i]) : 1 / sqrt((double)in[i]);
            assert_true(fabs((double)out[i] - want) <= 1e-6 * fabs(want) + 1e-7);
        }
        trial_end(&t);
    }
    trial t = trial_begin(1);
    /* 1 + 2^-30, rounded down, is 1; -(1 + 2^-30) is the number below -1. */
    trial_must_run(&t, "mov.f32 %f1, 0f3F800000; mov.f32 %f2, 0f30800000; fma.rm.f32 %f3, %f1, %f1, %f2;"
                       "neg.f32 %f4, %f1; neg.f32 %f5, %f2; fma.rm.f32 %f6, %f4, %f1, %f5;"
                       "st.global.f32 [%d1], %f3; st.global.f32 [%d1+4], %f6;");
    float *out = trial_out_of(&t);
    assert_true(out[0] == 1.0f && out[1] == nextafterf(-1.0f, -2.0f));
    trial_end(&t);
}

/* What each lane gets, and whether its source was inside. */
TEST(shuffles)
{
    static const char *const kinds[] = { "bfly", "down", "up", "idx" };
    for (int k = 0; k < 4; k++) {
        trial t = trial_begin(32);
        char  body[512];
        snprintf(body, sizeof body,
                 "add.s32 %%r4, %%r1, 100; shfl.sync.%s.b32 %%r5|%%p1, %%r4, 3, %d, -1; selp.u32 %%r6, 1000, 0, %%p1;"
                 "add.s32 %%r5, %%r5, %%r6; %s st.global.u32 [%%d5], %%r5;",
                 kinds[k], k == 2 ? 0x1800 : 0x181f, TRIAL_TO_OUT); /* segments of 8 lanes */
        trial_must_run(&t, body);
        uint32_t *out = trial_out_of(&t);
        for (int i = 0; i < 32; i++) {
            int  first = i / 8 * 8, from = k == 0 ? i ^ 3 : k == 1 ? i + 3 : k == 2 ? i - 3 : first + 3;
            bool in = from >= first && from < first + 8;
            assert_int_equal(out[i], 100 + (in ? from : i) + (in ? 1000 : 0));
        }
        trial_end(&t);
    }
}

/* Of two predicates, one that a lane has and one that none has; in the first half a warp the others are not there. */
TEST(votes)
{
    trial t = trial_begin(32);
    trial_must_run(
        &t, "mov.u32 %r7, 9; setp.gt.u32 %p4, %r1, 15; @%p4 bra DONE; setp.eq.s32 %p1, %r1, 5;"
            "vote.sync.any.pred %p2, %p1, 65535; selp.u32 %r7, 1, 0, %p2; setp.eq.s32 %p1, %r1, 20;"
            "vote.sync.any.pred %p3, %p1, 65535; selp.u32 %r6, 10, 0, %p3; add.s32 %r7, %r7, %r6; DONE:" TRIAL_TO_OUT
            "st.global.u32 [%d5], %r7;");
    const uint32_t *out = trial_out_of(&t);
    for (int i = 0; i < 32; i++) assert_int_equal(out[i], i < 16 ? 1 : 9);
    trial_end(&t);
}

/* --- layouts, as the PTX ISA states them: with g = lane >> 2 and q = lane % 4, element i of a lane's fragment is at
 * ... */

typedef struct place {
    int row, column;
} place;

static place a_of(int lane, int i, int each)
{
    int g = lane >> 2, q = lane % 4;
    if (each == 2)
        return (place){ i < 2 || (i >= 4 && i < 6) ? g : g + 8, i < 4 ? q * 2 + (i & 1) : q * 2 + (i & 1) + 8 };
    return (place){ i < 4 || (i >= 8 && i < 12) ? g : g + 8, i < 8 ? q * 4 + (i & 3) : q * 4 + (i & 3) + 16 };
}

static place b_of(int lane, int i, int each)
{
    int g = lane >> 2, q = lane % 4;
    if (each == 2) return (place){ i < 2 ? q * 2 + (i & 1) : q * 2 + (i & 1) + 8, g };
    return (place){ i < 4 ? q * 4 + (i & 3) : q * 4 + (i & 3) + 16, g };
}

static place c_of(int lane, int i)
{
    int g = lane >> 2, q = lane % 4;
    return (place){ i % 4 < 2 ? g : g + 8, i / 4 * 8 + q * 2 + (i & 1) };
}

/* Small integers in formats that have them exactly. */
static uint32_t coded(int v, const char *format)
{
    if (!strcmp(format, "bf16")) return trial_bf16(v);
    if (!strcmp(format, "f16")) return (uint32_t)f16_bits((float)v);
    return (uint32_t)(!strcmp(format, "e4m3") ? fp8_bits((float)v, 3, 7, 0x7f) : fp8_bits((float)v, 2, 15, 0x7c));
}

TEST(mma_layouts)
{
    static const struct {
        const char *form, *a, *b;
        int         each;
    } rows[] = { { "m16n8k16.row.col.f32.bf16.bf16.f32", "bf16", "bf16", 2 },
                 { "m16n8k16.row.col.f32.f16.f16.f32", "f16", "f16", 2 },
                 { "m16n8k32.row.col.f32.e4m3.e4m3.f32", "e4m3", "e4m3", 4 },
                 { "m16n8k32.row.col.f32.e4m3.e5m2.f32", "e4m3", "e5m2", 4 },
                 { "m16n8k32.row.col.f32.e5m2.e4m3.f32", "e5m2", "e4m3", 4 },
                 { "m16n8k32.row.col.f32.e5m2.e5m2.f32", "e5m2", "e5m2", 4 } };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        trial     t = trial_begin(32);
        uint32_t *in = trial_in_of(&t);
        float    *out = trial_out_of(&t);
        int       each = rows[k].each, width = 32 / each;
        char      body[1024];
        memset(in, 0, 32 * 16 * 4);
        for (int lane = 0; lane < 32; lane++) {
            for (int i = 0; i < 4 * each; i++) {
                place p = a_of(lane, i, each);
                in[lane * 16 + i / each] |= coded(trial_small(p.row, p.column, 1), rows[k].a) << (i % each * width);
            }
            for (int i = 0; i < 2 * each; i++) {
                place p = b_of(lane, i, each);
                in[lane * 16 + 4 + i / each] |= coded(trial_small(p.row, p.column, 2), rows[k].b) << (i % each * width);
            }
            for (int i = 0; i < 4; i++)
                in[lane * 16 + 8 + i] = (uint32_t)bits((float)trial_small(c_of(lane, i).row, c_of(lane, i).column, 3));
        }
        snprintf(
            body, sizeof body,
            "mul.wide.u32 %%d4, %%r1, 64; add.s64 %%d4, %%d4, %%d0; ld.global.v4.u32 {%%r10,%%r11,%%r12,%%r13}, [%%d4];"
            "ld.global.v2.u32 {%%r14,%%r15}, [%%d4+16]; ld.global.v4.f32 {%%f1,%%f2,%%f3,%%f4}, [%%d4+32];"
            "mma.sync.aligned.%s {%%f5,%%f6,%%f7,%%f8}, {%%r10,%%r11,%%r12,%%r13}, {%%r14,%%r15}, "
            "{%%f1,%%f2,%%f3,%%f4};"
            "mul.wide.u32 %%d5, %%r1, 16; add.s64 %%d5, %%d5, %%d1; st.global.v4.f32 [%%d5], {%%f5,%%f6,%%f7,%%f8};",
            rows[k].form);
        trial_must_run(&t, body);
        for (int lane = 0; lane < 32; lane++) {
            for (int i = 0; i < 4; i++) {
                place p = c_of(lane, i);
                int   sum = trial_small(p.row, p.column, 3);
                for (int e = 0; e < 8 * each; e++) sum += trial_small(p.row, e, 1) * trial_small(e, p.column, 2);
                if (out[lane * 4 + i] != (float)sum)
                    fail_msg("%s, lane %d, %d: %g, not %d", rows[k].form, lane, i, (double)out[lane * 4 + i], sum);
            }
        }
        assert_int_equal(t.counts.matrix_flops, 2 * 16 * 8 * 8 * each);
        trial_end(&t);
    }
}

/* Row r of matrix m is at the address of lane 8 m + r; lane i gets elements (i / 4, 2 (i % 4) + {0, 1}), or transposed.
 */
static place row_of(int lane, int e, int transposed)
{
    int row = lane / 4, column = 2 * (lane % 4) + e;
    return transposed ? (place){ column, row } : (place){ row, column };
}

TEST(ldmatrix_layouts)
{
    for (int transposed = 0; transposed < 2; transposed++) {
        trial     t = trial_begin(32);
        uint16_t *in = trial_in_of(&t), *out = trial_out_of(&t);
        char      body[1024];
        for (int i = 0; i < 256; i++) in[i] = (uint16_t)(1000 + i);
        snprintf(
            body, sizeof body,
            "mul.wide.u32 %%d4, %%r1, 16; add.s64 %%d4, %%d4, %%d0; ld.global.v4.u32 {%%r10,%%r11,%%r12,%%r13}, [%%d4];"
            "mad.lo.s32 %%r4, %%r1, 16, %%r2; st.shared.v4.u32 [%%r4], {%%r10,%%r11,%%r12,%%r13}; bar.sync 0;"
            "ldmatrix.sync.aligned.m8n8.x4%s.shared.b16 {%%r20,%%r21,%%r22,%%r23}, [%%r4];"
            "mul.wide.u32 %%d5, %%r1, 16; add.s64 %%d5, %%d5, %%d1; st.global.v4.u32 [%%d5], "
            "{%%r20,%%r21,%%r22,%%r23};",
            transposed ? ".trans" : "");
        trial_must_run(&t, body);
        for (int lane = 0; lane < 32; lane++)
            for (int m = 0; m < 4; m++)
                for (int e = 0; e < 2; e++) {
                    place p = row_of(lane, e, transposed);
                    assert_int_equal(out[lane * 8 + m * 2 + e], 1000 + m * 64 + p.row * 8 + p.column);
                }
        trial_end(&t);
    }
}

TEST(wgmma_layouts)
{
    for (int k = 0; k < 4; k++) {
        int    transposed = k % 2, add = k / 2;
        trial  t = trial_wgmma(transposed);
        float *out = trial_out_of(&t);
        char *body = trial_wgmma_body("fence.proxy.async;", TRIAL_WG_FENCE, add ? "1" : "0", TRIAL_WG_DONE, transposed);
        trial_must_run(&t, body);
        free(body);
        for (int thread = 0; thread < 128; thread++)
            for (int i = 0; i < 32; i++) {
                place p = c_of(thread % 32, i);
                int   row = 16 * (thread / 32) + p.row, sum = add;
                for (int e = 0; e < 16; e++) sum += trial_small(row, e, 1) * trial_small(e, p.column, 2);
                if (out[thread * 32 + i] != (float)sum)
                    fail_msg("thread %d, %d: %g, not %d", thread, i, (double)out[thread * 32 + i], sum);
            }
        trial_end(&t);
    }
}

/* The byte of element k of row m of an operand in shared memory, from a multiple of 1,024 on, with a swizzle of 128
 * bytes: rows lie along it, or across, in boxes of 64 (PTX ISA, "Strides": leading and stride dimension byte offset).
 */
static int shared_at(int m, int k, bool across, int lead, int stride)
{
    int at = across ? m / 64 * lead + m % 64 * 2 + k / 8 * stride + k % 8 * 128 : m / 8 * stride + m % 8 * 128 + k * 2;
    return at ^ at / 128 % 8 * 16;
}

/* wgmma m64n128k16, A along its rows, B across them, of two boxes. */
TEST(wgmma_boxes)
{
    static const int leads[] = { 2048, 1024 }, strides[] = { 1024, 2048 };
    for (int w = 0; w < 2; w++) {
        trial     t = trial_begin(128);
        uint16_t *in = trial_in_of(&t);
        float    *out = trial_out_of(&t);
        char      body[8192], list[600];
        int       n = 0, at = 0;
        t.dynamic = 16384;
        for (int k = 0; k < 16; k++) {
            for (int m = 0; m < 64; m++)
                in[shared_at(m, k, false, 16, 1024) / 2] = (uint16_t)trial_bf16(trial_small(m, k, 1));
            for (int m = 0; m < 128; m++)
                in[4096 + shared_at(m, k, true, leads[w], strides[w]) / 2] = (uint16_t)trial_bf16(trial_small(k, m, 2));
        }
        for (int i = 0; i < 64; i++)
            at += snprintf(list + at, sizeof list - (size_t)at, "%s%%f%d", i ? "," : "", 10 + i);
        n += snprintf(body, sizeof body,
                      "%s fence.proxy.async; bar.sync 0; shr.u32 %%r90, %%r80, 4; cvt.u64.u32 %%d10, %%r90;"
                      "add.s64 %%d11, %%d10, %llu; add.s64 %%d10, %%d10, %llu; %s "
                      "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%s}, %%d10, %%d11, 0, 1, 1, 0, 1; %s"
                      "mul.wide.u32 %%d5, %%r1, 256; add.s64 %%d5, %%d5, %%d1;",
                      TRIAL_FILL,
                      1ULL << 62 | (unsigned long long)strides[w] / 16 << 32 | (unsigned long long)leads[w] / 16 << 16 |
                          8192 / 16,
                      1ULL << 62 | 64ULL << 32 | 1ULL << 16, TRIAL_WG_FENCE, list, TRIAL_WG_DONE);
        for (int i = 0; i < 64; i++)
            n += snprintf(body + n, sizeof body - (size_t)n, "st.global.f32 [%%d5+%d], %%f%d;", 4 * i, 10 + i);
        trial_must_run(&t, body);
        for (int i = 0; i < 128 * 64; i++) {
            place p = c_of(i / 64 % 32, i % 64);
            int   row = 16 * (i / 64 / 32) + p.row, sum = 0;
            for (int e = 0; e < 16; e++) sum += trial_small(row, e, 1) * trial_small(e, p.column, 2);
            if (out[i] != (float)sum)
                fail_msg("boxes %d, thread %d, %d: %g, not %d", w, i / 64, i % 64, (double)out[i], sum);
        }
        trial_end(&t);
    }
}

/* `all fragments FORM MATRIX`: the statements above, a line for each thread and element: row and column
 * (compare_layouts.py). FORM: 2 or 4 elements in a register of mma.sync, or 64 or 128 columns of wgmma. MATRIX: A, B,
 * C; of FORM 2 also L and T, what ldmatrix brings, and transposed. `all fragments shared ACROSS LEAD STRIDE`: of an
 * operand in shared memory, a line for each row and element: the byte. */
static int print_fragments(int argc, char **argv)
{
    for (int i = 0; i < 128 * 16 && argc > 5; i++)
        printf("%d %d %d\n", i / 16, i % 16, shared_at(i / 16, i % 16, atoi(argv[3]), atoi(argv[4]), atoi(argv[5])));
    if (argc < 4 || argc > 5) return argc < 4 ? 2 : 0;
    int form = atoi(argv[2]), each = form > 4 ? 2 : form, threads = form > 4 ? 128 : 32;
    for (int t = 0; t < threads; t++) {
        char matrix = argv[3][0];
        int  n = matrix == 'A' ? 4 * each : matrix == 'B' ? 2 * each : form > 4 ? form / 2 : matrix == 'C' ? 4 : 2;
        for (int i = 0; i < n; i++) {
            place p = matrix == 'A'   ? a_of(t % 32, i, each)
                      : matrix == 'B' ? b_of(t, i, each)
                      : matrix == 'C' ? c_of(t % 32, i)
                                      : row_of(t, i, matrix == 'T');
            printf("%d %d %d %d\n", t, i, p.row + 16 * (t / 32), p.column);
        }
    }
    return 0;
}

TM_TEST_ROLE("fragments", print_fragments)
