/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/compare.c - a tensor beside the one that it should be: op/compare.c.
 *
 * Blocks of 16384 elements, each summed in 16 lanes of float64 and a fixed tree; block sums are added in ascending
 * order. Counts and maxima do not depend on an order, products of float32 are exact in float64 and none is contracted
 * with a sum: the same bits for every split and instruction set. Denormal numbers count as 0, as they do in kernels.
 */
#include "op/compare.h"

#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"

enum { COMPARE_BLOCK = 16384, SUMS = 4, ZEROS = TM_EXPONENT_BINS };

typedef struct {
    double   sum[SUMS]; /* in the order of the columns TM_COMPARED_ERROR .. TM_COMPARED_DOT */
    uint32_t most[2];   /* bits of the largest magnitude of a, b */
    uint32_t underflow, overflow, broken;
    uint32_t bins[2][TM_EXPONENT_BINS + 1];
} block_record;

TM_INLINE void count_size(block_record *r, int which, uint32_t size)
{
    int e = (int)(size >> 23) - 127 - TM_EXPONENT_FIRST;
    if (size >= 0x7f800000u) return;
    if (size > r->most[which]) r->most[which] = size;
    e = e < 0 ? 0 : e >= TM_EXPONENT_BINS ? TM_EXPONENT_BINS - 1 : e;
    r->bins[which][size < 0x00800000u ? ZEROS : e]++;
}

/* n elements, at most 16. */
TM_INLINE void compare_lanes(v16 x, v16 y, int64_t n, block_record *r, double lanes[SUMS][TM_LANES])
{
    const uint32_t infinite = 0x7f800000u, least = 0x00800000u;
    float          a[TM_LANES], b[TM_LANES];
    uint32_t       u[TM_LANES], w[TM_LANES];
    v16_store(a, x), v16_store(b, y);
    memcpy(u, a, sizeof u), memcpy(w, b, sizeof w);
    for (int64_t l = 0; l < n; l++) {
        uint32_t s = u[l] & 0x7fffffffu, t = w[l] & 0x7fffffffu;
        bool     finite = s < infinite && t < infinite;
        r->broken += t >= infinite;
        r->overflow += s >= infinite && t < infinite;
        r->underflow += s < least && t >= least;
        count_size(r, 0, s);
        count_size(r, 1, t);
        double p = finite ? (double)a[l] : 0., q = finite ? (double)b[l] : 0.;
        lanes[TM_COMPARED_ERROR][l] += (p - q) * (p - q);
        lanes[TM_COMPARED_OWN][l] += p * p;
        lanes[TM_COMPARED_REFERENCE][l] += q * q;
        lanes[TM_COMPARED_DOT][l] += p * q;
    }
}

/* Elements begin .. end - 1, row by row: rows of views lie apart. */
TM_INLINE void compare_block(const tm_call *call, tm_dtype first, tm_dtype second, int64_t begin, int64_t end,
                             block_record *r)
{
    const tm_view *a = &call->in[0], *b = &call->in[1];
    bool           dense = tm_view_dense(a) && tm_view_dense(b);
    int64_t        columns = dense ? tm_view_elements(a) : tm_view_columns(a);
    double         lanes[SUMS][TM_LANES] = { { 0 } };
    memset(r, 0, sizeof *r);
    for (int64_t i = begin; i < end;) {
        int64_t row = i / columns, at = i % columns, n = tm_min(columns - at, end - i);
        int64_t from_a = dense ? i : row * tm_view_ld(a) + at, from_b = dense ? i : row * tm_view_ld(b) + at;
        for (int64_t k = 0; k < n; k += TM_LANES) {
            int64_t m = tm_lanes(k, n);
            compare_lanes(v16_get(a->data, first, from_a + k, m), v16_get(b->data, second, from_b + k, m), m, r, lanes);
        }
        i += n;
    }
    for (int s = 0; s < SUMS; s++) {
        for (int half = TM_LANES / 2; half > 0; half /= 2)
            for (int l = 0; l < half; l++) lanes[s][l] += lanes[s][l + half];
        r->sum[s] = lanes[s][0];
    }
}

TM_INLINE void compare_blocks(const tm_call *call, tm_dtype first, tm_dtype second, int64_t begin, int64_t end)
{
    block_record *records = call->workspace;
    for (int64_t i = begin; i < end; i += COMPARE_BLOCK)
        compare_block(call, first, second, i, tm_min(i + COMPARE_BLOCK, end), &records[i / COMPARE_BLOCK]);
}
TM_PART_2(compare_blocks, in[0], in[1])

static TM_PLANNED int64_t compare_count(const tm_call *call)
{
    return tm_ceil_div(tm_view_elements(&call->in[0]), COMPARE_BLOCK);
}
static TM_PLANNED size_t compare_workspace(const tm_call *call)
{
    return (size_t)compare_count(call) * sizeof(block_record);
}

static void add_block(const block_record *r, double *row, uint32_t most[2])
{
    static const int bins[2] = { TM_COMPARED_OWN_BINS, TM_COMPARED_BINS };
    static const int zeros[2] = { TM_COMPARED_OWN_ZEROS, TM_COMPARED_ZEROS };
    for (int s = 0; s < SUMS; s++) row[s] += r->sum[s];
    row[TM_COMPARED_UNDERFLOW] += (double)r->underflow;
    row[TM_COMPARED_OVERFLOW] += (double)r->overflow;
    row[TM_COMPARED_BROKEN] += (double)r->broken;
    for (int w = 0; w < 2; w++) {
        if (r->most[w] > most[w]) most[w] = r->most[w];
        row[zeros[w]] += (double)r->bins[w][ZEROS];
        for (int e = 0; e < TM_EXPONENT_BINS; e++) row[bins[w] + e] += (double)r->bins[w][e];
    }
}

static void compare_run(const tm_call *call)
{
    const tm_compare_attr *attr = call->attr;
    const block_record    *records = call->workspace;
    double                *row = (double *)call->out[0].data + attr->row * TM_COMPARED;
    int64_t                n = tm_view_elements(&call->in[0]);
    uint32_t               most[2] = { 0 };
    float                  largest[2];
    tm_parallel(call, compare_blocks_part, n, COMPARE_BLOCK, n);
    for (int i = 0; i < TM_COMPARED; i++) row[i] = 0;
    for (int64_t k = 0; k < compare_count(call); k++) add_block(&records[k], row, most);
    memcpy(largest, most, sizeof largest);
    row[TM_COMPARED_OWN_MOST] = (double)largest[0];
    row[TM_COMPARED_MOST] = (double)largest[1];
}

static TM_PLANNED const char *compare_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_format(&call->in[1]);
    return why ? why : tm_refuse_scalar(&call->out[0]);
}

const tm_kernel TM_K(tm_cpu_compare)[] = {
    TM_KERNEL(compare, "compare/", compare_refuse, compare_workspace, compare_run),
    { .name = NULL },
};
