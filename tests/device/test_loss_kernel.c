/* SPDX-License-Identifier: Apache-2.0 */
/* What test_kernels.c does not see of the loss kernels: rows in chunks and micro-batches give the bits of the whole;
 * extreme and ignored rows. */
#include "base/arena.h"
#include "base/random.h"
#include "device/cpu/simd/kernels.h"
#include "graph/value.h"
#include "op/attrs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

typedef struct {
    const char      *isa;
    const tm_kernel *kernels;
} engine;
enum { MAX_ENGINES = 5, GUARD = 64 };

/* The last two have products of bfloat16 only. */
static int list_engines(engine out[MAX_ENGINES], bool of_bf16)
{
    (void)of_bf16;
    int n = 0;
    out[n++] = (engine){ "base", tm_cpu_loss_base };
#ifdef __x86_64__
    if (tm_cpu_kernel_tables("avx2")) out[n++] = (engine){ "avx2", tm_cpu_loss_avx2 };
    if (tm_cpu_kernel_tables("avx512")) out[n++] = (engine){ "avx512", tm_cpu_loss_avx512 };
    if (of_bf16 && tm_cpu_kernel_tables("avx512_bf16")) out[n++] = (engine){ "avx512_bf16", tm_cpu_loss_avx512_bf16 };
    if (of_bf16 && tm_cpu_kernel_tables("amx")) out[n++] = (engine){ "amx", tm_cpu_loss_amx };
#endif
    return n;
}

static void *numbers(int64_t n, tm_dtype dtype, uint64_t stream, double scale)
{
    void *p = tm_alloc((size_t)n * tm_dtype_bytes(dtype));
    for (int64_t i = 0; i < n; i++) {
        float x = (float)(scale * tm_random_normal(5, stream, (uint64_t)i));
        tm_value_set(p, dtype, i, (double)x);
    }
    return p;
}

typedef struct {
    int64_t  rows, width, classes, chunk; /* N, C, V */
    tm_dtype x, w, dx, dw;
    bool     grad, want_dw, accumulate;
    double   scale, spread; /* of the loss; of the logits */
} setup;
typedef struct {
    setup    s;
    void    *x, *w, *dx, *dw, *dw_before;
    float   *logits;
    int32_t *targets;
    double   scalars[TM_SCALAR_COUNT], loss;
} problem;
static const double loss_before = 3.25;

static problem problem_make(setup s)
{
    problem p = { .s = s };
    p.x = numbers(s.rows * s.width, s.x, 1, s.spread / sqrt((double)s.width));
    p.w = numbers(s.classes * s.width, s.w, 2, 1);
    p.dw_before = numbers(s.classes * s.width, s.dw, 3, 1);
    p.dx = tm_alloc((size_t)(s.rows * s.width) * tm_dtype_bytes(s.dx) + GUARD);
    p.dw = tm_alloc((size_t)(s.classes * s.width) * tm_dtype_bytes(s.dw) + GUARD);
    p.logits = tm_alloc((size_t)(s.chunk * s.classes) * sizeof(float) + GUARD);
    p.targets = tm_alloc((size_t)s.rows * sizeof(int32_t));
    for (int64_t r = 0; r < s.rows; r++)
        p.targets[r] =
            r % 5 == 3 ? TM_IGNORED_TARGET : (int32_t)tm_random_below(5, 4, (uint64_t)r, (uint64_t)s.classes);
    p.scalars[TM_SCALAR_LOSS_SCALE] = s.scale;
    return p;
}
static void problem_free(problem *p)
{
    free(p->x), free(p->w), free(p->dw_before), free(p->dx), free(p->dw), free(p->logits), free(p->targets);
}
static void check_guard(const void *p, size_t bytes)
{
    for (size_t i = 0; i < GUARD; i++) assert_int_equal(((const unsigned char *)p)[bytes + i], 0xff);
}

/* Rows [from, from + n) of the problem as one call. */
static tm_call call_of(problem *p, tm_loss_attr *attr, int64_t from, int64_t n)
{
    const setup *s = &p->s;
    char        *x = (char *)p->x + (size_t)(from * s->width) * tm_dtype_bytes(s->x);
    char        *dx = (char *)p->dx + (size_t)(from * s->width) * tm_dtype_bytes(s->dx);
    tm_call      call = { .attr = attr };
    attr->chunk = s->chunk;
    call.in[0] = (tm_view){ s->x, tm_shape_2(n, s->width), x, 0 };
    call.in[1] = (tm_view){ s->w, tm_shape_2(s->classes, s->width), p->w, 0 };
    call.in[2] = (tm_view){ TM_I32, tm_shape_1(n), p->targets + from, 0 };
    for (int k = 3; k < TM_MAX_IN; k++) call.in[k] = (tm_view){ .shape.rank = -1 };
    if (s->grad) call.in[3] = (tm_view){ TM_F64, tm_shape_1(TM_SCALAR_COUNT), p->scalars, 0 };
    call.out[0] = (tm_view){ .dtype = TM_F64, .data = &p->loss };
    call.out[1] = (tm_view){ s->dx, tm_shape_2(n, s->width), dx, 0 };
    call.out[2] = (tm_view){ s->dw, tm_shape_2(s->classes, s->width), p->dw, 0 };
    if (!s->want_dw || !s->grad) call.out[2] = (tm_view){ .shape.rank = -1 };
    call.out[s->grad ? 3 : 1] = (tm_view){ TM_F32, tm_shape_2(s->chunk, s->classes), p->logits, 0 };
    if (s->accumulate) call.accumulate = s->grad ? 1 | 4 : 1;
    return call;
}
static void reset(problem *p)
{
    const setup *s = &p->s;
    size_t       weights = (size_t)(s->classes * s->width) * tm_dtype_bytes(s->dw);
    memset(p->dx, 0xff, (size_t)(s->rows * s->width) * tm_dtype_bytes(s->dx) + GUARD);
    memset(p->dw, 0xff, weights + GUARD);
    memset(p->logits, 0xff, (size_t)(s->chunk * s->classes) * sizeof(float) + GUARD);
    if (s->accumulate) memcpy(p->dw, p->dw_before, weights);
    p->loss = s->accumulate ? loss_before : (double)NAN;
}
static void run_call(const engine *e, problem *p, tm_call *call, int threads)
{
    const tm_op_id   op = p->s.grad ? TM_OP_linear_cross_entropy_grad : TM_OP_linear_cross_entropy;
    const tm_kernel *kernel = e->kernels;
    while (kernel->name && (kernel->op != op || kernel->refuse(call))) kernel++;
    assert_non_null(kernel->name);
    call->threads = threads;
    size_t         bytes = kernel->workspace(call);
    unsigned char *workspace = tm_alloc(bytes + GUARD);
    memset(workspace, 0xff, bytes + GUARD);
    call->workspace = workspace;
    call->workspace_bytes = bytes;
    kernel->run(call);
    check_guard(workspace, bytes);
    free(workspace);
}
static void run_whole(const engine *e, problem *p, int threads)
{
    tm_loss_attr attr;
    tm_call      call = call_of(p, &attr, 0, p->s.rows);
    reset(p);
    run_call(e, p, &call, threads);
    check_guard(p->dx, (size_t)(p->s.rows * p->s.width) * tm_dtype_bytes(p->s.dx));
    check_guard(p->dw, (size_t)(p->s.classes * p->s.width) * tm_dtype_bytes(p->s.dw));
    check_guard(p->logits, (size_t)(p->s.chunk * p->s.classes) * sizeof(float));
}

/* ---- tests ---- */

typedef struct {
    double loss;
    void  *dx, *dw;
} bits;
static bits bits_of(const problem *p)
{
    size_t dx = (size_t)(p->s.rows * p->s.width) * tm_dtype_bytes(p->s.dx);
    size_t dw = (size_t)(p->s.classes * p->s.width) * tm_dtype_bytes(p->s.dw);
    bits   b = { p->loss, tm_alloc(dx), tm_alloc(dw) };
    memcpy(b.dx, p->dx, dx);
    memcpy(b.dw, p->dw, dw);
    return b;
}
static void check_bits(const problem *p, const bits *b)
{
    assert_memory_equal(&p->loss, &b->loss, sizeof b->loss);
    assert_memory_equal(p->dx, b->dx, (size_t)(p->s.rows * p->s.width) * tm_dtype_bytes(p->s.dx));
    assert_memory_equal(p->dw, b->dw, (size_t)(p->s.classes * p->s.width) * tm_dtype_bytes(p->s.dw));
}
/* 1536 rows at once, in chunks of 512 or 1024, and as micro-batches of 512 and 1024 rows. */
static void check_splits(tm_dtype dtype, int64_t classes)
{
    engine  engines[MAX_ENGINES];
    int     n_engines = list_engines(engines, dtype == TM_BF16);
    setup   s = { .rows = 1536,
                  .width = 24,
                  .classes = classes,
                  .chunk = 1536,
                  .x = dtype,
                  .w = dtype,
                  .dx = TM_F32,
                  .dw = TM_F32,
                  .grad = true,
                  .want_dw = true,
                  .accumulate = true,
                  .scale = 1. / 1536,
                  .spread = 2 };
    problem p = problem_make(s);
    for (int e = 0; e < n_engines; e++) {
        tm_loss_attr attr;
        p.s.chunk = 1536;
        run_whole(&engines[e], &p, 2);
        bits whole = bits_of(&p);
        for (int64_t chunk = 512; chunk <= 1024; chunk += 512) {
            p.s.chunk = chunk;
            run_whole(&engines[e], &p, 2);
            check_bits(&p, &whole);
        }
        reset(&p);
        tm_call first = call_of(&p, &attr, 0, 512), second = call_of(&p, &attr, 512, 1024);
        run_call(&engines[e], &p, &first, 1);
        run_call(&engines[e], &p, &second, 2);
        check_bits(&p, &whole);
        free(whole.dx), free(whole.dw);
    }
    p.s.chunk = 1536;
    problem_free(&p);
}
TEST(test_splits_same_bits)
{
    check_splits(TM_F32, 37);
    check_splits(TM_BF16, 37);
    check_splits(TM_BF16, 1100); /* two slices */
}
/* A logit far above the others: no loss, no gradient. Far below: the loss is the distance. Ignored rows: nothing. */
TEST(test_extremes)
{
    engine  engines[MAX_ENGINES];
    int     n_engines = list_engines(engines, false);
    setup   s = { .rows = 3,
                  .width = 1,
                  .classes = 20,
                  .chunk = 3,
                  .x = TM_F32,
                  .w = TM_F32,
                  .dx = TM_F32,
                  .dw = TM_F32,
                  .grad = true,
                  .want_dw = true,
                  .scale = 1,
                  .spread = 1 };
    problem p = problem_make(s);
    float  *x = p.x, *w = p.w;
    x[0] = 1000, x[1] = -1000, x[2] = 1000;
    for (int t = 0; t < 3 * n_engines; t++) { /* the outlier first, in the middle, and beyond the last full sixteen */
        int          peak = (int[]){ 0, 5, 19 }[t % 3];
        const float *dx = p.dx;
        for (int v = 0; v < 20; v++) w[v] = v == peak ? 1 : 0;
        p.targets[0] = peak, p.targets[1] = peak, p.targets[2] = TM_IGNORED_TARGET;
        run_whole(&engines[t / 3], &p, 1);
        assert_true(fabs(p.loss - (1000 + log(19))) <= 1e-6); /* row 1: 19 logits of 0 beside -1000 */
        assert_true(fabsf(dx[0]) <= 1e-30f && fabsf(dx[1] + 1) <= 1e-6f && dx[2] == 0);
    }
    x[0] = NAN; /* stays visible */
    for (int e = 0; e < n_engines; e++) {
        run_whole(&engines[e], &p, 1);
        assert_true(isnan(p.loss) && isnan(((const float *)p.dx)[0]));
    }
    problem_free(&p);
}
/* With bfloat16 operands the vocabulary is gone through in slices, of 1024 classes: each row's maximum and sum are
 * those of all slices together. */
TEST(slices_count_as_one)
{
    engine  engines[MAX_ENGINES];
    int     n_engines = list_engines(engines, true);
    setup   s = { .rows = 2048,
                  .width = 32,
                  .classes = 1100,
                  .chunk = 1024,
                  .x = TM_BF16,
                  .w = TM_BF16,
                  .dx = TM_BF16,
                  .dw = TM_F32,
                  .want_dw = true,
                  .scale = 1. / 2048,
                  .spread = 3 };
    double  wanted = 0;
    problem p = problem_make(s);
    for (int64_t r = 0; r < s.rows; r++) {
        double sum = 0, aim = 0;
        for (int64_t v = 0; v < s.classes && p.targets[r] != TM_IGNORED_TARGET; v++) {
            double z = 0;
            for (int64_t c = 0; c < s.width; c++)
                z += tm_value_get(p.x, TM_BF16, r * s.width + c) * tm_value_get(p.w, TM_BF16, v * s.width + c);
            sum += exp(z);
            if (v == p.targets[r]) aim = z;
        }
        if (sum > 0) wanted += log(sum) - aim;
    }
    for (int k = 0; k < 2 * n_engines; k++) {
        p.s.grad = k % 2;
        run_whole(&engines[k / 2], &p, 2);
        if (!(fabs(p.loss / wanted - 1) < 1e-5))
            fail_msg("%s: loss %.9g, wanted %.9g", engines[k / 2].isa, p.loss, wanted);
    }
    problem_free(&p);
}

/* A rank has 19 of the classes: targets at both ends of them, one before and one behind, and of no rank at all. */
TEST(targets_at_the_ends_of_a_part)
{
    enum { CLASSES = 19, FIRST = 30, ROWS = 6, PARTS = 3 * 2 };
    static const int32_t   targets[ROWS] = { FIRST - 1,         FIRST,          FIRST + CLASSES - 1, FIRST + CLASSES,
                                             TM_IGNORED_TARGET, FIRST + CLASSES };
    const tm_kernel *const tables[] = { tm_cpu_cross_entropy_base,
#ifdef __x86_64__
                                        tm_cpu_kernel_tables("avx2") ? tm_cpu_cross_entropy_avx2 : NULL,
                                        tm_cpu_kernel_tables("avx512") ? tm_cpu_cross_entropy_avx512 : NULL
#endif
    };
    const tm_vocabulary_attr attr = { .first = FIRST, .rank = 1, .ranks = 2 };
    for (size_t t = 0; t < sizeof tables / sizeof tables[0]; t++) {
        float z[ROWS][CLASSES], e[ROWS * CLASSES + 1], dz[ROWS * CLASSES + 1], parts[PARTS * ROWS], dlosses[ROWS];
        for (int i = 0; i < ROWS * CLASSES; i++) z[i / CLASSES][i % CLASSES] = (float)(i * 7 % 23) / 8 - 1;
        for (int i = 0; i < PARTS * ROWS; i++) parts[i] = 1; /* of the other rank: most, sum and hit */
        for (int r = 0; r < ROWS; r++) dlosses[r] = (float)(r + 1) / 4;
        e[ROWS * CLASSES] = dz[ROWS * CLASSES] = 77;
        for (const tm_kernel *k = tables[t]; k && k->name; k++) {
            tm_call call = { .attr = &attr, .threads = 1 };
            for (int i = 0; i < TM_MAX_IN; i++) call.in[i].shape.rank = -1;
            for (int i = 0; i < TM_MAX_OUT; i++) call.out[i].shape.rank = -1;
            call.in[1] = (tm_view){ .data = (void *)(uintptr_t)targets, .dtype = TM_I32, .shape = tm_shape_1(ROWS) };
            if (k->op == TM_OP_vocabulary_parts) {
                call.in[0] = (tm_view){ .data = z, .dtype = TM_F32, .shape = tm_shape_2(ROWS, CLASSES) };
                call.out[0] = (tm_view){ .data = e, .dtype = TM_F32, .shape = tm_shape_2(ROWS, CLASSES) };
                call.out[1] = (tm_view){ .data = parts + 3 * ROWS, .dtype = TM_F32, .shape = tm_shape_2(3, ROWS) };
            } else if (k->op == TM_OP_vocabulary_loss_grad) { /* behind it in the table */
                call.in[0] = (tm_view){ .data = e, .dtype = TM_F32, .shape = tm_shape_2(ROWS, CLASSES) };
                call.in[2] = (tm_view){ .data = parts, .dtype = TM_F32, .shape = tm_shape_2(PARTS, ROWS) };
                call.in[4] = (tm_view){ .data = dlosses, .dtype = TM_F32, .shape = tm_shape_1(ROWS) };
                call.out[0] = (tm_view){ .data = dz, .dtype = TM_F32, .shape = tm_shape_2(ROWS, CLASSES) };
            } else {
                continue;
            }
            k->run(&call);
        }
        for (int r = 0; r < ROWS && tables[t]; r++) {
            double most = -9, sum = 0;
            int    here = targets[r] - FIRST;
            for (int c = 0; c < CLASSES; c++) most = fmax(most, (double)z[r][c]);
            for (int c = 0; c < CLASSES; c++) sum += exp((double)z[r][c] - most);
            bool counts = here >= 0 && here < CLASSES;
            assert_true(parts[3 * ROWS + r] == (float)most && parts[5 * ROWS + r] == (counts ? z[r][here] : 0));
            assert_true(fabs((double)parts[4 * ROWS + r] / sum - 1) < 1e-5);
            double top = fmax(most, 1), all = exp(1 - top) + sum * exp(most - top), scale = (double)dlosses[r];
            for (int c = 0; c < CLASSES; c++) {
                double share = exp((double)z[r][c] - top) / all, right = scale * (share - (counts && c == here));
                if (targets[r] == TM_IGNORED_TARGET) right = 0;
                if (fabs((double)dz[r * CLASSES + c] - right) > 1e-5) fail_msg("row %d, class %d", r, c);
            }
        }
        assert_true(e[ROWS * CLASSES] == 77 && dz[ROWS * CLASSES] == 77);
    }
}
