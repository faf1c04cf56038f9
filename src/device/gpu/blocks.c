/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/blocks.c - parts of a block beside products, norms and attention (source/blocks.cu): activations, keys and
 * values of latent attention, matrices that are joined and split. */
#include "device/gpu/gpu.h"

static void note(const void *device, tm_dtype x, const char *kernel, void **state)
{
    tm_gpu_defines d = { .n = 0 };
    tm_gpu_define_format(&d, "X", x);
    tm_gpu_note(device, "blocks", tm_gpu_text_blocks, &d, kernel, state);
}

static tm_status prepare(const void *device, const tm_call *call, void **state, tm_error *err)
{
    (void)err;
    note(device, call->out[0].dtype, call->op->name, state);
    return TM_OK;
}

/* All operands without gaps, but for those of the masks; one format. */
static const char *refuse_others(const tm_call *call, unsigned strided_in, unsigned strided_out)
{
    tm_dtype    dtype = call->out[0].dtype;
    const char *why = NULL;
    for (int k = 0; k < call->op->n_in && !why; k++) {
        why = strided_in >> k & 1U ? tm_gpu_refuse_strided(&call->in[k]) : tm_gpu_refuse_view(&call->in[k]);
        if (!why) why = tm_gpu_refuse_other(&call->in[k], dtype);
    }
    for (int k = 0; k < call->op->n_out && !why; k++) {
        why = strided_out >> k & 1U ? tm_gpu_refuse_strided(&call->out[k]) : tm_gpu_refuse_view(&call->out[k]);
        if (!why) why = tm_gpu_refuse_other(&call->out[k], dtype);
    }
    return why ? why : call->accumulate ? "does not add to what is there" : NULL;
}

/* --- activations
 * ------------------------------------------------------------------------------------------------------- */

static const char *refuse_plain(const tm_call *call)
{
    return refuse_others(call, 0, 0);
}

static int run_of(const tm_call *call)
{
    return tm_gpu_run(call->out[0].dtype, call->out[0].dtype);
}

/* y, then the inputs, then how many elements. */
static tm_status launch_plain(const tm_call *call, tm_error *err)
{
    int64_t          n = tm_shape_elements(call->out[0].shape);
    bool             wide = tm_gpu_call_is_wide(call);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < call->op->n_in; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, n);
    tm_gpu_pass_int(&a, wide);
    return tm_gpu_start_each(call, 0, tm_gpu_pieces(n, run_of(call), wide), &a, err);
}

/* Runs of the activated half; those of the other one lie `width` elements behind. */
static tm_status launch_gated(const tm_call *call, tm_error *err)
{
    const tm_view   *half = call->op->n_in == 1 ? &call->out[0] : &call->in[0];
    int64_t          width = half->shape.n[1];
    bool             wide = width % run_of(call) == 0 && tm_gpu_call_is_wide(call);
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, call->out[0].data);
    for (int k = 0; k < call->op->n_in; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, half->shape.n[0]);
    tm_gpu_pass_int(&a, (int)width);
    tm_gpu_pass_int(&a, wide);
    if (call->op != &tm_op_geglu) {
        const tm_clamp_attr *clamp = call->attr;
        tm_gpu_pass_float(&a, clamp->limit);
        tm_gpu_pass_float(&a, clamp->alpha);
    }
    return tm_gpu_start_rows(call, 0, half->shape.n[0], tm_gpu_pieces(width, run_of(call), wide), &a, err);
}

/* --- keys and values of latent attention
 * ------------------------------------------------------------------------------- */

static const char *refuse_latent(const tm_call *call)
{
    bool grad = call->op == &tm_op_latent_keys_grad;
    return refuse_others(call, grad ? 0 : 1U << 1, grad ? 1U << 1 : 0);
}

/* Outputs, then inputs, then sizes. */
static tm_status launch_latent(const tm_call *call, tm_error *err)
{
    const tm_latent_attr *t = call->attr;
    bool                  grad = call->op == &tm_op_latent_keys_grad;
    int64_t               rows = call->in[0].shape.n[0];
    int64_t               columns = t->heads * (t->dim_nope + t->dim_v) + (grad ? t->dim_rope : t->heads * t->dim_rope);
    tm_gpu_arguments      a = { .bytes = 0 };
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->out[k].data);
    for (int k = 0; k < 2; k++) tm_gpu_pass(&a, call->in[k].data);
    tm_gpu_pass_i64(&a, rows);
    tm_gpu_pass_int(&a, (int)t->heads);
    tm_gpu_pass_int(&a, (int)t->dim_nope);
    tm_gpu_pass_int(&a, (int)t->dim_rope);
    tm_gpu_pass_int(&a, (int)t->dim_v);
    tm_gpu_pass_i64(&a, tm_view_ld(grad ? &call->out[1] : &call->in[1]));
    return tm_gpu_start_rows(call, 0, rows, columns, &a, err);
}

/* --- join, split: elements, or 16 bytes at once
 * ------------------------------------------------------------------------ */

enum { WIDE = 16 };

static const tm_view *whole_of(const tm_call *call)
{
    return call->op == &tm_op_join ? &call->out[0] : &call->in[0];
}

static const char *refuse_join(const tm_call *call)
{
    const char *why = refuse_others(call, 0, 0);
    return !why && whole_of(call)->shape.n[0] > INT32_MAX ? "takes fewer than 2^31 rows" : why;
}

static tm_status prepare_join(const void *device, const tm_call *call, void **state, tm_error *err)
{
    bool joins = call->op == &tm_op_join;
    (void)err;
    note(device, call->out[0].dtype, call->op->name, state);
    note(device, call->out[0].dtype, joins ? "join_wide" : "split_wide", state);
    return TM_OK;
}

static bool is_wide(const tm_view *view)
{
    return (uintptr_t)view->data % WIDE == 0;
}

static tm_status launch_join(const tm_call *call, tm_error *err)
{
    const tm_join_attr *attr = call->attr;
    const tm_view      *whole = whole_of(call);
    int64_t             each = WIDE / (int64_t)tm_dtype_bytes(whole->dtype), columns = whole->shape.n[1];
    int64_t             first = attr->first, second = attr->second;
    bool                wide = columns % each == 0 && (attr->samples || (first % each == 0 && second % each == 0));
    tm_gpu_arguments    a = { .bytes = 0 };
    for (int k = 0; k < call->op->n_out; k++) wide = wide && is_wide(&call->out[k]);
    for (int k = 0; k < call->op->n_in; k++) wide = wide && is_wide(&call->in[k]);
    for (int k = 0; k < call->op->n_out; k++) tm_gpu_pass(&a, call->out[k].data);
    for (int k = 0; k < call->op->n_in; k++) tm_gpu_pass(&a, call->in[k].data);
    if (wide) columns /= each;
    if (wide && !attr->samples) first /= each, second /= each;
    tm_gpu_pass_i64(&a, whole->shape.n[0]);
    tm_gpu_pass_int(&a, (int)columns);
    tm_gpu_pass_int(&a, (int)first);
    tm_gpu_pass_int(&a, (int)second);
    tm_gpu_pass_int(&a, attr->samples > 0);
    return tm_gpu_start_rows(call, wide, whole->shape.n[0], columns, &a, err);
}

/* --- rows of a table
 * --------------------------------------------------------------------------------------------------- */

#define BLOCKS(id, refusal, notes, how)                                                                                \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/gpu", .refuse = refusal, .launch = how, .prepare = notes,                      \
        .release = tm_gpu_forget                                                                                       \
    }
#define PLAIN(id) BLOCKS(id, refuse_plain, prepare, launch_plain)
#define GATED(id) BLOCKS(id, refuse_plain, prepare, launch_gated)
const tm_kernel tm_gpu_blocks[] = { PLAIN(relu),
                                    PLAIN(relu_grad),
                                    PLAIN(silu),
                                    PLAIN(silu_grad),
                                    PLAIN(quick_gelu),
                                    GATED(geglu),
                                    GATED(swiglu_clamped),
                                    GATED(swiglu_clamped_grad),
                                    BLOCKS(latent_keys, refuse_latent, prepare, launch_latent),
                                    BLOCKS(latent_keys_grad, refuse_latent, prepare, launch_latent),
                                    BLOCKS(join, refuse_join, prepare_join, launch_join),
                                    BLOCKS(split, refuse_join, prepare_join, launch_join),
                                    { .name = NULL } };
