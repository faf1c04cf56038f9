/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/loss.c - the output layer with cross entropy, in chunks of rows: products, and rows of logits that
 * become their gradients in place (source/loss.cu). The products are the maker's library's, or in tiles. Those of an
 * adapter are scaled by the library; own kernels have scaled copies of u and b (low_rank.c). */
#include "device/gpu/own.h"

enum { THREADS = 256 };

/* Numbers of what `prepare` notes. */
enum { LOGITS, ROWS, SUM, OUT, TO_X = OUT, TO_W, ADAPTED, SCALED, TO_U, TO_B };

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

/* u (N, r), b (V, r) of an adapter; absent: there is none. */
static const tm_view *u_of(const tm_call *call)
{
    return &call->in[call->op == &tm_op_linear_cross_entropy ? 3 : 4];
}

static const tm_view *b_of(const tm_call *call)
{
    return u_of(call) + 1;
}

static bool is_adapted(const tm_call *call)
{
    return tm_view_present(u_of(call));
}

static double scale_of(const tm_call *call)
{
    return ((const tm_loss_attr *)call->attr)->scale;
}

static tm_dtype copy_format(const tm_call *call)
{
    return tm_gpu_scaled_format(b_of(call)->dtype, scale_of(call));
}

static size_t rounded_up(size_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* The workspace: losses of all rows, then the library's own, or scaled copies of b and u. */
static size_t losses_bytes(const tm_call *call)
{
    return rounded_up((size_t)call->in[0].shape.n[0] * sizeof(float));
}

static size_t copy_bytes(const tm_call *call, const tm_view *view)
{
    return rounded_up(tm_tensor_bytes(view->shape, copy_format(call)));
}

static void *workspace_at(const tm_call *call, size_t offset)
{
    if (!call->workspace) return NULL;
    return (void *)((uintptr_t)call->workspace + offset); // NOLINT(performance-no-int-to-ptr): of the device
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
    p.workspace = workspace_at(call, losses_bytes(call));
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

/* With the second factor scaled, rows of u or b from row `first` on. */
static tm_gpu_product_of by_scaled(const tm_call *call, tm_gpu_product_of p, const tm_view *factor, int64_t first,
                                   chooser *by)
{
    tm_view copy = *factor;
    p.b = factor->dtype, p.ld_b = factor->shape.n[1], p.from_b = rows_from(factor, first);
    if (by == by_library) {
        p.scale = &((const tm_loss_attr *)call->attr)->scale;
        return by(call, p);
    }
    copy.dtype = p.b = copy_format(call);
    copy.data = workspace_at(call, losses_bytes(call) + (factor == b_of(call) ? 0 : copy_bytes(call, b_of(call))));
    p.from_b = rows_from(&copy, first);
    return by(call, p);
}

/* z += u (scale b)^T */
static tm_gpu_product_of to_adapted(const tm_call *call, int64_t first, int64_t n, chooser *by)
{
    const tm_view    *u = u_of(call), *z = logits_of(call);
    int64_t           vocabulary = call->in[1].shape.n[0], rank = u->shape.n[1];
    tm_gpu_product_of p = { .c = z->dtype, .a = u->dtype, .rows = n, .columns = vocabulary, .depth = rank };
    p.ld_a = rank, p.ld_c = vocabulary, p.to = z->data, p.from_a = rows_from(u, first), p.adds = true;
    return by_scaled(call, p, b_of(call), 0, by);
}

/* du = dz (scale b) */
static tm_gpu_product_of to_u(const tm_call *call, int64_t first, int64_t n, chooser *by)
{
    const tm_view    *du = &call->out[4], *z = logits_of(call);
    int64_t           vocabulary = call->in[1].shape.n[0], rank = u_of(call)->shape.n[1];
    tm_gpu_product_of p = { .c = du->dtype, .a = z->dtype, .rows = n, .columns = rank, .depth = vocabulary };
    p.ld_a = vocabulary, p.ld_c = rank, p.to = rows_from(du, first), p.from_a = z->data, p.b_across = true;
    return by_scaled(call, p, b_of(call), 0, by);
}

/* db = dz^T (scale u), added up over chunks. */
static tm_gpu_product_of to_b(const tm_call *call, int64_t first, int64_t n, chooser *by)
{
    const tm_view    *db = &call->out[5], *z = logits_of(call);
    int64_t           vocabulary = call->in[1].shape.n[0], rank = u_of(call)->shape.n[1];
    tm_gpu_product_of p = { .c = db->dtype, .a = z->dtype, .rows = vocabulary, .columns = rank, .depth = n };
    p.ld_a = vocabulary, p.ld_c = rank, p.to = db->data, p.from_a = z->data, p.a_across = p.b_across = true;
    p.adds = first > 0 || (call->accumulate >> 5 & 1U);
    return by_scaled(call, p, u_of(call), first, by);
}

static const char *refuse(const tm_call *call)
{
    bool        grad = call->op == &tm_op_linear_cross_entropy_grad;
    const char *why = NULL;
    for (int k = 0; k < 2 && !why; k++) why = tm_gpu_refuse_view(&call->in[k]);
    if (!why) why = tm_gpu_refuse_view(logits_of(call));
    for (int k = 1; k < 6 && !why && grad; k++) why = tm_gpu_refuse_view(&call->out[k]);
    if (!why) why = tm_gpu_refuse_view(u_of(call));
    if (!why && is_adapted(call)) why = tm_gpu_refuse_other(b_of(call), u_of(call)->dtype);
    if (!why && call->out[0].dtype != TM_F64) why = "keeps the loss in float64";
    if (!why && !grad && tm_view_present(&call->out[2]) && call->out[2].dtype != TM_F64)
        why = "keeps losses in float64";
    if (!why && grad && call->in[3].dtype != TM_F64) why = "takes scalars in float64";
    return why;
}

static size_t workspace(const tm_call *call)
{
    if (!is_adapted(call)) return losses_bytes(call);
    return losses_bytes(call) + copy_bytes(call, b_of(call)) + copy_bytes(call, u_of(call));
}

static int64_t first_chunk(const tm_call *call)
{
    int64_t rows = call->in[0].shape.n[0], chunk = chunk_of(call);
    return rows < chunk ? rows : chunk;
}

enum { MOST_PRODUCTS = 6 };

/* The products of a chunk of n rows: how many. */
static int products_of(const tm_call *call, int64_t n, chooser *by, tm_gpu_product_of out[MOST_PRODUCTS])
{
    int  count = 0;
    bool grad = call->op == &tm_op_linear_cross_entropy_grad;
    out[count++] = to_logits(call, 0, n, by);
    if (grad && tm_view_present(&call->out[1])) out[count++] = to_x(call, 0, n, by);
    if (grad && tm_view_present(&call->out[2])) out[count++] = to_w(call, 0, n, by);
    if (is_adapted(call)) out[count++] = to_adapted(call, 0, n, by);
    if (grad && tm_view_present(&call->out[4])) out[count++] = to_u(call, 0, n, by);
    if (grad && tm_view_present(&call->out[5])) out[count++] = to_b(call, 0, n, by);
    return count;
}

/* Chunks have first_chunk rows, the last one what is left. */
static const char *refuse_library(const tm_call *call)
{
    const char       *why = refuse(call);
    tm_gpu_product_of p[MOST_PRODUCTS];
    int64_t           sizes[] = { first_chunk(call), call->in[0].shape.n[0] % chunk_of(call) };
    for (int k = 0; k < 2 && !why && (k == 0 || sizes[k] > 0); k++)
        for (int i = 0, n = products_of(call, sizes[k], by_library, p); i < n && !why; i++)
            why = tm_gpu_by_library(call->device, &p[i]);
    return why;
}

static size_t workspace_library(const tm_call *call)
{
    tm_gpu_product_of p[MOST_PRODUCTS];
    size_t            most = 0;
    for (int i = 0, n = products_of(call, first_chunk(call), by_library, p); i < n; i++) {
        size_t bytes = tm_gpu_library_bytes(call->device, &p[i]);
        most = bytes > most ? bytes : most;
    }
    return losses_bytes(call) + most;
}

/* From number ADAPTED on. */
static tm_status prepare_adapter(const void *device, const tm_call *call, chooser *by, void **state, tm_error *err)
{
    if (!is_adapted(call)) return TM_OK;
    tm_gpu_product_of z = to_adapted(call, 0, first_chunk(call), by);
    TM_TRY(tm_gpu_note_product(device, &z, state, err));
    if (by == by_library)
        tm_gpu_note_none(device, state);
    else
        tm_gpu_note_scaled(device, b_of(call)->dtype, copy_format(call), state);
    if (call->op == &tm_op_linear_cross_entropy) return TM_OK;
    tm_gpu_product_of du = to_u(call, 0, first_chunk(call), by), db = z;
    if (tm_view_present(&call->out[5])) db = to_b(call, 0, first_chunk(call), by); /* else it is not started */
    TM_TRY(tm_gpu_note_product(device, &du, state, err));
    return tm_gpu_note_product(device, &db, state, err);
}

/* Scaled copies of both, for own kernels. */
static tm_status start_copies(const tm_call *call, chooser *by, tm_error *err)
{
    if (!is_adapted(call) || by == by_library) return TM_OK;
    const tm_view *u = u_of(call), *b = b_of(call);
    size_t         first = losses_bytes(call), second = first + copy_bytes(call, b);
    TM_TRY(tm_gpu_start_scaled(call, SCALED, workspace_at(call, first), b, scale_of(call), err));
    if (call->op == &tm_op_linear_cross_entropy) return TM_OK;
    return tm_gpu_start_scaled(call, SCALED, workspace_at(call, second), u, scale_of(call), err);
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
        tm_gpu_note_none(device, state);
        return prepare_adapter(device, call, by, state, err);
    }
    tm_gpu_product_of dx = to_x(call, 0, first_chunk(call), by), dw = to_w(call, 0, first_chunk(call), by);
    if (!tm_view_present(&call->out[1])) dx = logits; /* it is not started */
    if (!tm_view_present(&call->out[2])) dw = logits;
    TM_TRY(tm_gpu_note_product(device, &dx, state, err));
    TM_TRY(tm_gpu_note_product(device, &dw, state, err));
    return prepare_adapter(device, call, by, state, err);
}

static tm_status prepare_tiles(const void *device, const tm_call *call, void **state, tm_error *err)
{
    return prepare(device, call, fastest, state, err);
}

static tm_status prepare_library(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_product_of p[MOST_PRODUCTS];
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
    if (is_adapted(call)) {
        tm_gpu_product_of added = to_adapted(call, first, n, by);
        TM_TRY(tm_gpu_start_product(call, ADAPTED, &added, err));
    }
    tm_gpu_pass(&a, z.to);
    tm_gpu_pass(&a, loss_of_row(call, first));
    tm_gpu_pass(&a, (const void *)((uintptr_t)call->in[2].data + (size_t)first * sizeof(int32_t))); // NOLINT
    tm_gpu_pass(&a, scalars);
    tm_gpu_pass_i64(&a, z.columns);
    tm_gpu_pass_int(&a, TM_IGNORED_TARGET);
    tm_gpu_pass_int(&a, (uintptr_t)z.to % 16 == 0);
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
        if (!is_adapted(call)) continue;
        tm_gpu_product_of du = to_u(call, first, n, by);
        TM_TRY(tm_gpu_start_product(call, TO_U, &du, err));
        if (!tm_view_present(&call->out[5])) continue;
        tm_gpu_product_of db = to_b(call, first, n, by);
        TM_TRY(tm_gpu_start_product(call, TO_B, &db, err));
    }
    return start_sum(call, err);
}

static tm_status launch_by(const tm_call *call, chooser *by, tm_error *err)
{
    TM_TRY(start_copies(call, by, err));
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
