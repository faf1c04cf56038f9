/* SPDX-License-Identifier: Apache-2.0 */
/* device/gpu/product_library.c - products by the maker's library (gpu/blas.h): what it takes, and its workspace. */
#include "device/gpu/own.h"
#include "op/codes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tm_gpu_own *own_of(const void *device)
{
    return ((const tm_device *)device)->own;
}

/* Which algorithm a product takes depends on version, architecture and number of units. */
void tm_gpu_name_sums(tm_gpu_own *own)
{
    tm_text sums = { 0 }, ignored = { 0 };
    if (own->blas) {
        const tm_gpu_facts *f = tm_gpu_facts_of(own->gpu);
        uint64_t            tuned = tm_gpu_blas_tuned(own->blas, &ignored);
        tm_text_printf(&sums, "%s-%.31s-%d", tm_gpu_blas_name(own->blas), f->arch, f->multiprocessors);
        if (tuned) tm_text_printf(&sums, "-%08x", (unsigned)(tuned ^ tuned >> 32));
        if (own->tf32) tm_text_add(&sums, "-tf32");
    } else {
        tm_text_add(&sums, "gpu-tiles");
    }
    if (own->attends) tm_text_printf(&sums, "+%s", tm_gpu_dnn_name(own->dnn));
    snprintf(own->sums, sizeof own->sums, "%s", sums.data);
    for (char *c = own->sums; *c; c++)
        if (*c == ' ') *c = '-';
    tm_text_fini(&sums);
    tm_text_fini(&ignored);
}

tm_status tm_gpu_library_open(tm_device *device, tm_error *err)
{
    tm_gpu_own *own = device->own;
    tm_error    why = { 0 };
    tm_status   st = tm_gpu_blas_open(own->gpu, &own->blas, &why);
    if (st == TM_UNSUPPORTED) {
        own->no_blas = why;
        return TM_OK;
    }
    if (st != TM_OK) return tm_fail(err, st, "%s", why.text);
    tm_gpu_name_sums(own);
    return TM_OK;
}

/* Of a device that was opened to plan: what it will have. */
static const char *missing(tm_gpu_own *own)
{
    if (!own->gpu && !own->blas_expected) {
        own->blas_expected = true;
        tm_status st = tm_gpu_blas_expect(own->maker, &own->no_blas);
        (void)st; /* the error has it */
    }
    return own->no_blas.status == TM_OK ? NULL : own->no_blas.text;
}

/* --- what it takes --------------------------------------------------------------------------------------------------
 */

/* NVIDIA recommends 32 MiB from Hopper on, 4 MiB before (cuBLAS's documentation, cublasSetWorkspace). Nothing needs
 * more than a float32 sum of each 64 of the depth, in whole tiles. */
size_t tm_gpu_library_bytes(const void *device, const tm_gpu_product_of *p)
{
    enum { TILE = 128, PART = 64, COUNTERS = 64 << 10, BEFORE = 4 << 20, HOPPER = 32 << 20 };
    const tm_gpu_own *own = own_of(device);
    bool              early = own->maker == TM_GPU_HIP || (own->gpu && atoi(tm_gpu_facts_of(own->gpu)->arch + 3) < 90);
    size_t            most = early ? BEFORE : HOPPER, rows = (size_t)(p->rows + TILE - 1) / TILE * TILE,
           columns = (size_t)(p->columns + TILE - 1) / TILE * TILE, parts = (size_t)(p->depth + PART - 1) / PART,
           wanted = rows * columns * sizeof(float) * parts + COUNTERS;
    return wanted < most ? wanted : most;
}

tm_gpu_format tm_gpu_format_of(tm_dtype dtype)
{
    switch (dtype) {
    case TM_F16:
        return TM_GPU_F16;
    case TM_E4M3:
        return TM_GPU_E4M3;
    case TM_E5M2:
        return TM_GPU_E5M2;
    case TM_E4M3FNUZ:
        return TM_GPU_E4M3FNUZ;
    case TM_E5M2FNUZ:
        return TM_GPU_E5M2FNUZ;
    case TM_E2M1:
        return TM_GPU_E2M1;
    default:
        return dtype == TM_F32 ? TM_GPU_F32 : TM_GPU_BF16;
    }
}

/* Both have kinds of blocks in one order. */
static tm_gpu_scales scales_of(const tm_gpu_product_of *p, int side)
{
    _Static_assert((int)TM_GPU_SCALES_ROW_BY_ROW - (int)TM_GPU_SCALES_OF_RUNS == TM_CODES_ROWS - TM_CODES_RUNS,
                   "op/codes.h");
    if (!p->codes) return TM_GPU_NO_SCALES;
    if (p->kind[side] > TM_CODES_PLAIN) return (tm_gpu_scales)(TM_GPU_SCALES_OF_RUNS + p->kind[side] - TM_CODES_RUNS);
    return p->lines ? TM_GPU_SCALES_OF_ROWS : TM_GPU_SCALES_OF_MATRICES;
}

static tm_gpu_matmul_shape shape_of(const void *device, const tm_gpu_product_of *p)
{
    return (tm_gpu_matmul_shape){ .factors = tm_gpu_format_of(p->a),
                                  .result = tm_gpu_format_of(p->c),
                                  .second = p->codes ? tm_gpu_format_of(p->b) : TM_GPU_F32,
                                  .scales = scales_of(p, 0),
                                  .second_scales = scales_of(p, 1),
                                  .a_across = p->a_across,
                                  .b_across = p->b_across,
                                  .bias = p->has_bias,
                                  .tf32 = ((const tm_device *)device)->tf32 && p->a == TM_F32,
                                  .rows = p->rows,
                                  .columns = p->columns,
                                  .depth = p->depth,
                                  .ld_a = p->ld_a,
                                  .ld_b = p->ld_b,
                                  .ld_c = p->ld_c,
                                  .workspace = tm_gpu_library_bytes(device, p) };
}

/* A GPU that is only planned for has the newest library. */
static const char *refuse_codes(const tm_gpu_own *own, const tm_gpu_matmul_shape *shape)
{
    const char *arch = own->gpu ? tm_gpu_facts_of(own->gpu)->arch : NULL;
    return tm_gpu_blas_refuse_codes(own->maker, arch, own->blas ? tm_gpu_blas_version(own->blas) : INT32_MAX, shape);
}

const char *tm_gpu_by_library(const void *device, const tm_gpu_product_of *p)
{
    tm_gpu_own         *own = own_of(device);
    tm_gpu_matmul_shape shape;
    tm_gpu_matmul      *found;
    tm_error            ignored = { 0 }; /* of a failure: preparing it meets it again, and tells */
    const char         *why = missing(own);
    if (why) return why;
    if (((const tm_device *)device)->own_kernels) return "own kernels are asked for";
    if (((const tm_device *)device)->other_library) return "another library is asked for";
    if (p->a != p->b && !p->codes) return "the library multiplies matrices of one format";
    if (p->a == TM_F32 && p->c != TM_F32) return "the library leaves a product of float32 in float32";
    if ((p->a == TM_F16 || p->c == TM_F16) && p->c != p->a && p->c != TM_F32)
        return "the library leaves a product of float16 in float16 or float32";
    if (p->has_bias && p->b != p->c && !p->codes) return "the library adds a bias in the result's format only";
    if (p->has_residual && p->adds) return "the library adds one matrix to a product";
    if (p->rows < 1 || p->columns < 1 || p->depth < 1) return "the library takes no empty matrix";
    if (p->rows > INT32_MAX || p->columns > INT32_MAX || p->depth > INT32_MAX)
        return "the library counts rows and columns in 32 bits";
    shape = shape_of(device, p);
    why = p->codes ? refuse_codes(own, &shape) : NULL;
    if (why || !own->blas) return why; /* no library: opened to plan */
    return tm_gpu_blas_find(own->blas, &shape, &found, &why, &ignored) == TM_UNSUPPORTED ? why : NULL;
}

/* --- a product ------------------------------------------------------------------------------------------------------
 */

tm_status tm_gpu_library_prepare(const void *device, const tm_gpu_product_of *p, tm_error *err)
{
    tm_gpu_matmul_shape shape = shape_of(device, p);
    tm_gpu_matmul      *found;
    const char         *why;
    TM_TRY(tm_gpu_blas_find(own_of(device)->blas, &shape, &found, &why, err));
    own_of(device)->tf32 = ((const tm_device *)device)->tf32;
    tm_gpu_name_sums(own_of(device)); /* it may have been tuned */
    return TM_OK;
}

static tm_gpu_matmul_operands operands_of(const tm_gpu_product_of *p, const float *scale)
{
    return (tm_gpu_matmul_operands){ .c = p->to,
                                     .a = p->from_a,
                                     .b = p->from_b,
                                     .bias = p->bias,
                                     .old = p->adds ? p->to : p->residual,
                                     .scale = scale,
                                     .scale_a = p->scale_a,
                                     .scale_b = p->scale_b,
                                     .workspace = p->workspace };
}

/* Its shape was asked for when the call was prepared. */
tm_status tm_gpu_library_start(const tm_call *call, const tm_gpu_product_of *p, tm_error *err)
{
    tm_gpu_blas           *blas = own_of(call->device)->blas;
    tm_gpu_matmul_shape    shape = shape_of(call->device, p);
    tm_gpu_matmul         *found;
    const char            *why;
    float                  scale = p->scale ? (float)*p->scale : 1;
    tm_gpu_matmul_operands o = operands_of(p, &scale);
    TM_TRY(tm_gpu_blas_find(blas, &shape, &found, &why, err));
    return tm_gpu_blas_multiply(blas, found, tm_gpu_stream_of(call->queue), &o, err);
}

/* --- the maker's other library
 * -------------------------------------------------------------------------------------------- */

/* Opened when it is first asked for. */
const char *tm_gpu_by_other(tm_device *device, const tm_gpu_product_of *p)
{
    tm_gpu_own *own = device->own;
    if (!device->other_library || !own->gpu) return "nothing trains by it";
    if (p->a != p->b || p->has_residual) return "it multiplies matrices of one format, and adds to its result only";
    tm_gpu_matmul_shape shape = shape_of(device, p);
    if (!own->other && own->no_other.status == TM_OK &&
        tm_gpu_gemm_ex_open(own->gpu, &own->other, &own->no_other) == TM_OK)
        device->info.other_products = tm_gpu_gemm_ex_name(own->other);
    return own->other ? tm_gpu_gemm_ex_refuse(&shape) : own->no_other.text;
}

tm_status tm_gpu_other_start(const tm_call *call, const tm_gpu_product_of *p, tm_error *err)
{
    tm_gpu_matmul_shape    shape = shape_of(call->device, p);
    float                  scale = p->scale ? (float)*p->scale : 1;
    tm_gpu_matmul_operands o = operands_of(p, &scale);
    return tm_gpu_gemm_ex_multiply(own_of(call->device)->other, &shape, tm_gpu_stream_of(call->queue), &o, err);
}
