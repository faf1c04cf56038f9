/* SPDX-License-Identifier: Apache-2.0 */
/* What test_kernels.c does not see of the CPU's attention kernels: large scores, what must not be seen, sequences
 * alone, bits at sizes that the op's examples do not reach, the size of the workspace. */
#include "device/cpu/simd/kernels.h"

#include "base/random.h"
#include "graph/value.h"
#include "op/fused.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { GUARD = 192 };

typedef struct {
    int64_t B, T, H, J, D;
    int     causal;
    int64_t window;
} sizes;

typedef struct {
    const char      *name;
    const tm_kernel *forward, *backward;
} family;

static int families(family out[3])
{
    int n = 0;
#if defined(__x86_64__)
    if (tm_cpu_kernel_tables("avx512"))
        out[n++] = (family){ "avx512", &tm_cpu_attention_avx512[0], &tm_cpu_attention_avx512[1] };
    if (tm_cpu_kernel_tables("avx2"))
        out[n++] = (family){ "avx2", &tm_cpu_attention_avx2[0], &tm_cpu_attention_avx2[1] };
#endif
    out[n++] = (family){ "base", &tm_cpu_attention_base[0], &tm_cpu_attention_base[1] };
    return n;
}

/* Whether the plain build is left out where others run: it is slow, and the same source. */
static bool too_slow(const sizes *s)
{
    return s->B * s->H * s->T * s->T * s->D > 4000000;
}

/* ---- memory with guards ---- */

static void *guarded(size_t bytes, int fill)
{
    unsigned char *p = malloc(bytes + 2 * GUARD + sizeof(size_t));
    assert_non_null(p);
    memcpy(p, &bytes, sizeof bytes);
    p += sizeof bytes;
    memset(p, 0xa5, GUARD);
    memset(p + GUARD, fill, bytes);
    memset(p + GUARD + bytes, 0xa5, GUARD);
    return p + GUARD;
}

static void release(void *data)
{
    unsigned char *p = (unsigned char *)data - GUARD;
    size_t         bytes;
    memcpy(&bytes, p - sizeof bytes, sizeof bytes);
    for (int i = 0; i < GUARD; i++)
        if (p[i] != 0xa5 || p[GUARD + bytes + (size_t)i] != 0xa5)
            fail_msg("guard byte %d of %zu bytes changed", i, bytes);
    free(p - sizeof bytes);
}

static float *normals(int64_t n, uint64_t stream, double deviation)
{
    float *x = guarded((size_t)n * 4, 0);
    for (int64_t i = 0; i < n; i++) x[i] = (float)(deviation * tm_random_normal(7, stream, (uint64_t)i));
    return x;
}

/* ---- one run ---- */

typedef struct {
    void  *qkv, *dout; /* given */
    void  *o, *dqkv;   /* made */
    float *lse;        /* made by the forward kernel */
} tensors;

static int64_t qkv_elements(const sizes *s)
{
    return s->B * s->T * (s->H + 2 * s->J) * s->D;
}
static int64_t o_elements(const sizes *s)
{
    return s->B * s->T * s->H * s->D;
}

static tm_attention_attr attr_of(const sizes *s)
{
    return (tm_attention_attr){ .seq_q = s->T,
                                .seq_k = s->T,
                                .heads = s->H,
                                .kv_heads = s->J,
                                .dim_qk = s->D,
                                .dim_v = s->D,
                                .scale = 1 / sqrt((double)s->D),
                                .causal = s->causal,
                                .window = s->window };
}

static void execute(const tm_kernel *kernel, tm_call *call)
{
    const char *reason = kernel->refuse(call);
    if (reason) fail_msg("%s refuses: %s", kernel->name, reason);
    call->workspace_bytes = kernel->workspace(call);
    call->workspace = guarded(call->workspace_bytes, 0xff);
    kernel->run(call);
    release(call->workspace);
}

static tm_call empty_call(const tm_attention_attr *attr, int threads)
{
    tm_call call = { .attr = attr, .threads = threads };
    for (int k = 0; k < TM_MAX_IN; k++) call.in[k].shape.rank = -1;
    for (int k = 0; k < TM_MAX_OUT; k++) call.out[k].shape.rank = -1;
    return call;
}

static void forward(const tm_kernel *kernel, const sizes *s, tm_dtype dtype, int threads, tensors *x)
{
    tm_attention_attr attr = attr_of(s);
    size_t            bytes = tm_dtype_bytes(dtype);
    int64_t           rows = s->B * s->T;
    x->o = guarded((size_t)o_elements(s) * bytes, 0xff);
    x->lse = guarded((size_t)(rows * s->H) * 4, 0xff);
    tm_call call = empty_call(&attr, threads);
    tm_fused_qkv(&attr, (tm_view){ dtype, tm_shape_2(rows, (s->H + 2 * s->J) * s->D), x->qkv, 0 }, call.in);
    call.out[0] = (tm_view){ dtype, tm_shape_2(rows, s->H * s->D), x->o, 0 };
    call.out[1] = (tm_view){ TM_F32, tm_shape_3(s->B, s->H, s->T), x->lse, 0 };
    execute(kernel, &call);
}

static void backward(const tm_kernel *kernel, const sizes *s, tm_dtype dtype, int threads, tensors *x)
{
    tm_attention_attr attr = attr_of(s);
    int64_t           rows = s->B * s->T;
    x->dqkv = guarded((size_t)qkv_elements(s) * tm_dtype_bytes(dtype), 0xff);
    tm_call call = empty_call(&attr, threads);
    call.in[0] = (tm_view){ dtype, tm_shape_2(rows, s->H * s->D), x->dout, 0 };
    tm_fused_qkv(&attr, (tm_view){ dtype, tm_shape_2(rows, (s->H + 2 * s->J) * s->D), x->qkv, 0 }, &call.in[1]);
    call.in[4] = (tm_view){ dtype, tm_shape_2(rows, s->H * s->D), x->o, 0 };
    call.in[5] = (tm_view){ TM_F32, tm_shape_3(s->B, s->H, s->T), x->lse, 0 };
    tm_fused_qkv(&attr, (tm_view){ dtype, tm_shape_2(rows, (s->H + 2 * s->J) * s->D), x->dqkv, 0 }, call.out);
    execute(kernel, &call);
}

static tensors inputs(const sizes *s, double deviation)
{
    return (tensors){ .qkv = normals(qkv_elements(s), 1, deviation), .dout = normals(o_elements(s), 2, 1) };
}

static void release_results(tensors *x)
{
    release(x->o);
    release(x->lse);
    if (x->dqkv) release(x->dqkv);
    x->o = x->dqkv = NULL;
    x->lse = NULL;
}

static void release_all(tensors *x)
{
    release_results(x);
    release(x->qkv);
    release(x->dout);
}

static tensors run_both(const family *f, const sizes *s, int threads, const tensors *given)
{
    tensors x = *given;
    forward(f->forward, s, TM_F32, threads, &x);
    backward(f->backward, s, TM_F32, threads, &x);
    return x;
}

static void expect_same(const char *what, const sizes *s, const void *a, const void *b, size_t bytes)
{
    if (memcmp(a, b, bytes))
        fail_msg("%s differs for B %ld T %ld H %ld J %ld D %ld causal %d window %ld", what, (long)s->B, (long)s->T,
                 (long)s->H, (long)s->J, (long)s->D, s->causal, (long)s->window);
}

static void expect_same_results(const char *what, const sizes *s, const tensors *a, const tensors *b)
{
    expect_same(what, s, a->o, b->o, (size_t)o_elements(s) * 4);
    expect_same(what, s, a->lse, b->lse, (size_t)(s->B * s->H * s->T) * 4);
    expect_same(what, s, a->dqkv, b->dqkv, (size_t)qkv_elements(s) * 4);
}

/* ---- the reference on what the kernel had ---- */

static double *widened(const float *x, int64_t n)
{
    double *wide = calloc((size_t)n, sizeof *wide);
    assert_non_null(wide);
    for (int64_t i = 0; x && i < n; i++) wide[i] = (double)x[i];
    return wide;
}

/* No number is missing, and none is off by more than `part` of the largest. */
static void expect_close(const char *what, const char *isa, const float *got, const double *want, int64_t n,
                         double part)
{
    double largest = 0;
    for (int64_t i = 0; i < n; i++) largest = fmax(largest, fabs(want[i]));
    assert_true(largest > 0);
    for (int64_t i = 0; i < n; i++)
        if (!(fabs((double)got[i] - want[i]) <= part * largest))
            fail_msg("%s/%s: element %ld is %.9g, want %.9g of at most %.3g", what, isa, (long)i, (double)got[i],
                     want[i], largest);
}

/* The backward reference is given the kernel's own o and lse. */
static void check_against_reference(const family *f, const sizes *s, const tensors *x, double part)
{
    int64_t           nq = qkv_elements(s), no = o_elements(s), nl = s->B * s->H * s->T, rows = s->B * s->T;
    tm_attention_attr attr = attr_of(s);
    double           *qkv = widened(x->qkv, nq), *dout = widened(x->dout, no), *got_o = widened(x->o, no);
    double           *got_lse = widened(x->lse, nl), *o = widened(NULL, no), *lse = widened(NULL, nl);
    double           *dqkv = widened(NULL, nq);
    tm_shape          wide = tm_shape_2(rows, (s->H + 2 * s->J) * s->D), narrow = tm_shape_2(rows, s->H * s->D);
    tm_shape          stats = tm_shape_3(s->B, s->H, s->T);
    tm_call           ahead = empty_call(&attr, 1), back = empty_call(&attr, 1);
    ahead.op = &tm_op_attention;
    tm_fused_qkv(&attr, (tm_view){ TM_F64, wide, qkv, 0 }, ahead.in);
    ahead.out[0] = (tm_view){ TM_F64, narrow, o, 0 };
    ahead.out[1] = (tm_view){ TM_F64, stats, lse, 0 };
    tm_op_attention.reference(&ahead);
    back.op = &tm_op_attention_grad;
    back.in[0] = (tm_view){ TM_F64, narrow, dout, 0 };
    tm_fused_qkv(&attr, (tm_view){ TM_F64, wide, qkv, 0 }, &back.in[1]);
    back.in[4] = (tm_view){ TM_F64, narrow, got_o, 0 };
    back.in[5] = (tm_view){ TM_F64, stats, got_lse, 0 };
    tm_fused_qkv(&attr, (tm_view){ TM_F64, wide, dqkv, 0 }, back.out);
    tm_op_attention_grad.reference(&back);
    expect_close("o", f->name, x->o, o, no, part);
    expect_close("lse", f->name, x->lse, lse, nl, part);
    expect_close("dqkv", f->name, x->dqkv, dqkv, nq, part);
    free(qkv), free(dout), free(got_o), free(got_lse), free(o), free(lse), free(dqkv);
}

/* ---- tests ---- */

/* Scores of thousands: exp of them overflows unless the maximum is taken off first, also from block to block. A score
 * of 5000 is known to 5000 x 2^-24 x a few: a weight to a part in a hundred. */
TEST(test_large_scores)
{
    static const sizes all[] = {
        { 1, 97, 2, 1, 64, 1, 0 }, { 1, 700, 1, 1, 24, 1, 0 }, { 1, 200, 1, 1, 128, 0, 0 }, { 1, 700, 2, 1, 16, 1, 90 }
    };
    family f[3];
    int    n = families(f);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        tensors given = inputs(&all[i], 30);
        for (int k = 0; k < n; k++) {
            tensors x = run_both(&f[k], &all[i], 2, &given);
            check_against_reference(&f[k], &all[i], &x, 0.01);
            release_results(&x);
        }
        release(given.qkv);
        release(given.dout);
    }
}

/* A key that has left the window changes nothing; a window of the whole sequence gives the bits of none. */
TEST(test_window_bits)
{
    static const sizes all[] = { { 1, 700, 2, 1, 64, 1, 120 }, { 1, 290, 1, 1, 128, 1, 33 } };
    family             f[3];
    int                n = families(f);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int k = 0; k < n; k++) {
            sizes   s = all[i], none = s, whole = s;
            int64_t W = (s.H + 2 * s.J) * s.D, changed = 50, past = changed + s.window, row = s.H * s.D;
            tensors x = inputs(&s, 1), y = inputs(&s, 1);
            for (int64_t e = changed * W; e < (changed + 1) * W; e++) ((float *)y.qkv)[e] += 1000;
            forward(f[k].forward, &s, TM_F32, 2, &x);
            forward(f[k].forward, &s, TM_F32, 2, &y);
            expect_same("before the key", &s, x.o, y.o, (size_t)(changed * row) * 4);
            expect_same("after the window", &s, (float *)x.o + past * row, (float *)y.o + past * row,
                        (size_t)((s.T - past) * row) * 4);
            assert_memory_not_equal((float *)x.o + (past - 1) * row, (float *)y.o + (past - 1) * row, (size_t)row * 4);
            release_all(&x);
            release_all(&y);
            none.window = 0;
            whole.window = s.T;
            tensors given = inputs(&s, 1), a = run_both(&f[k], &none, 2, &given),
                    b = run_both(&f[k], &whole, 2, &given);
            expect_same_results("a window of all keys", &s, &a, &b);
            release_results(&b);
            release_all(&a);
        }
}

/* More than the examples of the op have: 1 MB of scratch and above. */
static const sizes shapes_for_bits[] = { { 2, 600, 4, 2, 128, 1, 0 },
                                         { 1, 1100, 4, 1, 256, 1, 0 },
                                         { 1, 900, 4, 1, 128, 1, 300 } };
enum { N_BITS = sizeof shapes_for_bits / sizeof *shapes_for_bits };

/* The number of threads also decides whether the backward kernel goes over the scores once or twice. */
TEST(test_threads)
{
    family f[3];
    int    n = families(f);
    for (int i = 0; i < N_BITS; i++) {
        const sizes *s = &shapes_for_bits[i];
        tensors      given = inputs(s, 1);
        for (int k = 0; k < n; k++) {
            if (k == n - 1 && n > 1 && too_slow(s)) continue;
            tensors one = run_both(&f[k], s, 1, &given);
            for (int threads = 2; threads <= 4; threads += 2) {
                tensors x = run_both(&f[k], s, threads, &given);
                expect_same_results(f[k].name, s, &one, &x);
                release_results(&x);
            }
            release_results(&one);
        }
        release(given.qkv);
        release(given.dout);
    }
}

TEST(test_instruction_sets)
{
    family f[3];
    if (families(f) < 3) {
        print_message("# needs AVX2 and AVX-512\n");
        skip();
    }
    for (int i = 0; i < N_BITS; i++) {
        const sizes *s = &shapes_for_bits[i];
        tensors      given = inputs(s, 1), a = run_both(&f[0], s, 2, &given), b = run_both(&f[1], s, 2, &given);
        expect_same_results("avx2 and avx512", s, &a, &b);
        release_results(&b);
        release_all(&a);
    }
}

TEST(test_sequence_alone)
{
    static const sizes all[] = {
        { 3, 97, 4, 2, 24, 1, 0 }, { 3, 33, 2, 2, 64, 0, 0 }, { 2, 300, 2, 1, 128, 1, 0 }, { 2, 600, 2, 1, 128, 1, 40 }
    };
    family f[3];
    families(f);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        sizes   s = all[i], alone = all[i];
        tensors given = inputs(&s, 1), whole = run_both(&f[0], &s, 2, &given);
        alone.B = 1;
        for (int64_t b = 0; b < s.B; b++) {
            size_t nq = (size_t)qkv_elements(&alone), no = (size_t)o_elements(&alone), nl = (size_t)(s.H * s.T),
                   at = (size_t)b;
            tensors part = { .qkv = (float *)given.qkv + at * nq, .dout = (float *)given.dout + at * no };
            tensors x = run_both(&f[0], &alone, 3, &part);
            tensors want = { .o = (float *)whole.o + at * no,
                             .lse = whole.lse + at * nl,
                             .dqkv = (float *)whole.dqkv + at * nq };
            expect_same_results("a sequence alone", &alone, &want, &x);
            release_results(&x);
        }
        release_all(&whole);
    }
}

TEST(test_future_token)
{
    static const sizes   all[] = { { 1, 40, 2, 1, 16, 1, 0 }, { 1, 290, 1, 1, 128, 1, 0 } };
    static const int64_t changed[] = { 1, 7, 8, 31, 32, 39 };
    family               f[3];
    int                  n = families(f);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int k = 0; k < n; k++)
            for (size_t c = 0; c < sizeof changed / sizeof *changed; c++) {
                sizes   s = all[i];
                int64_t t = s.T - 40 + changed[c], W = (s.H + 2 * s.J) * s.D, past = t * s.H * s.D;
                tensors x = inputs(&s, 1), y = inputs(&s, 1);
                for (int64_t e = t * W; e < s.T * W; e++)
                    ((float *)y.qkv)[e] = (float)(1e4 * tm_random_normal(9, 9, (uint64_t)e));
                forward(f[k].forward, &s, TM_F32, 2, &x);
                forward(f[k].forward, &s, TM_F32, 2, &y);
                expect_same("the past", &s, x.o, y.o, (size_t)past * 4);
                for (int64_t h = 0; h < s.H; h++)
                    expect_same("lse", &s, x.lse + h * s.T, y.lse + h * s.T, (size_t)t * 4);
                assert_memory_not_equal((float *)x.o + past, (float *)y.o + past, (size_t)(s.H * s.D) * 4);
                release_all(&x);
                release_all(&y);
            }
}

/* The length of the difference, as a part of the length of what float32 gives. */
static double apart(const float *wide, const uint16_t *narrow, int64_t n)
{
    double difference = 0, length = 0;
    for (int64_t e = 0; e < n; e++) {
        double x = (double)wide[e], d = (double)tm_bf16_value(narrow[e]) - x;
        difference += d * d, length += x * x;
    }
    return sqrt(difference / length);
}

/* bfloat16 of the same values: of every instruction set the same bits, with the instruction for it, too, and float32's
 * but for the rounding of weights and results. The long ones keep lower halves of dQ in scratch, 1 MB at most; the last
 * but one needs more and goes over the scores twice. Odd lengths and windows do not fill the last pair of keys. */
TEST(test_bfloat16)
{
    static const sizes all[] = { { 2, 700, 2, 1, 24, 1, 0 },    { 2, 520, 4, 1, 128, 0, 0 },
                                 { 2, 520, 8, 1, 128, 1, 0 },   { 1, 333, 2, 2, 40, 0, 0 },
                                 { 1, 333, 2, 1, 64, 1, 41 },   { 1, 37, 1, 1, 16, 1, 0 },
                                 { 2, 700, 8, 1, 128, 1, 300 }, { 1, 601, 3, 1, 80, 1, 0 } };
    family             f[4];
    int                n = families(f);
#if defined(__x86_64__)
    if (tm_cpu_kernel_tables("avx512_bf16"))
        f[n++] = (family){ "avx512_bf16", &tm_cpu_attention_avx512_bf16[0], &tm_cpu_attention_avx512_bf16[1] };
#endif
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const sizes *s = &all[i];
        int64_t      nq = qkv_elements(s), no = o_elements(s);
        tensors      x = inputs(s, 1), first = { 0 };
        uint16_t    *qkv = guarded((size_t)nq * 2, 0), *dout = guarded((size_t)no * 2, 0);
        for (int64_t e = 0; e < nq; e++)
            ((float *)x.qkv)[e] = tm_bf16_value(qkv[e] = tm_bf16_round(((float *)x.qkv)[e]));
        for (int64_t e = 0; e < no; e++)
            ((float *)x.dout)[e] = tm_bf16_value(dout[e] = tm_bf16_round(((float *)x.dout)[e]));
        forward(f[0].forward, s, TM_F32, 2, &x);
        backward(f[0].backward, s, TM_F32, 2, &x);
        for (int k = 0; k < n; k++) {
            bool plain = !strcmp(f[k].name, "base");
            if (plain && n > 1 && too_slow(s)) continue;
            tensors y = { .qkv = qkv, .dout = dout };
            forward(f[k].forward, s, TM_BF16, 2, &y);
            backward(f[k].backward, s, TM_BF16, 2, &y);
            if (!(apart(x.o, y.o, no) < 0x1p-8) || !(apart(x.dqkv, y.dqkv, nq) < 0x1p-7))
                fail_msg("%s, case %zu: %.3g and %.3g from float32", f[k].name, i, apart(x.o, y.o, no),
                         apart(x.dqkv, y.dqkv, nq));
            for (int64_t e = 0; e < s->B * s->H * s->T; e++)
                if (!(fabsf(((float *)x.lse)[e] - ((float *)y.lse)[e]) <= 1e-5f))
                    fail_msg("%s, case %zu: lse", f[k].name, i);
            if (first.o && !plain) {
                expect_same("o of bfloat16", s, first.o, y.o, (size_t)no * 2);
                expect_same("lse of bfloat16", s, first.lse, y.lse, (size_t)(s->B * s->H * s->T) * 4);
                expect_same("dqkv of bfloat16", s, first.dqkv, y.dqkv, (size_t)nq * 2);
            }
            if (first.o || plain)
                release_results(&y);
            else
                first = y;
        }
        if (first.o) release_results(&first);
        release_all(&x);
        release(qkv);
        release(dout);
    }
}

/* Heads of an autoencoder: all channels of a picture's positions. Forward only; the gradient is refused. */
TEST(test_wide_heads)
{
    static const sizes all[] = { { 2, 150, 1, 1, 512, 0, 0 }, { 1, 70, 2, 1, 300, 1, 0 }, { 1, 33, 1, 1, 257, 0, 0 } };
    family             f[3];
    int                n = families(f);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        const sizes      *s = &all[i];
        int64_t           rows = s->B * s->T, no = o_elements(s);
        tm_attention_attr attr = attr_of(s);
        tensors           given = inputs(s, 0.4);
        double           *qkv = widened(given.qkv, qkv_elements(s)), *o = widened(NULL, no);
        double           *lse = widened(NULL, rows * s->H);
        tm_call           ahead = empty_call(&attr, 1), back = empty_call(&attr, 1);
        ahead.op = &tm_op_attention;
        tm_fused_qkv(&attr, (tm_view){ TM_F64, tm_shape_2(rows, (s->H + 2 * s->J) * s->D), qkv, 0 }, ahead.in);
        ahead.out[0] = (tm_view){ TM_F64, tm_shape_2(rows, s->H * s->D), o, 0 };
        ahead.out[1] = (tm_view){ TM_F64, tm_shape_3(s->B, s->H, s->T), lse, 0 };
        tm_op_attention.reference(&ahead);
        for (int k = 0; k < n; k++) {
            tensors x = given, again = given;
            forward(f[k].forward, s, TM_F32, 1, &x);
            forward(f[k].forward, s, TM_F32, 3, &again);
            expect_close("o", f[k].name, x.o, o, no, 1e-5);
            expect_close("lse", f[k].name, x.lse, lse, rows * s->H, 1e-5);
            expect_same("o of other threads", s, x.o, again.o, (size_t)no * 4);
            release_results(&x), release_results(&again);
            back.in[0] = back.in[4] = (tm_view){ TM_F32, tm_shape_2(rows, s->H * s->D), NULL, 0 };
            back.in[5] = (tm_view){ TM_F32, tm_shape_3(s->B, s->H, s->T), NULL, 0 };
            tm_fused_qkv(&attr, (tm_view){ TM_F32, tm_shape_2(rows, (s->H + 2 * s->J) * s->D), NULL, 0 }, &back.in[1]);
            tm_fused_qkv(&attr, (tm_view){ TM_F32, tm_shape_2(rows, (s->H + 2 * s->J) * s->D), NULL, 0 }, back.out);
            assert_string_equal(f[k].backward->refuse(&back), "needs heads of at most 256 elements");
        }
        free(qkv), free(o), free(lse);
        release(given.qkv), release(given.dout);
    }
}

TEST(test_workspace_and_refusals)
{
    family f[3];
    families(f);
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int64_t T = 1; T < 200000; T = T * 3 + 1) {
            sizes             s = { 2, T, 32, 8, 128, 1, 0 };
            tm_attention_attr attr = attr_of(&s);
            tm_dtype          dtype = bf16 ? TM_BF16 : TM_F32;
            tm_view           qkv = { dtype, tm_shape_2(2 * T, 48 * 128), NULL, 0 };
            tm_view           o = { dtype, tm_shape_2(2 * T, 4096), NULL, 0 };
            tm_view           lse = { TM_F32, tm_shape_3(2, 32, T), NULL, 0 };
            tm_call           a = empty_call(&attr, 4), g = a;
            tm_fused_qkv(&attr, qkv, a.in), tm_fused_qkv(&attr, qkv, &g.in[1]), tm_fused_qkv(&attr, qkv, g.out);
            a.out[0] = g.in[0] = g.in[4] = o, a.out[1] = g.in[5] = lse;
            assert_true(f[0].forward->workspace(&a) <= (size_t)4 * 2 * 1024 * 1024);
            assert_true(f[0].backward->workspace(&g) <= (size_t)4 * 2 * 1024 * 1024);
            assert_null(f[0].forward->refuse(&a));
            assert_null(f[0].backward->refuse(&g));
            a.in[0].dtype = TM_F64;
            assert_non_null(f[0].forward->refuse(&a));
            g.in[5].dtype = TM_F64;
            assert_non_null(f[0].backward->refuse(&g));
        }
}
