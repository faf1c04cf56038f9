/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/optimizers.c - updates beside AdamW's that take each element by itself: AdamW that rounds by chance, SGD,
 * averages of weights, AdamW with moments of 8 bits (source/optimizers.cu). */
#include "device/gpu/gpu.h"

#include <stdint.h>

enum { THREADS = 256 };

int64_t tm_gpu_parts_of(int64_t n)
{
    int64_t parts = (n + 4 * THREADS - 1) / (4 * THREADS);
    return parts < 1 ? 1 : parts > TM_GPU_MOST_PARTS ? TM_GPU_MOST_PARTS : parts;
}

const char *tm_gpu_refuse_update(const tm_view *const *weights, int n, const tm_view *scalars, const tm_view *clip)
{
    const char *why = NULL;
    for (int k = 0; k < n && !why; k++) why = tm_gpu_refuse_view(weights[k]);
    for (int k = 0; k < n && !why; k++) why = tm_gpu_refuse_other(weights[k], weights[0]->dtype);
    if (!why && (scalars->dtype != TM_F64 || clip->dtype != TM_F64)) why = "takes scalars in float64";
    return why;
}

static void note(const void *device, tm_dtype p, tm_dtype m, const char *kernel, void **state)
{
    tm_gpu_defines d = { .n = 0 };
    tm_gpu_define_format(&d, "P", p);
    tm_gpu_define_format(&d, "M", m);
    tm_gpu_note(device, "optimizers", tm_gpu_text_optimizers, &d, kernel, state);
}

/* --- adamw, by chance -----------------------------------------------------------------------------------------------
 */

/* in: p, g, m, v, scalars, clip; out: p, m, v */
static const char *refuse_adamw(const tm_call *call)
{
    const tm_view *weights[] = { &call->in[0], &call->in[1], &call->out[0] };
    const tm_view *moments[] = { &call->in[2], &call->in[3], &call->out[1], &call->out[2] };
    if (!((const tm_adamw_attr *)call->attr)->rounding) return "rounds by chance only";
    if (tm_view_present(&call->in[6])) return "rounds by chance without a compensation only";
    if (tm_view_present(&call->out[4])) return "rounds by chance without a copy only";
    const char *why = tm_gpu_refuse_update(weights, 3, &call->in[4], &call->in[5]);
    return why ? why : tm_gpu_refuse_update(moments, 4, &call->in[4], &call->in[5]);
}

static tm_status prepare_adamw(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    note(device, call->in[0].dtype, call->in[2].dtype, "adamw_by_chance", state);
    return TM_OK;
}

static tm_status launch_adamw(const tm_call *call, tm_error *err)
{
    const tm_adamw_attr *attr = call->attr;
    int64_t              n = tm_shape_elements(call->in[0].shape);
    tm_gpu_arguments     a = { .bytes = 0 };
    for (int k = 0; k < 3; k++) tm_gpu_pass(&a, call->out[k].data);
    for (int k = 0; k < 6; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, n);
    tm_gpu_pass_double(&a, attr->beta1);
    tm_gpu_pass_double(&a, attr->beta2);
    tm_gpu_pass_double(&a, attr->eps);
    tm_gpu_pass_double(&a, attr->weight_decay);
    tm_gpu_pass_i64(&a, attr->rounding);
    tm_gpu_pass_i64(&a, attr->first);
    return tm_gpu_start_each(call, 0, n, &a, err);
}

/* --- sgd
 * ------------------------------------------------------------------------------------------------------------ */

/* in: p, g, [b], scalars, clip; out: p, [b] */
static const char *refuse_sgd(const tm_call *call)
{
    const tm_view *all[] = { &call->in[0], &call->in[1], &call->in[2], &call->out[0], &call->out[1] };
    return tm_gpu_refuse_update(all, 5, &call->in[3], &call->in[4]);
}

static tm_status prepare_sgd(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    note(device, call->in[0].dtype, TM_F32, "sgd", state);
    return TM_OK;
}

static tm_status launch_sgd(const tm_call *call, tm_error *err)
{
    const tm_sgd_attr *attr = call->attr;
    int64_t            n = tm_shape_elements(call->in[0].shape);
    tm_gpu_arguments   a = { .bytes = 0 };
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->out[k].data);
    for (int k = 0; k < 5; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, n);
    tm_gpu_pass_double(&a, attr->weight_decay);
    tm_gpu_pass_double(&a, attr->momentum);
    tm_gpu_pass_int(&a, attr->nesterov != 0);
    tm_gpu_pass_i64(&a, attr->rounding);
    tm_gpu_pass_i64(&a, attr->first);
    return tm_gpu_start_each(call, 0, n, &a, err);
}

/* --- ema
 * ------------------------------------------------------------------------------------------------------------ */

static const char *refuse_ema(const tm_call *call)
{
    const char *why = tm_gpu_refuse_view(&call->in[0]);
    if (!why) why = tm_gpu_refuse_view(&call->in[1]);
    if (!why) why = tm_gpu_refuse_view(&call->out[0]);
    if (!why && (call->in[1].dtype != TM_F32 || call->out[0].dtype != TM_F32)) why = "keeps averages in float32";
    return why;
}

static tm_status prepare_ema(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    note(device, call->in[0].dtype, TM_F32, "ema", state);
    return TM_OK;
}

static tm_status launch_ema(const tm_call *call, tm_error *err)
{
    int64_t          n = tm_shape_elements(call->in[0].shape);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, n);
    tm_gpu_pass_double(&a, ((const tm_ema_attr *)call->attr)->decay);
    return tm_gpu_start_each(call, 0, n, &a, err);
}

/* --- adamw8 ---------------------------------------------------------------------------------------------------------
 */

/* in: p, g, code_m, code_v, scale_m, scale_v, scalars, clip; out: p, code_m, code_v, scale_m, scale_v */
static const char *refuse_adamw8(const tm_call *call)
{
    const tm_view *weights[] = { &call->in[0], &call->in[1], &call->out[0] };
    const char    *why = tm_gpu_refuse_update(weights, 3, &call->in[6], &call->in[7]);
    for (int k = 1; k < 3 && !why; k++)
        if (call->in[k + 1].dtype != TM_U8 || call->out[k].dtype != TM_U8) why = "takes codes of 8 bits";
    for (int k = 3; k < 5 && !why; k++)
        if (call->in[k + 1].dtype != TM_F32 || call->out[k].dtype != TM_F32) why = "takes scales in float32";
    for (int k = 2; k < 6 && !why; k++)
        if (!tm_view_dense(&call->in[k])) why = "takes operands without gaps between their rows";
    return why;
}

/* The maps: values and bounds of both moments. */
static size_t adamw8_workspace(const tm_call *call)
{
    (void)call;
    return (size_t)4 * THREADS * sizeof(float);
}

static tm_status prepare_adamw8(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    note(device, call->in[0].dtype, TM_F32, "adamw8_maps", state);
    note(device, call->in[0].dtype, TM_F32, "adamw8", state);
    return TM_OK;
}

static tm_status launch_adamw8(const tm_call *call, tm_error *err)
{
    const tm_adamw8_attr *attr = call->attr;
    int64_t               n = tm_shape_elements(call->in[0].shape);
    int                   torchao = attr->definition == TM_ADAMW8_TORCHAO;
    tm_gpu_arguments      maps = { .bytes = 0 }, a = { .bytes = 0 };
    tm_gpu_pass(&maps, call->workspace);
    tm_gpu_pass_int(&maps, torchao);
    TM_TRY(tm_gpu_start(call, 0, 1, 1, 1, THREADS, &maps, err));
    for (int k = 0; k < 5; k++) tm_gpu_pass(&a, call->out[k].data);
    for (int k = 0; k < 8; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass(&a, call->workspace);
    tm_gpu_pass_i64(&a, n);
    tm_gpu_pass_double(&a, attr->beta1);
    tm_gpu_pass_double(&a, attr->beta2);
    tm_gpu_pass_double(&a, attr->eps);
    tm_gpu_pass_double(&a, attr->weight_decay);
    tm_gpu_pass_int(&a, torchao);
    tm_gpu_pass_i64(&a, attr->rounding);
    return tm_gpu_start_each(call, 1, n, &a, err);
}

#define UPDATE(id, text, way, ...)                                                                                     \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = text, .refuse = refuse_##way, .launch = launch_##way, .prepare = prepare_##way,      \
        .release = tm_gpu_forget, __VA_ARGS__                                                                          \
    }
const tm_kernel tm_gpu_optimizers[] = { UPDATE(adamw, "adamw/chance", adamw, ),
                                        UPDATE(sgd, "sgd/gpu", sgd, ),
                                        UPDATE(ema, "ema/gpu", ema, ),
                                        UPDATE(adamw8, "adamw8/gpu", adamw8, .workspace = adamw8_workspace),
                                        { .name = NULL } };
