/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/probes.c - arithmetic from registers, and the kernels of STREAM.
 *
 * Arithmetic: independent chains x = x m + d, so many that the latency of a unit (4 or 5 cycles, two units) is covered,
 * and so few that all stay in registers. m = 1/2 and d = 1 lead every chain towards 2: no overflow, no denormals.
 * Without fused multiply-add half of the chains multiply and half add.
 */
#include "device/cpu/simd/probes.h"

#include "device/cpu/simd/simd.h"

#include <stdbool.h>

#if defined(__aarch64__)
#include <arm_neon.h>
#elif defined(__x86_64__)
#include <immintrin.h>
#endif

#ifdef __clang__
#define TM_UNROLL _Pragma("unroll")
#else
#define TM_UNROLL _Pragma("GCC unroll 32")
#endif

#if defined(__AVX512F__)
typedef __m512 reg;
enum { LANES = 16, CHAINS = 24, FUSED = 1 };
TM_INLINE reg reg_set(float x)
{
    return _mm512_set1_ps(x);
}
TM_INLINE reg reg_step(reg x, reg m, reg d, int chain)
{
    (void)chain;
    return _mm512_fmadd_ps(x, m, d);
}
#elif defined(__AVX2__)
typedef __m256 reg;
enum { LANES = 8, CHAINS = 12, FUSED = 1 };
TM_INLINE reg reg_set(float x)
{
    return _mm256_set1_ps(x);
}
TM_INLINE reg reg_step(reg x, reg m, reg d, int chain)
{
    (void)chain;
    return _mm256_fmadd_ps(x, m, d);
}
#elif defined(__aarch64__)
typedef float32x4_t reg;
enum { LANES = 4, CHAINS = 24, FUSED = 1 };
TM_INLINE reg reg_set(float x)
{
    return vdupq_n_f32(x);
}
TM_INLINE reg reg_step(reg x, reg m, reg d, int chain)
{
    (void)chain;
    return vfmaq_f32(d, x, m);
}
#else
typedef tm_q4 reg;
enum { LANES = 4, CHAINS = 12, FUSED = 0 };
TM_INLINE reg reg_set(float x)
{
    return (reg){ x, x, x, x };
}
TM_INLINE reg reg_step(reg x, reg m, reg d, int chain)
{
    return chain % 2 ? x * m : x + d;
}
#endif

enum { STEPS = 64 }; /* of every chain in a round */

static double multiply_add(int64_t rounds)
{
    volatile float half = 0.5f, one = 1; /* nothing to fold */
    reg            x[CHAINS], m = reg_set(FUSED ? half : one), d = reg_set(one);
    TM_UNROLL for (int i = 0; i < CHAINS; i++) x[i] = reg_set((float)i);
    for (int64_t r = 0; r < rounds * STEPS; r++)
        TM_UNROLL for (int i = 0; i < CHAINS; i++) x[i] = reg_step(x[i], m, d, i);
    float          sink[CHAINS * LANES];
    volatile float kept;
    memcpy(sink, x, sizeof sink);
    for (int i = 0; i < CHAINS * LANES; i++) kept = sink[i];
    (void)kept;
    return (double)rounds * STEPS * CHAINS * LANES * (FUSED ? 2 : 1);
}

#if defined(__AVX512F__)
/* vdpbf16ps adds two products to each of 16 sums. */
__attribute__((target("avx512bf16"))) static double multiply_add_bf16(int64_t rounds)
{
    __m512   x[CHAINS];
    __m512bh m = (__m512bh)_mm512_set1_epi16(0x3c00), d = (__m512bh)_mm512_set1_epi16(0x3c00); /* 2^-7 */
    TM_UNROLL for (int i = 0; i < CHAINS; i++) x[i] = _mm512_set1_ps((float)i);
    for (int64_t r = 0; r < rounds * STEPS; r++)
        TM_UNROLL for (int i = 0; i < CHAINS; i++) x[i] = _mm512_dpbf16_ps(x[i], m, d);
    float          sink[CHAINS * LANES];
    volatile float kept;
    memcpy(sink, x, sizeof sink);
    for (int i = 0; i < CHAINS * LANES; i++) kept = sink[i];
    (void)kept;
    return (double)rounds * STEPS * CHAINS * LANES * 4;
}
#define BF16 multiply_add_bf16

/* tdpbf16ps adds 16 pairs of products to each of 16 x 16 sums; six chains in tile registers. */
__attribute__((target("amx-tile,amx-bf16"))) static double multiply_add_tiles(int64_t rounds)
{
    struct {
        uint8_t  palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t  rows[16];
    } shape = { .palette = 1 };
    for (int i = 0; i < 8; i++) shape.bytes[i] = 64, shape.rows[i] = 16;
    __asm__ volatile("" : : "r"(&shape) : "memory");
    _tile_loadconfig(&shape);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_zero(4);
    _tile_zero(5);
    _tile_zero(6);
    _tile_zero(7);
    for (int64_t r = 0; r < rounds; r++) {
        _tile_dpbf16ps(0, 6, 7);
        _tile_dpbf16ps(1, 6, 7);
        _tile_dpbf16ps(2, 6, 7);
        _tile_dpbf16ps(3, 6, 7);
        _tile_dpbf16ps(4, 6, 7);
        _tile_dpbf16ps(5, 6, 7);
    }
    _tile_release();
    return (double)rounds * 6 * 16 * 16 * 32 * 2;
}
#define TILES multiply_add_tiles
#else
#define BF16 NULL
#define TILES NULL
#endif

/* --- stream ---------------------------------------------------------------------------------- */

#if defined(__AVX512F__)
typedef __m512d vd;
enum { WIDTH = 8 };
TM_INLINE void put_past(double *p, vd x)
{
    _mm512_stream_pd(p, x);
}
#elif defined(__AVX2__)
typedef __m256d vd;
enum { WIDTH = 4 };
TM_INLINE void put_past(double *p, vd x)
{
    _mm256_stream_pd(p, x);
}
#elif defined(__x86_64__)
typedef __m128d vd;
enum { WIDTH = 2 };
TM_INLINE void put_past(double *p, vd x)
{
    _mm_stream_pd(p, x);
}
#else
typedef double vd __attribute__((vector_size(16)));
enum { WIDTH = 2 };
TM_INLINE void put_past(double *p, vd x)
{
    *(vd *)(void *)p = x;
}
#endif
TM_INLINE vd get(const double *p)
{
    return *(const vd *)(const void *)p;
}
TM_INLINE void put(double *p, vd x)
{
    *(vd *)(void *)p = x;
}

#if defined(__x86_64__)
enum { STREAMS = 1 };
#define FENCE() _mm_sfence()
#else
enum { STREAMS = 0 };
#define FENCE() (void)0
#endif

/* The loop over whole vectors, then the rest; both expressions compute what belongs at `i`. */
#define SWEEP(to, vector, rest)                                                                                        \
    do {                                                                                                               \
        int64_t i = 0;                                                                                                 \
        if (past_caches)                                                                                               \
            for (; i + WIDTH <= n; i += WIDTH) put_past(to + i, vector);                                               \
        else                                                                                                           \
            for (; i + WIDTH <= n; i += WIDTH) put(to + i, vector);                                                    \
        for (; i < n; i++) to[i] = rest;                                                                               \
    } while (0)

static double dot(const double *a, const double *b, int64_t n)
{
    vd      sums[4] = { { 0 } };
    int64_t i = 0;
    for (; i + 4 * WIDTH <= n; i += 4 * WIDTH)
        for (int k = 0; k < 4; k++) sums[k] += get(a + i + k * WIDTH) * get(b + i + k * WIDTH);
    vd     all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    double sum = 0;
    for (int k = 0; k < WIDTH; k++) sum += all[k];
    for (; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static double stream(tm_stream_kernel kernel, bool past_caches, double s, double *a, double *b, double *c, int64_t n)
{
    vd scale = { 0 };
    scale += s;
    switch (kernel) {
    case TM_STREAM_COPY:
        SWEEP(c, get(a + i), a[i]);
        break;
    case TM_STREAM_MUL:
        SWEEP(b, scale * get(c + i), s * c[i]);
        break;
    case TM_STREAM_ADD:
        SWEEP(c, get(a + i) + get(b + i), a[i] + b[i]);
        break;
    case TM_STREAM_TRIAD:
        SWEEP(a, get(b + i) + scale * get(c + i), b[i] + s * c[i]);
        break;
    case TM_STREAM_DOT:
        return dot(a, b, n);
    case TM_STREAM_COUNT:
        break;
    }
    if (past_caches) FENCE();
    return 0;
}

const tm_cpu_probe TM_K(tm_cpu_probe) = {
    .isa = TM_ISA_NAME,
    .lanes = LANES,
    .chains = CHAINS,
    .fused = FUSED,
    .streams = STREAMS,
    .multiply_add = multiply_add,
    .multiply_add_bf16 = BF16,
    .multiply_add_tiles = TILES,
    .stream = stream,
};
