/* SPDX-License-Identifier: Apache-2.0 */
/* Attention of bfloat16 by matrix units (units.cu; op/attention.c has the formulas). A wave has M units of rows of its own,
 * queries or keys, whose factors stay in registers; tiles of OTHERS keys or queries go by in shared memory.
 *
 *   attention_matrix  S = Q K^T, online softmax, O += P V      delta    sum of do o, by rows
 *   queries           S = Q K^T, dP = dO V^T, dQ += dS K       keys     S = K Q^T, dP = V dO^T, dV += P dO, dK += dS Q
 *
 * P = 2^(c S - L) with c = scale log2 e, dS = P (dP - delta), both rounded to bfloat16 for the products that follow. No
 * atomics: a result has one writer and one order of additions. Rows that nobody sees are not read.
 *
 * QK, VO: sizes of a head, multiples of 8; DIM: the larger one, rounded up to 32. S: format of the sinks. .._ROWS, .._THREADS:
 * rows and threads of a block. Whole tiles outside of what a wave's rows see are left out; only tiles at an edge are masked,
 * by selections: of branches around one element of sixteen clang 22 loses one (gfx950, a window).
 */
#include "seen.cu"

/* Of a head in steps of 16 elements, and in parts of 32: what lies behind them is 0. */
enum { QK_PARTS = (QK + 31) / 32, VO_PARTS = (VO + 31) / 32, QK_STEPS = 2 * QK_PARTS, VO_STEPS = 2 * VO_PARTS };
enum { OTHERS = DIM <= 64 ? 64 : 32 };
/* Gradients of wide heads take the registers of two waves. */
#define GRAD_SIMD (DIM > 128 ? 1 : 2)

#define LEAST (-3.0e38f)

/* Own rows of a tensor as operands, in registers. */
template <int M, int STEPS>
struct kept_rows {
    operand of[M][STEPS];
    METHOD void load(const rows_of &x, int first)
    {
        UNROLL for (int m = 0; m < M; m++)
            UNROLL for (int k = 0; k < STEPS; k++) of[m][k] = load_operand(x, first + m * UNIT, 16 * k);
    }
    METHOD operand at(int m, int k) const
    {
        return of[m][k];
    }
};
/* The same where there are no registers for them: read again for each tile. */
template <int M, int STEPS>
struct read_rows {
    rows_of x;
    int     first;
    METHOD void load(const rows_of &rows, int from)
    {
        x = rows;
        first = from;
    }
    METHOD operand at(int m, int k) const
    {
        return load_operand(x, first + m * UNIT, 16 * k);
    }
};

/* s = own rows times 32 rows of a tile. */
template <int STEPS, int M, class OWN, class T>
DEVICE void scores(sums (&s)[M], const OWN &own, const T &t, int tensor, int stage, int row)
{
    UNROLL for (int m = 0; m < M; m++) s[m] = zeros();
    UNROLL for (int k = 0; k < STEPS; k++) {
        other x = t.along(tensor, stage, row, 16 * k);
        UNROLL for (int m = 0; m < M; m++) multiply(&s[m], own.at(m, k), x);
    }
}

/* out += p times 32 rows of a tile. */
template <int M, int PARTS, class T>
DEVICE void add_product(sums (&out)[M][PARTS], const operand (&p)[M][2], const T &t, int tensor, int stage, int row)
{
    UNROLL for (int k = 0; k < 2; k++)
        UNROLL for (int i = 0; i < PARTS; i++) {
            other x = t.across(tensor, stage, row + 16 * k, 32 * i);
            UNROLL for (int m = 0; m < M; m++) multiply(&out[m][i], p[m][k], x);
        }
}

template <int M, int PARTS>
DEVICE void clear(sums (&out)[M][PARTS])
{
    UNROLL for (int m = 0; m < M; m++)
        UNROLL for (int i = 0; i < PARTS; i++) out[m][i] = zeros();
}

/* Rows from `first` on, times a factor for each slot. */
template <int PARTS>
DEVICE void store_rows(bf16 *to, int ld, const sums (&out)[PARTS], const float (&by)[SLOTS], int first, int end, int width)
{
    UNROLL for (int e = 0; e < 16; e += 2) {
        int slot = slot_of(e), row = first + row_of(slot);
        if (row >= end) continue;
        UNROLL for (int i = 0; i < PARTS; i++)
            if (32 * i + 8 * (e / 4) < width)
                *(u32 *)(to + row * ld + 32 * i + column_of(e)) = pack(out[i].of[e] * by[slot], out[i].of[e + 1] * by[slot]);
    }
}

/* What the softmax of a wave's rows knows: the largest score in powers of two, or less by up to 8; a lane's part of the sum. */
template <int M>
struct softmax {
    float most[M][SLOTS], sum[M][SLOTS];
};

/* Scores become probabilities over 2^most. The largest is followed only where one has grown far beyond it: factors of up to
 * 2^8 round as any, and sums so rarely have to be scaled. */
template <int M, int PARTS>
DEVICE void weigh(softmax<M> *now, sums (&s)[M], sums (&out)[M][PARTS], operand (&p)[M][2], float c)
{
    float peak[M][SLOTS];
    bool  grows = false;
    UNROLL for (int m = 0; m < M; m++) {
        UNROLL for (int h = 0; h < SLOTS; h++) peak[m][h] = MINUS_INFINITY;
        UNROLL for (int e = 0; e < 16; e++) peak[m][slot_of(e)] = larger(peak[m][slot_of(e)], s[m].of[e]);
        UNROLL for (int h = 0; h < SLOTS; h++) grows |= peak[m][h] * c > now->most[m][h] + 8.0f;
    }
    if (any(grows)) {
        UNROLL for (int m = 0; m < M; m++) {
            float less[SLOTS];
            UNROLL for (int h = 0; h < SLOTS; h++) {
                float most = larger(now->most[m][h], row_largest(peak[m][h]) * c);
                less[h] = power_of_2(now->most[m][h] - most);
                now->most[m][h] = most;
                now->sum[m][h] *= less[h];
            }
            UNROLL for (int i = 0; i < PARTS; i++)
                UNROLL for (int e = 0; e < 16; e++) out[m][i].of[e] *= less[slot_of(e)];
        }
    }
    UNROLL for (int m = 0; m < M; m++) {
        UNROLL for (int e = 0; e < 16; e++) {
            s[m].of[e] = power_of_2(multiply_add(s[m].of[e], c, -now->most[m][slot_of(e)]));
            now->sum[m][slot_of(e)] += s[m].of[e];
        }
        round_sums(p[m], s[m]);
    }
}

EACH_SIMD(2) KERNEL_OF(FORWARD_THREADS, attention_matrix)
(bf16 *RESTRICT o, f32 *RESTRICT lse, const bf16 *RESTRICT q, const bf16 *RESTRICT k, const bf16 *RESTRICT v,
 const int *RESTRICT first_key, const S *RESTRICT sinks, SHAPE)
{
    enum { WAVES = FORWARD_THREADS / WAVE, M = FORWARD_ROWS / (UNIT * WAVES) };
    typedef tiles<OTHERS, A_ALONG | B_ACROSS, FORWARD_THREADS, QK, VO> staged;
    SHARED staged::room room;
    SHARED range        ranges[FORWARD_ROWS];
    SHARED reach        reaches[WAVES];
    rule rules = { first_key, seq_q, seq_k, q_offset, causal, window, key0 };
    spot at = spot_of(heads, heads / kv_heads);
    int  query0 = (blocks(0) - 1 - at.tile) * FORWARD_ROWS, own = wave_id() * UNIT * M, first = query0 + own;
    int  h = at.head, j = h / (heads / kv_heads), batch = block_id(2);
    static_assert(FORWARD_ROWS <= FORWARD_THREADS, "a thread for each row");
    if (thread_id() < FORWARD_ROWS) ranges[thread_id()] = seen_by(rules, batch, query0 + thread_id());
    barrier();
    see(reaches, reach_of(ranges, own, UNIT * M, first, seq_q));
    range   all = reach_of(ranges, 0, FORWARD_ROWS, query0, seq_q).some;
    rows_of qs = { q + (i64)batch * seq_q * ld_q + h * QK, ld_q, 0, seq_q, QK };
    rows_of ks = { k + (i64)batch * seq_k * ld_k + j * QK, ld_k, all.from, all.end, QK };
    rows_of vs = { v + (i64)batch * seq_k * ld_v + j * VO, ld_v, all.from, all.end, VO };
    operand p[M][2];
    kept_rows<M, QK_STEPS> fq;
    sums    s[M], out[M][VO_PARTS];
    float   c = scale * LOG2_E, none = sinks ? get(sinks, h) * LOG2_E : LEAST;
    staged  t = { &room };
    softmax<M> now;
    UNROLL for (int m = 0; m < M; m++)
        UNROLL for (int i = 0; i < SLOTS; i++) {
            now.most[m][i] = none;
            now.sum[m][i] = sinks && column_of(0) == 0 ? 1.0f : 0.0f;
        }
    clear(out);
    int from = all.from / OTHERS * OTHERS;
    if (from < all.end) t.fetch(from / OTHERS % 2, ks, vs, from);
    fq.load(qs, first);
    reach mine = seen(reaches);
    for (int tile = from; tile < all.end; tile += OTHERS) {
        int stage = tile / OTHERS % 2;
        t.arrive();
        if (tile + OTHERS < all.end) t.fetch(stage ^ 1, ks, vs, tile + OTHERS);
        UNROLL for (int u = 0; u < OTHERS; u += 32) {
            int   key = tile + u;
            if (!SCALARS) mine = seen(reaches);
            if (key >= mine.some.end || key + 32 <= mine.some.from) continue; /* a whole wave */
            scores<QK_STEPS>(s, fq, t, A, stage, u);
            if (key < mine.all.from || key + 32 > mine.all.end)
                UNROLL for (int m = 0; m < M; m++)
                    UNROLL for (int e = 0; e < 16; e++) {
                        range r = ranges[own + m * UNIT + row_of(slot_of(e))];
                        int   at = key + column_of(e);
                        s[m].of[e] = ((at < r.from) | (at >= r.end)) ? MINUS_INFINITY : s[m].of[e];
                    }
            weigh(&now, s, out, p, c);
            add_product(out, p, t, B, stage, u);
        }
    }
    UNROLL for (int m = 0; m < M; m++) {
        float by[SLOTS];
        UNROLL for (int i = 0; i < SLOTS; i++) {
            float total = row_sum(now.sum[m][i]);
            int   query = first + m * UNIT + row_of(i);
            by[i] = total > 0.0f ? 1.0f / total : total;
            if (column_of(0) == 0 && query < seq_q)
                lse[((i64)batch * heads + h) * seq_q + query] =
                    total == 0.0f ? MINUS_INFINITY : now.most[m][i] * LN_2 + logarithm(total);
        }
        store_rows(o + (i64)batch * seq_q * heads * VO + h * VO, heads * VO, out[m], by, first + m * UNIT, seq_q, VO);
    }
}

/* delta of each query, head and sequence, as lse lies: TEAM lanes have a row, of 8 elements each. */
KERNEL(attention_matrix_delta)
(f32 *RESTRICT delta, const bf16 *RESTRICT d_o, const bf16 *RESTRICT o, int seq_q, int heads)
{
    enum { TEAM = VO <= 8 ? 1 : VO <= 16 ? 2 : VO <= 32 ? 4 : VO <= 64 ? 8 : VO <= 128 ? 16 : 32 };
    int query = block_id(0) * (BLOCK / TEAM) + thread_id() / TEAM, part = thread_id() % TEAM * 8;
    i64 at = (((i64)block_id(2) * seq_q + query) * heads + block_id(1)) * VO + part;
    float sum = 0.0f;
    if (query < seq_q && part < VO) {
        struct alignas(16) four {
            u32 of[4];
        } x = *(const four *)(d_o + at), y = *(const four *)(o + at);
        UNROLL for (int i = 0; i < 4; i++)
            sum = multiply_add(high_of(x.of[i]), high_of(y.of[i]), multiply_add(low_of(x.of[i]), low_of(y.of[i]), sum));
    }
    for (int m = 1; m < TEAM; m *= 2) sum += float_of((u32)exchanged((int)bits_of(sum), m));
    if (query < seq_q && part == 0) delta[((i64)block_id(2) * heads + block_id(1)) * seq_q + query] = sum;
}

EACH_SIMD(GRAD_SIMD) KERNEL_OF(QUERIES_THREADS, attention_matrix_queries)
(bf16 *RESTRICT dq, const bf16 *RESTRICT d_o, const bf16 *RESTRICT q, const bf16 *RESTRICT k, const bf16 *RESTRICT v,
 const f32 *RESTRICT lse, const f32 *RESTRICT delta, const int *RESTRICT first_key, int ld_dq, SHAPE)
{
    enum { WAVES = QUERIES_THREADS / WAVE, M = QUERIES_ROWS / (UNIT * WAVES) };
    typedef tiles<OTHERS, A_ALONG | A_ACROSS | B_ALONG, QUERIES_THREADS, QK, VO> staged;
    SHARED staged::room room;
    SHARED range        ranges[QUERIES_ROWS];
    SHARED reach        reaches[WAVES];
    rule rules = { first_key, seq_q, seq_k, q_offset, causal, window, key0 };
    spot at = spot_of(heads, heads / kv_heads);
    int  query0 = (blocks(0) - 1 - at.tile) * QUERIES_ROWS, own = wave_id() * UNIT * M, first = query0 + own;
    int  h = at.head, j = h / (heads / kv_heads), batch = block_id(2);
    static_assert(QUERIES_ROWS <= QUERIES_THREADS, "a thread for each row");
    if (thread_id() < QUERIES_ROWS) ranges[thread_id()] = seen_by(rules, batch, query0 + thread_id());
    barrier();
    see(reaches, reach_of(ranges, own, UNIT * M, first, seq_q));
    range   all = reach_of(ranges, 0, QUERIES_ROWS, query0, seq_q).some;
    i64     row0 = (i64)batch * seq_q, line = ((i64)batch * heads + h) * seq_q;
    int     ld_o = heads * VO;
    rows_of qs = { q + row0 * ld_q + h * QK, ld_q, 0, seq_q, QK }, gs = { d_o + row0 * ld_o + h * VO, ld_o, 0, seq_q, VO };
    rows_of ks = { k + (i64)batch * seq_k * ld_k + j * QK, ld_k, all.from, all.end, QK };
    rows_of vs = { v + (i64)batch * seq_k * ld_v + j * VO, ld_v, all.from, all.end, VO };
    operand ds[M][2];
    kept_rows<M, QK_STEPS> fq;
    kept_rows<M, VO_STEPS> fg;
    sums    s[M], d[M], out[M][QK_PARTS];
    float   c = scale * LOG2_E, L[M][SLOTS], less[M][SLOTS];
    staged  t = { &room };
    clear(out);
    int from = all.from / OTHERS * OTHERS;
    if (from < all.end) t.fetch(from / OTHERS % 2, ks, vs, from);
    fq.load(qs, first);
    fg.load(gs, first);
    UNROLL for (int m = 0; m < M; m++)
        UNROLL for (int i = 0; i < SLOTS; i++) {
            int query = first + m * UNIT + row_of(i);
            L[m][i] = query < seq_q ? lse[line + query] * LOG2_E : NOTHING;
            less[m][i] = query < seq_q ? delta[line + query] : 0.0f;
        }
    reach mine = seen(reaches);
    for (int tile = from; tile < all.end; tile += OTHERS) {
        int stage = tile / OTHERS % 2;
        t.arrive();
        if (tile + OTHERS < all.end) t.fetch(stage ^ 1, ks, vs, tile + OTHERS);
        UNROLL for (int u = 0; u < OTHERS; u += 32) {
            int   key = tile + u;
            if (!SCALARS) mine = seen(reaches);
            if (key >= mine.some.end || key + 32 <= mine.some.from) continue; /* a whole wave */
            scores<QK_STEPS>(s, fq, t, A, stage, u);
            scores<VO_STEPS>(d, fg, t, B, stage, u);
            bool edge = key < mine.all.from || key + 32 > mine.all.end;
            UNROLL for (int m = 0; m < M; m++) {
                UNROLL for (int e = 0; e < 16; e++) {
                    int slot = slot_of(e);
                    d[m].of[e] = power_of_2(multiply_add(s[m].of[e], c, -L[m][slot])) * (d[m].of[e] - less[m][slot]);
                }
                if (edge)
                    UNROLL for (int e = 0; e < 16; e++) {
                        range r = ranges[own + m * UNIT + row_of(slot_of(e))];
                        int   at = key + column_of(e);
                        d[m].of[e] = ((at < r.from) | (at >= r.end)) ? 0.0f : d[m].of[e];
                    }
                round_sums(ds[m], d[m]);
            }
            add_product(out, ds, t, A, stage, u);
        }
    }
    float by[SLOTS];
    UNROLL for (int i = 0; i < SLOTS; i++) by[i] = scale;
    UNROLL for (int m = 0; m < M; m++)
        store_rows(dq + row0 * ld_dq + h * QK, ld_dq, out[m], by, first + m * UNIT, seq_q, QK);
}

/* Sums of gradients of keys and of values take 160 of NVIDIA's 255 registers where heads are wide. */
#if !defined(__HIP__) && QK + VO > 256
#define own_keys read_rows
#else
#define own_keys kept_rows
#endif

/* Of a tile of keys, over all queries of all heads of the group, in ascending order. */
EACH_SIMD(GRAD_SIMD) KERNEL_OF(KEYS_THREADS, attention_matrix_keys)
(bf16 *RESTRICT dk, bf16 *RESTRICT dv, const bf16 *RESTRICT d_o, const bf16 *RESTRICT q, const bf16 *RESTRICT k,
 const bf16 *RESTRICT v, const f32 *RESTRICT lse, const f32 *RESTRICT delta, const int *RESTRICT first_key, int ld_dk,
 int ld_dv, SHAPE)
{
    enum { WAVES = KEYS_THREADS / WAVE, M = KEYS_ROWS / (UNIT * WAVES) };
    typedef tiles<OTHERS, A_ALONG | A_ACROSS | B_ALONG | B_ACROSS, KEYS_THREADS, QK, VO> staged;
    SHARED staged::room      room;
    alignas(16) SHARED float numbers[2][2][OTHERS]; /* of queries of a stage: L, delta */
    SHARED int               firsts[2][OTHERS];     /* and their documents' first keys */
    rule  rules = { first_key, seq_q, seq_k, q_offset, causal, window, key0 };
    int   group = heads / kv_heads;
    spot  at = spot_of(kv_heads, 1);
    int   thread = thread_id(), key_0 = at.tile * KEYS_ROWS;
    int   first = key_0 + wave_id() * UNIT * M; /* the wave's */
    int   j = at.head, batch = block_id(2);
    SHARED range all;
    range        found = seen_from<KEYS_THREADS>(rules, batch, key_0, smaller(key_0 + KEYS_ROWS, seq_k) - 1);
    if (thread == 0) all = range{ found.from / OTHERS * OTHERS, found.end };
    barrier();
    i64   row0 = (i64)batch * seq_q;
    int   ld_o = heads * VO;
    rows_of ks = { k + (i64)batch * seq_k * ld_k + j * QK, ld_k, 0, seq_k, QK };
    rows_of vs = { v + (i64)batch * seq_k * ld_v + j * VO, ld_v, 0, seq_k, VO };
    operand p[M][2], ds[M][2];
    own_keys<M, QK_STEPS> fk;
    own_keys<M, VO_STEPS> fv;
    sums    s[M], out_k[M][QK_PARTS], out_v[M][VO_PARTS];
    float   c = scale * LOG2_E, next = 0.0f;
    int     next_first = 0;
    staged  t = { &room };
    int     h = j * group;
    auto    fetch = [&](int stage, int head, int tile) {
        rows_of qs = { q + row0 * ld_q + head * QK, ld_q, 0, seq_q, QK };
        rows_of gs = { d_o + row0 * ld_o + head * VO, ld_o, 0, seq_q, VO };
        int     which = thread / OTHERS, query = tile + thread % OTHERS;
        t.fetch(stage, qs, gs, tile);
        if (which > 1) return;
        next = which ? 0.0f : NOTHING / LOG2_E;
        if (query >= seq_q) return;
        next = (which ? delta : lse)[((i64)batch * heads + head) * seq_q + query];
        if (first_key && which == 0) next_first = first_key[row0 + query] - key0;
    };
    clear(out_k);
    clear(out_v);
    if (all.from < all.end) fetch(0, h, all.from);
    fk.load(ks, first);
    fv.load(vs, first);
    for (int tile = all.from, stage = 0; h < (j + 1) * group && all.from < all.end; stage ^= 1) {
        if (thread < 2 * OTHERS) numbers[stage][0][thread] = thread < OTHERS ? next * LOG2_E : next;
        if (thread < OTHERS) firsts[stage][thread] = next_first;
        t.arrive();
        int now = tile;
        tile += OTHERS;
        if (tile >= all.end) {
            tile = all.from;
            h++;
        }
        if (h < (j + 1) * group) fetch(stage ^ 1, h, tile);
        UNROLL for (int u = 0; u < OTHERS; u += 32) {
            int place = now + u + q_offset; /* of the first query */
            int first = key_0 + uniform(thread_again() / WAVE) * UNIT * M, last = first + UNIT * M - 1;
            if (now + u >= all.end || (causal && place + 31 < first) || (window > 0 && place - window >= last))
                continue; /* a whole wave */
            bool edge = first_key || (causal && place < last) || (window > 0 && place + 31 - window >= first);
            scores<QK_STEPS>(s, fk, t, A, stage, u);
            UNROLL for (int m = 0; m < M; m++) {
                UNROLL for (int e = 0; e < 16; e++)
                    s[m].of[e] = power_of_2(multiply_add(s[m].of[e], c, -numbers[stage][0][u + column_of(e)]));
                if (edge)
                    UNROLL for (int e = 0; e < 16; e++) {
                        int column = column_of(e), key = first + m * UNIT + row_of(slot_of(e));
                        bool seen = (key >= firsts[stage][u + column]) & (!causal | (key <= place + column)) &
                                    ((window == 0) | (key > place + column - window));
                        s[m].of[e] = seen ? s[m].of[e] : 0.0f;
                    }
                round_sums(p[m], s[m]);
            }
            add_product(out_v, p, t, B, stage, u);
            scores<VO_STEPS>(s, fv, t, B, stage, u);
            UNROLL for (int m = 0; m < M; m++) {
                UNROLL for (int e = 0; e < 16; e++) {
                    u32   two = p[m][e / 8].of[e / 2 % 4];
                    float weight = e % 2 ? high_of(two) : low_of(two);
                    s[m].of[e] = weight * (s[m].of[e] - numbers[stage][1][u + column_of(e)]);
                    s[m].of[e] = weight == 0.0f ? 0.0f : s[m].of[e]; /* whatever a value that is not seen is */
                }
                round_sums(ds[m], s[m]);
            }
            add_product(out_k, ds, t, A, stage, u);
        }
    }
    float by[SLOTS], one[SLOTS];
    UNROLL for (int i = 0; i < SLOTS; i++) {
        by[i] = scale;
        one[i] = 1.0f;
    }
    UNROLL for (int m = 0; m < M; m++) {
        store_rows(dk + (i64)batch * seq_k * ld_dk + j * QK, ld_dk, out_k[m], by, first + m * UNIT, seq_k, QK);
        store_rows(dv + (i64)batch * seq_k * ld_dv + j * VO, ld_dv, out_v[m], one, first + m * UNIT, seq_k, VO);
    }
}
