/* SPDX-License-Identifier: Apache-2.0 */
/* Products on matrix cores. gemm_f16: c[rows, columns] = a[rows, inner] b[columns, inner]^T, float16; a tile of 128 x 128 per
 * block of 4 waves, each with 64 x 64 of it; rows and columns multiples of 128, inner of 32. gemm_f32: float32, one tile of
 * 32 x 32 per wave, straight from memory.
 */
#include "matrix.h"

#define TILE 128
#define INNER 32
#define STRIDE (INNER + 4) /* elements of a row in LDS: 72 bytes, two-way conflicts at most */

/* What a thread copies of a tile: 16 elements of one row, in registers on their way to LDS. */
struct copied {
    u32x4 part[2];
};
DEVICE copied fetch(const f16 *from)
{
    copied c = { { ((const u32x4 *)from)[0], ((const u32x4 *)from)[1] } };
    return c;
}
DEVICE void keep(f16 *to, copied c)
{
    UNROLL for (int i = 0; i < 2; i++) {
        *(u32x2 *)&to[8 * i] = c.part[i].xy;
        *(u32x2 *)&to[8 * i + 4] = c.part[i].zw;
    }
}

DEVICE void products(f32x16 (*sum)[2], const f16 *as, const f16 *bs, int l, int h)
{
    typedef _Float16 h16x4 __attribute__((ext_vector_type(4)));
    for (int k = 0; k < INNER; k += 8) {
        h16x4 fa[2], fb[2];
        UNROLL for (int i = 0; i < 2; i++) {
            fa[i] = *(const h16x4 *)&as[(32 * i + l) * STRIDE + k + 4 * h];
            fb[i] = *(const h16x4 *)&bs[(32 * i + l) * STRIDE + k + 4 * h];
        }
        UNROLL for (int i = 0; i < 2; i++) UNROLL for (int j = 0; j < 2; j++)
            sum[i][j] = __builtin_amdgcn_mfma_f32_32x32x8f16(fa[i], fb[j], sum[i][j], 0, 0, 0);
    }
}

KERNEL_OF(256, gemm_f16)
(f16 *RESTRICT c, const f16 *RESTRICT a, const f16 *RESTRICT b, int columns, int inner)
{
    __shared__ ALIGNED f16 as[TILE * STRIDE], bs[TILE * STRIDE];
    int thread = thread_id(), lane = thread & 63, wave = thread >> 6, l = lane & 31, h = lane >> 5;
    int row0 = block_id(1) * TILE, column0 = block_id(0) * TILE, wave_row = (wave >> 1) * 64, wave_column = (wave & 1) * 64;
    int at = (thread >> 1) * STRIDE + (thread & 1) * 16;
    a += (i64)(row0 + (thread >> 1)) * inner + (thread & 1) * 16;
    b += (i64)(column0 + (thread >> 1)) * inner + (thread & 1) * 16;
    f32x16 sum[2][2] = { { zeros(), zeros() }, { zeros(), zeros() } };
    copied next_a = fetch(a), next_b = fetch(b);
    for (int k0 = 0; k0 < inner; k0 += INNER) {
        barrier();
        keep(&as[at], next_a);
        keep(&bs[at], next_b);
        barrier();
        int next = k0 + INNER < inner ? k0 + INNER : k0; /* behind the end the last tile comes again: no branch */
        next_a = fetch(a + next);
        next_b = fetch(b + next);
        products(sum, as + wave_row * STRIDE, bs + wave_column * STRIDE, l, h);
    }
    UNROLL for (int i = 0; i < 2; i++) UNROLL for (int j = 0; j < 2; j++) UNROLL for (int r = 0; r < 16; r++) {
        i64 to = (i64)(row0 + wave_row + 32 * i + row_of_result(r, h)) * columns + column0 + wave_column + 32 * j + l;
        c[to] = __builtin_bit_cast(unsigned short, (_Float16)sum[i][j][r]);
    }
}

KERNEL_OF(64, gemm_f32)
(float *RESTRICT c, const float *RESTRICT a, const float *RESTRICT b, int columns, int inner)
{
    int lane = thread_id(), l = lane & 31, h = lane >> 5, row0 = block_id(1) * 32, column0 = block_id(0) * 32;
    f32x16 sum = zeros();
    for (int k = h; k < inner; k += 2)
        sum = __builtin_amdgcn_mfma_f32_32x32x2f32(a[(i64)(row0 + l) * inner + k], b[(i64)(column0 + l) * inner + k],
                                                   sum, 0, 0, 0);
    UNROLL for (int r = 0; r < 16; r++) c[(i64)(row0 + row_of_result(r, h)) * columns + column0 + l] = sum[r];
}
