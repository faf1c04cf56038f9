/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/loss.c - the output layer with cross entropy, in chunks of rows: products, and rows of logits that
 * become their gradients in place (source/loss.cu). The products are the maker's library's, or in tiles. */
#include "device/gpu/own.h"

enum { THREADS = 256 };

/* Numbers of what `prepare` notes. */
enum { LOGITS, ROWS, SUM, OUT, TO_X = OUT, TO_W };

static const tm_view *logits_of(const tm_call *call)
{
    return call->op == &tm_op_linear_cross_entropy ? &call->out[1] : &call->out[3];
}

static int64_t chunk_of(const tm_call *call)
{
    return ((const tm_loss_attr *)call->attr)->chunk;
}

/* Rows first .. first + n - 1 of a matrix without gaps. */
static void *rows_from(const tm_view *view, int64_t first)
{
    if (!view->data) return NULL;
    size_t bytes = tm_tensor_bytes(tm_shape_2(first, view->shape.n[1]), view->dtype);
    return (void *)((uintptr_t)view->data + bytes); // NOLINT(performance-no-int-to-ptr): of the device
}

/* The losses of all rows; behind them the library's workspace begins. */
static size_t losses_bytes(const tm_call *call)
{
    return ((size_t)call->in[0].shape.n[0] * sizeof(float) + 255) / 256 * 256;
}

/* By matrix units where these take the formats. */
static tm_gpu_product_of fastest(const tm_call *call, tm_gpu_product_of p)
{
    p.how = tm_gpu_by_matrix(call->device, p.a, p.b) ? TM_GPU_BY_TILES : TM_GPU_BY_MATRIX;
    return p;
}

static tm_gpu_product_of by_library(const tm_call *call, tm_gpu_product_of p)
{
    p.how = TM_GPU_BY_LIBRARY;
    p.workspace = (void *)((uintptr_t)call->workspace + losses_bytes(call)); // NOLINT(performance-no-int-to-ptr)
    return p;
}

typedef tm_gpu_product_of chooser(const tm_call *call, tm_gpu_product_of p);

/* z = x w^T */
static tm_gpu_product_of to_logits(const tm_call *call, int64_t first, int64_t n, chooser *by)
{
    const tm_view *x = &call->in[0], *w = &call->in[1], *z = logits_of(call);
    return by(call, (tm_gpu_product_of){ .c = z->dtype,
                                         .a = x->dtype,
                                         .b = w->dtype,
                                         .rows = n,
                                         .columns = w->shape.n[0],
                                         .depth = x->shape.n[1],
                                         .ld_a = x->shape.n[1],
                                         .ld_b = x->shape.n[1],
                                         .ld_c = w->shape.n[0],
                                         .to = z->data,
                                         .from_a = rows_from(x, first),
                                         .from_b = w->data });
}

/* dx = dz w */
static tm_gpu_product_of to_x(const tm_call *call, int64_t first, int64_t n, chooser *by)
{
    const tm_view *dx = &call->out[1], *w = &call->in[1], *z = logits_of(call);
    return by(call, (tm_gpu_product_of){ .c = dx->dtype,
                                         .a = z->dtype,
                                         .b = w->dtype,
                                         .b_across = true,
                                         .rows = n,
                                         .columns = w->shape.n[1],
                                         .depth = w->shape.n[0],
                                         .ld_a = w->shape.n[0],
                                         .ld_b = w->shape.n[1],
                                         .ld_c = w->shape.n[1],
                                         .to = rows_from(dx, first),
                                         .from_a = z->data,
                                         .from_b = w->data });
}

/* dw = dz^T x, added up over chunks. */
static tm_gpu_product_of to_w(const tm_call *call, int64_t first, int64_t n, chooser *by)
{
    const tm_view *dw = &call->out[2], *x = &call->in[0], *z = logits_of(call);
    return by(call, (tm_gpu_product_of){ .c = dw->dtype,
                                         .a = z->dtype,
                                         .b = x->dtype,
                                         .a_across = true,
                                         .b_across = true,
                                         .rows = dw->shape.n[0],
                                         .columns = dw->shape.n[1],
                                         .depth = n,
                                         .ld_a = dw->shape.n[0],
                                         .ld_b = dw->shape.n[1],
                                         .ld_c = dw->shape.n[1],
                                         .to = dw->data,
                                         .from_a = z->data,
                                         .from_b = rows_from(x, first),
                                         .adds = first > 0 || (call->accumulate >> 2 & 1U) });
}

static const char *refuse(const tm_call *call)
{
    bool        grad = call->op == &tm_op_linear_cross_entropy_grad;
    const char *why = NULL;
    for (int k = 0; k < 2 && !why; k++) why = tm_gpu_refuse_view(&call->in[k]);
    if (!why) why = tm_gpu_refuse_view(logits_of(call));
    for (int k = 1; k < 3 && !why && grad; k++) why = tm_gpu_refuse_view(&call->out[k]);
    if (!why && tm_view_present(&call->in[grad ? 4 : 3])) why = "takes no adapter of the output layer";
    if (!why && call->out[0].dtype != TM_F64) why = "keeps the loss in float64";
    if (!why && !grad && tm_view_present(&call->out[2]) && call->out[2].dtype != TM_F64)
        why = "keeps losses in float64";
    if (!why && grad && call->in[3].dtype != TM_F64) why = "takes scalars in float64";
    return why;
}

static size_t workspace(const tm_call *call)
{
    return losses_bytes(call);
}

static int64_t first_chunk(const tm_call *call)
{
    int64_t rows = call->in[0].shape.n[0], chunk = chunk_of(call);
    return rows < chunk ? rows : chunk;
}

/* The products of a chunk of n rows: how many. */
static int products_of(const tm_call *call, int64_t n, chooser *by, tm_gpu_product_of out[3])
{
    int  count = 0;
    bool grad = call->op == &tm_op_linear_cross_entropy_grad;
    out[count++] = to_logits(call, 0, n, by);
    if (grad && tm_view_present(&call->out[1])) out[count++] = to_x(call, 0, n, by);
    if (grad && tm_view_present(&call->out[2])) out[count++] = to_w(call, 0, n, by);
    return count;
}

/* Chunks have first_chunk rows, the last one what is left. */
static const char *refuse_library(const tm_call *call)
{
    const char       *why = refuse(call);
    tm_gpu_product_of p[3];
    int64_t           sizes[] = { first_chunk(call), call->in[0].shape.n[0] % chunk_of(call) };
    for (int k = 0; k < 2 && !why && (k == 0 || sizes[k] > 0); k++)
        for (int i = 0, n = products_of(call, sizes[k], by_library, p); i < n && !why; i++)
            why = tm_gpu_by_library(call->device, &p[i]);
    return why;
}

static size_t workspace_library(const tm_call *call)
{
    tm_gpu_product_of p[3];
    size_t            most = 0;
    for (int i = 0, n = products_of(call, first_chunk(call), by_library, p); i < n; i++) {
        size_t bytes = tm_gpu_library_bytes(call->device, &p[i]);
        most = bytes > most ? bytes : most;
    }
    return losses_bytes(call) + most;
}

static tm_status prepare(const void *device, const tm_call *call, chooser *by, void **state, tm_error *err)
{
    tm_gpu_defines    d = { .n = 0 };
    tm_gpu_product_of logits = to_logits(call, 0, first_chunk(call), by);
    tm_gpu_define_format(&d, "Z", logits_of(call)->dtype);
    TM_TRY(tm_gpu_note_product(device, &logits, state, err));
    tm_gpu_note(device, "loss", tm_gpu_text_loss, &d, "cross_entropy", state);
    tm_gpu_note(device, "loss", tm_gpu_text_loss, &d, "loss_sum", state);
    if (call->op == &tm_op_linear_cross_entropy) {
        tm_gpu_note(device, "loss", tm_gpu_text_loss, &d, "losses_out", state);
        return TM_OK;
    }
    tm_gpu_product_of dx = to_x(call, 0, first_chunk(call), by), dw = to_w(call, 0, first_chunk(call), by);
    if (!tm_view_present(&call->out[1])) dx = logits; /* it is not started */
    if (!tm_view_present(&call->out[2])) dw = logits;
    TM_TRY(tm_gpu_note_product(device, &dx, state, err));
    return tm_gpu_note_product(device, &dw, state, err);
}

static tm_status prepare_tiles(const void *device, const tm_call *call, void **state, tm_error *err)
{
    return prepare(device, call, fastest, state, err);
}

static tm_status prepare_library(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_product_of p[3];
    int64_t           rest = call->in[0].shape.n[0] % chunk_of(call);
    int               n = rest > 0 ? products_of(call, rest, by_library, p) : 0;
    for (int i = 0; i < n; i++) TM_TRY(tm_gpu_library_prepare(device, &p[i], err));
    return prepare(device, call, by_library, state, err);
}

static void *loss_of_row(const tm_call *call, int64_t row)
{
    return (void *)((uintptr_t)call->workspace + (size_t)row * sizeof(float)); // NOLINT(performance-no-int-to-ptr)
}

/* Logits of a chunk, then its losses and, where there are scalars, gradients. */
static tm_status start_chunk(const tm_call *call, int64_t first, int64_t n, const void *scalars, chooser *by,
                             tm_error *err)
{
    tm_gpu_product_of z = to_logits(call, first, n, by);
    tm_gpu_arguments  a = { .bytes = 0 };
    TM_TRY(tm_gpu_start_product(call, LOGITS, &z, err));
    tm_gpu_pass(&a, z.to);
    tm_gpu_pass(&a, loss_of_row(call, first));
    tm_gpu_pass(&a, (const void *)((uintptr_t)call->in[2].data + (size_t)first * sizeof(int32_t))); // NOLINT
    tm_gpu_pass(&a, scalars);
    tm_gpu_pass_i64(&a, z.columns);
    tm_gpu_pass_int(&a, TM_IGNORED_TARGET);
    return tm_gpu_start(call, ROWS, n, 1, 1, THREADS, &a, err);
}

static tm_status start_sum(const tm_call *call, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass_i64(&a, call->in[0].shape.n[0]);
    tm_gpu_pass_int(&a, call->accumulate & 1U);
    return tm_gpu_start(call, SUM, 1, 1, 1, THREADS, &a, err);
}

static tm_status start_loss(const tm_call *call, chooser *by, tm_error *err)
{
    int64_t          rows = call->in[0].shape.n[0], chunk = chunk_of(call);
    tm_gpu_arguments a = { .bytes = 0 };
    for (int64_t first = 0; first < rows; first += chunk)
        TM_TRY(start_chunk(call, first, rows - first < chunk ? rows - first : chunk, NULL, by, err));
    TM_TRY(start_sum(call, err));
    if (!tm_view_present(&call->out[2])) return TM_OK;
    tm_gpu_pass(&a, call->out[2].data);
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_int(&a, call->accumulate >> 2 & 1U);
    return tm_gpu_start_each(call, OUT, rows, &a, err);
}

static tm_status start_grad(const tm_call *call, chooser *by, tm_error *err)
{
    int64_t rows = call->in[0].shape.n[0], chunk = chunk_of(call);
    for (int64_t first = 0; first < rows; first += chunk) {
        int64_t n = rows - first < chunk ? rows - first : chunk;
        TM_TRY(start_chunk(call, first, n, call->in[3].data, by, err));
        tm_gpu_product_of dx = to_x(call, first, n, by), dw = to_w(call, first, n, by);
        if (tm_view_present(&call->out[1])) TM_TRY(tm_gpu_start_product(call, TO_X, &dx, err));
        if (tm_view_present(&call->out[2])) TM_TRY(tm_gpu_start_product(call, TO_W, &dw, err));
    }
    return start_sum(call, err);
}

static tm_status launch_by(const tm_call *call, chooser *by, tm_error *err)
{
    return call->op == &tm_op_linear_cross_entropy ? start_loss(call, by, err) : start_grad(call, by, err);
}

static tm_status launch_library(const tm_call *call, tm_error *err)
{
    return launch_by(call, by_library, err);
}

static tm_status launch_tiles(const tm_call *call, tm_error *err)
{
    return launch_by(call, fastest, err);
}

#define LOSS(id)                                                                                                       \
    { .op = TM_OP_##id,                                                                                                \
      .name = #id "/library",                                                                                          \
      .refuse = refuse_library,                                                                                        \
      .workspace = workspace_library,                                                                                  \
      .launch = launch_library,                                                                                        \
      .prepare = prepare_library,                                                                                      \
      .release = tm_gpu_forget },                                                                                      \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/tiles", .refuse = refuse, .workspace = workspace, .launch = launch_tiles,      \
        .prepare = prepare_tiles, .release = tm_gpu_forget                                                             \
    }
const tm_kernel tm_gpu_loss[] = { LOSS(linear_cross_entropy), LOSS(linear_cross_entropy_grad), { .name = NULL } };
