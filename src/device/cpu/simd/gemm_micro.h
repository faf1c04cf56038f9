/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/gemm_micro.h - the innermost tile of the matrix product: MR x NR sums held in registers.
 *
 * a: k columns of MR values, b: k rows of NR values, both packed. c (MR, NR) = a b, or c += a b when `add`.
 * Memory at `ahead` is wanted soon and fetched along the way, `ahead_step` floats per column of a; so is a line of
 * `later` (avx512).
 * Register budgets: avx512 28 sums + 2 of b + 1 broadcast of 32; avx2 12 + 2 + 1 of 16; base 8 + 2 + 1 of 16 (SSE).
 * Other avx512 tiles (8 x 48, 12 x 32) measured within noise of 14 x 32 on two-FMA machines.
 */
#ifndef TM_DEVICE_CPU_GEMM_MICRO_H
#define TM_DEVICE_CPU_GEMM_MICRO_H

#include "device/cpu/simd/common.h"
#include "device/cpu/simd/gemm_fetch.h"

#if defined(__AVX512F__)
enum { MR = 14, NR = 32, NV = NR / 16 };
typedef __m512 micro_lanes;
#define MICRO_MADD(a, b, c) _mm512_fmadd_ps(_mm512_set1_ps(a), b, c)
static void micro(int64_t k, const float *restrict a, const float *restrict b, float *restrict c, int64_t ldc, bool add,
                  const float *ahead, int64_t ahead_step, fetch *later)
{
    __m512 r[MR][NV];
    fetch  own = *later; /* in registers */
    for (int i = 0; i < MR; i++) {
        _mm_prefetch((const char *)(c + i * ldc), _MM_HINT_T0);
        _mm_prefetch((const char *)(c + i * ldc + NR - 1), _MM_HINT_T0);
    }
    TM_UNROLL for (int i = 0; i < MR; i++) TM_UNROLL for (int v = 0; v < NV; v++) r[i][v] = _mm512_setzero_ps();
    for (; k > 0; k--, a += MR, b += NR, ahead += ahead_step) {
        __m512 bv[NV];
        TM_UNROLL for (int v = 0; v < NV; v++) bv[v] = _mm512_loadu_ps(b + 16 * v);
        _mm_prefetch((const char *)ahead, _MM_HINT_T1);
        fetch_line(&own);
        _mm_prefetch((const char *)(b + 12 * NR), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + 12 * NR + 16), _MM_HINT_T0);
        TM_UNROLL for (int i = 0; i < MR; i++)
        {
            __m512 av = _mm512_set1_ps(a[i]);
            TM_UNROLL for (int v = 0; v < NV; v++) r[i][v] = _mm512_fmadd_ps(av, bv[v], r[i][v]);
        }
    }
    *later = own;
    TM_UNROLL for (int i = 0; i < MR; i++) TM_UNROLL for (int v = 0; v < NV; v++)
    {
        float *p = c + i * ldc + 16 * v;
        if (add) r[i][v] = _mm512_add_ps(r[i][v], _mm512_loadu_ps(p));
        _mm512_storeu_ps(p, r[i][v]);
    }
}
#elif defined(__AVX2__)
enum { MR = 6, NR = 16, NV = NR / 8 };
typedef __m256 micro_lanes;
#define MICRO_MADD(a, b, c) _mm256_fmadd_ps(_mm256_set1_ps(a), b, c)
static void micro(int64_t k, const float *restrict a, const float *restrict b, float *restrict c, int64_t ldc, bool add,
                  const float *ahead, int64_t ahead_step, fetch *later)
{
    __m256 r[MR][NV];
    (void)later;
    for (int i = 0; i < MR; i++) {
        _mm_prefetch((const char *)(c + i * ldc), _MM_HINT_T0);
        _mm_prefetch((const char *)(c + i * ldc + NR - 1), _MM_HINT_T0);
    }
    TM_UNROLL for (int i = 0; i < MR; i++) TM_UNROLL for (int v = 0; v < NV; v++) r[i][v] = _mm256_setzero_ps();
    for (; k > 0; k--, a += MR, b += NR, ahead += ahead_step) {
        __m256 bv[NV];
        TM_UNROLL for (int v = 0; v < NV; v++) bv[v] = _mm256_loadu_ps(b + 8 * v);
        _mm_prefetch((const char *)ahead, _MM_HINT_T1);
        _mm_prefetch((const char *)(b + 24 * NR), _MM_HINT_T0);
        TM_UNROLL for (int i = 0; i < MR; i++)
        {
            __m256 av = _mm256_broadcast_ss(a + i);
            TM_UNROLL for (int v = 0; v < NV; v++) r[i][v] = _mm256_fmadd_ps(av, bv[v], r[i][v]);
        }
    }
    TM_UNROLL for (int i = 0; i < MR; i++) TM_UNROLL for (int v = 0; v < NV; v++)
    {
        float *p = c + i * ldc + 8 * v;
        if (add) r[i][v] = _mm256_add_ps(r[i][v], _mm256_loadu_ps(p));
        _mm256_storeu_ps(p, r[i][v]);
    }
}
#else
enum { MR = 4, NR = 8, NV = NR / 4 };
typedef float v4 __attribute__((vector_size(16)));
typedef v4    micro_lanes;
#define MICRO_MADD(a, b, c) ((a) * (b) + (c))
static void micro(int64_t k, const float *restrict a, const float *restrict b, float *restrict c, int64_t ldc, bool add,
                  const float *ahead, int64_t ahead_step, fetch *later)
{
    v4 r[MR][NV];
    (void)ahead, (void)ahead_step, (void)later;
    memset(r, 0, sizeof r);
    for (; k > 0; k--, a += MR, b += NR) {
        v4 bv[NV];
        memcpy(bv, b, sizeof bv);
        TM_UNROLL for (int i = 0; i < MR; i++)
        {
            v4 av = { a[i], a[i], a[i], a[i] };
            TM_UNROLL for (int v = 0; v < NV; v++) r[i][v] += av * bv[v];
        }
    }
    for (int i = 0; i < MR; i++)
        for (int v = 0; v < NV; v++) {
            float *p = c + i * ldc + 4 * v;
            v4     old;
            if (add) {
                memcpy(&old, p, sizeof old);
                r[i][v] += old;
            }
            memcpy(p, &r[i][v], sizeof r[i][v]);
        }
}
#endif

/* The first `rows` rows of a tile: a product with a row or a few shall wait for reading B, not for sums of nothing. */
TM_INLINE void micro_rows(const int rows, int64_t k, const float *restrict a, const float *restrict b,
                          float *restrict tile)
{
    micro_lanes r[MR][NV];
    TM_UNROLL for (int i = 0; i < rows; i++) TM_UNROLL for (int v = 0; v < NV; v++) r[i][v] = (micro_lanes){ 0 };
    for (; k > 0; k--, a += MR, b += NR) TM_UNROLL for (int v = 0; v < NV; v++)
        {
            micro_lanes bv;
            memcpy(&bv, b + v * (NR / NV), sizeof bv);
            TM_UNROLL for (int i = 0; i < rows; i++) r[i][v] = MICRO_MADD(a[i], bv, r[i][v]);
        }
    TM_UNROLL for (int i = 0; i < rows; i++) TM_UNROLL for (int v = 0; v < NV; v++)
        memcpy(tile + i * NR + v * (NR / NV), &r[i][v], sizeof r[i][v]);
}

/* The same for the first m rows and n columns of a tile at the edge of C. */
static void micro_edge(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add, int64_t m, int64_t n,
                       fetch *later)
{
    float tile[MR * NR];
    if (m == 1) {
        micro_rows(1, k, a, b, tile);
    } else if (m <= 4) {
        micro_rows(4, k, a, b, tile);
    } else if (MR > 8 && m <= 8) {
        micro_rows(tm_min(MR, 8), k, a, b, tile);
    } else {
        memset(tile, 0, sizeof tile);
        micro(k, a, b, tile, NR, false, a, 0, later);
    }
    for (int64_t r = 0; r < m; r++) {
        float       *row = c + r * ldc;
        const float *sum = tile + r * NR;
        if (add)
            for (int64_t s = 0; s < n; s++) row[s] = sum[s] + row[s];
        else
            for (int64_t s = 0; s < n; s++) row[s] = sum[s];
    }
}

#undef MICRO_MADD

#endif
