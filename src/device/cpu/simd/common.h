/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/common.h - what kernels of several families share beside the lanes of simd.h: whole-number
 * arithmetic, the formats they read, transposes in registers. */
#ifndef TM_DEVICE_CPU_COMMON_H
#define TM_DEVICE_CPU_COMMON_H

#include "device/cpu/simd/simd.h"

#ifdef __clang__
#define TM_UNROLL _Pragma("unroll")
#else
#define TM_UNROLL _Pragma("GCC unroll 16")
#endif

TM_INLINE TM_PLANNED int64_t tm_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}
TM_INLINE TM_PLANNED int64_t tm_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}
TM_INLINE TM_PLANNED int64_t tm_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}
TM_INLINE TM_PLANNED int64_t tm_round_up(int64_t n, int64_t to)
{
    return (n + to - 1) / to * to;
}

/* Whether kernels read it through v16_get. */
TM_INLINE TM_PLANNED bool tm_is_float(const tm_view *view)
{
    return view->dtype == TM_F32 || view->dtype == TM_BF16;
}

/* tm_transpose16: 16 rows of 16 float32 become columns. avx2: tm_transpose8 does the quarters. */
#if defined(__AVX512F__)
#define AS_PD(x) _mm512_castps_pd(x)
#define AS_PS(x) _mm512_castpd_ps(x)
TM_INLINE void tm_transpose16(v16 r[16])
{
    v16 t[16];
    TM_UNROLL for (int i = 0; i < 8; i++)
    {
        t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    TM_UNROLL for (int i = 0; i < 4; i++)
    {
        r[4 * i] = AS_PS(_mm512_unpacklo_pd(AS_PD(t[4 * i]), AS_PD(t[4 * i + 2])));
        r[4 * i + 1] = AS_PS(_mm512_unpackhi_pd(AS_PD(t[4 * i]), AS_PD(t[4 * i + 2])));
        r[4 * i + 2] = AS_PS(_mm512_unpacklo_pd(AS_PD(t[4 * i + 1]), AS_PD(t[4 * i + 3])));
        r[4 * i + 3] = AS_PS(_mm512_unpackhi_pd(AS_PD(t[4 * i + 1]), AS_PD(t[4 * i + 3])));
    }
    TM_UNROLL for (int i = 0; i < 4; i++)
    {
        t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
    }
    TM_UNROLL for (int i = 0; i < 4; i++)
    {
        r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
}
#undef AS_PD
#undef AS_PS
#elif defined(__AVX2__)
TM_INLINE void tm_transpose8(__m256 r[8])
{
    __m256 t[8];
    TM_UNROLL for (int i = 0; i < 4; i++)
    {
        t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
        t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
    }
    TM_UNROLL for (int i = 0; i < 2; i++)
    {
        r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
        r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
        r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
        r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
    }
    TM_UNROLL for (int i = 0; i < 4; i++)
    {
        t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
    }
    TM_UNROLL for (int i = 0; i < 8; i++) r[i] = t[i];
}
TM_INLINE void tm_transpose16(v16 r[16])
{
    __m256 q[4][8]; /* quarters: rows 0..7 and 8..15 of the low lanes, then of the high lanes */
    for (int i = 0; i < 8; i++) q[0][i] = r[i].lo, q[1][i] = r[i + 8].lo, q[2][i] = r[i].hi, q[3][i] = r[i + 8].hi;
    for (int i = 0; i < 4; i++) tm_transpose8(q[i]);
    for (int i = 0; i < 8; i++) r[i] = (v16){ q[0][i], q[1][i] }, r[i + 8] = (v16){ q[2][i], q[3][i] };
}
#else
TM_INLINE void tm_transpose16(v16 r[16])
{
    float rows[16][16], columns[16][16];
    for (int i = 0; i < 16; i++) v16_store(rows[i], r[i]);
    for (int i = 0; i < 16; i++)
        for (int j = 0; j < 16; j++) columns[i][j] = rows[j][i];
    for (int i = 0; i < 16; i++) r[i] = v16_load(columns[i]);
}
#endif

#endif
