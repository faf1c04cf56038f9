/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/gemm_nf4.h - panels of B from a frozen weight in blocks of NF4 (graph/nf4.h), or a part of one with
 * scales of its blocks (NF4_SCALED, graph/blocks.h), decoded on the way: a matrix of 4 bits passes through the cache,
 * and no copy of four times its size through memory. The bits are those of a cast to bfloat16 in front of the product.
 * Part of gemm_pairs.h.
 */
#ifndef TM_DEVICE_CPU_GEMM_NF4_H
#define TM_DEVICE_CPU_GEMM_NF4_H

#include "device/cpu/simd/nf4.h"

enum { NF4_RUN = 32, NF4_K = 512 /* decoded at a time: 32 KiB of a panel */ };

typedef struct {
    float code[16], map[256];
    bool  scaled; /* NF4_SCALED */
} nf4_tables;

static void nf4_tables_init(nf4_tables *tables, tm_dtype dtype)
{
    tm_nf4_codes(tables->code);
    tm_nf4_map(tables->map);
    tables->scaled = dtype == TM_NF4_SCALED;
}

/* Elements i .. i + 31, i a multiple of 32, so of one block: its sixteen values are rounded once, its codes choose
 * among them. */
TM_INLINE __m512i nf4_halves(const nf4_tables *tables, const uint8_t *data, int64_t i, const bool scaled)
{
    const int64_t  head = scaled ? TM_SCALED_HEAD : TM_NF4_HEAD, bytes = head + TM_NF4_GROUP / 2;
    const uint8_t *group = data + i / TM_NF4_GROUP * bytes;
    int64_t        at = i % TM_NF4_GROUP;
    float          factor = nf4_factor(group, tables->map, at / TM_NF4_BLOCK, scaled);
    __m256i values = (__m256i)_mm512_cvtneps_pbh(_mm512_mul_ps(_mm512_set1_ps(factor), _mm512_loadu_ps(tables->code)));
    __m128i codes = _mm_loadu_si128((const __m128i *)(const void *)(group + head + at / 2));
    __m128i low = _mm_set1_epi8(15), second = _mm_and_si128(codes, low),
            first = _mm_and_si128(_mm_srli_epi16(codes, 4), low);
    __m256i order = _mm256_set_m128i(_mm_unpackhi_epi8(first, second), _mm_unpacklo_epi8(first, second));
    return _mm512_permutexvar_epi16(_mm512_cvtepu8_epi16(order), _mm512_castsi256_si512(values));
}
TM_INLINE void nf4_decode(const nf4_tables *tables, const void *data, int64_t i, int64_t n, uint16_t *out)
{
    if (tables->scaled)
        for (int64_t k = 0; k < n; k += NF4_RUN) _mm512_storeu_si512(out + k, nf4_halves(tables, data, i + k, true));
    else
        for (int64_t k = 0; k < n; k += NF4_RUN) _mm512_storeu_si512(out + k, nf4_halves(tables, data, i + k, false));
}

/* As pack_panels, of B only; a stored row is a multiple of 64 elements. */
static void pack_nf4(float *dst, const nf4_tables *tables, const void *p, int64_t ld, bool along_k, int64_t panels,
                     int64_t r0, int64_t limit, int64_t k0, int64_t k)
{
    const __m512i         none = _mm512_set1_epi16((short)0x8000);
    _Alignas(64) uint16_t near[NR * NF4_K];
    for (int64_t i = 0; i < panels; i++) {
        int64_t row = r0 + i * NR, valid = tm_min(NR, limit - row);
        for (int64_t q = 0; q < k; q += NF4_K) {
            int64_t n = tm_min(NF4_K, k - q);
            float  *to = dst + i * NR * packed_columns(k) + place_of(q / 2, 0, NR);
            if (along_k) {
                for (int64_t r = 0; r < valid; r++) nf4_decode(tables, p, (row + r) * ld + k0 + q, n, near + r * NF4_K);
                pack_along_k(to, near, NF4_K, TM_BF16, NR, valid, n, none);
            } else {
                for (int64_t r = 0; r < n; r++) nf4_decode(tables, p, (k0 + q + r) * ld + row, NR, near + r * NR);
                pack_across_k(to, near, NR, TM_BF16, NR, 1, 0, valid, n, none);
            }
        }
    }
}

#endif
