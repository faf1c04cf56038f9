/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/compare.c - a tensor beside the one that it should be (source/compare.cu): records of blocks, which one
 * block adds up in ascending order. */
#include "op/compare.h"

#include "device/gpu/gpu.h"

enum { THREADS = 256, MOST_BLOCKS = 1024 };
enum { PARTS, RECORD }; /* what `prepare` notes */

/* Rows of elements that follow one another. */
typedef struct {
    int64_t rows, columns, tiles; /* tiles of a row */
} lengths;

static lengths lengths_of(const tm_call *call)
{
    const tm_view *a = &call->in[0];
    int64_t        all = tm_shape_elements(a->shape);
    int64_t        columns = tm_view_dense(a) && tm_view_dense(&call->in[1]) ? all : a->shape.n[a->shape.rank - 1];
    return (lengths){ columns ? all / columns : 0, columns, (columns + THREADS - 1) / THREADS };
}

static int64_t blocks_of(const tm_call *call)
{
    lengths l = lengths_of(call);
    return l.rows * l.tiles < MOST_BLOCKS ? l.rows * l.tiles : MOST_BLOCKS;
}

static const char *refuse(const tm_call *call)
{
    const char *why = tm_gpu_refuse_strided(&call->in[0]);
    if (!why) why = tm_gpu_refuse_strided(&call->in[1]);
    return why ? why : call->out[0].dtype == TM_F64 ? NULL : "keeps its record in float64";
}

static size_t workspace(const tm_call *call)
{
    return (size_t)blocks_of(call) * TM_COMPARED * sizeof(double);
}

static tm_status prepare(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = { .n = 0 };
    (void)err;
    tm_gpu_define_format(&d, "X", call->in[0].dtype);
    tm_gpu_define_format(&d, "Y", call->in[1].dtype);
    tm_gpu_note(device, "compare", tm_gpu_text_compare, &d, "compare_parts", state);
    tm_gpu_note(device, "compare", tm_gpu_text_compare, &d, "compare_record", state);
    return TM_OK;
}

static tm_status launch(const tm_call *call, tm_error *err)
{
    const tm_compare_attr *attr = call->attr;
    lengths                l = lengths_of(call);
    uintptr_t              row = (uintptr_t)call->out[0].data + (size_t)attr->row * TM_COMPARED * sizeof(double);
    tm_gpu_arguments       a = { .bytes = 0 }, b = { .bytes = 0 };
    tm_gpu_pass(&a, call->workspace);
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, l.rows);
    tm_gpu_pass_i64(&a, l.columns);
    for (int k = 0; k < 2; k++) tm_gpu_pass_i64(&a, tm_view_ld(&call->in[k]));
    tm_gpu_pass_i64(&a, l.tiles);
    TM_TRY(tm_gpu_start(call, PARTS, blocks_of(call), 1, 1, THREADS, &a, err));
    tm_gpu_pass(&b, (const void *)row); // NOLINT(performance-no-int-to-ptr): of the device
    tm_gpu_pass(&b, call->workspace);
    tm_gpu_pass_int(&b, (int)blocks_of(call));
    return tm_gpu_start(call, RECORD, 1, 1, 1, THREADS, &b, err);
}

const tm_kernel tm_gpu_compare[] = { { .op = TM_OP_compare,
                                       .name = "compare/gpu",
                                       .refuse = refuse,
                                       .workspace = workspace,
                                       .launch = launch,
                                       .prepare = prepare,
                                       .release = tm_gpu_forget },
                                     { .name = NULL } };
