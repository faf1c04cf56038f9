/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/heads.c - norms of heads and their gradients (source/heads.cu). Gradients of weights are summed in chunks
 * of rows, the chunks and heads in a fixed order: the same bits in every run. */
#include "device/gpu/gpu.h"

enum { THREADS = 256, CHUNK = 64, MOST_CHUNKS = 65535, LEAST_WAVE = 32, LEAST_SPAN = 8 * LEAST_WAVE, ACROSS = 8 };
enum { GRAD, PARTS, SUMS }; /* what `prepare` notes of the gradient */

static int64_t chunks_of(int64_t rows)
{
    return (rows + CHUNK - 1) / CHUNK;
}

static int64_t weights_of(const tm_head_norm_attr *attr)
{
    return (attr->second ? 2 : 1) * attr->head_dim;
}

static tm_gpu_defines formats(tm_dtype x, tm_dtype w, tm_dtype d)
{
    tm_gpu_defines defines = { .n = 0 };
    tm_gpu_define_format(&defines, "X", x);
    tm_gpu_define_format(&defines, "W", w);
    tm_gpu_define_format(&defines, "D", d);
    return defines;
}

/* Spans of a row's columns, of which the heads leave some; of the narrower ones. 0: there is nothing to copy. */
static int64_t spans_of(const tm_call *call)
{
    const tm_head_norm_attr *attr = call->attr;
    int64_t                  width = call->out[0].shape.n[1];
    return attr->heads * attr->head_dim == width ? 0 : (width + LEAST_SPAN - 1) / LEAST_SPAN;
}

static const char *refuse_shape(const tm_call *call)
{
    const tm_head_norm_attr *attr = call->attr;
    int64_t                  rows = call->out[0].shape.n[0];
    if (rows * (attr->heads + spans_of(call)) > INT32_MAX) return "takes fewer than 2^31 heads";
    return chunks_of(rows) > MOST_CHUNKS ? "more rows than a grid takes" : NULL;
}

static void pass_heads(tm_gpu_arguments *a, const tm_head_norm_attr *attr)
{
    tm_gpu_pass_int(a, (int)attr->heads);
    tm_gpu_pass_int(a, (int)attr->head_dim);
    tm_gpu_pass_int(a, (int)attr->first);
    tm_gpu_pass_int(a, (int)(attr->stride ? attr->stride : attr->head_dim));
    tm_gpu_pass_int(a, (int)attr->second);
}

/* Of a wave for each head and each span. */
static tm_status start_pieces(const tm_call *call, tm_gpu_arguments *a, bool copies, tm_error *err)
{
    const tm_head_norm_attr *attr = call->attr;
    const tm_view           *x = &call->out[0];
    int64_t                  rows = x->shape.n[0], spans = copies ? spans_of(call) : 0;
    tm_gpu_pass_int(a, (int)rows);
    tm_gpu_pass_int(a, (int)x->shape.n[1]);
    tm_gpu_pass_int(a, (int)spans);
    pass_heads(a, attr);
    if (call->op == &tm_op_head_norm) tm_gpu_pass_float(a, attr->eps);
    return tm_gpu_start_each(call, GRAD, rows * (attr->heads + spans) * LEAST_WAVE, a, err);
}

static const char *refuse(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    if (!why) why = tm_gpu_refuse_other(&call->out[0], call->in[0].dtype);
    if (!why) why = tm_gpu_refuse_view(&call->in[1]);
    if (!why && call->out[1].dtype != TM_F32) why = "keeps its statistics in float32";
    return why ? why : refuse_shape(call);
}

static tm_status prepare(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = formats(call->in[0].dtype, call->in[1].dtype, TM_F32);
    (void)err;
    tm_gpu_note(device, "heads", tm_gpu_text_heads, &d, "head_norm", state);
    return TM_OK;
}

static tm_status launch(const tm_call *call, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->out[k].data);
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->in[k].data);
    return start_pieces(call, &a, true, err);
}

/* --- gradients: in: dy, x, w, rstd; out: dx, [dw]
 * ---------------------------------------------------------------------- */

static const char *refuse_grad(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[1]);
    if (!why) why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_other(&call->in[0], call->in[1].dtype);
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    if (!why) why = tm_gpu_refuse_other(&call->out[0], call->in[1].dtype);
    if (!why) why = tm_gpu_refuse_view(&call->in[2]);
    if (!why) why = tm_gpu_refuse_view(&call->out[1]);
    if (!why && call->in[3].dtype != TM_F32) why = "takes statistics in float32";
    if (!why && call->accumulate & 1U) why = "does not add to dx";
    return why ? why : refuse_shape(call);
}

static size_t workspace(const tm_call *call)
{
    const tm_head_norm_attr *attr = call->attr;
    if (!tm_view_present(&call->out[1])) return 0;
    return (size_t)(chunks_of(call->in[1].shape.n[0]) * attr->heads * attr->head_dim) * sizeof(float);
}

static tm_status prepare_grad(const void *device, const tm_call *call, void **state, tm_error *err)
{
    bool           sums = tm_view_present(&call->out[1]);
    tm_gpu_defines d = formats(call->in[1].dtype, call->in[2].dtype, sums ? call->out[1].dtype : TM_F32);
    (void)err;
    tm_gpu_note(device, "heads", tm_gpu_text_heads, &d, "head_norm_grad", state);
    if (!sums) return TM_OK;
    tm_gpu_note(device, "heads", tm_gpu_text_heads, &d, "head_norm_parts", state);
    tm_gpu_note(device, "heads", tm_gpu_text_heads, &d, "head_norm_sums", state);
    return TM_OK;
}

static tm_status start_sums(const tm_call *call, tm_error *err)
{
    const tm_head_norm_attr *attr = call->attr;
    const tm_view           *x = &call->in[1];
    int64_t                  each = attr->heads * attr->head_dim, chunks = chunks_of(x->shape.n[0]);
    tm_gpu_arguments         a = { .bytes = 0 }, b = { .bytes = 0 };
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass(&a, x->data);
    tm_gpu_pass(&a, call->in[3].data);
    tm_gpu_pass_int(&a, (int)x->shape.n[0]);
    tm_gpu_pass_int(&a, (int)x->shape.n[1]);
    tm_gpu_pass_int(&a, CHUNK);
    pass_heads(&a, attr);
    TM_TRY(tm_gpu_start(call, PARTS, (each + THREADS - 1) / THREADS, chunks, 1, THREADS, &a, err));
    tm_gpu_pass(&b, call->out[1].data);
    tm_gpu_pass(&b, call->workspace);
    tm_gpu_pass_int(&b, (int)chunks);
    tm_gpu_pass_int(&b, (int)attr->heads);
    tm_gpu_pass_int(&b, (int)attr->head_dim);
    tm_gpu_pass_int(&b, (int)attr->second);
    tm_gpu_pass_int(&b, call->accumulate >> 1 & 1U);
    return tm_gpu_start(call, SUMS, (weights_of(attr) + ACROSS - 1) / ACROSS, 1, 1, THREADS, &b, err);
}

/* The sums first: dx may lie where dy does. */
static tm_status launch_grad(const tm_call *call, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    if (tm_view_present(&call->out[1])) TM_TRY(start_sums(call, err));
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 4; k++) tm_gpu_pass(&a, call->in[k].data);
    return start_pieces(call, &a, call->out[0].data != call->in[0].data, err);
}

const tm_kernel tm_gpu_heads[] = { { .op = TM_OP_head_norm,
                                     .name = "head_norm/gpu",
                                     .refuse = refuse,
                                     .launch = launch,
                                     .prepare = prepare,
                                     .release = tm_gpu_forget },
                                   { .op = TM_OP_head_norm_grad,
                                     .name = "head_norm_grad/gpu",
                                     .refuse = refuse_grad,
                                     .workspace = workspace,
                                     .launch = launch_grad,
                                     .prepare = prepare_grad,
                                     .release = tm_gpu_forget },
                                   { .name = NULL } };
