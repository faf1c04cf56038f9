/* SPDX-License-Identifier: Apache-2.0 */
/* The check of the attention benchmark: right results of every kind pass, planted wrong ones do not. */
#include "base/random.h"
#include "bench/attention_check.h"
#include "device/device.h"
#include "graph/value.h"
#include "op/fused.h"
#include "op/kernel.h"

#include "../support/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { FORWARD, BACKWARD };

static void *memory_of(int64_t elements, tm_dtype dtype)
{
    void *p = calloc((size_t)elements, tm_dtype_bytes(dtype));
    assert_non_null(p);
    return p;
}

static void fill(void *data, tm_dtype dtype, int64_t n, uint64_t stream)
{
    for (int64_t i = 0; i < n; i++) tm_value_set(data, dtype, i, tm_random_normal(3, stream, (uint64_t)i));
}

static int64_t qkv_elements(const tm_attention_tensors *t)
{
    return t->batch * t->attr.seq_q * (t->attr.heads + 2 * t->attr.kv_heads) * t->attr.dim_qk;
}
static int64_t o_elements(const tm_attention_tensors *t)
{
    return t->batch * t->attr.seq_q * t->attr.heads * t->attr.dim_qk;
}

static void run(const tm_device *device, int direction, const tm_attention_tensors *t)
{
    const tm_op *op = direction == FORWARD ? &tm_op_attention : &tm_op_attention_grad;
    int64_t      rows = t->batch * t->attr.seq_q;
    tm_view      qkv = { t->dtype, tm_shape_2(rows, qkv_elements(t) / rows), t->qkv, 0 }, dqkv = qkv;
    tm_view      o = { t->dtype, tm_shape_2(rows, o_elements(t) / rows), t->o, 0 }, d_o = o;
    tm_view      lse = { t->lse_dtype, tm_shape_3(t->batch, t->attr.heads, t->attr.seq_q), t->lse, 0 };
    dqkv.data = t->dqkv;
    d_o.data = t->d_o;
    tm_call call = { .op = op, .attr = &t->attr, .threads = 2 };
    if (direction == FORWARD)
        call.out[0] = o, call.out[1] = lse;
    else
        call.in[0] = d_o, call.in[4] = o, call.in[5] = lse, tm_fused_qkv(&t->attr, dqkv, call.out);
    tm_fused_qkv(&t->attr, qkv, &call.in[direction == FORWARD ? 0 : 1]);
    for (int k = direction == FORWARD ? 3 : 6; k < TM_MAX_IN; k++) call.in[k].shape.rank = -1;
    for (int k = direction == FORWARD ? 2 : 3; k < TM_MAX_OUT; k++) call.out[k].shape.rank = -1;
    tm_chooser       chooser = tm_device_chooser(device);
    const tm_kernel *kernel = chooser.choose(chooser.context, &call, NULL);
    call.workspace_bytes = kernel->workspace ? kernel->workspace(&call) : 0;
    call.workspace = malloc(call.workspace_bytes + 1);
    kernel->run(&call);
    free(call.workspace);
}

static tm_attention_tensors make(const tm_attention_attr *attr, int64_t batch, const char *device_name, tm_dtype dtype)
{
    tm_attention_tensors t = { .attr = *attr, .batch = batch, .dtype = dtype };
    tm_device           *device = test_device_open(device_name, 2);
    t.lse_dtype = dtype == TM_F64 ? TM_F64 : TM_F32;
    t.qkv = memory_of(qkv_elements(&t), dtype), t.dqkv = memory_of(qkv_elements(&t), dtype);
    t.o = memory_of(o_elements(&t), dtype), t.d_o = memory_of(o_elements(&t), dtype);
    t.lse = memory_of(batch * attr->seq_q * attr->heads, t.lse_dtype);
    fill(t.qkv, dtype, qkv_elements(&t), 1);
    fill(t.d_o, dtype, o_elements(&t), 2);
    run(device, FORWARD, &t);
    run(device, BACKWARD, &t);
    tm_device_close(device);
    return t;
}

static void release(tm_attention_tensors *t)
{
    free(t->qkv), free(t->dqkv), free(t->o), free(t->d_o), free(t->lse);
}

static tm_attention_check verify(const tm_attention_tensors *t)
{
    tm_attention_check check;
    tm_attention_verify(t, 5, &check);
    assert_true(check.rows > 0);
    return check;
}

#define SELF(T, H, J, D) .seq_q = T, .seq_k = T, .heads = H, .kv_heads = J, .dim_qk = D, .dim_v = D
static const tm_attention_attr attrs[] = {
    { SELF(1, 1, 1, 1), .scale = 1, .causal = 1 },
    { SELF(100, 4, 2, 16), .scale = 0.25, .causal = 1 },
    { SELF(65, 3, 1, 40), .scale = 0.158, .causal = 0 },
    { SELF(200, 2, 2, 64), .scale = 0.125, .causal = 1, .window = 33 },
};
enum { ATTRS = sizeof attrs / sizeof attrs[0] };

TEST(right_results)
{
    static const struct {
        const char *device;
        tm_dtype    dtype;
    } kinds[] = { { "cpu", TM_F32 }, { "cpu", TM_BF16 }, { "reference", TM_F64 } };
    for (int i = 0; i < ATTRS; i++)
        for (int k = 0; k < 3; k++) {
            tm_attention_tensors t = make(&attrs[i], 2, kinds[k].device, kinds[k].dtype);
            tm_attention_check   check = verify(&t);
            if (!check.correct)
                fail_msg("case %d on %s: %s is %.9g, wanted %.9g within %.3g", i, kinds[k].device, check.what,
                         check.found, check.wanted, check.bound);
            release(&t);
        }
}

/* A relative error of 1e-3 in one element of the last row or key, which are always looked at. */
TEST(planted_errors)
{
    tm_attention_tensors t = make(&attrs[1], 2, "cpu", TM_F32);
    int64_t              rows = t.batch * t.attr.seq_q, W = qkv_elements(&t) / rows, D = t.attr.dim_qk;
    struct {
        const char *what;
        float      *data;
        int64_t     at;
    } plants[] = {
        { "o", t.o, o_elements(&t) - 1 },
        { "lse", t.lse, rows * t.attr.heads - 1 },
        { "dq", t.dqkv, (rows - 1) * W + t.attr.heads * D - 1 },
        { "dk", t.dqkv, (rows - 1) * W + (t.attr.heads + t.attr.kv_heads) * D - 2 },
        { "dv", t.dqkv, rows * W - 1 },
    };
    for (size_t i = 0; i < sizeof plants / sizeof plants[0]; i++) {
        float *at = plants[i].data + plants[i].at, was = *at;
        *at = was * 1.001f + 1e-4f;
        tm_attention_check check = verify(&t);
        /* A wrong lse shows in the gradients of its row as well. */
        if (check.correct || (strcmp(plants[i].what, "lse") != 0 && strcmp(check.what, plants[i].what) != 0))
            fail_msg("planted in %s, found in %s, worst %g", plants[i].what, check.correct ? "none" : check.what,
                     check.worst);
        *at = NAN;
        check = verify(&t);
        assert_false(check.correct);
        assert_true(isinf(check.worst));
        *at = was;
    }
    assert_true(verify(&t).correct);
    release(&t);
}

/* Other masks: one key more or less is not taken for a rounding error. */
TEST(wrong_masks)
{
    tm_attention_tensors t = make(&attrs[3], 1, "cpu", TM_BF16);
    t.attr.window++;
    assert_false(verify(&t).correct);
    t.attr.window = 0;
    assert_false(verify(&t).correct);
    t.attr.causal = 0;
    assert_false(verify(&t).correct);
    release(&t);
}
