/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/images.c - ops that a transformer of images has beside those of decoders (source/images.cu). Sums over a
 * sample's rows are made of chunks, in ascending order: the same bits in every run. */
#include "device/gpu/gpu.h"

#include <math.h>

enum { THREADS = 256, CHUNK = 64, SHARE = 8192, MOST = 65535, NORMS = 4 };

static int64_t over(int64_t n, int64_t each)
{
    return (n + each - 1) / each;
}

static void note(const void *device, tm_dtype x, tm_dtype y, tm_dtype z, const char *kernel, void **state)
{
    tm_gpu_defines d = { .n = 0 };
    tm_gpu_define_format(&d, "X", x);
    tm_gpu_define_format(&d, "Y", y);
    tm_gpu_define_format(&d, "Z", z);
    tm_gpu_note(device, "images", tm_gpu_text_images, &d, kernel, state);
}

/* Where every operand has the format of activations. */
static void note_plain(const void *device, const tm_call *call, const char *kernel, void **state)
{
    note(device, call->in[0].dtype, call->in[0].dtype, call->in[0].dtype, kernel, state);
}

static tm_status prepare_plain(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    note_plain(device, call, call->op->name, state);
    return TM_OK;
}

/* Inputs and outputs of the bits have the format of in[0], rows of the others may lie apart. */
static const char *refuse_mixed(const tm_call *call, unsigned in, unsigned out)
{
    const char *why = NULL;
    for (int k = 0; k < TM_MAX_IN + TM_MAX_OUT && !why; k++) {
        const tm_view *view = k < TM_MAX_IN ? &call->in[k] : &call->out[k - TM_MAX_IN];
        bool           wanted = k < TM_MAX_IN ? in >> k & 1U : out >> (k - TM_MAX_IN) & 1U;
        bool apart = k < TM_MAX_IN ? call->op->strided_in >> k & 1U : call->op->strided_out >> (k - TM_MAX_IN) & 1U;
        if (!wanted || !tm_view_present(view)) continue;
        why = apart ? tm_gpu_refuse_strided(view) : tm_gpu_refuse_view(view);
        if (!why) why = tm_gpu_refuse_other(view, call->in[0].dtype);
    }
    if (!why && call->in[0].shape.n[0] > INT32_MAX) why = "takes fewer than 2^31 rows";
    return !why && call->accumulate ? "does not add to what is there" : why;
}

/* By runs: also of views. */
static bool is_wide(const tm_call *call, int run)
{
    bool wide = call->in[0].shape.n[1] % run == 0 && tm_gpu_call_is_wide(call);
    for (int k = 0; k < TM_MAX_IN; k++)
        if (tm_view_present(&call->in[k]) && call->op->strided_in >> k & 1U)
            wide = wide && tm_view_ld(&call->in[k]) % run == 0;
    return wide;
}

static int run_of(const tm_call *call)
{
    return tm_gpu_run(call->in[0].dtype, call->in[0].dtype);
}

/* --- time_embedding
 * ------------------------------------------------------------------------------------------------------ */

static const char *refuse_time(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    return why ? why : tm_gpu_refuse_view(&call->out[0]);
}

static tm_status prepare_time(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    note(device, call->out[0].dtype, call->in[0].dtype, call->out[0].dtype, call->op->name, state);
    return TM_OK;
}

static tm_status launch_time(const tm_call *call, tm_error *err)
{
    int64_t          samples = call->out[0].shape.n[0], half = ((const tm_time_attr *)call->attr)->dim / 2;
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass_i64(&a, samples);
    tm_gpu_pass_int(&a, (int)half);
    tm_gpu_pass_double(&a, -log2(10000) / (double)half);
    return tm_gpu_start_rows(call, 0, samples, half, &a, err);
}

/* --- sums over the rows of samples
 * ------------------------------------------------------------------------------------------- */

enum { DX, PARTS, SUMS }; /* kernels of the gradients */

static size_t parts_bytes(const tm_call *call, int64_t seq, int sums)
{
    const tm_view *factor = &call->in[2];
    return (size_t)(factor->shape.n[0] * over(seq, CHUNK) * sums * factor->shape.n[1]) * sizeof(float);
}

static const char *refuse_samples(const tm_call *call, int64_t seq)
{
    bool fits = call->in[2].shape.n[0] <= MOST && over(seq, CHUNK) <= MOST;
    return fits ? NULL : "more samples or rows of one than a grid takes";
}

static tm_status prepare_sums(const void *device, const tm_call *call, void **state, tm_error *err)
{
    TM_TRY(prepare_plain(device, call, state, err));
    note_plain(device, call, "sample_parts", state);
    note_plain(device, call, "sample_sums", state);
    return TM_OK;
}

/* mean NULL: of dy x, into output 1; else of dy, into output 1, and of dy (x - mean) rstd, into output 2. */
static tm_status start_sums(const tm_call *call, int64_t seq, const void *mean, const void *rstd, tm_error *err)
{
    int64_t samples = call->in[2].shape.n[0], columns = call->in[2].shape.n[1], across = over(columns, THREADS);
    int     sums = mean ? 2 : 1;
    bool    wide = is_wide(call, run_of(call));
    int64_t lanes = wide ? columns / run_of(call) : columns;
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass(&a, call->in[1].data);
    tm_gpu_pass(&a, mean);
    tm_gpu_pass(&a, rstd);
    tm_gpu_pass_int(&a, (int)columns);
    tm_gpu_pass_int(&a, (int)seq);
    tm_gpu_pass_int(&a, CHUNK);
    tm_gpu_pass_int(&a, wide);
    TM_TRY(tm_gpu_start(call, PARTS, over(lanes, THREADS), over(seq, CHUNK), samples, THREADS, &a, err));
    for (int k = 0; k < sums; k++) {
        tm_gpu_arguments b = { .bytes = 0 };
        tm_gpu_pass(&b, call->out[1 + k].data);
        tm_gpu_pass(&b, call->workspace);
        tm_gpu_pass_int(&b, (int)columns);
        tm_gpu_pass_int(&b, (int)over(seq, CHUNK));
        tm_gpu_pass_int(&b, sums);
        tm_gpu_pass_int(&b, k);
        tm_gpu_pass_i64(&b, tm_view_ld(&call->out[1 + k]));
        TM_TRY(tm_gpu_start(call, SUMS, across, samples, 1, THREADS, &b, err));
    }
    return TM_OK;
}

/* --- modulate
 * ---------------------------------------------------------------------------------------------------------------- */

static const char *refuse_modulate(const tm_call *call)
{
    const char *why = refuse_mixed(call, 7, 1);
    for (int k = 1; k < 3 && !why; k++)
        if (call->out[k].dtype != TM_F32) why = "keeps its statistics in float32";
    return why;
}

static tm_status launch_modulate(const tm_call *call, tm_error *err)
{
    const tm_modulate_attr *attr = call->attr;
    tm_gpu_arguments        a = { .bytes = 0 };
    for (int k = 0; k < 3; k++) tm_gpu_pass(&a, call->out[k].data);
    for (int k = 0; k < 3; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_int(&a, (int)call->in[0].shape.n[1]);
    tm_gpu_pass_int(&a, (int)attr->seq);
    for (int k = 1; k < 3; k++) tm_gpu_pass_i64(&a, tm_view_ld(&call->in[k]));
    tm_gpu_pass_float(&a, attr->eps);
    tm_gpu_pass_int(&a, is_wide(call, run_of(call)));
    return tm_gpu_start(call, 0, call->in[0].shape.n[0], 1, 1, THREADS, &a, err);
}

static const char *refuse_modulate_grad(const tm_call *call)
{
    const char *why = refuse_mixed(call, 7 | 1U << 5, 7);
    for (int k = 3; k < 5 && !why; k++)
        if (call->in[k].dtype != TM_F32) why = "takes statistics in float32";
    return why ? why : refuse_samples(call, ((const tm_modulate_attr *)call->attr)->seq);
}

static size_t modulate_workspace(const tm_call *call)
{
    return parts_bytes(call, ((const tm_modulate_attr *)call->attr)->seq, 2);
}

/* The sums first: dx may lie where dy does. */
static tm_status launch_modulate_grad(const tm_call *call, tm_error *err)
{
    const tm_modulate_attr *attr = call->attr;
    tm_gpu_arguments        a = { .bytes = 0 };
    TM_TRY(start_sums(call, attr->seq, call->in[3].data, call->in[4].data, err));
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 6; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_int(&a, (int)call->in[1].shape.n[1]);
    tm_gpu_pass_int(&a, (int)attr->seq);
    tm_gpu_pass_i64(&a, tm_view_ld(&call->in[2]));
    tm_gpu_pass_int(&a, is_wide(call, run_of(call)));
    return tm_gpu_start(call, DX, call->in[1].shape.n[0], 1, 1, THREADS, &a, err);
}

/* --- gated_add
 * --------------------------------------------------------------------------------------------------------------- */

static const char *refuse_gated(const tm_call *call)
{
    return refuse_mixed(call, 7, 1);
}

static tm_status start_gated(const tm_call *call, const int *in, int n, tm_error *err)
{
    int64_t          rows = call->in[0].shape.n[0], columns = call->in[0].shape.n[1];
    bool             wide = is_wide(call, run_of(call));
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int i = 0; i < n; i++) tm_gpu_pass(&a, call->in[in[i]].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_int(&a, (int)columns);
    tm_gpu_pass_int(&a, (int)((const tm_gated_add_attr *)call->attr)->seq);
    tm_gpu_pass_i64(&a, tm_view_ld(&call->in[2]));
    tm_gpu_pass_int(&a, wide);
    return tm_gpu_start_rows(call, 0, rows, tm_gpu_pieces(columns, run_of(call), wide), &a, err);
}

static tm_status launch_gated(const tm_call *call, tm_error *err)
{
    return start_gated(call, (const int[]){ 0, 1, 2 }, 3, err);
}

static const char *refuse_gated_grad(const tm_call *call)
{
    const char *why = refuse_mixed(call, 7, 3);
    return why ? why : refuse_samples(call, ((const tm_gated_add_attr *)call->attr)->seq);
}

static size_t gated_workspace(const tm_call *call)
{
    return parts_bytes(call, ((const tm_gated_add_attr *)call->attr)->seq, 1);
}

/* The sums first: du may lie where dy or u does. */
static tm_status launch_gated_grad(const tm_call *call, tm_error *err)
{
    TM_TRY(start_sums(call, ((const tm_gated_add_attr *)call->attr)->seq, NULL, NULL, err));
    return start_gated(call, (const int[]){ 0, 2 }, 2, err);
}

/* --- square_error
 * ------------------------------------------------------------------------------------------------------------ */

/* Of a block: at least SHARE, and more where there are many. */
static int64_t share_of(int64_t n)
{
    return over(n, SHARE) > SHARE ? over(n, SHARE) : SHARE;
}

static const char *refuse_error(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_view(&call->in[1]);
    return why ? why : call->out[0].dtype == TM_F64 ? NULL : "keeps the loss in float64";
}

static size_t error_workspace(const tm_call *call)
{
    int64_t n = tm_shape_elements(call->in[0].shape);
    return (size_t)over(n, share_of(n)) * sizeof(double);
}

static tm_status prepare_error(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    note(device, call->in[0].dtype, call->in[1].dtype, call->in[0].dtype, call->op->name, state);
    if (call->op == &tm_op_square_error)
        note(device, call->in[0].dtype, call->in[1].dtype, call->in[0].dtype, "square_error_sum", state);
    return TM_OK;
}

static tm_status launch_error(const tm_call *call, tm_error *err)
{
    int64_t          n = tm_shape_elements(call->in[0].shape), share = share_of(n), parts = over(n, share);
    tm_gpu_arguments a = { .bytes = 0 }, b = { .bytes = 0 };
    tm_gpu_pass(&a, call->workspace);
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, n);
    tm_gpu_pass_i64(&a, share);
    TM_TRY(tm_gpu_start(call, 0, parts, 1, 1, THREADS, &a, err));
    tm_gpu_pass(&b, call->out[0].data);
    tm_gpu_pass(&b, call->workspace);
    tm_gpu_pass_int(&b, (int)parts);
    tm_gpu_pass_int(&b, call->accumulate & 1U);
    return tm_gpu_start(call, 1, 1, 1, 1, THREADS, &b, err);
}

static const char *refuse_error_grad(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_view(&call->in[1]);
    if (!why) why = tm_gpu_refuse_other(&call->out[0], call->in[0].dtype);
    if (!why && call->in[2].dtype != TM_F64) why = "takes scalars in float64";
    return why ? why : call->accumulate ? "does not add to what is there" : NULL;
}

static tm_status launch_error_grad(const tm_call *call, tm_error *err)
{
    int64_t          n = tm_shape_elements(call->in[0].shape);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 3; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, n);
    return tm_gpu_start_each(call, 0, n, &a, err);
}

#define IMAGES(id, how, ready, ...)                                                                                    \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/gpu", .refuse = refuse_##how, .launch = launch_##how,                          \
        .prepare = prepare_##ready, .release = tm_gpu_forget, __VA_ARGS__                                              \
    }
const tm_kernel tm_gpu_images[] = { IMAGES(time_embedding, time, time, ),
                                    IMAGES(modulate, modulate, plain, ),
                                    IMAGES(modulate_grad, modulate_grad, sums, .workspace = modulate_workspace),
                                    IMAGES(gated_add, gated, plain, ),
                                    IMAGES(gated_add_grad, gated_grad, sums, .workspace = gated_workspace),
                                    IMAGES(square_error, error, error, .workspace = error_workspace),
                                    IMAGES(square_error_grad, error_grad, error, ),
                                    { .name = NULL } };
