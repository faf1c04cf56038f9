/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/adafactor.c - Adafactor (Shazeer & Stern 2018), the formula of op/adafactor.c.
 *
 *   1  over blocks of 64 rows: sums of squares of g over each row, of g over each column, of p over each row
 *   2  the means over columns, from the blocks in ascending order; the means over rows and their mean
 *   3  over rows: sums of squares of u
 *   4  over rows: p
 *
 * A tensor of rank 1 or 0 is cut into rows of 16384 elements, and 1 leads straight to 3. What is summed over lanes is
 * float32 with the fixed tree, over rows double in ascending order. No operation is fused: all instruction sets agree
 * bit for bit.
 */
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "device/cpu/simd/rounding.h"
#include "op/attrs.h"

#include <float.h>
#include <math.h>

enum { FLAT_ROW = 16384 };

/* The workspace: this, then per row the three sums, then the blocks' sums over columns. */
typedef struct {
    double  step, decay;                     /* p -= decay p + step u */
    int64_t matrices, rows, columns, blocks; /* rows and blocks of one matrix */
} plan;

static plan plan_of(const tm_call *call)
{
    int64_t elements = tm_view_elements(&call->in[0]), rank = call->in[0].shape.rank;
    if (rank < 2)
        return (plan){ .matrices = 1, .rows = (elements + FLAT_ROW - 1) / FLAT_ROW, .columns = FLAT_ROW, .blocks = 0 };
    int64_t rows = call->in[0].shape.n[rank - 2], columns = call->in[0].shape.n[rank - 1];
    return (plan){
        .matrices = elements / (rows * columns), .rows = rows, .columns = columns, .blocks = tm_row_blocks(rows)
    };
}

/* Per row of all matrices: sums of g^2, of p^2, of u^2. */
TM_INLINE float *sums_of(const tm_call *call, int which)
{
    plan *p = call->workspace;
    return (float *)(p + 1) + which * p->matrices * p->rows;
}
TM_INLINE float *column_sums_of(const tm_call *call)
{
    return sums_of(call, 3);
}
static size_t adafactor_workspace(const tm_call *call)
{
    plan p = plan_of(call);
    return sizeof p + (size_t)(3 * p.matrices * p.rows + p.matrices * p.blocks * p.columns) * sizeof(float);
}

TM_INLINE v16 gradient_at(const tm_call *call, tm_dtype format, int64_t i, int64_t n)
{
    const v16 coefficient = v16_set1((float)((const double *)call->in[5].data)[1]);
    return v16_mul(v16_get(call->in[1].data, format, i, n), coefficient);
}
TM_INLINE float least_variance(const tm_call *call)
{
    double eps = ((const tm_adafactor_attr *)call->attr)->eps1;
    return (float)fmax(eps * eps, (double)FLT_MIN); /* below, 0 / sqrt(0) would be no number */
}
TM_INLINE int64_t row_end(const tm_call *call, const plan *p, int64_t row)
{
    int64_t end = (row + 1) * p->columns, elements = tm_view_elements(&call->in[0]);
    return end < elements ? end : elements;
}

/* ---- 1 ---- */

/* Adds the squares of row `row` to `columns` (NULL: a flat tensor, whose variance is updated). */
TM_INLINE void square_row(const tm_call *call, tm_dtype format, const plan *p, int64_t row, bool first, float *columns)
{
    const v16 share = v16_set1((float)((const double *)call->in[4].data)[TM_SCALAR_SHARE]);
    const v16 least = v16_set1(least_variance(call));
    int64_t   begin = row * p->columns, end = row_end(call, p, row);
    v16       g_sum = v16_zero(), p_sum = v16_zero(), u_sum = v16_zero();
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16     g = gradient_at(call, format, i, n), w = v16_get(call->in[0].data, format, i, n);
        v16     square = v16_mul(g, g);
        g_sum = v16_add(g_sum, square);
        p_sum = v16_add(p_sum, v16_mul(w, w));
        if (columns) {
            int64_t j = i - begin;
            v16_put(columns, TM_F32, j, first ? square : v16_add(v16_get(columns, TM_F32, j, n), square), n);
        } else {
            v16 v = v16_get(call->in[2].data, TM_F32, i, n);
            v = v16_add(v, v16_mul(share, v16_sub(square, v)));
            v16_put(call->out[1].data, TM_F32, i, v, n);
            u_sum = v16_add(u_sum, v16_div(square, v16_max(least, v)));
        }
    }
    sums_of(call, 0)[row] = v16_sum(g_sum);
    sums_of(call, 1)[row] = v16_sum(p_sum);
    if (!columns) sums_of(call, 2)[row] = v16_sum(u_sum);
}
TM_INLINE void square_blocks(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const plan *p = call->workspace;
    for (int64_t b = begin; b < end; b++) { /* a block lies within one matrix */
        int64_t from = b / p->blocks * p->rows + b % p->blocks * TM_ROW_BLOCK, last = (b / p->blocks + 1) * p->rows;
        for (int64_t r = from; r < from + TM_ROW_BLOCK && r < last; r++)
            square_row(call, format, p, r, r == from, column_sums_of(call) + b * p->columns);
    }
}
TM_PART(square_blocks, in[0])
TM_INLINE void square_flat(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    for (int64_t r = begin; r < end; r++) square_row(call, format, call->workspace, r, false, NULL);
}
TM_PART(square_flat, in[0])

/* ---- 2 ---- */

/* Means over columns: columns begin..end-1 of all matrices, one after the other. */
static void update_columns(const tm_call *call, int64_t begin, int64_t end)
{
    const plan *p = call->workspace;
    float       share = (float)((const double *)call->in[4].data)[TM_SCALAR_SHARE], rows = (float)p->rows;
    for (int64_t c = begin; c < end; c++) {
        const float *blocks = column_sums_of(call) + c / p->columns * p->blocks * p->columns + c % p->columns;
        float        sum = blocks[0], q = ((const float *)call->in[3].data)[c];
        for (int64_t b = 1; b < p->blocks; b++) sum += blocks[b * p->columns];
        ((float *)call->out[2].data)[c] = q + share * (sum / rows - q);
    }
}
/* Means over rows; then in place of each row's sum of g^2 the factor of its variances, r / mean of r. */
static void update_rows(const tm_call *call, int64_t matrix)
{
    const plan  *p = call->workspace;
    float        share = (float)((const double *)call->in[4].data)[TM_SCALAR_SHARE], columns = (float)p->columns;
    const float *r = (const float *)call->in[2].data + matrix * p->rows;
    float       *sums = sums_of(call, 0) + matrix * p->rows, *new_r = (float *)call->out[1].data + matrix * p->rows;
    double       sum = 0;
    for (int64_t i = 0; i < p->rows; i++) {
        new_r[i] = r[i] + share * (sums[i] / columns - r[i]);
        sum += (double)new_r[i];
    }
    double mean = fmax(sum / (double)p->rows, ((const tm_adafactor_attr *)call->attr)->eps1);
    for (int64_t i = 0; i < p->rows; i++) sums[i] = (float)((double)new_r[i] / mean);
}

/* ---- 3, 4 ---- */

TM_INLINE v16 variance_at(const tm_call *call, const plan *p, int64_t row, int64_t i, int64_t n)
{
    if (p->blocks == 0) return v16_get(call->out[1].data, TM_F32, i, n);
    int64_t q = row / p->rows * p->columns + i % p->columns;
    return v16_mul(v16_set1(sums_of(call, 0)[row]), v16_get(call->out[2].data, TM_F32, q, n));
}
TM_INLINE void square_updates(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const plan *p = call->workspace;
    const v16   least = v16_set1(least_variance(call));
    for (int64_t r = begin; r < end; r++) {
        v16     sum = v16_zero();
        int64_t last = row_end(call, p, r);
        for (int64_t i = r * p->columns; i < last; i += TM_LANES) {
            int64_t n = tm_lanes(i, last);
            v16     g = gradient_at(call, format, i, n);
            sum = v16_add(sum, v16_div(v16_mul(g, g), v16_max(least, variance_at(call, p, r, i, n))));
        }
        sums_of(call, 2)[r] = v16_sum(sum);
    }
}
TM_PART(square_updates, in[0])
TM_INLINE void move(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const plan     *p = call->workspace;
    const tm_chance chance = tm_chance_of(((const tm_adafactor_attr *)call->attr)->rounding, call->in[4].data);
    const v16       least = v16_set1(least_variance(call)), decay = v16_set1((float)p->decay),
              step = v16_set1((float)p->step);
    for (int64_t r = begin; r < end; r++) {
        int64_t last = row_end(call, p, r);
        for (int64_t i = r * p->columns; i < last; i += TM_LANES) {
            int64_t n = tm_lanes(i, last);
            v16     g = gradient_at(call, format, i, n), w = v16_get(call->in[0].data, format, i, n);
            v16     u = v16_div(g, v16_sqrt(v16_max(least, variance_at(call, p, r, i, n))));
            w = v16_sub(v16_sub(w, v16_mul(decay, w)), v16_mul(step, u));
            tm_put_rounded(&chance, call->out[0].data, format, i, w, n, 0);
        }
    }
}
TM_PART(move, in[0])

static double sum_rows(const float *sums, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += (double)sums[i];
    return sum;
}
static void adafactor_run(const tm_call *call)
{
    const tm_adafactor_attr *attr = call->attr;
    const double            *scalars = call->in[4].data;
    int64_t                  elements = tm_view_elements(&call->in[0]);
    plan                    *p = call->workspace;
    *p = plan_of(call);
    int64_t rows = p->matrices * p->rows, columns = p->matrices * p->columns;
    if (p->blocks > 0) {
        tm_parallel(call, square_blocks_part, p->matrices * p->blocks, 1, elements);
        tm_parallel(call, update_columns, columns, TM_LANES, columns * p->blocks);
        for (int64_t m = 0; m < p->matrices; m++) update_rows(call, m);
        tm_parallel(call, square_updates_part, rows, 1, elements);
    } else {
        tm_parallel(call, square_flat_part, rows, 1, elements);
    }
    double p_rms = sqrt(sum_rows(sums_of(call, 1), rows) / (double)elements);
    double u_rms = sqrt(sum_rows(sums_of(call, 2), rows) / (double)elements), limit = u_rms / attr->clip_threshold;
    double alpha = (attr->eps2 > p_rms ? attr->eps2 : p_rms) * scalars[TM_SCALAR_RELATIVE_STEP];
    p->step = alpha / (limit < 1. ? 1. : limit); /* a norm that is no number stays one: a broken step must show */
    p->decay = scalars[TM_SCALAR_LEARNING_RATE] * attr->weight_decay;
    tm_parallel(call, move_part, rows, 1, elements);
}
static const char *adafactor_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->in[1]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->out[0]);
    for (int k = 2; k < 4 && !why; k++) why = tm_refuse_wide(&call->in[k]);
    for (int k = 1; k < 3 && !why; k++) why = tm_refuse_wide(&call->out[k]);
    for (int k = 4; k < 6 && !why; k++) why = tm_refuse_scalar(&call->in[k]);
    return why;
}

const tm_kernel TM_K(tm_cpu_adafactor)[] = {
    TM_KERNEL(adafactor, "adafactor/", adafactor_refuse, adafactor_workspace, adafactor_run),
    { .name = NULL },
};
