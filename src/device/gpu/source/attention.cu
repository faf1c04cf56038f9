/* SPDX-License-Identifier: Apache-2.0 */
/* Attention for every GPU (op/attention.c has the formulas): tiles of SIDE queries and SIDE keys, scores in float32 in
 * shared memory, never a matrix of all scores. X: format of q, k, v, o and their gradients; S: of the sinks. QK, VO:
 * elements of a head, of queries and keys, of values and results. A block has the queries (or keys) of a
 * tile; each of its threads has some columns of one row. No atomics: the same bits in every run. */

enum { ACROSS = BLOCK / SIDE /* threads of a row, all of one wave */ };
enum { QK_EACH = (QK + ACROSS - 1) / ACROSS, VO_EACH = (VO + ACROSS - 1) / ACROSS };

/* Those scores of a thread's row that it has to compute. */
#define EACH_SCORE(i)                                                                                                  \
    ROLLED for (int n_ = 0; n_ < (SIDE + ACROSS - 1) / ACROSS; n_++)                                                   \
        if (int i = column + n_ * ACROSS; SIDE >= ACROSS || i < SIDE)

#define SHAPE                                                                                                          \
    i64 seq_q, i64 seq_k, i64 q_offset, int heads, int kv_heads, int causal, i64 window, i64 key0, i64 ld_q, i64 ld_k, \
        i64 ld_v, float scale

/* Keys that a query sees: from .. end - 1. */
struct range {
    i64 from, end;
};
DEVICE range seen_by(const int *first_key, i64 row, i64 query, i64 seq_q, i64 seq_k, i64 q_offset, int causal,
                     i64 window, i64 key0)
{
    i64 p = q_offset + query, from = window > 0 && p >= window ? p - window + 1 : 0;
    i64 document = first_key && query < seq_q ? first_key[row] - key0 : 0,
        end = causal && p + 1 < seq_k ? p + 1 : seq_k;
    return query < seq_q ? range{ from > document ? from : document, end } : range{ 0, 0 };
}

/* SIDE rows of `width` elements from row `row0` on, as far as there are `rows`, else zeros. */
DEVICE void load_tile(float *tile, const X *x, i64 row0, i64 rows, i64 ld, int width)
{
    for (int n = 0, i = thread_id(); n < (SIDE * width + BLOCK - 1) / BLOCK; n++, i += BLOCK) {
        int r = i / width, c = i - r * width;
        if (i < SIDE * width) tile[i] = r < rows ? get(x, (row0 + r) * ld + c) : 0.0f;
    }
}

DEVICE float dot(const float *a, const float *b, int n)
{
    float sum = 0.0f;
    for (int i = 0; i < n; i++) sum = multiply_add(a[i], b[i], sum);
    return sum;
}

/* The keys that any query of the tile sees: uniform over the block. */
DEVICE range seen_by_tile(range *of, range mine)
{
    int thread = thread_id();
    if (thread % ACROSS == 0) of[thread / ACROSS] = mine;
    barrier();
    range all = of[0];
    for (int i = 1; i < SIDE; i++) {
        range r = of[i];
        if (r.from >= r.end) continue;
        if (all.from >= all.end) all = r;
        all.from = r.from < all.from ? r.from : all.from;
        all.end = r.end > all.end ? r.end : all.end;
    }
    return all;
}

KERNEL(attention)
(X *RESTRICT o, f32 *RESTRICT lse, const X *RESTRICT q, const X *RESTRICT k, const X *RESTRICT v,
 const int *RESTRICT first_key, const S *RESTRICT sinks, SHAPE)
{
    SHARED float qs[SIDE * QK], ks[SIDE * QK], vs[SIDE * VO], scores[SIDE][SIDE + 1], shrink[SIDE], total[SIDE];
    SHARED range ranges[SIDE];
    int          thread = thread_id(), row = thread / ACROSS, column = thread % ACROSS;
    int          h = block_id(1), j = h / (heads / kv_heads);
    i64          query0 = (i64)block_id(0) * SIDE, query = query0 + row, batch = block_id(2);
    range        mine = seen_by(first_key, batch * seq_q + query, query, seq_q, seq_k, q_offset, causal, window, key0);
    float        out[VO_EACH] = {}, largest = sinks ? get(sinks, h) : MINUS_INFINITY, sum = sinks ? 1.0f : 0.0f;
    load_tile(qs, q + (batch * seq_q + query0) * ld_q + h * QK, 0, seq_q - query0, ld_q, QK);
    range all = seen_by_tile(ranges, mine);
    for (i64 key0_ = all.from; key0_ < all.end; key0_ += SIDE) {
        barrier(); /* the tile before was used */
        load_tile(ks, k + (batch * seq_k + key0_) * ld_k + j * QK, 0, seq_k - key0_, ld_k, QK);
        load_tile(vs, v + (batch * seq_k + key0_) * ld_v + j * VO, 0, seq_k - key0_, ld_v, VO);
        barrier();
        EACH_SCORE (i) {
            i64 key = key0_ + i;
            scores[row][i] =
                key >= mine.from && key < mine.end ? scale * dot(qs + row * QK, ks + i * QK, QK) : MINUS_INFINITY;
        }
        wave_barrier();
        if (column == 0) {
            float most = largest;
            for (int i = 0; i < SIDE; i++) most = larger(most, scores[row][i]);
            float less = largest == MINUS_INFINITY ? 0.0f : exponential(largest - most);
            sum *= less;
            for (int i = 0; i < SIDE; i++) {
                float p = scores[row][i] == MINUS_INFINITY ? 0.0f : exponential(scores[row][i] - most);
                scores[row][i] = p;
                sum += p;
            }
            largest = most;
            shrink[row] = less;
        }
        wave_barrier();
        UNROLL for (int c = 0; c < VO_EACH; c++)
        {
            int at = column + c * ACROSS;
            if (at >= VO) continue;
            float value = out[c] * shrink[row];
            for (int i = 0; i < SIDE; i++) value = multiply_add(scores[row][i], vs[i * VO + at], value);
            out[c] = value;
        }
    }
    if (column == 0) total[row] = sum;
    wave_barrier();
    if (query >= seq_q) return;
    float all_of_it = total[row];
    UNROLL for (int c = 0; c < VO_EACH; c++)
    {
        int at = column + c * ACROSS;
        if (at < VO)
            put(o, (batch * seq_q + query) * heads * VO + h * VO + at, all_of_it > 0.0f ? out[c] / all_of_it : 0.0f);
    }
    if (column == 0) lse[(batch * heads + h) * seq_q + query] = largest + logarithm(sum);
}

/* delta = <do, o> of each query, head and sequence (dimensions of the grid): a thread each; as lse lies. */
KERNEL(attention_delta)(f32 *RESTRICT delta, const X *RESTRICT d_o, const X *RESTRICT o, i64 seq_q)
{
    i64   query = (i64)block_id(0) * BLOCK + thread_id(), heads = blocks(1);
    i64   at = ((block_id(2) * seq_q + query) * heads + block_id(1)) * VO;
    float sum = 0.0f;
    if (query >= seq_q) return;
    for (int c = 0; c < VO; c++) sum = multiply_add(get(d_o, at + c), get(o, at + c), sum);
    delta[(block_id(2) * heads + block_id(1)) * seq_q + query] = sum;
}

/* p and ds of a pair; 0 where the query does not see the key. */
struct pair {
    float p, ds;
};
DEVICE pair weigh(const float *q, const float *k, const float *d_o, const float *v, float scale, float lse, float delta,
                  int sees)
{
    if (!sees) return pair{ 0.0f, 0.0f };
    float p = exponential(scale * dot(q, k, QK) - lse);
    return pair{ p, p * (dot(d_o, v, VO) - delta) };
}

KERNEL(attention_grad_queries)
(X *RESTRICT dq, const X *RESTRICT d_o, const X *RESTRICT q, const X *RESTRICT k, const X *RESTRICT v,
 const f32 *RESTRICT lse, const f32 *RESTRICT delta, const int *RESTRICT first_key, i64 ld_dq, SHAPE)
{
    SHARED float qs[SIDE * QK], os[SIDE * VO], ks[SIDE * QK], vs[SIDE * VO], scores[SIDE][SIDE + 1];
    SHARED range ranges[SIDE];
    int          thread = thread_id(), row = thread / ACROSS, column = thread % ACROSS;
    int          h = block_id(1), j = h / (heads / kv_heads);
    i64          query0 = (i64)block_id(0) * SIDE, query = query0 + row, batch = block_id(2);
    range        mine = seen_by(first_key, batch * seq_q + query, query, seq_q, seq_k, q_offset, causal, window, key0);
    i64          at_row = (batch * heads + h) * seq_q + query;
    float        out[QK_EACH] = {}, my_lse = query < seq_q ? lse[at_row] : 0.0f;
    float        my_delta = query < seq_q ? delta[at_row] : 0.0f;
    load_tile(qs, q + (batch * seq_q + query0) * ld_q + h * QK, 0, seq_q - query0, ld_q, QK);
    load_tile(os, d_o + (batch * seq_q + query0) * heads * VO + h * VO, 0, seq_q - query0, heads * VO, VO);
    range all = seen_by_tile(ranges, mine);
    for (i64 key0_ = all.from; key0_ < all.end; key0_ += SIDE) {
        barrier();
        load_tile(ks, k + (batch * seq_k + key0_) * ld_k + j * QK, 0, seq_k - key0_, ld_k, QK);
        load_tile(vs, v + (batch * seq_k + key0_) * ld_v + j * VO, 0, seq_k - key0_, ld_v, VO);
        barrier();
        EACH_SCORE (i) {
            i64 key = key0_ + i;
            scores[row][i] = weigh(qs + row * QK, ks + i * QK, os + row * VO, vs + i * VO, scale, my_lse, my_delta,
                                   key >= mine.from && key < mine.end)
                                 .ds;
        }
        wave_barrier();
        UNROLL for (int c = 0; c < QK_EACH; c++)
        {
            int at = column + c * ACROSS;
            if (at >= QK) continue;
            for (int i = 0; i < SIDE; i++) out[c] = multiply_add(scores[row][i], ks[i * QK + at], out[c]);
        }
    }
    if (query >= seq_q) return;
    UNROLL for (int c = 0; c < QK_EACH; c++)
    {
        int at = column + c * ACROSS;
        if (at < QK) put(dq, (batch * seq_q + query) * ld_dq + h * QK + at, scale * out[c]);
    }
}

/* Of a tile of keys, over all queries of all heads of the group, in ascending order. */
KERNEL(attention_grad_keys)
(X *RESTRICT dk, X *RESTRICT dv, const X *RESTRICT d_o, const X *RESTRICT q, const X *RESTRICT k, const X *RESTRICT v,
 const f32 *RESTRICT lse, const f32 *RESTRICT delta, const int *RESTRICT first_key, i64 ld_dk, i64 ld_dv, SHAPE)
{
    SHARED float ks[SIDE * QK], vs[SIDE * VO], qs[SIDE * QK], os[SIDE * VO], ps[SIDE][SIDE + 1], ds[SIDE][SIDE + 1];
    int          thread = thread_id(), row = thread / ACROSS, column = thread % ACROSS;
    int          j = block_id(1), group = heads / kv_heads;
    i64          first = (i64)block_id(0) * SIDE, key = first + row, batch = block_id(2);
    float        out_k[QK_EACH] = {}, out_v[VO_EACH] = {};
    load_tile(ks, k + (batch * seq_k + first) * ld_k + j * QK, 0, seq_k - first, ld_k, QK);
    load_tile(vs, v + (batch * seq_k + first) * ld_v + j * VO, 0, seq_k - first, ld_v, VO);
    /* queries before the first key that they could see, and behind a window, are left out */
    i64 begin = causal && first > q_offset ? (first - q_offset) / SIDE * SIDE : 0, end = seq_q;
    if (window > 0 && first + SIDE - 1 + window - q_offset < end) end = first + SIDE - 1 + window - q_offset;
    for (int h = j * group; h < (j + 1) * group; h++)
        for (i64 query0 = begin; query0 < end; query0 += SIDE) {
            barrier();
            load_tile(qs, q + (batch * seq_q + query0) * ld_q + h * QK, 0, seq_q - query0, ld_q, QK);
            load_tile(os, d_o + (batch * seq_q + query0) * heads * VO + h * VO, 0, seq_q - query0, heads * VO, VO);
            barrier();
            EACH_SCORE (i) {
                i64   query = query0 + i, at = (batch * heads + h) * seq_q + query;
                range r =
                    seen_by(first_key, batch * seq_q + query, query, seq_q, seq_k, q_offset, causal, window, key0);
                int  sees = query < seq_q && key < seq_k && key >= r.from && key < r.end;
                pair w = weigh(qs + i * QK, ks + row * QK, os + i * VO, vs + row * VO, scale, sees ? lse[at] : 0.0f,
                               sees ? delta[at] : 0.0f, sees);
                ps[row][i] = w.p;
                ds[row][i] = w.ds;
            }
            wave_barrier();
            UNROLL for (int c = 0; c < QK_EACH; c++)
            {
                int at = column + c * ACROSS;
                if (at >= QK) continue;
                for (int i = 0; i < SIDE; i++) out_k[c] = multiply_add(ds[row][i], qs[i * QK + at], out_k[c]);
            }
            UNROLL for (int c = 0; c < VO_EACH; c++)
            {
                int at = column + c * ACROSS;
                if (at >= VO) continue;
                for (int i = 0; i < SIDE; i++) out_v[c] = multiply_add(ps[row][i], os[i * VO + at], out_v[c]);
            }
        }
    if (key >= seq_k) return;
    UNROLL for (int c = 0; c < QK_EACH; c++)
    {
        int at = column + c * ACROSS;
        if (at < QK) put(dk, (batch * seq_k + key) * ld_dk + j * QK + at, scale * out_k[c]);
    }
    UNROLL for (int c = 0; c < VO_EACH; c++)
    {
        int at = column + c * ACROSS;
        if (at < VO) put(dv, (batch * seq_k + key) * ld_dv + j * VO + at, out_v[c]);
    }
}

/* dsink_h = - sum of exp(sink_h - lse) delta: a block for each head. */
KERNEL(attention_grad_sinks)
(S *RESTRICT d_sinks, const S *RESTRICT sinks, const f32 *RESTRICT lse, const f32 *RESTRICT delta, i64 batches,
 i64 seq_q, int heads, int adds)
{
    SHARED double room[BLOCK];
    int           h = block_id(0);
    float         sink = get(sinks, h);
    double        sum = 0.0;
    for (i64 batch = 0; batch < batches; batch++)
        for (i64 i = thread_id(); i < seq_q; i += BLOCK) {
            i64 at = (batch * heads + h) * seq_q + i;
            sum -= (double)(exponential(sink - lse[at]) * delta[at]);
        }
    sum = block_sum(sum, room);
    if (thread_id() == 0) put(d_sinks, h, (float)(adds ? (double)get(d_sinks, h) + sum : sum));
}
