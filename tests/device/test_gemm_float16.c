/* SPDX-License-Identifier: Apache-2.0 */
/* tests/device/test_gemm_float16.c - float16 in the CPU's matrix product, for every instruction set this CPU has: all
 * 65,536 codes in, and every place where rounding decides out. What a code is and what is nearest comes from the
 * definition of IEEE binary16, with ldexp and a search.
 */
#include "base/arena.h"
#include "device/cpu/gemm.h"
#include "device/cpu/simd/kernels.h"

#include "support/test.h"

enum { CODES = 65536, FIRST_INFINITE = 0x7c00, SIGN = 0x8000, SIDE = 32 };

#define ENGINE(isa)                                                                                                    \
    {                                                                                                                  \
#isa, tm_gemm_run_##isa, tm_gemm_workspace_##isa, tm_gemm_workspace_most_##isa                                 \
    }
static const struct {
    const char *isa;
    void (*run)(const tm_gemm *gemm);
    size_t (*workspace)(const tm_gemm *gemm), (*most)(const tm_gemm *gemm);
} engines[] = {
    ENGINE(base),
#ifdef __x86_64__
    ENGINE(avx2), ENGINE(avx512), ENGINE(avx512_bf16), ENGINE(amx),
#endif
};
enum { ENGINES = sizeof engines / sizeof *engines };

/* By definition: sign, five bits of exponent with bias 15, ten of fraction. */
static double value_of(unsigned code)
{
    int      exponent = (int)(code >> 10 & 31);
    unsigned fraction = code & 1023;
    double   size = exponent == 31  ? (double)(fraction ? NAN : INFINITY)
                    : exponent == 0 ? ldexp(fraction, -24)
                                    : ldexp(1024 + fraction, exponent - 25);
    return code & SIGN ? -size : size;
}
/* Without its sign; what comes after the largest number counts as 2^16. */
static double size_of(unsigned code)
{
    return code == FIRST_INFINITE ? 0x1p16 : value_of(code);
}
/* The code nearest to a number, of two the even one. */
static unsigned nearest(double x)
{
    unsigned sign = signbit(x) ? SIGN : 0, low = 0, high = FIRST_INFINITE;
    if (isnan(x)) return 0x7e00;
    x = fabs(x);
    if (x >= 0x1p16) return sign | FIRST_INFINITE;
    while (high - low > 1) {
        unsigned middle = (low + high) / 2;
        *(size_of(middle) <= x ? &low : &high) = middle;
    }
    double below = x - size_of(low), above = size_of(high) - x;
    if (below < above || (below == above && low % 2 == 0)) return sign | low;
    return sign | high;
}

static void run(int e, tm_gemm g)
{
    g.threads = 2;
    g.workspace = tm_alloc(TM_GEMM_WORKSPACE_MAX);
    engines[e].run(&g);
    free(g.workspace);
}
static bool is_here(int e)
{
    return strcmp(engines[e].isa, "base") == 0 || tm_cpu_kernel_tables(engines[e].isa);
}

/* Every code times one, as A and as B, stored either way: a row, a column. */
TEST(every_code_is_widened_exactly)
{
    uint16_t *codes = tm_alloc(CODES * sizeof *codes);
    float    *c = tm_alloc(CODES * sizeof *c), one = 1;
    for (unsigned i = 0; i < CODES; i++) codes[i] = (uint16_t)i;
    for (int t = 0; t < 4 * ENGINES; t++) {
        int            e = t / 4;
        tm_gemm_matrix of = { codes, t & 1 ? CODES : 1, t & 1, TM_F16 }, by = { &one, 1, false, TM_F32 };
        tm_gemm        g = { .m = CODES, .n = 1, .k = 1, .a = of, .b = by, .c = c, .ldc = 1, .c_dtype = TM_F32 };
        if (!is_here(e)) continue;
        if (t & 2) {
            of.ld = t & 1 ? 1 : CODES;
            g = (tm_gemm){ .m = 1, .n = CODES, .k = 1, .a = by, .b = of, .c = c, .ldc = CODES, .c_dtype = TM_F32 };
        }
        run(e, g);
        for (unsigned i = 0; i < CODES; i++) {
            double wanted = value_of(i);
            if (isnan(wanted) ? !isnan(c[i]) : (double)c[i] != wanted)
                fail_msg("%s, %d: code 0x%x is %g, wanted %g", engines[e].isa, t % 4, i, (double)c[i], wanted);
        }
    }
    free(codes), free(c);
}

/* What lies at a code, halfway to the next one, and one float32 beside each: numbers, where two are equally near, where
 * they end, infinity, NaN. */
static float near_code(unsigned code, int which)
{
    double at = value_of(code & 0x7fff), next = size_of((code & 0x7fff) + ((code & 0x7fff) < FIRST_INFINITE));
    float  x = (float)(which < 3 ? at : (at + next) / 2);
    if (which % 3 == 1) x = nextafterf(x, 0);
    if (which % 3 == 2) x = nextafterf(x, INFINITY);
    return code & SIGN ? -x : x;
}
TEST(every_sum_is_rounded_to_the_nearest)
{
    enum { PLACES = 6, COUNT = PLACES * CODES };
    float    *x = tm_alloc(COUNT * sizeof *x), one = 1, large[2] = { 65519, 65520 };
    uint16_t *c = tm_alloc(COUNT * sizeof *c);
    for (unsigned i = 0; i < COUNT; i++) x[i] = near_code(i / PLACES, (int)(i % PLACES));
    assert_int_equal(nearest((double)large[0]), 0x7bff); /* the largest number, 65504; and infinity */
    assert_int_equal(nearest((double)large[1]), 0x7c00);
    for (int t = 0; t < 2 * ENGINES; t++) {
        int     e = t / 2;
        tm_gemm g = { .m = COUNT,
                      .n = 1,
                      .k = 1,
                      .a = { x, 1, false, TM_F32 },
                      .b = { &one, 1, false, TM_F32 },
                      .c = c,
                      .ldc = 1,
                      .c_dtype = TM_F16 };
        if (!is_here(e)) continue;
        if (t & 1) { /* whole vectors of a row */
            g.m = 1, g.n = g.ldc = COUNT;
            g.a = g.b;
            g.b = (tm_gemm_matrix){ x, COUNT, false, TM_F32 };
        }
        run(e, g);
        for (unsigned i = 0; i < COUNT; i++) {
            unsigned wanted = nearest((double)x[i]);
            if (isnan(x[i]) ? !isnan(value_of(c[i])) : (c[i] != wanted && ((c[i] | wanted) & 0x7fff) != 0))
                fail_msg("%s, %d: %a became 0x%x, wanted 0x%x", engines[e].isa, t % 2, (double)x[i], c[i], wanted);
        }
    }
    free(x), free(c);
}

/* Old values of a float16 C count in float32: 1 + 2^-11 + 2^-11 is more than 1, added one after the other it is 1. */
TEST(old_values_are_added_before_the_rounding)
{
    for (int e = 0; e < ENGINES; e++) {
        uint16_t a[2] = { 0x1000, 0x1000 }, one[2] = { 0x3c00, 0x3c00 }, c = 0x3c00; /* 2^-11 */
        if (!is_here(e)) continue;
        run(e, (tm_gemm){ .m = 1,
                          .n = 1,
                          .k = 2,
                          .a = { a, 2, false, TM_F16 },
                          .b = { one, 1, false, TM_F16 },
                          .c = &c,
                          .ldc = 1,
                          .c_dtype = TM_F16,
                          .accumulate = true });
        assert_int_equal(c, 0x3c01);
    }
}

/* What a larger product of the same formats may take is enough. */
TEST(smaller_products_take_no_more)
{
    static const int64_t sides[] = { 1, 13, 33, 100, 500, 1500 };
    for (int e = 0; e < ENGINES; e++)
        for (int64_t t = 0; t < 6 * 6 * 6 && is_here(e); t++)
            for (int more = 0; more < 2; more++) {
                tm_gemm g = { .m = sides[t % 6], .n = sides[t / 6 % 6], .k = sides[t / 36], .threads = 3 };
                g.a.dtype = g.b.dtype = g.c_dtype = TM_F16;
                size_t bytes = engines[e].workspace(&g);
                g.m += more, g.n += more, g.k += more;
                assert_true(bytes <= engines[e].most(&g));
            }
}
