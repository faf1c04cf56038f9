/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/relu2.c - relu2 and its gradient, 16 lanes at a time. */
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"

TM_INLINE void relu2(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16     r = v16_max(v16_zero(), v16_get(call->in[0].data, format, i, n));
        v16_put(call->out[0].data, format, i, v16_mul(r, r), n);
    }
}
TM_PART(relu2, in[0])

TM_INLINE void relu2_grad(const tm_call *call, tm_dtype format, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i += TM_LANES) {
        int64_t n = tm_lanes(i, end);
        v16     dy = v16_get(call->in[0].data, format, i, n);
        v16     r = v16_max(v16_zero(), v16_get(call->in[1].data, format, i, n));
        v16_put(call->out[0].data, format, i, v16_mul(v16_add(r, r), dy), n);
    }
}
TM_PART(relu2_grad, in[0])

static void relu2_run(const tm_call *call)
{
    int64_t n = tm_view_elements(&call->in[0]);
    tm_parallel(call, relu2_part, n, TM_ELEMENT_GRAIN, n);
}
static void relu2_grad_run(const tm_call *call)
{
    int64_t n = tm_view_elements(&call->in[0]);
    tm_parallel(call, relu2_grad_part, n, TM_ELEMENT_GRAIN, n);
}

/* One format for all operands. */
static TM_PLANNED const char *relu2_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why) why = tm_refuse_mixed(&call->in[0], &call->out[0]);
    if (!why && call->op->n_in == 2) why = tm_refuse_mixed(&call->in[0], &call->in[1]);
    return why;
}

const tm_kernel TM_K(tm_cpu_relu2)[] = {
    TM_KERNEL(relu2, "relu2/", relu2_refuse, NULL, relu2_run),
    TM_KERNEL(relu2_grad, "relu2_grad/", relu2_refuse, NULL, relu2_grad_run),
    { .name = NULL },
};
