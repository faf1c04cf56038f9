/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/attention.h - what the forward and the backward kernel of attention share: the sizes of a call, the
 * register tile and its three products, copies of heads into float32 scratch, the causal mask.
 *
 * Lanes are queries: 32 queries at a time hold the transposed scores S^T (keys, 32), so maxima and sums over keys need
 * no horizontal step. S^T comes from row-major K and a transposed block of queries; O = P V and dQ = dS K read P and dS
 * by broadcast from their transposes and row-major V and K; dV = P^T dO and dK = dS^T Q read them row by row. Only
 * blocks of 32 queries are ever transposed.
 *
 * Orders of summation, the same for every instruction set: a product over head elements is one chain of multiply-adds
 * in ascending order; one over keys is a chain inside each block of `block` keys, block sums added in ascending order;
 * one over queries is a chain inside each block of 32 queries, block sums added with ascending position, then head.
 * Nothing depends on threads, on tasks or on the other sequences of the batch. With bfloat16, P and dS are rounded to
 * it before they are multiplied, and all products are of bfloat16 (attention_pairs.h).
 */
#ifndef TM_DEVICE_CPU_ATTENTION_H
#define TM_DEVICE_CPU_ATTENTION_H

#include "device/cpu/simd/common.h"
#include "op/attrs.h"
#include "op/op.h"

enum {
    QUERIES = 32, /* a block of queries: two vectors of lanes */
    STEP = 8,     /* rows are padded to this, and the diagonal of a causal mask is cut in such steps */
    CHUNK = 16,   /* (query block, head) pairs that share one copy of keys and values in a task */
    AHEAD = 16,   /* rows of keys and values are asked for this early */
    AHEAD_LISTS = 4,
    MAX_HEAD_DIM = 512,     /* elements: 512 has the autoencoder of FLUX.1, for all pixels at once */
    MAX_HEAD_DIM_GRAD = 256 /* likewise, of gradients */
};

#if defined(__AVX512F__)
enum { TILE_ROWS = 8, TILE_VECTORS = 2 }; /* 16 of 32 registers accumulate */
#else
enum { TILE_ROWS = 4, TILE_VECTORS = 1 }; /* 8 of the 16 registers of AVX2 */
#endif

typedef struct {
    int64_t dim;   /* D: elements */
    int64_t width; /* D rounded up to whole vectors; the lanes past D are zero */
    int64_t row;   /* floats between rows of keys or values in scratch: an odd number of cache lines */
} head_size;

typedef struct {
    int64_t   batch, seq_q, seq_k, heads, kv_heads, group; /* B, queries and keys of a sequence, H, J, H / J */
    head_size qk, v;
    int64_t   block;  /* keys and values copied at a time: a multiple of QUERIES that depends on the head sizes only */
    int64_t   blocks; /* of keys */
    int64_t   block_rows; /* rows of scratch: `block`, or all keys, rounded up, where that is less */
    int64_t   pairs;      /* (query block, head) pairs of a key/value head: query blocks ascending, then heads */
    int64_t   chunks;     /* of CHUNK pairs */
    int64_t   q_row, k_row, v_row, o_row; /* elements between rows of the tensors; of gradients: see there */
    bool      causal;
    int64_t   offset;         /* position of the first query */
    int64_t   window;         /* keys that a query sees, its own and those before it; huge: all */
    const int32_t *first_key; /* (B, queries), or NULL */
    int64_t        key0;      /* what its numbers begin with here */
    float          scale;
    float          column_scale, score_scale; /* where the scale goes: to what is bfloat16 not before the product */
    tm_dtype       dtype;
} attention_sizes;

TM_INLINE TM_PLANNED head_size head_size_of(int64_t dim)
{
    int64_t width = tm_round_up(dim, TM_LANES);
    return (head_size){ dim, width, (width / TM_LANES | 1) * TM_LANES };
}

/* The first three: q, k, v. `first_key` may be absent. */
TM_INLINE TM_PLANNED attention_sizes sizes_of(const tm_attention_attr *attr, const tm_view *qkv,
                                              const tm_view *first_key)
{
    attention_sizes s = {
        .seq_q = attr->seq_q, .seq_k = attr->seq_k, .heads = attr->heads, .kv_heads = attr->kv_heads
    };
    s.batch = qkv[0].shape.n[0] / s.seq_q;
    s.group = s.heads / s.kv_heads;
    s.qk = head_size_of(attr->dim_qk);
    s.v = head_size_of(attr->dim_v);
    int64_t width = tm_max(s.qk.width, s.v.width);
    s.block = width <= 64 ? 512 : width <= 128 ? 256 : width <= 256 ? 128 : 64;
    s.blocks = (s.seq_k + s.block - 1) / s.block;
    s.block_rows = tm_min(s.block, tm_round_up(s.seq_k, QUERIES));
    s.pairs = (s.seq_q + QUERIES - 1) / QUERIES * s.group;
    s.chunks = (s.pairs + CHUNK - 1) / CHUNK;
    s.q_row = tm_view_ld(&qkv[0]);
    s.k_row = tm_view_ld(&qkv[1]);
    s.v_row = tm_view_ld(&qkv[2]);
    s.o_row = s.heads * s.v.dim;
    s.causal = attr->causal != 0;
    s.offset = attr->q_offset;
    s.window = attr->window > 0 ? attr->window : INT64_MAX / 4;
    s.first_key = first_key->data;
    s.key0 = attr->key0;
    s.scale = (float)attr->scale;
    s.dtype = qkv[0].dtype;
    s.column_scale = s.dtype == TM_BF16 ? 1 : s.scale;
    s.score_scale = s.dtype == TM_BF16 ? s.scale : 1;
    return s;
}

/* Where the pair stands: its first query, how many queries it has, its head; the keys begin .. end - 1 hold all that
 * its queries see (end <= begin: they see none). */
typedef struct {
    int64_t q0, n, head, begin, end;
} query_block;

/* The first key that a query sees, if it sees any. */
TM_INLINE int64_t first_key_of(const attention_sizes *s, int64_t sequence, int64_t query)
{
    int64_t first = tm_max(0, s->offset + query - s->window + 1);
    return s->first_key ? tm_max(first, s->first_key[sequence * s->seq_q + query] - s->key0) : first;
}

/* Without `begin` and `end`. */
TM_INLINE query_block query_place_of(const attention_sizes *s, int64_t kv_head, int64_t pair)
{
    int64_t q0 = pair / s->group * QUERIES;
    return (query_block){ q0, tm_min(QUERIES, s->seq_q - q0), kv_head * s->group + pair % s->group, 0, 0 };
}

TM_INLINE query_block query_block_of(const attention_sizes *s, int64_t sequence, int64_t kv_head, int64_t pair)
{
    query_block q = query_place_of(s, kv_head, pair);
    q.end = s->causal ? tm_min(s->seq_k, s->offset + q.q0 + q.n) : s->seq_k;
    q.begin = first_key_of(s, sequence, q.q0);
    for (int64_t j = 1; s->first_key && j < q.n; j++) q.begin = tm_min(q.begin, first_key_of(s, sequence, q.q0 + j));
    return q;
}

/* How many of the keys first .. first + block - 1 some query of the pair sees; <= 0: none. */
TM_INLINE int64_t keys_seen(const attention_sizes *s, const query_block *q, int64_t first)
{
    return tm_min(s->block, q->end - first);
}

/* How many of them, from the first on, no query of the pair sees, less what makes it no multiple of STEP. May be more
 * than the block has. */
TM_INLINE int64_t keys_passed(const query_block *q, int64_t first)
{
    return tm_max(0, q->begin - first) / STEP * STEP;
}

/* No earlier block holds keys that the pair sees. */
TM_INLINE bool is_first_block(const query_block *q, int64_t first)
{
    return first <= q->begin;
}

/* No later block holds keys that the pair sees. */
TM_INLINE bool is_last_block(const attention_sizes *s, const query_block *q, int64_t first)
{
    return first + s->block >= q->end;
}

/* ---- rows asked for ahead of their use ---- */

/* Rows of heads lie far apart, the hardware does not foresee them, and a burst of prefetches is dropped: rows that will
 * be needed are asked for a few at a time, between the tiles of a product. */
typedef struct {
    const char *at;
    int64_t     stride, bytes, rows; /* bytes between rows, bytes of a row, rows left */
} rows_ahead;

typedef struct {
    rows_ahead list[AHEAD_LISTS]; /* emptied in this order */
    int        first, at_once;    /* rows between two tiles */
} ahead;

/* n rows of a head of `dim` elements, the first at element `at` of x */
TM_INLINE rows_ahead rows_ahead_of(const attention_sizes *s, const void *x, int64_t at, int64_t stride, int64_t dim,
                                   int64_t n)
{
    const int64_t size = s->dtype == TM_BF16 ? 2 : 4;
    if (n <= 0) return (rows_ahead){ NULL, 0, 0, 0 };
    return (rows_ahead){ (const char *)x + at * size, stride * size, dim * size, n };
}
TM_INLINE void ask_for_row(rows_ahead *a)
{
    for (int64_t byte = 0; byte < a->bytes; byte += 64) __builtin_prefetch(a->at + byte, 0, 3);
    a->at += a->stride;
    a->rows--;
}
TM_INLINE void ask_for_rows(ahead *a)
{
    for (int i = 0; i < a->at_once; i++) {
        while (a->first < AHEAD_LISTS && a->list[a->first].rows <= 0) a->first++;
        if (a->first == AHEAD_LISTS) return;
        ask_for_row(&a->list[a->first]);
    }
}

/* ---- copies ---- */

TM_INLINE void copy_rows_as(tm_dtype dtype, const attention_sizes *s, head_size head, const void *x, int64_t at,
                            int64_t stride, int64_t n, int64_t padded, float *out, int64_t row)
{
    rows_ahead next = rows_ahead_of(s, x, at + AHEAD * stride, stride, head.dim, n - AHEAD);
    for (int64_t t = 0; t < n; t++) {
        if (next.rows > 0) ask_for_row(&next);
        for (int64_t d = 0; d < head.width; d += TM_LANES)
            v16_store(out + t * row + d, v16_get(x, dtype, at + t * stride + d, head.dim - d));
    }
    memset(out + n * row, 0, (size_t)((padded - n) * row) * sizeof(float));
}
/* n rows of a head, the first at element `at` of x -> out (padded, row), the rest zero. A tight loop on purpose: these
 * reads come from memory, and many must be under way at a time. */
TM_INLINE void copy_rows(const attention_sizes *s, head_size head, const void *x, int64_t at, int64_t stride, int64_t n,
                         int64_t padded, float *out, int64_t row)
{
    if (s->dtype == TM_BF16)
        copy_rows_as(TM_BF16, s, head, x, at, stride, n, padded, out, row);
    else
        copy_rows_as(TM_F32, s, head, x, at, stride, n, padded, out, row);
}

/* rows (32, width) -> columns (width, 32) = scale rows^T */
TM_INLINE void transpose_queries(int64_t width, const float *rows, float scale, float *columns)
{
    v16 factor = v16_set1(scale), r[16];
    for (int64_t d = 0; d < width; d += TM_LANES)
        for (int64_t j = 0; j < QUERIES; j += TM_LANES) {
#pragma GCC unroll 16
            for (int64_t i = 0; i < 16; i++) r[i] = v16_load(rows + (j + i) * width + d);
            tm_transpose16(r);
#pragma GCC unroll 16
            for (int64_t i = 0; i < 16; i++) v16_store(columns + (d + i) * QUERIES + j, v16_mul(r[i], factor));
        }
}

#include "device/cpu/simd/attention_pairs.h"

/* ---- products ---- */

/* c (TILE_ROWS, 16 vectors) = or += factor times the sum over k slots of a[i rs + k cs] b[k ldb + j] */
TM_INLINE void tile(int vectors, int64_t k, const float *a, int64_t rs, int64_t cs, const float *b, int64_t ldb,
                    float *c, int64_t ldc, bool add, float factor)
{
    v16 r[TILE_ROWS][TILE_VECTORS];
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) r[i][v] = v16_zero();
    for (; k > 0; k--, a += cs, b += ldb) {
        v16 bv[TILE_VECTORS];
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) bv[v] = v16_load(b + TM_LANES * v);
#pragma GCC unroll 8
        for (int i = 0; i < TILE_ROWS; i++) {
            v16 av = v16_set1(a[i * rs]);
#pragma GCC unroll 2
            for (int v = 0; v < vectors; v++) r[i][v] = multiply_add(av, bv[v], r[i][v]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            float *p = c + i * ldc + TM_LANES * v;
            v16    sum = v16_mul(r[i][v], v16_set1(factor));
            v16_store(p, add ? v16_add(v16_load(p), sum) : sum);
        }
}

/* scores (keys, 32) = factor rows (keys, width) columns (width, 32), slots along the rows; keys a multiple of STEP */
static __attribute__((noinline, unused)) void product_scores(int64_t keys, int64_t width, const float *rows,
                                                             int64_t row, const float *columns, float factor,
                                                             float *scores, ahead *next)
{
    for (int64_t j = 0; j < QUERIES; j += TM_LANES * TILE_VECTORS)
        for (int64_t i = 0; i < keys; i += TILE_ROWS) {
            ask_for_rows(next);
            tile(TILE_VECTORS, width / PAIR, rows + i * row, row, 1, columns + j, QUERIES, scores + i * QUERIES + j,
                 QUERIES, false, factor);
        }
}

/* Where the lanes' first keys lie, counted from some row of scratch: what a window or documents hide. */
typedef struct {
    float   from[QUERIES];         /* rows before it are hidden from the lane */
    int64_t cut;                   /* rows from here on are hidden from none */
    int64_t start[QUERIES / STEP]; /* rows before it are hidden from all lanes of a step */
    bool    apart[QUERIES / STEP]; /* lanes of the step belong to several documents */
} lane_edges;

TM_INLINE lane_edges lane_edges_of(const attention_sizes *s, int64_t sequence, const query_block *q, int64_t row)
{
    lane_edges e = { .cut = 0 };
    if (!s->first_key && s->window >= s->offset + q->q0 + q->n - row) return e; /* the window begins before the row */
    for (int64_t j = 0; j < QUERIES; j++) {
        int64_t lane = tm_min(j, q->n - 1), step = j / STEP, query = q->q0 + lane; /* missing lanes: as the last */
        int64_t from = tm_min(tm_max(0, first_key_of(s, sequence, query) - row), s->block);
        e.from[j] = (float)from;
        e.cut = tm_max(e.cut, from);
        e.start[step] = j % STEP ? tm_min(e.start[step], from) : from;
        if (s->first_key && j % STEP && lane == j) {
            const int32_t *key = s->first_key + sequence * s->seq_q + query;
            e.apart[step] |= key[0] != key[-1];
        }
    }
    return e;
}

/* Row t for 16 lanes: infinity where the lane sees it, else -infinity. */
TM_INLINE v16 edge_limit(const lane_edges *e, int64_t t, int vector)
{
    v16 beyond = v16_sub(v16_set1((float)t + 0.5f), v16_load(e->from + TM_LANES * vector));
    return v16_mul(beyond, v16_set1(__builtin_inff()));
}

/* out (width) = or += sum over keys from .. end - 1 of one lane's weights times rows: nothing else is touched. */
static __attribute__((noinline, unused)) void product_query(int64_t from, int64_t end, int64_t width,
                                                            const float *weights, int64_t lane, const float *rows,
                                                            int64_t row, float *out, bool add)
{
    for (int64_t j = 0; j < width; j += TM_LANES) {
        v16 sum = v16_zero();
        for (int64_t t = from; t < end; t++)
            sum = v16_fma(v16_set1(weight_across(weights, t, lane)), term_across(rows + t / PAIR * row + j, t), sum);
        v16_store(out + j, add ? v16_add(v16_load(out + j), sum) : sum);
    }
}

/* Keys before this one meet the step of lane i. */
TM_INLINE int64_t keys_of_step(int64_t keys, int64_t diagonal, int64_t i)
{
    return tm_min(keys, diagonal + i / STEP * STEP + STEP);
}
TM_INLINE bool lanes_apart(const attention_sizes *s, const lane_edges *edges, int64_t keys, int64_t diagonal, int64_t i)
{
    bool odd = (edges->start[i / STEP] | keys_of_step(keys, diagonal, i)) & 1;
    return edges->apart[i / STEP] || (s->dtype == TM_BF16 && odd);
}

/* out (n, width) = or += weights^T rows: weights (keys, 32), rows (keys, width). Query i meets keys from its edge to
 * diagonal + i, in steps of STEP (other weights are zero); a large diagonal: all. n a multiple of STEP. Where documents
 * meet inside a step, each lane goes by itself: a row that it does not see may hold anything, also what is no number.
 * With bfloat16 also where the keys of a step do not fill their slots.
 */
TM_INLINE void product_queries(const attention_sizes *s, int64_t n, int64_t width, int64_t keys, int64_t diagonal,
                               const lane_edges *edges, const float *weights, const float *rows, int64_t row,
                               float *out, bool add, ahead *next)
{
    for (int64_t j = 0; j < width; j += TM_LANES * TILE_VECTORS)
        for (int64_t i = 0; i < n; i += TILE_ROWS) {
            ask_for_rows(next);
            int64_t      from = edges->start[i / STEP], k = keys_of_step(keys, diagonal, i) - from;
            const float *a = weights + from / PAIR * QUERIES + i, *b = rows + from / PAIR * row + j;
            if (lanes_apart(s, edges, keys, diagonal, i))
                continue;
            else if (width - j < TM_LANES * TILE_VECTORS)
                tile(1, k / PAIR, a, 1, QUERIES, b, row, out + i * width + j, width, add, 1);
            else
                tile(TILE_VECTORS, k / PAIR, a, 1, QUERIES, b, row, out + i * width + j, width, add, 1);
        }
    for (int64_t i = 0; i < n; i++)
        if (lanes_apart(s, edges, keys, diagonal, i))
            product_query((int64_t)edges->from[i], tm_min(keys, diagonal + i + 1), width, weights, i, rows, row,
                          out + i * width, add);
}

/* out (keys, width) += weights queries: weights (keys, 32), queries (32, width). Key i meets queries i - diagonal ..
 * 31, in steps of STEP (weights before are zero). keys a multiple of STEP. */
static __attribute__((noinline, unused)) void product_keys(int64_t keys, int64_t width, int64_t diagonal,
                                                           const float *weights, const float *queries, float *out,
                                                           int64_t row, ahead *next)
{
    for (int64_t j = 0; j < width; j += TM_LANES * TILE_VECTORS)
        for (int64_t i = 0; i < keys; i += TILE_ROWS) {
            ask_for_rows(next);
            int64_t      from = tm_max(0, (i - diagonal) / STEP * STEP) / PAIR, k = QUERIES / PAIR - from;
            const float *a = weights + i * (QUERIES / PAIR) + from, *b = queries + from * width + j;
            if (width - j < TM_LANES * TILE_VECTORS)
                tile(1, k, a, QUERIES / PAIR, 1, b, width, out + i * row + j, row, true, 1);
            else
                tile(TILE_VECTORS, k, a, QUERIES / PAIR, 1, b, width, out + i * row + j, row, true, 1);
        }
}

/* Row (width) of float32 -> D elements at element `at` of a tensor of s->dtype. */
TM_INLINE void put_row(const attention_sizes *s, head_size head, void *x, int64_t at, const float *row, float factor)
{
    for (int64_t d = 0; d < head.width; d += TM_LANES) {
        v16 v = v16_mul(v16_load(row + d), v16_set1(factor));
        if (s->dtype == TM_BF16)
            v16_put(x, TM_BF16, at + d, v, head.dim - d);
        else
            v16_put(x, TM_F32, at + d, v, head.dim - d);
    }
}
/* n rows of zeros, for queries that see no key */
TM_INLINE void put_zeros(const attention_sizes *s, int64_t dim, void *x, int64_t at, int64_t stride, int64_t n)
{
    const int64_t size = s->dtype == TM_BF16 ? 2 : 4;
    for (int64_t j = 0; j < n; j++) memset((char *)x + (at + j * stride) * size, 0, (size_t)(dim * size));
}

/* ---- mask ---- */

/* The causal mask of a row of scores: the key at position q0 + r is visible to lanes j >= r. Loading 16 floats at
 * place(r, v) gives the mask of vector v: infinity (to take the minimum with) and one (to multiply by) where visible,
 * else -infinity and 0.
 */
typedef struct {
    float limit[3 * QUERIES], factor[3 * QUERIES]; /* r < 2 QUERIES: rows are rounded up to STEP */
} causal_mask;

TM_INLINE void causal_mask_fill(causal_mask *m)
{
    for (int i = 0; i < 3 * QUERIES; i++) {
        m->limit[i] = i < 2 * QUERIES ? -__builtin_inff() : __builtin_inff();
        m->factor[i] = i < 2 * QUERIES ? 0.f : 1.f;
    }
}
TM_INLINE int64_t causal_mask_place(int64_t r, int vector)
{
    return 2 * QUERIES - r + TM_LANES * vector;
}

/* Why no kernel takes the call, or NULL. `qkv`: q, k, v. */
TM_INLINE TM_PLANNED const char *attention_refuse(const tm_attention_attr *attr, const tm_view *qkv, const tm_view *o,
                                                  const tm_view *lse, const tm_view *first_key, const tm_view *sinks)
{
    if (!tm_is_float(o)) return "needs float32 or bfloat16 activations";
    if (TM_PAIRS && o->dtype != TM_BF16) return "needs bfloat16 activations";
    for (int k = 0; k < 3; k++)
        if (qkv[k].dtype != o->dtype) return "needs activations of one format";
    if (lse->dtype != TM_F32) return "needs a float32 lse";
    if (tm_view_present(first_key) && first_key->dtype != TM_I32) return "needs int32 first keys";
    if (tm_view_present(sinks) && !tm_is_float(sinks)) return "needs float32 or bfloat16 sinks";
    return tm_max(attr->dim_qk, attr->dim_v) > MAX_HEAD_DIM ? "needs heads of at most 512 elements" : NULL;
}
TM_INLINE float sink_of(const tm_view *sinks, int64_t head)
{
    float f[TM_LANES];
    v16_store(f, v16_get(sinks->data, sinks->dtype, head, 1));
    return f[0];
}

/* This thread's part of the workspace; parts are whole cache lines. */
TM_INLINE float *scratch_of(const tm_call *call, size_t thread_floats, int thread)
{
    uintptr_t base = ((uintptr_t)call->workspace + 63) / 64 * 64;
    return (float *)base + (size_t)thread * thread_floats;
}
TM_INLINE TM_PLANNED size_t scratch_bytes(const tm_call *call, size_t thread_floats)
{
    return (size_t)(call->threads > 0 ? call->threads : 1) * thread_floats * sizeof(float) + 63;
}

#define TM_ATTENTION_GRAD_ROW(isa)                                                                                     \
    const char *TM_JOIN(attention_grad_refuse, isa)(const tm_call *call);                                              \
    size_t      TM_JOIN(attention_grad_workspace, isa)(const tm_call *call);                                           \
    void        TM_JOIN(attention_grad_run, isa)(const tm_call *call)
TM_ATTENTION_GRAD_ROW(TM_ISA);

#endif
