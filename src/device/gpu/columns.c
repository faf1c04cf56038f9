/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/columns.c - copies of columns, gelu into columns, and its gradient with that of a bias
 * (source/columns.cu). Sums are made of chunks of rows, in a fixed order: the same bits in every run. */
#include "device/gpu/gpu.h"

enum { THREADS = 256, CHUNK = 32, MOST_CHUNKS = 65535 };

static int64_t chunks_of(const tm_call *call)
{
    return (call->in[0].shape.n[0] + CHUNK - 1) / CHUNK;
}

static int64_t columns_of(const tm_view *view)
{
    return view->shape.n[view->shape.rank - 1];
}

/* in[0] to out[0], whose rows may lie apart. */
static const char *refuse(const tm_call *call)
{
    const char *why = tm_gpu_refuse_strided(&call->in[0]);
    if (!why) why = tm_gpu_refuse_strided(&call->out[0]);
    if (!why) why = tm_gpu_refuse_other(&call->out[0], call->in[0].dtype);
    if (!why && call->in[0].shape.rank != 2) why = "takes matrices";
    return why ? why : call->accumulate & 1U ? "does not add to what is there" : NULL;
}

static const char *refuse_bias(const tm_call *call)
{
    const char *why = refuse(call);
    if (!why) why = tm_gpu_refuse_other(&call->in[1], call->in[0].dtype);
    if (!why) why = tm_gpu_refuse_view(&call->in[1]);
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    if (!why) why = tm_gpu_refuse_view(&call->out[1]);
    return !why && chunks_of(call) > MOST_CHUNKS ? "more rows than a grid takes" : why;
}

static size_t bias_workspace(const tm_call *call)
{
    return (size_t)(chunks_of(call) * columns_of(&call->in[0])) * sizeof(float);
}

/* By runs: also of the rows of the views. */
static bool is_wide(const tm_call *call, int run)
{
    bool wide = columns_of(&call->in[0]) % run == 0 && tm_view_ld(&call->in[0]) % run == 0;
    wide = wide && tm_view_ld(&call->out[0]) % run == 0 && tm_gpu_is_wide(&call->out[0]);
    for (int k = 0; k < call->op->n_in; k++) wide = wide && tm_gpu_is_wide(&call->in[k]);
    return wide;
}

static tm_status prepare(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = { .n = 0 };
    (void)err;
    tm_gpu_define_format(&d, "X", call->in[0].dtype);
    tm_gpu_note(device, "columns", tm_gpu_text_columns, &d, call->op->name, state);
    if (call->op == &tm_op_gelu_bias_grad)
        tm_gpu_note_column_sums(device, call->in[0].dtype, call->out[1].dtype, state);
    return TM_OK;
}

static tm_status launch(const tm_call *call, tm_error *err)
{
    int64_t          rows = call->in[0].shape.n[0], columns = columns_of(&call->in[0]);
    int              run = tm_gpu_run(call->in[0].dtype, call->in[0].dtype);
    bool             wide = is_wide(call, run);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_int(&a, (int)columns);
    tm_gpu_pass_i64(&a, tm_view_ld(&call->out[0]));
    tm_gpu_pass_i64(&a, tm_view_ld(&call->in[0]));
    tm_gpu_pass_int(&a, wide);
    return tm_gpu_start_rows(call, 0, rows, tm_gpu_pieces(columns, run, wide), &a, err);
}

static tm_status launch_bias(const tm_call *call, tm_error *err)
{
    int64_t          rows = call->in[0].shape.n[0], columns = columns_of(&call->in[0]);
    int              run = tm_gpu_run(call->in[0].dtype, call->in[0].dtype);
    bool             wide = is_wide(call, run);
    int64_t          lanes = wide ? columns / run : columns;
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    tm_gpu_pass(&a, call->workspace);
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_int(&a, (int)columns);
    tm_gpu_pass_i64(&a, tm_view_ld(&call->in[0]));
    tm_gpu_pass_int(&a, CHUNK);
    tm_gpu_pass_int(&a, wide);
    TM_TRY(tm_gpu_start(call, 0, (lanes + THREADS - 1) / THREADS, chunks_of(call), 1, THREADS, &a, err));
    return tm_gpu_start_column_sums(call, 1, call->workspace, &call->out[1], chunks_of(call),
                                    call->accumulate >> 1 & 1U, err);
}

const tm_kernel tm_gpu_columns[] = { { .op = TM_OP_copy,
                                       .name = "copy/gpu",
                                       .refuse = refuse,
                                       .launch = launch,
                                       .prepare = prepare,
                                       .release = tm_gpu_forget },
                                     { .op = TM_OP_gelu,
                                       .name = "gelu/columns",
                                       .refuse = refuse,
                                       .launch = launch,
                                       .prepare = prepare,
                                       .release = tm_gpu_forget },
                                     { .op = TM_OP_gelu_bias_grad,
                                       .name = "gelu_bias_grad/gpu",
                                       .refuse = refuse_bias,
                                       .workspace = bias_workspace,
                                       .launch = launch_bias,
                                       .prepare = prepare,
                                       .release = tm_gpu_forget },
                                     { .name = NULL } };
