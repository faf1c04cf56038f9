/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/rescale.c - adapted_norm, joined_norm, rescale, rescale_add and rescale_wgrad; formulas in
 * op/rescale.c.
 *
 * adapted_norm: four rows at a time, so that a is read once for four; w + scale b a is formed in float32 and never
 * stored, its squares (exact in float64) are summed there in eight lanes and a fixed tree. Sums over rows: blocks of
 * 64, added in ascending order.
 */
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "op/attrs.h"

#include <math.h>

/* The part that row `row` of all parts is in; *first: the first row of it. */
static int part_of(const tm_low_rank_attr *attr, int64_t row, int64_t *first)
{
    int p = 0;
    for (*first = 0; row >= *first + attr->part[p].rows; p++) *first += attr->part[p].rows;
    return p;
}

/* ---- adapted_norm ---- */

typedef float  eight_floats __attribute__((vector_size(32)));
typedef double eight_doubles __attribute__((vector_size(64)));
enum { ROWS_AT_A_TIME = 4 };

/* scale b, as float32. */
TM_INLINE void scale_b(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    v16 factor = v16_set1((float)((const tm_low_rank_attr *)call->attr)->scale);
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16_put(call->workspace, TM_F32, i, v16_mul(factor, v16_get(call->in[2].data, format, i, n)), n);
    }
}
TM_PART(scale_b, in[2])

TM_INLINE double sum_of(const eight_doubles *x)
{
    double lane[8];
    memcpy(lane, x, sizeof lane);
    for (int half = 4; half > 0; half /= 2)
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    return lane[0];
}

/* The norms of `count` (a constant) rows of a part, from row `row` of all parts on; `w_row`: the first one's in w. */
TM_INLINE void norms(const tm_call *call, tm_dtype w, tm_dtype a, int64_t row, int64_t w_row, int64_t a_row, int count)
{
    int64_t       rank = ((const tm_low_rank_attr *)call->attr)->rank, width = tm_view_columns(&call->in[0]);
    const float  *b = (const float *)call->workspace + row * rank;
    eight_doubles sums[ROWS_AT_A_TIME] = { { 0 } };
    for (int64_t k = 0; k < width; k += TM_LANES) {
        int64_t n = tm_lanes(k, width);
        v16     value[ROWS_AT_A_TIME];
        for (int i = 0; i < count; i++) value[i] = v16_get(call->in[0].data, w, (w_row + i) * width + k, n);
        for (int64_t r = 0; r < rank; r++) {
            v16 x = v16_get(call->in[1].data, a, (a_row + r) * width + k, n);
            for (int i = 0; i < count; i++) value[i] = v16_fma(v16_set1(b[i * rank + r]), x, value[i]);
        }
        for (int i = 0; i < count; i++) {
            eight_floats half[2];
            memcpy(half, &value[i], sizeof half);
            for (int h = 0; h < 2; h++) {
                eight_doubles d = __builtin_convertvector(half[h], eight_doubles);
                sums[i] += d * d;
            }
        }
    }
    for (int i = 0; i < count; i++)
        v16_put(call->out[0].data, call->out[0].dtype, row + i, v16_set1((float)sqrt(sum_of(&sums[i]))), 1);
}

TM_INLINE void norm_rows(const tm_call *call, tm_dtype w, tm_dtype a, int64_t begin, int64_t end)
{
    const tm_low_rank_attr *attr = call->attr;
    for (int64_t row = begin; row < end;) {
        int64_t first;
        int     p = part_of(attr, row, &first);
        int64_t last = tm_min(end, first + attr->part[p].rows), offset = attr->part[p].column - first;
        for (; row + ROWS_AT_A_TIME <= last; row += ROWS_AT_A_TIME)
            norms(call, w, a, row, row + offset, p * attr->rank, ROWS_AT_A_TIME);
        for (; row < last; row++) norms(call, w, a, row, row + offset, p * attr->rank, 1);
    }
}
TM_PART_2(norm_rows, in[0], in[1])

static void adapted_norm_run(const tm_call *call)
{
    int64_t rows = call->in[2].shape.n[0], small = tm_view_elements(&call->in[2]);
    tm_parallel(call, scale_b_part, small, TM_ELEMENT_GRAIN, small);
    tm_parallel(call, norm_rows_part, rows, ROWS_AT_A_TIME, rows * tm_view_columns(&call->in[0]));
}
static TM_PLANNED size_t adapted_norm_workspace(const tm_call *call)
{
    return (size_t)tm_view_elements(&call->in[2]) * sizeof(float);
}
static TM_PLANNED const char *adapted_norm_refuse(const tm_call *call)
{
    for (int i = 0; i < 3; i++)
        if (!tm_is_float(&call->in[i])) return "needs float32 or bfloat16 inputs";
    return tm_refuse_format(&call->out[0]);
}

/* ---- joined_norm ---- */

/* Squares are exact in float64. */
TM_INLINE void add_squares(v16 x, eight_doubles sums[2])
{
    eight_floats half[2];
    memcpy(half, &x, sizeof half);
    for (int h = 0; h < 2; h++) {
        eight_doubles d = __builtin_convertvector(half[h], eight_doubles);
        sums[h] += d * d;
    }
}

static void join_norms(const tm_call *call, int64_t begin, int64_t end)
{
    int64_t parts = ((const tm_joined_attr *)call->attr)->parts, rows = tm_view_elements(&call->out[0]);
    for (int64_t j = begin; j < end; j += TM_LANES) {
        int64_t       n = tm_lanes(j, end);
        eight_doubles sums[2] = { { 0 } };
        float         norm[TM_LANES];
        v16           value;
        for (int i = 0; i < 2; i++)
            for (int64_t p = 0; call->in[i].data && p < parts; p++)
                add_squares(v16_get(call->in[i].data, call->in[i].dtype, p * rows + j, n), sums);
        for (int k = 0; k < TM_LANES; k++) norm[k] = (float)sqrt(sums[k / 8][k % 8]);
        memcpy(&value, norm, sizeof norm);
        v16_put(call->out[0].data, call->out[0].dtype, j, value, n);
    }
}

static void joined_norm_run(const tm_call *call)
{
    int64_t rows = tm_view_elements(&call->out[0]);
    tm_parallel(call, join_norms, rows, TM_ELEMENT_GRAIN, tm_view_elements(&call->in[0]));
}
static TM_PLANNED const char *joined_norm_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_format(&call->in[1]);
    return why ? why : tm_refuse_format(&call->out[0]);
}

/* n norms from row j on; that of a row of zeros counts as 1. */
TM_INLINE v16 norms_at(const tm_view *norms, int64_t j, int64_t n)
{
    float norm[TM_LANES];
    v16   value = v16_get(norms->data, norms->dtype, j, n);
    memcpy(norm, &value, sizeof norm);
    for (int k = 0; k < TM_LANES; k++) norm[k] = norm[k] == 0 ? 1 : norm[k];
    memcpy(&value, norm, sizeof norm);
    return value;
}

/* ---- rescale, rescale_add ---- */

/* What each column is multiplied with, into the workspace. */
static void make_factors(const tm_call *call)
{
    const tm_low_rank_attr *attr = call->attr;
    const tm_view          *m = &call->in[1], *norms = &call->in[2];
    float                  *factor = call->workspace;
    for (int64_t j = 0; j < tm_view_columns(&call->in[0]); j++) factor[j] = 1.f;
    for (int64_t p = 0, row = 0; p < attr->parts; row += attr->part[p++].rows)
        for (int64_t j = 0; j < attr->part[p].rows; j += TM_LANES) {
            int64_t n = tm_lanes(j, attr->part[p].rows);
            v16     value = v16_div(v16_get(m->data, m->dtype, row + j, n), norms_at(norms, row + j, n));
            v16_put(factor, TM_F32, attr->part[p].column + j, value, n);
        }
}

TM_INLINE void rescale_rows(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_view *bias = &call->in[3];
    const void    *z = call->in[0].data, *residual = call->op == &tm_op_rescale_add ? call->in[4].data : NULL;
    int64_t        columns = tm_view_columns(&call->in[0]);
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = 0; j < columns; j += TM_LANES) {
            int64_t n = tm_lanes(j, columns), at = i * columns + j;
            v16     value = v16_mul(v16_get(call->workspace, TM_F32, j, n), v16_get(z, format, at, n));
            if (bias->data) value = v16_add(value, v16_get(bias->data, bias->dtype, j, n));
            if (residual) value = v16_add(value, v16_get(residual, format, at, n));
            v16_put(call->out[0].data, call->out[0].dtype, at, value, n);
        }
}
TM_PART(rescale_rows, in[0])

static void rescale_run(const tm_call *call)
{
    make_factors(call);
    tm_parallel(call, rescale_rows_part, tm_view_rows(&call->in[0]), 1, tm_view_elements(&call->in[0]));
}
static TM_PLANNED size_t rescale_workspace(const tm_call *call)
{
    return (size_t)tm_view_columns(&call->in[0]) * sizeof(float);
}
static TM_PLANNED const char *rescale_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_format(&call->in[1]);
    if (!why) why = tm_refuse_format(&call->in[2]);
    if (!why) why = tm_refuse_format(&call->in[3]);
    if (!why && call->op == &tm_op_rescale_add) why = tm_refuse_mixed(&call->in[0], &call->in[4]);
    return why ? why : tm_refuse_format(&call->out[0]);
}

/* ---- rescale_wgrad ---- */

/* Sums of dy z over blocks of rows, of the columns of all parts, into the workspace. */
TM_INLINE void product_rows(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_low_rank_attr *attr = call->attr;
    int64_t                 columns = tm_view_columns(&call->in[0]), all = tm_view_elements(&call->out[0]);
    for (int64_t i = begin; i < end; i++) {
        float *sums = (float *)call->workspace + i / TM_ROW_BLOCK * all;
        for (int64_t p = 0, row = 0; p < attr->parts; row += attr->part[p++].rows)
            for (int64_t j = 0; j < attr->part[p].rows; j += TM_LANES) {
                int64_t n = tm_lanes(j, attr->part[p].rows), at = i * columns + attr->part[p].column + j;
                v16     sum = i % TM_ROW_BLOCK == 0 ? v16_zero() : v16_get(sums, TM_F32, row + j, n);
                sum = v16_fma(v16_get(call->in[0].data, format, at, n), v16_get(call->in[1].data, format, at, n), sum);
                v16_put(sums, TM_F32, row + j, sum, n);
            }
    }
}
TM_PART(product_rows, in[0])

/* Block after block is added to the old value, so that it does not matter where micro-batches end. */
static void product_columns(const tm_call *call, int64_t begin, int64_t end)
{
    const tm_view *dm = &call->out[0];
    int64_t        blocks = tm_row_blocks(tm_view_rows(&call->in[0])), all = tm_view_elements(dm);
    for (int64_t j = begin; j < end; j += TM_LANES) {
        int64_t n = tm_lanes(j, end);
        v16     norm = norms_at(&call->in[2], j, n), sum = v16_zero();
        if (call->accumulate & 1u) sum = v16_get(dm->data, dm->dtype, j, n);
        for (int64_t k = 0; k < blocks; k++)
            sum = v16_add(sum, v16_div(v16_get(call->workspace, TM_F32, k * all + j, n), norm));
        v16_put(dm->data, dm->dtype, j, sum, n);
    }
}

static void rescale_wgrad_run(const tm_call *call)
{
    tm_parallel(call, product_rows_part, tm_view_rows(&call->in[0]), TM_ROW_BLOCK, tm_view_elements(&call->in[0]));
    tm_parallel(call, product_columns, tm_view_elements(&call->out[0]), TM_LANES, tm_view_elements(&call->out[0]));
}
static TM_PLANNED size_t rescale_wgrad_workspace(const tm_call *call)
{
    return (size_t)(tm_row_blocks(tm_view_rows(&call->in[0])) * tm_view_elements(&call->out[0])) * sizeof(float);
}
static TM_PLANNED const char *rescale_wgrad_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->in[1]);
    if (!why) why = tm_refuse_format(&call->in[2]);
    return why ? why : tm_refuse_format(&call->out[0]);
}

const tm_kernel TM_K(tm_cpu_rescale)[] = {
    TM_KERNEL(adapted_norm, "adapted_norm/", adapted_norm_refuse, adapted_norm_workspace, adapted_norm_run),
    TM_KERNEL(joined_norm, "joined_norm/", joined_norm_refuse, NULL, joined_norm_run),
    TM_KERNEL(rescale, "rescale/", rescale_refuse, rescale_workspace, rescale_run),
    TM_KERNEL(rescale_add, "rescale_add/", rescale_refuse, rescale_workspace, rescale_run),
    TM_KERNEL(rescale_wgrad, "rescale_wgrad/", rescale_wgrad_refuse, rescale_wgrad_workspace, rescale_wgrad_run),
    { .name = NULL },
};
