/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/attention_pairs.h - what the products of bfloat16 attention multiply (part of attention.h).
 *
 * Queries, keys, values and their gradients are bfloat16 already; weights (P and dS) are rounded to it before the
 * products that use them. With vdpbf16ps a slot of 32 bits holds two terms of a sum, the earlier one in the high half:
 * the sum is the ascending chain that widened operands give, bit for bit (gemm_pairs.h). Slots lie *along* a row (two
 * neighbours of it) or *across* two rows, whichever the sum goes over. Without the instruction the same terms are
 * float32.
 */
#ifndef TM_DEVICE_CPU_ATTENTION_PAIRS_H
#define TM_DEVICE_CPU_ATTENTION_PAIRS_H

enum { PAIR = TM_PAIRS ? 2 : 1 }; /* terms of a sum in a slot */

#if TM_PAIRS
TM_INLINE v16 multiply_add(v16 a, v16 b, v16 c)
{
    return _mm512_dpbf16_ps(c, (__m512bh)a, (__m512bh)b);
}
/* 32 bfloat16 from element i on, of which n are there, as slots along the row. */
TM_INLINE __m512i slots_along(const void *x, int64_t i, int64_t n)
{
    __mmask32 mask = n >= 32 ? 0xffffffffu : n <= 0 ? 0 : (__mmask32)((1u << n) - 1);
    return _mm512_rol_epi32(_mm512_maskz_loadu_epi16(mask, (const uint16_t *)x + i), 16);
}
/* 16 bfloat16 from element i on, of which n are there. */
TM_INLINE __m512i halves_of(const void *x, int64_t i, int64_t n)
{
    __mmask16 mask = n >= 16 ? (__mmask16)0xffff : n <= 0 ? (__mmask16)0 : (__mmask16)((1u << n) - 1);
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(mask, (const uint16_t *)x + i));
}
TM_INLINE __m512i slots_across(__m512i earlier, __m512i later)
{
    return _mm512_or_si512(_mm512_slli_epi32(earlier, 16), later);
}
TM_INLINE __m512i rounded_halves(const float *x)
{
    return _mm512_cvtepu16_epi32((__m256i)_mm512_cvtneps_pbh(_mm512_loadu_ps(x)));
}

/* Term t of 16 columns whose slots lie across rows. */
TM_INLINE v16 term_across(const float *slots, int64_t t)
{
    __m512i x = _mm512_loadu_si512(slots);
    return _mm512_castsi512_ps(t % 2 ? _mm512_slli_epi32(x, 16) : _mm512_and_si512(x, _mm512_set1_epi32(-65536)));
}

/* n rows of a head, the first at element `at` of x -> slots along them, out (padded, row), the rest zero. */
TM_INLINE void copy_along(const attention_sizes *s, head_size head, const void *x, int64_t at, int64_t stride,
                          int64_t n, int64_t padded, float *out, int64_t row)
{
    rows_ahead next = rows_ahead_of(s, x, at + AHEAD * stride, stride, head.dim, n - AHEAD);
    for (int64_t t = 0; t < n; t++) {
        if (next.rows > 0) ask_for_row(&next);
        for (int64_t d = 0; d < head.width; d += 2 * TM_LANES)
            _mm512_storeu_si512(out + t * row + d / 2, slots_along(x, at + t * stride + d, head.dim - d));
    }
    memset(out + n * row, 0, (size_t)((padded - n) * row) * sizeof(float));
}
/* The same -> slots across two rows each, out (padded / 2, row); `padded` is even. */
TM_INLINE void copy_across(const attention_sizes *s, head_size head, const void *x, int64_t at, int64_t stride,
                           int64_t n, int64_t padded, float *out, int64_t row)
{
    rows_ahead next = rows_ahead_of(s, x, at + AHEAD * stride, stride, head.dim, n - AHEAD);
    for (int64_t t = 0; t < padded; t += 2) {
        if (next.rows > 0) ask_for_row(&next);
        if (next.rows > 0) ask_for_row(&next);
        for (int64_t d = 0; d < head.width; d += TM_LANES) {
            int64_t i = at + t * stride + d;
            __m512i earlier = halves_of(x, i, t < n ? head.dim - d : 0);
            __m512i later = t + 1 < n ? halves_of(x, i + stride, head.dim - d) : _mm512_setzero_si512();
            _mm512_storeu_si512(out + t / 2 * row + d, slots_across(earlier, later));
        }
    }
}
/* n <= 32 rows of a head -> columns (width / 2, 32): slots along the rows, transposed. */
TM_INLINE void columns_of(const attention_sizes *s, head_size head, const void *x, int64_t at, int64_t stride,
                          int64_t n, float *rows, float *columns)
{
    (void)s, (void)rows;
    for (int64_t d = 0; d < head.width; d += 2 * TM_LANES)
        for (int64_t j = 0; j < QUERIES; j += TM_LANES) {
            v16 r[16];
#pragma GCC unroll 16
            for (int64_t i = 0; i < 16; i++)
                r[i] = _mm512_castsi512_ps(j + i < n ? slots_along(x, at + (j + i) * stride + d, head.dim - d)
                                                     : _mm512_setzero_si512());
            tm_transpose16(r);
            int64_t there = tm_min(16, (head.width - d) / 2);
            for (int64_t i = 0; i < there; i++) v16_store(columns + (d / 2 + i) * QUERIES + j, r[i]);
        }
}

/* weights (keys, 32) -> slots across keys, (keys / 2, 32), rounded: for sums over keys. `out` may be `weights`. */
TM_INLINE void weights_across(const attention_sizes *s, const float *weights, int64_t keys, float *out)
{
    (void)s;
    for (int64_t t = 0; t < keys; t += 2)
        for (int64_t lane = 0; lane < QUERIES; lane += TM_LANES) {
            const float *x = weights + t * QUERIES + lane;
            _mm512_storeu_si512(out + t / 2 * QUERIES + lane,
                                slots_across(rounded_halves(x), rounded_halves(x + QUERIES)));
        }
}
/* weights (keys, 32) -> slots along the lanes, (keys, 16), rounded: for sums over queries. `out` may be `weights`. */
TM_INLINE void weights_along(const attention_sizes *s, const float *weights, int64_t keys, float *out)
{
    (void)s;
    for (int64_t t = 0; t < keys; t++) {
        const float *x = weights + t * QUERIES;
        __m512bh     both = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + TM_LANES), _mm512_loadu_ps(x));
        _mm512_storeu_si512(out + t * QUERIES / 2, _mm512_rol_epi32((__m512i)both, 16));
    }
}
#else
TM_INLINE v16 multiply_add(v16 a, v16 b, v16 c)
{
    return v16_fma(a, b, c);
}
TM_INLINE v16 term_across(const float *rows, int64_t t)
{
    (void)t;
    return v16_load(rows);
}
TM_INLINE void columns_of(const attention_sizes *s, head_size head, const void *x, int64_t at, int64_t stride,
                          int64_t n, float *rows, float *columns)
{
    copy_rows(s, head, x, at, stride, n, QUERIES, rows, head.width);
    transpose_queries(head.width, rows, s->column_scale, columns);
}
/* Slots are single terms: rows as they are. */
TM_INLINE void copy_along(const attention_sizes *s, head_size head, const void *x, int64_t at, int64_t stride,
                          int64_t n, int64_t padded, float *out, int64_t row)
{
    copy_rows(s, head, x, at, stride, n, padded, out, row);
}
TM_INLINE void copy_across(const attention_sizes *s, head_size head, const void *x, int64_t at, int64_t stride,
                           int64_t n, int64_t padded, float *out, int64_t row)
{
    copy_rows(s, head, x, at, stride, n, padded, out, row);
}
/* With bfloat16 rounded to it, in place. */
TM_INLINE void round_weights(const attention_sizes *s, float *weights, int64_t keys)
{
    for (int64_t i = 0; s->dtype == TM_BF16 && i < keys * QUERIES; i += TM_LANES) {
        uint16_t rounded[TM_LANES];
        v16_store_bf16(rounded, v16_load(weights + i));
        v16_store(weights + i, v16_load_bf16(rounded));
    }
}
#endif

/* The term of one weight: that of lane `lane` for key t, of slots across keys. */
TM_INLINE float weight_across(const float *weights, int64_t t, int64_t lane)
{
#if TM_PAIRS
    uint32_t slot;
    float    x;
    memcpy(&slot, weights + t / 2 * QUERIES + lane, sizeof slot);
    slot = t % 2 ? slot << 16 : slot & 0xffff0000u;
    memcpy(&x, &slot, sizeof x);
    return x;
#else
    return weights[t * QUERIES + lane];
#endif
}

#endif
