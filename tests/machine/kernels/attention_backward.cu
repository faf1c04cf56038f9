/* SPDX-License-Identifier: Apache-2.0 */
/* Backward of attention on tensor cores by mma.sync: bf16, heads of 128 and 64, grouped heads, causal or not, any number of
 * tokens. For sm_80 and later; meant for sm_90a.
 *
 *   attention_delta: delta[q] = sum_d dO[q,d] O[q,d]; a warp per row
 *   attention_dkdv:  a block has 64 keys of one K/V head, a warp 16; loops over its query heads and their queries:
 *                    S^T = K Q^T,  dP^T = V dO^T,  dV += P^T dO,  dK += dS^T Q
 *   attention_dq:    a block has 64 queries of one head, a warp 16; loops over the keys:
 *                    S = Q K^T,  dP = dO V^T,  dQ += dS K
 * with P = exp(scale S - L) and dS = P (dP - delta). No atomics: a result has one writer and one order of additions.
 *
 * Both are the same steps: a warp's 16 rows times a tile of 32 other rows, twice; the accumulators, two columns a register,
 * are the left operand of the products that follow, with the tile transposed on loading. Rows in shared memory have 16 bytes
 * more than D elements: ldmatrix has no conflicts. L and delta are [batch][head][token].
 */
#include "tensor.h"

enum { OWN = 64, OTHER = 32 }; /* rows of a block; rows of a tile that goes by */

#define NOTHING 1.0e30f /* L of a query that does not exist: exp2(x - 1e30) = 0 */

/* Elements between tokens, heads and batches: [batch, head, token, d] and [batch, token, head, d] both fit. */
struct strides {
    int token, head;
    i64 batch;
};
struct shape {
    int     tokens, group, causal; /* group: query heads of a K/V head */
    float   scale;
    strides q, kv;
};

DEVICE i64 head_at(strides s, int head)
{
    return block_id(2) * s.batch + (i64)head * s.head;
}

template <int D> struct rows {
    enum { PITCH = 2 * D + 16, OWN_BYTES = OWN * PITCH, TILE_BYTES = OTHER * PITCH };
    /* Two own tensors, two stages of two that go by, two stages of numbers for their rows. */
    enum { STAGES = 2 * OWN_BYTES, NUMBERS = STAGES + 4 * TILE_BYTES, BYTES = NUMBERS + 4 * OTHER * 4 };
};

/* Copies `n` rows from row `first` on; those beyond the last token become zeros. */
template <int D> DEVICE void load_rows(u32 to, const bf16 *from, int n, int first, int pitch, int tokens)
{
    for (int c = thread_id(); c < n * (D / 8); c += 128) {
        int  r = c / (D / 8), d = c % (D / 8) * 8;
        bool some = first + r < tokens;
        copy16_if(to + r * rows<D>::PITCH + d * 2, from + (some ? (i64)(first + r) * pitch + d : 0), some);
    }
}

/* acc[16 x 32] = the warp's 16 rows at `own` times the 32 rows at `other`, over D. */
template <int D> DEVICE void scores(float acc[4][4], u32 own, u32 other)
{
    int lane = thread_id() & 31;
    own += (lane & 15) * rows<D>::PITCH + (lane >> 4) * 16;
    other += ((lane & 7) + (lane >> 4) * 8) * rows<D>::PITCH + (lane >> 3 & 1) * 16;
    UNROLL for (int e = 0; e < 16; e++) acc[e / 4][e % 4] = 0.0f;
    UNROLL for (int k = 0; k < D; k += 16)
    {
        u32 a[4], b[2][4];
        load_matrices(a, own + 2 * k);
        UNROLL for (int j = 0; j < 2; j++) load_matrices(b[j], other + 16 * j * rows<D>::PITCH + 2 * k);
        UNROLL for (int j = 0; j < 4; j++) MMA(BF16_FORM, acc[j], a, b[j / 2] + 2 * (j % 2));
    }
}

/* out[16 x D] += p[16 x 32] times the 32 rows at `other`. */
template <int D> DEVICE void add_product(float out[D / 8][4], const float p[4][4], u32 other)
{
    int lane = thread_id() & 31;
    other += ((lane & 7) + (lane >> 3 & 1) * 8) * rows<D>::PITCH + (lane >> 4) * 16;
    UNROLL for (int k = 0; k < 2; k++)
    {
        u32 a[4] = { pack(p[2 * k][0], p[2 * k][1]), pack(p[2 * k][2], p[2 * k][3]),
                     pack(p[2 * k + 1][0], p[2 * k + 1][1]), pack(p[2 * k + 1][2], p[2 * k + 1][3]) };
        UNROLL for (int j = 0; j < D / 8; j += 2)
        {
            u32 b[4];
            load_transposed(b, other + 16 * k * rows<D>::PITCH + 16 * j);
            MMA(BF16_FORM, out[j], a, b);
            MMA(BF16_FORM, out[j + 1], a, b + 2);
        }
    }
}

/* Writes a warp's 16 rows, times `by`, from row `first` on. */
template <int D> DEVICE void store_rows(bf16 *to, const float acc[D / 8][4], float by, int first, int pitch, int tokens)
{
    int lane = thread_id() & 31;
    UNROLL for (int h = 0; h < 2; h++)
    {
        int row = first + (lane >> 2) + 8 * h;
        if (row >= tokens) continue;
        UNROLL for (int j = 0; j < D / 8; j++)
            *(u32 *)&to[(i64)row * pitch + 8 * j + 2 * (lane & 3)] = pack(acc[j][2 * h] * by, acc[j][2 * h + 1] * by);
    }
}

template <int D> DEVICE void delta_of(float *delta, const bf16 *O, const bf16 *dO, int tokens, strides q)
{
    int lane = thread_id() & 31, row = block_id(0) * 4 + thread_id() / 32, heads = blocks(1);
    if (row >= tokens) return;
    i64   at = head_at(q, block_id(1)) + (i64)row * q.token;
    float sum = 0.0f;
    UNROLL for (int d = 0; d < D; d += 64)
    {
        u32 x = *(const u32 *)&O[at + d + 2 * lane], y = *(const u32 *)&dO[at + d + 2 * lane];
        sum = multiply_add(float_of(x << 16), float_of(y << 16), sum);
        sum = multiply_add(float_of(x & 0xffff0000u), float_of(y & 0xffff0000u), sum);
    }
    sum = wave_sum(sum);
    if (lane == 0) delta[((i64)block_id(2) * heads + block_id(1)) * tokens + row] = sum;
}

/* Of a tile of queries of one head: Q, dO, and their L and delta. */
template <int D> struct queries {
    u32          at;      /* of the stages */
    float       *numbers; /* L, delta; of two stages */
    const bf16  *Q, *dO;
    const float *L, *delta;

    __device__ __forceinline__ void load(int stage, int head, int first, const shape &s) const
    {
        i64 from = head_at(s.q, head), line = ((i64)block_id(2) * blocks(1) * s.group + head) * s.tokens;
        int t = thread_id(), row = first + t % OTHER;
        u32 to = at + stage * 2 * rows<D>::TILE_BYTES;
        load_rows<D>(to, Q + from, OTHER, first, s.q.token, s.tokens);
        load_rows<D>(to + rows<D>::TILE_BYTES, dO + from, OTHER, first, s.q.token, s.tokens);
        if (t < OTHER) numbers[stage * 2 * OTHER + t] = row < s.tokens ? L[line + row] * LOG2_E : NOTHING;
        if (t >= OTHER && t < 2 * OTHER) numbers[stage * 2 * OTHER + t] = row < s.tokens ? delta[line + row] : 0.0f;
        commit_copies();
    }
};

template <int D>
DEVICE void dkdv(bf16 *dK, bf16 *dV, const bf16 *K, const bf16 *V, queries<D> q, const shape &s, unsigned char *room)
{
    int   lane = thread_id() & 31, warp = thread_id() >> 5, key0 = block_id(0) * OWN;
    int   mine = key0 + 16 * warp + (lane >> 2), from = s.causal ? key0 / OTHER : 0;
    int   tiles = (s.tokens + OTHER - 1) / OTHER - from, steps = tiles * s.group;
    u32   own = shared_address(room), k_rows = own + 16 * warp * rows<D>::PITCH, v_rows = k_rows + rows<D>::OWN_BYTES;
    float k[D / 8][4], v[D / 8][4], c = s.scale * LOG2_E;
    i64   first = head_at(s.kv, block_id(1));
    UNROLL for (int e = 0; e < D / 2; e++) k[e / 4][e % 4] = v[e / 4][e % 4] = 0.0f;
    q.at = own + rows<D>::STAGES;
    q.numbers = (float *)(room + rows<D>::NUMBERS);
    load_rows<D>(own, K + first, OWN, key0, s.kv.token, s.tokens);
    load_rows<D>(own + rows<D>::OWN_BYTES, V + first, OWN, key0, s.kv.token, s.tokens);
    q.load(0, block_id(1) * s.group, from * OTHER, s);
    for (int i = 0; i < steps; i++) {
        int          stage = i & 1, query0 = (from + i % tiles) * OTHER, next = i + 1;
        u32          tile = q.at + stage * 2 * rows<D>::TILE_BYTES;
        const float *L = q.numbers + stage * 2 * OTHER, *delta = L + OTHER;
        float        p[4][4], d[4][4];
        if (next < steps)
            q.load(stage ^ 1, block_id(1) * s.group + next / tiles, (from + next % tiles) * OTHER, s);
        else
            commit_copies();
        wait_copies<1>();
        barrier();
        scores<D>(p, k_rows, tile);
        scores<D>(d, v_rows, tile + rows<D>::TILE_BYTES);
        UNROLL for (int e = 0; e < 16; e++)
        {
            int  column = 8 * (e / 4) + 2 * (lane & 3) + e % 2, row = mine + 8 * (e / 2 % 2);
            bool seen = !s.causal || row <= query0 + column;
            float x = seen ? exp2_of(multiply_add(p[e / 4][e % 4], c, -L[column])) : 0.0f;
            p[e / 4][e % 4] = x;
            d[e / 4][e % 4] = x * (d[e / 4][e % 4] - delta[column]);
        }
        add_product<D>(v, p, tile + rows<D>::TILE_BYTES);
        add_product<D>(k, d, tile);
        barrier();
    }
    store_rows<D>(dK + first, k, s.scale, key0 + 16 * warp, s.kv.token, s.tokens);
    store_rows<D>(dV + first, v, 1.0f, key0 + 16 * warp, s.kv.token, s.tokens);
}

template <int D>
DEVICE void dq(bf16 *dQ, const bf16 *K, const bf16 *V, const queries<D> &q, const shape &s, unsigned char *room)
{
    int   lane = thread_id() & 31, warp = thread_id() >> 5, query0 = block_id(0) * OWN, heads = blocks(1);
    int   mine = query0 + 16 * warp + (lane >> 2), end = s.causal ? query0 + OWN : s.tokens;
    int   tiles = ((end < s.tokens ? end : s.tokens) + OTHER - 1) / OTHER;
    u32   own = shared_address(room), q_rows = own + 16 * warp * rows<D>::PITCH, stages = own + rows<D>::STAGES;
    float out[D / 8][4], c = s.scale * LOG2_E, L[2], delta[2];
    i64   first = head_at(s.q, block_id(1)), kv_first = head_at(s.kv, block_id(1) / s.group);
    UNROLL for (int e = 0; e < D / 2; e++) out[e / 4][e % 4] = 0.0f;
    UNROLL for (int h = 0; h < 2; h++)
    {
        bool some = mine + 8 * h < s.tokens;
        i64  line = ((i64)block_id(2) * heads + block_id(1)) * s.tokens + mine + 8 * h;
        L[h] = some ? q.L[line] * LOG2_E : NOTHING;
        delta[h] = some ? q.delta[line] : 0.0f;
    }
    load_rows<D>(own, q.Q + first, OWN, query0, s.q.token, s.tokens);
    load_rows<D>(own + rows<D>::OWN_BYTES, q.dO + first, OWN, query0, s.q.token, s.tokens);
    for (int i = -1; i < tiles; i++) {
        u32   tile = stages + (i & 1) * 2 * rows<D>::TILE_BYTES, next = stages + (i + 1 & 1) * 2 * rows<D>::TILE_BYTES;
        float p[4][4], d[4][4];
        if (i + 1 < tiles) {
            load_rows<D>(next, K + kv_first, OTHER, (i + 1) * OTHER, s.kv.token, s.tokens);
            load_rows<D>(next + rows<D>::TILE_BYTES, V + kv_first, OTHER, (i + 1) * OTHER, s.kv.token, s.tokens);
        }
        commit_copies();
        if (i < 0) continue;
        wait_copies<1>();
        barrier();
        scores<D>(p, q_rows, tile);
        scores<D>(d, q_rows + rows<D>::OWN_BYTES, tile + rows<D>::TILE_BYTES);
        UNROLL for (int e = 0; e < 16; e++)
        {
            int   key = i * OTHER + 8 * (e / 4) + 2 * (lane & 3) + e % 2, h = e / 2 % 2;
            bool  seen = key < s.tokens && (!s.causal || key <= mine + 8 * h);
            float x = seen ? exp2_of(multiply_add(p[e / 4][e % 4], c, -L[h])) : 0.0f;
            d[e / 4][e % 4] = x * (d[e / 4][e % 4] - delta[h]);
        }
        add_product<D>(out, d, tile);
        barrier();
    }
    store_rows<D>(dQ + first, out, s.scale, query0 + 16 * warp, s.q.token, s.tokens);
}

#define BACKWARD(D)                                                                                                    \
    KERNEL_OF(128, attention_delta_##D)(float *delta, const bf16 *O, const bf16 *dO, int tokens, strides q)            \
    {                                                                                                                  \
        delta_of<D>(delta, O, dO, tokens, q);                                                                          \
    }                                                                                                                  \
    KERNEL_OF(128, attention_dkdv_##D)                                                                                 \
    (bf16 *dK, bf16 *dV, const bf16 *Q, const bf16 *K, const bf16 *V, const bf16 *dO, const float *L,                  \
     const float *delta, int tokens, int group, int causal, float scale, strides q, strides kv)                        \
    {                                                                                                                  \
        dkdv<D>(dK, dV, K, V, queries<D>{ 0, 0, Q, dO, L, delta },                                             \
                shape{ tokens, group, causal, scale, q, kv }, room);                                                   \
    }                                                                                                                  \
    KERNEL_OF(128, attention_dq_##D)                                                                                   \
    (bf16 *dQ, const bf16 *Q, const bf16 *K, const bf16 *V, const bf16 *dO, const float *L, const float *delta,        \
     int tokens, int group, int causal, float scale, strides q, strides kv)                                            \
    {                                                                                                                  \
        dq<D>(dQ, K, V, queries<D>{ 0, 0, Q, dO, L, delta }, shape{ tokens, group, causal, scale, q, kv }, room);          \
    }

extern __shared__ __align__(16) unsigned char room[]; /* rows<D>::BYTES */
BACKWARD(128)
BACKWARD(64)
