/* SPDX-License-Identifier: Apache-2.0 */
/* Products of codes of 8 bits, of the stand-in for cublasLt and hipBLASLt (blaslt.c): what is told, and what is
 * refused. Rules are those of cuBLAS's documentation (cublasLtMatmul, "To use tensor- or block-scaled FP8 kernels", and
 * the table of scaling modes), of hipBLASLt's documentation (data type support) and of hipblaslt.h. */
#ifndef TESTS_STANDINS_BLASLT_CODES_H
#define TESTS_STANDINS_BLASLT_CODES_H

#include "gpu.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* cublas_api.h, cublasStatus_t; hipblas-common.h, hipblasStatus_t. */
enum {
    NOT_INITIALIZED = 1,
    INVALID_VALUE = NAME(7, 3),
    NOT_SUPPORTED = NAME(15, 7),
    PLAIN = NAME(0, 111),
    TRANSPOSED = NAME(1, 112),
    COMPUTE_F32 = NAME(68, 2),
    EPILOGUE_DEFAULT = 1,
    EPILOGUE_BIAS = 4
};

/* Attributes of a product, and of a wish; -1: there is none. */
enum { TRANS_A = NAME(3, 0), TRANS_B = NAME(4, 1), EPILOGUE = NAME(7, 2), BIAS = NAME(8, 3), BIAS_TYPE = NAME(26, 4) };
enum {
    SCALE_A = NAME(17, 5),
    SCALE_B = NAME(18, 6),
    SCALE_MODE_A = 31,
    SCALE_MODE_B = 32,
    MODES = NAME(120800, 100000)
};
enum { MAX_WORKSPACE = 1, REDUCTION = NAME(3, -1), ALIGN_A = NAME(5, -2), ALIGN_D = NAME(8, -2) };

/* library_types.h of CUDA and of HIP. */
enum { TYPE_F32 = 0, TYPE_BF16 = 14, CODE_E4M3 = 28, CODE_E5M2 = 29, CODE_E4M3_FNUZ = 1000, CODE_E5M2_FNUZ = 1001 };
enum { SCALE_OF_MATRIX = 0, SCALES_OF_ROWS = 3 };

typedef struct {
    const char *a, *b; /* on the GPU; NULL: 1 */
    int32_t     mode_a, mode_b;
} scaling;

typedef struct {
    int      a, b, d, bias; /* formats; bias < 0: there is none */
    bool     turns_a, turns_b;
    uint64_t m, k;
    int64_t  ld_a, ld_b, ld_d;
    scaling  by;
} coded;

static int own_version(void)
{
    const char *text = getenv("STANDIN_BLAS_VERSION");
    return text ? atoi(text) : NAME(130100, 100100);
}

static bool is_code(int type)
{
    return type == CODE_E4M3 || type == CODE_E5M2 || type == CODE_E4M3_FNUZ || type == CODE_E5M2_FNUZ;
}

static bool has_rows(const scaling *by)
{
    return by->mode_a == SCALES_OF_ROWS;
}

/* OCP 8-bit floating point 1.0; of FNUZ the bias is one more, and 0x80 is the one NaN. */
static float code_value(int type, unsigned char code)
{
    bool  fnuz = type == CODE_E4M3_FNUZ || type == CODE_E5M2_FNUZ;
    int   digits = type == CODE_E4M3 || type == CODE_E4M3_FNUZ ? 3 : 2, bias = (digits == 3 ? 7 : 15) + fnuz;
    int   exponent = (code & 0x7f) >> digits, fraction = code & ((1 << digits) - 1);
    float size = exponent ? ldexpf((float)((1 << digits) + fraction), exponent - bias - digits)
                          : ldexpf((float)fraction, 1 - bias - digits);
    if (fnuz && code == 0x80) return NAN;
    if (type == CODE_E4M3 && (code & 0x7f) == 0x7f) return NAN;
    if (type == CODE_E5M2 && exponent == 31) size = fraction ? NAN : INFINITY;
    return code & 0x80 ? -size : size;
}

static size_t size_of(int type)
{
    return type == TYPE_F32 ? 4 : is_code(type) ? 1 : 2;
}

static float get(const char *from, int type, uint64_t i)
{
    float    value;
    uint32_t bits = 0;
    if (is_code(type)) return code_value(type, (unsigned char)from[i]);
    if (type == TYPE_F32) {
        memcpy(&value, from + 4 * i, 4);
        return value;
    }
    memcpy((char *)&bits + 2, from + 2 * i, 2); /* little endian */
    memcpy(&value, &bits, 4);
    return value;
}

/* To nearest even. */
static void set(char *to, int type, uint64_t i, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (type == TYPE_F32) {
        memcpy(to + 4 * i, &bits, 4);
        return;
    }
    bool     nan = (bits & 0x7fffffffU) > 0x7f800000U;
    uint16_t high = (uint16_t)(nan ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    memcpy(to + 2 * i, &high, 2);
}

static short align_of(const void *address)
{
    uintptr_t low = (uintptr_t)address & -(uintptr_t)address;
    return address && low < 256 ? (short)low : 256;
}

#ifdef HIP

/* FNUZ on gfx942 alone, OCP's on gfx950 and later. The bias is of the result's format, or of float32. */
static bool takes_codes(const char *arch, int version, const coded *c)
{
    bool fnuz = c->a >= CODE_E4M3_FNUZ;
    if (fnuz != (c->b >= CODE_E4M3_FNUZ) || strcmp(arch, fnuz ? "gfx942" : "gfx950") != 0) return false;
    if (c->bias >= 0 && c->bias != c->d && c->bias != 0) return false;
    if (c->by.mode_a != c->by.mode_b) return false;
    return c->by.mode_a == SCALE_OF_MATRIX || (has_rows(&c->by) && version >= 100000);
}

#else

/* (op(A) = T) k, (op(B) = N) k, m of the result, and the distances of columns, in multiples of 16 bytes. TN before
 * compute capability 10, and on 12. Vectors of scales on 9.0 since cublasLt 12.9. */
static bool takes_codes(const char *arch, int version, const coded *c)
{
    int      sm = atoi(arch + 3);
    uint64_t d = c->d == 0 ? 4 : 2;
    bool     any_layout = sm >= 100 && sm < 120;
    if (sm < 89 || c->a > CODE_E5M2 || c->b > CODE_E5M2 || (c->a == CODE_E5M2 && c->b == CODE_E5M2)) return false;
    if (!any_layout && (!c->turns_a || c->turns_b)) return false;
    if (c->k % 16 || c->m * d % 16 || c->ld_a % 16 || c->ld_b % 16 || (uint64_t)c->ld_d * d % 16) return false;
    if (c->bias >= 0 && c->bias != 14) return false;
    if (c->by.mode_a != c->by.mode_b) return false;
    return c->by.mode_a == SCALE_OF_MATRIX || (has_rows(&c->by) && sm == 90 && version >= 120900);
}

#endif

#endif
