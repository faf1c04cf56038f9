/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/norm.c - norms of rows, their gradients, and sums over rows (source/norm.h). Rows are summed in chunks,
 * the chunks in ascending order: the same bits in every run. */
#include "device/gpu/gpu.h"

enum { THREADS = 256, CHUNK = 64, MOST_CHUNKS = 65535 };

static int64_t chunks_of(int64_t rows)
{
    return (rows + CHUNK - 1) / CHUNK;
}

/* X: activations, W: weights, D: their gradients. */
static tm_gpu_defines formats(tm_dtype x, tm_dtype w, tm_dtype d)
{
    tm_gpu_defines defines = { .n = 0 };
    tm_gpu_define_format(&defines, "X", x);
    tm_gpu_define_format(&defines, "W", w);
    tm_gpu_define_format(&defines, "D", d);
    return defines;
}

static void note(const void *device, const tm_gpu_defines *d, const char *kernel, void **state)
{
    tm_gpu_note(device, "norm", tm_gpu_text_norm, d, kernel, state);
}

static void pass_shape(tm_gpu_arguments *a, const tm_call *call, int64_t columns)
{
    tm_gpu_pass_int(a, (int)columns);
    tm_gpu_pass_float(a, ((const tm_norm_attr *)call->attr)->eps);
}

/* --- rmsnorm, layernorm
 * ------------------------------------------------------------------------------------------------ */

static const char *refuse(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_other(&call->out[0], call->in[0].dtype);
    for (int k = 1; k < call->op->n_in && !why; k++) {
        why = tm_gpu_refuse_view(&call->in[k]);
        if (!why) why = tm_gpu_refuse_other(&call->in[k], call->in[1].dtype);
    }
    for (int k = 1; k < call->op->n_out && !why; k++)
        if (call->out[k].dtype != TM_F32) why = "keeps its statistics in float32";
    return why;
}

static tm_status prepare(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = formats(call->in[0].dtype, call->in[1].dtype, TM_F32);
    (void)err;
    note(device, &d, call->op->name, state);
    return TM_OK;
}

/* Outputs, then inputs, then the shape. */
static tm_status launch(const tm_call *call, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    for (int k = 0; k < call->op->n_out; k++) tm_gpu_pass(&a, call->out[k].data);
    for (int k = 0; k < call->op->n_in; k++) tm_gpu_pass(&a, call->in[k].data);
    pass_shape(&a, call, call->in[0].shape.n[1]);
    return tm_gpu_start(call, 0, call->in[0].shape.n[0], 1, 1, THREADS, &a, err);
}

/* --- sums over rows
 * ------------------------------------------------------------------------------------------------------ */

/* Of dy times x and statistics (NULL: there are none), into `to`; kernels number `kernel` and the next. */
static tm_status sum_rows(const tm_call *call, int kernel, const tm_view *dy, const void *x, const void *mean,
                          const void *rstd, const tm_view *to, bool adds, tm_error *err)
{
    int64_t          rows = dy->shape.n[0], columns = dy->shape.n[1], across = (columns + THREADS - 1) / THREADS;
    tm_gpu_arguments a = { .bytes = 0 }, b = { .bytes = 0 };
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass(&a, dy->data);
    tm_gpu_pass(&a, x);
    tm_gpu_pass(&a, mean);
    tm_gpu_pass(&a, rstd);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_int(&a, (int)columns);
    tm_gpu_pass_int(&a, CHUNK);
    TM_TRY(tm_gpu_start(call, kernel, across, chunks_of(rows), 1, THREADS, &a, err));
    tm_gpu_pass(&b, to->data);
    tm_gpu_pass(&b, call->workspace);
    tm_gpu_pass_int(&b, (int)columns);
    tm_gpu_pass_int(&b, (int)chunks_of(rows));
    tm_gpu_pass_int(&b, adds);
    return tm_gpu_start(call, kernel + 1, across, 1, 1, THREADS, &b, err);
}

static size_t sums_workspace(const tm_call *call)
{
    const tm_view *dy = &call->in[0];
    return (size_t)(chunks_of(dy->shape.n[0]) * dy->shape.n[1]) * sizeof(float);
}

static const char *refuse_bias(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    return !why && chunks_of(call->in[0].shape.n[0]) > MOST_CHUNKS ? "more rows than a grid takes" : why;
}

static tm_status prepare_bias(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = formats(call->in[0].dtype, TM_F32, call->out[0].dtype);
    (void)err;
    note(device, &d, "column_parts", state);
    note(device, &d, "column_sums", state);
    return TM_OK;
}

static tm_status launch_bias(const tm_call *call, tm_error *err)
{
    return sum_rows(call, 0, &call->in[0], NULL, NULL, NULL, &call->out[0], call->accumulate & 1U, err);
}

/* --- gradients
 * ------------------------------------------------------------------------------------------------------------ */

static bool has_mean(const tm_call *call)
{
    return call->op == &tm_op_layernorm_grad;
}

static const char *refuse_grad(const tm_call *call)
{
    const tm_view *x = &call->in[1], *addend = &call->in[has_mean(call) ? 5 : 4];
    const char    *why = tm_gpu_refuse_view(x);
    if (!why) why = tm_gpu_refuse_other(&call->in[0], x->dtype);
    if (!why) why = tm_gpu_refuse_other(&call->out[0], x->dtype);
    if (!why) why = tm_gpu_refuse_other(addend, x->dtype);
    if (!why) why = tm_gpu_refuse_view(&call->in[2]);
    for (int k = 1; k < call->op->n_out && !why; k++) {
        why = tm_gpu_refuse_view(&call->out[k]);
        if (!why && k == 2) why = tm_gpu_refuse_other(&call->out[2], call->out[1].dtype);
    }
    return !why && chunks_of(x->shape.n[0]) > MOST_CHUNKS ? "more rows than a grid takes" : why;
}

static bool wants_sums(const tm_call *call)
{
    return tm_view_present(&call->out[1]) || (has_mean(call) && tm_view_present(&call->out[2]));
}

static size_t grad_workspace(const tm_call *call)
{
    return wants_sums(call) ? sums_workspace(call) : 0;
}

static tm_status prepare_grad(const void *device, const tm_call *call, void **state, tm_error *err)
{
    const tm_view *sums = tm_view_present(&call->out[1]) ? &call->out[1] : &call->out[2];
    tm_gpu_defines d = formats(call->in[1].dtype, call->in[2].dtype, wants_sums(call) ? sums->dtype : TM_F32);
    (void)err;
    note(device, &d, call->op->name, state);
    note(device, &d, "column_parts", state);
    note(device, &d, "column_sums", state);
    return TM_OK;
}

/* The sums first: dx may lie where dy does. */
static tm_status launch_grad(const tm_call *call, tm_error *err)
{
    const tm_view   *dy = &call->in[0], *x = &call->in[1];
    bool             means = has_mean(call);
    const void      *mean = means ? call->in[3].data : NULL, *rstd = call->in[means ? 4 : 3].data;
    tm_gpu_arguments a = { .bytes = 0 };
    if (tm_view_present(&call->out[1]))
        TM_TRY(sum_rows(call, 1, dy, x->data, mean, rstd, &call->out[1], call->accumulate >> 1 & 1U, err));
    if (means && tm_view_present(&call->out[2]))
        TM_TRY(sum_rows(call, 1, dy, NULL, NULL, NULL, &call->out[2], call->accumulate >> 2 & 1U, err));
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < call->op->n_in; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_int(&a, (int)x->shape.n[1]);
    return tm_gpu_start(call, 0, x->shape.n[0], 1, 1, THREADS, &a, err);
}

#define NORM(id)                                                                                                       \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/gpu", .refuse = refuse, .launch = launch, .prepare = prepare,                  \
        .release = tm_gpu_forget                                                                                       \
    }
#define NORM_GRAD(id)                                                                                                  \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/gpu", .refuse = refuse_grad, .workspace = grad_workspace,                      \
        .launch = launch_grad, .prepare = prepare_grad, .release = tm_gpu_forget                                       \
    }
const tm_kernel tm_gpu_norm[] = { NORM(rmsnorm),
                                  NORM(layernorm),
                                  NORM_GRAD(rmsnorm_grad),
                                  NORM_GRAD(layernorm_grad),
                                  { .op = TM_OP_bias_grad,
                                    .name = "bias_grad/gpu",
                                    .refuse = refuse_bias,
                                    .workspace = sums_workspace,
                                    .launch = launch_bias,
                                    .prepare = prepare_bias,
                                    .release = tm_gpu_forget },
                                  { .name = NULL } };
