/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/low_rank.c - what adapters add to products, and its gradients: a product of product.c for each adapted
 * part of a fused matrix. One factor of each is small, and is what is scaled:
 *
 *   low_rank        y_p (N, M_p) += u_p (N, r) (scale b_p) (M_p, r)^T
 *   low_rank_dgrad  du_p (N, r)   = dy_p (N, M_p) (scale b_p) (M_p, r)
 *   low_rank_wgrad  db_p (M_p, r) = dy_p (N, M_p)^T (scale u_p) (N, r)
 *
 * The library scales the product itself. Own kernels read a scaled copy of the small factor from the workspace: float32
 * for tiles, bfloat16 for matrix units, which therefore take powers of two only. */
#include "device/gpu/own.h"

#include <math.h>

enum { PRODUCT, SCALED }; /* numbers of what `prepare` notes */

enum { TILE = 64, MOST_ROWS_OF_TILES = 65535 };

tm_dtype tm_gpu_scaled_format(tm_dtype factor, double scale)
{
    int exponent;
    return factor == TM_BF16 && fabs(frexp(scale, &exponent)) == 0.5 ? TM_BF16 : TM_F32;
}

void tm_gpu_note_scaled(const void *device, tm_dtype from, tm_dtype to, void **state)
{
    tm_gpu_defines d = { .n = 0 };
    tm_gpu_define_format(&d, "X", from);
    tm_gpu_define_format(&d, "Y", to);
    tm_gpu_define_format(&d, "W", TM_F32);
    tm_gpu_define_format(&d, "V", TM_F32);
    tm_gpu_note(device, "adapter", tm_gpu_text_adapter, &d, "scaled", state);
}

tm_status tm_gpu_start_scaled(const tm_call *call, int kernel, void *to, const tm_view *from, double scale,
                              tm_error *err)
{
    int64_t          n = tm_shape_elements(from->shape);
    bool             wide = ((uintptr_t)to | (uintptr_t)from->data) % 16 == 0;
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, to);
    tm_gpu_pass(&a, from->data);
    tm_gpu_pass_i64(&a, n);
    tm_gpu_pass_float(&a, scale);
    tm_gpu_pass_int(&a, wide);
    return tm_gpu_start_each(call, kernel, tm_gpu_pieces(n, tm_gpu_run(from->dtype, from->dtype), wide), &a, err);
}

static const tm_low_rank_attr *attr_of(const tm_call *call)
{
    return call->attr;
}

/* The small factor: b, or u. */
static const tm_view *small_of(const tm_call *call)
{
    return &call->in[call->op == &tm_op_low_rank ? 2 : 1];
}

static bool copies(const tm_call *call, tm_gpu_how how)
{
    return how != TM_GPU_BY_LIBRARY && !(attr_of(call)->scale == 1);
}

static tm_dtype copy_format(tm_gpu_how how)
{
    return how == TM_GPU_BY_MATRIX ? TM_BF16 : TM_F32;
}

/* Of the workspace; behind it the library's begins. */
static size_t copy_bytes(const tm_call *call, tm_gpu_how how)
{
    return copies(call, how) ? tm_tensor_bytes(small_of(call)->shape, copy_format(how)) : 0;
}

static void *element_of(const void *data, tm_dtype dtype, int64_t i)
{
    if (!data) return NULL;
    return (void *)((uintptr_t)data + (size_t)i * tm_dtype_bytes(dtype)); // NOLINT(performance-no-int-to-ptr)
}

/* The product of part p, whose rows of b begin at `row`. */
static tm_gpu_product_of part_of(const tm_call *call, tm_gpu_how how, int64_t p, int64_t row)
{
    const tm_low_rank_attr *attr = attr_of(call);
    const tm_view          *small = small_of(call), *wide = &call->in[0], *out = &call->out[0];
    int64_t                 r = attr->rank, columns = wide->shape.n[1], all = attr->parts * r;
    bool                    copied = copies(call, how);
    const void             *from = copied ? call->workspace : small->data;
    const void             *part = element_of(wide->data, wide->dtype, attr->part[p].column);
    tm_gpu_product_of q = { .c = out->dtype, .b = copied ? copy_format(how) : small->dtype, .how = how, .ld_b = r };
    q.workspace = call->workspace;
    q.scale = how == TM_GPU_BY_LIBRARY ? &attr->scale : NULL;
    q.adds = call->accumulate & 1U;
    if (call->op == &tm_op_low_rank) {
        const tm_view *u = &call->in[1];
        q.a = u->dtype, q.ld_a = all, q.ld_c = columns;
        q.rows = u->shape.n[0], q.columns = attr->part[p].rows, q.depth = r;
        q.from_a = element_of(u->data, u->dtype, p * r);
        q.from_b = element_of(from, q.b, row * r);
        q.to = element_of(out->data, out->dtype, attr->part[p].column);
        q.adds = true;
        return q;
    }
    q.a = wide->dtype, q.from_a = part, q.ld_a = columns, q.b_across = true;
    if (call->op == &tm_op_low_rank_dgrad) {
        q.rows = wide->shape.n[0], q.columns = r, q.depth = attr->part[p].rows, q.ld_c = all;
        q.from_b = element_of(from, q.b, row * r);
        q.to = element_of(out->data, out->dtype, p * r);
        return q;
    }
    q.a_across = true, q.ld_b = all, q.ld_c = r;
    q.rows = attr->part[p].rows, q.columns = r, q.depth = wide->shape.n[0];
    q.from_b = element_of(from, q.b, p * r);
    q.to = element_of(out->data, out->dtype, row * r);
    return q;
}

/* --- what they take -------------------------------------------------------------------------------------------------
 */

static const char *refuse_tiles(const tm_call *call)
{
    bool        forward = call->op == &tm_op_low_rank;
    const char *why = tm_gpu_refuse_view(&call->out[0]);
    for (int k = 0; k < call->op->n_in && !why; k++) why = tm_gpu_refuse_view(&call->in[k]);
    if (!why && forward) why = tm_gpu_refuse_other(&call->in[0], call->out[0].dtype);
    if (!why && forward && call->accumulate) why = "does not add to what is there";
    for (int64_t p = 0; p < attr_of(call)->parts && !why; p++)
        if ((part_of(call, TM_GPU_BY_TILES, p, 0).rows + TILE - 1) / TILE > MOST_ROWS_OF_TILES)
            why = "more rows than a grid takes";
    return why;
}

static const char *refuse_matrix(const tm_call *call)
{
    const char       *why = refuse_tiles(call);
    tm_gpu_product_of first = part_of(call, TM_GPU_BY_MATRIX, 0, 0);
    tm_dtype          small = small_of(call)->dtype;
    if (!why) why = tm_gpu_by_matrix(call->device, first.a, small);
    if (!why && tm_gpu_scaled_format(small, attr_of(call)->scale) != TM_BF16)
        why = "takes scales that are powers of two";
    return why;
}

static const char *refuse_library(const tm_call *call)
{
    const char *why = refuse_tiles(call);
    for (int64_t p = 0; p < attr_of(call)->parts && !why; p++) {
        tm_gpu_product_of q = part_of(call, TM_GPU_BY_LIBRARY, p, 0);
        why = tm_gpu_by_library(call->device, &q);
    }
    return why;
}

/* --- how they are computed ------------------------------------------------------------------------------------------
 */

static tm_status prepare(const void *device, const tm_call *call, tm_gpu_how how, void **state, tm_error *err)
{
    tm_gpu_product_of first = part_of(call, how, 0, 0);
    TM_TRY(tm_gpu_note_product(device, &first, state, err));
    for (int64_t p = 1; p < attr_of(call)->parts && how == TM_GPU_BY_LIBRARY; p++) {
        tm_gpu_product_of q = part_of(call, how, p, 0);
        TM_TRY(tm_gpu_library_prepare(device, &q, err));
    }
    if (copies(call, how)) tm_gpu_note_scaled(device, small_of(call)->dtype, copy_format(how), state);
    return TM_OK;
}

static tm_status launch(const tm_call *call, tm_gpu_how how, tm_error *err)
{
    const tm_low_rank_attr *attr = attr_of(call);
    const tm_view          *base = &call->in[0], *y = &call->out[0];
    if (call->op == &tm_op_low_rank && y->data != base->data)
        TM_TRY(tm_gpu_copy_of(call, y->data, base->data, tm_tensor_bytes(y->shape, y->dtype), err));
    if (copies(call, how)) TM_TRY(tm_gpu_start_scaled(call, SCALED, call->workspace, small_of(call), attr->scale, err));
    for (int64_t p = 0, row = 0; p < attr->parts; row += attr->part[p++].rows) {
        tm_gpu_product_of q = part_of(call, how, p, row);
        TM_TRY(tm_gpu_start_product(call, PRODUCT, &q, err));
    }
    return TM_OK;
}

static size_t workspace(const tm_call *call, tm_gpu_how how)
{
    size_t most = copy_bytes(call, how);
    for (int64_t p = 0; p < attr_of(call)->parts && how == TM_GPU_BY_LIBRARY; p++) {
        tm_gpu_product_of q = part_of(call, how, p, 0);
        size_t            bytes = tm_gpu_library_bytes(call->device, &q);
        most = bytes > most ? bytes : most;
    }
    return most;
}

#define WAY(way, how)                                                                                                  \
    static tm_status prepare_##way(const void *device, const tm_call *call, void **state, tm_error *err)               \
    {                                                                                                                  \
        return prepare(device, call, how, state, err);                                                                 \
    }                                                                                                                  \
                                                                                                                       \
    static tm_status launch_##way(const tm_call *call, tm_error *err)                                                  \
    {                                                                                                                  \
        return launch(call, how, err);                                                                                 \
    }                                                                                                                  \
                                                                                                                       \
    static size_t workspace_##way(const tm_call *call)                                                                 \
    {                                                                                                                  \
        return workspace(call, how);                                                                                   \
    }
WAY(library, TM_GPU_BY_LIBRARY)
WAY(matrix, TM_GPU_BY_MATRIX)
WAY(tiles, TM_GPU_BY_TILES)

#define ROW(id, way, ...)                                                                                              \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/" #way, .refuse = refuse_##way, .workspace = workspace_##way,                  \
        .launch = launch_##way, .prepare = prepare_##way, .release = tm_gpu_forget, __VA_ARGS__                        \
    }
#define LOW_RANK(id) ROW(id, library, .library = true), ROW(id, matrix, ), ROW(id, tiles, )
const tm_kernel tm_gpu_low_rank[] = {
    LOW_RANK(low_rank), LOW_RANK(low_rank_dgrad), LOW_RANK(low_rank_wgrad), { .name = NULL }
};
