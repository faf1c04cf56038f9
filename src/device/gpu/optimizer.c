/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/optimizer.c - AdamW, and the norm of the gradients (source/optimizer.h). */
#include "device/gpu/gpu.h"

#include <stdint.h>

enum { THREADS = 256, MOST_PARTS = 1024 };

static tm_gpu_defines formats(tm_dtype p, tm_dtype m)
{
    tm_gpu_defines d = { .n = 0 };
    tm_gpu_define_format(&d, "P", p);
    tm_gpu_define_format(&d, "M", m);
    return d;
}

/* --- adamw
 * ------------------------------------------------------------------------------------------------------------ */

/* in: p, g, m, v, scalars, clip, [c]; out: p, m, v, [c], [w] */
static const char *refuse_adamw(const tm_call *call)
{
    const tm_adamw_attr *attr = call->attr;
    const tm_view       *weights[] = { &call->in[0], &call->in[1], &call->in[6], &call->out[0], &call->out[3] };
    const tm_view       *moments[] = { &call->in[2], &call->in[3], &call->out[1], &call->out[2] };
    const char          *why = NULL;
    for (int k = 0; k < 5 && !why; k++) why = tm_gpu_refuse_view(weights[k]);
    for (int k = 0; k < 5 && !why; k++) why = tm_gpu_refuse_other(weights[k], weights[0]->dtype);
    for (int k = 0; k < 4 && !why; k++) why = tm_gpu_refuse_view(moments[k]);
    for (int k = 0; k < 4 && !why; k++) why = tm_gpu_refuse_other(moments[k], moments[0]->dtype);
    if (!why) why = tm_gpu_refuse_view(&call->out[4]);
    if (!why && tm_view_present(&call->out[4]) && call->out[4].dtype != TM_BF16) why = "writes copies in bfloat16";
    if (!why && (call->in[4].dtype != TM_F64 || call->in[5].dtype != TM_F64)) why = "takes scalars in float64";
    return !why && attr->rounding ? "rounds to nearest only" : why;
}

static tm_status prepare_adamw(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = formats(call->in[0].dtype, call->in[2].dtype);
    (void)err;
    tm_gpu_note(device, "optimizer", tm_gpu_text_optimizer, &d, "adamw", state);
    return TM_OK;
}

/* Results that do not lie in the place of what they update: that is copied there first. */
static tm_status put_in_place(const tm_call *call, int in, int out, tm_error *err)
{
    const tm_view *x = &call->in[in], *y = &call->out[out];
    if (!tm_view_present(y) || x->data == y->data) return TM_OK;
    return tm_gpu_copy_of(call, y->data, x->data, tm_tensor_bytes(x->shape, x->dtype), err);
}

/* Elements of a run: 16 bytes of the wider format (RUN in the text). */
static int run_of(const tm_call *call)
{
    return call->in[0].dtype == TM_BF16 && call->in[2].dtype == TM_BF16 ? 8 : 4;
}

/* Do all operands begin where runs of their format can be loaded and stored at once? */
static bool in_runs(const tm_call *call)
{
    const tm_view *all[] = { &call->in[1], &call->out[0], &call->out[1], &call->out[2], &call->out[3], &call->out[4] };
    for (size_t k = 0; k < sizeof all / sizeof all[0]; k++)
        if (tm_view_present(all[k]) &&
            (uintptr_t)all[k]->data % ((size_t)run_of(call) * tm_dtype_bytes(all[k]->dtype)) != 0)
            return false;
    return true;
}

static tm_status launch_adamw(const tm_call *call, tm_error *err)
{
    static const int     inputs[] = { 0, 2, 3, 6 };
    const tm_adamw_attr *attr = call->attr;
    int64_t              n = tm_shape_elements(call->in[0].shape), runs = in_runs(call) ? n / run_of(call) : 0;
    tm_gpu_arguments     a = { .bytes = 0 };
    for (int k = 0; k < 4; k++) TM_TRY(put_in_place(call, inputs[k], k, err));
    tm_gpu_pass(&a, call->out[0].data);
    tm_gpu_pass(&a, call->in[1].data);
    for (int k = 1; k < 5; k++) tm_gpu_pass(&a, call->out[k].data);
    tm_gpu_pass(&a, call->in[4].data);
    tm_gpu_pass(&a, call->in[5].data);
    tm_gpu_pass_i64(&a, n);
    tm_gpu_pass_i64(&a, runs);
    tm_gpu_pass_double(&a, attr->beta1);
    tm_gpu_pass_double(&a, attr->beta2);
    tm_gpu_pass_double(&a, attr->eps);
    tm_gpu_pass_double(&a, attr->weight_decay);
    return tm_gpu_start_each(call, 0, runs > 0 ? runs : n, &a, err);
}

/* --- square_sum, clip
 * --------------------------------------------------------------------------------------------------- */

static const char *refuse_squares(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    return why ? why : call->out[0].dtype == TM_F64 ? NULL : "keeps the sum in float64";
}

static int64_t parts_of(const tm_call *call)
{
    int64_t n = (tm_shape_elements(call->in[0].shape) + 4 * THREADS - 1) / (4 * THREADS);
    return n < 1 ? 1 : n > MOST_PARTS ? MOST_PARTS : n;
}

static size_t squares_workspace(const tm_call *call)
{
    return (size_t)parts_of(call) * sizeof(double);
}

static tm_status prepare_squares(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = formats(call->in[0].dtype, TM_F32);
    (void)err;
    tm_gpu_note(device, "optimizer", tm_gpu_text_optimizer, &d, "square_parts", state);
    tm_gpu_note(device, "optimizer", tm_gpu_text_optimizer, &d, "square_total", state);
    return TM_OK;
}

static tm_status launch_squares(const tm_call *call, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 }, b = { .bytes = 0 };
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass_i64(&a, tm_shape_elements(call->in[0].shape));
    tm_gpu_pass_int(&a, tm_gpu_is_wide(&call->in[0]));
    TM_TRY(tm_gpu_start(call, 0, parts_of(call), 1, 1, THREADS, &a, err));
    tm_gpu_pass(&b, call->out[0].data);
    tm_gpu_pass(&b, call->workspace);
    tm_gpu_pass_int(&b, (int)parts_of(call));
    tm_gpu_pass_int(&b, call->accumulate & 1U);
    return tm_gpu_start(call, 1, 1, 1, 1, THREADS, &b, err);
}

static const char *refuse_clip(const tm_call *call)
{
    bool double_all = call->in[0].dtype == TM_F64 && call->in[1].dtype == TM_F64 && call->out[0].dtype == TM_F64;
    return double_all ? NULL : "takes float64";
}

static tm_status prepare_clip(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = formats(TM_F32, TM_F32);
    (void)call;
    (void)err;
    tm_gpu_note(device, "optimizer", tm_gpu_text_optimizer, &d, "clip", state);
    return TM_OK;
}

static tm_status launch_clip(const tm_call *call, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    tm_gpu_pass(&a, call->in[0].data);
    tm_gpu_pass(&a, call->in[1].data);
    return tm_gpu_start(call, 0, 1, 1, 1, 1, &a, err);
}

const tm_kernel tm_gpu_optimizer[] = { { .op = TM_OP_adamw,
                                         .name = "adamw/gpu",
                                         .refuse = refuse_adamw,
                                         .launch = launch_adamw,
                                         .prepare = prepare_adamw,
                                         .release = tm_gpu_forget },
                                       { .op = TM_OP_square_sum,
                                         .name = "square_sum/gpu",
                                         .refuse = refuse_squares,
                                         .workspace = squares_workspace,
                                         .launch = launch_squares,
                                         .prepare = prepare_squares,
                                         .release = tm_gpu_forget },
                                       { .op = TM_OP_clip,
                                         .name = "clip/gpu",
                                         .refuse = refuse_clip,
                                         .launch = launch_clip,
                                         .prepare = prepare_clip,
                                         .release = tm_gpu_forget },
                                       { .name = NULL } };
