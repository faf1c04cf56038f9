/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/gemm_blocks.h - panels of B from a frozen weight in blocks: of NF4 (graph/nf4.h), a part of such a
 * one with scales of its blocks (NF4_SCALED), or of E4M3 (graph/blocks.h), decoded on the way: a matrix of 4 or 8 bits
 * passes through the cache, and no copy of four or two times its size through memory. The bits are those of a cast to
 * bfloat16 in front of the product. Part of gemm_pairs.h.
 */
#ifndef TM_DEVICE_CPU_GEMM_BLOCKS_H
#define TM_DEVICE_CPU_GEMM_BLOCKS_H

#include "device/cpu/simd/nf4.h"

enum { CODES_RUN = 32, CODES_K = 512 /* decoded at a time: 32 KiB of a panel */ };

typedef struct {
    float    code[16], map[256];
    tm_dtype dtype;
} block_tables;

static void block_tables_init(block_tables *tables, tm_dtype dtype)
{
    tables->dtype = dtype;
    if (!tm_dtype_nf4(dtype)) return;
    tm_nf4_codes(tables->code);
    tm_nf4_map(tables->map);
}

/* Elements i .. i + 31, i a multiple of 32, so of one block: its sixteen values are rounded once, its codes choose
 * among them. */
TM_INLINE __m512i nf4_halves(const block_tables *tables, const uint8_t *data, int64_t i, const bool scaled)
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

/* The same of E4M3: a code's exponent and fraction in the places of a half's are its value / 256, also where it is
 * denormal; but 0x7F is no number. */
TM_INLINE __m512i e4m3_halves(const uint8_t *data, int64_t i)
{
    const uint8_t *group = data + i / TM_E4M3_GROUP * TM_E4M3_GROUP_BYTES;
    int64_t        at = i % TM_E4M3_GROUP;
    float          scale;
    memcpy(&scale, group + at / TM_E4M3_BLOCK * (int64_t)sizeof scale, sizeof scale);
    __m512i codes =
        _mm512_cvtepu8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)(group + TM_E4M3_HEAD + at)));
    __m512i   size = _mm512_and_si512(codes, _mm512_set1_epi16(0x7F));
    __mmask32 none = _mm512_cmpeq_epi16_mask(size, _mm512_set1_epi16(0x7F));
    __m512i   sign = _mm512_slli_epi16(_mm512_andnot_si512(_mm512_set1_epi16(0x7F), codes), 8);
    __m512i   half = _mm512_or_si512(sign, _mm512_slli_epi16(size, 7));
    half = _mm512_mask_mov_epi16(half, none, _mm512_set1_epi16(0x7E00));
    __m512 up = _mm512_set1_ps(256), factor = _mm512_set1_ps(scale);
    __m512 low = _mm512_mul_ps(up, _mm512_cvtph_ps(_mm512_castsi512_si256(half)));
    __m512 high = _mm512_mul_ps(up, _mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1)));
    return (__m512i)_mm512_cvtne2ps_pbh(_mm512_mul_ps(factor, high), _mm512_mul_ps(factor, low));
}

TM_INLINE void decode_run(const block_tables *tables, const void *data, int64_t i, int64_t n, uint16_t *out)
{
    if (tables->dtype == TM_E4M3_BLOCKS)
        for (int64_t k = 0; k < n; k += CODES_RUN) _mm512_storeu_si512(out + k, e4m3_halves(data, i + k));
    else if (tables->dtype == TM_NF4_SCALED)
        for (int64_t k = 0; k < n; k += CODES_RUN) _mm512_storeu_si512(out + k, nf4_halves(tables, data, i + k, true));
    else
        for (int64_t k = 0; k < n; k += CODES_RUN) _mm512_storeu_si512(out + k, nf4_halves(tables, data, i + k, false));
}

/* As pack_panels, of B only; a stored row is a multiple of 64 elements. */
static void pack_blocks(float *dst, const block_tables *tables, const void *p, int64_t ld, bool along_k, int64_t panels,
                        int64_t r0, int64_t limit, int64_t k0, int64_t k)
{
    const __m512i         none = _mm512_set1_epi16((short)0x8000);
    _Alignas(64) uint16_t near[NR * CODES_K];
    for (int64_t i = 0; i < panels; i++) {
        int64_t row = r0 + i * NR, valid = tm_min(NR, limit - row);
        for (int64_t q = 0; q < k; q += CODES_K) {
            int64_t n = tm_min(CODES_K, k - q);
            float  *to = dst + i * NR * packed_columns(k) + place_of(q / 2, 0, NR);
            if (along_k) {
                for (int64_t r = 0; r < valid; r++)
                    decode_run(tables, p, (row + r) * ld + k0 + q, n, near + r * CODES_K);
                pack_along_k(to, near, CODES_K, TM_BF16, NR, valid, n, none);
            } else {
                for (int64_t r = 0; r < n; r++) decode_run(tables, p, (k0 + q + r) * ld + row, NR, near + r * NR);
                pack_across_k(to, near, NR, TM_BF16, NR, 1, 0, valid, n, none);
            }
        }
    }
}

#endif
