/* SPDX-License-Identifier: Apache-2.0 */
/* C[M,N] = A[M,K] B[N,K]^T, bf16, sm_90a: tiles of 64 x 64 x 64 by TMA (128-byte swizzle), two stages with an mbarrier each,
 * wgmma m64n64k16 by one warpgroup. */
#include "tensor.h"

enum { SIDE = 64, TILE = SIDE * 128 };

DEVICE void load_stage(u32 to, u32 bar, const tensor_map *a, const tensor_map *b, int k)
{
    expect(bar, 2 * TILE);
    load_box(to, a, bar, k * SIDE, block_id(1) * SIDE);
    load_box(to + TILE, b, bar, k * SIDE, block_id(0) * SIDE);
}

KERNEL_OF(128, gemm_wgmma)
(bf16 *C, const __grid_constant__ tensor_map map_a, const __grid_constant__ tensor_map map_b, int N, int K)
{
    SHARED __align__(1024) unsigned char tiles[2][2 * TILE];
    SHARED __align__(8) u64              bars[2];
    u32  at = shared_address(tiles), bar = shared_address(bars);
    int  t = thread_id(), steps = K / SIDE;
    bool leads = t < 32 && elected();
    if (leads) {
        init_barrier(bar, 1);
        init_barrier(bar + 8, 1);
        fence_proxy();
    }
    barrier();
    if (leads) load_stage(at, bar, &map_a, &map_b, 0);
    float d[32];
    UNROLL for (int i = 0; i < 32; i++) d[i] = 0.0f;
    for (int k = 0; k < steps; k++) {
        u32 stage = k & 1, next = stage ^ 1, from = at + stage * 2 * TILE;
        if (leads && k + 1 < steps) load_stage(at + next * 2 * TILE, bar + 8 * next, &map_a, &map_b, k + 1);
        await(bar + 8 * stage, k >> 1 & 1);
        fence_products();
        UNROLL for (int x = 0; x < 4; x++) asm volatile(WGMMA("64") "{" NAMES32 "}, %32, %33, 1, 1, 1, 0, 0;"
                                                        : F32(d)
                                                        : "l"(descriptor(from + 32 * x, 16)),
                                                          "l"(descriptor(from + TILE + 32 * x, 16)));
        commit_products();
        asm volatile("wgmma.wait_group.sync.aligned 0;" : F32(d)::"memory");
        barrier();
    }
    UNROLL for (int i = 0; i < 32; i += 2) {
        int row = block_id(1) * SIDE + (t >> 5) * 16 + ((t & 31) >> 2) + 8 * (i >> 1 & 1);
        int column = block_id(0) * SIDE + 8 * (i >> 2) + 2 * (t & 3);
        *(u32 *)&C[(i64)row * N + column] = pack(d[i], d[i + 1]);
    }
}
