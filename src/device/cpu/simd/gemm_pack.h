/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/gemm_pack.h - operands of the matrix product, rearranged for the innermost tile.
 *
 * A panel is `width` (MR or NR) rows of op(A) or columns of op(B), `valid` of them real and the rest zero, by k, laid
 * out [k][width] in float32. Where the source is contiguous along k, 16 x 16 (avx512) or 8 x 8 (avx2) blocks are
 * transposed.
 */
#ifndef TM_DEVICE_CPU_GEMM_PACK_H
#define TM_DEVICE_CPU_GEMM_PACK_H

#include "device/cpu/simd/common.h"
#include "device/cpu/simd/gemm_micro.h"

TM_INLINE float pack_element(const void *p, int64_t i, tm_dtype dtype)
{
    if (dtype == TM_F32) return ((const float *)p)[i];
    uint16_t half = ((const uint16_t *)p)[i];
    return dtype == TM_F16 ? tm_f16_value(half) : tm_bf16_value(half);
}

/* Asks for element i; past the end of the matrix is fine. Saves 10 to 20 % of packing. */
TM_INLINE void pack_ahead(const void *p, int64_t i, tm_dtype dtype)
{
    __builtin_prefetch((const char *)p + i * (dtype == TM_F32 ? 4 : 2));
}

#if defined(__AVX512F__)
TM_INLINE __m512 load16(const void *p, int64_t i, tm_dtype dtype, __mmask16 mask)
{
    if (dtype == TM_F32) return _mm512_maskz_loadu_ps(mask, (const float *)p + i);
    __m256i half = _mm256_maskz_loadu_epi16(mask, (const uint16_t *)p + i);
    if (dtype == TM_F16) return _mm512_cvtph_ps(half);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
}
TM_INLINE __mmask16 first_lanes(int64_t n)
{
    return n >= 16 ? (__mmask16)0xffff : n <= 0 ? (__mmask16)0 : (__mmask16)((1u << n) - 1);
}
TM_INLINE void pack_row(float *dst, const void *p, int64_t i, tm_dtype dtype, int width, int64_t valid)
{
    for (int v = 0; v < width; v += 16)
        _mm512_mask_storeu_ps(dst + v, first_lanes(width - v), load16(p, i + v, dtype, first_lanes(valid - v)));
}

/* row r, column k of the source at p[r * ld + k] */
TM_INLINE void pack_transposed(float *dst, const void *p, int64_t ld, tm_dtype dtype, int width, int64_t valid,
                               int64_t k)
{
    for (int v = 0; v < width; v += 16) {
        int64_t   rows = valid - v < 16 ? valid - v : 16;
        __mmask16 lanes = first_lanes(width - v);
        for (int64_t q = 0; q < k; q += 16) {
            __mmask16 mask = first_lanes(k - q);
            __m512    t[16];
            for (int64_t i = 0; i < rows; i++) pack_ahead(p, (v + i) * ld + q + 96, dtype);
            TM_UNROLL for (int i = 0; i < 16; i++) t[i] =
                i < rows ? load16(p, (v + i) * ld + q, dtype, mask) : _mm512_setzero_ps();
            tm_transpose16(t);
            TM_UNROLL for (int i = 0; i < 16; i++) if (q + i < k)
                _mm512_mask_storeu_ps(dst + (q + i) * width + v, lanes, t[i]);
        }
    }
}
#else
#if defined(__AVX2__)
TM_INLINE __m256 load8(const void *p, int64_t i, tm_dtype dtype)
{
    if (dtype == TM_F32) return _mm256_loadu_ps((const float *)p + i);
    __m128i half = _mm_loadu_si128((const __m128i *)(const void *)((const uint16_t *)p + i));
    if (dtype == TM_F16) return _mm256_cvtph_ps(half);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
}
#endif
TM_INLINE void pack_row(float *dst, const void *p, int64_t i, tm_dtype dtype, int width, int64_t valid)
{
    if (valid >= width) {
        int v = 0;
#if defined(__AVX2__)
        for (; v + 8 <= width; v += 8) _mm256_storeu_ps(dst + v, load8(p, i + v, dtype));
#endif
        for (; v < width; v++) dst[v] = pack_element(p, i + v, dtype);
        return;
    }
    for (int v = 0; v < width; v++) dst[v] = v < valid ? pack_element(p, i + v, dtype) : 0.f;
}

#if defined(__AVX2__)
/* lanes is 8, or MR = 6: the two further ones belong to the next column */
TM_INLINE void store_lanes(float *dst, __m256 x, int lanes)
{
    if (lanes >= 8) {
        _mm256_storeu_ps(dst, x);
        return;
    }
    _mm_storeu_ps(dst, _mm256_castps256_ps128(x));
    _mm_storel_pi((__m64 *)(void *)(dst + 4), _mm256_extractf128_ps(x, 1));
}
#endif

/* row r, column k of the source at p[r * ld + k] */
TM_INLINE void pack_transposed(float *dst, const void *p, int64_t ld, tm_dtype dtype, int width, int64_t valid,
                               int64_t k)
{
    int64_t done = 0;
#if defined(__AVX2__)
    for (int v = 0; v < width && valid >= width; v += 8)
        for (done = 0; done + 8 <= k; done += 8) {
            __m256 t[8];
            TM_UNROLL for (int i = 0; i < 8; i++) t[i] =
                v + i < width ? load8(p, (v + i) * ld + done, dtype) : _mm256_setzero_ps();
            tm_transpose8(t);
            TM_UNROLL for (int i = 0; i < 8; i++) store_lanes(dst + (done + i) * width + v, t[i], width - v);
        }
#endif
    for (int v = 0; v < width; v++)
        for (int64_t q = done; q < k; q++) dst[q * width + v] = v < valid ? pack_element(p, v * ld + q, dtype) : 0.f;
}
#endif

/* `panels` neighbouring panels, panel i at dst + i * width * k; the first begins at row (column) r0, and `limit` of
 * them exist. along_k: element (r, q) at p[r * ld + q], otherwise at p[q * ld + r]; both counted from k0. */
TM_INLINE void pack_typed(float *dst, const void *p, int64_t ld, tm_dtype dtype, bool along_k, int width,
                          int64_t panels, int64_t r0, int64_t limit, int64_t k0, int64_t k)
{
    size_t size = dtype == TM_F32 ? 4 : 2;
    if (along_k) {
        for (int64_t i = 0; i < panels; i++) {
            int64_t     row = r0 + i * width, valid = limit - row < width ? limit - row : width;
            const char *from = (const char *)p + (size_t)(row * ld + k0) * size;
            pack_transposed(dst + i * width * k, from, ld, dtype, width, valid, k);
        }
        return;
    }
    for (int64_t q = 0; q < k; q++) { /* all panels of a stored row together: long runs of memory */
        for (int64_t i = 0; i < panels * width; i += 16) pack_ahead(p, (k0 + q + 8) * ld + r0 + i, dtype);
        for (int64_t i = 0; i < panels; i++) {
            int64_t row = r0 + i * width, at = (k0 + q) * ld + row;
            if (limit - row >= width)
                pack_row(dst + (i * k + q) * width, p, at, dtype, width, width);
            else
                pack_row(dst + (i * k + q) * width, p, at, dtype, width, limit - row);
        }
    }
}
TM_INLINE void pack_panels(float *dst, const void *p, int64_t ld, tm_dtype dtype, bool along_k, bool of_b,
                           int64_t panels, int64_t r0, int64_t limit, int64_t k0, int64_t k)
{
    if (dtype == TM_BF16)
        pack_typed(dst, p, ld, TM_BF16, along_k, of_b ? NR : MR, panels, r0, limit, k0, k);
    else if (dtype == TM_F16)
        pack_typed(dst, p, ld, TM_F16, along_k, of_b ? NR : MR, panels, r0, limit, k0, k);
    else
        pack_typed(dst, p, ld, TM_F32, along_k, of_b ? NR : MR, panels, r0, limit, k0, k);
}

/* Slots of a row of k elements; see gemm_pairs.h. */
TM_INLINE TM_PLANNED int64_t packed_columns(int64_t k)
{
    return k;
}
TM_INLINE void gemm_begin(void)
{
}
TM_INLINE void gemm_end(void)
{
}

#endif
