/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/gemm_pairs.h - the matrix product of bfloat16 operands: panels of pairs, and the innermost tile that
 * multiplies them, with vdpbf16ps (this file) or in tile registers (gemm_tiles.h).
 *
 * A slot of 32 bits holds a pair: elements k and k + 1 of a row of op(A) or a column of op(B). A panel is laid out
 * [pair][width]; an odd last k has 0 beside it in A and -0 in B, whose product adds nothing, not even to -0.
 *
 * vdpbf16ps gives each float32 lane  fma(low, low', fma(high, high', c)): two fused multiply-adds, the high halves
 * first, each rounded to nearest even, denormals counted as zero. The earlier k lies in the high half: so the sum is
 * the ascending chain that gemm_micro.h computes from widened operands, bit for bit (with denormals flushed there,
 * too).
 *
 * A float32 B is rounded to bfloat16 on the way where the product allows it (tm_gemm.narrow_b).
 */
#ifndef TM_DEVICE_CPU_GEMM_PAIRS_H
#define TM_DEVICE_CPU_GEMM_PAIRS_H

#include "device/cpu/gemm.h"
#include "device/cpu/simd/common.h"
#include "device/cpu/simd/gemm_fetch.h"

#if defined(__AMX_BF16__)
enum { TILES = 1, MR = 32, NR = 32 };
#else
enum { TILES = 0, MR = 14, NR = 32, NV = NR / 16 };
#endif

/* Slots of a row of k elements. Tiles take 16 pairs at a time. */
TM_INLINE TM_PLANNED int64_t packed_columns(int64_t k)
{
    return TILES ? tm_round_up(k, 32) / 2 : (k + 1) / 2;
}
/* Where pair q of row v lies in a panel. */
TM_INLINE int64_t place_of(int64_t q, int v, int width)
{
    return TILES ? (q / 16 * 2 + v / 16) * 256 + q % 16 * 16 + v % 16 : q * width + v;
}

TM_INLINE __mmask16 first_lanes(int64_t n)
{
    return n >= 16 ? (__mmask16)0xffff : n <= 0 ? (__mmask16)0 : (__mmask16)((1u << n) - 1);
}
TM_INLINE __mmask32 first_halves(int64_t n)
{
    return n >= 32 ? 0xffffffffu : n <= 0 ? 0 : (__mmask32)((1u << n) - 1);
}
TM_INLINE void pack_ahead(const void *p, int64_t i, tm_dtype dtype)
{
    __builtin_prefetch((const char *)p + i * (dtype == TM_BF16 ? 2 : 4));
}

/* 16 bfloat16 from element i on as the low halves of 16 slots. */
TM_INLINE __m512i halves16(const void *p, int64_t i, tm_dtype dtype, __mmask16 mask)
{
    if (dtype == TM_BF16) return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, (const uint16_t *)p + i));
    return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(mask, (const float *)p + i)));
}
/* 32 bfloat16 from element i on, of which n are there; the rest as in `none`. */
TM_INLINE __m512i halves32(const void *p, int64_t i, tm_dtype dtype, int64_t n, __m512i none)
{
    if (dtype == TM_BF16) return _mm512_mask_loadu_epi16(none, first_halves(n), (const uint16_t *)p + i);
    const float *f = (const float *)p + i;
    __m512       low = _mm512_maskz_loadu_ps(first_lanes(n), f);
    __m512       high = n > 16 ? _mm512_maskz_loadu_ps(first_lanes(n - 16), f + 16) : _mm512_setzero_ps();
    return _mm512_mask_mov_epi16(none, first_halves(n), (__m512i)_mm512_cvtne2ps_pbh(high, low));
}
/* 16 columns of the stored rows k and k + 1 (at i and i + ld) as pairs; `later`: the second row exists. */
TM_INLINE __m512i pairs16(const void *p, int64_t i, int64_t ld, tm_dtype dtype, bool later, __mmask16 mask,
                          __m512i none)
{
    __m512i a = halves16(p, i, dtype, mask);
    __m512i b = later ? halves16(p, i + ld, dtype, mask) : _mm512_srli_epi32(none, 16);
    return TILES ? _mm512_or_si512(a, _mm512_slli_epi32(b, 16)) : _mm512_or_si512(_mm512_slli_epi32(a, 16), b);
}
TM_INLINE void transpose_slots(__m512i t[16])
{
    v16 f[16];
    TM_UNROLL for (int i = 0; i < 16; i++) f[i] = _mm512_castsi512_ps(t[i]);
    tm_transpose16(f);
    TM_UNROLL for (int i = 0; i < 16; i++) t[i] = _mm512_castps_si512(f[i]);
}
TM_INLINE void put_slots(float *dst, __mmask16 lanes, __m512i x)
{
    _mm512_mask_storeu_epi32(dst, lanes, x);
}

/* One panel from rows along k: element (r, q) at p[r * ld + q], the first `valid` rows exist. */
TM_INLINE void pack_along_k(float *dst, const void *p, int64_t ld, tm_dtype dtype, int width, int64_t valid, int64_t k,
                            __m512i none)
{
    int64_t columns = packed_columns(k);
    for (int v = 0; v < width; v += 16) {
        int64_t   rows = valid - v < 16 ? valid - v : 16;
        __mmask16 lanes = first_lanes(width - v);
        for (int64_t q = 0; q < k; q += 32) {
            __m512i t[16];
            for (int64_t i = 0; i < rows; i++) pack_ahead(p, (v + i) * ld + q + 192, dtype);
            TM_UNROLL for (int i = 0; i < 16; i++)
            {
                t[i] = i < rows ? halves32(p, (v + i) * ld + q, dtype, k - q, none) : none;
                if (!TILES) t[i] = _mm512_rol_epi32(t[i], 16);
            }
            transpose_slots(t);
            TM_UNROLL for (int i = 0; i < 16; i++) if (q / 2 + i < columns)
                put_slots(dst + place_of(q / 2 + i, v, width), lanes, t[i]);
        }
    }
}

/* `panels` neighbouring panels from stored rows of one k each. */
TM_INLINE void pack_across_k(float *dst, const void *p, int64_t ld, tm_dtype dtype, int width, int64_t panels,
                             int64_t r0, int64_t limit, int64_t k, __m512i none)
{
    int64_t columns = packed_columns(k);
    for (int64_t q = 0; q < columns; q++) { /* all panels of a stored row together: long runs of memory */
        int64_t row = 2 * q * ld + r0;
        for (int64_t i = 0; i < panels * width; i += 32) {
            pack_ahead(p, row + 8 * ld + i, dtype);
            pack_ahead(p, row + 9 * ld + i, dtype);
        }
        for (int64_t i = 0; i < panels; i++)
            for (int v = 0; v < width; v += 16) {
                int64_t   at = i * width + v, there = tm_min(width - v, limit - r0 - at);
                __mmask16 mask = first_lanes(there);
                __m512i   x = 2 * q >= k ? none : pairs16(p, row + at, ld, dtype, 2 * q + 1 < k, mask, none);
                put_slots(dst + i * width * columns + place_of(q, v, width), first_lanes(width - v), x);
            }
    }
}

#if defined(__AMX_BF16__)
#include "device/cpu/simd/gemm_tiles.h"
#else
TM_INLINE void gemm_begin(void)
{
}
TM_INLINE void gemm_end(void)
{
}

/* As micro of gemm_micro.h; k counts pairs. */
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
        __m512bh bv[NV];
        TM_UNROLL for (int v = 0; v < NV; v++) bv[v] = (__m512bh)_mm512_loadu_ps(b + 16 * v);
        _mm_prefetch((const char *)ahead, _MM_HINT_T1);
        fetch_line(&own);
        _mm_prefetch((const char *)(b + 12 * NR), _MM_HINT_T0);
        _mm_prefetch((const char *)(b + 12 * NR + 16), _MM_HINT_T0);
        TM_UNROLL for (int i = 0; i < MR; i++)
        {
            __m512bh av = (__m512bh)_mm512_set1_ps(a[i]);
            TM_UNROLL for (int v = 0; v < NV; v++) r[i][v] = _mm512_dpbf16_ps(r[i][v], av, bv[v]);
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

/* As micro_rows of gemm_micro.h. */
TM_INLINE void micro_rows(const int rows, int64_t k, const float *restrict a, const float *restrict b,
                          float *restrict tile)
{
    __m512 r[MR][NV];
    TM_UNROLL for (int i = 0; i < rows; i++) TM_UNROLL for (int v = 0; v < NV; v++) r[i][v] = _mm512_setzero_ps();
    for (; k > 0; k--, a += MR, b += NR) TM_UNROLL for (int v = 0; v < NV; v++)
        {
            __m512bh bv = (__m512bh)_mm512_loadu_ps(b + 16 * v);
            TM_UNROLL for (int i = 0; i < rows; i++) r[i][v] =
                _mm512_dpbf16_ps(r[i][v], (__m512bh)_mm512_set1_ps(a[i]), bv);
        }
    TM_UNROLL for (int i = 0; i < rows; i++) TM_UNROLL for (int v = 0; v < NV; v++)
        _mm512_storeu_ps(tile + i * NR + 16 * v, r[i][v]);
}

/* The same for the first m rows and n columns of a tile at the edge of C. */
static void micro_edge(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add, int64_t m, int64_t n,
                       fetch *later)
{
    float tile[MR * NR];
    if (m == 1)
        micro_rows(1, k, a, b, tile);
    else if (m <= 4)
        micro_rows(4, k, a, b, tile);
    else if (m <= 8)
        micro_rows(8, k, a, b, tile);
    else
        micro(k, a, b, tile, NR, false, a, 0, later);
    for (int64_t r = 0; r < m; r++)
        for (int64_t s = 0; s < n; s++) c[r * ldc + s] = add ? tile[r * NR + s] + c[r * ldc + s] : tile[r * NR + s];
}
#endif

TM_INLINE void pack_typed(float *dst, const void *p, int64_t ld, tm_dtype dtype, bool along_k, int width,
                          int64_t panels, int64_t r0, int64_t limit, int64_t k0, int64_t k)
{
    const __m512i none = width == MR ? _mm512_setzero_si512() : _mm512_set1_epi16((short)0x8000);
    const size_t  size = dtype == TM_BF16 ? 2 : 4;
    const char   *from = (const char *)p + (size_t)(k0 * (along_k ? 1 : ld)) * size;
    if (!along_k) {
        pack_across_k(dst, from, ld, dtype, width, panels, r0, limit, k, none);
        return;
    }
    for (int64_t i = 0; i < panels; i++) {
        int64_t row = r0 + i * width;
        pack_along_k(dst + i * width * packed_columns(k), from + (size_t)(row * ld) * size, ld, dtype, width,
                     tm_min(width, limit - row), k, none);
    }
}

#include "device/cpu/simd/gemm_blocks.h"

/* `panels` neighbouring panels of A or of B, as in gemm_pack.h. */
TM_INLINE void pack_panels(float *dst, const void *p, int64_t ld, tm_dtype dtype, bool along_k, bool of_b,
                           int64_t panels, int64_t r0, int64_t limit, int64_t k0, int64_t k)
{
#if defined(__AMX_BF16__)
    if (!of_b) {
        pack_tiles(dst, p, ld, dtype, along_k, panels, r0, limit, k0, k);
        return;
    }
#endif
    if (dtype == TM_BF16)
        pack_typed(dst, p, ld, TM_BF16, along_k, of_b ? NR : MR, panels, r0, limit, k0, k);
    else
        pack_typed(dst, p, ld, TM_F32, along_k, of_b ? NR : MR, panels, r0, limit, k0, k);
}

#endif
