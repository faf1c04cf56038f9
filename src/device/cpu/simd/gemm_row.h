/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/gemm_row.h - one row of A by 16 columns of B that are stored along k: a decoder's product, which
 * reads every weight once. Blocks of 16 rows of weights are transposed in registers and multiplied there; nothing is
 * packed (float16 weights are: not here). The sums are those of the packed kernels, bit for bit: k ascends in each
 * lane, a block of K at a time.
 */
#ifndef TM_DEVICE_CPU_GEMM_ROW_H
#define TM_DEVICE_CPU_GEMM_ROW_H

#include "device/cpu/gemm.h"
#include "device/cpu/simd/common.h"
#include "graph/blocks.h"

#if defined(__AVX512F__) && !defined(__AMX_BF16__)
enum { ROW_STEP = TM_PAIRS ? 32 : 16, ROW_AHEAD = 2048 /* bytes */ };

TM_INLINE TM_PLANNED bool row_fits(const tm_gemm *g)
{
    return g->m == 1 && !g->a.transposed && g->b.transposed && !tm_dtype_blocked(g->b.dtype) && g->b.dtype != TM_F16 &&
           g->k > 0 && g->k % ROW_STEP == 0;
}

/* x and the 16 rows of B at `row`, ROW_STEP elements from k on, to `sum`. */
TM_INLINE __m512 row_step(const tm_gemm *g, tm_dtype dtype, const int64_t row[16], int64_t k, __m512 sum)
{
    v16         t[16];
    const char *ahead = (const char *)g->b.data + ROW_AHEAD;
    for (int i = 0; i < 16; i++) /* past the end of the matrix is fine */
        __builtin_prefetch(ahead + (row[i] + k) * (dtype == TM_BF16 ? 2 : 4), 0, 2);
#if TM_PAIRS
    int32_t       x[16];
    const __m512i none = _mm512_setzero_si512();
    _mm512_storeu_si512(x, _mm512_rol_epi32(halves32(g->a.data, k, g->a.dtype, 32, none), 16));
    __asm__("" : "+m"(x)); /* broadcasts come from memory, not out of a register lane by lane */
    TM_UNROLL for (int i = 0; i < 16; i++) t[i] =
        _mm512_castsi512_ps(_mm512_rol_epi32(halves32(g->b.data, row[i] + k, dtype, 32, none), 16));
    tm_transpose16(t);
    TM_UNROLL for (int i = 0; i < 16; i++) sum =
        _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(x[i]), (__m512bh)_mm512_castps_si512(t[i]));
#else
    float x[16];
    _mm512_storeu_ps(x, load16(g->a.data, k, g->a.dtype, 0xffff));
    __asm__("" : "+m"(x));
    TM_UNROLL for (int i = 0; i < 16; i++) t[i] = load16(g->b.data, row[i] + k, dtype, 0xffff);
    tm_transpose16(t);
    TM_UNROLL for (int i = 0; i < 16; i++) sum = _mm512_fmadd_ps(_mm512_set1_ps(x[i]), t[i], sum);
#endif
    return sum;
}

TM_INLINE __m512 row_total(const tm_gemm *g, tm_dtype dtype, const int64_t row[16], __m512 total, bool add)
{
    for (int64_t k0 = 0; k0 < g->k; k0 += TM_GEMM_BLOCK, add = true) {
        __m512 sum = _mm512_setzero_ps();
        for (int64_t k = k0; k < tm_min(g->k, k0 + TM_GEMM_BLOCK); k += ROW_STEP) sum = row_step(g, dtype, row, k, sum);
        total = add ? _mm512_add_ps(sum, total) : sum;
    }
    return total;
}

/* The sums of columns `column` ... + 15; those beyond N are the last one's. An old float32 C is part of them. */
static void row_sums(const tm_gemm *g, int64_t column, float sums[16])
{
    int64_t   row[16];
    bool      add = g->accumulate && g->c_dtype == TM_F32;
    __mmask16 there = first_lanes(g->n - column);
    __m512    old = add ? _mm512_maskz_loadu_ps(there, (const float *)g->c + column) : _mm512_setzero_ps();
    for (int i = 0; i < 16; i++) row[i] = tm_min(column + i, g->n - 1) * g->b.ld;
    _mm512_storeu_ps(sums, g->b.dtype == TM_BF16 ? row_total(g, TM_BF16, row, old, add)
                                                 : row_total(g, TM_F32, row, old, add));
}
#else
TM_INLINE TM_PLANNED bool row_fits(const tm_gemm *g)
{
    (void)g;
    return false;
}
static void row_sums(const tm_gemm *g, int64_t column, float sums[16])
{
    (void)g, (void)column, (void)sums;
}
#endif

#endif
