/* SPDX-License-Identifier: Apache-2.0 */
/* Backward of attention on matrix cores, bfloat16, heads of 128 and 64, grouped heads, causal or not, any tokens.
 *
 *   attention_delta: delta[q] = sum_d dO[q,d] O[q,d]; a wave per row
 *   attention_dkdv:  a block has 32 keys a wave of one K/V head; loops over its query heads and their queries:
 *                    S = Q K^T,  dP = dO V^T,  dV^T += dO^T P,  dK^T += Q^T dS
 *   attention_dq:    a block has 128 queries of one query head; loops over the keys:
 *                    S^T = K Q^T,  dP^T = V dO^T,  dQ^T += K^T dS^T
 * with P = exp(scale S - L) and dS = P (dP - delta). No atomics: a result has one writer and one order of additions.
 *
 * Rows in LDS have D + 4 or B + 4 elements, so that the 16 lanes that read 8 bytes each in a cycle hit 32 banks. Tiles
 * are transposed in registers, in blocks of 4 x 4, when they are staged.
 */
#include "matrix.h"

#define METHOD __device__ inline __attribute__((always_inline))
#define NOTHING 1.0e30f /* L of a query that does not exist: exp2(x - 1e30) = 0 */

/* Elements between tokens, heads and batches: [batch, head, token, d] and [batch, token, head, d] both fit. */
struct strides {
    int token, head;
    i64 batch;
};
struct shape {
    int   tokens, group, causal; /* group: query heads of a K/V head */
    float scale;
};

/* A tile of 4096 / D rows: each of 256 threads copies a block of 4 x 4 to LDS, as it is and transposed. */
template <int D> struct tile {
    enum { B = 4096 / D, ROW = D + 4, COLUMN = B + 4 };
    u32x2             v[4];
    static METHOD int row(int t)
    {
        int lane = t & 63;
        return 4 * ((lane & 3) + (lane >> 4 & 1) * 4 + 8 * ((t >> 6) / (D / 32)));
    }
    static METHOD int column(int t)
    {
        int lane = t & 63;
        return 4 * ((lane >> 2 & 3) + (lane >> 5) * 4 + 8 * ((t >> 6) % (D / 32)));
    }
    METHOD void load(const bf16 *base, int stride, int first, int tokens, int t)
    {
        UNROLL for (int i = 0; i < 4; i++) {
            int   r = first + row(t) + i;
            u32x2 none = { 0, 0 };
            v[i] = r < tokens ? *(const u32x2 *)&base[(i64)r * stride + column(t)] : none;
        }
    }
    METHOD void store(bf16 *to, int t) const
    {
        UNROLL for (int i = 0; i < 4; i++) *(u32x2 *)&to[(row(t) + i) * ROW + column(t)] = v[i];
    }
    METHOD void store_transposed(bf16 *to, int t) const
    {
        UNROLL for (int j = 0; j < 2; j++) {
            u32x2 low = { __builtin_amdgcn_perm(v[1][j], v[0][j], 0x05040100u),
                          __builtin_amdgcn_perm(v[3][j], v[2][j], 0x05040100u) };
            u32x2 high = { __builtin_amdgcn_perm(v[1][j], v[0][j], 0x07060302u),
                           __builtin_amdgcn_perm(v[3][j], v[2][j], 0x07060302u) };
            *(u32x2 *)&to[(column(t) + 2 * j) * COLUMN + row(t)] = low;
            *(u32x2 *)&to[(column(t) + 2 * j + 1) * COLUMN + row(t)] = high;
        }
    }
};
/* The operand of a lane's own row, straight from memory; zeros beyond the tokens. */
template <int D> DEVICE void load_row(fragment *f, const bf16 *base, int stride, int r, int tokens, int h)
{
    UNROLL for (int x = 0; x < D / 16; x++) {
        fragment none = {};
        f[x] = r < tokens ? load_fragment(&base[(i64)r * stride + 16 * x + 4 * h]) : none;
    }
}
/* A result has rows 32 i + .. of D and its column in the lane: 4 elements of the lane's row at a time. */
template <int D> DEVICE void store_row(bf16 *row, const f32x16 *sum, float f, int h)
{
    UNROLL for (int i = 0; i < D / 32; i++) UNROLL for (int x = 0; x < 4; x++)
        *(s16x4 *)&row[32 * i + 8 * x + 4 * h] =
            pack4(sum[i][4 * x] * f, sum[i][4 * x + 1] * f, sum[i][4 * x + 2] * f, sum[i][4 * x + 3] * f);
}

template <int D> DEVICE void delta_of(float *delta, const bf16 *o, const bf16 *g, int tokens, strides s)
{
    int thread = thread_id(), lane = thread & 63, q = block_id(0) * 4 + (thread >> 6), heads = blocks(1);
    if (q >= tokens) return;
    i64   at = block_id(2) * s.batch + (i64)block_id(1) * s.head + (i64)q * s.token + lane * (D / 64);
    float sum = 0.0f;
    UNROLL for (int j = 0; j < D / 64; j++) sum = multiply_add(from_bf16(o[at + j]), from_bf16(g[at + j]), sum);
    sum = wave_sum(sum);
    if (lane == 0) delta[((i64)block_id(2) * heads + block_id(1)) * tokens + q] = sum;
}

template <int D, int WAVES>
DEVICE void dkdv(bf16 *dk_out, bf16 *dv_out, const bf16 *queries, const bf16 *keys, const bf16 *values, const bf16 *g,
                 const float *log_sum, const float *delta, shape p, strides qs, strides ks)
{
    enum { B = tile<D>::B, ROW = tile<D>::ROW, COLUMN = tile<D>::COLUMN, NX = D / 16, NI = D / 32 };
    __shared__ ALIGNED bf16  as[2][B * ROW], at[2][D * COLUMN]; /* Q and dO: [query][d] and [d][query] */
    __shared__ ALIGNED float rows[2 * B];                       /* L in powers of two, then delta */
    int thread = thread_id(), lane = thread & 63, wave = __builtin_amdgcn_readfirstlane(thread >> 6), l = lane & 31;
    int h = lane >> 5, k0 = block_id(0) * 32 * WAVES, first_key = k0 + 32 * wave, key = first_key + l;
    int heads = blocks(1) * p.group;
    i64 kv = block_id(2) * ks.batch + (i64)block_id(1) * ks.head;
    int first = p.causal ? k0 : 0, count = (p.tokens - first + B - 1) / B * p.group;
    float    c = p.scale * LOG2_E;
    fragment fk[NX], fv[NX];
    load_row<D>(fk, keys + kv, ks.token, key, p.tokens, h);
    load_row<D>(fv, values + kv, ks.token, key, p.tokens, h);
    f32x16 dk[NI], dv[NI];
    UNROLL for (int i = 0; i < NI; i++) dk[i] = dv[i] = zeros();
    enum { N = 8 / WAVES }; /* 4 waves: every thread brings a block of Q and one of dO; 8: waves 0 to 3 Q, the others dO */
    int     half = WAVES == 8 ? wave >> 2 : 0, part = thread & 255;
    tile<D> next[N];
    float   next_row = 0.0f; /* threads below B: L, the next B: delta */
    int     g_head = 0, q0 = first;
    auto    fetch = [&]() {
        int head = block_id(1) * p.group + g_head, q = q0 + (thread & (B - 1));
        UNROLL for (int j = 0; j < N; j++)
            next[j].load((half + j ? g : queries) + block_id(2) * qs.batch + (i64)head * qs.head, qs.token, q0, p.tokens, part);
        if (thread < 2 * B)
            next_row = q < p.tokens ? (thread < B ? log_sum : delta)[((i64)block_id(2) * heads + head) * p.tokens + q]
                       : thread < B ? NOTHING
                                    : 0.0f;
    };
    fetch();
    for (int n = 0; n < count; n++) {
        int tile_q = q0;
        barrier();
        UNROLL for (int j = 0; j < N; j++) {
            next[j].store(as[half + j], part);
            next[j].store_transposed(at[half + j], part);
        }
        if (thread < 2 * B) rows[thread] = thread < B ? next_row * LOG2_E : next_row;
        barrier();
        q0 += B;
        if (q0 >= p.tokens) {
            q0 = first;
            g_head++;
        }
        if (n + 1 < count) fetch(); /* in flight during the products */
        UNROLL for (int u = 0; u < B; u += 32) {
            int q = tile_q + u;
            if (q >= p.tokens || first_key >= p.tokens || (p.causal && q + 31 < first_key)) continue; /* a whole wave */
            f32x16 s = zeros(); /* S, then dP: with both at once 8 waves do not fit in 256 registers each */
            UNROLL for (int x = 0; x < NX; x++)
                s = multiply(load_fragment(&as[0][(u + l) * ROW + 16 * x + 4 * h]), fk[x], s);
            fragment fp[2], fs[2];
            UNROLL for (int x = 0; x < 4; x++) {
                f32x4 row = *(const f32x4 *)&rows[u + 8 * x + 4 * h];
                float e[4];
                UNROLL for (int r = 0; r < 4; r++) e[r] = __builtin_amdgcn_exp2f(multiply_add(s[4 * x + r], c, -row[r]));
                if (p.causal && q < first_key + 31)
                    UNROLL for (int r = 0; r < 4; r++) if (key > q + 8 * x + 4 * h + r) e[r] = 0.0f;
                fp[x / 2].k[x % 2] = pack4(e[0], e[1], e[2], e[3]);
            }
            f32x16 dp = zeros();
            UNROLL for (int x = 0; x < NX; x++)
                dp = multiply(load_fragment(&as[1][(u + l) * ROW + 16 * x + 4 * h]), fv[x], dp);
            UNROLL for (int x = 0; x < 4; x++) {
                f32x4 row = *(const f32x4 *)&rows[B + u + 8 * x + 4 * h];
                float d[4];
                UNROLL for (int r = 0; r < 4; r++)
                    d[r] = from_bf16((bf16)fp[x / 2].k[x % 2][r]) * (dp[4 * x + r] - row[r]);
                fs[x / 2].k[x % 2] = pack4(d[0], d[1], d[2], d[3]);
            }
            UNROLL for (int x = 0; x < 2; x++) UNROLL for (int i = 0; i < NI; i++) {
                int column = (32 * i + l) * COLUMN + u + 16 * x + 4 * h;
                dv[i] = multiply(load_fragment(&at[1][column]), fp[x], dv[i]);
                dk[i] = multiply(load_fragment(&at[0][column]), fs[x], dk[i]);
            }
        }
    }
    if (key >= p.tokens) return;
    store_row<D>(&dk_out[kv + (i64)key * ks.token], dk, p.scale, h);
    store_row<D>(&dv_out[kv + (i64)key * ks.token], dv, 1.0f, h);
}

template <int D>
DEVICE void dq(bf16 *dq_out, const bf16 *queries, const bf16 *keys, const bf16 *values, const bf16 *g,
               const float *log_sum, const float *delta, shape p, strides qs, strides ks)
{
    enum { B = tile<D>::B, ROW = tile<D>::ROW, COLUMN = tile<D>::COLUMN, NX = D / 16, NI = D / 32 };
    __shared__ ALIGNED bf16 as[B * ROW], vs[B * ROW], at[D * COLUMN];
    int thread = thread_id(), lane = thread & 63, wave = __builtin_amdgcn_readfirstlane(thread >> 6), l = lane & 31;
    int h = lane >> 5, q0 = ((p.tokens + 127) / 128 - 1 - block_id(0)) * 128; /* the longest rows first */
    int first_q = q0 + 32 * wave, q = first_q + l, heads = blocks(1);
    i64 query = block_id(2) * qs.batch + (i64)block_id(1) * qs.head;
    i64 kv = block_id(2) * ks.batch + (i64)(block_id(1) / p.group) * ks.head;
    i64 row = ((i64)block_id(2) * heads + block_id(1)) * p.tokens + q;
    int end = p.causal && q0 + 128 < p.tokens ? q0 + 128 : p.tokens;
    float    c = p.scale * LOG2_E, lq = q < p.tokens ? log_sum[row] * LOG2_E : NOTHING, dl = q < p.tokens ? delta[row] : 0.0f;
    fragment fq[NX], fg[NX];
    load_row<D>(fq, queries + query, qs.token, q, p.tokens, h);
    load_row<D>(fg, g + query, qs.token, q, p.tokens, h);
    f32x16 sum[NI];
    UNROLL for (int i = 0; i < NI; i++) sum[i] = zeros();
    tile<D> next_k, next_v;
    next_k.load(keys + kv, ks.token, 0, p.tokens, thread);
    next_v.load(values + kv, ks.token, 0, p.tokens, thread);
    for (int k0 = 0; k0 < end; k0 += B) {
        barrier();
        next_k.store(as, thread);
        next_k.store_transposed(at, thread);
        next_v.store(vs, thread);
        barrier();
        if (k0 + B < end) {
            next_k.load(keys + kv, ks.token, k0 + B, p.tokens, thread);
            next_v.load(values + kv, ks.token, k0 + B, p.tokens, thread);
        }
        UNROLL for (int u = 0; u < B; u += 32) {
            int k = k0 + u;
            if (k >= p.tokens || first_q >= p.tokens || (p.causal && k > first_q + 31)) continue; /* a whole wave */
            f32x16 s = zeros(), dp = zeros();
            UNROLL for (int x = 0; x < NX; x++) {
                s = multiply(load_fragment(&as[(u + l) * ROW + 16 * x + 4 * h]), fq[x], s);
                dp = multiply(load_fragment(&vs[(u + l) * ROW + 16 * x + 4 * h]), fg[x], dp);
            }
            fragment fs[2];
            int      last = p.causal && q < p.tokens ? q : p.tokens - 1; /* the last key that this lane's query sees */
            UNROLL for (int x = 0; x < 4; x++) {
                float d[4];
                UNROLL for (int r = 0; r < 4; r++)
                    d[r] = __builtin_amdgcn_exp2f(multiply_add(s[4 * x + r], c, -lq)) * (dp[4 * x + r] - dl);
                if (k + 31 > (p.causal ? first_q : p.tokens - 1))
                    UNROLL for (int r = 0; r < 4; r++) if (k + 8 * x + 4 * h + r > last) d[r] = 0.0f;
                fs[x / 2].k[x % 2] = pack4(d[0], d[1], d[2], d[3]);
            }
            UNROLL for (int x = 0; x < 2; x++) UNROLL for (int i = 0; i < NI; i++)
                sum[i] = multiply(load_fragment(&at[(32 * i + l) * COLUMN + u + 16 * x + 4 * h]), fs[x], sum[i]);
        }
    }
    if (q < p.tokens) store_row<D>(&dq_out[query + (i64)q * qs.token], sum, p.scale, h);
}

#define INPUTS                                                                                                         \
    const bf16 *RESTRICT queries, const bf16 *RESTRICT keys, const bf16 *RESTRICT values, const bf16 *RESTRICT g,      \
        const float *RESTRICT log_sum, const float *RESTRICT delta, shape p, strides qs, strides ks
#define GIVEN queries, keys, values, g, log_sum, delta, p, qs, ks
#define EACH_SIMD(waves) __attribute__((amdgpu_waves_per_eu(waves, waves)))
/* Waves of a block of dkdv; waves per SIMD of dkdv and of dq. */
#define KERNELS(D, WAVES, DKDV, DQ)                                                                                    \
    KERNEL_OF(256, attention_delta_##D)                                                                                \
    (float *RESTRICT delta, const bf16 *RESTRICT o, const bf16 *RESTRICT g, int tokens, strides s)                     \
    {                                                                                                                  \
        delta_of<D>(delta, o, g, tokens, s);                                                                           \
    }                                                                                                                  \
    EACH_SIMD(DKDV) KERNEL_OF(64 * WAVES, attention_dkdv_##D)(bf16 *RESTRICT dk, bf16 *RESTRICT dv, INPUTS)            \
    {                                                                                                                  \
        dkdv<D, WAVES>(dk, dv, GIVEN);                                                                                 \
    }                                                                                                                  \
    EACH_SIMD(DQ) KERNEL_OF(256, attention_dq_##D)(bf16 *RESTRICT out, INPUTS)                                         \
    {                                                                                                                  \
        dq<D>(out, GIVEN);                                                                                             \
    }
#if defined(__gfx950__)
KERNELS(128, 4, 1, 2) /* with 8 waves clang 22 spills two registers here */
#else
KERNELS(128, 8, 2, 2)
#endif
KERNELS(64, 8, 2, 2)
