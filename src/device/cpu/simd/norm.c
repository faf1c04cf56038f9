/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/norm.c - rmsnorm, layernorm and their gradients.
 *
 *   rmsnorm:   r = 1 / sqrt(mean(x^2) + eps),             xhat = x r          (Zhang & Sennrich 2019, eq. 4)
 *   layernorm: r = 1 / sqrt(mean((x - mean)^2) + eps),    xhat = (x - mean) r (Ba, Kiros & Hinton 2016, eq. 3)
 *   y = xhat w [+ b]
 *   h = dy w,  dx = [addend +] r (h [- mean(h)] - xhat mean(h xhat)),  dw = sum_rows dy xhat,  db = sum_rows dy
 *
 * A row stays in the first-level cache between its passes. Sums over a row: 16 lanes, ascending, fixed tree. One
 * rounding to the format of the output.
 */
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "op/attrs.h"

#include <math.h>

/* The first n lanes, the rest zero. */
TM_INLINE v16 keep_lanes(v16 x, int64_t n)
{
    if (n >= TM_LANES) return x;
    float f[TM_LANES] = { 0 };
    v16_store_n(f, x, n);
    return v16_load(f);
}

TM_INLINE float inverse_root(float sum, int64_t columns, double eps)
{
    return (float)(1. / sqrt((double)sum / (double)columns + eps));
}

/* ---- forward ---- */

TM_INLINE void rmsnorm_rows(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_norm_attr *attr = call->attr;
    const void         *x = call->in[0].data, *w = call->in[1].data;
    int64_t             columns = tm_view_columns(&call->in[0]);
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i * columns;
        v16     square = v16_zero();
        for (int64_t j = 0; j < columns; j += TM_LANES) {
            v16 v = v16_get(x, format, at + j, tm_lanes(j, columns));
            square = v16_fma(v, v, square);
        }
        float rstd = inverse_root(v16_sum(square), columns, attr->eps);
        v16   r = v16_set1(rstd);
        for (int64_t j = 0; j < columns; j += TM_LANES) {
            int64_t n = tm_lanes(j, columns);
            v16     xhat = v16_mul(v16_get(x, format, at + j, n), r);
            v16_put(call->out[0].data, format, at + j, v16_mul(xhat, v16_get(w, format, j, n)), n);
        }
        ((float *)call->out[1].data)[i] = rstd;
    }
}
TM_PART(rmsnorm_rows, in[0])

/* Two passes for the statistics: the mean, then the squares about it. */
TM_INLINE void layernorm_statistics(const void *x, tm_dtype format, int64_t at, int64_t columns, double eps,
                                    float *mean, float *rstd)
{
    v16 sum = v16_zero(), square = v16_zero();
    for (int64_t j = 0; j < columns; j += TM_LANES)
        sum = v16_add(sum, v16_get(x, format, at + j, tm_lanes(j, columns)));
    *mean = v16_sum(sum) / (float)columns;
    for (int64_t j = 0; j < columns; j += TM_LANES) {
        int64_t n = tm_lanes(j, columns);
        v16     d = keep_lanes(v16_sub(v16_get(x, format, at + j, n), v16_set1(*mean)), n);
        square = v16_fma(d, d, square);
    }
    *rstd = inverse_root(v16_sum(square), columns, eps);
}
TM_INLINE void layernorm_rows(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_norm_attr *attr = call->attr;
    const void         *x = call->in[0].data, *w = call->in[1].data, *b = call->in[2].data;
    int64_t             columns = tm_view_columns(&call->in[0]);
    for (int64_t i = begin; i < end; i++) {
        int64_t at = i * columns;
        float   mean, rstd;
        layernorm_statistics(x, format, at, columns, attr->eps, &mean, &rstd);
        v16 m = v16_set1(mean), r = v16_set1(rstd);
        for (int64_t j = 0; j < columns; j += TM_LANES) {
            int64_t n = tm_lanes(j, columns);
            v16     xhat = v16_mul(v16_sub(v16_get(x, format, at + j, n), m), r);
            v16     bias = b ? v16_get(b, format, j, n) : v16_zero();
            v16_put(call->out[0].data, format, at + j, v16_fma(xhat, v16_get(w, format, j, n), bias), n);
        }
        ((float *)call->out[1].data)[i] = mean;
        ((float *)call->out[2].data)[i] = rstd;
    }
}
TM_PART(layernorm_rows, in[0])

static void rmsnorm_run(const tm_call *call)
{
    tm_parallel(call, rmsnorm_rows_part, tm_view_rows(&call->in[0]), 1, tm_view_elements(&call->in[0]));
}
static void layernorm_run(const tm_call *call)
{
    tm_parallel(call, layernorm_rows_part, tm_view_rows(&call->in[0]), 1, tm_view_elements(&call->in[0]));
}

static TM_PLANNED const char *rmsnorm_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->in[1]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->out[0]);
    return why ? why : tm_refuse_wide(&call->out[1]);
}
static TM_PLANNED const char *layernorm_refuse(const tm_call *call)
{
    const char *why = rmsnorm_refuse(call);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->in[2]);
    return why ? why : tm_refuse_wide(&call->out[2]);
}

/* ---- gradients ---- */

typedef struct {
    const void  *dy, *x, *w, *addend; /* (N, C), (N, C), (C), (N, C) or NULL */
    const float *mean, *rstd;         /* (N); mean NULL: rmsnorm */
    void        *dx;                  /* (N, C); may be dy or addend */
    float       *dw, *db;             /* (blocks, C) in the workspace, or NULL: not wanted */
    int64_t      columns;
} grad_operands;

/* Sums of a row: h and h xhat; adds the row to its block's dw and db. */
TM_INLINE void grad_row_sums(const grad_operands *o, tm_dtype format, bool centred, int64_t i, float sums[2])
{
    int64_t at = i * o->columns, block = i / TM_ROW_BLOCK * o->columns;
    bool    first = i % TM_ROW_BLOCK == 0;
    v16 r = v16_set1(o->rstd[i]), m = centred ? v16_set1(o->mean[i]) : v16_zero(), sum = v16_zero(), dot = v16_zero();
    for (int64_t j = 0; j < o->columns; j += TM_LANES) {
        int64_t n = tm_lanes(j, o->columns);
        v16     x = v16_get(o->x, format, at + j, n), dy = v16_get(o->dy, format, at + j, n);
        v16     xhat = v16_mul(centred ? v16_sub(x, m) : x, r), h = v16_mul(dy, v16_get(o->w, format, j, n));
        if (centred) sum = v16_add(sum, h);
        dot = v16_fma(h, xhat, dot);
        if (o->dw) {
            v16 old = first ? v16_zero() : v16_get(o->dw, TM_F32, block + j, n);
            v16_put(o->dw, TM_F32, block + j, v16_fma(dy, xhat, old), n);
        }
        if (o->db) {
            v16 old = first ? v16_zero() : v16_get(o->db, TM_F32, block + j, n);
            v16_put(o->db, TM_F32, block + j, v16_add(old, dy), n);
        }
    }
    sums[0] = centred ? v16_sum(sum) : 0.f;
    sums[1] = v16_sum(dot);
}

TM_INLINE void grad_row(const grad_operands *o, tm_dtype format, bool centred, int64_t i)
{
    float sums[2];
    grad_row_sums(o, format, centred, i, sums);
    int64_t at = i * o->columns;
    v16     r = v16_set1(o->rstd[i]), m = centred ? v16_set1(o->mean[i]) : v16_zero();
    v16     mean_h = v16_set1(sums[0] / (float)o->columns), mean_dot = v16_set1(sums[1] / (float)o->columns);
    for (int64_t j = 0; j < o->columns; j += TM_LANES) {
        int64_t n = tm_lanes(j, o->columns);
        v16     x = v16_get(o->x, format, at + j, n);
        v16     xhat = v16_mul(centred ? v16_sub(x, m) : x, r);
        v16     h = v16_mul(v16_get(o->dy, format, at + j, n), v16_get(o->w, format, j, n));
        v16     d = v16_sub(centred ? v16_sub(h, mean_h) : h, v16_mul(xhat, mean_dot));
        v16     dx = o->addend ? v16_fma(d, r, v16_get(o->addend, format, at + j, n)) : v16_mul(d, r);
        v16_put(o->dx, format, at + j, dx, n);
    }
}

/* The block sums of dw (output 1) and db (output 2, layernorm only) lie one after the other in the workspace. */
static TM_PLANNED int64_t block_elements(const tm_call *call)
{
    return tm_row_blocks(tm_view_rows(&call->in[0])) * tm_view_columns(&call->in[0]);
}
static float *dw_blocks(const tm_call *call)
{
    return tm_view_present(&call->out[1]) ? call->workspace : NULL;
}
static float *db_blocks(const tm_call *call)
{
    if (!tm_view_present(&call->out[2])) return NULL;
    return (float *)call->workspace + (tm_view_present(&call->out[1]) ? block_elements(call) : 0);
}
static TM_PLANNED size_t rmsnorm_grad_workspace(const tm_call *call)
{
    return tm_view_present(&call->out[1]) ? (size_t)block_elements(call) * sizeof(float) : 0;
}
static TM_PLANNED size_t layernorm_grad_workspace(const tm_call *call)
{
    return rmsnorm_grad_workspace(call) +
           (tm_view_present(&call->out[2]) ? (size_t)block_elements(call) * sizeof(float) : 0);
}

TM_INLINE void rmsnorm_grad_rows(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const grad_operands o = {
        .dy = call->in[0].data,
        .x = call->in[1].data,
        .w = call->in[2].data,
        .rstd = call->in[3].data,
        .addend = call->in[4].data,
        .dx = call->out[0].data,
        .dw = dw_blocks(call),
        .columns = tm_view_columns(&call->in[0]),
    };
    for (int64_t i = begin; i < end; i++) grad_row(&o, format, false, i);
}
TM_PART(rmsnorm_grad_rows, in[0])

TM_INLINE void layernorm_grad_rows(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const grad_operands o = {
        .dy = call->in[0].data,
        .x = call->in[1].data,
        .w = call->in[2].data,
        .mean = call->in[3].data,
        .rstd = call->in[4].data,
        .addend = call->in[5].data,
        .dx = call->out[0].data,
        .dw = dw_blocks(call),
        .db = db_blocks(call),
        .columns = tm_view_columns(&call->in[0]),
    };
    for (int64_t i = begin; i < end; i++) grad_row(&o, format, true, i);
}
TM_PART(layernorm_grad_rows, in[0])

static void add_blocks(const tm_call *call, int k, const float *blocks, int64_t begin, int64_t end)
{
    tm_add_blocks(&call->out[k], call->accumulate >> k & 1u, blocks, tm_row_blocks(tm_view_rows(&call->in[0])),
                  tm_view_columns(&call->in[0]), begin, end);
}
static void dw_columns(const tm_call *call, int64_t begin, int64_t end)
{
    add_blocks(call, 1, dw_blocks(call), begin, end);
}
static void db_columns(const tm_call *call, int64_t begin, int64_t end)
{
    add_blocks(call, 2, db_blocks(call), begin, end);
}
static void rmsnorm_grad_run(const tm_call *call)
{
    int64_t columns = tm_view_columns(&call->in[0]);
    tm_parallel(call, rmsnorm_grad_rows_part, tm_view_rows(&call->in[0]), TM_ROW_BLOCK, tm_view_elements(&call->in[0]));
    if (tm_view_present(&call->out[1])) tm_parallel(call, dw_columns, columns, TM_LANES, block_elements(call));
}
static void layernorm_grad_run(const tm_call *call)
{
    int64_t columns = tm_view_columns(&call->in[0]);
    tm_parallel(call, layernorm_grad_rows_part, tm_view_rows(&call->in[0]), TM_ROW_BLOCK,
                tm_view_elements(&call->in[0]));
    if (tm_view_present(&call->out[1])) tm_parallel(call, dw_columns, columns, TM_LANES, block_elements(call));
    if (tm_view_present(&call->out[2])) tm_parallel(call, db_columns, columns, TM_LANES, block_elements(call));
}

/* dy, x, w, the addend and dx have one format; statistics start at input 3. */
static TM_PLANNED const char *grad_refuse(const tm_call *call, int addend)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->in[1]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->in[2]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->in[addend]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->out[0]);
    for (int k = 3; k < addend && !why; k++) why = tm_refuse_wide(&call->in[k]);
    return why ? why : tm_refuse_format(&call->out[1]);
}
static TM_PLANNED const char *rmsnorm_grad_refuse(const tm_call *call)
{
    return grad_refuse(call, 4);
}
static TM_PLANNED const char *layernorm_grad_refuse(const tm_call *call)
{
    const char *why = grad_refuse(call, 5);
    return why ? why : tm_refuse_format(&call->out[2]);
}

const tm_kernel TM_K(tm_cpu_norm)[] = {
    TM_KERNEL(rmsnorm, "rmsnorm/", rmsnorm_refuse, NULL, rmsnorm_run),
    TM_KERNEL(rmsnorm_grad, "rmsnorm_grad/", rmsnorm_grad_refuse, rmsnorm_grad_workspace, rmsnorm_grad_run),
    TM_KERNEL(layernorm, "layernorm/", layernorm_refuse, NULL, layernorm_run),
    TM_KERNEL(layernorm_grad, "layernorm_grad/", layernorm_grad_refuse, layernorm_grad_workspace, layernorm_grad_run),
    { .name = NULL },
};
