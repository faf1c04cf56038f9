/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/divided.c - what ranks compute that divide matrices or sequences (source/divided.cu): the cross entropy of
 * a part of the vocabulary, rows in the order of ranks or of tokens, and attention over keys that came one set after
 * the other. */
#include "device/gpu/gpu.h"
#include "op/attrs.h"

enum { THREADS = 256 };

static void note(const void *device, tm_dtype x, tm_dtype y, const char *kernel, void **state)
{
    tm_gpu_defines d = { .n = 0 };
    tm_gpu_define_format(&d, "X", x);
    tm_gpu_define_format(&d, "Y", y);
    tm_gpu_note(device, "divided", tm_gpu_text_divided, &d, kernel, state);
}

/* --- cross entropy ------------------------------------------------------------------------------------------------ */

static const char *refuse_parts(const tm_call *call)
{
    bool whole = call->in[0].dtype == TM_F32 && call->out[0].dtype == TM_F32 && call->out[1].dtype == TM_F32;
    return whole && call->in[1].dtype == TM_I32 ? NULL : "takes float32 logits and int32 targets";
}

static tm_status prepare_parts(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)call;
    (void)err;
    note(device, TM_F32, TM_F32, "vocabulary_parts", state);
    return TM_OK;
}

static tm_status launch_parts(const tm_call *call, tm_error *err)
{
    const tm_vocabulary_attr *attr = call->attr;
    tm_gpu_arguments          a = { .bytes = 0 };
    int64_t                   rows = call->in[0].shape.n[0];
    tm_gpu_pass(&a, call->out[0].data);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass(&a, call->out[1].data);
    tm_gpu_pass(&a, call->in[1].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_i64(&a, call->in[0].shape.n[1]);
    tm_gpu_pass_i64(&a, attr->first);
    return tm_gpu_start(call, 0, rows, 1, 1, THREADS, &a, err);
}

static const char *refuse_loss(const tm_call *call)
{
    if (call->in[1].dtype != TM_I32 || call->in[2].dtype != TM_F32) return "takes float32 parts and int32 targets";
    const tm_view *sum = &call->out[0], *rows = &call->out[1];
    if (tm_view_present(sum) && sum->dtype != TM_F64) return "keeps the loss in float64";
    if (tm_view_present(rows) && rows->dtype == TM_F32) return call->accumulate & 2U ? "adds in float64 only" : NULL;
    return tm_view_present(rows) && rows->dtype != TM_F64 ? "keeps losses of rows in float32 or float64" : NULL;
}

static size_t loss_workspace(const tm_call *call)
{
    return (size_t)call->in[0].shape.n[0] * sizeof(float);
}

enum { LOSSES, SUM, OUT }; /* kernels */

static tm_status prepare_loss(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = { .n = 0 };
    (void)call;
    (void)err;
    note(device, TM_F32, TM_F32, "vocabulary_losses", state);
    tm_gpu_define_format(&d, "Z", TM_F32);
    tm_gpu_note(device, "loss", tm_gpu_text_loss, &d, "loss_sum", state);
    tm_gpu_note(device, "loss", tm_gpu_text_loss, &d, "losses_out", state);
    return TM_OK;
}

/* From the rows' losses to output k. */
static tm_gpu_arguments sums_of(const tm_call *call, int k)
{
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[k].data);
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass_i64(&a, call->in[0].shape.n[0]);
    tm_gpu_pass_int(&a, call->accumulate >> k & 1U);
    return a;
}

static tm_status launch_loss(const tm_call *call, tm_error *err)
{
    const tm_vocabulary_attr *attr = call->attr;
    tm_gpu_arguments          a = { .bytes = 0 }, sum = sums_of(call, 0), rows_out = sums_of(call, 1);
    int64_t                   rows = call->in[0].shape.n[0];
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass(&a, call->in[2].data);
    tm_gpu_pass(&a, call->in[1].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_int(&a, (int)attr->ranks);
    tm_gpu_pass_int(&a, TM_IGNORED_TARGET);
    TM_TRY(tm_gpu_start_each(call, LOSSES, rows, &a, err));
    if (tm_view_present(&call->out[0])) TM_TRY(tm_gpu_start(call, SUM, 1, 1, 1, THREADS, &sum, err));
    if (!tm_view_present(&call->out[1])) return TM_OK;
    if (call->out[1].dtype == TM_F32)
        return tm_gpu_copy_of(call, call->out[1].data, call->workspace, (size_t)rows * sizeof(float), err);
    return tm_gpu_start_each(call, OUT, rows, &rows_out, err);
}

static const char *refuse_loss_grad(const tm_call *call)
{
    bool whole = call->in[0].dtype == TM_F32 && call->in[2].dtype == TM_F32 && call->out[0].dtype == TM_F32;
    if (!whole || call->in[1].dtype != TM_I32) return "takes float32 logits and parts, and int32 targets";
    if (tm_view_present(&call->in[3]) && call->in[3].dtype != TM_F64) return "takes scalars in float64";
    if (tm_view_present(&call->in[4]) && call->in[4].dtype != TM_F32) return "takes gradients of rows in float32";
    return call->accumulate ? "does not add to what is there" : NULL;
}

static tm_status prepare_loss_grad(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)call;
    (void)err;
    note(device, TM_F32, TM_F32, "vocabulary_loss_grad", state);
    return TM_OK;
}

static tm_status launch_loss_grad(const tm_call *call, tm_error *err)
{
    const tm_vocabulary_attr *attr = call->attr;
    tm_gpu_arguments          a = { .bytes = 0 };
    int64_t                   rows = call->in[0].shape.n[0];
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 5; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_i64(&a, call->in[0].shape.n[1]);
    tm_gpu_pass_i64(&a, attr->first);
    tm_gpu_pass_int(&a, (int)attr->rank);
    tm_gpu_pass_int(&a, (int)attr->ranks);
    tm_gpu_pass_int(&a, TM_IGNORED_TARGET);
    return tm_gpu_start(call, 0, rows, 1, 1, THREADS, &a, err);
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static const char *refuse_order(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_other(&call->out[0], call->in[0].dtype);
    if (!why && call->in[0].shape.n[0] > INT32_MAX) why = "takes fewer than 2^31 rows";
    return why ? why : call->accumulate ? "does not add to what is there" : NULL;
}

static tm_status prepare_order(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    note(device, call->in[0].dtype, call->out[0].dtype, "sequence_order", state);
    return TM_OK;
}

static tm_status launch_order(const tm_call *call, tm_error *err)
{
    const tm_sequence_attr *attr = call->attr;
    tm_gpu_arguments        a = { .bytes = 0 };
    int64_t                 rows = call->in[0].shape.n[0], columns = call->in[0].shape.n[1];
    tm_gpu_pass(&a, call->out[0].data);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_int(&a, (int)columns);
    tm_gpu_pass_int(&a, (int)(rows / (attr->chunks * attr->ranks * attr->samples)));
    tm_gpu_pass_int(&a, (int)attr->samples);
    tm_gpu_pass_int(&a, (int)attr->ranks);
    tm_gpu_pass_int(&a, (int)attr->chunks);
    tm_gpu_pass_int(&a, attr->inverse != 0);
    return tm_gpu_start_rows(call, 0, rows, columns, &a, err);
}

static const char *refuse_merge(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->out[0]);
    for (int k = 0; k < 4 && !why; k++) {
        why = tm_gpu_refuse_view(&call->in[k]);
        if (!why) why = tm_gpu_refuse_other(&call->in[k], k % 2 ? TM_F32 : call->out[0].dtype);
    }
    if (!why && call->out[1].dtype != TM_F32) why = "keeps logarithms in float32";
    if (!why && call->in[0].shape.n[0] > INT32_MAX) why = "takes fewer than 2^31 rows";
    return why ? why : call->accumulate ? "does not add to what is there" : NULL;
}

static tm_status prepare_merge(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    note(device, call->in[0].dtype, call->out[0].dtype, "merge_attention", state);
    note(device, call->in[0].dtype, call->out[0].dtype, "merge_logarithms", state);
    return TM_OK;
}

static tm_status launch_merge(const tm_call *call, tm_error *err)
{
    const tm_attention_attr *attr = call->attr;
    tm_gpu_arguments         a = { .bytes = 0 }, lse = { .bytes = 0 };
    int64_t                  rows = call->in[0].shape.n[0], n = tm_shape_elements(call->out[1].shape);
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 4; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_int(&a, (int)attr->seq_q);
    tm_gpu_pass_int(&a, (int)attr->heads);
    tm_gpu_pass_int(&a, (int)attr->dim_v);
    TM_TRY(tm_gpu_start_rows(call, 0, rows, attr->heads * attr->dim_v, &a, err));
    tm_gpu_pass(&lse, call->out[1].data);
    tm_gpu_pass(&lse, call->in[1].data);
    tm_gpu_pass(&lse, call->in[3].data);
    tm_gpu_pass_i64(&lse, n);
    return tm_gpu_start_each(call, 1, n, &lse, err);
}

#define DIVIDED(id, which)                                                                                             \
    .op = TM_OP_##id, .name = #id "/gpu", .refuse = refuse_##which, .launch = launch_##which,                          \
    .prepare = prepare_##which, .release = tm_gpu_forget
const tm_kernel tm_gpu_divided[] = {
    { DIVIDED(vocabulary_parts, parts) },         { DIVIDED(vocabulary_loss, loss), .workspace = loss_workspace },
    { DIVIDED(vocabulary_loss_grad, loss_grad) }, { DIVIDED(sequence_order, order) },
    { DIVIDED(merge_attention, merge) },          { .name = NULL }
};
