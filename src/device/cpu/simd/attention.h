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
 * Nothing depends on threads, on tasks or on the other sequences of the batch.
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
    MAX_HEAD_DIM = 256
};

#if defined(__AVX512F__)
enum { TILE_ROWS = 8, TILE_VECTORS = 2 }; /* 16 of 32 registers accumulate */
#else
enum { TILE_ROWS = 4, TILE_VECTORS = 1 }; /* 8 of the 16 registers of AVX2 */
#endif

typedef struct {
    int64_t  batch, seq, heads, kv_heads, group, dim; /* B, T, H, J, H / J, D */
    int64_t  width;                                   /* D rounded up to whole vectors; the lanes past D are zero */
    int64_t  row;            /* floats between rows of keys or values in scratch: an odd number of cache lines */
    int64_t  block;          /* keys and values copied at a time: a multiple of QUERIES that depends on D only */
    int64_t  blocks;         /* of keys */
    int64_t  block_rows;     /* rows of scratch: `block`, or T rounded up where that is less */
    int64_t  pairs;          /* (query block, head) pairs of a key/value head: query blocks ascending, then heads */
    int64_t  chunks;         /* of CHUNK pairs */
    int64_t  qkv_row, o_row; /* elements between rows */
    bool     causal;
    int64_t  window; /* keys that a query sees, its own and those before it; huge: all */
    float    scale;
    tm_dtype dtype;
} attention_sizes;

/* `o` is the view whose rows are (N, H D). */
TM_INLINE attention_sizes sizes_of(const tm_attention_attr *attr, const tm_view *o)
{
    attention_sizes s = { .seq = attr->seq, .heads = attr->heads, .kv_heads = attr->kv_heads, .dim = attr->head_dim };
    s.batch = o->shape.n[0] / s.seq;
    s.group = s.heads / s.kv_heads;
    s.width = tm_round_up(s.dim, TM_LANES);
    s.row = (s.width / TM_LANES | 1) * TM_LANES;
    s.block = s.width <= 64 ? 512 : s.width <= 128 ? 256 : 128;
    s.blocks = (s.seq + s.block - 1) / s.block;
    s.block_rows = tm_min(s.block, tm_round_up(s.seq, QUERIES));
    s.pairs = (s.seq + QUERIES - 1) / QUERIES * s.group;
    s.chunks = (s.pairs + CHUNK - 1) / CHUNK;
    s.o_row = s.heads * s.dim;
    s.qkv_row = (s.heads + 2 * s.kv_heads) * s.dim;
    s.causal = attr->causal != 0;
    s.window = attr->window > 0 ? attr->window : INT64_MAX / 4;
    s.scale = (float)attr->scale;
    s.dtype = o->dtype;
    return s;
}

/* Where the pair stands: its first query, how many queries it has, its head. */
typedef struct {
    int64_t q0, n, head;
} query_block;

TM_INLINE query_block query_block_of(const attention_sizes *s, int64_t kv_head, int64_t pair)
{
    int64_t q0 = pair / s->group * QUERIES;
    return (query_block){ q0, tm_min(QUERIES, s->seq - q0), kv_head * s->group + pair % s->group };
}

/* How many of the keys first .. first + block - 1 some query of the pair sees; <= 0: none. */
TM_INLINE int64_t keys_seen(const attention_sizes *s, const query_block *q, int64_t first)
{
    return tm_min(s->block, (s->causal ? q->q0 + q->n : s->seq) - first);
}

/* How many of them, from the first on, no query of the pair sees, less what makes it no multiple of STEP. May be more
 * than the block has. */
TM_INLINE int64_t keys_passed(const attention_sizes *s, const query_block *q, int64_t first)
{
    return tm_max(0, q->q0 - s->window + 1 - first) / STEP * STEP;
}

/* No earlier block holds keys that the pair sees. */
TM_INLINE bool is_first_block(const attention_sizes *s, const query_block *q, int64_t first)
{
    return first <= tm_max(0, q->q0 - s->window + 1);
}

/* No later block holds keys that the pair sees. */
TM_INLINE bool is_last_block(const attention_sizes *s, const query_block *q, int64_t first)
{
    return first + s->block >= (s->causal ? q->q0 + q->n : s->seq);
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

/* n rows of a head, the first at element `at` of x */
TM_INLINE rows_ahead rows_ahead_of(const attention_sizes *s, const void *x, int64_t at, int64_t stride, int64_t n)
{
    const int64_t size = s->dtype == TM_BF16 ? 2 : 4;
    if (n <= 0) return (rows_ahead){ NULL, 0, 0, 0 };
    return (rows_ahead){ (const char *)x + at * size, stride * size, s->dim * size, n };
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

/* ---- products ---- */

/* c (TILE_ROWS, 16 vectors) = or += sum over k of a[i rs + k cs] b[k ldb + j] */
TM_INLINE void tile(int vectors, int64_t k, const float *a, int64_t rs, int64_t cs, const float *b, int64_t ldb,
                    float *c, int64_t ldc, bool add)
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
            for (int v = 0; v < vectors; v++) r[i][v] = v16_fma(av, bv[v], r[i][v]);
        }
    }
#pragma GCC unroll 8
    for (int i = 0; i < TILE_ROWS; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vectors; v++) {
            float *p = c + i * ldc + TM_LANES * v;
            v16_store(p, add ? v16_add(v16_load(p), r[i][v]) : r[i][v]);
        }
}

/* scores (keys, 32) = rows (keys, width) columns (width, 32); keys a multiple of STEP */
static __attribute__((noinline, unused)) void product_scores(int64_t keys, int64_t width, const float *rows,
                                                             int64_t row, const float *columns, float *scores,
                                                             ahead *next)
{
    for (int64_t j = 0; j < QUERIES; j += TM_LANES * TILE_VECTORS)
        for (int64_t i = 0; i < keys; i += TILE_ROWS) {
            ask_for_rows(next);
            tile(TILE_VECTORS, width, rows + i * row, row, 1, columns + j, QUERIES, scores + i * QUERIES + j, QUERIES,
                 false);
        }
}

/* out (n, width) = or += weights^T rows: weights (keys, 32), rows (keys, width). Query i meets keys 0 .. diagonal + i,
 * in steps of STEP (more weights than that are zero); a large diagonal: all. n a multiple of STEP. */
TM_INLINE void product_queries(int64_t n, int64_t width, int64_t keys, int64_t diagonal, const float *weights,
                               const float *rows, int64_t row, float *out, bool add, ahead *next)
{
    for (int64_t j = 0; j < width; j += TM_LANES * TILE_VECTORS)
        for (int64_t i = 0; i < n; i += TILE_ROWS) {
            ask_for_rows(next);
            int64_t k = tm_min(keys, diagonal + i / STEP * STEP + STEP);
            if (width - j < TM_LANES * TILE_VECTORS)
                tile(1, k, weights + i, 1, QUERIES, rows + j, row, out + i * width + j, width, add);
            else
                tile(TILE_VECTORS, k, weights + i, 1, QUERIES, rows + j, row, out + i * width + j, width, add);
        }
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
            int64_t      from = tm_max(0, (i - diagonal) / STEP * STEP), k = QUERIES - from;
            const float *a = weights + i * QUERIES + from, *b = queries + from * width + j;
            if (width - j < TM_LANES * TILE_VECTORS)
                tile(1, k, a, QUERIES, 1, b, width, out + i * row + j, row, true);
            else
                tile(TILE_VECTORS, k, a, QUERIES, 1, b, width, out + i * row + j, row, true);
        }
}

/* ---- copies ---- */

TM_INLINE void copy_rows_as(tm_dtype dtype, const attention_sizes *s, const void *x, int64_t at, int64_t stride,
                            int64_t n, int64_t padded, float *out, int64_t row)
{
    rows_ahead next = rows_ahead_of(s, x, at + AHEAD * stride, stride, n - AHEAD);
    for (int64_t t = 0; t < n; t++) {
        if (next.rows > 0) ask_for_row(&next);
        for (int64_t d = 0; d < s->width; d += TM_LANES)
            v16_store(out + t * row + d, v16_get(x, dtype, at + t * stride + d, s->dim - d));
    }
    memset(out + n * row, 0, (size_t)((padded - n) * row) * sizeof(float));
}
/* n rows of a head, the first at element `at` of x -> out (padded, row), the rest zero. A tight loop on purpose: these
 * reads come from memory, and many must be under way at a time. */
TM_INLINE void copy_rows(const attention_sizes *s, const void *x, int64_t at, int64_t stride, int64_t n, int64_t padded,
                         float *out, int64_t row)
{
    if (s->dtype == TM_BF16)
        copy_rows_as(TM_BF16, s, x, at, stride, n, padded, out, row);
    else
        copy_rows_as(TM_F32, s, x, at, stride, n, padded, out, row);
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

/* Row (width) of float32 -> D elements at element `at` of a tensor of s->dtype. */
TM_INLINE void put_row(const attention_sizes *s, void *x, int64_t at, const float *row, float factor)
{
    for (int64_t d = 0; d < s->width; d += TM_LANES) {
        v16 v = v16_mul(v16_load(row + d), v16_set1(factor));
        if (s->dtype == TM_BF16)
            v16_put(x, TM_BF16, at + d, v, s->dim - d);
        else
            v16_put(x, TM_F32, at + d, v, s->dim - d);
    }
}

/* ---- mask ---- */

/* The causal mask of a row of scores: key q0 + r is visible to lanes j >= r. Loading 16 floats at place(r, v) gives the
 * mask of vector v: infinity (to take the minimum with) and one (to multiply by) where visible, else -infinity and 0.
 */
typedef struct {
    float limit[2 * QUERIES], factor[2 * QUERIES];
    float window_limit[2 * QUERIES], window_factor[2 * QUERIES]; /* the opposite: lanes j < r see the key */
} causal_mask;

TM_INLINE void causal_mask_fill(causal_mask *m)
{
    for (int i = 0; i < 2 * QUERIES; i++) {
        m->limit[i] = i < QUERIES ? -__builtin_inff() : __builtin_inff();
        m->factor[i] = i < QUERIES ? 0.f : 1.f;
        m->window_limit[i] = -m->limit[i];
        m->window_factor[i] = 1.f - m->factor[i];
    }
}
TM_INLINE int64_t causal_mask_place(int64_t r, int vector)
{
    return QUERIES - r + TM_LANES * vector;
}
/* The window's mask of the same row: key q0 - window + r is visible to lanes j < r. r at most QUERIES. */
TM_INLINE int64_t window_mask_place(int64_t r, int vector)
{
    return QUERIES - tm_max(r, 0) + TM_LANES * vector;
}

/* Why neither kernel takes the call, or NULL. `o` as in sizes_of. */
TM_INLINE const char *attention_refuse(const tm_attention_attr *attr, const tm_view *qkv, const tm_view *o,
                                       const tm_view *lse)
{
    if (!tm_is_float(o)) return "needs float32 or bfloat16 activations";
    if (qkv->dtype != o->dtype) return "needs activations of one format";
    if (lse->dtype != TM_F32) return "needs a float32 lse";
    return attr->head_dim > MAX_HEAD_DIM ? "needs heads of at most 256 elements" : NULL;
}

/* This thread's part of the workspace; parts are whole cache lines. */
TM_INLINE float *scratch_of(const tm_call *call, size_t thread_floats, int thread)
{
    uintptr_t base = ((uintptr_t)call->workspace + 63) / 64 * 64;
    return (float *)base + (size_t)thread * thread_floats;
}
TM_INLINE size_t scratch_bytes(const tm_call *call, size_t thread_floats)
{
    return (size_t)(call->threads > 0 ? call->threads : 1) * thread_floats * sizeof(float) + 63;
}

#define TM_ATTENTION_GRAD_ROW(isa)                                                                                     \
    const char *TM_JOIN(attention_grad_refuse, isa)(const tm_call *call);                                              \
    size_t      TM_JOIN(attention_grad_workspace, isa)(const tm_call *call);                                           \
    void        TM_JOIN(attention_grad_run, isa)(const tm_call *call)
TM_ATTENTION_GRAD_ROW(TM_ISA);

#endif
