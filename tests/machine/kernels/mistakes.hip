/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels with one mistake each, for test_gcn_mistakes.c: the comment says which. */
#include "matrix.h"

/* Sums of rows of 32, a row for every 32 threads. Mistake: thread / 32 is not the same for a wave of 64. */
KERNEL_OF(256, wave32)(float *RESTRICT out, const float *RESTRICT x)
{
    int   thread = thread_id(), row = __builtin_amdgcn_readfirstlane(thread / 32);
    float v = x[row * 32 + thread % 32];
    for (int m = 16; m > 0; m >>= 1) v += other_lane(v, m);
    if (thread % 32 == 0) out[row] = v;
}

/* out = a b^T, 32 x 32. Mistake: half a wave does not have rows 16 to 31. */
KERNEL_OF(64, layout)(float *RESTRICT out, const float *RESTRICT a, const float *RESTRICT b, int inner)
{
    int    lane = thread_id(), l = lane & 31, h = lane >> 5;
    f32x16 sum = zeros();
    for (int k = h; k < inner; k += 2)
        sum = __builtin_amdgcn_mfma_f32_32x32x2f32(a[l * inner + k], b[l * inner + k], sum, 0, 0, 0);
    UNROLL for (int r = 0; r < 16; r++) out[(16 * h + r) * 32 + l] = sum[r];
}

/* The threads' numbers the other way round. Mistake: other waves may not have written yet. */
KERNEL_OF(256, stale)(float *RESTRICT out, const float *RESTRICT x)
{
    SHARED float all[256];
    int          thread = thread_id();
    all[thread] = x[thread];
    __builtin_amdgcn_fence(__ATOMIC_ACQ_REL, "workgroup");
    out[thread] = all[255 - thread];
}

/* Pairs of numbers from the second on. Mistake: they do not begin at a multiple of 4 bytes. */
KERNEL_OF(256, odd_alignment)(u32 *RESTRICT out, const bf16 *RESTRICT x)
{
    out[thread_id()] = *(const u32 *)((const unsigned char *)x + 1 + 4 * thread_id());
}

/* A copy of n numbers. Mistake: the last block has threads behind the end. */
KERNEL_OF(256, behind_the_end)(float *RESTRICT out, const float *RESTRICT x, int n)
{
    int i = block_id(0) * 256 + thread_id();
    if (i < (n + 255) / 256 * 256) out[i] = x[i];
}

/* out[i] = x[i] + x[i + 1]. No mistake, but in place (test_gcn_mistakes.c) blocks read what others write. */
KERNEL_OF(256, neighbours)(float *out, const float *x, int n)
{
    int i = block_id(0) * 256 + thread_id();
    if (i < n - 1) out[i] = x[i] + x[i + 1];
}

/* A copy by as many threads as there are. No mistake, but the number of blocks is an argument that the runtime fills. */
KERNEL(copy)(float *RESTRICT out, const float *RESTRICT x, int n)
{
    EACH(i, n) out[i] = x[i];
}
