/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/adapter.c - what adapters need beside their products (low_rank.c): dropout, multiples and sums, lengths of
 * rows and what is rescaled to them (source/adapter.cu), and frozen weights in blocks, decoded (source/frozen.cu). */
#include "base/random.h"
#include "device/gpu/gpu.h"
#include "graph/blocks.h"

#include <math.h>
#include <string.h>

enum { THREADS = 256, CHUNK = 64, MOST_CHUNKS = 65535, ROWS_OF_A_BLOCK = 4 };

/* Formats of a text's X, Y, W and V; see there. */
static void note(const void *device, tm_dtype x, tm_dtype y, tm_dtype w, tm_dtype v, const char *kernel, void **state)
{
    tm_gpu_defines d = { .n = 0 };
    tm_gpu_define_format(&d, "X", x);
    tm_gpu_define_format(&d, "Y", y);
    tm_gpu_define_format(&d, "W", w);
    tm_gpu_define_format(&d, "V", v);
    tm_gpu_note(device, "adapter", tm_gpu_text_adapter, &d, kernel, state);
}

/* --- scale, add_bias ------------------------------------------------------------------------------------------------
 */

static const char *refuse_alike(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_other(&call->out[0], call->in[0].dtype);
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    return !why && call->accumulate ? "does not add to what is there" : why;
}

static tm_status prepare_scale(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    note(device, call->in[0].dtype, call->in[0].dtype, TM_F32, TM_F32, "scaled", state);
    return TM_OK;
}

static int run_of(const tm_call *call)
{
    return tm_gpu_run(call->in[0].dtype, call->in[0].dtype);
}

static tm_status launch_scale(const tm_call *call, tm_error *err)
{
    int64_t          n = tm_shape_elements(call->in[0].shape);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass_i64(&a, n);
    tm_gpu_pass_float(&a, ((const tm_fill_attr *)call->attr)->value);
    tm_gpu_pass_int(&a, tm_gpu_call_is_wide(call));
    n = tm_gpu_pieces(n, run_of(call), tm_gpu_call_is_wide(call));
    return tm_gpu_start_each(call, 0, n, &a, err);
}

static const char *refuse_add_bias(const tm_call *call)
{
    const char *why = refuse_alike(call);
    if (!why) why = tm_gpu_refuse_view(&call->in[1]);
    if (!why) why = tm_gpu_refuse_other(&call->in[1], call->in[0].dtype);
    return why ? why : tm_gpu_refuse_view(&call->in[2]);
}

static tm_status prepare_add_bias(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    note(device, call->in[0].dtype, call->in[0].dtype, call->in[2].dtype, TM_F32, "add_bias", state);
    return TM_OK;
}

static tm_status launch_add_bias(const tm_call *call, tm_error *err)
{
    int64_t          rows = call->in[0].shape.n[0], columns = call->in[0].shape.n[1];
    bool             wide = columns % run_of(call) == 0 && tm_gpu_call_is_wide(call);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 3; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_int(&a, (int)columns);
    tm_gpu_pass_int(&a, wide);
    return tm_gpu_start_rows(call, 0, rows, tm_gpu_pieces(columns, run_of(call), wide), &a, err);
}

/* --- dropout --------------------------------------------------------------------------------------------------------
 */

/* Of 32 random bits, the least that stay. */
static double least_of(const tm_dropout_attr *attr)
{
    return ceil(attr->rate * 0x1p32);
}

static const char *refuse_dropout(const tm_call *call)
{
    const tm_dropout_attr *t = call->attr;
    const char            *why = tm_gpu_refuse_strided(&call->in[0]);
    if (!why) why = tm_gpu_refuse_other(&call->out[0], call->in[0].dtype);
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    if (!why && call->in[1].dtype != TM_F64) why = "takes the number of the first row in float64";
    if (!why && !(least_of(t) < 0x1p32)) why = "takes rates of at most 1 - 2^-32";
    if (!why && call->in[0].shape.n[0] * (t->parts > 1 ? t->parts : 1) > INT32_MAX)
        why = "takes fewer than 2^31 rows of all ranks";
    if (!why && (t->chunk > INT32_MAX || t->seq > INT32_MAX || t->first > INT32_MAX || t->second > INT32_MAX))
        why = "takes sequences of fewer than 2^31 tokens";
    return !why && call->accumulate ? "does not add to what is there" : why;
}

static tm_status prepare_dropout(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    note(device, call->in[0].dtype, call->in[0].dtype, TM_F32, TM_F32, "dropout", state);
    return TM_OK;
}

static tm_status launch_dropout(const tm_call *call, tm_error *err)
{
    const tm_dropout_attr *t = call->attr;
    int64_t                rows = call->in[0].shape.n[0], columns = call->in[0].shape.n[1];
    tm_gpu_arguments       a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass(&a, call->in[1].data);
    tm_gpu_pass_i64(&a, tm_view_ld(&call->in[0]));
    tm_gpu_pass_i64(&a, (int64_t)tm_random_key(t->seed));
    tm_gpu_pass_i64(&a, (int64_t)t->stream);
    tm_gpu_pass_i64(&a, t->column);
    tm_gpu_pass_i64(&a, t->width > 0 ? t->width : columns);
    tm_gpu_pass_int(&a, (int)rows);
    tm_gpu_pass_int(&a, (int)columns);
    tm_gpu_pass_int(&a, (int)(uint32_t)least_of(t));
    tm_gpu_pass_int(&a, (int)t->chunk);
    tm_gpu_pass_int(&a, (int)t->seq);
    tm_gpu_pass_int(&a, (int)t->first);
    tm_gpu_pass_int(&a, (int)t->second);
    tm_gpu_pass_int(&a, (int)t->part);
    tm_gpu_pass_int(&a, (int)t->parts);
    tm_gpu_pass_float(&a, 1 / (1 - t->rate));
    return tm_gpu_start_rows(call, 0, rows, columns / 2 + 1, &a, err);
}

/* --- magnitude and direction ----------------------------------------------------------------------------------------
 */

static void pass_parts(tm_gpu_arguments *a, const tm_low_rank_attr *attr)
{
    for (int p = 0; p < TM_MAX_ADAPTED; p++) tm_gpu_pass_int(a, p < attr->parts ? (int)attr->part[p].column : 0);
    for (int p = 0; p < TM_MAX_ADAPTED; p++) tm_gpu_pass_int(a, p < attr->parts ? (int)attr->part[p].rows : 0);
}

static const char *refuse_norms(const tm_view *norms)
{
    return norms->dtype == TM_F32 ? tm_gpu_refuse_view(norms) : "keeps norms in float32";
}

static const char *refuse_rescale(const tm_call *call)
{
    const char *why = refuse_alike(call);
    if (!why) why = tm_gpu_refuse_view(&call->in[1]);
    if (!why) why = refuse_norms(&call->in[2]);
    if (!why) why = tm_gpu_refuse_view(&call->in[3]);
    if (!why && call->op == &tm_op_rescale_add) why = tm_gpu_refuse_view(&call->in[4]);
    if (!why && call->op == &tm_op_rescale_add) why = tm_gpu_refuse_other(&call->in[4], call->in[0].dtype);
    return why;
}

static tm_status prepare_rescale(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_dtype x = call->in[0].dtype;
    (void)err;
    note(device, x, x, tm_view_present(&call->in[3]) ? call->in[3].dtype : TM_F32, call->in[1].dtype, "rescale", state);
    return TM_OK;
}

static tm_status launch_rescale(const tm_call *call, tm_error *err)
{
    int64_t          rows = call->in[0].shape.n[0], columns = call->in[0].shape.n[1];
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 4; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass(&a, call->op == &tm_op_rescale_add ? call->in[4].data : NULL);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_int(&a, (int)columns);
    pass_parts(&a, call->attr);
    return tm_gpu_start_rows(call, 0, rows, columns, &a, err);
}

static int64_t chunks_of(const tm_call *call)
{
    return (call->in[0].shape.n[0] + CHUNK - 1) / CHUNK;
}

static const char *refuse_rescale_wgrad(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_view(&call->in[1]);
    if (!why) why = tm_gpu_refuse_other(&call->in[1], call->in[0].dtype);
    if (!why) why = refuse_norms(&call->in[2]);
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    return !why && chunks_of(call) > MOST_CHUNKS ? "more rows than a grid takes" : why;
}

static size_t workspace_rescale_wgrad(const tm_call *call)
{
    return (size_t)(chunks_of(call) * call->out[0].shape.n[0]) * sizeof(float);
}

static tm_status prepare_rescale_wgrad(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_dtype x = call->in[0].dtype, y = call->out[0].dtype;
    (void)err;
    note(device, x, y, TM_F32, TM_F32, "magnitude_parts", state);
    note(device, x, y, TM_F32, TM_F32, "magnitude_sums", state);
    return TM_OK;
}

static tm_status launch_rescale_wgrad(const tm_call *call, tm_error *err)
{
    int64_t          rows = call->in[0].shape.n[0], columns = call->in[0].shape.n[1], all = call->out[0].shape.n[0];
    int64_t          across = (all + THREADS - 1) / THREADS;
    tm_gpu_arguments a = { .bytes = 0 }, b = { .bytes = 0 };
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass(&a, call->in[1].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_int(&a, (int)columns);
    tm_gpu_pass_int(&a, CHUNK);
    tm_gpu_pass_int(&a, (int)all);
    pass_parts(&a, call->attr);
    TM_TRY(tm_gpu_start(call, 0, across, chunks_of(call), 1, THREADS, &a, err));
    tm_gpu_pass(&b, call->out[0].data);
    tm_gpu_pass(&b, call->workspace);
    tm_gpu_pass(&b, call->in[2].data);
    tm_gpu_pass_int(&b, (int)all);
    tm_gpu_pass_int(&b, (int)chunks_of(call));
    tm_gpu_pass_int(&b, call->accumulate & 1U);
    return tm_gpu_start(call, 1, across, 1, 1, THREADS, &b, err);
}

/* --- lengths of rows ------------------------------------------------------------------------------------------------
 */

static const char *refuse_adapted_norm(const tm_call *call)
{
    const char *why = refuse_norms(&call->out[0]);
    for (int k = 0; k < 3 && !why; k++) why = tm_gpu_refuse_view(&call->in[k]);
    if (!why) why = tm_gpu_refuse_other(&call->in[2], call->in[1].dtype);
    return !why && call->accumulate ? "does not add to what is there" : why;
}

static tm_status prepare_adapted_norm(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    note(device, TM_F32, TM_F32, call->in[0].dtype, call->in[1].dtype, "adapted_norm", state);
    return TM_OK;
}

static const void *row_of(const tm_view *view, int64_t row)
{
    size_t before = tm_tensor_bytes(tm_shape_2(row, view->shape.rank > 1 ? view->shape.n[1] : 1), view->dtype);
    return (const void *)((uintptr_t)view->data + before); // NOLINT(performance-no-int-to-ptr): of the device
}

/* Part after part: each has rows of a of its own. */
static tm_status launch_adapted_norm(const tm_call *call, tm_error *err)
{
    const tm_low_rank_attr *attr = call->attr;
    for (int64_t p = 0, row = 0; p < attr->parts; row += attr->part[p++].rows) {
        int64_t          rows = attr->part[p].rows;
        tm_gpu_arguments a = { .bytes = 0 };
        tm_gpu_pass(&a, row_of(&call->out[0], row));
        tm_gpu_pass(&a, row_of(&call->in[0], attr->part[p].column));
        tm_gpu_pass(&a, row_of(&call->in[1], p * attr->rank));
        tm_gpu_pass(&a, row_of(&call->in[2], row));
        tm_gpu_pass_int(&a, (int)rows);
        tm_gpu_pass_int(&a, (int)call->in[0].shape.n[1]);
        tm_gpu_pass_int(&a, (int)attr->rank);
        tm_gpu_pass_float(&a, attr->scale);
        TM_TRY(tm_gpu_start(call, 0, (rows + ROWS_OF_A_BLOCK - 1) / ROWS_OF_A_BLOCK, 1, 1, THREADS, &a, err));
    }
    return TM_OK;
}

static const char *refuse_joined_norm(const tm_call *call)
{
    const char *why = refuse_norms(&call->out[0]);
    for (int k = 0; k < 2 && !why; k++)
        if (tm_view_present(&call->in[k])) why = refuse_norms(&call->in[k]);
    return !why && call->accumulate ? "does not add to what is there" : why;
}

static tm_status prepare_joined_norm(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)call;
    (void)err;
    note(device, TM_F32, TM_F32, TM_F32, TM_F32, "joined_norm", state);
    return TM_OK;
}

static tm_status launch_joined_norm(const tm_call *call, tm_error *err)
{
    int64_t          rows = call->out[0].shape.n[0];
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_i64(&a, ((const tm_joined_attr *)call->attr)->parts);
    return tm_gpu_start_each(call, 0, rows, &a, err);
}

/* --- weights in blocks ----------------------------------------------------------------------------------------------
 */

enum { RUN = 8, WIDEST = 16 }; /* elements of a thread; bytes that it stores at once */

static const char *refuse_blocks(const tm_call *call)
{
    if (!tm_dtype_blocked(call->in[0].dtype)) return "takes weights in blocks with scales";
    if (!tm_view_dense(&call->in[0])) return "takes operands without gaps between their rows";
    return tm_gpu_refuse_view(&call->out[0]);
}

static tm_status prepare_blocks(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_dtype       from = call->in[0].dtype;
    bool           mapped = from == TM_NF4_BLOCKS;
    tm_gpu_defines d = { .n = 0 };
    (void)err;
    tm_gpu_define_format(&d, "Y", call->out[0].dtype);
    tm_gpu_define(&d, "NF4", tm_dtype_nf4(from));
    tm_gpu_define(&d, "MAPPED", mapped);
    tm_gpu_define(&d, "HEAD", mapped ? (int)TM_NF4_HEAD : (int)TM_E4M3_HEAD);
    tm_gpu_define(&d, "GROUP_BYTES",
                  mapped               ? (int)TM_NF4_GROUP_BYTES
                  : tm_dtype_nf4(from) ? (int)TM_SCALED_GROUP_BYTES
                                       : (int)TM_E4M3_GROUP_BYTES);
    tm_gpu_note(device, "frozen", tm_gpu_text_frozen, &d, "cast_blocks", state);
    return TM_OK;
}

static tm_status launch_blocks(const tm_call *call, tm_error *err)
{
    int64_t          n = tm_shape_elements(call->in[0].shape);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass_i64(&a, n);
    tm_gpu_pass_int(&a, (uintptr_t)call->out[0].data % WIDEST == 0);
    return tm_gpu_start_each(call, 0, (n + RUN - 1) / RUN, &a, err);
}

#define ADAPTER(id, kind, way, ...)                                                                                    \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/" kind, .refuse = refuse_##way, .launch = launch_##way,                        \
        .prepare = prepare_##way, .release = tm_gpu_forget, __VA_ARGS__                                                \
    }
#define refuse_scale refuse_alike
const tm_kernel tm_gpu_adapter[] = { ADAPTER(scale, "gpu", scale, ),
                                     ADAPTER(add_bias, "gpu", add_bias, ),
                                     ADAPTER(dropout, "gpu", dropout, ),
                                     ADAPTER(rescale, "gpu", rescale, ),
                                     ADAPTER(rescale_add, "gpu", rescale, ),
                                     ADAPTER(rescale_wgrad, "gpu", rescale_wgrad, .workspace = workspace_rescale_wgrad),
                                     ADAPTER(adapted_norm, "gpu", adapted_norm, ),
                                     ADAPTER(joined_norm, "gpu", joined_norm, ),
                                     ADAPTER(cast, "blocks", blocks, ),
                                     { .name = NULL } };
