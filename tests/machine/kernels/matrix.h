/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix cores of gfx942 and gfx950: what the kernels for them share. Builtins only.
 *
 * An operand of a 32 x 32 product has its row (A) or column (B) in the lane, lane % 32, and k in registers. The result
 * has its column in the lane and its rows in registers: row 8 (r / 4) + 4 (lane / 32) + r % 4.
 */
#ifndef TESTS_MACHINE_KERNELS_MATRIX_H
#define TESTS_MACHINE_KERNELS_MATRIX_H

#include "dialect.h"

typedef float f32x4 __attribute__((ext_vector_type(4)));
typedef float f32x16 __attribute__((ext_vector_type(16)));
typedef short s16x4 __attribute__((ext_vector_type(4)));
typedef short s16x8 __attribute__((ext_vector_type(8)));
typedef u32   u32x2 __attribute__((ext_vector_type(2)));
typedef u32   u32x4 __attribute__((ext_vector_type(4)));

#define ALIGNED __attribute__((aligned(16)))

DEVICE f32x16 zeros(void)
{
    f32x16 z;
    UNROLL for (int r = 0; r < 16; r++) z[r] = 0.0f;
    return z;
}
DEVICE int row_of_result(int r, int half)
{
    return 8 * (r / 4) + 4 * half + r % 4;
}

/* 16 of k for one row or column: {4 half ..} and {8 + 4 half ..}. */
struct fragment {
    s16x4 k[2];
};
/* c + a b, 32 x 16 by 16 x 32. gfx950's instruction takes eight of k a lane: which ones they are does not matter as
 * long as A and B agree, so two operands of gfx942's are one of its. */
DEVICE f32x16 multiply(fragment a, fragment b, f32x16 c)
{
#if defined(__gfx950__)
    typedef __bf16 b16x8 __attribute__((ext_vector_type(8)));
    return __builtin_amdgcn_mfma_f32_32x32x16_bf16(__builtin_bit_cast(b16x8, a), __builtin_bit_cast(b16x8, b), c, 0, 0,
                                                   0);
#else
    c = __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a.k[0], b.k[0], c, 0, 0, 0);
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a.k[1], b.k[1], c, 0, 0, 0);
#endif
}

#endif
