/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/attention.c - attention and its gradients in tiles (source/attention.cu). */
#include "device/gpu/gpu.h"

enum { THREADS = 256, MOST = 65535 };

/* Queries and keys of a tile: what it needs of shared memory stays below 48 KiB. */
static int side_of(const tm_attention_attr *attr)
{
    int64_t wide = attr->dim_qk > attr->dim_v ? attr->dim_qk : attr->dim_v;
    return wide <= 64 ? 32 : wide <= 128 ? 16 : 8;
}

static tm_gpu_defines definitions(const tm_attention_attr *attr, tm_dtype x, const tm_view *sinks)
{
    tm_gpu_defines d = { .n = 0 };
    tm_gpu_define_format(&d, "X", x);
    tm_gpu_define_format(&d, "S", tm_view_present(sinks) ? sinks->dtype : TM_F32);
    tm_gpu_define(&d, "QK", attr->dim_qk);
    tm_gpu_define(&d, "VO", attr->dim_v);
    tm_gpu_define(&d, "SIDE", side_of(attr));
    return d;
}

static const char *refuse_shape(const tm_attention_attr *attr, int64_t rows)
{
    if (attr->dim_qk > 256 || attr->dim_v > 256) return "takes heads of up to 256 elements";
    return attr->heads > MOST || rows / attr->seq_q > MOST ? "more sequences or heads than a grid takes" : NULL;
}

static void pass_length(tm_gpu_arguments *a, int64_t value, bool narrow)
{
    if (narrow)
        tm_gpu_pass_int(a, (int)value);
    else
        tm_gpu_pass_i64(a, value);
}

static void pass_shape(tm_gpu_arguments *a, const tm_attention_attr *t, const tm_view *qkv, bool narrow)
{
    pass_length(a, t->seq_q, narrow);
    pass_length(a, t->seq_k, narrow);
    pass_length(a, t->q_offset, narrow);
    tm_gpu_pass_int(a, (int)t->heads);
    tm_gpu_pass_int(a, (int)t->kv_heads);
    tm_gpu_pass_int(a, (int)t->causal);
    pass_length(a, t->window, narrow);
    pass_length(a, t->key0, narrow);
    for (int k = 0; k < 3; k++) pass_length(a, tm_view_ld(&qkv[k]), narrow);
    tm_gpu_pass_float(a, t->scale);
}

static tm_gpu_attention_block block_of(const tm_attention_attr *attr)
{
    return (tm_gpu_attention_block){ .rows = side_of(attr), .threads = THREADS };
}

/* Columns of a matrix may begin anywhere: a plan's are sums of whole heads. */
tm_status tm_gpu_check_places(const tm_view *views, int n, tm_error *err)
{
    for (int k = 0; k < n; k++)
        if ((uintptr_t)views[k].data % 16)
            return tm_fail(err, TM_INTERNAL, "attention: operand %d does not begin at a multiple of 16 bytes", k);
    return TM_OK;
}

/* --- forward
 * ---------------------------------------------------------------------------------------------------------- */

const char *tm_gpu_refuse_attention(const tm_call *call)
{
    const char *why = refuse_shape(call->attr, call->in[0].shape.n[0]);
    for (int k = 0; k < 3 && !why; k++) {
        why = tm_gpu_refuse_strided(&call->in[k]);
        if (!why) why = tm_gpu_refuse_other(&call->in[k], call->out[0].dtype);
    }
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    if (!why) why = tm_gpu_refuse_view(&call->in[4]);
    return why ? why : call->out[1].dtype == TM_F32 ? NULL : "keeps lse in float32";
}

static tm_status prepare(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = definitions(call->attr, call->in[0].dtype, &call->in[4]);
    (void)err;
    tm_gpu_note(device, "attention", tm_gpu_text_attention, &d, "attention", state);
    return TM_OK;
}

tm_status tm_gpu_start_attention(const tm_call *call, tm_gpu_attention_block b, tm_error *err)
{
    const tm_attention_attr *attr = call->attr;
    tm_gpu_arguments         a = { .bytes = 0 };
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->out[k].data);
    for (int k = 0; k < 5; k++) tm_gpu_pass(&a, call->in[k].data);
    pass_shape(&a, attr, call->in, b.narrow);
    return tm_gpu_start(call, 0, (attr->seq_q + b.rows - 1) / b.rows, attr->heads, call->in[0].shape.n[0] / attr->seq_q,
                        b.threads, &a, err);
}

static tm_status launch(const tm_call *call, tm_error *err)
{
    return tm_gpu_start_attention(call, block_of(call->attr), err);
}

/* --- backward
 * --------------------------------------------------------------------------------------------------------- */

/* in: do, q, k, v, o, lse, [first_key], [sinks]; out: dq, dk, dv, [dsinks] */
const char *tm_gpu_refuse_attention_grad(const tm_call *call)
{
    const char *why = refuse_shape(call->attr, call->in[1].shape.n[0]);
    tm_dtype    x = call->in[1].dtype;
    for (int k = 0; k < 5 && !why; k++) {
        why = k >= 1 && k <= 3 ? tm_gpu_refuse_strided(&call->in[k]) : tm_gpu_refuse_view(&call->in[k]);
        if (!why) why = tm_gpu_refuse_other(&call->in[k], x);
    }
    for (int k = 0; k < 3 && !why; k++) why = tm_gpu_refuse_other(&call->out[k], x);
    if (!why && call->in[5].dtype != TM_F32) why = "takes lse in float32";
    if (!why) why = tm_gpu_refuse_view(&call->in[7]);
    if (!why && tm_view_present(&call->out[3])) why = tm_gpu_refuse_other(&call->out[3], call->in[7].dtype);
    return !why && call->accumulate & 7U ? "does not add to what is there" : why;
}

size_t tm_gpu_attention_workspace(const tm_call *call)
{
    return (size_t)tm_shape_elements(call->in[5].shape) * sizeof(float);
}

static tm_status prepare_grad(const void *device, const tm_call *call, void **state, tm_error *err)
{
    static const char *const kernels[] = { [TM_GPU_DELTA] = "attention_delta",
                                           [TM_GPU_QUERIES] = "attention_grad_queries",
                                           [TM_GPU_KEYS] = "attention_grad_keys" };
    tm_gpu_defines           d = definitions(call->attr, call->in[1].dtype, &call->in[7]);
    (void)err;
    for (int k = 0; k < 3; k++) tm_gpu_note(device, "attention", tm_gpu_text_attention, &d, kernels[k], state);
    if (tm_view_present(&call->out[3])) tm_gpu_note_sinks(device, call, state);
    return TM_OK;
}

void tm_gpu_note_sinks(const void *device, const tm_call *call, void **state)
{
    tm_gpu_defines d = definitions(call->attr, call->in[1].dtype, &call->in[7]);
    tm_gpu_note(device, "attention", tm_gpu_text_attention, &d, "attention_grad_sinks", state);
}

tm_status tm_gpu_start_sinks(const tm_call *call, tm_error *err)
{
    const tm_attention_attr *attr = call->attr;
    tm_gpu_arguments         a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[3].data);
    tm_gpu_pass(&a, call->in[7].data);
    tm_gpu_pass(&a, call->in[5].data);
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass_i64(&a, call->in[1].shape.n[0] / attr->seq_q);
    tm_gpu_pass_i64(&a, attr->seq_q);
    tm_gpu_pass_int(&a, (int)attr->heads);
    tm_gpu_pass_int(&a, call->accumulate >> 3 & 1U);
    return tm_gpu_start(call, TM_GPU_SINKS, attr->heads, 1, 1, THREADS, &a, err);
}

tm_status tm_gpu_start_attention_grad(const tm_call *call, int kernel, tm_gpu_attention_block b, tm_error *err)
{
    const tm_attention_attr *attr = call->attr;
    bool                     keys = kernel == TM_GPU_KEYS;
    int64_t                  rows = keys ? attr->seq_k : attr->seq_q;
    tm_gpu_arguments         a = { .shared = b.shared };
    for (int k = keys; k < (keys ? 3 : 1); k++) tm_gpu_pass(&a, call->out[k].data);
    for (int k = 0; k < 4; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass(&a, call->in[5].data);
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass(&a, call->in[6].data);
    for (int k = keys; k < (keys ? 3 : 1); k++) pass_length(&a, tm_view_ld(&call->out[k]), b.narrow);
    pass_shape(&a, attr, &call->in[1], b.narrow);
    return tm_gpu_start(call, kernel, (rows + b.rows - 1) / b.rows, keys ? attr->kv_heads : attr->heads,
                        call->in[1].shape.n[0] / attr->seq_q, b.threads, &a, err);
}

static tm_status launch_grad(const tm_call *call, tm_error *err)
{
    const tm_attention_attr *attr = call->attr;
    int64_t                  batches = call->in[1].shape.n[0] / attr->seq_q;
    tm_gpu_arguments         a = { .bytes = 0 };
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass(&a, call->in[4].data);
    tm_gpu_pass_i64(&a, attr->seq_q);
    TM_TRY(tm_gpu_start(call, TM_GPU_DELTA, (attr->seq_q + THREADS - 1) / THREADS, attr->heads, batches, THREADS, &a,
                        err));
    TM_TRY(tm_gpu_start_attention_grad(call, TM_GPU_QUERIES, block_of(attr), err));
    TM_TRY(tm_gpu_start_attention_grad(call, TM_GPU_KEYS, block_of(attr), err));
    return tm_view_present(&call->out[3]) ? tm_gpu_start_sinks(call, err) : TM_OK;
}

const tm_kernel tm_gpu_attention[] = { { .op = TM_OP_attention,
                                         .name = "attention/tiles",
                                         .refuse = tm_gpu_refuse_attention,
                                         .launch = launch,
                                         .prepare = prepare,
                                         .release = tm_gpu_forget },
                                       { .op = TM_OP_attention_grad,
                                         .name = "attention_grad/tiles",
                                         .refuse = tm_gpu_refuse_attention_grad,
                                         .workspace = tm_gpu_attention_workspace,
                                         .launch = launch_grad,
                                         .prepare = prepare_grad,
                                         .release = tm_gpu_forget },
                                       { .name = NULL } };
