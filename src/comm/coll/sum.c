/* SPDX-License-Identifier: Apache-2.0 */
/* comm/coll/sum.c - reductions over the ranks of a group, element by element, in the order of the ranks. Compiled
 * twice: for the vectors that every processor of the architecture has, and for those of AVX2.
 *
 * Of max and min, a NaN among the values is the result.
 */
#include "base/cpu.h"
#include "comm/coll/coll.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define EACH_WIDTH static inline __attribute__((always_inline))

enum {
    LINE = 16,
    BLOCK = 1024
}; /* LINE: floats of a cache line; BLOCK: elements that are accumulated at once: stays in the first-level cache */

EACH_WIDTH float widen(uint16_t buffer)
{
    uint32_t bits = (uint32_t)buffer << 16;
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

/* One block of `m` elements from `first` on: elements are `stored`, accumulated as `type`. `before`: what was
 * accumulated of earlier ranks, or NULL; keeps: the result stays as it is accumulated. Sums of int64 wrap. */
#define REDUCE_BLOCK(name, stored, type, load, save)                                                                   \
    EACH_WIDTH void name(tm_comm_op op, const type *before, const void *const *in, int n, bool keeps, void *out,       \
                         size_t first, size_t m)                                                                       \
    {                                                                                                                  \
        type          total[BLOCK];                                                                                    \
        const stored *x = (const stored *)in[0] + first;                                                               \
        for (size_t i = 0; i < m; i++) total[i] = before ? before[first + i] : (type)load(x[i]);                       \
        for (int r = before ? 0 : 1; r < n; r++) {                                                                     \
            x = (const stored *)in[r] + first;                                                                         \
            if (op == TM_COMM_SUM)                                                                                     \
                for (size_t i = 0; i < m; i++) total[i] += (type)load(x[i]);                                           \
            else if (op == TM_COMM_MAX)                                                                                \
                for (size_t i = 0; i < m; i++) total[i] = LARGER(total[i], (type)load(x[i]));                          \
            else                                                                                                       \
                for (size_t i = 0; i < m; i++) total[i] = SMALLER(total[i], (type)load(x[i]));                         \
        }                                                                                                              \
        if (keeps) {                                                                                                   \
            memcpy((type *)out + first, total, m * sizeof total[0]);                                                   \
            return;                                                                                                    \
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

/* A part of a reduction, see tm_comm_reduce_on. */
typedef struct {
    tm_comm_op         op;
    tm_comm_format     format;
    const float       *before; /* of bfloat16; what comes before other formats is one of `in` */
    const void *const *in;
    int                n;
    bool               keeps;
    void              *out;
    size_t             count;
} part;

EACH_WIDTH void reduce(const part *p)
{
    if (p->n == 2 && p->op == TM_COMM_SUM && p->format == TM_COMM_FLOAT32) {
        add_two(p->in[0], p->in[1], p->out, p->count);
        return;
    }
    for (size_t first = 0; first < p->count; first += BLOCK) {
        size_t m = p->count - first < BLOCK ? p->count - first : BLOCK;
        switch (p->format) {
        case TM_COMM_FLOAT32:
            reduce_float32(p->op, NULL, p->in, p->n, false, p->out, first, m);
            break;
        case TM_COMM_FLOAT64:
            reduce_float64(p->op, NULL, p->in, p->n, false, p->out, first, m);
            break;
        case TM_COMM_BFLOAT16:
            reduce_bfloat16(p->op, p->before, p->in, p->n, p->keeps, p->out, first, m);
            break;
        case TM_COMM_INT64:
            reduce_int64(p->op, p->in, p->n, p->out, first, m);
            break;
        case TM_COMM_BYTES:
            TM_ASSERT(p->format != TM_COMM_BYTES);
        }
    }
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void reduce_avx2(const part *p)
{
    reduce(p);
}
#endif

static void reduce_widest(const part *p)
{
#if defined(__x86_64__)
    if (tm_cpu_has_avx2()) {
        reduce_avx2(p);
        return;
    }
#endif
    reduce(p);
}

void tm_comm_reduce(tm_comm_op op, tm_comm_format format, const void *const *in, int n, void *out, size_t count)
{
    reduce_widest(&(part){ op, format, NULL, in, n, false, out, count });
}

void tm_comm_reduce_on(tm_comm_op op, tm_comm_format format, const void *before, const void *const *in, int n,
                       bool keeps, void *out, size_t count)
{
    const void *all[TM_COMM_LOCAL + 1];
    if (format == TM_COMM_BFLOAT16) {
        reduce_widest(&(part){ op, format, before, in, n, keeps, out, count });
        return;
    }
    if (before) {
        all[0] = before;
        memcpy(all + 1, in, (size_t)n * sizeof all[0]);
    }
    reduce_widest(&(part){ op, format, NULL, before ? all : in, before ? n + 1 : n, false, out, count });
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
    bool whole = count % LINE == 0 && tm_cpu_has_avx2();
    for (int o = 0; o < n_out; o++) whole = whole && (uintptr_t)out[o] % (LINE * sizeof(float)) == 0;
    if (whole) add_past_avx2(in, n, out, n_out, count);
    return whole;
#else
    (void)in, (void)n, (void)out, (void)n_out, (void)count;
    return false;
#endif
}
