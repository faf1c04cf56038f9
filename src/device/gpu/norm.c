/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/norm.c - norms of rows, their gradients, and sums over rows (source/norm.h). Rows are summed in chunks,
 * the chunks in ascending order: the same bits in every run. */
#include "device/gpu/gpu.h"

enum { THREADS = 256, CHUNK = 32, MOST_CHUNKS = 65535 };

/* As source/norm.cu has them: runs that a lane keeps, of 16 bytes; lanes that share the sums over chunks. */
enum { KEPT = 4, LEAST_WAVE = 32, ACROSS = 8 };

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

/* Can rows be taken by runs? */
static bool is_wide(const tm_call *call, int64_t columns)
{
    int run = tm_gpu_run(call->in[0].dtype, call->in[0].dtype);
    return columns % run == 0 && tm_gpu_call_is_wide(call);
}

/* Does a wave have a row? Of so few columns that it keeps it. */
static bool by_waves(const tm_call *call, int64_t columns)
{
    return columns * (int64_t)tm_dtype_bytes(call->in[0].dtype) <= 16 * KEPT * LEAST_WAVE;
}

/* Blocks for so many rows, or chunks of them: one each, or one for each wave. */
static int64_t blocks_of(const tm_call *call, int64_t teams, bool waves)
{
    int64_t each = waves ? THREADS / tm_gpu_wave(call->device) : 1;
    return (teams + each - 1) / each;
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
    int64_t          rows = call->in[0].shape.n[0], columns = call->in[0].shape.n[1];
    bool             waves = by_waves(call, columns);
    tm_gpu_arguments a = { .bytes = 0 };
    for (int k = 0; k < call->op->n_out; k++) tm_gpu_pass(&a, call->out[k].data);
    for (int k = 0; k < call->op->n_in; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_int(&a, (int)rows);
    tm_gpu_pass_int(&a, (int)columns);
    tm_gpu_pass_float(&a, ((const tm_norm_attr *)call->attr)->eps);
    tm_gpu_pass_int(&a, waves);
    tm_gpu_pass_int(&a, is_wide(call, columns));
    return tm_gpu_start(call, 0, blocks_of(call, rows, waves), 1, 1, THREADS, &a, err);
}

/* --- sums over rows
 * ------------------------------------------------------------------------------------------------------ */

void tm_gpu_note_column_sums(const void *device, tm_dtype x, tm_dtype sums, void **state)
{
    tm_gpu_defines d = formats(x, TM_F32, sums);
    note(device, &d, "column_sums", state);
}

tm_status tm_gpu_start_column_sums(const tm_call *call, int kernel, const void *part, const tm_view *to, int64_t chunks,
                                   bool adds, tm_error *err)
{
    int64_t          columns = to->shape.n[0];
    int64_t          run = columns % 4 == 0 ? 4 : 1, across = (columns + ACROSS * run - 1) / (ACROSS * run);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, to->data);
    tm_gpu_pass(&a, part);
    tm_gpu_pass_int(&a, (int)columns);
    tm_gpu_pass_int(&a, (int)chunks);
    tm_gpu_pass_int(&a, adds);
    tm_gpu_pass_int(&a, run == 4);
    return tm_gpu_start(call, kernel, across, 1, 1, THREADS, &a, err);
}

static tm_status sum_chunks(const tm_call *call, int kernel, const void *part, const tm_view *to, bool adds,
                            tm_error *err)
{
    return tm_gpu_start_column_sums(call, kernel, part, to, chunks_of(call->in[0].shape.n[0]), adds, err);
}

/* Of dy times x and statistics (NULL: there are none), into `to`; kernels number `kernel` and the next. */
static tm_status sum_rows(const tm_call *call, int kernel, const void *x, const void *mean, const void *rstd,
                          const tm_view *to, bool adds, tm_error *err)
{
    const tm_view   *dy = &call->in[0];
    int64_t          rows = dy->shape.n[0], columns = dy->shape.n[1];
    bool             wide = is_wide(call, columns);
    int64_t          lanes = tm_gpu_pieces(columns, tm_gpu_run(dy->dtype, dy->dtype), wide);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass(&a, dy->data);
    tm_gpu_pass(&a, x);
    tm_gpu_pass(&a, mean);
    tm_gpu_pass(&a, rstd);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_int(&a, (int)columns);
    tm_gpu_pass_int(&a, CHUNK);
    tm_gpu_pass_int(&a, wide);
    TM_TRY(tm_gpu_start(call, kernel, (lanes + THREADS - 1) / THREADS, chunks_of(rows), 1, THREADS, &a, err));
    return sum_chunks(call, kernel + 1, call->workspace, to, adds, err);
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
    return sum_rows(call, 0, NULL, NULL, NULL, &call->out[0], call->accumulate & 1U, err);
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

static bool wants_bias(const tm_call *call)
{
    return has_mean(call) && tm_view_present(&call->out[2]);
}

static bool wants_sums(const tm_call *call)
{
    return tm_view_present(&call->out[1]) || wants_bias(call);
}

/* Are sums over rows made on the way? Where lanes keep whole rows, and so the sums of their columns. */
static bool sums_on_the_way(const tm_call *call)
{
    const tm_view *x = &call->in[1];
    int64_t        kept = KEPT * THREADS * (is_wide(call, x->shape.n[1]) ? tm_gpu_run(x->dtype, x->dtype) : 1);
    return wants_sums(call) && x->shape.n[1] <= kept;
}

/* Parts of both sums. */
static size_t grad_workspace(const tm_call *call)
{
    return wants_sums(call) ? (wants_bias(call) ? 2 : 1) * sums_workspace(call) : 0;
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

static void *parts_of_bias(const tm_call *call)
{
    if (!tm_view_present(&call->out[1])) return call->workspace;
    return (void *)((uintptr_t)call->workspace + sums_workspace(call)); // NOLINT(performance-no-int-to-ptr)
}

/* Sums by a kernel of their own come first: dx may lie where dy does. */
static tm_status sum_before(const tm_call *call, tm_error *err)
{
    const void *x = call->in[1].data, *mean = has_mean(call) ? call->in[3].data : NULL;
    if (tm_view_present(&call->out[1]))
        TM_TRY(sum_rows(call, 1, x, mean, call->in[has_mean(call) ? 4 : 3].data, &call->out[1],
                        call->accumulate >> 1 & 1U, err));
    if (wants_bias(call)) return sum_rows(call, 1, NULL, NULL, NULL, &call->out[2], call->accumulate >> 2 & 1U, err);
    return TM_OK;
}

static tm_status launch_grad(const tm_call *call, tm_error *err)
{
    const tm_view   *x = &call->in[1];
    int64_t          rows = x->shape.n[0], columns = x->shape.n[1];
    bool             sums = sums_on_the_way(call), waves = by_waves(call, columns);
    int              chunk = sums ? CHUNK : 1;
    tm_gpu_arguments a = { .bytes = 0 };
    if (!sums) TM_TRY(sum_before(call, err));
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < call->op->n_in; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass(&a, sums && tm_view_present(&call->out[1]) ? call->workspace : NULL);
    if (has_mean(call)) tm_gpu_pass(&a, sums && wants_bias(call) ? parts_of_bias(call) : NULL);
    tm_gpu_pass_int(&a, (int)rows);
    tm_gpu_pass_int(&a, (int)columns);
    tm_gpu_pass_int(&a, chunk);
    tm_gpu_pass_int(&a, waves);
    tm_gpu_pass_int(&a, is_wide(call, columns));
    int64_t teams = sums ? chunks_of(rows) : rows;
    TM_TRY(tm_gpu_start(call, 0, blocks_of(call, teams, waves), 1, 1, THREADS, &a, err));
    if (sums && tm_view_present(&call->out[1]))
        TM_TRY(sum_chunks(call, 2, call->workspace, &call->out[1], call->accumulate >> 1 & 1U, err));
    if (!sums || !wants_bias(call)) return TM_OK;
    return sum_chunks(call, 2, parts_of_bias(call), &call->out[2], call->accumulate >> 2 & 1U, err);
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
