/* SPDX-License-Identifier: Apache-2.0 */
/* tests/device/test_gemm.c - the CPU's matrix product and the linear kernels, for every instruction set this CPU has.
 *
 * Judged three ways: by a product in double with the bound 6 sqrt(n) u sum|a b| + u_out |ref|; bit for bit by a scalar
 * loop in the documented order; bit for bit among threads, splits and instruction sets.
 */
#include "base/arena.h"
#include "base/random.h"
#include "device/cpu/gemm.h"
#include "device/cpu/simd/kernels.h"
#include "graph/value.h"

#include "support/test.h"

typedef struct {
    const char *isa;
    void (*run)(const tm_gemm *gemm);
    size_t (*workspace)(const tm_gemm *gemm);
    const tm_kernel *linear;
    bool             fused, groups; /* groups: products of bfloat16 have the order of tile registers */
} engine;
enum { MAX_ENGINES = 5, GUARD = 64 };
static const engine base_engine = {
    "base", tm_gemm_run_base, tm_gemm_workspace_base, tm_cpu_linear_base, false, false
};

static int list_engines(engine out[MAX_ENGINES])
{
    int n = 0;
    out[n++] = base_engine;
#ifdef __x86_64__
    if (tm_cpu_kernel_tables("avx2"))
        out[n++] = (engine){ "avx2", tm_gemm_run_avx2, tm_gemm_workspace_avx2, tm_cpu_linear_avx2, true, false };
    if (tm_cpu_kernel_tables("avx512"))
        out[n++] =
            (engine){ "avx512", tm_gemm_run_avx512, tm_gemm_workspace_avx512, tm_cpu_linear_avx512, true, false };
    if (tm_cpu_kernel_tables("avx512_bf16"))
        out[n++] = (engine){
            "avx512_bf16", tm_gemm_run_avx512_bf16, tm_gemm_workspace_avx512_bf16, tm_cpu_linear_avx512_bf16, true,
            false
        };
    if (tm_cpu_kernel_tables("amx"))
        out[n++] = (engine){ "amx", tm_gemm_run_amx, tm_gemm_workspace_amx, tm_cpu_linear_amx, true, true };
#endif
    return n;
}

/* ---- numbers ---- */

static float get(const void *p, tm_dtype dtype, int64_t i)
{
    return (float)tm_value_get(p, dtype, i);
}

static float as(tm_dtype dtype, float value)
{
    double place;
    tm_value_set(&place, dtype, 0, (double)value);
    return get(&place, dtype, 0);
}

enum { RANDOM, WHOLE };
static void *numbers(int64_t n, tm_dtype dtype, uint64_t stream, int kind)
{
    char *p = tm_alloc((size_t)n * tm_dtype_bytes(dtype) + 16);
    for (int64_t i = 0; i < n; i++) {
        double x = 2 * tm_random_uniform(3, stream, (uint64_t)i) - 1;
        tm_value_set(p, dtype, i,
                     kind == WHOLE ? (double)tm_random_below(3, stream, (uint64_t)i, 9) - 4 : (double)(float)x);
    }
    return p;
}

/* ---- a case: operands, result between guards, workspace before a guard ---- */

typedef struct {
    int64_t  m, n, k;
    bool     ta, tb, accumulate, bias, residual;
    tm_dtype a, b, c, extra;
    int64_t  pad; /* ld - width */
    int      kind;
} setup;
typedef struct {
    setup   s;
    tm_gemm g;
    void   *a, *b, *bias, *residual, *before, *memory;
    size_t  c_elements;
} problem;

static problem problem_make(setup s)
{
    problem p = { .s = s };
    int64_t lda = (s.ta ? s.m : s.k) + s.pad, ldb = (s.tb ? s.k : s.n) + s.pad, ldc = s.n + s.pad;
    p.c_elements = (size_t)(s.m * ldc);
    p.a = numbers((s.ta ? s.k : s.m) * lda, s.a, 1, s.kind);
    p.b = numbers((s.tb ? s.n : s.k) * ldb, s.b, 2, s.kind);
    p.bias = numbers(s.n, s.extra, 3, s.kind);
    p.residual = numbers(s.m * ldc, s.extra, 4, s.kind);
    p.before = numbers((int64_t)p.c_elements, s.c, 5, s.kind);
    p.memory = tm_alloc((p.c_elements + 2 * GUARD) * tm_dtype_bytes(s.c));
    p.g = (tm_gemm){ .m = s.m,
                     .n = s.n,
                     .k = s.k,
                     .a = { p.a, lda, s.ta, s.a },
                     .b = { p.b, ldb, s.tb, s.b },
                     .c = (char *)p.memory + GUARD * tm_dtype_bytes(s.c),
                     .ldc = ldc,
                     .c_dtype = s.c,
                     .accumulate = s.accumulate,
                     .threads = 1 };
    if (s.bias) p.g.bias = p.bias, p.g.bias_dtype = s.extra;
    if (s.residual) p.g.residual = p.residual, p.g.residual_dtype = s.extra, p.g.ld_residual = ldc;
    return p;
}
static void problem_free(problem *p)
{
    free(p->a), free(p->b), free(p->bias), free(p->residual), free(p->before), free(p->memory);
}
/* Fills C (old values, or NaN when they must not be read) and its guards. */
static void problem_reset(const problem *p)
{
    memset(p->memory, 0xff, (p->c_elements + 2 * GUARD) * tm_dtype_bytes(p->s.c)); /* all ones: NaN in all formats */
    for (int64_t i = 0; i < p->s.m && p->s.accumulate; i++)
        memcpy((char *)p->g.c + (size_t)(i * p->g.ldc) * tm_dtype_bytes(p->s.c),
               (char *)p->before + (size_t)(i * p->g.ldc) * tm_dtype_bytes(p->s.c),
               (size_t)p->s.n * tm_dtype_bytes(p->s.c));
}
static void run_with(const engine *e, tm_gemm g, int threads)
{
    g.threads = threads;
    size_t         bytes = e->workspace(&g);
    unsigned char *workspace = tm_alloc(bytes + GUARD);
    memset(workspace, 0xff, bytes + GUARD);
    g.workspace = workspace;
    e->run(&g);
    for (int i = 0; i < GUARD; i++) assert_int_equal(workspace[bytes + (size_t)i], 0xff);
    free(workspace);
}
static void check_guards(const problem *p)
{
    size_t               size = tm_dtype_bytes(p->s.c), row = (size_t)p->g.ldc * size;
    const unsigned char *bytes = p->memory;
    for (size_t i = 0; i < GUARD * size; i++) {
        assert_int_equal(bytes[i], 0xff);
        assert_int_equal(bytes[(p->c_elements + GUARD) * size + i], 0xff);
    }
    for (int64_t r = 0; r < p->s.m; r++)
        for (size_t i = (size_t)p->s.n * size; i < row; i++)
            assert_int_equal(((const unsigned char *)p->g.c)[(size_t)r * row + i], 0xff);
}

static float a_at(const problem *p, int64_t i, int64_t q)
{
    return get(p->a, p->s.a, p->s.ta ? q * p->g.a.ld + i : i * p->g.a.ld + q);
}
static float b_at(const problem *p, int64_t q, int64_t j)
{
    return get(p->b, p->s.b, p->s.tb ? j * p->g.b.ld + q : q * p->g.b.ld + j);
}

/* Products of bfloat16 in tile registers. */
static bool in_groups(const engine *e, const setup *s)
{
    return e->groups && s->a == TM_BF16 && s->b == TM_BF16;
}
/* The sum so far and the next 32 k: even and odd ones are chains of their own. */
static float add_group(const problem *p, int64_t i, int64_t j, int64_t from, float sum)
{
    float chain[2] = { 0, 0 };
    for (int64_t q = from; q < p->s.k && q < from + 32; q++)
        chain[q % 2] = fmaf(a_at(p, i, q), b_at(p, q, j), chain[q % 2]);
    return sum + (chain[0] + chain[1]);
}

/* The documented order, one element at a time. */
static float in_order(const problem *p, int64_t i, int64_t j, const engine *e)
{
    int64_t at = i * p->g.ldc + j;
    bool    fused = e->fused, groups = in_groups(e, &p->s);
    float   old = get(p->before, p->s.c, at), sum = p->s.accumulate && p->s.c == TM_F32 ? old : 0;
    for (int64_t from = 0; from < p->s.k && groups; from += 32) sum = add_group(p, i, j, from, sum);
    for (int64_t from = 0; from < p->s.k && !groups; from += TM_GEMM_BLOCK) {
        float block = 0;
        for (int64_t q = from; q < p->s.k && q < from + TM_GEMM_BLOCK; q++) {
            float a = a_at(p, i, q), b = b_at(p, q, j);
            block = fused ? fmaf(a, b, block) : block + a * b;
        }
        sum = sum + block;
    }
    if (p->s.accumulate && p->s.c != TM_F32) sum += old;
    if (p->s.bias) sum += get(p->bias, p->s.extra, j);
    if (p->s.residual) sum += get(p->residual, p->s.extra, at);
    return as(p->s.c, sum);
}
static void check_element(const problem *p, const engine *e, int64_t i, int64_t j)
{
    int64_t at = i * p->g.ldc + j;
    double  ref = 0, size = 0;
    for (int64_t q = 0; q < p->s.k; q++) {
        double term = (double)a_at(p, i, q) * (double)b_at(p, q, j);
        ref += term, size += fabs(term);
    }
    double extra[3] = { p->s.accumulate ? (double)get(p->before, p->s.c, at) : 0,
                        p->s.bias ? (double)get(p->bias, p->s.extra, j) : 0,
                        p->s.residual ? (double)get(p->residual, p->s.extra, at) : 0 };
    for (int x = 0; x < 3; x++) ref += extra[x], size += fabs(extra[x]);
    float  found = get(p->g.c, p->s.c, at), wanted = in_order(p, i, j, e);
    double u_out = p->s.c == TM_BF16 ? 0x1p-8 : p->s.c == TM_F16 ? 0x1p-11 : 0x1p-24;
    double tolerance = 6 * sqrt((double)p->s.k + 3) * 0x1p-24 * size + u_out * fabs(ref);
    if (p->s.c == TM_F16) tolerance += 0x1p-25; /* numbers below 2^-14 are whole numbers of 2^-24 */
    if (fabs((double)found - ref) <= tolerance && found == wanted) return;
    fail_msg("%s %lld x %lld x %lld, layout %d%d, formats %d%d%d, accumulate %d, bias %d, residual %d: "
             "C(%lld, %lld) = %.9g, in order %.9g, double %.9g",
             e->isa, (long long)p->s.m, (long long)p->s.n, (long long)p->s.k, p->s.ta, p->s.tb, p->s.a, p->s.b, p->s.c,
             p->s.accumulate, p->s.bias, p->s.residual, (long long)i, (long long)j, (double)found, (double)wanted, ref);
}
/* Every `stride`-th element. */
static void check_problem(const problem *p, const engine *e, int threads, int64_t stride)
{
    problem_reset(p);
    run_with(e, p->g, threads);
    check_guards(p);
    for (int64_t t = 0; t < p->s.m * p->s.n; t += stride) check_element(p, e, t / p->s.n, t % p->s.n);
}

/* A copy of C after a run. */
static void *result_of(const problem *p, const engine *e, int threads)
{
    size_t bytes = p->c_elements * tm_dtype_bytes(p->s.c);
    void  *copy = tm_alloc(bytes);
    problem_reset(p);
    run_with(e, p->g, threads);
    memcpy(copy, p->g.c, bytes);
    return copy;
}

/* ---- tests ---- */

/* All combinations of options go by in turn while the shapes are swept. */
static setup setup_number(uint64_t number, int64_t m, int64_t n, int64_t k)
{
    static const tm_dtype formats[] = { TM_F32, TM_BF16, TM_F32, TM_BF16, TM_F16 };
    uint64_t              bits = tm_random_u64(11, 0, number);
    return (setup){ .m = m,
                    .n = n,
                    .k = k,
                    .ta = bits & 1,
                    .tb = bits & 2,
                    .a = formats[(bits >> 16) % 5],
                    .b = formats[(bits >> 24) % 5],
                    .c = formats[(bits >> 32) % 5],
                    .accumulate = bits & 32,
                    .bias = bits & 64,
                    .residual = bits & 128,
                    .extra = bits & 256 ? TM_BF16 : TM_F32,
                    .pad = bits & 512 ? 3 : 0 };
}
/* Every `stride`-th element of it, on each engine. */
static void check_setup(setup s, int threads, int64_t stride)
{
    engine  engines[MAX_ENGINES];
    problem p = problem_make(s);
    for (int e = 0, n = list_engines(engines); e < n; e++) check_problem(&p, &engines[e], threads, stride);
    problem_free(&p);
}
TEST(test_ugly_shapes)
{
    static const int64_t extents[] = { 1, 3, 7, 8, 9, 31, 33, 65 }, depths[] = { 1, 7, 33, 511, 512, 513, 1030 };
    for (uint64_t number = 0; number < 8 * 8 * 7; number++) {
        setup s = setup_number(number, extents[number / 56], extents[number / 7 % 8], depths[number % 7]);
        check_setup(s, 1 + (int)((number + 1) % 3), 1 + s.m * s.n * s.k / 200000);
    }
}
/* One row by weights as they are stored: depths with and without whole steps, and the last columns. */
TEST(test_one_row)
{
    static const int64_t columns[] = { 1, 15, 16, 17, 64, 65, 200 }, depths[] = { 16, 32, 512, 544, 1040, 1030, 1536 };
    uint64_t             times = test_is_full() ? 12 : 6;
    for (uint64_t i = 0; i < 7 * 7 * times; i++) {
        setup s = setup_number(1000 + i, 1, columns[i / times / 7], depths[i / times % 7]);
        s.ta = false, s.tb = true;
        check_setup(s, 1 + (int)((1001 + i) % 3), 1);
    }
}
/* Few rows or columns by a large operand as it is stored, either way: as many as one panel has, fewer and more; runs of
 * rows and of columns that are not whole, several blocks of K, odd depths. */
FULL_TEST(test_narrow)
{
    static const int64_t few[] = { 4, 5, 8, 9, 13, 16, 17 }, large[] = { 63, 64, 77, 203 },
                         depths[] = { 31, 32, 513, 544, 1536 };
    for (uint64_t i = 0; i < 7 * 4 * 5 * 8; i++) {
        int64_t small = few[i / 160], wide = large[i / 40 % 4];
        setup   s = setup_number(3000 + i, i % 2 ? small : wide, i % 2 ? wide : small, depths[i / 8 % 5]);
        s.ta = i & 2, s.tb = i & 4;
        check_setup(s, 1 + (int)((3001 + i) % 3), 1 + s.m * s.n * s.k / 100000);
    }
}
/* Products that need several blocks of C and several stages of K, in both loop orders, with and without a strip. */
FULL_TEST(test_blocked)
{
    static const setup setups[] = {
        { .m = 12000, .n = 33, .k = 1030, .ta = true },
        { .m = 33, .n = 12000, .k = 1030, .tb = true, .accumulate = true, .bias = true },
        { .m = 40, .n = 12000, .k = 1030, .tb = true, .c = TM_BF16, .residual = true, .extra = TM_BF16 },
        { .m = 6500, .n = 6600, .k = 5, .tb = true },
        { .m = 2000, .n = 1900, .k = 65, .c = TM_BF16, .a = TM_BF16, .b = TM_BF16, .accumulate = true },
        { .m = 1700, .n = 1800, .k = 600, .ta = true, .c = TM_BF16, .accumulate = true },
        { .m = 70, .n = 64, .k = 20000, .ta = true, .accumulate = true },
        { .m = 70, .n = 64, .k = 20000, .ta = true, .c = TM_BF16, .accumulate = true },
        { .m = 5, .n = 7, .k = 28672, .tb = true }, /* as deep as the widest feed-forward layers */
        { .m = 5, .n = 7, .k = 53248, .c = TM_BF16 },
        { .m = 1700, .n = 1800, .k = 600, .c = TM_F16, .a = TM_F16, .b = TM_F16, .tb = true },
        { .m = 70, .n = 64, .k = 20000, .ta = true, .c = TM_F16, .a = TM_F16, .b = TM_F16, .accumulate = true },
        { .m = 33, .n = 12000, .k = 1030, .a = TM_F16, .b = TM_F16, .accumulate = true },
    };
    for (size_t i = 0; i < sizeof setups / sizeof *setups; i++) {
        setup s = setups[i];
        for (int k = 0; k < 4; k++) {
            tm_dtype *of[] = { &s.a, &s.b, &s.c, &s.extra };
            if (*of[k] == TM_F64) *of[k] = TM_F32; /* not said */
        }
        check_setup(s, 2, 1 + s.m * s.n / 2003);
    }
}
TEST(test_threads_same_bits)
{
    static const int64_t shapes[][3] = { { 300, 300, 700 }, { 16, 16, 2048 }, { 64, 256, 2048 }, { 1000, 64, 256 } };
    engine               engines[MAX_ENGINES];
    int                  n_engines = list_engines(engines);
    for (uint64_t number = 0; number < 24; number++) {
        const int64_t *n = shapes[number % 4];
        setup          s = setup_number(100 + number, n[0], n[1], n[2]);
        if (number % 2) s.a = s.b = number % 3 ? TM_BF16 : TM_F16;
        problem p = problem_make(s);
        void   *previous = NULL;
        for (int e = 0; e < n_engines; e++) {
            void *one = result_of(&p, &engines[e], 1);
            for (int threads = 2; threads <= 4; threads++) {
                void *more = result_of(&p, &engines[e], threads);
                assert_memory_equal(one, more, p.c_elements * tm_dtype_bytes(p.s.c));
                free(more);
            }
            if (previous && engines[e].fused && engines[e - 1].fused && !in_groups(&engines[e], &p.s))
                assert_memory_equal(one, previous, p.c_elements * tm_dtype_bytes(p.s.c));
            free(previous);
            previous = one;
        }
        free(previous);
        problem_free(&p);
    }
}
/* Parts of M, of N, and of K at multiples of TM_GEMM_BLOCK, one product each. */
TEST(test_splits_same_bits)
{
    engine engines[MAX_ENGINES];
    int    n_engines = list_engines(engines);
    for (unsigned layout = 0; layout < 12; layout++) {
        tm_dtype format = layout & 8 ? TM_F16 : layout & 4 ? TM_BF16 : TM_F32;
        setup    s = { .m = 100,
                       .n = 90,
                       .k = 1600,
                       .ta = layout & 1,
                       .tb = layout & 2,
                       .a = format,
                       .b = format,
                       .c = TM_F32,
                       .extra = TM_F32,
                       .pad = 2 };
        problem  p = problem_make(s);
        for (int e = 0; e < n_engines; e++) {
            void *whole = result_of(&p, &engines[e], 1);
            problem_reset(&p);
            for (int part = 0; part < 8; part++) { /* bits: M at 37, N at 53, K at 1024 */
                tm_gemm g = p.g;
                int64_t m = part & 4 ? 37 : 0, n = part & 2 ? 53 : 0, k = part & 1 ? 1024 : 0;
                g.m = part & 4 ? s.m - 37 : 37;
                g.n = part & 2 ? s.n - 53 : 53;
                g.k = part & 1 ? s.k - 1024 : 1024;
                int64_t a = s.ta ? k * g.a.ld + m : m * g.a.ld + k, b = s.tb ? n * g.b.ld + k : k * g.b.ld + n;
                g.a.data = (const char *)p.a + (size_t)a * tm_dtype_bytes(format);
                g.b.data = (const char *)p.b + (size_t)b * tm_dtype_bytes(format);
                g.c = (float *)p.g.c + m * g.ldc + n;
                g.accumulate = part & 1;
                run_with(&engines[e], g, 1 + part % 3);
            }
            assert_memory_equal(whole, p.g.c, p.c_elements * sizeof(float));
            free(whole);
        }
        problem_free(&p);
    }
}
TEST(test_empty)
{
    engine engines[MAX_ENGINES];
    int    n_engines = list_engines(engines);
    for (int e = 0; e < n_engines; e++) {
        setup   s = { .m = 5, .n = 9, .k = 0, .a = TM_F32, .b = TM_F32, .c = TM_F32, .extra = TM_F32, .bias = true };
        problem p = problem_make(s);
        check_problem(&p, &engines[e], 2, 1); /* C = bias */
        p.g.m = 0;
        problem_reset(&p);
        run_with(&engines[e], p.g, 2);
        check_guards(&p);
        problem_free(&p);
    }
}
/* They count, but in the bfloat16 instructions, which take them for zero. */
TEST(test_denormals)
{
    engine   engines[MAX_ENGINES];
    int      n_engines = list_engines(engines);
    float    a[64], b[64], c;
    uint16_t low[64], one[64];
    for (int i = 0; i < 64; i++) a[i] = 0x1p-140f, b[i] = 1, low[i] = 8, one[i] = tm_bf16_round(1); /* 2^-130 */
    for (int k = 0; k < 2 * n_engines; k++) {
        const engine *e = &engines[k / 2];
        tm_gemm       g = { .m = 1, .n = 1, .k = 64, .c = &c, .ldc = 1, .c_dtype = TM_F32 };
        g.a = k % 2 ? (tm_gemm_matrix){ low, 64, false, TM_BF16 } : (tm_gemm_matrix){ a, 64, false, TM_F32 };
        g.b = k % 2 ? (tm_gemm_matrix){ one, 1, false, TM_BF16 } : (tm_gemm_matrix){ b, 1, false, TM_F32 };
        run_with(e, g, 1);
        bool flushes = e->groups || strcmp(e->isa, "avx512_bf16") == 0;
        assert_true(c == (k % 2 == 0 ? 0x1p-134f : flushes ? 0 : 0x1p-124f));
    }
}
