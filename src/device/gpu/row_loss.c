/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/row_loss.c - cross entropy of logits that are there (source/row_loss.cu), and the output layer whose rows
 * keep their losses apart: in chunks of rows, by products of the maker's library or in tiles. */
#include "device/gpu/own.h"

enum { THREADS = 256 };

static void note(const void *device, const tm_gpu_defines *d, const char *kernel, void **state)
{
    tm_gpu_note(device, "row_loss", tm_gpu_text_row_loss, d, kernel, state);
}

/* Of the logits, the losses and the cotangents. */
static tm_gpu_defines formats(tm_dtype z, tm_dtype l, tm_dtype c)
{
    tm_gpu_defines d = { .n = 0 };
    tm_gpu_define_format(&d, "Z", z);
    tm_gpu_define_format(&d, "L", l);
    tm_gpu_define_format(&d, "C", c);
    return d;
}

/* Address of element `first` of a row's elements each. */
static void *element(const tm_view *view, int64_t first, int64_t each)
{
    size_t bytes = (size_t)(first * each) * tm_dtype_bytes(view->dtype);
    return view->data ? (void *)((uintptr_t)view->data + bytes) : NULL; // NOLINT(performance-no-int-to-ptr)
}

static tm_status start_losses(const tm_call *call, int kernel, void *losses, const void *z, const void *targets,
                              tm_shape logits, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, losses);
    tm_gpu_pass(&a, z);
    tm_gpu_pass(&a, targets);
    tm_gpu_pass_i64(&a, logits.n[1]);
    tm_gpu_pass_int(&a, TM_IGNORED_TARGET);
    tm_gpu_pass_int(&a, (uintptr_t)z % 16 == 0);
    return tm_gpu_start(call, kernel, logits.n[0], 1, 1, THREADS, &a, err);
}

/* each: 1, or 0 for one cotangent of all rows. */
static tm_status start_gradients(const tm_call *call, int kernel, void *dz, const void *z, const void *targets,
                                 const void *cotangents, int each, tm_shape logits, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, dz);
    tm_gpu_pass(&a, z);
    tm_gpu_pass(&a, targets);
    tm_gpu_pass(&a, cotangents);
    tm_gpu_pass_int(&a, each);
    tm_gpu_pass_i64(&a, logits.n[1]);
    tm_gpu_pass_int(&a, TM_IGNORED_TARGET);
    tm_gpu_pass_int(&a, ((uintptr_t)z | (uintptr_t)dz) % 16 == 0);
    return tm_gpu_start(call, kernel, logits.n[0], 1, 1, THREADS, &a, err);
}

/* --- cross_entropy: in: z, targets, [scalars]; out: loss or dz
 * ------------------------------------------------------------ */

enum { EACH_ROW, SUM };

static const char *refuse_logits(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    return !why && call->out[0].dtype != TM_F64 ? "keeps the loss in float64" : why;
}

static size_t logits_workspace(const tm_call *call)
{
    return (size_t)call->in[0].shape.n[0] * sizeof(float);
}

static tm_status prepare_logits(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = formats(call->in[0].dtype, TM_F32, TM_F64), sum = { .n = 0 };
    (void)err;
    note(device, &d, "row_loss", state);
    tm_gpu_define_format(&sum, "Z", call->in[0].dtype);
    tm_gpu_note(device, "loss", tm_gpu_text_loss, &sum, "loss_sum", state);
    return TM_OK;
}

static tm_status launch_logits(const tm_call *call, tm_error *err)
{
    const tm_view   *z = &call->in[0];
    tm_gpu_arguments a = { .bytes = 0 };
    TM_TRY(start_losses(call, EACH_ROW, call->workspace, z->data, call->in[1].data, z->shape, err));
    tm_gpu_pass(&a, call->out[0].data);
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass_i64(&a, z->shape.n[0]);
    tm_gpu_pass_int(&a, call->accumulate & 1U);
    return tm_gpu_start(call, SUM, 1, 1, 1, THREADS, &a, err);
}

static const char *refuse_logits_grad(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    if (!why) why = tm_gpu_refuse_other(&call->out[0], call->in[0].dtype);
    if (!why && call->in[2].dtype != TM_F64) why = "takes scalars in float64";
    return !why && call->accumulate ? "does not add to what is there" : why;
}

static tm_status prepare_logits_grad(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = formats(call->in[0].dtype, TM_F32, TM_F64);
    (void)err;
    note(device, &d, "row_loss_grad", state);
    return TM_OK;
}

static tm_status launch_logits_grad(const tm_call *call, tm_error *err)
{
    const tm_view *z = &call->in[0];
    const void    *scale = element(&call->in[2], TM_SCALAR_LOSS_SCALE, 1);
    return start_gradients(call, 0, call->out[0].data, z->data, call->in[1].data, scale, 0, z->shape, err);
}

/* --- linear_token_losses: in: x, w, targets, [dlosses]; out: losses, logits, or [dx], [dw], logits
 * ------------------------- */

enum { LOGITS, ROWS, TO_X, TO_W, NOTED };

static bool is_grad(const tm_call *call)
{
    return call->op == &tm_op_linear_token_losses_grad;
}

static const tm_view *logits_of(const tm_call *call)
{
    return &call->out[is_grad(call) ? 2 : 1];
}

/* The products of rows first .. first + n - 1, by the number of what `prepare` notes: logits = x w^T, dx = dz w, and
 * dw = dz^T x, added up over chunks. One whose result is absent has no rows. */
static void products_of(const tm_call *call, tm_gpu_how how, int64_t first, int64_t n, tm_gpu_product_of out[NOTED])
{
    const tm_view *x = &call->in[0], *w = &call->in[1], *z = logits_of(call), *dx = &call->out[0], *dw = &call->out[1];
    int64_t        channels = x->shape.n[1], classes = w->shape.n[0];
    const void    *rows = element(x, first, channels);
    bool           grad = is_grad(call), to_x = grad && tm_view_present(dx), to_w = grad && tm_view_present(dw);
    for (int k = LOGITS; k < NOTED; k++) out[k] = (tm_gpu_product_of){ .rows = 0 };
    out[LOGITS] = (tm_gpu_product_of){ .c = z->dtype,
                                       .a = x->dtype,
                                       .b = w->dtype,
                                       .rows = n,
                                       .columns = classes,
                                       .depth = channels,
                                       .ld_a = channels,
                                       .ld_b = channels,
                                       .ld_c = classes,
                                       .to = z->data,
                                       .from_a = rows,
                                       .from_b = w->data };
    if (to_x)
        out[TO_X] = (tm_gpu_product_of){ .c = dx->dtype,
                                         .a = z->dtype,
                                         .b = w->dtype,
                                         .b_across = true,
                                         .rows = n,
                                         .columns = channels,
                                         .depth = classes,
                                         .ld_a = classes,
                                         .ld_b = channels,
                                         .ld_c = channels,
                                         .to = element(dx, first, channels),
                                         .from_a = z->data,
                                         .from_b = w->data };
    if (to_w)
        out[TO_W] = (tm_gpu_product_of){ .c = dw->dtype,
                                         .a = z->dtype,
                                         .b = x->dtype,
                                         .a_across = true,
                                         .b_across = true,
                                         .rows = classes,
                                         .columns = channels,
                                         .depth = n,
                                         .ld_a = classes,
                                         .ld_b = channels,
                                         .ld_c = channels,
                                         .to = dw->data,
                                         .from_a = z->data,
                                         .from_b = rows,
                                         .adds = first > 0 || (call->accumulate >> 1 & 1U) };
    for (int k = LOGITS; k < NOTED; k++) {
        bool matrix = !tm_gpu_by_matrix(call->device, out[k].a, out[k].b);
        out[k].how = how == TM_GPU_BY_LIBRARY ? how : matrix ? TM_GPU_BY_MATRIX : TM_GPU_BY_TILES;
        out[k].workspace = call->workspace;
    }
}

static const char *refuse(const tm_call *call)
{
    const tm_view *apart = is_grad(call) ? &call->in[3] : &call->out[0];
    const char    *why = NULL;
    for (int k = 0; k < 2 && !why; k++) why = tm_gpu_refuse_view(&call->in[k]);
    for (int k = 0; k < 2 && !why && is_grad(call); k++) why = tm_gpu_refuse_view(&call->out[k]);
    if (!why) why = tm_gpu_refuse_view(logits_of(call));
    if (!why) why = tm_gpu_refuse_view(apart);
    if (!why && call->accumulate & 1U) why = is_grad(call) ? "does not add to dx" : "does not add to losses";
    return why;
}

/* Sizes of chunks: all but the last, and the last if that is another one. */
static int chunks_of(const tm_call *call, int64_t sizes[2])
{
    int64_t rows = call->in[0].shape.n[0], chunk = ((const tm_loss_attr *)call->attr)->chunk;
    sizes[0] = rows < chunk ? rows : chunk;
    sizes[1] = rows % chunk;
    return rows > chunk && sizes[1] > 0 ? 2 : 1;
}

static const char *refuse_library(const tm_call *call)
{
    const char       *why = refuse(call);
    tm_gpu_product_of p[NOTED];
    int64_t           sizes[2];
    for (int i = 0, n = chunks_of(call, sizes); i < n && !why; i++) {
        products_of(call, TM_GPU_BY_LIBRARY, 0, sizes[i], p);
        for (int k = LOGITS; k < NOTED && !why; k++)
            if (p[k].rows > 0) why = tm_gpu_by_library(call->device, &p[k]);
    }
    return why;
}

static size_t workspace_library(const tm_call *call)
{
    tm_gpu_product_of p[NOTED];
    int64_t           sizes[2];
    size_t            most = 0;
    for (int i = 0, n = chunks_of(call, sizes); i < n; i++) {
        products_of(call, TM_GPU_BY_LIBRARY, 0, sizes[i], p);
        for (int k = LOGITS; k < NOTED; k++) {
            size_t bytes = p[k].rows > 0 ? tm_gpu_library_bytes(call->device, &p[k]) : 0;
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static tm_status prepare_by(const void *device, const tm_call *call, tm_gpu_how how, void **state, tm_error *err)
{
    tm_dtype       apart = is_grad(call) ? call->in[3].dtype : call->out[0].dtype;
    tm_gpu_defines d = formats(logits_of(call)->dtype, is_grad(call) ? TM_F32 : apart, is_grad(call) ? apart : TM_F32);
    tm_gpu_product_of p[NOTED];
    int64_t           sizes[2];
    for (int i = chunks_of(call, sizes) - 1; i > 0 && how == TM_GPU_BY_LIBRARY; i--) {
        products_of(call, how, 0, sizes[i], p);
        for (int k = LOGITS; k < NOTED; k++)
            if (p[k].rows > 0) TM_TRY(tm_gpu_library_prepare(device, &p[k], err));
    }
    products_of(call, how, 0, sizes[0], p);
    for (int k = LOGITS; k < NOTED; k++)
        if (k == ROWS)
            note(device, &d, is_grad(call) ? "row_loss_grad" : "row_loss", state);
        else if (p[k].rows > 0)
            TM_TRY(tm_gpu_note_product(device, &p[k], state, err));
        else
            tm_gpu_note_none(device, state);
    return TM_OK;
}

static tm_status launch_by(const tm_call *call, tm_gpu_how how, tm_error *err)
{
    const tm_view *z = logits_of(call);
    int64_t        rows = call->in[0].shape.n[0], chunk = ((const tm_loss_attr *)call->attr)->chunk;
    for (int64_t first = 0; first < rows; first += chunk) {
        tm_gpu_product_of p[NOTED];
        tm_shape          logits = tm_shape_2(rows - first < chunk ? rows - first : chunk, z->shape.n[1]);
        const void       *targets = element(&call->in[2], first, 1);
        products_of(call, how, first, logits.n[0], p);
        TM_TRY(tm_gpu_start_product(call, LOGITS, &p[LOGITS], err));
        if (is_grad(call))
            TM_TRY(start_gradients(call, ROWS, z->data, z->data, targets, element(&call->in[3], first, 1), 1, logits,
                                   err));
        else
            TM_TRY(start_losses(call, ROWS, element(&call->out[0], first, 1), z->data, targets, logits, err));
        for (int k = TO_X; k < NOTED; k++)
            if (p[k].rows > 0) TM_TRY(tm_gpu_start_product(call, k, &p[k], err));
    }
    return TM_OK;
}

static tm_status prepare_library(const void *device, const tm_call *call, void **state, tm_error *err)
{
    return prepare_by(device, call, TM_GPU_BY_LIBRARY, state, err);
}

static tm_status prepare_tiles(const void *device, const tm_call *call, void **state, tm_error *err)
{
    return prepare_by(device, call, TM_GPU_BY_TILES, state, err);
}

static tm_status launch_library(const tm_call *call, tm_error *err)
{
    return launch_by(call, TM_GPU_BY_LIBRARY, err);
}

static tm_status launch_tiles(const tm_call *call, tm_error *err)
{
    return launch_by(call, TM_GPU_BY_TILES, err);
}

#define TOKEN_LOSSES(id)                                                                                               \
    { .op = TM_OP_##id,                                                                                                \
      .name = #id "/library",                                                                                          \
      .refuse = refuse_library,                                                                                        \
      .workspace = workspace_library,                                                                                  \
      .launch = launch_library,                                                                                        \
      .prepare = prepare_library,                                                                                      \
      .release = tm_gpu_forget },                                                                                      \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/tiles", .refuse = refuse, .launch = launch_tiles, .prepare = prepare_tiles,    \
        .release = tm_gpu_forget                                                                                       \
    }
const tm_kernel tm_gpu_row_loss[] = { TOKEN_LOSSES(linear_token_losses),
                                      TOKEN_LOSSES(linear_token_losses_grad),
                                      { .op = TM_OP_cross_entropy,
                                        .name = "cross_entropy/gpu",
                                        .refuse = refuse_logits,
                                        .workspace = logits_workspace,
                                        .launch = launch_logits,
                                        .prepare = prepare_logits,
                                        .release = tm_gpu_forget },
                                      { .op = TM_OP_cross_entropy_grad,
                                        .name = "cross_entropy_grad/gpu",
                                        .refuse = refuse_logits_grad,
                                        .launch = launch_logits_grad,
                                        .prepare = prepare_logits_grad,
                                        .release = tm_gpu_forget },
                                      { .name = NULL } };
