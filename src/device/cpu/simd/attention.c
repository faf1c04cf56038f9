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
 */
#include "device/cpu/simd/attention.h"

#include "device/cpu/simd/kernels.h"

#include <math.h>
#include <omp.h>

/* Scratch of one thread. */
typedef struct {
    float *keys, *values;   /* (block_rows, row) */
    float *scores;          /* (block_rows, 32) */
    float *rows, *columns;  /* (32, width): queries; (width, 32): the same, scaled and transposed */
    float *out;             /* CHUNK of (32, width) */
    float *largest, *total; /* CHUNK of 32: m and s */
} forward_scratch;

static size_t forward_floats(const attention_sizes *s)
{
    return (size_t)(2 * s->block_rows * s->row + s->block_rows * QUERIES + 2 * s->width * QUERIES +
                    CHUNK * QUERIES * (s->width + 2));
}

static forward_scratch forward_scratch_of(const attention_sizes *s, float *p)
{
    forward_scratch w;
    w.keys = p, p += s->block_rows * s->row;
    w.values = p, p += s->block_rows * s->row;
    w.scores = p, p += s->block_rows * QUERIES;
    w.rows = p, p += s->width * QUERIES;
    w.columns = p, p += s->width * QUERIES;
    w.out = p, p += CHUNK * QUERIES * s->width;
    w.largest = p, p += CHUNK * QUERIES;
    w.total = p;
    return w;
}

/* A row that the window's edge cuts, and perhaps the diagonal: its scores with -infinity where a lane does not see it,
 * and 1 or 0. */
TM_INLINE v16 window_row(const float *scores, int64_t t, int64_t diagonal, int64_t edge, int vector,
                         const causal_mask *mask, v16 *seen)
{
    int64_t place = window_mask_place(t - edge, vector);
    v16     x = v16_min(v16_load(scores + t * QUERIES), v16_load(mask->window_limit + place));
    *seen = v16_load(mask->window_factor + place);
    if (t <= diagonal) return x;
    place = causal_mask_place(t - diagonal, vector);
    *seen = v16_mul(*seen, v16_load(mask->factor + place));
    return v16_min(x, v16_load(mask->limit + place));
}

/* Scores of one vector of lanes -> weights relative to the new maximum; rows `diagonal` + 1 and later are masked, and
 * those before `edge` + 32. Updates maximum and sum; returns the factor for what was summed before. The least maximum
 * is finite: a lane may see no key of the first block, and infinity less infinity is no number. */
TM_INLINE v16 weigh(float *scores, int64_t keys, int64_t diagonal, int64_t edge, int vector, const causal_mask *mask,
                    bool first, float *largest, float *total)
{
    const v16 least = v16_set1(-3e38f);
    int64_t   plain = tm_min(keys, diagonal + 1), cut = tm_min(keys, tm_max(0, edge + QUERIES));
    int64_t   rest = tm_max(plain, cut);
    v16       m0 = first ? least : v16_load(largest), m1 = m0, old = m0, sum = v16_zero(), seen;
    for (int64_t t = 0; t < cut; t++) m1 = v16_max(m1, window_row(scores, t, diagonal, edge, vector, mask, &seen));
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
        v16 x = window_row(scores, t, diagonal, edge, vector, mask, &seen);
        v16 e = v16_mul(v16_exp(v16_sub(x, m0)), seen);
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
static void forward_block(const attention_sizes *s, const forward_scratch *w, const causal_mask *mask,
                          const query_block *q, int64_t place, int64_t block, int64_t passed, int64_t keys, ahead *next)
{
    int64_t n = tm_round_up(q->n, STEP), diagonal = s->causal ? q->q0 - block - passed : keys;
    int64_t edge = q->q0 - s->window - block - passed;
    bool    first = is_first_block(s, q, block);
    float  *out = w->out + place * QUERIES * s->width, factor[QUERIES];
    float  *rows = w->keys + passed * s->row, *values = w->values + passed * s->row;
    keys -= passed;
    product_scores(tm_round_up(keys, STEP), s->width, rows, s->row, w->columns, w->scores, next);
    for (int v = 0; v < 2; v++) {
        int64_t lane = TM_LANES * v, at = place * QUERIES + lane;
        v16_store(factor + lane,
                  weigh(w->scores + lane, keys, diagonal, edge, v, mask, first, w->largest + at, w->total + at));
    }
    if (first) {
        product_queries(n, s->width, keys, diagonal, w->scores, values, s->row, out, false, next);
        return;
    }
    for (int64_t j = 0; j < n; j++)
        for (int64_t d = 0; d < s->width; d += TM_LANES) {
            float *p = out + j * s->width + d;
            v16_store(p, v16_mul(v16_load(p), v16_set1(factor[j])));
        }
    product_queries(n, s->width, keys, diagonal, w->scores, values, s->row, out, true, next);
}

/* Sum of a pair -> o and lse. */
static void forward_write(const tm_call *call, const attention_sizes *s, const forward_scratch *w, int64_t sequence,
                          const query_block *q, int64_t place)
{
    const float *total = w->total + place * QUERIES, *largest = w->largest + place * QUERIES;
    const float *out = w->out + place * QUERIES * s->width;
    int64_t      at = (sequence * s->seq + q->q0) * s->o_row + q->head * s->dim;
    float       *lse = (float *)call->out[1].data + (sequence * s->heads + q->head) * s->seq + q->q0;
    for (int64_t j = 0; j < q->n; j++) {
        put_row(s, call->out[0].data, at + j * s->o_row, out + j * s->width, 1.f / total[j]);
        lse[j] = largest[j] + logf(total[j]);
    }
}

/* What comes after this pair, up to `end`, and where its output goes; then the first keys and values of `next_head`. */
static void forward_ahead(const tm_call *call, const attention_sizes *s, int64_t head, int64_t pair, int64_t end,
                          ahead *next)
{
    int64_t     row0 = head / s->kv_heads * s->seq;
    query_block q = query_block_of(s, head % s->kv_heads, pair),
                after = query_block_of(s, head % s->kv_heads, pair + 1);
    next->first = 0;
    next->list[0] = rows_ahead_of(s, call->in[0].data, (row0 + after.q0) * s->qkv_row + after.head * s->dim, s->qkv_row,
                                  pair + 1 < end ? after.n : 0);
    next->list[1] = rows_ahead_of(s, call->out[0].data, (row0 + q.q0) * s->o_row + q.head * s->dim, s->o_row, q.n);
}

/* A task: the pairs of one chunk of a head of keys and values (counted through the batch). */
static void forward_task(const tm_call *call, const attention_sizes *s, const forward_scratch *w,
                         const causal_mask *mask, int64_t head, int64_t chunk, int64_t next_head)
{
    const void *qkv = call->in[0].data;
    int64_t     begin = chunk * CHUNK, end = tm_min(begin + CHUNK, s->pairs), sequence = head / s->kv_heads;
    int64_t     kv_head = head % s->kv_heads, row0 = sequence * s->seq, v_after_k = s->kv_heads * s->dim;
    query_block first_pair = query_block_of(s, kv_head, begin), last_pair = query_block_of(s, kv_head, end - 1);
    ahead       next = { .at_once = 4 };
    int64_t     next_at = next_head / s->kv_heads * s->seq * s->qkv_row + (s->heads + next_head % s->kv_heads) * s->dim;
    int64_t     next_keys = next_head < 0 ? 0 : tm_min(s->block, s->seq);
    next.list[2] = rows_ahead_of(s, qkv, next_at, s->qkv_row, next_keys);
    next.list[3] = rows_ahead_of(s, qkv, next_at + v_after_k, s->qkv_row, next_keys);
    for (int64_t first = 0; first < s->seq; first += s->block) {
        int64_t most = keys_seen(s, &last_pair, first),
                at = (row0 + first) * s->qkv_row + (s->heads + kv_head) * s->dim;
        if (most <= 0) break;
        if (keys_passed(s, &first_pair, first) >= most) continue;
        copy_rows(s, qkv, at, s->qkv_row, most, tm_round_up(most, STEP), w->keys, s->row);
        copy_rows(s, qkv, at + v_after_k, s->qkv_row, most, tm_round_up(most, STEP), w->values, s->row);
        for (int64_t pair = begin; pair < end; pair++) {
            query_block q = query_block_of(s, kv_head, pair);
            int64_t     keys = keys_seen(s, &q, first), passed = keys_passed(s, &q, first);
            if (keys <= passed) continue;
            forward_ahead(call, s, head, pair, end, &next);
            copy_rows(s, qkv, (row0 + q.q0) * s->qkv_row + q.head * s->dim, s->qkv_row, q.n, QUERIES, w->rows,
                      s->width);
            transpose_queries(s->width, w->rows, s->scale, w->columns);
            forward_block(s, w, mask, &q, pair - begin, first, passed, keys, &next);
            if (is_last_block(s, &q, first)) forward_write(call, s, w, sequence, &q, pair - begin);
        }
    }
}

static const char *refuse(const tm_call *call)
{
    return attention_refuse(call->attr, &call->in[0], &call->out[0], &call->out[1]);
}

static size_t workspace(const tm_call *call)
{
    attention_sizes s = sizes_of(call->attr, &call->out[0]);
    return scratch_bytes(call, forward_floats(&s));
}

static void run(const tm_call *call)
{
    attention_sizes s = sizes_of(call->attr, &call->out[0]);
    int64_t         heads = s.batch * s.kv_heads, tasks = heads * s.chunks;
#pragma omp parallel num_threads(call->threads)
    {
        forward_scratch w = forward_scratch_of(&s, scratch_of(call, forward_floats(&s), omp_get_thread_num()));
        causal_mask     mask;
        causal_mask_fill(&mask);
#pragma omp for schedule(dynamic, 1)
        for (int64_t task = 0; task < tasks; task++) { /* late chunks see more keys: they start first */
            int64_t after = task + call->threads;      /* likely this thread's next one */
            forward_task(call, &s, &w, &mask, task % heads, s.chunks - 1 - task / heads,
                         after < tasks ? after % heads : -1);
        }
    }
}

const tm_kernel TM_K(tm_cpu_attention)[] = {
    TM_KERNEL(attention, "attention/", refuse, workspace, run),
    TM_KERNEL(attention_grad, "attention_grad/", TM_K(attention_grad_refuse), TM_K(attention_grad_workspace),
              TM_K(attention_grad_run)),
    { .run = NULL },
};
