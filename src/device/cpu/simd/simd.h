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

#include "graph/value.h"

#include <stdint.h>
#include <string.h>

#define TM_JOIN2(a, b) a##_##b
#define TM_JOIN(a, b) TM_JOIN2(a, b)
#define TM_K(name) TM_JOIN(name, TM_ISA)
#define TM_TEXT2(a) #a
#define TM_TEXT(a) TM_TEXT2(a)
#define TM_ISA_NAME TM_TEXT(TM_ISA) /* "avx512" */

/* The kernels of products are compiled twice more, for operands of pairs of bfloat16 (gemm_pairs.h): with vdpbf16ps and
 * with tile registers. They take products of bfloat16 only. */
#if defined(__AVX512BF16__)
#define TM_PAIRS 1
#else
#define TM_PAIRS 0
#endif

/* A row of a kernel table: "linear/" becomes "linear/avx512"; these kernels have nothing to prepare. */
#define TM_KERNEL(op_name, prefix, refuse_it, workspace_of, run_it)                                                    \
    {                                                                                                                  \
        .op = TM_OP_##op_name, .name = prefix TM_ISA_NAME, .refuse = refuse_it, .workspace = workspace_of,             \
        .run = run_it                                                                                                  \
    }
/* Functions that choose kernels and count their scratch (refuse, workspace, and what these call): they run where the
 * program is planned, on machines without these instructions too, so they must not use them
 * (tests/device/test_planning.c executes them step by step). */
#if defined(__x86_64__)
#define TM_PLANNED __attribute__((target("no-avx")))
#else
#define TM_PLANNED
#endif
#if defined(__SANITIZE_ADDRESS__) /* instrumented bodies inlined into each other take gcc minutes per file */
#define TM_INLINE static inline __attribute__((unused))
#else
#define TM_INLINE static inline __attribute__((always_inline, unused))
#endif

enum { TM_LANES = 16 };

#if defined(__AVX512F__)
#include <immintrin.h>
typedef __m512  v16;
typedef __m512i v16i;
TM_INLINE v16   v16_set1(float x)
{
    return _mm512_set1_ps(x);
}
TM_INLINE v16 v16_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
TM_INLINE void v16_store(float *p, v16 x)
{
    _mm512_storeu_ps(p, x);
}
TM_INLINE v16 v16_add(v16 a, v16 b)
{
    return _mm512_add_ps(a, b);
}
TM_INLINE v16 v16_sub(v16 a, v16 b)
{
    return _mm512_sub_ps(a, b);
}
TM_INLINE v16 v16_mul(v16 a, v16 b)
{
    return _mm512_mul_ps(a, b);
}
TM_INLINE v16 v16_div(v16 a, v16 b)
{
    return _mm512_div_ps(a, b);
}
TM_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
} /* a b + c */
TM_INLINE v16 v16_max(v16 a, v16 b)
{
    return _mm512_max_ps(a, b);
}
TM_INLINE v16 v16_min(v16 a, v16 b)
{
    return _mm512_min_ps(a, b);
}
TM_INLINE v16 v16_sqrt(v16 a)
{
    return _mm512_sqrt_ps(a);
}
TM_INLINE v16 v16_round(v16 a)
{
    return _mm512_roundscale_ps(a, 8);
} /* to nearest even integer */
TM_INLINE v16 v16_scale2(v16 a, v16 n)
{
    return _mm512_scalef_ps(a, n);
} /* a 2^n, n whole, -126 <= n <= 127 */
TM_INLINE v16 v16_where(v16 condition, v16 x) /* x where the condition is > 0 or no number, else 0 */
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(condition, _mm512_setzero_ps(), _CMP_NLE_UQ), x);
}
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
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16));
}
/* round to nearest even; NaN stays NaN */
TM_INLINE void v16_store_bf16(uint16_t *p, v16 x)
{
#if TM_PAIRS /* what is stored there was computed: no denormals, which this instruction takes for zero */
    _mm256_storeu_si256((__m256i *)(void *)p, (__m256i)_mm512_cvtneps_pbh(x));
    return;
#endif
    __m512i   u = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i   r = _mm512_srli_epi32(_mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff))), 16);
    __mmask16 nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, nan, _mm512_srli_epi32(u, 16), _mm512_set1_epi32(0x40));
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtepi32_epi16(r));
}
TM_INLINE v16 v16_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
TM_INLINE void v16_store_f16(uint16_t *p, v16 x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, _mm512_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
#elif defined(__AVX2__)
#include <immintrin.h>
typedef struct {
    __m256 lo, hi;
} v16;
#define TM_BOTH(f)                                                                                                     \
    return (v16)                                                                                                       \
    {                                                                                                                  \
        f(a.lo, b.lo), f(a.hi, b.hi)                                                                                   \
    }
TM_INLINE v16 v16_set1(float x)
{
    return (v16){ _mm256_set1_ps(x), _mm256_set1_ps(x) };
}
TM_INLINE v16 v16_load(const float *p)
{
    return (v16){ _mm256_loadu_ps(p), _mm256_loadu_ps(p + 8) };
}
TM_INLINE void v16_store(float *p, v16 x)
{
    _mm256_storeu_ps(p, x.lo), _mm256_storeu_ps(p + 8, x.hi);
}
TM_INLINE v16 v16_add(v16 a, v16 b)
{
    TM_BOTH(_mm256_add_ps);
}
TM_INLINE v16 v16_sub(v16 a, v16 b)
{
    TM_BOTH(_mm256_sub_ps);
}
TM_INLINE v16 v16_mul(v16 a, v16 b)
{
    TM_BOTH(_mm256_mul_ps);
}
TM_INLINE v16 v16_div(v16 a, v16 b)
{
    TM_BOTH(_mm256_div_ps);
}
TM_INLINE v16 v16_max(v16 a, v16 b)
{
    TM_BOTH(_mm256_max_ps);
}
TM_INLINE v16 v16_min(v16 a, v16 b)
{
    TM_BOTH(_mm256_min_ps);
}
TM_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return (v16){ _mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi) };
}
TM_INLINE v16 v16_sqrt(v16 a)
{
    return (v16){ _mm256_sqrt_ps(a.lo), _mm256_sqrt_ps(a.hi) };
}
TM_INLINE v16 v16_round(v16 a)
{
    return (v16){ _mm256_round_ps(a.lo, 8), _mm256_round_ps(a.hi, 8) };
}
TM_INLINE __m256 tm_scale2_half(__m256 a, __m256 n)
{
    __m256i e = _mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n), _mm256_set1_epi32(127)), 23);
    return _mm256_mul_ps(a, _mm256_castsi256_ps(e));
}
TM_INLINE v16 v16_scale2(v16 a, v16 n)
{
    return (v16){ tm_scale2_half(a.lo, n.lo), tm_scale2_half(a.hi, n.hi) };
}
TM_INLINE __m256 tm_where_half(__m256 condition, __m256 x)
{
    return _mm256_and_ps(_mm256_cmp_ps(condition, _mm256_setzero_ps(), _CMP_NLE_UQ), x);
}
TM_INLINE v16 v16_where(v16 a, v16 b)
{
    TM_BOTH(tm_where_half);
}
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
        p[i] = (uint16_t)((u[i] & 0x7fffffffu) > 0x7f800000u ? u[i] >> 16 | 0x40
                                                             : (u[i] + 0x7fff + (u[i] >> 16 & 1)) >> 16);
}
TM_INLINE v16 v16_load_f16(const uint16_t *p)
{
    return (v16){ _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p)),
                  _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 8))) };
}
TM_INLINE void v16_store_f16(uint16_t *p, v16 x)
{
    _mm_storeu_si128((__m128i *)(void *)p, _mm256_cvtps_ph(x.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((__m128i *)(void *)(p + 8), _mm256_cvtps_ph(x.hi, _MM_FROUND_TO_NEAREST_INT));
}
#else
#include <math.h>
/* Four vectors of four lanes: what every 64-bit machine has, in the notation that gcc and clang share. */
typedef float    tm_q4 __attribute__((vector_size(16)));
typedef int32_t  tm_q4i __attribute__((vector_size(16)));
typedef uint32_t tm_q4u __attribute__((vector_size(16)));
typedef uint16_t tm_q4h __attribute__((vector_size(8)));
typedef struct {
    tm_q4 q0, q1, q2, q3;
} v16;
#define TM_ONE(f)                                                                                                      \
    return (v16)                                                                                                       \
    {                                                                                                                  \
        f(a.q0), f(a.q1), f(a.q2), f(a.q3)                                                                             \
    }
#define TM_TWO(f)                                                                                                      \
    return (v16)                                                                                                       \
    {                                                                                                                  \
        f(a.q0, b.q0), f(a.q1, b.q1), f(a.q2, b.q2), f(a.q3, b.q3)                                                     \
    }
TM_INLINE tm_q4 tm_q4_load(const float *p)
{
    tm_q4 r;
    memcpy(&r, p, sizeof r);
    return r;
}
TM_INLINE tm_q4 tm_q4_add(tm_q4 a, tm_q4 b)
{
    return a + b;
}
TM_INLINE tm_q4 tm_q4_sub(tm_q4 a, tm_q4 b)
{
    return a - b;
}
TM_INLINE tm_q4 tm_q4_mul(tm_q4 a, tm_q4 b)
{
    return a * b;
}
TM_INLINE tm_q4 tm_q4_div(tm_q4 a, tm_q4 b)
{
    return a / b;
}
TM_INLINE tm_q4 tm_q4_select(tm_q4i mask, tm_q4 a, tm_q4 b)
{
    return (tm_q4)((mask & (tm_q4i)a) | (~mask & (tm_q4i)b));
}
TM_INLINE tm_q4 tm_q4_max(tm_q4 a, tm_q4 b)
{
    return tm_q4_select(a > b, a, b);
}
TM_INLINE tm_q4 tm_q4_min(tm_q4 a, tm_q4 b)
{
    return tm_q4_select(a < b, a, b);
}
TM_INLINE tm_q4 tm_q4_where(tm_q4 a, tm_q4 b)
{
    return tm_q4_select(a <= (tm_q4){ 0 }, (tm_q4){ 0 }, b);
}
TM_INLINE tm_q4 tm_q4_sqrt(tm_q4 a)
{
    return (tm_q4){ sqrtf(a[0]), sqrtf(a[1]), sqrtf(a[2]), sqrtf(a[3]) };
}
/* Adding 2^23 leaves no room for a fraction; from there on every float is whole. The sign stays, also of zero. */
TM_INLINE tm_q4 tm_q4_round(tm_q4 a)
{
    tm_q4  large = { 0x1p23f, 0x1p23f, 0x1p23f, 0x1p23f };
    tm_q4u sign = (tm_q4u)a & 0x80000000u;
    tm_q4  size = (tm_q4)((tm_q4u)a ^ sign);
    tm_q4  whole = (tm_q4)((tm_q4u)(size + large - large) | sign);
    return tm_q4_select(size < large, whole, a);
}
TM_INLINE tm_q4 tm_q4_scale2(tm_q4 a, tm_q4 n)
{
    return a * (tm_q4)((tm_q4u)(__builtin_convertvector(n, tm_q4i) + 127) << 23);
}
TM_INLINE tm_q4 tm_q4_load_bf16(const uint16_t *p)
{
    tm_q4h h;
    memcpy(&h, p, sizeof h);
    return (tm_q4)(__builtin_convertvector(h, tm_q4u) << 16);
}
TM_INLINE void tm_q4_store_bf16(uint16_t *p, tm_q4 x)
{
    tm_q4u u = (tm_q4u)x, nan = (tm_q4u)((u & 0x7fffffffu) > 0x7f800000u);
    tm_q4u r = (nan & (u >> 16 | 0x40)) | (~nan & ((u + 0x7fff + (u >> 16 & 1)) >> 16));
    tm_q4h h = __builtin_convertvector(r, tm_q4h);
    memcpy(p, &h, sizeof h);
}
TM_INLINE v16 v16_set1(float x)
{
    tm_q4 q = { x, x, x, x };
    return (v16){ q, q, q, q };
}
TM_INLINE v16 v16_load(const float *p)
{
    return (v16){ tm_q4_load(p), tm_q4_load(p + 4), tm_q4_load(p + 8), tm_q4_load(p + 12) };
}
TM_INLINE void v16_store(float *p, v16 x)
{
    memcpy(p, &x, sizeof x);
}
TM_INLINE v16 v16_add(v16 a, v16 b)
{
    TM_TWO(tm_q4_add);
}
TM_INLINE v16 v16_sub(v16 a, v16 b)
{
    TM_TWO(tm_q4_sub);
}
TM_INLINE v16 v16_mul(v16 a, v16 b)
{
    TM_TWO(tm_q4_mul);
}
TM_INLINE v16 v16_div(v16 a, v16 b)
{
    TM_TWO(tm_q4_div);
}
TM_INLINE v16 v16_fma(v16 a, v16 b, v16 c)
{
    return v16_add(v16_mul(a, b), c);
}
TM_INLINE v16 v16_max(v16 a, v16 b)
{
    TM_TWO(tm_q4_max);
}
TM_INLINE v16 v16_min(v16 a, v16 b)
{
    TM_TWO(tm_q4_min);
}
TM_INLINE v16 v16_where(v16 a, v16 b)
{
    TM_TWO(tm_q4_where);
}
TM_INLINE v16 v16_sqrt(v16 a)
{
    TM_ONE(tm_q4_sqrt);
}
TM_INLINE v16 v16_round(v16 a)
{
    TM_ONE(tm_q4_round);
}
TM_INLINE v16 v16_scale2(v16 a, v16 b)
{
    TM_TWO(tm_q4_scale2);
}
TM_INLINE v16 v16_load_bf16(const uint16_t *p)
{
    return (v16){ tm_q4_load_bf16(p), tm_q4_load_bf16(p + 4), tm_q4_load_bf16(p + 8), tm_q4_load_bf16(p + 12) };
}
TM_INLINE void v16_store_bf16(uint16_t *p, v16 x)
{
    tm_q4_store_bf16(p, x.q0), tm_q4_store_bf16(p + 4, x.q1);
    tm_q4_store_bf16(p + 8, x.q2), tm_q4_store_bf16(p + 12, x.q3);
}
TM_INLINE v16 v16_load_f16(const uint16_t *p)
{
    float f[16];
    for (int i = 0; i < 16; i++) f[i] = tm_f16_value(p[i]);
    return v16_load(f);
}
TM_INLINE void v16_store_f16(uint16_t *p, v16 x)
{
    float f[16];
    v16_store(f, x);
    for (int i = 0; i < 16; i++) p[i] = tm_f16_round((double)f[i]);
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

TM_INLINE v16 v16_zero(void)
{
    return v16_set1(0.f);
}
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
    if (dtype == TM_BF16)
        return n >= 16 ? v16_load_bf16((const uint16_t *)p + i) : v16_load_bf16_n((const uint16_t *)p + i, n);
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
