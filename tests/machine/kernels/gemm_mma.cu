/* SPDX-License-Identifier: Apache-2.0 */
/* C[M,N] = A[M,K] B[N,K]^T by mma.sync: blocks of 128 x 128 x 64 bytes, 4 warps, two stages by cp.async. For sm_80; fp8 for
 * sm_90. C is bf16. Rows in shared memory have 80 bytes: ldmatrix has no conflicts of banks. */
#include "tensor.h"

enum { SIDE = 128, STEP = 64, PITCH = 80 }; /* rows of a tile; bytes of a row; between rows */

template <int form> DEVICE void mma(float *c, const u32 *a, const u32 *b)
{
    if (form == 0) MMA(BF16_FORM, c, a, b);
    if (form == 1) MMA("m16n8k16.row.col.f32.f16.f16.f32", c, a, b);
#if __CUDA_ARCH__ >= 890
    if (form == 2) MMA("m16n8k32.row.col.f32.e4m3.e4m3.f32", c, a, b);
#endif
}

/* A stage of both operands: 128 threads, a row each 4 lanes. */
DEVICE void load_tiles(u32 sa, u32 sb, const char *a, const char *b, i64 pitch)
{
    for (int c = thread_id(); c < SIDE * 4; c += 128) {
        int r = c >> 2, k = (c & 3) * 16;
        copy16(sa + r * PITCH + k, a + r * pitch + k);
        copy16(sb + r * PITCH + k, b + r * pitch + k);
    }
}

template <int form> DEVICE void product(bf16 *C, const char *A, const char *B, int N, int bytes)
{
    SHARED __align__(16) char as[2][SIDE * PITCH], bs[2][SIDE * PITCH];
    int   lane = thread_id() & 31, w = thread_id() >> 5, wm = (w >> 1) * 64, wn = (w & 1) * 64;
    u32   sa = shared_address(as), sb = shared_address(bs);
    float acc[4][8][4];
    UNROLL for (int e = 0; e < 128; e++) acc[e / 32][e / 4 % 8][e % 4] = 0.0f;
    A += (i64)block_id(1) * SIDE * bytes;
    B += (i64)block_id(0) * SIDE * bytes;
    load_tiles(sa, sb, A, B, bytes);
    commit_copies();
    for (int tile = 0; tile < bytes / STEP; tile++) {
        u32 here = (tile & 1) * SIDE * PITCH, there = SIDE * PITCH - here;
        if (tile + 1 < bytes / STEP)
            load_tiles(sa + there, sb + there, A + (tile + 1) * STEP, B + (tile + 1) * STEP, bytes);
        commit_copies();
        wait_copies<1>();
        barrier();
        _Pragma("unroll 1") for (int k = 0; k < STEP; k += 32)
        {
            u32 fa[4][4], fb[4][4];
            UNROLL for (int i = 0; i < 4; i++)
                load_matrices(fa[i], sa + here + (wm + 16 * i + (lane & 15)) * PITCH + k + (lane >> 4) * 16);
            UNROLL for (int j = 0; j < 4; j++)
                load_matrices(fb[j], sb + here + (wn + 16 * j + (lane & 7) + (lane >> 4) * 8) * PITCH + k +
                                         (lane >> 3 & 1) * 16);
            UNROLL for (int i = 0; i < 4; i++)
                UNROLL for (int j = 0; j < 8; j++) mma<form>(acc[i][j], fa[i], fb[j >> 1] + 2 * (j & 1));
        }
        barrier();
    }
    UNROLL for (int e = 0; e < 64; e++) {
        int i = e / 16, j = e / 2 % 8, h = e % 2;
        int row = block_id(1) * SIDE + wm + 16 * i + (lane >> 2) + 8 * h;
        int column = block_id(0) * SIDE + wn + 8 * j + (lane & 3) * 2;
        *(u32 *)&C[(i64)row * N + column] = pack(acc[i][j][2 * h], acc[i][j][2 * h + 1]);
    }
}

KERNEL_OF(128, gemm_bf16)(bf16 *C, const char *A, const char *B, int N, int K)
{
    product<0>(C, A, B, N, 2 * K);
}
KERNEL_OF(128, gemm_f16)(bf16 *C, const char *A, const char *B, int N, int K)
{
    product<1>(C, A, B, N, 2 * K);
}
#if __CUDA_ARCH__ >= 890
KERNEL_OF(128, gemm_e4m3)(bf16 *C, const char *A, const char *B, int N, int K)
{
    product<2>(C, A, B, N, K);
}
#endif
