/* SPDX-License-Identifier: Apache-2.0 */
/* Products of codes of 8 and of 4 bits, of the stand-in for cublasLt and hipBLASLt (blaslt.c): what is told, and what
 * is refused. Rules are those of cuBLAS's documentation (cublasLtMatmul, "To use tensor- or block-scaled FP8 kernels",
 * and narrow precision data types: the table of scaling modes, layouts of scaling factors), of hipBLASLt's
 * documentation (data type support, hipblasLtMatmul) and of hipblaslt.h. */
#ifndef TESTS_STANDINS_BLASLT_CODES_H
#define TESTS_STANDINS_BLASLT_CODES_H

#include "gpu.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* cublas_api.h, cublasStatus_t; hipblas-common.h, hipblasStatus_t. */
enum { NOT_INITIALIZED = 1, INVALID_VALUE = NAME(7, 3), NOT_SUPPORTED = NAME(15, 7) };
enum { PLAIN = NAME(0, 111), TRANSPOSED = NAME(1, 112), COMPUTE_F32 = NAME(68, 2), COMPUTE_TF32 = NAME(77, 6) };
enum { EPILOGUE_DEFAULT = 1, EPILOGUE_BIAS = 4 };

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
enum { TYPE_F32 = 0, TYPE_F16 = 2, TYPE_BF16 = 14, CODE_E2M1 = 33 };
enum { CODE_E4M3 = 28, CODE_E5M2 = 29, CODE_E4M3_FNUZ = 1000, CODE_E5M2_FNUZ = 1001 };
enum { SCALE_OF_MATRIX = 0, SCALES_E8M0 = 2, SCALES_OF_ROWS = 3, SCALES_OF_128 = 4, SCALES_OF_SQUARES = 5 };

typedef struct {
    const char *a, *b; /* on the GPU; NULL: 1 */
    int32_t     mode_a, mode_b;
} scaling;

/* Scales of a matrix of so many rows of op(A), or columns of op(B), each so long. */
typedef struct {
    int      mode;
    uint64_t lines, length;
} scaled;

typedef struct {
    int      a, b, d, bias; /* formats; bias < 0: there is none */
    bool     turns_a, turns_b;
    uint64_t m, n, k;
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
    return type == CODE_E2M1 || type == CODE_E4M3 || type == CODE_E5M2 || type == CODE_E4M3_FNUZ ||
           type == CODE_E5M2_FNUZ;
}

static uint64_t up(uint64_t n, uint64_t by)
{
    return (n + by - 1) / by;
}

/* Elements of a line that share a scale; 0: all of them. */
static uint64_t block_of(int mode)
{
    return mode == SCALES_E8M0 ? 32 : mode == SCALES_OF_128 || mode == SCALES_OF_SQUARES ? 128 : 0;
}

/* A stride of squares and a tile have a multiple of 4. */
static uint64_t blocks_of(const scaled *s)
{
    uint64_t blocks = up(s->length, block_of(s->mode));
    bool     fours = s->mode == SCALES_OF_SQUARES || (s->mode == SCALES_E8M0 && NAME(1, 0));
    return fours ? up(blocks, 4) * 4 : blocks;
}

static uint64_t count_scales(const scaled *s)
{
    switch (s->mode) {
    case SCALES_OF_ROWS:
        return s->lines;
    case SCALES_OF_128:
        return s->lines * blocks_of(s);
    case SCALES_OF_SQUARES:
        return up(s->lines, 128) * blocks_of(s);
    case SCALES_E8M0:
        return (NAME(1, 0) ? up(s->lines, 128) * 128 : s->lines) * blocks_of(s);
    default:
        return 1;
    }
}

static size_t bytes_of_scales(const scaled *s)
{
    return count_scales(s) * (s->mode == SCALES_E8M0 ? 1 : 4);
}

/* Of a line's block. cuBLASLt: of 128 elements the lines lie beside each other, squares along the depth; of 32 in tiles
 * of 128 lines by 4 blocks. hipBLASLt: of 32 as the matrix itself lies. */
static uint64_t place_of_scale(const scaled *s, uint64_t line, uint64_t block)
{
    uint64_t outer = line % 128, inner = block % 4;
    switch (s->mode) {
    case SCALES_OF_ROWS:
        return line;
    case SCALES_OF_128:
        return line + block * s->lines;
    case SCALES_OF_SQUARES:
        return block + line / 128 * blocks_of(s);
    case SCALES_E8M0:
        if (!NAME(1, 0)) return line * blocks_of(s) + block;
        return (line / 128 * (blocks_of(s) / 4) + block / 4) * 512 + outer % 32 * 16 + outer / 32 * 4 + inner;
    default:
        return 0;
    }
}

static float scale_at(const char *scales, const scaled *s, uint64_t line, uint64_t block)
{
    float    value;
    uint64_t at = place_of_scale(s, line, block);
    if (!scales) return 1;
    if (s->mode == SCALES_E8M0)
        return (unsigned char)scales[at] == 0xff ? NAN : ldexpf(1, (unsigned char)scales[at] - 127);
    memcpy(&value, scales + 4 * at, 4);
    return value;
}

/* "fill out-of-bounds values with zeros" (cuBLAS's documentation, layouts of scaling factors). */
static bool filled_up(const char *scales, const scaled *s)
{
    size_t each = s->mode == SCALES_E8M0 ? 1 : 4, bytes = bytes_of_scales(s);
    if (!scales || (s->mode != SCALES_E8M0 && s->mode != SCALES_OF_SQUARES)) return true;
    char *rest = malloc(bytes);
    bool  zeros = true;
    if (!rest) abort();
    memcpy(rest, scales, bytes);
    for (uint64_t line = 0; line < s->lines; line++)
        for (uint64_t b = 0; b < up(s->length, block_of(s->mode)); b++)
            memset(rest + place_of_scale(s, line, b) * each, 0, each);
    for (size_t i = 0; i < bytes; i++) zeros = zeros && rest[i] == 0;
    free(rest);
    return zeros;
}

/* OCP 8-bit floating point 1.0; of FNUZ the bias is one more, and 0x80 is the one NaN. */
static float code_value(int type, unsigned char code)
{
    static const float e2m1[] = { 0, 0.5F, 1, 1.5F, 2, 3, 4, 6 };
    bool               fnuz = type == CODE_E4M3_FNUZ || type == CODE_E5M2_FNUZ;
    int   digits = type == CODE_E4M3 || type == CODE_E4M3_FNUZ ? 3 : 2, bias = (digits == 3 ? 7 : 15) + fnuz;
    int   exponent = (code & 0x7f) >> digits, fraction = code & ((1 << digits) - 1);
    float size = exponent ? ldexpf((float)((1 << digits) + fraction), exponent - bias - digits)
                          : ldexpf((float)fraction, 1 - bias - digits);
    if (type == CODE_E2M1) return code & 8 ? -e2m1[code & 7] : e2m1[code & 7];
    if (fnuz && code == 0x80) return NAN;
    if (type == CODE_E4M3 && (code & 0x7f) == 0x7f) return NAN;
    if (type == CODE_E5M2 && exponent == 31) size = fraction ? NAN : INFINITY;
    return code & 0x80 ? -size : size;
}

static size_t size_of(int type)
{
    return type == TYPE_F32 ? 4 : is_code(type) ? 1 : 2;
}

static float of_half(uint16_t bits)
{
    int   exponent = bits >> 10 & 31, fraction = bits & 1023;
    float size = exponent ? ldexpf((float)(1024 + fraction), exponent - 25) : ldexpf((float)fraction, -24);
    if (exponent == 31) size = fraction ? NAN : INFINITY;
    return bits & 0x8000 ? -size : size;
}

/* To nearest even; what is too large is infinite. */
static uint16_t to_half(float value)
{
    int      exponent;
    float    size = fabsf(value);
    uint16_t sign = signbit(value) ? 0x8000 : 0;
    if (isnan(size)) return 0x7e00;
    if (size >= 65520) return sign | 0x7c00;
    frexpf(size, &exponent);
    int last = size == 0 || exponent < -13 ? -24 : exponent - 11; /* the last bit is worth 2^last */
    return (uint16_t)(sign + (last + 25) * 1024 + (int)nearbyintf(ldexpf(size, -last)) - 1024);
}

/* TF32 has 10 bits of fraction. */
static float factor(bool tf32, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (tf32) bits = (bits + 0xfff + (bits >> 13 & 1)) & ~(uint32_t)0x1fff;
    memcpy(&value, &bits, 4);
    return value;
}

static float get(const char *from, int type, uint64_t i)
{
    float    value;
    uint32_t bits = 0;
    uint16_t half;
    if (type == TYPE_F16) {
        memcpy(&half, from + 2 * i, 2);
        return of_half(half);
    }
    if (type == CODE_E2M1) return code_value(type, (unsigned char)from[i / 2] >> 4 * (i % 2) & 15);
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
    uint16_t half = to_half(value),
             high = (uint16_t)(nan ? bits >> 16 | 0x40 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    memcpy(to + 2 * i, type == TYPE_F16 ? &half : &high, 2);
}

static short align_of(const void *address)
{
    uintptr_t low = (uintptr_t)address & -(uintptr_t)address;
    return address && low < 256 ? (short)low : 256;
}

/* Scales of another kind than those of matrices and rows. */
static bool has_blocks(const scaling *by)
{
    return block_of(by->mode_a) > 0 || block_of(by->mode_b) > 0;
}

#ifdef HIP

/* FNUZ on gfx942 alone, OCP's on gfx950 and later. The bias is of the result's format, or of float32. Blocks of 32 on
 * gfx950: TN, m and n multiples of 16, k of 128, no epilogue; those of 128 are "not supported yet". */
static bool takes_codes(const char *arch, int version, const coded *c)
{
    bool fnuz = c->a >= CODE_E4M3_FNUZ, small = c->a == CODE_E2M1 || c->b == CODE_E2M1;
    if (fnuz != (c->b >= CODE_E4M3_FNUZ) || strcmp(arch, fnuz ? "gfx942" : "gfx950") != 0) return false;
    if (c->by.mode_a != c->by.mode_b) return false;
    if (has_blocks(&c->by))
        return c->by.mode_a == SCALES_E8M0 && !fnuz && version >= 100000 && c->bias < 0 && c->turns_a && !c->turns_b &&
               c->m % 16 == 0 && c->n % 16 == 0 && c->k % 128 == 0;
    if (small || (c->bias >= 0 && c->bias != c->d && c->bias != 0)) return false;
    return c->by.mode_a == SCALE_OF_MATRIX || (c->by.mode_a == SCALES_OF_ROWS && version >= 100000);
}

#else

/* On 9.0 since cublasLt 12.9: vectors of scales; blocks of 128, of which both factors may not have squares, and m and n
 * multiples of 4. On 10.x and 11.0 since 12.8: blocks of 32. */
static bool takes_scales(int sm, int version, const coded *c)
{
    int a = c->by.mode_a, b = c->by.mode_b;
    if (a == SCALE_OF_MATRIX && b == SCALE_OF_MATRIX) return true;
    if (a == SCALES_E8M0 && b == SCALES_E8M0) return sm >= 100 && sm < 120 && version >= 120800;
    if (sm != 90 || version < 120900) return false;
    if (a == SCALES_OF_ROWS && b == SCALES_OF_ROWS) return true;
    return block_of(a) == 128 && block_of(b) == 128 && !(a == SCALES_OF_SQUARES && b == SCALES_OF_SQUARES) &&
           c->m % 4 == 0 && c->n % 4 == 0;
}

/* (op(A) = T) k, (op(B) = N) k, m of the result, and the distances of columns, in multiples of 16 bytes. TN before
 * compute capability 10, and on 12. e2m1 only with scales of 16, which do not stand in. */
static bool takes_codes(const char *arch, int version, const coded *c)
{
    int      sm = atoi(arch + 3);
    uint64_t d = c->d == 0 ? 4 : 2;
    bool     any_layout = sm >= 100 && sm < 120;
    if (sm < 89 || c->a > CODE_E5M2 || c->b > CODE_E5M2 || (c->a == CODE_E5M2 && c->b == CODE_E5M2)) return false;
    if (!any_layout && (!c->turns_a || c->turns_b)) return false;
    if (c->k % 16 || c->m * d % 16 || c->ld_a % 16 || c->ld_b % 16 || (uint64_t)c->ld_d * d % 16) return false;
    if (c->bias >= 0 && c->bias != 14) return false;
    return takes_scales(sm, version, c);
}

#endif

#endif
