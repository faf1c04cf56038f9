/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/simd.h - sixteen float32 lanes, on whatever the CPU has.
 *
 * Every file of this folder is compiled once per instruction set (base, avx2, avx512) with TM_ISA set; TM_K(name) gives
 * its functions a suffix. avx2 and avx512 compute the same bits (fused multiply-add, the same 16 lanes, the same tree);
 * base has no fused multiply-add and rounds twice.
 * Sums over lanes use one fixed halving tree: 8+8, 4+4, 2+2, 1+1.
 */
#ifndef TM_DEVICE_CPU_SIMD_H
#define TM_DEVICE_CPU_SIMD_H

#include "graph/tensor.h"

#include <stdint.h>
#include <string.h>

#define TM_JOIN2(a, b) a##_##b
#define TM_JOIN(a, b) TM_JOIN2(a, b)
#define TM_K(name) TM_JOIN(name, TM_ISA)
#define TM_TEXT2(a) #a
#define TM_TEXT(a) TM_TEXT2(a)
#define TM_ISA_NAME TM_TEXT(TM_ISA) /* "avx512" */
#if defined(__SANITIZE_ADDRESS__) /* instrumented bodies inlined into each other take gcc minutes per file */
#define TM_INLINE static inline __attribute__((unused))
#else
#define TM_INLINE static inline __attribute__((always_inline, unused))
#endif

enum { TM_LANES = 16 };

#if defined(__AVX512F__)
#include <immintrin.h>
typedef __m512 v16;
typedef __m512i v16i;
TM_INLINE v16 v16_set1(float x) { return _mm512_set1_ps(x); }
TM_INLINE v16 v16_load(const float *p) { return _mm512_loadu_ps(p); }
TM_INLINE void v16_store(float *p, v16 x) { _mm512_storeu_ps(p, x); }
TM_INLINE v16 v16_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
TM_INLINE v16 v16_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
TM_INLINE v16 v16_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
TM_INLINE v16 v16_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
TM_INLINE v16 v16_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); } /* a b + c */
TM_INLINE v16 v16_max(v16 a, v16 b) { return _mm512_max_ps(a, b); }
TM_INLINE v16 v16_min(v16 a, v16 b) { return _mm512_min_ps(a, b); }
TM_INLINE v16 v16_sqrt(v16 a) { return _mm512_sqrt_ps(a); }
TM_INLINE v16 v16_round(v16 a) { return _mm512_roundscale_ps(a, 8); } /* to nearest even integer */
TM_INLINE v16 v16_scale2(v16 a, v16 n) { return _mm512_scalef_ps(a, n); } /* a 2^n, n whole, -126 <= n <= 127 */
TM_INLINE v16 v16_load_n(const float *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1), p);
}
TM_INLINE void v16_store_n(float *p, v16 x, int64_t n)
{
    _mm512_mask_storeu_ps(p, n >= 16 ? (__mmask16)0xffff : (__mmask16)((1u << n) - 1), x);
}
TM_INLINE v16 v16_load_bf16(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16));
}
/* round to nearest even; NaN stays NaN */
TM_INLINE void v16_store_bf16(uint16_t *p, v16 x)
{
    __m512i u = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, _mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(r));
}
#elif defined(__AVX2__)
#include <immintrin.h>
typedef struct {
    __m256 lo, hi;
} v16;
#define TM_BOTH(f) return (v16){ f(a.lo, b.lo), f(a.hi, b.hi) }
TM_INLINE v16 v16_set1(float x) { return (v16){ _mm256_set1_ps(x), _mm256_set1_ps(x) }; }
TM_INLINE v16 v16_load(const float *p) { return (v16){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) }; }
TM_INLINE void v16_store(float *p, v16 x) { _mm256_storeu_ps(p, x.lo), _mm256_storeu_ps(p + 8, x.hi); }
TM_INLINE v16 v16_add(v16 a, v16 b) { TM_BOTH(_mm256_add_ps); }
TM_INLINE v16 v16_sub(v16 a, v16 b) { TM_BOTH(_mm256_sub_ps); }
TM_INLINE v16 v16_mul(v16 a, v16 b) { TM_BOTH(_mm256_mul_ps); }
TM_INLINE v16 v16_div(v16 a, v16 b) { TM_BOTH(_mm256_div_ps); }
TM_INLINE v16 v16_max(v16 a, v16 b) { TM_BOTH(_mm256_max_ps); }
TM_INLINE v16 v16_min(v16 a, v16 b) { TM_BOTH(_mm256_min_ps); }
TM_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return (v16){ _mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi) };
}
TM_INLINE v16 v16_sqrt(v16 a) { return (v16){ _mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi) }; }
TM_INLINE v16 v16_round(v16 a) { return (v16){ _mm256_round_ps(a.lo, 8), _mm256_round_ps(a.hi, 8) }; }
TM_INLINE __m256 tm_scale2_half(__m256 a, __m256 n)
{
    __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(a, _mm256_castsi256_ps(e));
}
TM_INLINE v16 v16_scale2(v16 a, v16 n) { return (v16){ tm_scale2_half(a.lo, n.lo), tm_scale2_half(a.hi, n.hi) }; }
TM_INLINE v16 v16_load_bf16(const uint16_t *p)
{
    __m256i u = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    __m256i v = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p + 8)));
    return (v16){ _mm256_castsi256_ps(_mm256_slli_epi32(u, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(v, 16)) };
}
TM_INLINE void v16_store_bf16(uint16_t *p, v16 x)
{
    uint32_t u[16];
    memcpy(u, &x, sizeof u);
    for (int i = 0; i < 16; i++)
        p[i] = (uint16_t)((u[i] & 0x7fffffffu) > 0x7f800000u ? u[i] >> 16 | 0x40 : (u[i] + 0x7fff + (u[i] >> 16 & 1)) >> 16);
}
#else
#include <math.h>
typedef struct {
    float f[16];
} v16;
#define TM_EACH(expression)                                                                                            \
    v16 r;                                                                                                             \
    for (int i = 0; i < 16; i++) r.f[i] = (expression);                                                                \
    return r
TM_INLINE v16 v16_set1(float x) { TM_EACH(x); }
TM_INLINE v16 v16_load(const float *p) { TM_EACH(p[i]); }
TM_INLINE void v16_store(float *p, v16 x) { memcpy(p, x.f, sizeof x.f); }
TM_INLINE v16 v16_add(v16 a, v16 b) { TM_EACH(a.f[i] + b.f[i]); }
TM_INLINE v16 v16_sub(v16 a, v16 b) { TM_EACH(a.f[i] - b.f[i]); }
TM_INLINE v16 v16_mul(v16 a, v16 b) { TM_EACH(a.f[i] * b.f[i]); }
TM_INLINE v16 v16_div(v16 a, v16 b) { TM_EACH(a.f[i] / b.f[i]); }
TM_INLINE v16 v16_fma(v16 a, v16 b, v16 c) { TM_EACH(a.f[i] * b.f[i] + c.f[i]); }
TM_INLINE v16 v16_max(v16 a, v16 b) { TM_EACH(a.f[i] > b.f[i] ? a.f[i] : b.f[i]); }
TM_INLINE v16 v16_min(v16 a, v16 b) { TM_EACH(a.f[i] < b.f[i] ? a.f[i] : b.f[i]); }
TM_INLINE v16 v16_sqrt(v16 a) { TM_EACH(sqrtf(a.f[i])); }
TM_INLINE v16 v16_round(v16 a) { TM_EACH(rintf(a.f[i])); }
TM_INLINE v16 v16_scale2(v16 a, v16 n)
{
    v16 r;
    for (int i = 0; i < 16; i++) {
        uint32_t e = (uint32_t)((int32_t)n.f[i] + 127) << 23;
        float    s;
        memcpy(&s, &e, 4);
        r.f[i] = a.f[i] * s;
    }
    return r;
}
TM_INLINE v16 v16_load_bf16(const uint16_t *p)
{
    v16 r;
    for (int i = 0; i < 16; i++) {
        uint32_t u = (uint32_t)p[i] << 16;
        memcpy(&r.f[i], &u, 4);
    }
    return r;
}
TM_INLINE void v16_store_bf16(uint16_t *p, v16 x)
{
    for (int i = 0; i < 16; i++) {
        uint32_t u;
        memcpy(&u, &x.f[i], 4);
        p[i] = (uint16_t)((u & 0x7fffffffu) > 0x7f800000u ? u >> 16 | 0x40 : (u + 0x7fff + (u >> 16 & 1)) >> 16);
    }
}
#endif

#if !defined(__AVX512F__)
TM_INLINE v16 v16_load_n(const float *p, int64_t n)
{
    float f[16] = { 0 };
    memcpy(f, p, (size_t)(n > 16 ? 16 : n) * sizeof(float));
    return v16_load(f);
}
TM_INLINE void v16_store_n(float *p, v16 x, int64_t n)
{
    float f[16];
    v16_store(f, x);
    memcpy(p, f, (size_t)(n > 16 ? 16 : n) * sizeof(float));
}
#endif

TM_INLINE v16 v16_zero(void) { return v16_set1(0.f); }
TM_INLINE v16 v16_load_bf16_n(const uint16_t *p, int64_t n)
{
    uint16_t h[16] = { 0 };
    memcpy(h, p, (size_t)(n > 16 ? 16 : n) * sizeof(uint16_t));
    return v16_load_bf16(h);
}
TM_INLINE void v16_store_bf16_n(uint16_t *p, v16 x, int64_t n)
{
    uint16_t h[16];
    v16_store_bf16(h, x);
    memcpy(p, h, (size_t)(n > 16 ? 16 : n) * sizeof(uint16_t));
}
/* n lanes (1..16; the rest zero) at element i of a float32 or bfloat16 array; `dtype` is a constant after inlining. */
TM_INLINE v16 v16_get(const void *p, tm_dtype dtype, int64_t i, int64_t n)
{
    if (dtype == TM_BF16) return n >= 16 ? v16_load_bf16((const uint16_t *)p + i) : v16_load_bf16_n((const uint16_t *)p + i, n);
    return n >= 16 ? v16_load((const float *)p + i) : v16_load_n((const float *)p + i, n);
}
TM_INLINE void v16_put(void *p, tm_dtype dtype, int64_t i, v16 x, int64_t n)
{
    if (dtype == TM_BF16) {
        if (n >= 16)
            v16_store_bf16((uint16_t *)p + i, x);
        else
            v16_store_bf16_n((uint16_t *)p + i, x, n);
    } else if (n >= 16) {
        v16_store((float *)p + i, x);
    } else {
        v16_store_n((float *)p + i, x, n);
    }
}

TM_INLINE float v16_sum(v16 x)
{
    float f[16];
    v16_store(f, x);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) f[i] += f[i + half];
    return f[0];
}
TM_INLINE float v16_largest(v16 x)
{
    float f[16];
    v16_store(f, x);
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++) f[i] = f[i + half] > f[i] ? f[i + half] : f[i];
    return f[0];
}

/* e^x, about 1 ulp for -87 <= x <= 88; smaller x give 0 or nearly, larger ones are clamped to 88. NaN stays NaN.
 * Cody-Waite reduction and a polynomial of degree 6 (Cephes expf). */
TM_INLINE v16 v16_exp(v16 x)
{
    v16 c = v16_max(v16_set1(-87.3f), v16_min(v16_set1(88.f), x)); /* max and min return their second operand for NaN */
    v16 n = v16_round(v16_mul(c, v16_set1(1.44269504f)));
    v16 r = v16_fma(n, v16_set1(-0.693359375f), c);
    r = v16_fma(n, v16_set1(2.12194440e-4f), r);
    v16 p = v16_set1(1.9875691500e-4f);
    p = v16_fma(p, r, v16_set1(1.3981999507e-3f));
    p = v16_fma(p, r, v16_set1(8.3334519073e-3f));
    p = v16_fma(p, r, v16_set1(4.1665795894e-2f));
    p = v16_fma(p, r, v16_set1(1.6666665459e-1f));
    p = v16_fma(p, r, v16_set1(5.0000001201e-1f));
    p = v16_fma(p, v16_mul(r, r), v16_add(r, v16_set1(1.f)));
    return v16_scale2(p, n);
}
/* tanh(u) = 1 - 2 / (e^2u + 1): absolute error about 1e-7 */
TM_INLINE v16 v16_tanh(v16 u)
{
    v16 e = v16_exp(v16_add(u, u)), one = v16_set1(1.f);
    return v16_sub(one, v16_div(v16_set1(2.f), v16_add(e, one)));
}

#endif
