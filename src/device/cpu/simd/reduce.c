/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/reduce.c - bias_grad, square_sum, square_error and its gradient, clip.
 *
 *   bias_grad    : db_m = sum_n dy_nm, in blocks of 64 rows
 *   square_sum   : sum of x^2 in double: a square of a float32 is exact there, and no product is contracted with a sum,
 *                  so that all instruction sets agree bit for bit. Blocks of 16384 elements, block sums added in
 *                  ascending order
 *   square_error : sum of (y - t)^2 likewise, the difference in double
 *   clip         : norm = sqrt(sum), coefficient = min(1, max_norm / (norm + 1e-6)), 1 without clipping
 */
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "op/attrs.h"

#include <math.h>

/* ---- bias_grad ---- */

/* Adds `rows` rows (a constant), one after the other, to the sums; the first rows of a block start them. */
TM_INLINE void sum_rows(const void *dy, tm_dtype format, int64_t at, int64_t rows, int64_t columns, bool first,
                        float *sums)
{
    for (int64_t j = 0; j < columns; j += TM_LANES) {
        int64_t n = tm_lanes(j, columns);
        v16     sum = v16_get(dy, format, at + j, n);
        if (!first) sum = v16_add(v16_get(sums, TM_F32, j, n), sum);
        for (int64_t k = 1; k < rows; k++) sum = v16_add(sum, v16_get(dy, format, at + k * columns + j, n));
        v16_put(sums, TM_F32, j, sum, n);
    }
}
TM_INLINE void bias_grad_rows(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    int64_t columns = tm_view_columns(&call->in[0]);
    for (int64_t i = begin; i < end; i += TM_ROW_BLOCK) {
        int64_t last = i + TM_ROW_BLOCK < end ? i + TM_ROW_BLOCK : end;
        float  *sums = (float *)call->workspace + i / TM_ROW_BLOCK * columns;
        int64_t r = i;
        for (; r + 4 <= last; r += 4) sum_rows(call->in[0].data, format, r * columns, 4, columns, r == i, sums);
        for (; r < last; r++) sum_rows(call->in[0].data, format, r * columns, 1, columns, r == i, sums);
    }
}
TM_PART(bias_grad_rows, in[0])

static void bias_grad_columns(const tm_call *call, int64_t begin, int64_t end)
{
    tm_add_blocks(&call->out[0], call->accumulate & 1u, call->workspace, tm_row_blocks(tm_view_rows(&call->in[0])),
                  tm_view_columns(&call->in[0]), begin, end);
}
static TM_PLANNED int64_t bias_grad_partials(const tm_call *call)
{
    return tm_row_blocks(tm_view_rows(&call->in[0])) * tm_view_columns(&call->in[0]);
}
static TM_PLANNED size_t bias_grad_workspace(const tm_call *call)
{
    return (size_t)bias_grad_partials(call) * sizeof(float);
}
static void bias_grad_run(const tm_call *call)
{
    tm_parallel(call, bias_grad_rows_part, tm_view_rows(&call->in[0]), TM_ROW_BLOCK, tm_view_elements(&call->in[0]));
    tm_parallel(call, bias_grad_columns, tm_view_columns(&call->in[0]), TM_LANES, bias_grad_partials(call));
}
static TM_PLANNED const char *bias_grad_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    return why ? why : tm_refuse_format(&call->out[0]);
}

/* ---- square_sum, square_error ---- */

enum { SQUARE_BLOCK = 16384 };
typedef float  eight_floats __attribute__((vector_size(32)));
typedef double eight_doubles __attribute__((vector_size(64)));

/* Elements i .. i + 31, zero from `end` on. */
TM_INLINE void thirty_two(const void *x, tm_dtype format, int64_t i, int64_t end, eight_floats f[4])
{
    v16 v[2] = { v16_get(x, format, i, end - i), v16_zero() };
    if (end - i > TM_LANES) v[1] = v16_get(x, format, i + TM_LANES, end - i - TM_LANES);
    memcpy(f, v, sizeof v);
}
/* Of x - t; t is float32, or NULL for 0. 32 lanes, ascending, fixed tree. */
TM_INLINE double square_block(const void *x, tm_dtype format, const float *t, int64_t begin, int64_t end)
{
    eight_doubles sums[4] = { { 0 } };
    for (int64_t i = begin; i < end; i += 2 * TM_LANES) {
        eight_floats f[4], g[4];
        thirty_two(x, format, i, end, f);
        if (t) thirty_two(t, TM_F32, i, end, g);
        for (int k = 0; k < 4; k++) {
            eight_doubles d = __builtin_convertvector(f[k], eight_doubles);
            if (t) d -= __builtin_convertvector(g[k], eight_doubles);
            sums[k] += d * d;
        }
    }
    sums[0] = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    double lane[8];
    memcpy(lane, &sums[0], sizeof lane);
    for (int half = 4; half > 0; half /= 2)
        for (int k = 0; k < half; k++) lane[k] += lane[k + half];
    return lane[0];
}
TM_INLINE void square_blocks(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    double *sums = call->workspace;
    for (int64_t i = begin; i < end; i += SQUARE_BLOCK) {
        int64_t last = i + SQUARE_BLOCK < end ? i + SQUARE_BLOCK : end;
        sums[i / SQUARE_BLOCK] = square_block(call->in[0].data, format, NULL, i, last);
    }
}
TM_PART(square_blocks, in[0])
TM_INLINE void error_blocks(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    double *sums = call->workspace;
    for (int64_t i = begin; i < end; i += SQUARE_BLOCK) {
        int64_t last = i + SQUARE_BLOCK < end ? i + SQUARE_BLOCK : end;
        sums[i / SQUARE_BLOCK] = square_block(call->in[0].data, format, call->in[1].data, i, last);
    }
}
TM_PART(error_blocks, in[0])

static TM_PLANNED int64_t square_block_count(const tm_call *call)
{
    return (tm_view_elements(&call->in[0]) + SQUARE_BLOCK - 1) / SQUARE_BLOCK;
}
static TM_PLANNED size_t square_sum_workspace(const tm_call *call)
{
    return (size_t)square_block_count(call) * sizeof(double);
}
static void sum_blocks(const tm_call *call, tm_part part)
{
    const double *sums = call->workspace;
    double       *out = call->out[0].data, sum = call->accumulate & 1u ? *out : 0.;
    int64_t       n = tm_view_elements(&call->in[0]), blocks = square_block_count(call);
    tm_parallel(call, part, n, SQUARE_BLOCK, n);
    for (int64_t k = 0; k < blocks; k++) sum += sums[k];
    *out = sum;
}
static void square_sum_run(const tm_call *call)
{
    sum_blocks(call, square_blocks_part);
}
static void square_error_run(const tm_call *call)
{
    sum_blocks(call, error_blocks_part);
}
static TM_PLANNED const char *square_sum_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    return why ? why : tm_refuse_scalar(&call->out[0]);
}

static TM_PLANNED const char *square_error_refuse(const tm_call *call)
{
    const char *why = square_sum_refuse(call);
    return why ? why : tm_refuse_wide(&call->in[1]);
}

TM_INLINE void error_grad(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const v16 scale = v16_set1((float)(2. * ((const double *)call->in[2].data)[TM_SCALAR_LOSS_SCALE]));
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16     y = v16_get(call->in[0].data, format, i, n), t = v16_get(call->in[1].data, TM_F32, i, n);
        v16_put(call->out[0].data, format, i, v16_mul(scale, v16_sub(y, t)), n);
    }
}
TM_PART(error_grad, in[0])
static void square_error_grad_run(const tm_call *call)
{
    int64_t n = tm_view_elements(&call->in[0]);
    tm_parallel(call, error_grad_part, n, TM_ELEMENT_GRAIN, n);
}
static TM_PLANNED const char *square_error_grad_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->out[0]);
    if (!why) why = tm_refuse_wide(&call->in[1]);
    return why ? why : tm_refuse_scalar(&call->in[2]);
}

/* ---- clip ---- */

static void clip_run(const tm_call *call)
{
    const double *sum = call->in[0].data, *scalars = call->in[1].data;
    double       *result = call->out[0].data, norm = sqrt(*sum), most = scalars[TM_SCALAR_MAX_NORM];
    double        coefficient = most > 0. ? most / (norm + 1e-6) : 1.;
    result[0] = norm;
    result[1] = coefficient > 1. ? 1. : coefficient; /* NaN stays: a broken gradient must show */
}
static TM_PLANNED const char *clip_refuse(const tm_call *call)
{
    const char *why = tm_refuse_scalar(&call->in[0]);
    if (!why) why = tm_refuse_scalar(&call->in[1]);
    return why ? why : tm_refuse_scalar(&call->out[0]);
}

const tm_kernel TM_K(tm_cpu_reduce)[] = {
    TM_KERNEL(bias_grad, "bias_grad/", bias_grad_refuse, bias_grad_workspace, bias_grad_run),
    TM_KERNEL(square_sum, "square_sum/", square_sum_refuse, square_sum_workspace, square_sum_run),
    TM_KERNEL(square_error, "square_error/", square_error_refuse, square_sum_workspace, square_error_run),
    TM_KERNEL(square_error_grad, "square_error_grad/", square_error_grad_refuse, NULL, square_error_grad_run),
    TM_KERNEL(clip, "clip/", clip_refuse, NULL, clip_run),
    { .name = NULL },
};
