/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/attention.c - o = softmax(scale q k^T) v without ever holding T x T scores, and the table of the
 * family.
 *
 * For 32 queries of a head and one block of keys after the other (Dao et al. 2022, "FlashAttention", algorithm 1; the
 * running maximum and sum after Milakov & Gimelshein 2018):
 *
 *   S = scale q k^T,  m' = max(m, max_k S),  P = exp(S - m'),  a = exp(m - m')
 *   s = a s + sum_k P,  O = a O + P V;       in the end  o = O / s,  lse = m + log s
 *
 * A task is a chunk of (query block, head) pairs that read the same keys and values: nothing is shared between tasks.
 *
 * relative_attention is the same with S + bias; the bias depends on key - query and head alone, so a task lays out one
 * row of it, by falling distance: 16 queries of a key are 16 values in a row.
 */
#include "device/cpu/simd/attention.h"

#include "device/cpu/simd/kernels.h"
#include "op/relative.h"

#include <math.h>
#include <omp.h>

/* Scratch of one thread. */
typedef struct {
    float *keys, *values;   /* (block_rows, row) */
    float *scores;          /* (block_rows, 32) */
    float *rows, *columns;  /* (32, width): queries; (width, 32): the same, scaled and transposed */
    float *out;             /* CHUNK of (32, width of a value) */
    float *largest, *total; /* CHUNK of 32: m and s */
    float *bias;            /* (distances) of the task's head: element i is of distance seq_k - 1 - i; NULL: none */
} forward_scratch;

/* The table of relative_attention, and the class of each distance in the order of forward_scratch.bias. */
typedef struct {
    const tm_view *table;
    int32_t       *buckets;
} relative_bias;

static TM_PLANNED int64_t distances_of(const attention_sizes *s)
{
    return tm_round_up(s->seq_q + s->seq_k + QUERIES, TM_LANES); /* lanes past the last query, too */
}
static void relative_bias_begin(const attention_sizes *s, int64_t max_distance, const relative_bias *b)
{
    for (int64_t i = 0; i < s->seq_q + s->seq_k; i++)
        b->buckets[i] = (int32_t)tm_relative_bucket(s->seq_k - 1 - i, b->table->shape.n[0], max_distance);
}
static void relative_bias_fill(const attention_sizes *s, const relative_bias *b, int64_t head, float *bias)
{
    for (int64_t i = 0; i < distances_of(s); i++)
        bias[i] = i < s->seq_q + s->seq_k ? sink_of(b->table, b->buckets[i] * s->heads + head) : 0;
}
/* Of the queries from q0 on and the keys from `key` on. */
TM_INLINE void add_bias(const attention_sizes *s, const float *bias, int64_t q0, int64_t key, int64_t keys,
                        float *scores)
{
    const float *at = bias + q0 - key + s->seq_k - 1;
    for (int64_t t = 0; t < keys; t++, at--)
        for (int v = 0; v < 2; v++) {
            float *score = scores + t * QUERIES + v * TM_LANES;
            v16_store(score, v16_add(v16_load(score), v16_get(at, TM_F32, v * TM_LANES, TM_LANES)));
        }
}

static TM_PLANNED size_t forward_floats(const attention_sizes *s)
{
    return (size_t)(s->block_rows * (s->qk.row + s->v.row) + s->block_rows * QUERIES + 2 * s->qk.width * QUERIES +
                    CHUNK * QUERIES * (s->v.width + 2));
}

static forward_scratch forward_scratch_of(const attention_sizes *s, float *p)
{
    forward_scratch w;
    w.keys = p, p += s->block_rows * s->qk.row;
    w.values = p, p += s->block_rows * s->v.row;
    w.scores = p, p += s->block_rows * QUERIES;
    w.rows = p, p += s->qk.width * QUERIES;
    w.columns = p, p += s->qk.width * QUERIES;
    w.out = p, p += CHUNK * QUERIES * s->v.width;
    w.largest = p, p += CHUNK * QUERIES;
    w.total = p;
    w.bias = NULL;
    return w;
}

/* A row that the edge of a window or document cuts, and perhaps the diagonal: its scores with -infinity where a lane
 * does not see it; *seen is infinity or -infinity. */
TM_INLINE v16 edge_row(const float *scores, int64_t t, int64_t diagonal, const lane_edges *edges, int vector,
                       const causal_mask *mask, v16 *seen)
{
    *seen = edge_limit(edges, t, vector);
    if (t > diagonal) *seen = v16_min(*seen, v16_load(mask->limit + causal_mask_place(t - diagonal, vector)));
    return v16_min(v16_load(scores + t * QUERIES), *seen);
}

/* Scores of one vector of lanes -> weights relative to the new maximum; rows `diagonal` + 1 and later are masked, and
 * those before the edge. Updates maximum and sum; returns the factor for what was summed before. The least maximum is
 * finite: a lane may see no key of the first block, and infinity less infinity is no number. */
TM_INLINE v16 weigh(float *scores, int64_t keys, int64_t diagonal, const lane_edges *edges, int vector,
                    const causal_mask *mask, bool first, float *largest, float *total)
{
    const v16 least = v16_set1(-3e38f);
    int64_t   plain = tm_min(keys, tm_max(0, diagonal + 1)), cut = tm_min(keys, edges->cut);
    int64_t   rest = tm_max(plain, cut);
    v16       m0 = first ? least : v16_load(largest), m1 = m0, old = m0, sum = v16_zero(), seen;
    for (int64_t t = 0; t < cut; t++) m1 = v16_max(m1, edge_row(scores, t, diagonal, edges, vector, mask, &seen));
    for (int64_t t = cut; t + 1 < plain; t += 2) {
        m0 = v16_max(m0, v16_load(scores + t * QUERIES));
        m1 = v16_max(m1, v16_load(scores + (t + 1) * QUERIES));
    }
    if (plain > cut && (plain - cut) % 2) m0 = v16_max(m0, v16_load(scores + (plain - 1) * QUERIES));
    for (int64_t t = rest; t < keys; t++) {
        v16 limit = v16_load(mask->limit + causal_mask_place(t - diagonal, vector));
        m1 = v16_max(m1, v16_min(v16_load(scores + t * QUERIES), limit));
    }
    m0 = v16_max(m0, m1);
    for (int64_t t = 0; t < cut; t++) {
        v16 x = edge_row(scores, t, diagonal, edges, vector, mask, &seen);
        v16 e = v16_where(seen, v16_exp(v16_sub(x, m0)));
        sum = v16_add(sum, e);
        v16_store(scores + t * QUERIES, e);
    }
    for (int64_t t = cut; t < plain; t++) {
        v16 e = v16_exp(v16_sub(v16_load(scores + t * QUERIES), m0));
        sum = v16_add(sum, e);
        v16_store(scores + t * QUERIES, e);
    }
    for (int64_t t = rest; t < keys; t++) {
        int64_t place = causal_mask_place(t - diagonal, vector);
        v16     x = v16_min(v16_load(scores + t * QUERIES), v16_load(mask->limit + place));
        v16     e = v16_mul(v16_exp(v16_sub(x, m0)), v16_load(mask->factor + place));
        sum = v16_add(sum, e);
        v16_store(scores + t * QUERIES, e);
    }
    v16 factor = first ? v16_zero() : v16_exp(v16_sub(old, m0));
    v16_store(largest, m0);
    v16_store(total, first ? sum : v16_fma(factor, v16_load(total), sum));
    return factor;
}

/* One pair against the `keys` keys in scratch, less the first `passed`. */
static void forward_block(const attention_sizes *s, const forward_scratch *w, const causal_mask *mask, int64_t sequence,
                          const query_block *q, int64_t place, int64_t block, int64_t passed, int64_t keys, ahead *next)
{
    int64_t    n = tm_round_up(q->n, STEP), diagonal = s->causal ? s->offset + q->q0 - block - passed : keys;
    lane_edges edges = lane_edges_of(s, sequence, q, block + passed);
    bool       first = is_first_block(q, block);
    float     *out = w->out + place * QUERIES * s->v.width, factor[QUERIES];
    float     *rows = w->keys + passed * s->qk.row, *values = w->values + passed / PAIR * s->v.row;
    keys -= passed;
    product_scores(tm_round_up(keys, STEP), s->qk.width, rows, s->qk.row, w->columns, s->score_scale, w->scores, next);
    if (w->bias) add_bias(s, w->bias, q->q0, block + passed, keys, w->scores);
    for (int v = 0; v < 2; v++) {
        int64_t lane = TM_LANES * v, at = place * QUERIES + lane;
        v16_store(factor + lane,
                  weigh(w->scores + lane, keys, diagonal, &edges, v, mask, first, w->largest + at, w->total + at));
    }
#if TM_PAIRS
    weights_across(s, w->scores, keys, w->scores);
#else
    round_weights(s, w->scores, keys);
#endif
    if (first) {
        product_queries(s, n, s->v.width, keys, diagonal, &edges, w->scores, values, s->v.row, out, false, next);
        return;
    }
    for (int64_t j = 0; j < n; j++)
        for (int64_t d = 0; d < s->v.width; d += TM_LANES) {
            float *p = out + j * s->v.width + d;
            v16_store(p, v16_mul(v16_load(p), v16_set1(factor[j])));
        }
    product_queries(s, n, s->v.width, keys, diagonal, &edges, w->scores, values, s->v.row, out, true, next);
}

/* Sum of a pair -> o and lse. A sink is one more term of the sum. */
static void forward_write(const tm_call *call, const attention_sizes *s, const forward_scratch *w, int64_t sequence,
                          const query_block *q, int64_t place)
{
    const tm_view *sinks = &call->in[4];
    const float   *total = w->total + place * QUERIES, *largest = w->largest + place * QUERIES;
    const float   *out = w->out + place * QUERIES * s->v.width, sink = sinks->data ? sink_of(sinks, q->head) : 0;
    int64_t        at = (sequence * s->seq_q + q->q0) * s->o_row + q->head * s->v.dim;
    float         *lse = (float *)call->out[1].data + (sequence * s->heads + q->head) * s->seq_q + q->q0;
    for (int64_t j = 0; j < q->n; j++) {
        float most = largest[j], sum = total[j], part = 1;
        if (sinks->data) {
            most = sink > most ? sink : most;
            part = expf(largest[j] - most);
            sum = sum * part + expf(sink - most);
        }
        put_row(s, s->v, call->out[0].data, at + j * s->o_row, out + j * s->v.width, sum > 0 ? part / sum : 0.f);
        lse[j] = most + logf(sum);
    }
}

/* A pair that sees no key. */
static void forward_write_empty(const tm_call *call, const attention_sizes *s, int64_t sequence, const query_block *q)
{
    const tm_view *sinks = &call->in[4];
    int64_t        at = (sequence * s->seq_q + q->q0) * s->o_row + q->head * s->v.dim;
    float         *lse = (float *)call->out[1].data + (sequence * s->heads + q->head) * s->seq_q + q->q0;
    put_zeros(s, s->v.dim, call->out[0].data, at, s->o_row, q->n);
    for (int64_t j = 0; j < q->n; j++) lse[j] = sinks->data ? sink_of(sinks, q->head) : -__builtin_inff();
}

/* What comes after this pair, up to `end`, and where its output goes; then the first keys and values of `next_head`. */
static void forward_ahead(const tm_call *call, const attention_sizes *s, int64_t head, int64_t pair, int64_t end,
                          ahead *next)
{
    int64_t     row0 = head / s->kv_heads * s->seq_q;
    query_block q = query_place_of(s, head % s->kv_heads, pair),
                after = query_place_of(s, head % s->kv_heads, pair + 1);
    next->first = 0;
    next->list[0] = rows_ahead_of(s, call->in[0].data, (row0 + after.q0) * s->q_row + after.head * s->qk.dim, s->q_row,
                                  s->qk.dim, pair + 1 < end ? after.n : 0);
    next->list[1] =
        rows_ahead_of(s, call->out[0].data, (row0 + q.q0) * s->o_row + q.head * s->v.dim, s->o_row, s->v.dim, q.n);
}

/* A task: the pairs of one chunk of a head of keys and values (counted through the batch). */
static void forward_task(const tm_call *call, const attention_sizes *s, const forward_scratch *w,
                         const causal_mask *mask, int64_t head, int64_t chunk, int64_t next_head)
{
    const void *queries = call->in[0].data, *keys_in = call->in[1].data, *values_in = call->in[2].data;
    int64_t     begin = chunk * CHUNK, end = tm_min(begin + CHUNK, s->pairs), sequence = head / s->kv_heads;
    int64_t     kv_head = head % s->kv_heads, row0 = sequence * s->seq_q, key0 = sequence * s->seq_k;
    int64_t     next_at = next_head / s->kv_heads * s->seq_k, next_kv = next_head % s->kv_heads;
    int64_t     next_keys = next_head < 0 ? 0 : tm_min(s->block, s->seq_k);
    query_block all = { .begin = s->seq_k }, pairs[CHUNK];
    ahead       next = { .at_once = 4 };
    next.list[2] = rows_ahead_of(s, keys_in, next_at * s->k_row + next_kv * s->qk.dim, s->k_row, s->qk.dim, next_keys);
    next.list[3] = rows_ahead_of(s, values_in, next_at * s->v_row + next_kv * s->v.dim, s->v_row, s->v.dim, next_keys);
    for (int64_t pair = begin; pair < end; pair++) {
        query_block *q = &pairs[pair - begin];
        *q = query_block_of(s, sequence, kv_head, pair);
        all.begin = tm_min(all.begin, q->begin);
        all.end = tm_max(all.end, q->end);
        if (q->end <= q->begin) forward_write_empty(call, s, sequence, q);
    }
    for (int64_t first = 0; first < s->seq_k; first += s->block) {
        int64_t most = keys_seen(s, &all, first), from = keys_passed(&all, first);
        if (most <= 0) break;
        if (from >= most) continue;
        copy_along(s, s->qk, keys_in, (key0 + first + from) * s->k_row + kv_head * s->qk.dim, s->k_row, most - from,
                   tm_round_up(most, STEP) - from, w->keys + from * s->qk.row, s->qk.row);
        copy_across(s, s->v, values_in, (key0 + first + from) * s->v_row + kv_head * s->v.dim, s->v_row, most - from,
                    tm_round_up(most, STEP) - from, w->values + from / PAIR * s->v.row, s->v.row);
        for (int64_t pair = begin; pair < end; pair++) {
            const query_block *q = &pairs[pair - begin];
            int64_t            keys = keys_seen(s, q, first), passed = keys_passed(q, first);
            if (keys <= passed || q->end <= q->begin) continue;
            forward_ahead(call, s, head, pair, end, &next);
            columns_of(s, s->qk, queries, (row0 + q->q0) * s->q_row + q->head * s->qk.dim, s->q_row, q->n, w->rows,
                       w->columns);
            forward_block(s, w, mask, sequence, q, pair - begin, first, passed, keys, &next);
            if (is_last_block(s, q, first)) forward_write(call, s, w, sequence, q, pair - begin);
        }
    }
}

static TM_PLANNED const char *refuse(const tm_call *call)
{
    return attention_refuse(call->attr, call->in, &call->out[0], &call->out[1], &call->in[3], &call->in[4]);
}

static TM_PLANNED size_t workspace(const tm_call *call)
{
    attention_sizes s = sizes_of(call->attr, call->in, &call->in[3]);
    return scratch_bytes(call, forward_floats(&s));
}

static void run_tasks(const tm_call *call, const attention_sizes *s, const tm_view *table, int64_t max_distance)
{
    int64_t heads = s->batch * s->kv_heads, tasks = heads * s->chunks;
    size_t  floats = forward_floats(s), own = floats + (table ? 2 * (size_t)distances_of(s) : 0);
#pragma omp parallel num_threads(call->threads)
    {
        float          *scratch = scratch_of(call, own, omp_get_thread_num());
        forward_scratch w = forward_scratch_of(s, scratch);
        relative_bias   bias = { table, (int32_t *)(void *)(scratch + floats) };
        causal_mask     mask;
        causal_mask_fill(&mask);
        if (table) {
            w.bias = scratch + floats + distances_of(s);
            relative_bias_begin(s, max_distance, &bias);
        }
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < tasks; task++) { /* late chunks see more keys: they start first */
            int64_t after = task + call->threads;      /* likely this thread's next one */
            if (table) relative_bias_fill(s, &bias, task % heads % s->heads, w.bias);
            forward_task(call, s, &w, &mask, task % heads, s->chunks - 1 - task / heads,
                         after < tasks ? after % heads : -1);
        }
    }
}

static void run(const tm_call *call)
{
    attention_sizes s = sizes_of(call->attr, call->in, &call->in[3]);
    run_tasks(call, &s, NULL, 0);
}

/* ---- relative_attention ---- */

/* The call of attention that differs by the bias alone. */
static TM_PLANNED tm_call without_bias(const tm_call *call, tm_attention_attr *attr)
{
    const tm_relative_attr *own = call->attr;
    tm_call                 plain = *call;
    *attr = (tm_attention_attr){ .seq_q = own->seq,
                                 .seq_k = own->seq,
                                 .heads = own->heads,
                                 .kv_heads = own->heads,
                                 .dim_qk = own->dim,
                                 .dim_v = own->dim,
                                 .scale = own->scale };
    plain.attr = attr;
    plain.in[3] = plain.in[4] = (tm_view){ .shape = { .rank = -1 } };
    return plain;
}

static TM_PLANNED const char *relative_refuse(const tm_call *call)
{
    tm_attention_attr attr;
    tm_call           plain = without_bias(call, &attr);
    return tm_is_float(&call->in[3]) ? refuse(&plain) : "needs a float32 or bfloat16 table";
}

static TM_PLANNED size_t relative_workspace(const tm_call *call)
{
    tm_attention_attr attr;
    tm_call           plain = without_bias(call, &attr);
    attention_sizes   s = sizes_of(&attr, plain.in, &plain.in[3]);
    return scratch_bytes(call, forward_floats(&s) + 2 * (size_t)distances_of(&s));
}

static void relative_run(const tm_call *call)
{
    tm_attention_attr attr;
    tm_call           plain = without_bias(call, &attr);
    attention_sizes   s = sizes_of(&attr, plain.in, &plain.in[3]);
    run_tasks(&plain, &s, &call->in[3], ((const tm_relative_attr *)call->attr)->max_distance);
}

const tm_kernel TM_K(tm_cpu_attention)[] = {
    TM_KERNEL(attention, "attention/", refuse, workspace, run),
    TM_KERNEL(attention_grad, "attention_grad/", TM_K(attention_grad_refuse), TM_K(attention_grad_workspace),
              TM_K(attention_grad_run)),
    TM_KERNEL(relative_attention, "relative_attention/", relative_refuse, relative_workspace, relative_run),
    { .name = NULL },
};
