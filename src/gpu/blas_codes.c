/* SPDX-License-Identifier: Apache-2.0 */
/* gpu/blas_codes.c - which products of codes the libraries take, by their documents: cuBLAS's documentation, "Narrow
 * precision data types usage" with the table of scaling modes, and cublasLtMatmul, "To use tensor- or block-scaled FP8
 * kernels"; hipBLASLt's documentation, data type support and hipblasLtMatmul, and hipblaslt.h
 * (hipblasLtMatmulMatrixScale_t). */
#include "gpu/blas.h"

#include <stdlib.h>
#include <string.h>

enum { UNIT = 16, DEPTH_OF_HIP = 128, ROWS_OF_RUNS = 4 };

/* Which GPUs and which library have a kind of scales: from `first` on, before `end` (sm_90 is 90, gfx950 is 950). */
typedef struct {
    int         first, end;
    const char *elsewhere;
    int         version;
    const char *before;
} rule;

static const rule cuda_any = { 89, 1000, "products of codes need sm_89 or later", 0, NULL };
static const rule cuda_rows = { 90, 91, "scales of lines need sm_90, no other GPU", 120900,
                                "scales of lines need cublasLt 12.9" };
static const rule cuda_128 = { 90, 91, "scales of blocks of 128 need sm_90, no other GPU", 120900,
                               "scales of blocks of 128 need cublasLt 12.9" };
static const rule cuda_32 = { 100, 120, "scales of blocks of 32 need sm_100 to sm_110", 120800,
                              "scales of blocks of 32 need cublasLt 12.8" };
static const rule hip_any = { 942, 951, "products of codes need gfx942 or gfx950", 0, NULL };
static const rule hip_rows = { 942, 951, NULL, 100000, "scales of lines need hipBLASLt 1.0" };
static const rule hip_128 = { 0, 0, "hipBLASLt has no scales of blocks of 128", 0, NULL };
static const rule hip_32 = { 950, 951, "scales of blocks of 32 need gfx950", 100000,
                             "scales of blocks of 32 need hipBLASLt 1.0" };

/* In the order of tm_gpu_scales; without scales it is no product of codes. */
static const rule *const rules[2][TM_GPU_SCALES] = {
    { NULL, &cuda_any, &cuda_rows, &cuda_128, &cuda_128, &cuda_32, &cuda_32 },
    { NULL, &hip_any, &hip_rows, &hip_128, &hip_128, &hip_32, &hip_32 }
};

static bool is_fnuz(tm_gpu_format format)
{
    return format == TM_GPU_E4M3FNUZ || format == TM_GPU_E5M2FNUZ;
}

static bool is_of_128(tm_gpu_scales scales)
{
    return scales == TM_GPU_SCALES_OF_RUNS || scales == TM_GPU_SCALES_OF_SQUARES;
}

static const char *refuse_kind(const rule *r, const char *arch, int version)
{
    int number = arch ? atoi(arch + strcspn(arch, "0123456789")) : r->first;
    if (r->elsewhere && (number < r->first || number >= r->end)) return r->elsewhere;
    return version < r->version ? r->before : NULL;
}

const char *tm_gpu_refuse_codes(tm_gpu_maker maker, const char *arch, tm_gpu_format a, tm_gpu_format b)
{
    bool        fnuz = is_fnuz(a);
    const char *why = refuse_kind(rules[maker == TM_GPU_HIP][TM_GPU_SCALES_OF_MATRICES], arch, 0);
    if (why) return why;
    if (maker == TM_GPU_CUDA) return fnuz || is_fnuz(b) ? "NVIDIA's GPUs have OCP's formats of 8 bits, not FNUZ" : NULL;
    if (fnuz != is_fnuz(b)) return "one factor is FNUZ, the other one OCP";
    if (arch && strcmp(arch, "gfx942") == 0 && !fnuz) return "gfx942 has formats of FNUZ only (quantize.fnuz)";
    return arch && strcmp(arch, "gfx950") == 0 && fnuz ? "gfx950 has OCP's formats only (quantize.fnuz false)" : NULL;
}

/* Beyond what the units have. */
static const char *refuse_formats(tm_gpu_maker maker, const tm_gpu_matmul_shape *s)
{
    if (maker == TM_GPU_CUDA) {
        if (s->factors == TM_GPU_E2M1 || s->second == TM_GPU_E2M1)
            return "cublasLt multiplies codes of 4 bits with scales of blocks of 16 only";
        return s->factors == TM_GPU_E5M2 && s->second == TM_GPU_E5M2 ? "the library multiplies no e5m2 by e5m2" : NULL;
    }
    if (is_fnuz(s->factors) && s->scales > TM_GPU_SCALES_OF_ROWS) return "scales of blocks are those of OCP's formats";
    return (s->factors == TM_GPU_E2M1 || s->second == TM_GPU_E2M1) && s->scales <= TM_GPU_SCALES_OF_ROWS
               ? "codes of 4 bits have scales of blocks of 32"
               : NULL;
}

static int64_t bits_of(tm_gpu_format format)
{
    return format == TM_GPU_E2M1 ? 4 : 8;
}

/* Multiples of 16 bytes, and what scales of blocks ask for besides. */
static const char *refuse_sizes(tm_gpu_maker maker, const tm_gpu_matmul_shape *s)
{
    int64_t result = s->result == TM_GPU_F32 ? 4 : 2;
    if (s->a_across || s->b_across) return "products of codes sum along rows";
    if (s->depth % UNIT != 0 || s->columns % UNIT != 0) return "columns and depth must be multiples of 16";
    if (s->ld_a * bits_of(s->factors) / 8 % UNIT != 0 || s->ld_b * bits_of(s->second) / 8 % UNIT != 0 ||
        s->ld_c * result % UNIT != 0)
        return "rows must begin at multiples of 16 bytes";
    if (s->bias && s->result != TM_GPU_BF16) return "the library adds a bias to products of codes in bfloat16 only";
    if (is_of_128(s->scales) && s->rows % ROWS_OF_RUNS != 0) return "rows must be multiples of 4";
    if (maker == TM_GPU_CUDA || s->scales <= TM_GPU_SCALES_OF_ROWS) return NULL;
    if (s->rows % UNIT != 0 || s->depth % DEPTH_OF_HIP != 0)
        return "rows must be multiples of 16 and the depth one of 128 with scales of blocks of 32";
    return s->bias ? "hipBLASLt adds no bias to products with scales of blocks" : NULL;
}

/* Of scales of blocks of 32: where another library has them so. */
static const char *refuse_layout(tm_gpu_maker maker, const tm_gpu_matmul_shape *s)
{
    if (maker == TM_GPU_CUDA && s->scales == TM_GPU_SCALES_ROW_BY_ROW)
        return "cublasLt takes scales of blocks of 32 in tiles";
    return maker == TM_GPU_HIP && s->scales == TM_GPU_SCALES_IN_TILES
               ? "hipBLASLt takes scales of blocks of 32 row by row"
               : NULL;
}

/* The layout comes last, so that a caller who asks for one after the other meets what is the same for all first. */
const char *tm_gpu_blas_refuse_codes(tm_gpu_maker maker, const char *arch, int version, const tm_gpu_matmul_shape *s)
{
    const rule *const *of = rules[maker == TM_GPU_HIP];
    const char        *why = tm_gpu_refuse_codes(maker, arch, s->factors, s->second);
    if (!why) why = refuse_formats(maker, s);
    if (!why) why = refuse_kind(of[s->scales], arch, version);
    if (!why && s->scales != s->second_scales && !(is_of_128(s->scales) && is_of_128(s->second_scales)))
        why = "the factors have scales of different kinds";
    if (!why && s->scales == TM_GPU_SCALES_OF_SQUARES && s->second_scales == TM_GPU_SCALES_OF_SQUARES)
        why = "squares of 128 are those of one factor only";
    if (!why) why = refuse_sizes(maker, s);
    return why ? why : refuse_layout(maker, s);
}
