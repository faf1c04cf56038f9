/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/blas_codes.c - which products of codes of 8 bits the libraries take, by their documents: cuBLAS's documentation,
 * cublasLtMatmul, "To use tensor- or block-scaled FP8 kernels" and the table of scaling modes; hipBLASLt's data type
 * support and hipblaslt.h (hipblasLtMatmulMatrixScale_t). */
#include "gpu/blas.h"

#include <stdlib.h>
#include <string.h>

enum { UNIT = 16, ADA = 89, HOPPER = 90, LINES_CUDA = 120900, LINES_HIP = 100000 };

static bool is_fnuz(tm_gpu_format format)
{
    return format == TM_GPU_E4M3FNUZ || format == TM_GPU_E5M2FNUZ;
}

static const char *refuse_units_cuda(const char *arch, tm_gpu_format a, tm_gpu_format b)
{
    if (is_fnuz(a) || is_fnuz(b)) return "NVIDIA's GPUs have OCP's formats of 8 bits, not FNUZ";
    return arch && atoi(arch + 3) < ADA ? "products of codes need sm_89 or later" : NULL;
}

static const char *refuse_units_hip(const char *arch, tm_gpu_format a, tm_gpu_format b)
{
    if (is_fnuz(a) != is_fnuz(b)) return "one factor is FNUZ, the other one OCP";
    if (!arch) return NULL;
    if (strcmp(arch, "gfx942") == 0) return is_fnuz(a) ? NULL : "gfx942 has formats of FNUZ only (quantize.fnuz)";
    if (strcmp(arch, "gfx950") == 0) return is_fnuz(a) ? "gfx950 has OCP's formats only (quantize.fnuz false)" : NULL;
    return "products of codes need gfx942 or gfx950";
}

const char *tm_gpu_refuse_codes(tm_gpu_maker maker, const char *arch, tm_gpu_format a, tm_gpu_format b)
{
    return maker == TM_GPU_HIP ? refuse_units_hip(arch, a, b) : refuse_units_cuda(arch, a, b);
}

static const char *refuse_cuda(const char *arch, int version, const tm_gpu_matmul_shape *s)
{
    int sm = arch ? atoi(arch + 3) : HOPPER;
    if (s->factors == TM_GPU_E5M2 && s->second == TM_GPU_E5M2) return "the library multiplies no e5m2 by e5m2";
    if (s->scales == TM_GPU_SCALES_OF_ROWS && sm != HOPPER) return "scales of lines need sm_90, no other GPU";
    if (s->scales == TM_GPU_SCALES_OF_ROWS && version < LINES_CUDA) return "scales of lines need cublasLt 12.9";
    return NULL;
}

static const char *refuse_hip(int version, const tm_gpu_matmul_shape *s)
{
    if (s->scales == TM_GPU_SCALES_OF_ROWS && version < LINES_HIP) return "scales of lines need hipBLASLt 1.0";
    return NULL;
}

const char *tm_gpu_blas_refuse_codes(tm_gpu_maker maker, const char *arch, int version, const tm_gpu_matmul_shape *s)
{
    int64_t     result = s->result == TM_GPU_F32 ? 4 : 2;
    const char *why = tm_gpu_refuse_codes(maker, arch, s->factors, s->second);
    if (!why) why = maker == TM_GPU_HIP ? refuse_hip(version, s) : refuse_cuda(arch, version, s);
    if (why) return why;
    if (s->a_across || s->b_across) return "products of codes sum along rows";
    if (s->depth % UNIT != 0 || s->columns % UNIT != 0) return "columns and depth must be multiples of 16";
    if (s->ld_a % UNIT != 0 || s->ld_b % UNIT != 0 || s->ld_c * result % UNIT != 0)
        return "rows must begin at multiples of 16 bytes";
    return s->bias && s->result != TM_GPU_BF16 ? "the library adds a bias to products of codes in bfloat16 only" : NULL;
}
