/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/gemm_tiles.h - the innermost tile of the matrix product in tile registers (AMX): 32 x 32 sums in four
 * of the eight, two panels of 16 rows of A and two of 16 columns of B in the others. Part of gemm_pairs.h.
 *
 * tdpbf16ps adds to each float32 sum 16 pairs at once: two chains of fused multiply-adds from 0, over the even and over
 * the odd k, each rounded to nearest even, then (even + odd), then the old sum plus that; denormals count as zero. So
 * an element is  (((c + g0) + g1) + g2) ...  over groups of 32 k, from 0 or from the old C: other bits than a chain
 * over k, fixed by K alone, and the same when K is split at multiples of 32. K is filled up with zeros.
 */
#ifndef TM_DEVICE_CPU_GEMM_TILES_H
#define TM_DEVICE_CPU_GEMM_TILES_H

enum { GROUP_SLOTS = 512 }; /* of 32 rows (columns) and 32 k: two tiles of 16 rows of 64 bytes */

/* Panels of A: 16 rows of 32 k after another, as the tile registers take them. */
TM_INLINE void pack_tiles_typed(float *dst, const void *p, int64_t ld, tm_dtype dtype, bool along_k, int64_t panels,
                                int64_t r0, int64_t limit, int64_t k0, int64_t k)
{
    const __m512i none = _mm512_setzero_si512();
    const size_t  size = dtype == TM_BF16 ? 2 : 4;
    const char   *from = (const char *)p + (size_t)(k0 * (along_k ? 1 : ld)) * size;
    int64_t       panel = MR * packed_columns(k);
    if (along_k) { /* runs of four cache lines of a row at a time: few streams to write, and none too short to read */
        for (int64_t i = 0; i < panels; i++)
            for (int64_t run = 0; run < k; run += 128)
                for (int64_t r = 0; r < MR; r++) {
                    int64_t row = r0 + i * MR + r;
                    float  *to = dst + i * panel + run / 32 * GROUP_SLOTS + r * 16;
                    for (int64_t q = run; q < k && q < run + 128; q += 32, to += GROUP_SLOTS) {
                        pack_ahead(from, (row + 4) * ld + q, dtype);
                        put_slots(to, 0xffff, row < limit ? halves32(from, row * ld + q, dtype, k - q, none) : none);
                    }
                }
        return;
    }
    for (int64_t q = 0; q < k; q += 32)
        for (int64_t i = 0; i < panels * MR; i += 16) {
            __mmask16 mask = first_lanes(limit - r0 - i);
            float    *to = dst + i / MR * panel + q / 32 * GROUP_SLOTS + i % MR * 16;
            __m512i   t[16];
            for (int j = 0; j < 32 && i % 32 == 0; j++) pack_ahead(from, (q + j) * ld + r0 + i + 96, dtype);
            TM_UNROLL for (int j = 0; j < 16; j++)
            {
                int64_t pair = q + 2 * j;
                t[j] = pair >= k ? none : pairs16(from, pair * ld + r0 + i, ld, dtype, pair + 1 < k, mask, none);
            }
            transpose_slots(t);
            TM_UNROLL for (int j = 0; j < 16; j++) put_slots(to + j * 16, 0xffff, t[j]);
        }
}
TM_INLINE void pack_tiles(float *dst, const void *p, int64_t ld, tm_dtype dtype, bool along_k, int64_t panels,
                          int64_t r0, int64_t limit, int64_t k0, int64_t k)
{
    if (dtype == TM_BF16)
        pack_tiles_typed(dst, p, ld, TM_BF16, along_k, panels, r0, limit, k0, k);
    else
        pack_tiles_typed(dst, p, ld, TM_F32, along_k, panels, r0, limit, k0, k);
}

/* Every thread shapes its tile registers for a product and clears them afterwards: what the system saves of a thread
 * with tiles in use is 8 KB more. */
static inline void gemm_begin(void)
{
    struct {
        uint8_t  palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t  rows[16];
    } shape = { .palette = 1 };
    for (int i = 0; i < 8; i++) shape.bytes[i] = 64, shape.rows[i] = 16;
    __asm__ volatile("" : : "r"(&shape) : "memory");
    _tile_loadconfig(&shape);
}
static inline void gemm_end(void)
{
    _tile_release();
}

/* c (32, 32) = or += a b; k counts pairs, a multiple of 16. The compiler does not know that tile loads read memory. */
static void micro(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add, const float *ahead,
                  int64_t ahead_step, fetch *later)
{
    (void)later;
    int64_t stride = ldc * 4;
    __asm__ volatile("" : : : "memory");
    if (add) {
        _tile_loadd(0, c, stride);
        _tile_loadd(1, c + 16, stride);
        _tile_loadd(2, c + 16 * ldc, stride);
        _tile_loadd(3, c + 16 * ldc + 16, stride);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    for (; k > 0; k -= 16, a += GROUP_SLOTS, b += GROUP_SLOTS, ahead += 16 * ahead_step) {
        for (int64_t i = 0; i < 16 * ahead_step; i += 16) _mm_prefetch((const char *)(ahead + i), _MM_HINT_T1);
        _tile_loadd(4, a, 64);
        _tile_loadd(6, b, 64);
        _tile_loadd(7, b + 256, 64);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(5, a + 256, 64);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, c, stride);
    _tile_stored(1, c + 16, stride);
    _tile_stored(2, c + 16 * ldc, stride);
    _tile_stored(3, c + 16 * ldc + 16, stride);
    __asm__ volatile("" : : : "memory");
}

/* The same for the first m rows and n columns of a tile at the edge of C. */
static void micro_edge(int64_t k, const float *a, const float *b, float *c, int64_t ldc, bool add, int64_t m, int64_t n,
                       fetch *later)
{
    float tile[MR * NR] = { 0 };
    for (int64_t r = 0; r < m && add; r++) memcpy(tile + r * NR, c + r * ldc, (size_t)n * sizeof *c);
    micro(k, a, b, tile, NR, add, a, 0, later);
    for (int64_t r = 0; r < m; r++) memcpy(c + r * ldc, tile + r * NR, (size_t)n * sizeof *c);
}

#endif
