/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/low_rank.c - kernels of low_rank and its gradients, and of dropout. Each part of a fused matrix is
 * one product of device/cpu/gemm.h with columns of y or dy; u is scaled once, into float32 scratch.
 *
 *   low_rank        y_p (N, M_p) += (scale u_p) (N, r) b_p (M_p, r)^T
 *   low_rank_dgrad  du_p (N, r)   = scale (dy_p (N, M_p) b_p (M_p, r))
 *   low_rank_wgrad  db_p (M_p, r) = dy_p (N, M_p)^T (scale u_p) (N, r)
 */
#include "device/cpu/gemm.h"
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "op/attrs.h"
#include "op/keeps.h"

#include <math.h>

static TM_PLANNED size_t scaled_bytes(const tm_view *u)
{
    return (size_t)tm_round_up(tm_view_elements(u) * 4, 64);
}

static TM_PLANNED void *at(const tm_view *view, int64_t element)
{
    return view->data ? (char *)view->data + (size_t)element * tm_dtype_bytes(view->dtype) : NULL;
}

/* scale u, as float32, at the begin of the workspace. */
TM_INLINE void scale_u(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    v16    factor = v16_set1((float)((const tm_low_rank_attr *)call->attr)->scale);
    float *to = call->workspace;
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16_put(to, TM_F32, i, v16_mul(factor, v16_get(call->in[1].data, format, i, n)), n);
    }
}
TM_PART(scale_u, in[1])

TM_INLINE void scale_out(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    v16 factor = v16_set1((float)((const tm_low_rank_attr *)call->attr)->scale);
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16_put(call->out[0].data, format, i, v16_mul(factor, v16_get(call->out[0].data, format, i, n)), n);
    }
}
TM_PART(scale_out, out[0])

static void copy_part(const tm_call *call, int64_t begin, int64_t end)
{
    size_t size = tm_dtype_bytes(call->out[0].dtype);
    memcpy(at(&call->out[0], begin), at(&call->in[0], begin), (size_t)(end - begin) * size);
}

/* The product of part p, whose rows of b begin at `row`; `scratch` 0: only its extents. */
typedef tm_gemm product_of(const tm_call *call, int64_t p, int64_t row);

static TM_PLANNED tm_gemm forward(const tm_call *call, int64_t p, int64_t row)
{
    const tm_low_rank_attr *attr = call->attr;
    const tm_view          *b = &call->in[2], *y = &call->out[0];
    const float            *u = call->workspace;
    return (tm_gemm){ .m = y->shape.n[0],
                      .n = attr->part[p].rows,
                      .k = attr->rank,
                      .a = { u ? u + p * attr->rank : NULL, attr->parts * attr->rank, false, TM_F32 },
                      .b = { at(b, row * attr->rank), attr->rank, true, b->dtype },
                      .c = at(y, attr->part[p].column),
                      .ldc = y->shape.n[1],
                      .c_dtype = y->dtype,
                      .accumulate = true,
                      .threads = call->threads };
}

static TM_PLANNED tm_gemm dgrad(const tm_call *call, int64_t p, int64_t row)
{
    const tm_low_rank_attr *attr = call->attr;
    const tm_view          *dy = &call->in[0], *b = &call->in[1], *du = &call->out[0];
    return (tm_gemm){ .m = dy->shape.n[0],
                      .n = attr->rank,
                      .k = attr->part[p].rows,
                      .a = { at(dy, attr->part[p].column), dy->shape.n[1], false, dy->dtype },
                      .b = { at(b, row * attr->rank), attr->rank, false, b->dtype },
                      .c = at(du, p * attr->rank),
                      .ldc = attr->parts * attr->rank,
                      .c_dtype = du->dtype,
                      .threads = call->threads };
}

static TM_PLANNED tm_gemm wgrad(const tm_call *call, int64_t p, int64_t row)
{
    const tm_low_rank_attr *attr = call->attr;
    const tm_view          *dy = &call->in[0], *db = &call->out[0];
    const float            *u = call->workspace;
    return (tm_gemm){ .m = attr->part[p].rows,
                      .n = attr->rank,
                      .k = dy->shape.n[0],
                      .a = { at(dy, attr->part[p].column), dy->shape.n[1], true, dy->dtype },
                      .b = { u ? u + p * attr->rank : NULL, attr->parts * attr->rank, false, TM_F32 },
                      .c = at(db, row * attr->rank),
                      .ldc = attr->rank,
                      .c_dtype = db->dtype,
                      .accumulate = call->accumulate & 1,
                      .threads = call->threads };
}

/* `scaled`: bytes of the workspace before the products' own. */
static TM_PLANNED size_t workspace(const tm_call *call, product_of *of, size_t scaled)
{
    const tm_low_rank_attr *attr = call->attr;
    size_t                  most = 0;
    for (int64_t p = 0; p < attr->parts; p++) {
        tm_gemm g = of(call, p, 0);
        size_t  bytes = TM_K(tm_gemm_workspace)(&g);
        if (bytes > most) most = bytes;
    }
    return scaled + most;
}

static void multiply(const tm_call *call, product_of *of, size_t scaled)
{
    const tm_low_rank_attr *attr = call->attr;
    for (int64_t p = 0, row = 0; p < attr->parts; row += attr->part[p++].rows) {
        tm_gemm g = of(call, p, row);
        g.workspace = (char *)call->workspace + scaled;
        TM_K(tm_gemm_run)(&g);
    }
}

static void low_rank_run(const tm_call *call)
{
    int64_t elements = tm_view_elements(&call->out[0]), small = tm_view_elements(&call->in[1]);
    if (call->out[0].data != call->in[0].data) tm_parallel(call, copy_part, elements, TM_ELEMENT_GRAIN, elements);
    tm_parallel(call, scale_u_part, small, TM_ELEMENT_GRAIN, small);
    multiply(call, forward, scaled_bytes(&call->in[1]));
}
static TM_PLANNED size_t low_rank_workspace(const tm_call *call)
{
    return workspace(call, forward, scaled_bytes(&call->in[1]));
}

static void dgrad_run(const tm_call *call)
{
    int64_t small = tm_view_elements(&call->out[0]);
    multiply(call, dgrad, 0);
    tm_parallel(call, scale_out_part, small, TM_ELEMENT_GRAIN, small);
}
static TM_PLANNED size_t dgrad_workspace(const tm_call *call)
{
    return workspace(call, dgrad, 0);
}

static void wgrad_run(const tm_call *call)
{
    int64_t small = tm_view_elements(&call->in[1]);
    tm_parallel(call, scale_u_part, small, TM_ELEMENT_GRAIN, small);
    multiply(call, wgrad, scaled_bytes(&call->in[1]));
}
static TM_PLANNED size_t wgrad_workspace(const tm_call *call)
{
    return workspace(call, wgrad, scaled_bytes(&call->in[1]));
}

static TM_PLANNED const char *gradient_refuse(const tm_call *call)
{
    for (int i = 0; i < 2; i++)
        if (!tm_is_float(&call->in[i])) return "needs float32 or bfloat16 inputs";
    return tm_is_float(&call->out[0]) ? NULL : "needs a float32 or bfloat16 output";
}
static TM_PLANNED const char *forward_refuse(const tm_call *call)
{
    if (!tm_is_float(&call->in[2])) return "needs float32 or bfloat16 inputs";
    const char *why = tm_refuse_mixed(&call->in[0], &call->out[0]);
    return why ? why : gradient_refuse(call);
}

/* ---- dropout ---- */

TM_INLINE void dropout(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_dropout_attr *attr = call->attr;
    const tm_view         *x = &call->in[0], *y = &call->out[0];
    int64_t                columns = y->shape.n[1];
    uint64_t               first = (uint64_t)llrint(fabs(*(const double *)call->in[1].data));
    v16                    up = v16_set1((float)(1 / (1 - attr->rate)));
    for (int64_t r = begin; r < end; r++) {
        uint64_t row = first + tm_dropout_row(attr, y->shape.n[0], r);
        for (int64_t c = 0; c < columns; c += TM_LANES) {
            int64_t  n = tm_lanes(c, columns);
            float    keeps[TM_LANES] = { 0 };
            uint64_t element = tm_dropout_element(attr, row, columns, c);
            for (int64_t k = 0; k < n; k++) keeps[k] = tm_dropout_keeps(attr, element + (uint64_t)k) ? 1.f : 0.f;
            v16 value = v16_mul(up, v16_get(x->data, format, r * tm_view_ld(x) + c, n));
            v16_put(y->data, format, r * columns + c, v16_where(v16_load(keeps), value), n);
        }
    }
}
TM_PART(dropout, in[0])

static void dropout_run(const tm_call *call)
{
    tm_parallel(call, dropout_part, tm_view_rows(&call->out[0]), 1, tm_view_elements(&call->out[0]));
}
static TM_PLANNED const char *dropout_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->out[0]);
    return why ? why : tm_refuse_scalar(&call->in[1]);
}

const tm_kernel TM_K(tm_cpu_low_rank)[] = {
    TM_KERNEL(low_rank, "low_rank/own-", forward_refuse, low_rank_workspace, low_rank_run),
    TM_KERNEL(low_rank_dgrad, "low_rank_dgrad/own-", gradient_refuse, dgrad_workspace, dgrad_run),
    TM_KERNEL(low_rank_wgrad, "low_rank_wgrad/own-", gradient_refuse, wgrad_workspace, wgrad_run),
    TM_KERNEL(dropout, "dropout/", dropout_refuse, NULL, dropout_run),
    { .name = NULL },
};
