/* SPDX-License-Identifier: Apache-2.0 */
/* Forward of attention for sm_90a: bf16, heads of 128, causal or not, grouped heads, any number of tokens.
 *
 * A block has 128 queries of one head and three warpgroups: 0 brings tiles by TMA (one thread of it), 1 and 2 take 64
 * queries each. Tiles have 128 keys; K and V have two stages with a pair of mbarriers each: `full` counts TMA's bytes,
 * `empty` the 8 warps that use it.
 *     S = Q K^T of tile i is started, then O += P V of tile i - 1 (P in registers); softmax of S runs while the second
 *     product is still busy (wait_group 1), O is scaled when it is done (wait_group 0).
 * Tiles go from the diagonal down to key 0: every query sees a key in its first tile, so no maximum is -infinity. The
 * accumulator of S, two columns a register, is the register operand of P V as it is. V is [key][d]: transposed.
 * Tensors are [batch][token][head][d]; boxes have 64 columns of 128 tokens. Tokens beyond the last are zeros.
 */
#include "tensor.h"

enum { BOX = 128 * 128, TILE = 2 * BOX };

#define LEAST (-1.0e30f)

/* S = Q K^T, 64 x 128: both in two boxes of 64 columns. */
DEVICE void scores(float *s, u32 q, u32 k)
{
    asm volatile(WGMMA("128") "{" NAMES64 "}, %64, %65, 0, 1, 1, 0, 0;"
                 : F64(s)
                 : "l"(descriptor(q, 16)), "l"(descriptor(k, 16)));
    UNROLL for (int x = 1; x < 8; x++)
    {
        u32 o = (u32)(x / 4) * BOX + (u32)(x % 4) * 32;
        asm volatile(WGMMA("128") "{" NAMES64 "}, %64, %65, 1, 1, 1, 0, 0;"
                     : F64(s)
                     : "l"(descriptor(q + o, 16)), "l"(descriptor(k + o, 16)));
    }
}
/* O += P V, 64 x 128: 16 keys are 2,048 bytes of each box. */
DEVICE void add_values(float *o, const u32 *p, u32 v)
{
    UNROLL for (int x = 0; x < 8; x++)
        asm volatile(WGMMA("128") "{" NAMES64 "}, {%64,%65,%66,%67}, %68, 1, 1, 1, 1;"
                     : F64(o)
                     : "r"(p[4 * x]), "r"(p[4 * x + 1]), "r"(p[4 * x + 2]), "r"(p[4 * x + 3]),
                       "l"(descriptor(v + (u32)x * 2048, BOX)));
}
/* Over the four lanes that share a row. */
DEVICE float row_largest(float x)
{
    x = larger(x, __shfl_xor_sync(0xffffffffu, x, 1));
    return larger(x, __shfl_xor_sync(0xffffffffu, x, 2));
}
DEVICE float row_sum(float x)
{
    x += __shfl_xor_sync(0xffffffffu, x, 1);
    return x + __shfl_xor_sync(0xffffffffu, x, 2);
}

/* What a thread knows of its rows q and q + 8: the largest score so far, the sum, and the factor for what is summed. */
struct rows {
    float most[2], sum[2], factor[2];
};

/* s: scores in, exp2(c s - most) out; columns are k0 + 8 j + 2 (lane % 4) + {0, 1}. */
DEVICE void softmax(float *s, rows *r, float c, int q, int k0, int tokens, int causal)
{
    int lane = thread_id() & 31;
    if (k0 + 127 > (causal ? q - (q & 63) : tokens - 1) || k0 + 128 > tokens)
        UNROLL for (int e = 0; e < 64; e++)
        {
            int key = k0 + 8 * (e >> 2) + 2 * (lane & 3) + (e & 1);
            if (key >= tokens || (causal && key > q + 8 * (e >> 1 & 1))) s[e] = LEAST;
        }
    UNROLL for (int h = 0; h < 2; h++)
    {
        float most = r->most[h], sum = 0.0f;
        UNROLL for (int j = 0; j < 16; j++)
            most = larger(most, larger(s[4 * j + 2 * h] * c, s[4 * j + 2 * h + 1] * c));
        most = row_largest(most);
        r->factor[h] = exp2_of(r->most[h] - most);
        r->most[h] = most;
        UNROLL for (int e = 0; e < 32; e++)
        {
            int at = 4 * (e / 2) + 2 * h + e % 2;
            s[at] = exp2_of(multiply_add(s[at], c, -most));
            sum += s[at];
        }
        r->sum[h] = r->sum[h] * r->factor[h] + sum; /* of this thread's columns */
    }
}

struct ring { /* addresses in shared memory */
    u32 q, k, v, bar_q, full_k, full_v, empty_k, empty_v;
};

DEVICE void produce(const ring *at, const tensor_map *mq, const tensor_map *mk, const tensor_map *mv, int q0, int group,
                    int tiles)
{
    int head = block_id(1), batch = block_id(2);
    expect(at->bar_q, TILE);
    for (u32 b = 0; b < 2; b++) load_box(at->q + b * BOX, mq, at->bar_q, 64 * (int)b, head, q0, batch);
    for (int i = 0; i < tiles; i++) {
        u32 stage = (u32)i & 1, free = ~((u32)i >> 1) & 1;
        int key = (tiles - 1 - i) * 128;
        await(at->empty_k + 8 * stage, free);
        expect(at->full_k + 8 * stage, TILE);
        for (u32 b = 0; b < 2; b++)
            load_box(at->k + stage * TILE + b * BOX, mk, at->full_k + 8 * stage, 64 * (int)b, head / group, key, batch);
        await(at->empty_v + 8 * stage, free);
        expect(at->full_v + 8 * stage, TILE);
        for (u32 b = 0; b < 2; b++)
            load_box(at->v + stage * TILE + b * BOX, mv, at->full_v + 8 * stage, 64 * (int)b, head / group, key, batch);
    }
}

KERNEL_OF(384, flash_wgmma)
(bf16 *O, float *L, const __grid_constant__ tensor_map mq, const __grid_constant__ tensor_map mk,
 const __grid_constant__ tensor_map mv, int tokens, int group, int causal, float scale)
{
    extern __shared__ __align__(1024) unsigned char room[]; /* Q, two K, two V, barriers: 5 TILE + 72 */
    u32  s = shared_address(room), bars = s + 5 * TILE;
    ring at = { s, s + TILE, s + 3 * TILE, bars, bars + 8, bars + 24, bars + 40, bars + 56 };
    int  t = thread_id(), blocks_of = (tokens + 127) / 128, q0 = (blocks_of - 1 - block_id(0)) * 128;
    int  tiles = causal ? q0 / 128 + 1 : blocks_of, head = block_id(1), heads = blocks(1);
    if (t == 0) {
        init_barrier(at.bar_q, 1);
        for (u32 i = 0; i < 2; i++) {
            init_barrier(at.full_k + 8 * i, 1);
            init_barrier(at.full_v + 8 * i, 1);
            init_barrier(at.empty_k + 8 * i, 8);
            init_barrier(at.empty_v + 8 * i, 8);
        }
        fence_barriers();
    }
    barrier();
    if (t < 128) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (t == 0) produce(&at, &mq, &mk, &mv, q0, group, tiles);
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    int   lane = t & 31, w = (t >> 7) - 1, q = q0 + 64 * w + 16 * (t >> 5 & 3) + (lane >> 2);
    bool  one = lane == 0;
    u32   sq = at.q + (u32)w * 64 * 128, p[32]; /* 64 rows of each box */
    float o[64], a[64], c = scale * LOG2_E;
    rows  r = { { LEAST, LEAST }, { 0.0f, 0.0f }, { 0.0f, 0.0f } };
    UNROLL for (int e = 0; e < 64; e++) o[e] = 0.0f;
    await(at.bar_q, 0);
    await(at.full_k, 0);
    fence_products();
    scores(a, sq, at.k);
    commit_products();
    asm volatile("wgmma.wait_group.sync.aligned 0;" : F64(a)::"memory");
    if (one) arrive(at.empty_k);
    softmax(a, &r, c, q, (tiles - 1) * 128, tokens, causal);
    UNROLL for (int e = 0; e < 32; e++) p[e] = pack(a[2 * e], a[2 * e + 1]);
    for (int i = 1; i < tiles; i++) {
        u32 stage = (u32)i & 1, last = stage ^ 1;
        await(at.full_k + 8 * stage, (u32)i >> 1 & 1);
        fence_products(); /* p and o were written by ordinary instructions */
        scores(a, sq, at.k + stage * TILE);
        commit_products();
        await(at.full_v + 8 * last, (u32)(i - 1) >> 1 & 1);
        fence_products(); /* not needed by the letter; ptxas puts one here anyway (C7519), behind a loop */
        add_values(o, p, at.v + last * TILE);
        commit_products();
        asm volatile("wgmma.wait_group.sync.aligned 1;" : F64(a)::"memory");
        if (one) arrive(at.empty_k + 8 * stage);
        softmax(a, &r, c, q, (tiles - 1 - i) * 128, tokens, causal);
        asm volatile("wgmma.wait_group.sync.aligned 0;" : F64(o)::"memory");
        if (one) arrive(at.empty_v + 8 * last);
        UNROLL for (int e = 0; e < 64; e++) o[e] *= r.factor[e >> 1 & 1];
        UNROLL for (int e = 0; e < 32; e++) p[e] = pack(a[2 * e], a[2 * e + 1]);
    }
    u32 last = (u32)(tiles - 1) & 1;
    await(at.full_v + 8 * last, (u32)(tiles - 1) >> 1 & 1);
    fence_products();
    add_values(o, p, at.v + last * TILE);
    commit_products();
    asm volatile("wgmma.wait_group.sync.aligned 0;" : F64(o)::"memory");
    UNROLL for (int h = 0; h < 2; h++)
    {
        float sum = row_sum(r.sum[h]), inverse = 1.0f / sum;
        int   row = q + 8 * h;
        if (row >= tokens) continue;
        i64 first = (((i64)block_id(2) * tokens + row) * heads + head) * 128;
        if ((lane & 3) == 0)
            L[((i64)block_id(2) * heads + head) * tokens + row] = (r.most[h] + log2_of(sum)) * LN_2;
        UNROLL for (int j = 0; j < 16; j++)
            *(u32 *)&O[first + 8 * j + 2 * (lane & 3)] = pack(o[4 * j + 2 * h] * inverse, o[4 * j + 2 * h + 1] * inverse);
    }
}
