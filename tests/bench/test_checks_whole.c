/* SPDX-License-Identifier: Apache-2.0 */
/* How far a result may be from the right one: for every kind of result, with an error planted in it, what the checks of
 * attention and of matrix products say, bounds included (tests/golden/whole-bench-checks.txt). */
#include "base/random.h"
#include "bench/attention_check.h"
#include "bench/engine.h"
#include "device/device.h"
#include "graph/value.h"
#include "op/fused.h"
#include "op/kernel.h"
#include "support/training.h"
#include "support/whole.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

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
    run_reference(&b.t, false);
    b.t.qkv = stored_as(dtype, b.t.qkv, b.qkv), b.t.dqkv = stored_as(dtype, b.t.dqkv, b.qkv);
    b.t.o = stored_as(dtype, b.t.o, b.o), b.t.d_o = stored_as(dtype, b.t.d_o, b.o);
    b.t.lse = stored_as(TM_F32, b.t.lse, b.lse);
    b.t.dtype = dtype, b.t.lse_dtype = TM_F32;
    return b;
}

/* Returns the bound. */
static double tell_attention(const bed *b, const char *name, tm_text *out)
{
    tm_attention_check c;
    tm_attention_verify(&b->t, 5, &c);
    tm_text_printf(out, "  %s: %s, worst %.6g in %s, found %.7g, wanted %.7g, bound %.6g, %lld rows\n", name,
                   c.correct ? "right" : "wrong", c.worst, c.what, c.found, c.wanted, c.bound, (long long)c.rows);
    return c.bound;
}

#define SELF(T, H, J, D) .seq_q = T, .seq_k = T, .heads = H, .kv_heads = J, .dim_qk = D, .dim_v = D
static void attention(tm_text *out)
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
        tm_text_printf(out, "== attention %d, %s\n", i / 2, tm_dtype_name(dtype));
        (void)tell_attention(&b, "as it is", out);
        struct {
            const char *what;
            void       *data;
            int64_t     at;
            tm_dtype    dtype;
        } plants[] = {
            { "o", b.t.o, 0, dtype },
            { "the last o", b.t.o, b.o - 1, dtype },
            { "lse", b.t.lse, b.lse - 1, TM_F32 },
            { "dq", b.t.dqkv, (rows - 1) * W + a->heads * D - 1, dtype },
            { "the first dq", b.t.dqkv, 0, dtype },
            { "dk", b.t.dqkv, (rows - 1) * W + (a->heads + a->kv_heads) * D - 1, dtype },
            { "the first dk", b.t.dqkv, a->heads * D, dtype },
            { "dv", b.t.dqkv, rows * W - 1, dtype },
            { "the first dv", b.t.dqkv, (a->heads + a->kv_heads) * D, dtype },
        };
        for (size_t k = 0; k < sizeof plants / sizeof plants[0]; k++) {
            double was = tm_value_get(plants[k].data, plants[k].dtype, plants[k].at);
            tm_value_set(plants[k].data, plants[k].dtype, plants[k].at, was + 16);
            double bound = tell_attention(&b, plants[k].what, out);
            tm_value_set(plants[k].data, plants[k].dtype, plants[k].at, was + 1.5 * bound);
            (void)tell_attention(&b, "half as much again as is allowed", out);
            tm_value_set(plants[k].data, plants[k].dtype, plants[k].at, was);
        }
        free(b.t.qkv), free(b.t.dqkv), free(b.t.o), free(b.t.d_o), free(b.t.lse);
    }
}

/* --- products ----------------------------------------------------------------------------------------------------- */

static double tell_product(const tm_operands *o, const char *name, tm_text *out)
{
    tm_product_check c;
    tm_product_verify(o, 0, 7, 1, &c);
    tm_text_printf(
        out, "  %s: %s, worst %.6g at [%lld][%lld], found %.7g, wanted %.7g, bound %.6g, %lld rows, %lld columns\n",
        name, c.correct ? "right" : "wrong", c.worst, (long long)c.row, (long long)c.column, c.found, c.wanted, c.bound,
        (long long)c.rows, (long long)c.columns);
    return c.bound;
}

static void products(tm_text *out)
{
    static const tm_product shapes[] = {
        { .m = 1, .n = 2, .k = 1, .dtype = TM_F32, .c_dtype = TM_F32 },
        { .m = 7, .n = 301, .k = 33, .dtype = TM_F32, .c_dtype = TM_F32, .trans_a = true },
        { .m = 300, .n = 5, .k = 4096, .dtype = TM_BF16, .c_dtype = TM_F32, .trans_b = true },
        { .m = 9, .n = 20, .k = 70, .dtype = TM_BF16, .c_dtype = TM_BF16, .trans_a = true, .trans_b = true },
        { .m = 1, .n = 1, .k = 70000, .dtype = TM_F32, .c_dtype = TM_BF16 },
    };
    tm_bench  bench = { .seed = 7, .threads = 1, .device = test_device_open("cpu", 1) };
    tm_engine reference;
    tm_engine_reference(&bench, &reference);
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const tm_product *p = &shapes[i];
        tm_operands       o;
        tm_operands_plan(&o, p, false);
        tm_text_printf(out, "== %lldx%lldx%lld: %zu + %zu + %zu = %zu bytes, %lld set, strides %lld %lld, %.9g s\n",
                       (long long)p->m, (long long)p->n, (long long)p->k, o.a_bytes, o.b_bytes, o.c_bytes, o.bytes,
                       (long long)o.sets, (long long)tm_product_lda(p), (long long)tm_product_ldb(p),
                       tm_product_verify_seconds(p, 3));
        assert_int_equal(tm_operands_fill(&o, &bench, NULL), TM_OK);
        tell_product(&o, "not computed", out);
        reference.run(&reference, &o, 0);
        tell_product(&o, "as it is", out);
        void         *c = tm_operands_c(&o, 0);
        const int64_t places[][2] = {
            { 0, p->n / 2 }, { p->m - 1, p->n / 2 }, { p->m / 2, p->n - 1 }, { p->m / 2, 0 }
        };
        for (int k = 0; k < 4; k++) {
            int64_t at = places[k][0] * p->n + places[k][1];
            double  was = tm_value_get(c, p->c_dtype, at);
            tm_value_set(c, p->c_dtype, at, was + 16);
            double bound = tell_product(&o, "sixteen more", out);
            tm_value_set(c, p->c_dtype, at, was + 1.5 * bound);
            tell_product(&o, "half as much again as is allowed", out);
            tm_value_set(c, p->c_dtype, at, was);
        }
        tm_value_set(c, p->c_dtype, p->m * p->n - 1, (double)INFINITY);
        tell_product(&o, "without bounds", out);
        tm_operands_release(&o, &bench);
        assert_null(o.memory);
    }
    tm_device_close(bench.device);
}

static void checks_say_all(void **state)
{
    (void)state;
    tm_text out = { 0 };
    attention(&out);
    products(&out);
    whole_is("tests/golden/whole-bench-checks.txt", &out);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(checks_say_all) };

TM_TESTS(tests, NULL, NULL)
