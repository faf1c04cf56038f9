/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/attention_grad.c - gradients of attention, scores computed again from lse.
 *
 * For 32 queries of a head and one block of keys (Dao et al. 2022, "FlashAttention", algorithm 4):
 *
 *   P = exp(scale q k^T - lse),  dV += P^T dO,  dP = dO V^T,  delta_i = sum_d dO_id O_id
 *   dS = scale P (dP - delta),   dK += dS^T Q,  dQ += dS K
 *
 * One pass: a task is a (sequence, key/value head); its key blocks ascend, and inside each its queries ascend. dK and
 * dV of the block stay in scratch; dQ grows from block to block in its place in the output. With bfloat16 that place
 * holds the upper halves of the float32 sums and scratch the lower ones, until the last block's sum is rounded, once.
 * Two passes: dK and dV by tasks of one key block, dQ by tasks of one chunk of queries; seven products instead of five,
 * for when there are fewer heads than threads or the lower halves do not fit. The sums are the same, term by term: both
 * ways give the same bits.
 */
#include "device/cpu/simd/attention.h"
#include "device/cpu/simd/attention_sinks.h"

#include <omp.h>

enum {
    KEYS_AT_ONCE = 128,          /* scores and their gradients made before the products that use them: stays in L1 */
    LOW_FLOATS_MAX = 256 * 1024, /* scratch for lower halves in one pass */
};

typedef struct {
    attention_sizes s;
    bool            two_passes;
    int64_t         low_floats;             /* scratch for lower halves */
    int64_t         dq_row, dk_row, dv_row; /* elements between rows */
} backward_plan;

/* Scratch of one thread. */
typedef struct {
    float      *keys, *values, *dkeys, *dvalues; /* (block_rows, row), row of their own */
    float      *keys_across;                     /* (block_rows / PAIR, row); without slots: keys */
    float      *weights;                         /* (KEYS_AT_ONCE, 32): P */
    float      *dscores;                         /* (block_rows, 32) */
    float      *q_across, *do_across;            /* (32 / PAIR, width) */
    float      *do_rows;                         /* (32, width); without slots: do_across */
    float      *q_columns, *do_columns;          /* (width / PAIR, 32), times column_scale */
    float      *dq_part;                         /* (32, width): of one key block */
    float      *lse, *delta;                     /* 32; delta times scale */
    uint16_t   *dq_low;                          /* bfloat16: (pairs, 32, width); two passes: (CHUNK, 32, width) */
    causal_mask mask;
} backward_scratch;

static TM_PLANNED backward_plan plan_of(const tm_call *call)
{
    backward_plan p = { .s = sizes_of(call->attr, &call->in[1], &call->in[6]) };
    int64_t       threads = tm_max(call->threads, 1), heads = p.s.batch * p.s.kv_heads;
    int64_t       turns = (heads + threads - 1) / threads, pair_floats = QUERIES * p.s.qk.width / 2;
    bool          split = p.s.dtype == TM_BF16 && p.s.blocks > 1;
    p.two_passes = 7 * heads < 5 * turns * threads || (split && p.s.pairs * pair_floats > LOW_FLOATS_MAX);
    if (split) p.low_floats = (p.two_passes ? CHUNK : p.s.pairs) * pair_floats;
    p.dq_row = tm_view_ld(&call->out[0]);
    p.dk_row = tm_view_ld(&call->out[1]);
    p.dv_row = tm_view_ld(&call->out[2]);
    return p;
}

static TM_PLANNED size_t backward_floats(const backward_plan *p)
{
    const attention_sizes *s = &p->s;
    int64_t                slots = TM_PAIRS ? s->block_rows / PAIR * s->qk.row + QUERIES * s->v.width : 0;
    return (size_t)(slots + 2 * s->block_rows * (s->qk.row + s->v.row) + (KEYS_AT_ONCE + s->block_rows) * QUERIES +
                    QUERIES * (3 * s->qk.width + 2 * s->v.width) + 2 * QUERIES + p->low_floats);
}

static void backward_scratch_fill(backward_scratch *w, const attention_sizes *s, float *p)
{
    w->keys = p, p += s->block_rows * s->qk.row;
    w->values = p, p += s->block_rows * s->v.row;
    w->dkeys = p, p += s->block_rows * s->qk.row;
    w->dvalues = p, p += s->block_rows * s->v.row;
    w->weights = p, p += KEYS_AT_ONCE * QUERIES;
    w->dscores = p, p += s->block_rows * QUERIES;
    w->q_across = p, p += QUERIES * s->qk.width;
    w->do_across = p, p += QUERIES * s->v.width;
    w->q_columns = p, p += QUERIES * s->qk.width;
    w->do_columns = p, p += QUERIES * s->v.width;
    w->dq_part = p, p += QUERIES * s->qk.width;
    w->keys_across = w->keys;
    w->do_rows = w->do_across;
#if TM_PAIRS
    w->keys_across = p, p += s->block_rows / PAIR * s->qk.row;
    w->do_rows = p, p += QUERIES * s->v.width;
#endif
    w->lse = p, p += QUERIES;
    w->delta = p, p += QUERIES;
    w->dq_low = (uint16_t *)p;
    causal_mask_fill(&w->mask);
}

TM_INLINE void deltas_as(tm_dtype dtype, const attention_sizes *s, const void *o, int64_t at, int64_t n,
                         const backward_scratch *w)
{
    for (int64_t j = 0; j < QUERIES; j += TM_LANES) {
        v16 r[16];
        for (int64_t i = 0; i < 16; i++) {
            const float *g = w->do_rows + (j + i) * s->v.width;
            r[i] = v16_zero();
            for (int64_t d = 0; j + i < n && d < s->v.width; d += TM_LANES)
                r[i] = v16_fma(v16_load(g + d), v16_get(o, dtype, at + (j + i) * s->o_row + d, s->v.dim - d), r[i]);
        }
        tm_transpose16(r); /* then the tree of v16_sum, for 16 queries at once */
        for (int half = 8; half > 0; half /= 2)
            for (int i = 0; i < half; i++) r[i] = v16_add(r[i], r[i + half]);
        v16_store(w->delta + j, v16_mul(r[0], v16_set1(s->scale)));
    }
}

/* Copies what the pair's queries bring along. */
static void load_pair(const tm_call *call, const attention_sizes *s, const backward_scratch *w, int64_t sequence,
                      const query_block *q)
{
    int64_t row = sequence * s->seq_q + q->q0, at = row * s->o_row + q->head * s->v.dim;
    int64_t q_at = row * s->q_row + q->head * s->qk.dim;
    columns_of(s, s->qk, call->in[1].data, q_at, s->q_row, q->n, w->q_across, w->q_columns);
    columns_of(s, s->v, call->in[0].data, at, s->o_row, q->n, w->do_across, w->do_columns);
#if TM_PAIRS
    copy_across(s, s->qk, call->in[1].data, q_at, s->q_row, q->n, QUERIES, w->q_across, s->qk.width);
    copy_across(s, s->v, call->in[0].data, at, s->o_row, q->n, QUERIES, w->do_across, s->v.width);
    copy_rows(s, s->v, call->in[0].data, at, s->o_row, q->n, QUERIES, w->do_rows, s->v.width);
#endif
    if (s->dtype == TM_BF16)
        deltas_as(TM_BF16, s, call->in[4].data, at, q->n, w);
    else
        deltas_as(TM_F32, s, call->in[4].data, at, q->n, w);
    const float *lse = (const float *)call->in[5].data + (sequence * s->heads + q->head) * s->seq_q + q->q0;
    for (int64_t j = 0; j < QUERIES; j++) w->lse[j] = j < q->n ? lse[j] : 0.f;
}

/* Pairs begin .. end - 1 of a key/value head against one block of its keys. */
typedef struct {
    int64_t sequence, kv_head, block, begin, end;
    bool    want_kv, want_q;
} backward_work;

/* What the pair after this one reads, and where this one writes dQ. */
static ahead ask_ahead(const tm_call *call, const backward_plan *p, const backward_work *work, int64_t pair)
{
    const attention_sizes *s = &p->s;
    query_block q = query_place_of(s, work->kv_head, pair), after = query_place_of(s, work->kv_head, pair + 1);
    int64_t     row0 = work->sequence * s->seq_q, at = (row0 + after.q0) * s->o_row + after.head * s->v.dim;
    int64_t     dq_at = (row0 + q.q0) * p->dq_row + q.head * s->qk.dim, n = pair + 1 < work->end ? after.n : 0;
    ahead       next = { .at_once = 1 };
    next.list[0] = rows_ahead_of(s, call->in[1].data, (row0 + after.q0) * s->q_row + after.head * s->qk.dim, s->q_row,
                                 s->qk.dim, n);
    next.list[1] = rows_ahead_of(s, call->in[0].data, at, s->o_row, s->v.dim, n);
    next.list[2] = rows_ahead_of(s, call->in[4].data, at, s->o_row, s->v.dim, n);
    next.list[3] = rows_ahead_of(s, call->out[0].data, dq_at, p->dq_row, s->qk.dim, work->want_q ? q.n : 0);
    return next;
}

/* weights (keys, 32): scores -> P; dscores: scale dP -> dS. Row t is masked when t > diagonal; with `edges` also where
 * `row0` + t is before a lane's edge. */
static void weigh(const backward_scratch *w, float *dscores, int64_t keys, int64_t diagonal, const lane_edges *edges,
                  int64_t row0)
{
    for (int v = 0; v < 2; v++) {
        int64_t lane = TM_LANES * v;
        v16     lse = v16_load(w->lse + lane), delta = v16_load(w->delta + lane);
        for (int64_t t = 0; t < keys; t++) {
            float *x = w->weights + t * QUERIES + lane, *y = dscores + t * QUERIES + lane;
            v16    p = v16_exp(v16_sub(v16_load(x), lse)), ds = v16_mul(p, v16_sub(v16_load(y), delta));
            if (t > diagonal) {
                v16 seen = v16_load(w->mask.factor + causal_mask_place(t - diagonal, v));
                p = v16_where(seen, p), ds = v16_where(seen, ds);
            }
            if (row0 + t < edges->cut) {
                v16 seen = edge_limit(edges, row0 + t, v);
                p = v16_where(seen, p), ds = v16_where(seen, ds);
            }
            v16_store(x, p);
            v16_store(y, ds);
        }
    }
}

/* P and dS of n keys as products take them: P along the lanes in its place, dS along them (returned) and across keys,
 * at `across`. */
static float *round_both(const attention_sizes *s, const backward_scratch *w, float *dscores, int64_t n, float *across)
{
#if TM_PAIRS
    float *along = w->weights + KEYS_AT_ONCE * QUERIES / 2; /* free, once P is slots */
    weights_along(s, w->weights, n, w->weights);
    weights_along(s, dscores, n, along);
    weights_across(s, dscores, n, across);
    return along;
#else
    (void)across;
    round_weights(s, w->weights, n);
    round_weights(s, dscores, n);
    return dscores;
#endif
}

/* The loaded pair against the `keys` keys in scratch, less the first `passed`: adds to dK and dV, leaves this block's
 * part of dQ in dq_part. */
static void backward_block(const attention_sizes *s, const backward_scratch *w, const query_block *q, int64_t passed,
                           int64_t keys, const backward_work *work, ahead *next)
{
    int64_t    first = work->block * s->block, diagonal = s->causal ? s->offset + q->q0 - first : keys;
    lane_edges edges = lane_edges_of(s, work->sequence, q, first + passed);
    for (int64_t t = passed; t < keys; t += KEYS_AT_ONCE) {
        int64_t n = tm_round_up(tm_min(KEYS_AT_ONCE, keys - t), STEP);
        float  *dscores = w->dscores + t * QUERIES;
        product_scores(n, s->qk.width, w->keys + t * s->qk.row, s->qk.row, w->q_columns, s->score_scale, w->weights,
                       next);
        product_scores(n, s->v.width, w->values + t * s->v.row, s->v.row, w->do_columns, s->score_scale, dscores, next);
        weigh(w, dscores, n, diagonal - t, &edges, t - passed);
        float *along = round_both(s, w, dscores, n, w->dscores + (passed + (t - passed) / PAIR) * QUERIES);
        if (!work->want_kv) continue;
        product_keys(n, s->v.width, diagonal - t, w->weights, w->do_across, w->dvalues + t * s->v.row, s->v.row, next);
        product_keys(n, s->qk.width, diagonal - t, along, w->q_across, w->dkeys + t * s->qk.row, s->qk.row, next);
    }
    if (work->want_q)
        product_queries(s, tm_round_up(q->n, STEP), s->qk.width, keys - passed, diagonal - passed, &edges,
                        w->dscores + passed * QUERIES, w->keys_across + passed / PAIR * s->qk.row, s->qk.row,
                        w->dq_part, false, next);
}

/* n lanes of float32 as their upper and lower halves */
TM_INLINE v16 join_halves(const uint16_t *high, const uint16_t *low, int64_t n)
{
    uint32_t u[16] = { 0 };
    v16      x;
    for (int64_t i = 0; i < n; i++) u[i] = (uint32_t)high[i] << 16 | low[i];
    memcpy(&x, u, sizeof x);
    return x;
}
TM_INLINE void split_halves(uint16_t *high, uint16_t *low, v16 x, int64_t n)
{
    uint32_t u[16];
    memcpy(u, &x, sizeof u);
    for (int64_t i = 0; i < n; i++) high[i] = (uint16_t)(u[i] >> 16), low[i] = (uint16_t)u[i];
}

/* Adds dq_part to what earlier key blocks left in the output; see the head of this file. low (32, width). */
static void add_dq(const backward_plan *p, const backward_scratch *w, void *out, int64_t at, const query_block *q,
                   uint16_t *low, bool first, bool last)
{
    const attention_sizes *s = &p->s;
    for (int64_t j = 0; j < q->n; j++)
        for (int64_t d = 0; d < s->qk.width; d += TM_LANES) {
            int64_t place = at + j * p->dq_row + d, n = tm_min(s->qk.dim - d, TM_LANES);
            v16     x = v16_load(w->dq_part + j * s->qk.width + d);
            if (s->dtype == TM_F32) {
                v16_put(out, TM_F32, place, first ? x : v16_add(v16_get(out, TM_F32, place, n), x), n);
                continue;
            }
            uint16_t *high = (uint16_t *)out + place, *rest = low + j * s->qk.width + d;
            if (!first) x = v16_add(n == TM_LANES ? join_halves(high, rest, TM_LANES) : join_halves(high, rest, n), x);
            if (last)
                v16_put(out, TM_BF16, place, x, n);
            else if (n == TM_LANES)
                split_halves(high, rest, x, TM_LANES);
            else
                split_halves(high, rest, x, n);
        }
}

static void backward_pairs(const tm_call *call, const backward_plan *p, const backward_scratch *w, backward_work work)
{
    const attention_sizes *s = &p->s;
    int64_t first = work.block * s->block, row0 = work.sequence * s->seq_q, key0 = work.sequence * s->seq_k + first;
    int64_t most = tm_min(s->block, s->seq_k - first), padded = tm_round_up(most, STEP);
    int64_t k_column = work.kv_head * s->qk.dim, v_column = work.kv_head * s->v.dim;
    copy_along(s, s->qk, call->in[2].data, key0 * s->k_row + k_column, s->k_row, most, padded, w->keys, s->qk.row);
    copy_along(s, s->v, call->in[3].data, key0 * s->v_row + v_column, s->v_row, most, padded, w->values, s->v.row);
#if TM_PAIRS
    copy_across(s, s->qk, call->in[2].data, key0 * s->k_row + k_column, s->k_row, most, padded, w->keys_across,
                s->qk.row);
#endif
    if (work.want_kv) {
        memset(w->dkeys, 0, (size_t)(s->block_rows * s->qk.row) * sizeof(float));
        memset(w->dvalues, 0, (size_t)(s->block_rows * s->v.row) * sizeof(float));
    }
    for (int64_t pair = work.begin; pair < work.end; pair++) {
        query_block q = query_block_of(s, work.sequence, work.kv_head, pair);
        int64_t     keys = keys_seen(s, &q, first), passed = keys_passed(&q, first);
        if (keys <= passed || q.end <= q.begin) continue;
        ahead next = ask_ahead(call, p, &work, pair);
        load_pair(call, s, w, work.sequence, &q);
        backward_block(s, w, &q, passed, keys, &work, &next);
        if (!work.want_q) continue;
        uint16_t *low =
            p->low_floats ? w->dq_low + (p->two_passes ? pair - work.begin : pair) * QUERIES * s->qk.width : NULL;
        add_dq(p, w, call->out[0].data, (row0 + q.q0) * p->dq_row + q.head * s->qk.dim, &q, low,
               is_first_block(&q, first), is_last_block(s, &q, first));
    }
    for (int64_t t = 0; work.want_kv && t < most; t++) {
        put_row(s, s->qk, call->out[1].data, (key0 + t) * p->dk_row + k_column, w->dkeys + t * s->qk.row, 1.f);
        put_row(s, s->v, call->out[2].data, (key0 + t) * p->dv_row + v_column, w->dvalues + t * s->v.row, 1.f);
    }
}

/* What the pairs of a work see; those that see nothing get a dQ of zeros. */
static query_block range_of(const tm_call *call, const backward_plan *p, const backward_work *work)
{
    const attention_sizes *s = &p->s;
    query_block            all = { .begin = s->seq_k };
    for (int64_t pair = work->begin; pair < work->end; pair++) {
        query_block q = query_block_of(s, work->sequence, work->kv_head, pair);
        all.begin = tm_min(all.begin, q.begin);
        all.end = tm_max(all.end, q.end);
        if (q.end <= q.begin)
            put_zeros(s, s->qk.dim, call->out[0].data,
                      (work->sequence * s->seq_q + q.q0) * p->dq_row + q.head * s->qk.dim, p->dq_row, q.n);
    }
    return all;
}

/* One pass: a task is a head. Two passes: first the tasks of key blocks (early ones are seen by more queries and start
 * first), then those of query chunks (late ones see more keys). */
static void backward_task(const tm_call *call, const backward_plan *p, const backward_scratch *w, int64_t task)
{
    const attention_sizes *s = &p->s;
    int64_t                heads = s->batch * s->kv_heads, turn = task / heads, blocks = s->blocks;
    backward_work work = { .sequence = task % heads / s->kv_heads, .kv_head = task % s->kv_heads, .end = s->pairs };
    work.want_kv = !p->two_passes || turn < s->blocks;
    work.want_q = !p->two_passes || turn >= s->blocks;
    if (p->two_passes && work.want_kv) {
        work.block = turn;
        blocks = turn + 1;
    } else if (p->two_passes) {
        work.begin = (s->blocks + s->chunks - 1 - turn) * CHUNK;
        work.end = tm_min(work.begin + CHUNK, s->pairs);
        query_block all = range_of(call, p, &work);
        work.block = all.begin / s->block;
        blocks = (tm_max(all.end, 0) + s->block - 1) / s->block;
    } else {
        range_of(call, p, &work);
    }
    for (; work.block < blocks; work.block++) backward_pairs(call, p, w, work);
}

TM_PLANNED const char *TM_K(attention_grad_refuse)(const tm_call *call)
{
    const tm_view *d_o = &call->in[0];
    for (int k = 0; k < 3; k++)
        if (call->out[k].dtype != d_o->dtype) return "needs activations of one format";
    if (call->in[4].dtype != d_o->dtype) return "needs activations of one format";
    if (tm_view_present(&call->out[3]) && !tm_is_float(&call->out[3])) return "needs float32 or bfloat16 gradients";
    const char *why = attention_refuse(call->attr, &call->in[1], d_o, &call->in[5], &call->in[6], &call->in[7]);
    const tm_attention_attr *attr = call->attr;
    bool                     large = tm_max(attr->dim_qk, attr->dim_v) > MAX_HEAD_DIM_GRAD;
    return !why && large ? "needs heads of at most 256 elements" : why;
}

TM_PLANNED size_t TM_K(attention_grad_workspace)(const tm_call *call)
{
    backward_plan p = plan_of(call);
    return TM_SINKS(attention_sinks_workspace)(call) + scratch_bytes(call, backward_floats(&p));
}

void TM_K(attention_grad_run)(const tm_call *call)
{
    backward_plan p = plan_of(call);
    tm_call       own = *call; /* with the workspace behind that of the sinks */
    own.workspace = (char *)call->workspace + TM_SINKS(attention_sinks_workspace)(call);
    int64_t heads = p.s.batch * p.s.kv_heads, tasks = p.two_passes ? heads * (p.s.blocks + p.s.chunks) : heads;
#pragma omp parallel num_threads(call->threads)
    {
        backward_scratch w;
        backward_scratch_fill(&w, &p.s, scratch_of(&own, backward_floats(&p), omp_get_thread_num()));
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < tasks; task++) backward_task(call, &p, &w, task);
    }
    if (tm_view_present(&call->out[3])) TM_SINKS(attention_sinks_run)(call);
}
