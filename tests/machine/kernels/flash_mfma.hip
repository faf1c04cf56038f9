/* SPDX-License-Identifier: Apache-2.0 */
/* flash_mfma: causal attention with heads of 64, bfloat16, and the logarithm of the sum of each row. A wave has 32
 * queries, a block 128; tokens a multiple of 128. S^T = K Q^T, so that the result S^T is the operand of
 * O^T = V^T P^T as it is. Grid: blocks of queries, heads.
 */
#include "matrix.h"

#define HEAD 64
#define KEYS 32
#define K_STRIDE (HEAD + 4)
#define V_STRIDE (KEYS + 4)

/* A thread copies 8 elements: of a key as they are, of a value transposed. */
DEVICE void stage(bf16 *ks, bf16 *vt, const bf16 *keys, const bf16 *values, int thread)
{
    int   key = thread >> 3, d = (thread & 7) * 8;
    u32x4 k = *(const u32x4 *)&keys[key * HEAD + d], v = *(const u32x4 *)&values[key * HEAD + d];
    *(u32x2 *)&ks[key * K_STRIDE + d] = k.xy;
    *(u32x2 *)&ks[key * K_STRIDE + d + 4] = k.zw;
    UNROLL for (int i = 0; i < 4; i++) {
        vt[(d + 2 * i) * V_STRIDE + key] = (bf16)v[i];
        vt[(d + 2 * i + 1) * V_STRIDE + key] = (bf16)(v[i] >> 16);
    }
}
DEVICE f32x16 step(s16x4 a, s16x4 b, f32x16 c)
{
    return __builtin_amdgcn_mfma_f32_32x32x8bf16_1k(a, b, c, 0, 0, 0);
}

KERNEL_OF(256, flash_mfma)
(bf16 *RESTRICT out, float *RESTRICT log_sum, const bf16 *RESTRICT queries, const bf16 *RESTRICT keys,
 const bf16 *RESTRICT values, int tokens, float scale)
{
    __shared__ ALIGNED bf16 ks[KEYS * K_STRIDE], vt[HEAD * V_STRIDE];
    int    thread = thread_id(), lane = thread & 63, wave = thread >> 6, l = lane & 31, h = lane >> 5;
    int    first = block_id(0) * 128, query = first + wave * 32 + l;
    i64    head = (i64)block_id(1) * tokens * HEAD;
    s16x4  q[HEAD / 8];
    f32x16 o[2] = { zeros(), zeros() };
    float  most = -3.0e38f, sum = 0.0f, c = scale * LOG2_E;
    UNROLL for (int x = 0; x < HEAD / 8; x++) q[x] = *(const s16x4 *)&queries[head + (i64)query * HEAD + 8 * x + 4 * h];
    for (int k0 = 0; k0 < first + 128; k0 += KEYS) {
        barrier();
        stage(ks, vt, keys + head + (i64)k0 * HEAD, values + head + (i64)k0 * HEAD, thread);
        barrier();
        if (k0 > first + wave * 32 + 31) continue; /* the same for a whole wave */
        f32x16 s = zeros();
        UNROLL for (int x = 0; x < HEAD / 8; x++) s = step(*(const s16x4 *)&ks[l * K_STRIDE + 8 * x + 4 * h], q[x], s);
        float now = most;
        UNROLL for (int r = 0; r < 16; r++) {
            s[r] = k0 + row_of_result(r, h) <= query ? s[r] * c : -3.0e38f;
            now = larger(now, s[r]);
        }
        now = larger(now, other_lane(now, 32));
        float f = __builtin_amdgcn_exp2f(most - now), part = 0.0f;
        most = now;
        s16x4 p[4];
        UNROLL for (int r = 0; r < 16; r++) {
            float e = __builtin_amdgcn_exp2f(s[r] - most);
            part += e;
            p[r / 4][r % 4] = (short)to_bf16(e);
        }
        sum = sum * f + part + other_lane(part, 32);
        UNROLL for (int i = 0; i < 2; i++) {
            UNROLL for (int r = 0; r < 16; r++) o[i][r] *= f;
            UNROLL for (int x = 0; x < 4; x++)
                o[i] = step(*(const s16x4 *)&vt[(32 * i + l) * V_STRIDE + 8 * x + 4 * h], p[x], o[i]);
        }
    }
    UNROLL for (int i = 0; i < 2; i++) UNROLL for (int r = 0; r < 16; r++)
        out[head + (i64)query * HEAD + 32 * i + row_of_result(r, h)] = to_bf16(o[i][r] / sum);
    if (h == 0) log_sum[(i64)block_id(1) * tokens + query] = (most + __builtin_amdgcn_logf(sum)) * LN_2;
}
