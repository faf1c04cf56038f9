/* SPDX-License-Identifier: Apache-2.0 */
/* gemm_lds: c[rows, columns] = a[rows, inner] b[columns, inner]^T, bfloat16, whose tiles go from memory to LDS without
 * passing through registers, two tiles ahead, and stay in flight across barriers. 128 x 128 x 32 per block of 4 waves;
 * rows and columns multiples of 128, inner of 32.
 *
 * Three buffers, one barrier a tile: wait until this wave's part of tile k is there (k + 1 stays in flight); behind the
 * barrier everybody's is, and all are done with k - 1; bring k + 2 into the buffer of k - 1; products of k.
 *
 * Waits are written by hand, and the barrier has no fence: a fence would wait for all loads. HOLD emits nothing; it
 * keeps the compiler from moving memory accesses across it:
 *   - around the barrier, as s_barrier touches no memory for the compiler;
 *   - behind `bring`: clang 22 counts global_load_lds in lgkmcnt as well, the hardware in vmcnt only. One that slips
 *     behind a ds_read makes clang's own wait for that read too lax (LLVM's pull request 179305);
 *   - between the first two tiles: vmcnt counts by age.
 * One exit of the loop and no branch around the loads, or clang adds waits of its own.
 *
 * Lanes are written one behind the other, so rows cannot be padded. Instead, chunk c of 16 bytes of row r lies at chunk
 * c ^ (r / 2 % 4): the 8 lanes that read in one cycle hit 32 banks. A and B agree on the order of k: that is enough.
 */
#include "matrix.h"

#define HOLD() asm volatile("" ::: "memory")
#define TILE 128
#define INNER 32
#if defined(__gfx950__)
#define LANE_BYTES 16
#else
#define LANE_BYTES 4
#endif
#define ROWS_A_LOAD (64 * LANE_BYTES / (2 * INNER))
#define LOADS (TILE / 4 / ROWS_A_LOAD) /* of a wave, tile and operand */
#define WAIT(vm) __builtin_amdgcn_s_waitcnt(((vm)&15) | (vm) >> 4 << 14 | 0x70) /* vmcnt(vm) lgkmcnt(0) */

/* A wave's quarter of the two tiles that begin at a and b. */
DEVICE void bring(bf16 *to, const bf16 *a, const bf16 *b, const u32 *offset, int wave)
{
    UNROLL for (int m = 0; m < 2; m++) UNROLL for (int j = 0; j < LOADS; j++) {
        const char *from = (const char *)(m ? b : a) + offset[j];
        bf16       *row = to + (m * TILE + wave * (TILE / 4) + j * ROWS_A_LOAD) * INNER;
        __builtin_amdgcn_global_load_lds((__attribute__((address_space(1))) void *)from,
                                         (__attribute__((address_space(3))) void *)row, LANE_BYTES, 0, 0);
    }
}
DEVICE fragment chunk(const bf16 *tile, int r, int c)
{
    return __builtin_bit_cast(fragment, *(const s16x8 *)&tile[r * INNER + (c ^ (r >> 1 & 3)) * 8]);
}
DEVICE void products(f32x16 (*sum)[2], const bf16 *tile, int wave, int l, int h)
{
    const bf16 *as = tile + (wave >> 1) * 64 * INNER, *bs = tile + (TILE + (wave & 1) * 64) * INNER;
    UNROLL for (int x = 0; x < INNER / 16; x++) {
        fragment a[2], b[2];
        UNROLL for (int i = 0; i < 2; i++) {
            a[i] = chunk(as, 32 * i + l, 2 * x + h);
            b[i] = chunk(bs, 32 * i + l, 2 * x + h);
        }
        UNROLL for (int i = 0; i < 2; i++) UNROLL for (int j = 0; j < 2; j++) sum[i][j] = multiply(a[i], b[j], sum[i][j]);
    }
}

KERNEL_OF(256, gemm_lds)
(bf16 *RESTRICT c, const bf16 *RESTRICT a, const bf16 *RESTRICT b, int columns, int inner)
{
    __shared__ ALIGNED bf16 s0[2 * TILE * INNER], s1[2 * TILE * INNER], s2[2 * TILE * INNER];
    int thread = thread_id(), lane = thread & 63, wave = __builtin_amdgcn_readfirstlane(thread >> 6);
    int l = lane & 31, h = lane >> 5, row0 = block_id(1) * TILE, column0 = block_id(0) * TILE, tiles = inner / INNER;
    a += (i64)row0 * inner;
    b += (i64)column0 * inner;
    u32 offset[LOADS]; /* where this lane's bytes come from */
    UNROLL for (int j = 0; j < LOADS; j++) {
        int r = wave * (TILE / 4) + j * ROWS_A_LOAD + lane * LANE_BYTES / (2 * INNER), at = lane * LANE_BYTES % (2 * INNER);
        offset[j] = (u32)r * (u32)inner * 2 + (u32)(((at >> 4) ^ (r >> 1 & 3)) * 16 + (at & 15));
    }
    f32x16 sum[2][2] = { { zeros(), zeros() }, { zeros(), zeros() } };
    /* Beyond the end the last tile comes again: no branch, and the waits stay constants. */
#define COLUMN(k) (((k) < tiles ? (k) : tiles - 1) * INNER)
#define BRING(to, k) bring(to, a + COLUMN(k), b + COLUMN(k), offset, wave)
#define NEXT(k, now, then)                                                                                             \
    WAIT(2 * LOADS);                                                                                                   \
    HOLD();                                                                                                            \
    __builtin_amdgcn_s_barrier();                                                                                      \
    HOLD();                                                                                                            \
    BRING(then, (k) + 2);                                                                                              \
    HOLD();                                                                                                            \
    if ((k) < tiles) products(sum, now, wave, l, h);
    BRING(s0, 0);
    HOLD();
    BRING(s1, 1);
    for (int k = 0; k < tiles; k += 3) {
        NEXT(k, s0, s2)
        NEXT(k + 1, s1, s0)
        NEXT(k + 2, s2, s1)
    }
    WAIT(0); /* the LDS must not be somebody else's when the last ones land */
    UNROLL for (int i = 0; i < 2; i++) UNROLL for (int j = 0; j < 2; j++) UNROLL for (int r = 0; r < 16; r++) {
        int row = row0 + (wave >> 1) * 64 + 32 * i + row_of_result(r, h), column = column0 + (wave & 1) * 64 + 32 * j + l;
        put(c, (i64)row * columns + column, sum[i][j][r]);
    }
}
