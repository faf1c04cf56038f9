/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/product.c - linear layers and their gradients: by the maker's library (product_library.c), by matrix units
 * (source/matrix.cu), or in tiles of float32 arithmetic (source/product.cu); for benches by the maker's other library.
 */
#include "device/gpu/own.h"

#include <stdlib.h>
#include <string.h>

enum { TILE = 64, MATRIX_TILE = 128, THREADS = 256, MOST_ROWS_OF_TILES = 65535 };

/* The architecture has what the text asks for. A GPU that is only planned for has it. */
static bool has_units(const tm_gpu_own *own)
{
    static const char *const amd[] = { "gfx942", "gfx950" };
    if (!own->gpu) return true;
    const char *arch = tm_gpu_facts_of(own->gpu)->arch;
    for (size_t i = 0; i < sizeof amd / sizeof amd[0]; i++)
        if (strcmp(arch, amd[i]) == 0) return true;
    return strncmp(arch, "sm_", 3) == 0 && atoi(arch + 3) >= 80;
}

const char *tm_gpu_by_matrix(const void *device, tm_dtype a, tm_dtype b)
{
    if (a != TM_BF16 || b != TM_BF16) return "multiplies bfloat16 by bfloat16";
    return has_units(((const tm_device *)device)->own) ? NULL : "the architecture has no such matrix unit";
}

/* NVRTC before 12.4 writes PTX of an ISA that has no such products. A missing one is told when it is needed. */
const char *tm_gpu_codes_by_matrix(const void *device, tm_dtype a, tm_dtype b)
{
    tm_gpu_own *own = ((const tm_device *)device)->own;
    tm_error    ignored = { 0 };
    const char *arch = own->gpu ? tm_gpu_facts_of(own->gpu)->arch : NULL;
    const char *why = tm_gpu_refuse_codes(own->maker, arch, tm_gpu_format_of(a), tm_gpu_format_of(b));
    if (!why && (a == TM_E2M1 || b == TM_E2M1)) {
        if (a != b) why = TM_GPU_OWN_LACK "codes of 4 bits beside those of 8";
        if (own->maker == TM_GPU_CUDA) why = TM_GPU_OWN_LACK "codes of 4 bits for NVIDIA";
    }
    if (why || !own->gpu || own->maker == TM_GPU_HIP) return why;
    bool found = tm_gpu_compiler_needed(own, &ignored) == TM_OK;
    return found && tm_gpu_compiler_version(own->compiler) < 1204 ? "products of codes need NVRTC 12.4" : NULL;
}

tm_status tm_gpu_note_product(const void *device, const tm_gpu_product_of *p, void **state, tm_error *err)
{
    tm_gpu_defines d = { .n = 0 };
    if (p->how >= TM_GPU_BY_LIBRARY) {
        tm_gpu_note_none(device, state);
        return p->how == TM_GPU_BY_OTHER ? TM_OK : tm_gpu_library_prepare(device, p, err);
    }
    tm_gpu_define_format(&d, "C", p->c);
    tm_gpu_define(&d, "A_ACROSS", p->a_across);
    tm_gpu_define(&d, "B_ACROSS", p->b_across);
    if (p->how == TM_GPU_BY_MATRIX) {
        tm_gpu_note(device, "matrix", tm_gpu_text_matrix, &d, "product_matrix", state);
        return TM_OK;
    }
    tm_gpu_define_format(&d, "A", p->a);
    tm_gpu_define_format(&d, "B", p->b);
    tm_gpu_note(device, "product", tm_gpu_text_product, &d, "product", state);
    return TM_OK;
}

tm_status tm_gpu_start_product(const tm_call *call, int kernel, const tm_gpu_product_of *p, tm_error *err)
{
    tm_gpu_arguments a = { .bytes = 0 };
    if (p->how == TM_GPU_BY_LIBRARY) return tm_gpu_library_start(call, p, err);
    if (p->how == TM_GPU_BY_OTHER) return tm_gpu_other_start(call, p, err);
    TM_ASSERT(!p->scale);
    tm_gpu_pass(&a, p->to);
    tm_gpu_pass(&a, p->from_a);
    tm_gpu_pass(&a, p->from_b);
    tm_gpu_pass(&a, p->bias);
    tm_gpu_pass(&a, p->residual);
    tm_gpu_pass_i64(&a, p->rows);
    tm_gpu_pass_i64(&a, p->columns);
    tm_gpu_pass_i64(&a, p->depth);
    tm_gpu_pass_i64(&a, p->ld_a);
    tm_gpu_pass_i64(&a, p->ld_b);
    tm_gpu_pass_i64(&a, p->ld_c);
    tm_gpu_pass_int(&a, p->adds);
    int64_t tile = p->how == TM_GPU_BY_MATRIX ? MATRIX_TILE : TILE;
    return tm_gpu_start(call, kernel, (p->columns + tile - 1) / tile, (p->rows + tile - 1) / tile, 1, THREADS, &a, err);
}

/* y = x w^T + bias + residual */
static tm_gpu_product_of forward(const tm_call *call)
{
    const tm_view *x = &call->in[0], *w = &call->in[1], *y = &call->out[0];
    return (tm_gpu_product_of){ .c = y->dtype,
                                .a = x->dtype,
                                .b = w->dtype,
                                .rows = y->shape.n[0],
                                .columns = y->shape.n[1],
                                .depth = x->shape.n[1],
                                .ld_a = tm_view_ld(x),
                                .ld_b = tm_view_ld(w),
                                .ld_c = tm_view_ld(y),
                                .to = y->data,
                                .from_a = x->data,
                                .from_b = w->data,
                                .bias = call->in[2].data,
                                .residual = call->in[3].data,
                                .has_bias = tm_view_present(&call->in[2]),
                                .has_residual = tm_view_present(&call->in[3]),
                                .adds = call->accumulate & 1U };
}

/* dx = dy w */
static tm_gpu_product_of to_inputs(const tm_call *call)
{
    const tm_view *dy = &call->in[0], *w = &call->in[1], *dx = &call->out[0];
    return (tm_gpu_product_of){ .c = dx->dtype,
                                .a = dy->dtype,
                                .b = w->dtype,
                                .b_across = true,
                                .rows = dx->shape.n[0],
                                .columns = dx->shape.n[1],
                                .depth = dy->shape.n[1],
                                .ld_a = tm_view_ld(dy),
                                .ld_b = tm_view_ld(w),
                                .ld_c = tm_view_ld(dx),
                                .to = dx->data,
                                .from_a = dy->data,
                                .from_b = w->data,
                                .adds = call->accumulate & 1U };
}

/* dw = dy^T x */
static tm_gpu_product_of to_weights(const tm_call *call)
{
    const tm_view *dy = &call->in[0], *x = &call->in[1], *dw = &call->out[0];
    return (tm_gpu_product_of){ .c = dw->dtype,
                                .a = dy->dtype,
                                .b = x->dtype,
                                .a_across = true,
                                .b_across = true,
                                .rows = dw->shape.n[0],
                                .columns = dw->shape.n[1],
                                .depth = dy->shape.n[0],
                                .ld_a = tm_view_ld(dy),
                                .ld_b = tm_view_ld(x),
                                .ld_c = tm_view_ld(dw),
                                .to = dw->data,
                                .from_a = dy->data,
                                .from_b = x->data,
                                .adds = call->accumulate & 1U };
}

static tm_gpu_product_of product_of(const tm_call *call, tm_gpu_how how)
{
    tm_gpu_product_of p = call->op == &tm_op_linear         ? forward(call)
                          : call->op == &tm_op_linear_dgrad ? to_inputs(call)
                                                            : to_weights(call);
    p.how = how;
    p.workspace = call->workspace;
    return p;
}

/* --- kernels --------------------------------------------------------------------------------------------------------
 */

static const char *refuse(const tm_call *call)
{
    const char *why = NULL;
    for (int k = 0; k < 2 && !why; k++) why = tm_gpu_refuse_strided(&call->in[k]);
    if (!why) why = tm_gpu_refuse_strided(&call->out[0]);
    if (!why && call->op == &tm_op_linear) why = tm_gpu_refuse_other(&call->in[2], call->in[1].dtype);
    if (!why && call->op == &tm_op_linear) why = tm_gpu_refuse_other(&call->in[3], call->out[0].dtype);
    return why;
}

static const char *refuse_tiles(const tm_call *call)
{
    const char *why = refuse(call);
    if (((const tm_device *)call->device)->other_library) return "another library is asked for";
    if (why) return why;
    return (call->out[0].shape.n[0] + TILE - 1) / TILE > MOST_ROWS_OF_TILES ? "more rows than a grid takes" : NULL;
}

static const char *refuse_matrix(const tm_call *call)
{
    const char *why = refuse_tiles(call);
    return why ? why : tm_gpu_by_matrix(call->device, call->in[0].dtype, call->in[1].dtype);
}

/* float16 is the library's alone, without a bias and what is added: no training has it, benches do. */
static const char *refuse_half(const tm_call *call)
{
    bool forward = call->op == &tm_op_linear;
    if (forward && (tm_view_present(&call->in[2]) || tm_view_present(&call->in[3])))
        return "adds no bias and no residual to products of float16";
    return call->in[0].dtype == TM_F16 && call->in[1].dtype == TM_F16 ? NULL : "takes float16 with float16";
}

static const char *refuse_formats(const tm_call *call)
{
    return call->in[0].dtype == TM_F16 || call->in[1].dtype == TM_F16 ? refuse_half(call) : refuse(call);
}

static const char *refuse_library(const tm_call *call)
{
    const char       *why = refuse_formats(call);
    tm_gpu_product_of p = product_of(call, TM_GPU_BY_LIBRARY);
    return why ? why : tm_gpu_by_library(call->device, &p);
}

static const char *refuse_gemm_ex(const tm_call *call)
{
    const char       *why = refuse_formats(call);
    tm_gpu_product_of p = product_of(call, TM_GPU_BY_OTHER);
    return why ? why : tm_gpu_by_other((tm_device *)call->device, &p);
}

static size_t workspace_library(const tm_call *call)
{
    tm_gpu_product_of p = product_of(call, TM_GPU_BY_LIBRARY);
    return tm_gpu_library_bytes(call->device, &p);
}

#define WAY(way, how)                                                                                                  \
    static tm_status prepare_##way(const void *device, const tm_call *call, void **state, tm_error *err)               \
    {                                                                                                                  \
        tm_gpu_product_of p = product_of(call, how);                                                                   \
        return tm_gpu_note_product(device, &p, state, err);                                                            \
    }                                                                                                                  \
                                                                                                                       \
    static tm_status launch_##way(const tm_call *call, tm_error *err)                                                  \
    {                                                                                                                  \
        tm_gpu_product_of p = product_of(call, how);                                                                   \
        return tm_gpu_start_product(call, 0, &p, err);                                                                 \
    }
WAY(library, TM_GPU_BY_LIBRARY)
WAY(matrix, TM_GPU_BY_MATRIX)
WAY(tiles, TM_GPU_BY_TILES)
WAY(gemm_ex, TM_GPU_BY_OTHER)

#define ROW(id, way, ...)                                                                                              \
    {                                                                                                                  \
        .op = TM_OP_##id, .name = #id "/" #way, .refuse = refuse_##way, .launch = launch_##way,                        \
        .prepare = prepare_##way, .release = tm_gpu_forget, __VA_ARGS__                                                \
    }
#define PRODUCT(id)                                                                                                    \
    ROW(id, library, .workspace = workspace_library, .library = true), ROW(id, matrix, ), ROW(id, tiles, ),            \
        ROW(id, gemm_ex, .library = true)
const tm_kernel tm_gpu_product[] = { PRODUCT(linear), PRODUCT(linear_dgrad), PRODUCT(linear_wgrad), { .name = NULL } };
