/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/gemm_narrow.h - products with few rows or few columns, as adapters have them (their rank): most of
 * their time would be packing, and tiles that are mostly zeros. Only the small operand is packed, as the columns (8 or
 * 16) of one panel; the large one is multiplied as it is stored:
 *
 *   across   stored with rows of one k: 16 or 32 neighbours of a row by each value of the small operand at that k
 *   along    stored with rows along k: each value of some rows by all columns of the small operand at that k
 *
 * The sums are those of the packed kernels, bit for bit: k ascends in each lane, a block of K at a time. Part of
 * gemm.c.
 */
#ifndef TM_DEVICE_CPU_GEMM_NARROW_H
#define TM_DEVICE_CPU_GEMM_NARROW_H

#include "device/cpu/gemm.h"
#include "device/cpu/simd/gemm_plan.h"
#include "graph/blocks.h"

enum {
    NARROW_LEAST = 5, /* rows or columns: fewer are left to micro_rows */
    NARROW_MOST = 16,
    NARROW_LARGE = 64,   /* least of the other extent */
    NARROW_DEEP = 32,    /* least k */
    NARROW_ROWS = 12,    /* at a time of a large operand along k */
    NARROW_COLUMNS = 32, /* of one across k */
    NARROW_RUN = 16,     /* stored rows of some tiles of columns, then the next ones: what is asked for stays near */
    NARROW_TILES = 8
};

typedef struct {
    bool    use, few_rows, along; /* few rows of A, otherwise columns of B; how the large operand is stored */
    int64_t few, large, width;    /* width: of the packed small operand */
} narrow;

#if defined(__AVX512F__) && !defined(__AMX_BF16__)
/* Two bfloat16 of a row are read at once; float16 is packed. */
static TM_PLANNED narrow narrow_make(const tm_gemm *g)
{
    narrow                w = { .few_rows = g->m <= g->n };
    const tm_gemm_matrix *big = w.few_rows ? &g->b : &g->a;
    w.few = w.few_rows ? g->m : g->n;
    w.large = w.few_rows ? g->n : g->m;
    w.width = w.few <= 8 ? 8 : 16;
    w.along = w.few_rows ? big->transposed : !big->transposed;
    bool stored = !w.along || (!w.few_rows && (!TM_PAIRS || big->dtype == TM_BF16));
    bool two = TM_PAIRS || (w.along && big->dtype == TM_BF16);
    w.use = NARROW_LEAST <= w.few && w.few <= NARROW_MOST && w.large >= NARROW_LARGE && g->k >= NARROW_DEEP && stored &&
            !tm_dtype_blocked(g->b.dtype) && g->a.dtype != TM_F16 && g->b.dtype != TM_F16 && (!two || g->k % 2 == 0);
    return w;
}
static TM_PLANNED size_t narrow_bytes(const narrow *w, int64_t k)
{
    return (size_t)(w->width * packed_columns(k)) * sizeof(float) + 64;
}

/* A block of K of the small operand, among the columns of one panel. */
static void narrow_pack(const narrow *w, const tm_gemm *g, float *small, int64_t k0, int64_t k)
{
    const tm_gemm_matrix *m = w->few_rows ? &g->a : &g->b;
    bool                  along_k = w->few_rows ? !m->transposed : m->transposed;
    float                *to = small + w->width * packed_columns(k0);
    if (m->dtype == TM_BF16)
        pack_typed(to, m->data, m->ld, TM_BF16, along_k, (int)w->width, 1, 0, w->few, k0, k);
    else
        pack_typed(to, m->data, m->ld, TM_F32, along_k, (int)w->width, 1, 0, w->few, k0, k);
}

/* ---- across k ---- */

TM_INLINE __m512 narrow_sum(__m512 sum, float a, __m512 b)
{
#if TM_PAIRS
    return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_ps(a), (__m512bh)b);
#else
    return _mm512_fmadd_ps(_mm512_set1_ps(a), b, sum);
#endif
}

/* part (rows, 32) = or += the small operand's `rows` columns by `vectors` x 16 elements of stored rows k0 ... from
 * element `at` on, `there` of which exist. The same elements of the rows that come next are asked for. */
TM_INLINE void narrow_across(const tm_gemm_matrix *big, tm_dtype dtype, const float *small, int64_t at, int64_t there,
                             int64_t k0, int64_t k, bool add, float *part, const int rows, const int vectors)
{
    enum { STEP = TM_PAIRS ? 2 : 1 };
    __m512    sum[NARROW_MOST][2];
    __mmask16 mask[2] = { first_lanes(there), first_lanes(there - 16) };
    small += packed_columns(k0) * rows;
    TM_UNROLL for (int i = 0; i < rows; i++) TM_UNROLL for (int v = 0; v < vectors; v++) sum[i][v] =
        add ? _mm512_loadu_ps(part + i * NARROW_COLUMNS + 16 * v) : _mm512_setzero_ps();
    for (int64_t q = k0; q < k0 + k; q += STEP, small += rows) {
        __m512 b[2];
        TM_UNROLL for (int v = 0; v < vectors; v++)
        {
            int64_t i = q * big->ld + at + 16 * v;
#if TM_PAIRS
            b[v] = _mm512_castsi512_ps(pairs16(big->data, i, big->ld, dtype, true, mask[v], _mm512_setzero_si512()));
#else
            b[v] = load16(big->data, i, dtype, mask[v]);
#endif
        }
        for (int s = 0; s < STEP; s++) { /* with vectors of float32 two lines */
            pack_ahead(big->data, (q + s + NARROW_RUN) * big->ld + at, dtype);
            if (dtype != TM_BF16)
                pack_ahead(big->data, (q + s + NARROW_RUN) * big->ld + at + 16 * (vectors - 1), dtype);
        }
        TM_UNROLL for (int i = 0; i < rows; i++) TM_UNROLL for (int v = 0; v < vectors; v++) sum[i][v] =
            narrow_sum(sum[i][v], small[i], b[v]);
    }
    TM_UNROLL for (int i = 0; i < rows; i++) TM_UNROLL for (int v = 0; v < vectors; v++)
        _mm512_storeu_ps(part + i * NARROW_COLUMNS + 16 * v, sum[i][v]);
}

static void narrow_across_any(const narrow *w, const tm_gemm_matrix *big, const float *small, int64_t at, int64_t k0,
                              int64_t k, bool add, float *part)
{
    bool    half = big->dtype == TM_BF16;
    int64_t there = w->large - at;
    if (w->width == 8 && half)
        narrow_across(big, TM_BF16, small, at, there, k0, k, add, part, 8, 2);
    else if (w->width == 8)
        narrow_across(big, TM_F32, small, at, there, k0, k, add, part, 8, 2);
    else if (half)
        narrow_across(big, TM_BF16, small, at, there, k0, k, add, part, 16, 1);
    else
        narrow_across(big, TM_F32, small, at, there, k0, k, add, part, 16, 1);
}

/* ---- along k ---- */

TM_INLINE int32_t narrow_slot(const char *p)
{
    int32_t slot;
    memcpy(&slot, p, sizeof slot);
    return slot;
}

/* sum + a slot of A, x, by the columns of the small operand at its k, or at both where it is two values: a float32; a
 * pair, whose earlier k goes into the high half (gemm_pairs.h); two bfloat16 that are widened. */
#define NARROW_FLOAT(bits, columns, sum, x, b)                                                                         \
    _mm##bits##_fmadd_ps(_mm##bits##_castsi##bits##_ps(x), _mm##bits##_loadu_ps(b), sum)
#define NARROW_PAIR(bits, columns, sum, x, b)                                                                          \
    _mm##bits##_dpbf16_ps(sum, (__m##bits##bh)_mm##bits##_rol_epi32(x, 16), (__m##bits##bh)_mm##bits##_loadu_ps(b))
#define NARROW_HALVES(bits, columns, sum, x, b)                                                                        \
    NARROW_FLOAT(bits, columns, NARROW_FLOAT(bits, columns, sum, _mm##bits##_slli_epi32(x, 16), b),                    \
                 _mm##bits##_and_si##bits(x, _mm##bits##_set1_epi32((int32_t)0xFFFF0000)), (b) + (columns))

/* tile (12, columns) = or += rows from .. from + 11 of A, elements of `size` bytes, by the small operand. */
#define NARROW_ALONG(name, bits, columns, size, values, SUM)                                                           \
    static void name(const tm_gemm_matrix *a, const float *small, int64_t from, int64_t k0, int64_t k, bool add,       \
                     float *tile)                                                                                      \
    {                                                                                                                  \
        const int64_t row = a->ld * (size);                                                                            \
        const char   *p[NARROW_ROWS / 4];                                                                              \
        __m##bits     sum[NARROW_ROWS];                                                                                \
        for (int i = 0; i < NARROW_ROWS / 4; i++) p[i] = (const char *)a->data + (from + 4 * i) * row + k0 * (size);   \
        TM_UNROLL for (int i = 0; i < NARROW_ROWS; i++) sum[i] = _mm##bits##_setzero_ps();                             \
        small += packed_columns(k0) * (columns);                                                                       \
        for (int64_t q = packed_columns(k); q > 0; q -= (values), small += (values) * (columns)) {                     \
            TM_UNROLL for (int i = 0; i < NARROW_ROWS; i++)                                                            \
            {                                                                                                          \
                __m##bits##i x = _mm##bits##_set1_epi32(narrow_slot(p[i / 4] + i % 4 * row));                          \
                sum[i] = SUM(bits, columns, sum[i], x, small);                                                         \
            }                                                                                                          \
            TM_UNROLL for (int i = 0; i < NARROW_ROWS / 4; i++) p[i] += 4;                                             \
        }                                                                                                              \
        TM_UNROLL for (int i = 0; i < NARROW_ROWS; i++)                                                                \
        {                                                                                                              \
            float *to = tile + i * (columns);                                                                          \
            _mm##bits##_storeu_ps(to, add ? _mm##bits##_add_ps(sum[i], _mm##bits##_loadu_ps(to)) : sum[i]);            \
        }                                                                                                              \
    }
#if TM_PAIRS
NARROW_ALONG(narrow_half_8, 256, 8, 2, 1, NARROW_PAIR)
NARROW_ALONG(narrow_half_16, 512, 16, 2, 1, NARROW_PAIR)
#else
NARROW_ALONG(narrow_half_8, 256, 8, 2, 2, NARROW_HALVES)
NARROW_ALONG(narrow_half_16, 512, 16, 2, 2, NARROW_HALVES)
NARROW_ALONG(narrow_float_8, 256, 8, 4, 1, NARROW_FLOAT)
NARROW_ALONG(narrow_float_16, 512, 16, 4, 1, NARROW_FLOAT)
#endif
#undef NARROW_ALONG
#undef NARROW_FLOAT
#undef NARROW_PAIR
#undef NARROW_HALVES

static void narrow_along_any(const narrow *w, const tm_gemm_matrix *a, const float *small, int64_t from, int64_t k0,
                             int64_t k, bool add, float *tile)
{
#if !TM_PAIRS
    if (a->dtype == TM_F32) {
        (w->width == 8 ? narrow_float_8 : narrow_float_16)(a, small, from, k0, k, add, tile);
        return;
    }
#endif
    (w->width == 8 ? narrow_half_8 : narrow_half_16)(a, small, from, k0, k, add, tile);
}
#else
static TM_PLANNED narrow narrow_make(const tm_gemm *g)
{
    (void)g;
    return (narrow){ .use = false };
}
static TM_PLANNED size_t narrow_bytes(const narrow *w, int64_t k)
{
    (void)w, (void)k;
    return 0;
}
#endif

#endif
