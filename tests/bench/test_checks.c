/* SPDX-License-Identifier: Apache-2.0 */
/* How far a result may be from the right one: in every kind of result an error is planted, which the checks of
 * attention and of matrix products must find, with its place, the right value and a bound that is not too wide. */
#include "base/random.h"
#include "apps/bench/attention_check.h"
#include "apps/bench/engine.h"
#include "device/device.h"
#include "graph/value.h"
#include "op/fused.h"
#include "op/kernel.h"
#include "support/training.h"

#include "support/test.h"

static void *memory_of(int64_t elements, tm_dtype dtype)
{
    void *p = calloc((size_t)elements, tm_dtype_bytes(dtype));
    assert_non_null(p);
    return p;
}

/* --- attention ---------------------------------------------------------------------------------------------------- */

typedef struct {
    tm_attention_tensors t;
    int64_t              qkv, o, lse; /* elements */
} bed;

static void run_reference(tm_attention_tensors *t, bool forward)
{
    tm_device *device = test_device_open("reference", 1);
    int64_t    rows = t->batch * t->attr.seq_q, width = (t->attr.heads + 2 * t->attr.kv_heads) * t->attr.dim_qk;
    tm_view    qkv = { TM_F64, tm_shape_2(rows, width), t->qkv, 0 }, dqkv = { TM_F64, qkv.shape, t->dqkv, 0 };
    tm_view    o = { TM_F64, tm_shape_2(rows, t->attr.heads * t->attr.dim_qk), t->o, 0 };
    tm_view    d_o = { TM_F64, o.shape, t->d_o, 0 };
    tm_view    lse = { TM_F64, tm_shape_3(t->batch, t->attr.heads, t->attr.seq_q), t->lse, 0 };
    tm_call    call = { .op = forward ? &tm_op_attention : &tm_op_attention_grad, .attr = &t->attr, .threads = 1 };
    if (forward)
        call.out[0] = o, call.out[1] = lse;
    else
        call.in[0] = d_o, call.in[4] = o, call.in[5] = lse, tm_fused_qkv(&t->attr, dqkv, call.out);
    tm_fused_qkv(&t->attr, qkv, &call.in[forward ? 0 : 1]);
    for (int k = forward ? 3 : 6; k < TM_MAX_IN; k++) call.in[k].shape.rank = -1;
    for (int k = forward ? 2 : 3; k < TM_MAX_OUT; k++) call.out[k].shape.rank = -1;
    tm_chooser       chooser = tm_device_chooser(device);
    const tm_kernel *kernel = chooser.choose(chooser.context, &call, NULL);
    call.workspace_bytes = kernel->workspace ? kernel->workspace(&call) : 0;
    call.workspace = malloc(call.workspace_bytes + 1);
    kernel->run(&call);
    free(call.workspace);
    tm_device_close(device);
}

/* The elements in another format. */
static void *stored_as(tm_dtype dtype, void *exact, int64_t n)
{
    void *p = memory_of(n, dtype);
    for (int64_t i = 0; i < n; i++) tm_value_set(p, dtype, i, tm_value_get(exact, TM_F64, i));
    free(exact);
    return p;
}

/* Inputs as the format holds them, results in float64, rounded to it. */
static bed make(const tm_attention_attr *attr, int64_t batch, tm_dtype dtype)
{
    bed     b = { .t = { .attr = *attr, .batch = batch, .dtype = TM_F64, .lse_dtype = TM_F64 } };
    int64_t rows = batch * attr->seq_q;
    b.qkv = rows * (attr->heads + 2 * attr->kv_heads) * attr->dim_qk;
    b.o = rows * attr->heads * attr->dim_qk;
    b.lse = rows * attr->heads;
    b.t.qkv = memory_of(b.qkv, TM_F64), b.t.dqkv = memory_of(b.qkv, TM_F64);
    b.t.o = memory_of(b.o, TM_F64), b.t.d_o = memory_of(b.o, TM_F64), b.t.lse = memory_of(b.lse, TM_F64);
    uint16_t rounded;
    float    single;
    for (int64_t i = 0; i < b.qkv + b.o; i++) {
        double value = tm_random_normal(3, 1, (uint64_t)i);
        void  *as = dtype == TM_BF16 ? (void *)&rounded : (void *)&single;
        tm_value_set(as, dtype, 0, value);
        tm_value_set(i < b.qkv ? b.t.qkv : b.t.d_o, TM_F64, i < b.qkv ? i : i - b.qkv, tm_value_get(as, dtype, 0));
    }
    run_reference(&b.t, true);
    /* The way back reads results as they are stored. */
    for (int64_t i = 0; i < b.o + b.lse; i++) {
        void    *of = i < b.o ? b.t.o : b.t.lse;
        int64_t  at = i < b.o ? i : i - b.o;
        tm_dtype as = i < b.o ? dtype : TM_F32;
        void    *stored = as == TM_BF16 ? (void *)&rounded : (void *)&single;
        tm_value_set(stored, as, 0, tm_value_get(of, TM_F64, at));
        tm_value_set(of, TM_F64, at, tm_value_get(stored, as, 0));
    }
    run_reference(&b.t, false);
    b.t.qkv = stored_as(dtype, b.t.qkv, b.qkv), b.t.dqkv = stored_as(dtype, b.t.dqkv, b.qkv);
    b.t.o = stored_as(dtype, b.t.o, b.o), b.t.d_o = stored_as(dtype, b.t.d_o, b.o);
    b.t.lse = stored_as(TM_F32, b.t.lse, b.lse);
    b.t.dtype = dtype, b.t.lse_dtype = TM_F32;
    return b;
}

/* The check of what is there: the worst element is outside of its bound by the factor that is told, and the result is
 * right where that is 1 at most. */
static tm_attention_check judged(const bed *b)
{
    tm_attention_check c;
    tm_attention_verify(&b->t, 5, &c);
    if (c.worst < 1e-300) return c; /* all are exact */
    double factor = fabs(c.found - c.wanted) / c.bound;
    if (!(fabs(c.worst - factor) <= 1e-9 * factor) || c.correct != (c.worst <= 1) || !(c.bound > 0) || c.rows <= 0)
        fail_msg("%s: worst %g, found %.9g, wanted %.9g, bound %g", c.what, c.worst, c.found, c.wanted, c.bound);
    return c;
}

#define SELF(T, H, J, D) .seq_q = T, .seq_k = T, .heads = H, .kv_heads = J, .dim_qk = D, .dim_v = D
TEST(errors_in_attention_are_found)
{
    static const tm_attention_attr attrs[] = {
        { SELF(1, 1, 1, 2), .scale = 1, .causal = 1 },
        { SELF(19, 4, 2, 6), .scale = 0.5, .causal = 1 },
        { SELF(11, 3, 1, 5), .scale = 0.158, .causal = 0 },
        { SELF(40, 2, 2, 8), .scale = 0.25, .causal = 1, .window = 7 },
    };
    for (int i = 0; i < 8; i++) {
        const tm_attention_attr *a = &attrs[i / 2];
        tm_dtype                 dtype = i % 2 ? TM_BF16 : TM_F32;
        bed                      b = make(a, 2, dtype);
        int64_t                  rows = 2 * a->seq_q, W = b.qkv / rows, D = a->dim_qk;
        /* Rounded once, a result is right; of float32 it has some of the bound left. */
        const double       u = dtype == TM_BF16 ? 0x1p-8 : 0x1p-24;
        tm_attention_check whole = judged(&b);
        assert_true(whole.correct && whole.worst < (dtype == TM_BF16 ? 1.001 : 0.7));
        struct {
            const char *what;
            void       *data;
            int64_t     at;
            tm_dtype    dtype;
        } plants[] = {
            { "o", b.t.o, 0, dtype },
            { "o", b.t.o, b.o - 1, dtype },
            { "lse", b.t.lse, b.lse - 1, TM_F32 },
            { "dq", b.t.dqkv, (rows - 1) * W + a->heads * D - 1, dtype },
            { "dq", b.t.dqkv, 0, dtype },
            { "dk", b.t.dqkv, (rows - 1) * W + (a->heads + a->kv_heads) * D - 1, dtype },
            { "dk", b.t.dqkv, a->heads * D, dtype },
            { "dv", b.t.dqkv, rows * W - 1, dtype },
            { "dv", b.t.dqkv, (a->heads + a->kv_heads) * D, dtype },
        };
        for (size_t k = 0; k < sizeof plants / sizeof plants[0]; k++) {
            double was = tm_value_get(plants[k].data, plants[k].dtype, plants[k].at);
            tm_value_set(plants[k].data, plants[k].dtype, plants[k].at, was + 16);
            double             planted = tm_value_get(plants[k].data, plants[k].dtype, plants[k].at);
            tm_attention_check far = judged(&b);
            if (far.correct || (plants[k].dtype == dtype && k != 2 && strcmp(far.what, plants[k].what) != 0))
                fail_msg("%s + 16: %s, worst in %s", plants[k].what, far.correct ? "right" : "wrong", far.what);
            if (k == 2) { /* the weights of a query whose lse is wrong are too */
                tm_value_set(plants[k].data, plants[k].dtype, plants[k].at, was);
                continue;
            }
            /* It is the planted one; the right value is what was there before it was rounded; a bound is some
             * roundings. */
            assert_true(fabs(far.found - planted) < 1e-12);
            if (!(fabs(far.wanted - was) <= far.bound))
                fail_msg("%s: wanted %.12g, was %.12g", far.what, far.wanted, was);
            if (!(far.bound >= u * fabs(far.wanted) && far.bound <= 400 * u * (1 + fabs(far.wanted))))
                fail_msg("%s: bound %g of %g", far.what, far.bound, far.wanted);
            tm_value_set(plants[k].data, plants[k].dtype, plants[k].at, far.wanted + 2.5 * far.bound);
            assert_false(judged(&b).correct);
            if (dtype == TM_F32)
                tm_value_set(plants[k].data, plants[k].dtype, plants[k].at, far.wanted + 0.5 * far.bound);
            if (dtype == TM_F32 && k != 0 && k != 1) assert_true(judged(&b).correct);
            tm_value_set(plants[k].data, plants[k].dtype, plants[k].at, was);
        }
        free(b.t.qkv), free(b.t.dqkv), free(b.t.o), free(b.t.d_o), free(b.t.lse);
    }
}

/* --- products ----------------------------------------------------------------------------------------------------- */

/* The same by another way: the sum of one element in long double, and what rounding may do to k terms: (1 + u)^k - 1,
 * or what is likely of independent roundings (8 sqrt(k) of them), then of the result's format. */
static void element(const tm_operands *o, int64_t i, int64_t j, double *wanted, double *bound)
{
    const tm_product *p = &o->product;
    const void       *a = tm_operands_a(o, 0), *b = tm_operands_b(o, 0);
    long double       sum = 0, size = 0;
    const double      u = 0x1p-24, k = (double)p->k;
    for (int64_t t = 0; t < p->k; t++) {
        double x = tm_value_get(a, p->dtype, p->trans_a ? t * p->m + i : i * p->k + t);
        double y = tm_value_get(b, p->dtype, p->trans_b ? j * p->k + t : t * p->n + j);
        sum += (long double)x * (long double)y;
        size += fabsl((long double)x * (long double)y);
    }
    double certain = k * u / (1 - k * u), likely = expm1(8 * sqrt(k) * u + k * u * u / (1 - u));
    *wanted = (double)sum;
    *bound = fmin(certain, likely) * (double)size;
    if (p->c_dtype == TM_BF16) *bound += 0x1p-8 * (fabs(*wanted) + *bound);
    if (p->c_dtype == TM_F16) *bound += 0x1p-11 * (fabs(*wanted) + *bound) + 0x1p-25;
}

static tm_product_check product_judged(const tm_operands *o)
{
    tm_product_check c;
    double           wanted, bound;
    tm_product_verify(o, 0, 7, 1, &c);
    assert_int_equal(c.correct, c.worst <= 1);
    assert_true(c.rows >= 1 && c.rows <= 3 && c.columns >= 1 && c.columns <= 3);
    if (isinf(c.worst)) return c;
    element(o, c.row, c.column, &wanted, &bound);
    if (!(fabs(c.wanted - wanted) <= 1e-10 * (1 + fabs(wanted))) || !(fabs(c.bound / bound - 1) <= 1e-6))
        fail_msg("[%lld][%lld]: wanted %.12g within %.9g, by another way %.12g within %.9g", (long long)c.row,
                 (long long)c.column, c.wanted, c.bound, wanted, bound);
    assert_true(fabs(c.found - tm_value_get(tm_operands_c(o, 0), o->product.c_dtype, c.row * o->product.n + c.column)) <
                1e-12);
    assert_true(fabs(c.worst - fabs(c.found - c.wanted) / c.bound) <= 1e-9 * c.worst);
    return c;
}

TEST(errors_in_products_are_found)
{
    static const tm_product shapes[] = {
        { .m = 1, .n = 2, .k = 1, .dtype = TM_F32, .c_dtype = TM_F32 },
        { .m = 7, .n = 301, .k = 33, .dtype = TM_F32, .c_dtype = TM_F32, .trans_a = true },
        { .m = 300, .n = 5, .k = 1024, .dtype = TM_BF16, .c_dtype = TM_F32, .trans_b = true },
        { .m = 9, .n = 20, .k = 70, .dtype = TM_BF16, .c_dtype = TM_BF16, .trans_a = true, .trans_b = true },
        { .m = 1, .n = 1, .k = 20000, .dtype = TM_F32, .c_dtype = TM_BF16 },
        { .m = 4, .n = 30, .k = 100, .dtype = TM_F16, .c_dtype = TM_F32, .trans_b = true },
        { .m = 7, .n = 30, .k = 200, .dtype = TM_F16, .c_dtype = TM_F16, .trans_a = true },
    };
    tm_bench  bench = { .seed = 7, .threads = 1, .device = test_device_open("cpu", 1) };
    tm_engine reference;
    tm_engine_reference(&bench, &reference);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const tm_product *p = &shapes[i];
        tm_operands       o;
        tm_operands_plan(&o, p, false);
        assert_int_equal(tm_operands_fill(&o, &bench, NULL), TM_OK);
        assert_true(isinf(product_judged(&o).worst)); /* not computed */
        reference.run(&reference, &o, 0);
        tm_product_check whole = product_judged(&o);
        assert_true(whole.correct);
        void         *c = tm_operands_c(&o, 0);
        const int64_t places[][2] = {
            { 0, p->n / 2 }, { p->m - 1, p->n / 2 }, { p->m / 2, p->n - 1 }, { p->m / 2, 0 }
        };
        for (int k = 0; k < 4; k++) {
            int64_t at = places[k][0] * p->n + places[k][1];
            double  was = tm_value_get(c, p->c_dtype, at);
            tm_value_set(c, p->c_dtype, at, was + 16);
            tm_product_check far = product_judged(&o);
            assert_true(!far.correct && far.row == places[k][0] && far.column == places[k][1]);
            tm_value_set(c, p->c_dtype, at, far.wanted + 2.5 * far.bound);
            assert_false(product_judged(&o).correct);
            tm_value_set(c, p->c_dtype, at, was);
        }
        tm_value_set(c, p->c_dtype, p->m * p->n - 1, (double)INFINITY);
        tm_product_check endless = product_judged(&o);
        assert_true(isinf(endless.worst) && isinf(endless.found) && endless.row == p->m - 1 &&
                    endless.column == p->n - 1);
        tm_operands_release(&o, &bench);
        assert_null(o.memory);
    }
    tm_device_close(bench.device);
}
