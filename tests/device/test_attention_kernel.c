/* SPDX-License-Identifier: Apache-2.0 */
/* The CPU's attention kernels against the formula in double, and against each other where bits must agree.
 *
 * Tolerances follow the computation: a product of n terms is wrong by at most 6 sqrt(n) u sum|a b| (u = 2^-24), an
 * exponential by the error of its argument plus 4 u, and each product passes on the errors of its factors. Nothing is
 * fitted to what the kernels give. */
#include "device/cpu/simd/kernels.h"

#include "base/random.h"
#include "graph/value.h"
#include "op/fused.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { GUARD = 192 };
static const double unit = 0x1p-24;

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
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
        __builtin_cpu_supports("avx512dq"))
        out[n++] = (family){ "avx512", &tm_cpu_attention_avx512[0], &tm_cpu_attention_avx512[1] };
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
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

/* ---- the formula in double, with the error that float32 may make ---- */

typedef struct {
    double *o, *lse, *dqkv;                   /* values */
    double *o_error, *lse_error, *dqkv_error; /* tolerances */
} judge;

static double *zeros(int64_t n)
{
    double *x = calloc((size_t)n, sizeof(double));
    assert_non_null(x);
    return x;
}

typedef struct {
    double value, size; /* sum of a b, sum of |a b| */
} dot_result;

static dot_result dot(const float *a, const float *b, int64_t n)
{
    dot_result r = { 0, 0 };
    for (int64_t d = 0; d < n; d++) {
        r.value += (double)a[d] * (double)b[d];
        r.size += fabs((double)a[d] * (double)b[d]);
    }
    return r;
}

/* One query row: p and its relative error, then the row of every result. */
static void judge_row(const sizes *s, const tensors *x, judge *r, int64_t b, int64_t h, int64_t i, double *p,
                      double *pe)
{
    const int64_t D = s->D, W = (s->H + 2 * s->J) * D, j = h / (s->H / s->J), row = b * s->T + i;
    const int64_t from = s->window && i >= s->window ? i - s->window + 1 : 0, keys = s->causal ? i + 1 : s->T;
    const int64_t k_at = (s->H + j) * D, v_at = k_at + s->J * D;
    const float  *qkv = x->qkv, *base = qkv + b * s->T * W, *q = qkv + row * W + h * D;
    const float  *g = (const float *)x->dout + row * s->H * D + h * D;
    const double  scale = (double)(float)(1 / sqrt((double)D)), rd = 6 * sqrt((double)D) * unit;
    const double  rt = 6 * sqrt((double)s->T) * unit;
    double        most = -HUGE_VAL, sum = 0, *o = r->o + row * s->H * D + h * D, *oe = r->o_error + (o - r->o);
    for (int64_t k = from; k < keys; k++) {
        dot_result sc = dot(q, base + k * W + k_at, D);
        p[k] = scale * sc.value;
        pe[k] = scale * (rd + 2 * unit) * sc.size;
        most = fmax(most, p[k]);
    }
    for (int64_t k = from; k < keys; k++) sum += exp(p[k] - most);
    double lse = most + log(sum), mean_error = 0, delta = 0, delta_size = 0;
    for (int64_t k = from; k < keys; k++) {
        pe[k] += unit * (fabs(p[k]) + fabs(most) + fabs(lse) + 4); /* rounding of the argument, and exp itself */
        p[k] = exp(p[k] - lse);
        mean_error += p[k] * pe[k];
    }
    r->lse[(b * s->H + h) * s->T + i] = lse;
    r->lse_error[(b * s->H + h) * s->T + i] = mean_error + rt + 4 * unit * (1 + fabs(lse));
    for (int64_t d = 0; d < D; d++) {
        double size = 0, error = 0;
        for (int64_t k = from; k < keys; k++) {
            double v = (double)base[k * W + v_at + d];
            o[d] += p[k] * v;
            size += p[k] * fabs(v);
            error += p[k] * (pe[k] + mean_error) * fabs(v);
        }
        oe[d] = error + (2 * rt + 4 * unit) * size;
        delta += (double)g[d] * o[d];
        delta_size += fabs((double)g[d] * o[d]);
    }
    double *dq = r->dqkv + row * W + h * D, *dqe = r->dqkv_error + (dq - r->dqkv),
           delta_error = (rd + 2 * unit) * delta_size;
    for (int64_t d = 0; d < D; d++) delta_error += fabs((double)g[d]) * oe[d];
    for (int64_t k = from; k < keys; k++) {
        int64_t    at = (b * s->T + k) * W;
        dot_result dp = dot(g, qkv + at + v_at, D);
        double     pre = pe[k] + r->lse_error[(b * s->H + h) * s->T + i]; /* the kernel is given its own lse and o */
        double     ds = scale * p[k] * (dp.value - delta);
        double     dse = fabs(ds) * (pre + 4 * unit) + scale * p[k] * ((rd + 2 * unit) * dp.size + delta_error);
        for (int64_t d = 0; d < D; d++) {
            double qd = (double)q[d], kd = (double)qkv[at + k_at + d], gd = (double)g[d];
            dq[d] += ds * kd;
            dqe[d] += dse * fabs(kd) + rt * fabs(ds * kd);
            r->dqkv[at + k_at + d] += ds * qd;
            r->dqkv_error[at + k_at + d] += dse * fabs(qd) + rt * fabs(ds * qd);
            r->dqkv[at + v_at + d] += p[k] * gd;
            r->dqkv_error[at + v_at + d] += p[k] * pre * fabs(gd) + rt * fabs(p[k] * gd);
        }
    }
}

static judge judge_of(const sizes *s, const tensors *x)
{
    int64_t no = o_elements(s), nl = s->B * s->H * s->T, nq = qkv_elements(s);
    judge   r = { zeros(no), zeros(nl), zeros(nq), zeros(no), zeros(nl), zeros(nq) };
    double *p = zeros(s->T), *pe = zeros(s->T);
    for (int64_t b = 0; b < s->B; b++)
        for (int64_t h = 0; h < s->H; h++)
            for (int64_t i = 0; i < s->T; i++) judge_row(s, x, &r, b, h, i, p, pe);
    free(p);
    free(pe);
    return r;
}

static void judge_free(judge *r)
{
    double *all[] = { r->o, r->lse, r->dqkv, r->o_error, r->lse_error, r->dqkv_error };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
}

/* Largest error as a part of what is allowed. */
static double compare(const char *what, const char *isa, const sizes *s, const float *got, const double *want,
                      const double *allowed, int64_t n)
{
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        double error = fabs((double)got[i] - want[i]), tolerance = allowed[i] + unit * fabs(want[i]) + 0x1p-100;
        if (!(error <= tolerance))
            fail_msg(
                "%s/%s: B %ld T %ld H %ld J %ld D %ld causal %d window %ld: element %ld is %.9g, want %.9g +- %.3g",
                what, isa, (long)s->B, (long)s->T, (long)s->H, (long)s->J, (long)s->D, s->causal, (long)s->window,
                (long)i, (double)got[i], want[i], tolerance);
        worst = fmax(worst, error / tolerance);
        largest = fmax(largest, fabs(want[i]));
    }
    if (!(largest > 0)) fail_msg("%s: nothing but zeros was compared", what);
    return worst;
}

static double check_against_formula(const sizes *s, double deviation)
{
    family  f[3];
    tensors given = inputs(s, deviation);
    judge   r = judge_of(s, &given);
    double  worst = 0;
    for (int i = 0, n = families(f); i < n; i++) {
        if (i == n - 1 && n > 1 && too_slow(s)) continue;
        tensors x = run_both(&f[i], s, 2, &given);
        worst = fmax(worst, compare("o", f[i].name, s, x.o, r.o, r.o_error, o_elements(s)));
        worst = fmax(worst, compare("lse", f[i].name, s, x.lse, r.lse, r.lse_error, s->B * s->H * s->T));
        worst = fmax(worst, compare("dqkv", f[i].name, s, x.dqkv, r.dqkv, r.dqkv_error, qkv_elements(s)));
        release_results(&x);
    }
    release(given.qkv);
    release(given.dout);
    judge_free(&r);
    return worst;
}

/* ---- tests ---- */

static void test_formula(void **state)
{
    (void)state;
    static const int64_t lengths[] = { 1, 2, 7, 31, 32, 33, 65, 97, 200 }, dims[] = { 8, 16, 24, 64, 80, 128 };
    static const int64_t groups[] = { 1, 2, 4 };
    double               worst = 0;
    int                  n = 0;
    for (size_t t = 0; t < sizeof lengths / sizeof *lengths; t++)
        for (size_t d = 0; d < sizeof dims / sizeof *dims; d++)
            for (int causal = 0; causal < 2; causal++, n++) {
                int64_t group = groups[n % 3], J = 1 + n % 2;
                sizes   s = { 1 + n % 3, lengths[t], group * J, J, dims[d], causal, 0 };
                worst = fmax(worst, check_against_formula(&s, 1));
            }
    print_message("# %d shapes, largest error %.3f of the tolerance\n", n, worst);
}

static void test_odd_heads(void **state)
{
    (void)state;
    static const int64_t dims[] = { 1, 2, 5, 17, 48, 65, 96, 255, 256 };
    for (size_t d = 0; d < sizeof dims / sizeof *dims; d++) {
        sizes s = { 1, 41, 3, 1, dims[d], (int)(d % 2), 0 };
        check_against_formula(&s, 1);
    }
}

/* More keys than one block: 512 up to 64 elements a head, 256 up to 128, 128 beyond. */
static void test_long_sequences(void **state)
{
    (void)state;
    static const sizes all[] = { { 1, 1500, 2, 1, 8, 1, 0 },
                                 { 1, 1100, 1, 1, 64, 0, 0 },
                                 { 1, 513, 4, 2, 64, 1, 0 },
                                 { 2, 600, 1, 1, 128, 1, 0 },
                                 { 1, 300, 1, 1, 200, 0, 0 } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) check_against_formula(&all[i], 1);
}

/* Scores of thousands: exp of them overflows unless the maximum is taken off first, also from block to block. */
static void test_large_scores(void **state)
{
    (void)state;
    static const sizes all[] = {
        { 1, 97, 2, 1, 64, 1, 0 }, { 1, 700, 1, 1, 24, 1, 0 }, { 1, 200, 1, 1, 128, 0, 0 }, { 1, 700, 2, 1, 16, 1, 90 }
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) check_against_formula(&all[i], 30);
}

/* Windows of one key, inside and across blocks of 32 queries and of 512, 256 or 128 keys, and as long as the sequence.
 */
static void test_windows(void **state)
{
    (void)state;
    static const int64_t windows[] = { 1, 2, 7, 31, 32, 33, 64, 65, 96, 97, 200 };
    for (size_t k = 0; k < sizeof windows / sizeof *windows; k++) {
        sizes a = { 1, 97, 4, 2, 16, 1, windows[k] }, b = { 2, 33, 1, 1, 40, 1, windows[k] };
        check_against_formula(&a, 1);
        check_against_formula(&b, 1);
    }
    static const sizes all[] = { { 1, 1500, 2, 1, 8, 1, 1 },     { 1, 1500, 2, 1, 8, 1, 511 },
                                 { 1, 1500, 1, 1, 8, 1, 513 },   { 1, 1100, 1, 1, 64, 1, 40 },
                                 { 2, 600, 1, 1, 128, 1, 257 },  { 1, 300, 2, 1, 200, 1, 129 },
                                 { 1, 1500, 1, 1, 16, 1, 5000 }, { 1, 1300, 4, 1, 8, 1, 64 } };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) check_against_formula(&all[i], 1);
}

/* A key that has left the window changes nothing; a window of the whole sequence gives the bits of none. */
static void test_window_bits(void **state)
{
    (void)state;
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

static const sizes shapes_for_bits[] = { { 1, 1, 1, 1, 8, 1, 0 },       { 1, 65, 2, 2, 24, 1, 0 },
                                         { 1, 200, 4, 1, 64, 1, 0 },    { 3, 97, 2, 1, 80, 0, 0 },
                                         { 1, 1500, 1, 1, 16, 1, 0 },   { 1, 1100, 3, 3, 64, 0, 0 },
                                         { 2, 600, 4, 2, 128, 1, 0 },   { 1, 1100, 4, 1, 256, 1, 0 },
                                         { 2, 1300, 2, 1, 32, 1, 100 }, { 1, 900, 4, 1, 128, 1, 300 } };
enum { N_BITS = sizeof shapes_for_bits / sizeof *shapes_for_bits };

/* The number of threads also decides whether the backward kernel goes over the scores once or twice. */
static void test_threads(void **state)
{
    (void)state;
    family f[3];
    int    n = families(f);
    for (int i = 0; i < N_BITS; i++) {
        const sizes *s = &shapes_for_bits[i];
        tensors      given = inputs(s, 1);
        for (int k = 0; k < n; k++) {
            if (k == n - 1 && n > 1 && too_slow(s)) continue;
            tensors one = run_both(&f[k], s, 1, &given);
            for (int threads = 2; threads <= 4; threads++) {
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

static void test_instruction_sets(void **state)
{
    (void)state;
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

static void test_sequence_alone(void **state)
{
    (void)state;
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

static void test_future_token(void **state)
{
    (void)state;
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

/* bfloat16 is float32 on the same rounded inputs, rounded once: equal bits. The long ones keep
 * lower halves of dQ in scratch, 1 MB at most; the last one needs more and goes over the scores twice. */
static void test_bfloat16(void **state)
{
    (void)state;
    static const sizes all[] = { { 2, 33, 2, 1, 8, 1, 0 },      { 1, 97, 4, 2, 80, 0, 0 },
                                 { 1, 200, 2, 2, 64, 1, 0 },    { 2, 700, 2, 1, 24, 1, 0 },
                                 { 2, 520, 4, 1, 128, 0, 0 },   { 2, 520, 8, 1, 128, 1, 0 },
                                 { 2, 700, 8, 1, 128, 1, 300 }, { 1, 1100, 2, 1, 24, 1, 520 } };
    family             f[3];
    int                n = families(f);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        for (int k = 0; k < n; k++) {
            const sizes *s = &all[i];
            if (k == n - 1 && n > 1 && too_slow(s)) continue;
            tensors x = inputs(s, 1), y = { 0 };
            int64_t nq = qkv_elements(s), no = o_elements(s);
            y.qkv = guarded((size_t)nq * 2, 0), y.dout = guarded((size_t)no * 2, 0);
            for (int64_t e = 0; e < nq; e++)
                ((float *)x.qkv)[e] = tm_bf16_value(((uint16_t *)y.qkv)[e] = tm_bf16_round(((float *)x.qkv)[e]));
            for (int64_t e = 0; e < no; e++)
                ((float *)x.dout)[e] = tm_bf16_value(((uint16_t *)y.dout)[e] = tm_bf16_round(((float *)x.dout)[e]));
            forward(f[k].forward, s, TM_F32, 2, &x);
            forward(f[k].forward, s, TM_BF16, 2, &y);
            expect_same("lse of bfloat16", s, x.lse, y.lse, (size_t)(s->B * s->H * s->T) * 4);
            for (int64_t e = 0; e < no; e++) {
                assert_int_equal(tm_bf16_round(((float *)x.o)[e]), ((uint16_t *)y.o)[e]);
                ((float *)x.o)[e] = tm_bf16_value(((uint16_t *)y.o)[e]);
            }
            backward(f[k].backward, s, TM_F32, 2, &x);
            backward(f[k].backward, s, TM_BF16, 2, &y);
            for (int64_t e = 0; e < nq; e++)
                assert_int_equal(tm_bf16_round(((float *)x.dqkv)[e]), ((uint16_t *)y.dqkv)[e]);
            release_all(&x);
            release_all(&y);
        }
}

static void test_workspace_and_refusals(void **state)
{
    (void)state;
    family f[3];
    families(f);
    for (int bf16 = 0; bf16 < 2; bf16++)
        for (int64_t T = 1; T < 200000; T = T * 3 + 1) {
            sizes             s = { 2, T, 32, 8, 128, 1, 0 };
            tm_attention_attr attr = attr_of(&s);
            tm_dtype          dtype = bf16 ? TM_BF16 : TM_F32;
            tm_view qkv = { dtype, tm_shape_2(2 * T, 48 * 128), NULL, 0 }, o = { dtype, tm_shape_2(2 * T, 4096), NULL, 0 };
            tm_view lse = { TM_F32, tm_shape_3(2, 32, T), NULL, 0 };
            tm_call a = empty_call(&attr, 4), g = a;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_formula),        cmocka_unit_test(test_odd_heads),
        cmocka_unit_test(test_long_sequences), cmocka_unit_test(test_large_scores),
        cmocka_unit_test(test_threads),        cmocka_unit_test(test_instruction_sets),
        cmocka_unit_test(test_sequence_alone), cmocka_unit_test(test_future_token),
        cmocka_unit_test(test_bfloat16),       cmocka_unit_test(test_workspace_and_refusals),
        cmocka_unit_test(test_windows),        cmocka_unit_test(test_window_bits),
    };
    return cmocka_run_group_tests_name("device: attention kernels", tests, NULL, NULL);
}
