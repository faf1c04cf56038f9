/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/embedding.c - rows of tables, and the gradients of the tables (source/embedding.h). */
#include "device/gpu/gpu.h"

enum { THREADS = 256 };

static tm_gpu_defines formats(tm_dtype table, tm_dtype rows)
{
    tm_gpu_defines d = { .n = 0 };
    tm_gpu_define_format(&d, "T", table);
    tm_gpu_define_format(&d, "Y", rows);
    return d;
}

static void note(const void *device, const tm_gpu_defines *d, const char *kernel, void **state)
{
    tm_gpu_note(device, "embedding", tm_gpu_text_embedding, d, kernel, state);
}

/* in: tokens, table, [positions], [place]; out: y */
static const char *refuse(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[1]);
    if (!why) why = tm_gpu_refuse_view(&call->in[2]);
    if (!why) why = tm_gpu_refuse_other(&call->in[2], call->in[1].dtype);
    return why ? why : tm_gpu_refuse_view(&call->out[0]);
}

static tm_status prepare(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = formats(call->in[1].dtype, call->out[0].dtype);
    (void)err;
    note(device, &d, "embedding", state);
    return TM_OK;
}

/* Can rows of both be taken by runs? */
static bool is_wide(const tm_view *table, const tm_view *rows)
{
    int run = tm_gpu_run(table->dtype, rows->dtype);
    return table->shape.n[1] % run == 0 && tm_gpu_is_wide(table) && tm_gpu_is_wide(rows);
}

static tm_status launch(const tm_call *call, tm_error *err)
{
    const tm_embedding_attr *attr = call->attr;
    tm_gpu_arguments         a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 4; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, call->in[1].shape.n[0]);
    tm_gpu_pass_int(&a, (int)call->in[1].shape.n[1]);
    tm_gpu_pass_i64(&a, attr->seq);
    tm_gpu_pass_i64(&a, attr->first);
    tm_gpu_pass_i64(&a, attr->from);
    tm_gpu_pass_i64(&a, attr->rows);
    tm_gpu_pass_int(&a, is_wide(&call->in[1], &call->out[0]) && tm_gpu_is_wide(&call->in[2]));
    return tm_gpu_start(call, 0, call->out[0].shape.n[0], 1, 1, THREADS, &a, err);
}

/* in: dy, tokens, [place]; out: [dtable], [dpositions] */
static const char *refuse_grad(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    tm_dtype    d = call->out[tm_view_present(&call->out[0]) ? 0 : 1].dtype;
    for (int k = 0; k < 2 && !why; k++) why = tm_gpu_refuse_view(&call->out[k]);
    for (int k = 0; k < 2 && !why; k++) why = tm_gpu_refuse_other(&call->out[k], d);
    if (!why && call->in[0].shape.n[0] > INT32_MAX / 2) why = "takes fewer than 2^30 rows";
    return why;
}

/* Where rows are in the order of their numbers, and those numbers; for one table after the other. */
static size_t workspace(const tm_call *call)
{
    return 2 * (size_t)call->in[0].shape.n[0] * sizeof(int32_t);
}

enum { ORDER, GRAD, CLEAR };

static tm_status prepare_grad(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = formats(call->out[tm_view_present(&call->out[0]) ? 0 : 1].dtype, call->in[0].dtype);
    (void)err;
    note(device, &d, "embedding_order", state);
    note(device, &d, "embedding_grad", state);
    note(device, &d, "clear", state);
    return TM_OK;
}

static tm_status clear(const tm_call *call, const tm_view *table, tm_error *err)
{
    int64_t          n = tm_shape_elements(table->shape);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, table->data);
    tm_gpu_pass_i64(&a, n);
    tm_gpu_pass_int(&a, tm_gpu_is_wide(table));
    n = tm_gpu_pieces(n, tm_gpu_run(table->dtype, table->dtype), tm_gpu_is_wide(table));
    return tm_gpu_start_each(call, CLEAR, n, &a, err);
}

static void pass_order(tm_gpu_arguments *a, const tm_call *call)
{
    tm_gpu_pass(a, call->workspace);
    tm_gpu_pass(a, (const int32_t *)call->workspace + call->in[0].shape.n[0]);
}

/* Of the table of tokens (0) or of positions (1). */
static tm_status launch_table(const tm_call *call, int k, tm_error *err)
{
    const tm_embedding_attr *attr = call->attr;
    const tm_view           *table = &call->out[k], *dy = &call->in[0];
    bool                     adds = call->accumulate >> k & 1U, wide = is_wide(table, dy);
    int64_t                  rows = dy->shape.n[0], numbers = table->shape.n[0], columns = table->shape.n[1];
    tm_gpu_arguments         a = { .bytes = 0 }, b = { .bytes = 0 };
    if (!tm_view_present(table)) return TM_OK;
    if (!adds) TM_TRY(clear(call, table, err));
    pass_order(&a, call);
    tm_gpu_pass(&a, k == 0 ? call->in[1].data : NULL);
    tm_gpu_pass(&a, k == 0 ? NULL : call->in[2].data);
    tm_gpu_pass_int(&a, (int)rows);
    tm_gpu_pass_i64(&a, numbers);
    tm_gpu_pass_i64(&a, attr->seq);
    tm_gpu_pass_i64(&a, attr->first);
    tm_gpu_pass_i64(&a, attr->from);
    tm_gpu_pass_i64(&a, attr->rows);
    TM_TRY(tm_gpu_start(call, ORDER, (numbers + THREADS - 1) / THREADS, 1, 1, THREADS, &a, err));
    int64_t lanes = tm_gpu_pieces(columns, tm_gpu_run(table->dtype, dy->dtype), wide);
    tm_gpu_pass(&b, table->data);
    tm_gpu_pass(&b, dy->data);
    pass_order(&b, call);
    tm_gpu_pass_int(&b, (int)rows);
    tm_gpu_pass_int(&b, (int)numbers);
    tm_gpu_pass_int(&b, (int)columns);
    tm_gpu_pass_int(&b, adds);
    tm_gpu_pass_int(&b, k == 0 && attr->apart);
    tm_gpu_pass_int(&b, wide);
    return tm_gpu_start(call, GRAD, rows, (lanes + THREADS - 1) / THREADS, 1, THREADS, &b, err);
}

static tm_status launch_grad(const tm_call *call, tm_error *err)
{
    for (int k = 0; k < 2; k++) TM_TRY(launch_table(call, k, err));
    return TM_OK;
}

const tm_kernel tm_gpu_embedding[] = { { .op = TM_OP_embedding,
                                         .name = "embedding/gpu",
                                         .refuse = refuse,
                                         .launch = launch,
                                         .prepare = prepare,
                                         .release = tm_gpu_forget },
                                       { .op = TM_OP_embedding_grad,
                                         .name = "embedding_grad/gpu",
                                         .refuse = refuse_grad,
                                         .workspace = workspace,
                                         .launch = launch_grad,
                                         .prepare = prepare_grad,
                                         .release = tm_gpu_forget },
                                       { .name = NULL } };
