/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/scaled.c - products of codes (op/scaled_mm.c), by the maker's library (product_library.c). What
 * it does not take, no kernel here does: then plans multiply what the codes stand for (graph/passes/codes.c). */
#include "device/gpu/gpu.h"
#include "op/codes.h"

static int kind_of(const tm_call *call, int side)
{
    return tm_scaled_kind(call->attr, side);
}

static bool has_blocks(const tm_call *call)
{
    return kind_of(call, 0) != TM_CODES_PLAIN || kind_of(call, 1) != TM_CODES_PLAIN;
}

static bool has_lines(const tm_call *call)
{
    if (has_blocks(call)) return false;
    return call->in[2].shape.n[0] > 1 || call->in[3].shape.n[0] > 1;
}

static tm_gpu_product_of product_of(const tm_call *call)
{
    const tm_view *a = &call->in[0], *b = &call->in[1], *c = &call->out[0];
    return (tm_gpu_product_of){ .c = c->dtype,
                                .a = a->dtype,
                                .b = b->dtype,
                                .rows = c->shape.n[0],
                                .columns = c->shape.n[1],
                                .depth = a->shape.n[1],
                                .ld_a = tm_view_ld(a),
                                .ld_b = tm_view_ld(b),
                                .ld_c = tm_view_ld(c),
                                .to = c->data,
                                .from_a = a->data,
                                .from_b = b->data,
                                .scale_a = call->in[2].data,
                                .scale_b = call->in[3].data,
                                .bias = call->in[4].data,
                                .residual = call->in[5].data,
                                .has_bias = tm_view_present(&call->in[4]),
                                .has_residual = tm_view_present(&call->in[5]),
                                .adds = call->accumulate & 1U,
                                .workspace = call->workspace,
                                .how = TM_GPU_BY_LIBRARY,
                                .codes = true,
                                .lines = has_lines(call),
                                .kind = { (uint8_t)kind_of(call, 0), (uint8_t)kind_of(call, 1) } };
}

static bool is_code(tm_dtype dtype)
{
    return dtype == TM_E4M3 || dtype == TM_E5M2 || dtype == TM_E4M3FNUZ || dtype == TM_E5M2FNUZ || dtype == TM_E2M1;
}

static const char *refuse(const tm_call *call)
{
    const tm_view *c = &call->out[0];
    const char    *why = tm_gpu_refuse_strided(c);
    if (why) return why;
    if (!is_code(call->in[0].dtype) || !is_code(call->in[1].dtype)) return "multiplies codes of 8 and of 4 bits";
    for (int side = 0; side < 2; side++)
        if (call->in[2 + side].dtype != (tm_dtype)tm_codes_scale_of(kind_of(call, side)).dtype)
            return "takes scales in float32, those of blocks of 32 in e8m0";
    if (has_lines(call) && (call->in[2].shape.n[0] != c->shape.n[0] || call->in[3].shape.n[0] != c->shape.n[1]))
        return "the scale of a matrix beside scales of lines";
    for (int k = 4; k < 6; k++)
        if ((why = tm_gpu_refuse_other(&call->in[k], c->dtype))) return why;
    if (tm_view_present(&call->in[5]) && !tm_view_dense(c)) return "adds a matrix to a whole one only";
    tm_gpu_product_of p = product_of(call);
    return tm_gpu_by_library(call->device, &p);
}

static size_t workspace(const tm_call *call)
{
    tm_gpu_product_of p = product_of(call);
    return tm_gpu_library_bytes(call->device, &p);
}

static tm_status prepare(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_product_of p = product_of(call);
    return tm_gpu_note_product(device, &p, state, err);
}

static tm_status launch(const tm_call *call, tm_error *err)
{
    tm_gpu_product_of p = product_of(call);
    return tm_gpu_start_product(call, 0, &p, err);
}

const tm_kernel tm_gpu_scaled[] = { { .op = TM_OP_scaled_mm,
                                      .name = "scaled_mm/library",
                                      .refuse = refuse,
                                      .workspace = workspace,
                                      .launch = launch,
                                      .prepare = prepare,
                                      .release = tm_gpu_forget,
                                      .library = true },
                                    { .name = NULL } };
