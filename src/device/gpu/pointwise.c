/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/pointwise.c - ops that take each element by itself (source/pointwise.h). */
#include "device/gpu/gpu.h"

#include <string.h>

static tm_status prepare(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = { .n = 0 };
    bool           reads = tm_view_present(&call->in[0]);
    (void)err;
    tm_gpu_define_format(&d, "X", reads ? call->in[0].dtype : call->out[0].dtype);
    tm_gpu_define_format(&d, "Y", call->out[0].dtype);
    /* one kernel for both directions */
    const char *kernel = call->op == &tm_op_rope_grad ? "rope" : call->op->name;
    tm_gpu_note(device, "pointwise", tm_gpu_text_pointwise, &d, kernel, state);
    return TM_OK;
}

/* The operands of a pointwise op: no gaps, one format. */
static const char *refuse_plain(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->out[0]);
    for (int k = 0; k < call->op->n_in && !why; k++) {
        why = tm_gpu_refuse_view(&call->in[k]);
        if (!why) why = tm_gpu_refuse_other(&call->in[k], call->out[0].dtype);
    }
    return why ? why : call->accumulate ? "does not add to what is there" : NULL;
}

static const char *refuse_cast(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    return why ? why : tm_gpu_refuse_view(&call->out[0]);
}

/* y, then the inputs, then how many elements. */
static tm_status launch_plain(const tm_call *call, tm_error *err)
{
    int64_t          n = tm_shape_elements(call->out[0].shape);
    int              run = tm_gpu_run(call->in[0].dtype, call->out[0].dtype);
    bool             wide = tm_gpu_call_is_wide(call);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < call->op->n_in; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, n);
    tm_gpu_pass_int(&a, wide);
    return tm_gpu_start_each(call, 0, tm_gpu_pieces(n, run, wide), &a, err);
}

/* Runs of the activated half; those of the other one lie `width` elements behind. */
static tm_status launch_gated(const tm_call *call, tm_error *err)
{
    const tm_view   *half = call->op == &tm_op_swiglu ? &call->out[0] : &call->in[0];
    int64_t          width = half->shape.n[1];
    int              run = tm_gpu_run(half->dtype, half->dtype);
    bool             wide = width % run == 0 && tm_gpu_call_is_wide(call);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < call->op->n_in; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, half->shape.n[0]);
    tm_gpu_pass_int(&a, (int)width);
    tm_gpu_pass_int(&a, wide);
    return tm_gpu_start_rows(call, 0, half->shape.n[0], tm_gpu_pieces(width, run, wide), &a, err);
}

/* Rows and columns of operands of one shape; where none has gaps, all of it is one row. */
typedef struct {
    int64_t rows, columns;
    int     run;
    bool    wide;
} extent;

static extent extent_of(const tm_call *call)
{
    const tm_view *y = &call->out[0];
    int64_t        n = tm_shape_elements(y->shape), columns = y->shape.rank > 0 ? y->shape.n[y->shape.rank - 1] : 1;
    bool           dense = tm_view_dense(y);
    for (int k = 0; k < call->op->n_in; k++) dense = dense && tm_view_dense(&call->in[k]);
    extent e = { columns ? n / columns : 0, columns, tm_gpu_run(y->dtype, y->dtype), false };
    if (dense && n <= INT32_MAX) e.rows = 1, e.columns = n;
    e.wide = tm_gpu_call_is_wide(call);
    for (int k = -1; k < call->op->n_in && e.rows > 1; k++)
        e.wide = e.wide && tm_view_ld(k < 0 ? y : &call->in[k]) % e.run == 0;
    return e;
}

static const char *refuse_strided(const tm_call *call)
{
    const char *why = tm_gpu_refuse_strided(&call->out[0]);
    for (int k = 0; k < call->op->n_in && !why; k++) {
        why = tm_gpu_refuse_strided(&call->in[k]);
        if (!why) why = tm_gpu_refuse_other(&call->in[k], call->out[0].dtype);
    }
    return why ? why : call->accumulate ? "does not add to what is there" : NULL;
}

static tm_status launch_add(const tm_call *call, tm_error *err)
{
    const tm_view   *y = &call->out[0];
    extent           e = extent_of(call);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, y->data);
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, e.rows);
    tm_gpu_pass_int(&a, (int)e.columns);
    tm_gpu_pass_i64(&a, tm_view_ld(y));
    for (int k = 0; k < 2; k++) tm_gpu_pass_i64(&a, tm_view_ld(&call->in[k]));
    tm_gpu_pass_int(&a, e.wide);
    return tm_gpu_start_rows(call, 0, e.rows, tm_gpu_pieces(e.columns, e.run, e.wide), &a, err);
}

static tm_status launch_fill(const tm_call *call, tm_error *err)
{
    const tm_fill_attr *attr = call->attr;
    const tm_view      *y = &call->out[0];
    extent              e = extent_of(call);
    tm_gpu_arguments    a = { .bytes = 0 };
    tm_gpu_pass(&a, y->data);
    tm_gpu_pass_i64(&a, e.rows);
    tm_gpu_pass_int(&a, (int)e.columns);
    tm_gpu_pass_i64(&a, tm_view_ld(y));
    tm_gpu_pass_float(&a, attr->value);
    tm_gpu_pass_int(&a, e.wide);
    return tm_gpu_start_rows(call, 0, e.rows, tm_gpu_pieces(e.columns, e.run, e.wide), &a, err);
}

static const char *refuse_rope(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_other(&call->out[0], call->in[0].dtype);
    if (!why && call->in[1].dtype != TM_F32) why = "takes a table of float32";
    if (!why && call->in[0].shape.n[0] > INT32_MAX) why = "takes fewer than 2^31 rows";
    return why;
}

/* By runs: every number of columns that the kernel steps by is a multiple of one. */
static bool rope_is_wide(const tm_call *call, int64_t stride, int run)
{
    const tm_rope_attr *r = call->attr;
    int64_t             half = r->head_dim / 2, turned = r->layout == TM_ROPE_INTERLEAVED ? 2 * half : half;
    bool                even = turned % run == 0 && r->first % run == 0 && stride % run == 0;
    return even && call->in[0].shape.n[1] % run == 0 && tm_gpu_call_is_wide(call);
}

static tm_status launch_rope(const tm_call *call, tm_error *err)
{
    const tm_rope_attr *r = call->attr;
    const tm_view      *x = &call->in[0];
    int64_t             rows = x->shape.n[0], width = x->shape.n[1], half = r->head_dim / 2;
    int64_t             stride = r->stride ? r->stride : r->head_dim;
    int                 run = tm_gpu_run(x->dtype, x->dtype);
    bool                copies = x->data != call->out[0].data, interleaved = r->layout == TM_ROPE_INTERLEAVED;
    bool                wide = rope_is_wide(call, stride, run);
    int64_t             each = wide ? run : 1, pairs = wide && interleaved ? run / 2 : each;
    tm_gpu_arguments    a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 3; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_int(&a, (int)width);
    tm_gpu_pass_int(&a, (int)r->seq);
    tm_gpu_pass_int(&a, (int)r->heads);
    tm_gpu_pass_int(&a, (int)half);
    tm_gpu_pass_int(&a, (int)r->first);
    tm_gpu_pass_int(&a, (int)stride);
    tm_gpu_pass_int(&a, interleaved);
    tm_gpu_pass_int(&a, copies);
    tm_gpu_pass_float(&a, call->op == &tm_op_rope_grad ? -1 : 1);
    tm_gpu_pass_int(&a, wide);
    return tm_gpu_start_rows(call, 0, rows, r->heads * (half / pairs) + (copies ? width / each : 0), &a, err);
}

#define POINTWISE(id, refusal, how)                                                                                    \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/gpu", .refuse = refusal, .launch = how, .prepare = prepare,                    \
        .release = tm_gpu_forget                                                                                       \
    }
const tm_kernel tm_gpu_pointwise[] = {
    POINTWISE(cast, refuse_cast, launch_plain),         POINTWISE(gelu, refuse_plain, launch_plain),
    POINTWISE(gelu_grad, refuse_plain, launch_plain),   POINTWISE(swiglu, refuse_plain, launch_gated),
    POINTWISE(swiglu_grad, refuse_plain, launch_gated), POINTWISE(add, refuse_strided, launch_add),
    POINTWISE(fill, refuse_strided, launch_fill),       POINTWISE(rope, refuse_rope, launch_rope),
    POINTWISE(rope_grad, refuse_rope, launch_rope),     { .name = NULL }
};
