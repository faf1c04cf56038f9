/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/scaled.c - products of codes (op/scaled_mm.c): by the maker's library (product_library.c), or by matrix
 * units (source/scaled.cu). What neither takes, no kernel here does: then plans multiply what the codes stand for
 * (graph/passes/codes.c). */
#include "device/gpu/gpu.h"
#include "op/codes.h"

enum { TILE = 128, THREADS = 256, MOST_ROWS_OF_TILES = 65535 };
_Static_assert(TM_CODES_PLAIN == 1 && TM_CODES_RUNS == 2 && TM_CODES_SQUARES == 3, "source/scaled.cu");

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

bool tm_gpu_is_code(tm_dtype dtype)
{
    return dtype == TM_E4M3 || dtype == TM_E5M2 || dtype == TM_E4M3FNUZ || dtype == TM_E5M2FNUZ;
}

void tm_gpu_define_codes(tm_gpu_defines *defines, int kind, tm_dtype a, tm_dtype b)
{
    tm_gpu_define(defines, "MX", kind != TM_CODES_ROWS ? 0 : a == TM_E2M1 ? 2 : 1);
    tm_gpu_define(defines, "A_E5M2", a == TM_E5M2 || a == TM_E5M2FNUZ);
    tm_gpu_define(defines, "B_E5M2", b == TM_E5M2 || b == TM_E5M2FNUZ);
}

static const char *refuse(const tm_call *call)
{
    const tm_view *c = &call->out[0];
    const char    *why = tm_gpu_refuse_strided(c);
    if (why) return why;
    for (int side = 0; side < 2; side++) {
        if (!tm_gpu_is_code(call->in[side].dtype) && call->in[side].dtype != TM_E2M1)
            return "multiplies codes of 8 and of 4 bits";
        if (call->in[2 + side].dtype != (tm_dtype)tm_codes_scale_of(kind_of(call, side)).dtype)
            return "takes scales in float32, those of blocks of 32 in e8m0";
    }
    for (int k = 4; k < 6; k++)
        if ((why = tm_gpu_refuse_other(&call->in[k], c->dtype))) return why;
    return tm_view_present(&call->in[5]) && !tm_view_dense(c) ? "adds a matrix to a whole one only" : NULL;
}

static const char *refuse_library(const tm_call *call)
{
    const tm_view *c = &call->out[0];
    const char    *why = refuse(call);
    if (why) return why;
    if (has_lines(call) && (call->in[2].shape.n[0] != c->shape.n[0] || call->in[3].shape.n[0] != c->shape.n[1]))
        return "the scale of a matrix beside scales of lines";
    tm_gpu_product_of p = product_of(call);
    return tm_gpu_by_library(call->device, &p);
}

static int64_t tiles_of(int64_t n)
{
    return (n + TILE - 1) / TILE;
}

static const char *refuse_kinds(const tm_call *call)
{
    bool rows = kind_of(call, 0) == TM_CODES_ROWS;
    for (int side = 0; side < 2; side++) {
        if (kind_of(call, side) == TM_CODES_TILES) return TM_GPU_OWN_LACK "scales in tiles";
        if ((kind_of(call, side) == TM_CODES_ROWS) != rows ||
            (has_blocks(call) && kind_of(call, side) == TM_CODES_PLAIN))
            return TM_GPU_OWN_LACK "scales of blocks beside others";
        if (!rows && !tm_gpu_is_code(call->in[side].dtype)) return TM_GPU_OWN_LACK "codes of 4 bits beside such scales";
    }
    return NULL;
}

static const char *refuse_matrix(const tm_call *call)
{
    const char *why = refuse(call);
    if (!why) why = refuse_kinds(call);
    if (!why) why = tm_gpu_codes_by_matrix(call->device, call->in[0].dtype, call->in[1].dtype);
    return !why && tiles_of(call->out[0].shape.n[0]) > MOST_ROWS_OF_TILES ? "more rows than a grid takes" : why;
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

static tm_status prepare_matrix(const void *device, const tm_call *call, void **state, tm_error *err)
{
    tm_gpu_defines d = { .n = 0 };
    (void)err;
    tm_gpu_define_format(&d, "C", call->out[0].dtype);
    tm_gpu_define_codes(&d, kind_of(call, 0), call->in[0].dtype, call->in[1].dtype);
    tm_gpu_define(&d, "BLOCKS", has_blocks(call) && kind_of(call, 0) != TM_CODES_ROWS);
    tm_gpu_note(device, "scaled", tm_gpu_text_scaled, &d, "scaled_mm", state);
    return TM_OK;
}

/* What the text knows of the scales of a side: their kind, of PLAIN ones whether there is one for each line. */
static int scales_of(const tm_call *call, int side)
{
    if (has_blocks(call)) return kind_of(call, side);
    return call->in[2 + side].shape.n[0] > 1;
}

static tm_status launch_matrix(const tm_call *call, tm_error *err)
{
    const tm_view   *c = &call->out[0];
    tm_gpu_arguments a = { .bytes = 0 };
    tm_gpu_pass(&a, c->data);
    for (int k = 0; k < 6; k++) tm_gpu_pass(&a, call->in[k].data);
    for (int k = 0; k < 2; k++) tm_gpu_pass_i64(&a, c->shape.n[k]);
    tm_gpu_pass_i64(&a, call->in[0].shape.n[1]);
    for (int k = 0; k < 2; k++) tm_gpu_pass_i64(&a, tm_view_ld(&call->in[k]));
    tm_gpu_pass_i64(&a, tm_view_ld(c));
    for (int side = 0; side < 2; side++) tm_gpu_pass_int(&a, scales_of(call, side));
    tm_gpu_pass_int(&a, call->accumulate & 1U);
    return tm_gpu_start(call, 0, tiles_of(c->shape.n[1]), tiles_of(c->shape.n[0]), 1, THREADS, &a, err);
}

const tm_kernel tm_gpu_scaled[] = { { .op = TM_OP_scaled_mm,
                                      .name = "scaled_mm/library",
                                      .refuse = refuse_library,
                                      .workspace = workspace,
                                      .launch = launch,
                                      .prepare = prepare,
                                      .release = tm_gpu_forget,
                                      .library = true },
                                    { .op = TM_OP_scaled_mm,
                                      .name = "scaled_mm/matrix",
                                      .refuse = refuse_matrix,
                                      .launch = launch_matrix,
                                      .prepare = prepare_matrix,
                                      .release = tm_gpu_forget },
                                    { .name = NULL } };
