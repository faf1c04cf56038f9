/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/swiglu_clamped.c - swiglu_clamped and its gradient. 1 - s = e s with e = exp(-alpha g): no
 * cancellation. A mask of clamped lanes is a comparison's sign: v16_where takes what is > 0. */
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "op/attrs.h"

TM_INLINE v16 gate_exp(v16 g, float alpha)
{
    return v16_exp(v16_mul(v16_set1(-alpha), g));
}
TM_INLINE v16 clamp(v16 u, float limit)
{
    return v16_max(v16_set1(-limit), v16_min(v16_set1(limit), u));
}

TM_INLINE void swiglu_clamped(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_clamp_attr *attr = call->attr;
    float                limit = (float)attr->limit, alpha = (float)attr->alpha;
    int64_t              width = tm_view_columns(&call->out[0]);
    const v16            one = v16_set1(1.f);
    for (int64_t r = begin; r < end; r++)
        for (int64_t j = 0; j < width; j += TM_LANES) {
            int64_t n = tm_lanes(j, width), at = 2 * r * width + j;
            v16     g = v16_min(v16_set1(limit), v16_get(call->in[0].data, format, at, n));
            v16     u = clamp(v16_get(call->in[0].data, format, at + width, n), limit);
            v16     gated = v16_div(g, v16_add(one, gate_exp(g, alpha)));
            v16_put(call->out[0].data, format, r * width + j, v16_mul(v16_add(u, one), gated), n);
        }
}
TM_PART(swiglu_clamped, in[0])

/* x where a <= limit, else 0; where a is no number, x. */
TM_INLINE v16 where_at_most(v16 a, float limit, v16 x)
{
    return v16_sub(x, v16_where(v16_sub(a, v16_set1(limit)), x));
}

TM_INLINE void swiglu_clamped_grad(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    const tm_clamp_attr *attr = call->attr;
    float                limit = (float)attr->limit, alpha = (float)attr->alpha;
    int64_t              width = tm_view_columns(&call->in[0]);
    const v16            one = v16_set1(1.f), zero = v16_zero();
    for (int64_t r = begin; r < end; r++)
        for (int64_t j = 0; j < width; j += TM_LANES) {
            int64_t n = tm_lanes(j, width), at = 2 * r * width + j;
            v16     dy = v16_get(call->in[0].data, format, r * width + j, n);
            v16     gate = v16_get(call->in[1].data, format, at, n);
            v16     up = v16_get(call->in[1].data, format, at + width, n);
            v16     g = v16_min(v16_set1(limit), gate), u = clamp(up, limit);
            v16     e = gate_exp(g, alpha), s = v16_div(one, v16_add(one, e));
            v16     slope = v16_mul(s, v16_fma(v16_mul(v16_set1(alpha), g), v16_mul(e, s), one));
            v16     dgate = v16_mul(v16_mul(dy, v16_add(u, one)), slope), dup = v16_mul(dy, v16_mul(g, s));
            v16     size = v16_max(up, v16_sub(zero, up));
            v16_put(call->out[0].data, format, at, where_at_most(gate, limit, dgate), n);
            v16_put(call->out[0].data, format, at + width, where_at_most(size, limit, dup), n);
        }
}
TM_PART(swiglu_clamped_grad, in[0])

static void swiglu_clamped_run(const tm_call *call)
{
    tm_parallel(call, swiglu_clamped_part, tm_view_rows(&call->out[0]), 1, tm_view_elements(&call->out[0]));
}
static void swiglu_clamped_grad_run(const tm_call *call)
{
    tm_parallel(call, swiglu_clamped_grad_part, tm_view_rows(&call->in[0]), 1, tm_view_elements(&call->in[0]));
}
static TM_PLANNED const char *refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why && tm_view_present(&call->in[1])) why = tm_refuse_mixed(&call->in[0], &call->in[1]);
    return why ? why : tm_refuse_mixed(&call->in[0], &call->out[0]);
}

const tm_kernel TM_K(tm_cpu_swiglu_clamped)[] = {
    TM_KERNEL(swiglu_clamped, "swiglu_clamped/", refuse, NULL, swiglu_clamped_run),
    TM_KERNEL(swiglu_clamped_grad, "swiglu_clamped_grad/", refuse, NULL, swiglu_clamped_grad_run),
    { .name = NULL },
};
