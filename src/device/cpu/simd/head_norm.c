/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/head_norm.c - rmsnorm of each head of a row, and its gradient; formulas in op/head_norm.c.
 *
 * Sums over a head: 16 lanes, ascending, fixed tree; dw in blocks of 64 rows, heads ascending inside a row. One
 * rounding to the format of the output.
 */
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "op/attrs.h"

#include <math.h>

/* Columns that no head has, and all others: they are overwritten. */
TM_INLINE void copy_row(const void *from, void *to, tm_dtype format, int64_t at, int64_t width)
{
    size_t bytes = tm_dtype_bytes(format);
    if (from != to)
        memcpy((char *)to + (size_t)at * bytes, (const char *)from + (size_t)at * bytes, (size_t)width * bytes);
}
TM_INLINE int64_t column_of(const tm_head_norm_attr *attr, int64_t h)
{
    return attr->first + h * (attr->stride ? attr->stride : attr->head_dim);
}
TM_INLINE int64_t weights_of(const tm_head_norm_attr *attr, int64_t h)
{
    return attr->second && h >= attr->second ? attr->head_dim : 0;
}

TM_INLINE void head_norm_rows(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_head_norm_attr *attr = call->attr;
    const void              *x = call->in[0].data, *w = call->in[1].data;
    int64_t                  width = tm_view_columns(&call->in[0]), D = attr->head_dim;
    for (int64_t i = begin; i < end; i++) {
        copy_row(x, call->out[0].data, format, i * width, width);
        for (int64_t h = 0; h < attr->heads; h++) {
            int64_t at = i * width + column_of(attr, h), from = weights_of(attr, h);
            v16     square = v16_zero();
            for (int64_t j = 0; j < D; j += TM_LANES) {
                v16 v = v16_get(x, format, at + j, tm_lanes(j, D));
                square = v16_fma(v, v, square);
            }
            float rstd = (float)(1. / sqrt((double)v16_sum(square) / (double)D + attr->eps));
            v16   r = v16_set1(rstd);
            for (int64_t j = 0; j < D; j += TM_LANES) {
                int64_t n = tm_lanes(j, D);
                v16     xhat = v16_mul(v16_get(x, format, at + j, n), r);
                v16_put(call->out[0].data, format, at + j, v16_mul(xhat, v16_get(w, format, from + j, n)), n);
            }
            ((float *)call->out[1].data)[i * attr->heads + h] = rstd;
        }
    }
}
TM_PART(head_norm_rows, in[0])

static void head_norm_run(const tm_call *call)
{
    tm_parallel(call, head_norm_rows_part, tm_view_rows(&call->in[0]), 1, tm_view_elements(&call->in[0]));
}
static TM_PLANNED const char *head_norm_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->in[1]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->out[0]);
    return why ? why : tm_refuse_wide(&call->out[1]);
}

/* ---- gradient ---- */

static TM_PLANNED int64_t weights(const tm_call *call)
{
    return tm_view_elements(&call->in[2]);
}

/* dx of one head; adds to its block's dw, or leaves it alone if that is NULL. */
TM_INLINE void grad_head(const tm_call *call, tm_dtype format, int64_t at, int64_t from, int64_t D, float rstd,
                         float *dw)
{
    const void *dys = call->in[0].data, *xs = call->in[1].data, *w = call->in[2].data;
    v16         r = v16_set1(rstd), dot = v16_zero();
    for (int64_t j = 0; j < D; j += TM_LANES) {
        int64_t n = tm_lanes(j, D);
        v16     dy = v16_get(dys, format, at + j, n), xhat = v16_mul(v16_get(xs, format, at + j, n), r);
        dot = v16_fma(v16_mul(dy, v16_get(w, format, from + j, n)), xhat, dot);
        if (dw) v16_put(dw, TM_F32, from + j, v16_fma(dy, xhat, v16_get(dw, TM_F32, from + j, n)), n);
    }
    v16 mean = v16_set1(v16_sum(dot) / (float)D);
    for (int64_t j = 0; j < D; j += TM_LANES) {
        int64_t n = tm_lanes(j, D);
        v16     xhat = v16_mul(v16_get(xs, format, at + j, n), r);
        v16     h = v16_mul(v16_get(dys, format, at + j, n), v16_get(w, format, from + j, n));
        v16_put(call->out[0].data, format, at + j, v16_mul(v16_sub(h, v16_mul(xhat, mean)), r), n);
    }
}

TM_INLINE void head_norm_grad_rows(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_head_norm_attr *attr = call->attr;
    const float             *rstd = call->in[3].data;
    int64_t                  width = tm_view_columns(&call->in[0]);
    for (int64_t i = begin; i < end; i++) {
        float *dw = tm_view_present(&call->out[1]) ? (float *)call->workspace + i / TM_ROW_BLOCK * weights(call) : NULL;
        if (dw && i % TM_ROW_BLOCK == 0) memset(dw, 0, (size_t)weights(call) * sizeof(float));
        copy_row(call->in[0].data, call->out[0].data, format, i * width, width);
        for (int64_t h = 0; h < attr->heads; h++)
            grad_head(call, format, i * width + column_of(attr, h), weights_of(attr, h), attr->head_dim,
                      rstd[i * attr->heads + h], dw);
    }
}
TM_PART(head_norm_grad_rows, in[0])

static TM_PLANNED size_t head_norm_grad_workspace(const tm_call *call)
{
    if (!tm_view_present(&call->out[1])) return 0;
    return (size_t)(tm_row_blocks(tm_view_rows(&call->in[0])) * weights(call)) * sizeof(float);
}
static void head_norm_grad_run(const tm_call *call)
{
    int64_t rows = tm_view_rows(&call->in[0]);
    tm_parallel(call, head_norm_grad_rows_part, rows, TM_ROW_BLOCK, tm_view_elements(&call->in[0]));
    if (tm_view_present(&call->out[1]))
        tm_add_blocks(&call->out[1], call->accumulate >> 1 & 1u, call->workspace, tm_row_blocks(rows), weights(call), 0,
                      weights(call));
}
static TM_PLANNED const char *head_norm_grad_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->in[1]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->in[2]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->out[0]);
    if (!why) why = tm_refuse_wide(&call->in[3]);
    return why ? why : tm_refuse_format(&call->out[1]);
}

const tm_kernel TM_K(tm_cpu_head_norm)[] = {
    TM_KERNEL(head_norm, "head_norm/", head_norm_refuse, NULL, head_norm_run),
    TM_KERNEL(head_norm_grad, "head_norm_grad/", head_norm_grad_refuse, head_norm_grad_workspace, head_norm_grad_run),
    { .name = NULL },
};
