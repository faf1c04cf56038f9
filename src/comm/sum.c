/* SPDX-License-Identifier: Apache-2.0 */
/* comm/sum.c - reductions over the ranks of a group, element by element, in the order of the ranks. Compiled twice: for
 * the vectors that every processor of the architecture has, and for those of AVX2.
 *
 * Of max and min, a NaN among the values is the result.
 */
#include "comm/group.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define EACH_WIDTH static inline __attribute__((always_inline))

enum {
    LINE = 16,
    BLOCK = 1024
}; /* LINE: floats of a cache line; BLOCK: elements that are accumulated at once: stays in the first-level cache */

EACH_WIDTH float widen(uint16_t half)
{
    uint32_t bits = (uint32_t)half << 16;
    float    value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* To nearest, ties to even; a NaN stays one. */
EACH_WIDTH uint16_t narrow(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) return (uint16_t)((bits >> 16) | 0x40);
    return (uint16_t)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

#define SAME(x) (x)
#define LARGER(a, b) ((a) > (b) || (a) != (a) ? (a) : (b))
#define SMALLER(a, b) ((a) < (b) || (a) != (a) ? (a) : (b))

/* One block of `m` elements from `first` on: elements are `stored`, accumulated as `type`. Sums of int64 wrap. */
#define REDUCE_BLOCK(name, stored, type, load, save)                                                                   \
    EACH_WIDTH void name(tm_comm_op op, const void *const *in, int n, void *out, size_t first, size_t m)               \
    {                                                                                                                  \
        type          total[BLOCK];                                                                                    \
        const stored *x = (const stored *)in[0] + first;                                                               \
        for (size_t i = 0; i < m; i++) total[i] = (type)load(x[i]);                                                    \
        for (int r = 1; r < n; r++) {                                                                                  \
            x = (const stored *)in[r] + first;                                                                         \
            if (op == TM_COMM_SUM)                                                                                     \
                for (size_t i = 0; i < m; i++) total[i] += (type)load(x[i]);                                           \
            else if (op == TM_COMM_MAX)                                                                                \
                for (size_t i = 0; i < m; i++) total[i] = LARGER(total[i], (type)load(x[i]));                          \
            else                                                                                                       \
                for (size_t i = 0; i < m; i++) total[i] = SMALLER(total[i], (type)load(x[i]));                         \
        }                                                                                                              \
        stored *y = (stored *)out + first;                                                                             \
        for (size_t i = 0; i < m; i++) y[i] = (stored)save(total[i]);                                                  \
    }

REDUCE_BLOCK(reduce_float32, float, float, SAME, SAME)
REDUCE_BLOCK(reduce_float64, double, double, SAME, SAME)
REDUCE_BLOCK(reduce_bfloat16, uint16_t, float, widen, narrow)

EACH_WIDTH void reduce_int64(tm_comm_op op, const void *const *in, int n, void *out, size_t first, size_t m)
{
    for (size_t i = first; i < first + m; i++) {
        int64_t total = ((const int64_t *)in[0])[i];
        for (int r = 1; r < n; r++) {
            int64_t x = ((const int64_t *)in[r])[i];
            if (op == TM_COMM_SUM)
                total = (int64_t)((uint64_t)total + (uint64_t)x);
            else if (op == TM_COMM_MAX ? x > total : x < total)
                total = x;
        }
        ((int64_t *)out)[i] = total;
    }
}

/* Two addends need no accumulator: the commonest case, at the speed of memory. */
EACH_WIDTH void add_two(const float *a, const float *b, float *out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = a[i] + b[i];
}

EACH_WIDTH void reduce(tm_comm_op op, tm_comm_format format, const void *const *in, int n, void *out, size_t count)
{
    if (n == 2 && op == TM_COMM_SUM && format == TM_COMM_FLOAT32) {
        add_two(in[0], in[1], out, count);
        return;
    }
    for (size_t first = 0; first < count; first += BLOCK) {
        size_t m = count - first < BLOCK ? count - first : BLOCK;
        switch (format) {
        case TM_COMM_FLOAT32:
            reduce_float32(op, in, n, out, first, m);
            break;
        case TM_COMM_FLOAT64:
            reduce_float64(op, in, n, out, first, m);
            break;
        case TM_COMM_BFLOAT16:
            reduce_bfloat16(op, in, n, out, first, m);
            break;
        case TM_COMM_INT64:
            reduce_int64(op, in, n, out, first, m);
            break;
        case TM_COMM_BYTES:
            TM_ASSERT(format != TM_COMM_BYTES);
        }
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void reduce_avx2(tm_comm_op op, tm_comm_format format, const void *const *in,
                                                        int n, void *out, size_t count)
{
    reduce(op, format, in, n, out, count);
}
#endif

void tm_comm_reduce(tm_comm_op op, tm_comm_format format, const void *const *in, int n, void *out, size_t count)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        reduce_avx2(op, format, in, n, out, count);
        return;
    }
#endif
    reduce(op, format, in, n, out, count);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void add_past_avx2(const float *const *in, int n, float *const *out, int n_out,
                                                          size_t count)
{
    for (size_t i = 0; i < count; i += LINE) {
        __m256 low = _mm256_loadu_ps(in[0] + i), high = _mm256_loadu_ps(in[0] + i + LINE / 2);
        for (int r = 1; r < n; r++) {
            low = _mm256_add_ps(low, _mm256_loadu_ps(in[r] + i));
            high = _mm256_add_ps(high, _mm256_loadu_ps(in[r] + i + LINE / 2));
        }
        for (int o = 0; o < n_out; o++) {
            _mm256_stream_ps(out[o] + i, low);
            _mm256_stream_ps(out[o] + i + LINE / 2, high);
        }
    }
    _mm_sfence(); /* before anybody is told */
}
#endif

bool tm_comm_add_past(const float *const *in, int n, float *const *out, int n_out, size_t count)
{
#if defined(__x86_64__)
    bool whole = count % LINE == 0 && __builtin_cpu_supports("avx2");
    for (int o = 0; o < n_out; o++) whole = whole && (uintptr_t)out[o] % (LINE * sizeof(float)) == 0;
    if (whole) add_past_avx2(in, n, out, n_out, count);
    return whole;
#else
    (void)in, (void)n, (void)out, (void)n_out, (void)count;
    return false;
#endif
}
