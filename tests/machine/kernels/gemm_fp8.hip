/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_fp8: c[rows, columns] = a[rows, inner] b[columns, inner]^T, both e4m3 (gfx942: FNUZ, gfx950: OCP), float32 out,
 * times a scale for each row of a and one for each row of b. 64 x 64 results per block of 4 waves, each with 32 x 32 in
 * four products of 16 x 16. Any rows and columns; inner a multiple of 64.
 */
#include "matrix.h"

#define TILE 64
#define INNER 64
#define STRIDE (INNER + 8) /* bytes of a row in LDS */

/* 16 bytes of one row of a tile: zeros where there is no row. */
DEVICE u32x4 fetch(const fp8 *from, int row, int rows, int inner, int k)
{
    u32x4 none = { 0, 0, 0, 0 };
    return row < rows ? *(const u32x4 *)&from[(i64)row * inner + k] : none;
}
DEVICE void keep(fp8 *to, u32x4 x)
{
    *(u32x2 *)to = x.xy;
    *(u32x2 *)(to + 8) = x.zw;
}

KERNEL_OF(256, gemm_fp8)
(float *RESTRICT c, const fp8 *RESTRICT a, const fp8 *RESTRICT b, const float *RESTRICT a_scale,
 const float *RESTRICT b_scale, int rows, int columns, int inner)
{
    __shared__ ALIGNED fp8 as[TILE * STRIDE], bs[TILE * STRIDE];
    int thread = thread_id(), lane = thread & 63, wave = thread >> 6, l = lane & 15, group = lane >> 4;
    int row0 = block_id(1) * TILE, column0 = block_id(0) * TILE, wave_row = (wave >> 1) * 32, wave_column = (wave & 1) * 32;
    int r = thread >> 2, k = (thread & 3) * 16;
    f32x4 sum[2][2] = {};
    u32x4 next_a = fetch(a, row0 + r, rows, inner, k), next_b = fetch(b, column0 + r, columns, inner, k);
    for (int k0 = 0; k0 < inner; k0 += INNER) {
        barrier();
        keep(&as[r * STRIDE + k], next_a);
        keep(&bs[r * STRIDE + k], next_b);
        barrier();
        int next = k0 + INNER < inner ? k0 + INNER : k0; /* behind the end the last tile comes again: no branch */
        next_a = fetch(a, row0 + r, rows, inner, next + k);
        next_b = fetch(b, column0 + r, columns, inner, next + k);
        for (int x = 0; x < INNER; x += 32) {
            long fa[2], fb[2];
            UNROLL for (int i = 0; i < 2; i++) {
                fa[i] = *(const long *)&as[(wave_row + 16 * i + l) * STRIDE + x + 8 * group];
                fb[i] = *(const long *)&bs[(wave_column + 16 * i + l) * STRIDE + x + 8 * group];
            }
            UNROLL for (int i = 0; i < 2; i++) UNROLL for (int j = 0; j < 2; j++)
                sum[i][j] = __builtin_amdgcn_mfma_f32_16x16x32_fp8_fp8(fa[i], fb[j], sum[i][j], 0, 0, 0);
        }
    }
    UNROLL for (int i = 0; i < 2; i++) UNROLL for (int j = 0; j < 2; j++) UNROLL for (int e = 0; e < 4; e++) {
        int row = row0 + wave_row + 16 * i + 4 * group + e, column = column0 + wave_column + 16 * j + l;
        if (row < rows && column < columns)
            c[(i64)row * columns + column] = sum[i][j][e] * a_scale[row] * b_scale[column];
    }
}
