/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/linear.c - kernels of linear, linear_dgrad and linear_wgrad: each is one product of device/cpu/gemm.h
 * with operands as stored, in any mix of float32 and bfloat16.
 *
 *   linear        y (N, M)  = x (N, K) w (M, K)^T + bias + residual
 *   linear_dgrad  dx (N, K) = dy (N, M) w (M, K)
 *   linear_wgrad  dw (M, K) = dy (N, M)^T x (N, K)
 */
#include "device/cpu/gemm.h"
#include "device/cpu/simd/common.h"
#include "device/cpu/simd/kernels.h"
#include "graph/blocks.h"

/* A float32 weight is rounded while it is packed, one in blocks decoded. */
static TM_PLANNED bool is_rounded(const tm_call *call)
{
    const tm_view *w = &call->in[1];
    bool           blocks = tm_dtype_blocked(w->dtype) && tm_view_dense(w) && tm_view_ld(w) % TM_NF4_BLOCK == 0;
    return call->rounded == 1u << 1 && (w->dtype == TM_F32 || blocks);
}
static TM_PLANNED const char *refuse(const tm_call *call)
{
    if (TM_PAIRS && !(call->in[0].dtype == TM_BF16 && (call->in[1].dtype == TM_BF16 || is_rounded(call))))
        return "needs bfloat16 inputs";
    if (!TM_PAIRS && call->rounded) return "does not round weights while packing";
    if (!tm_is_float(&call->in[0]) || (!tm_is_float(&call->in[1]) && !is_rounded(call)))
        return "needs float32 or bfloat16 inputs";
    return tm_is_float(&call->out[0]) ? NULL : "needs a float32 or bfloat16 output";
}
static TM_PLANNED const char *forward_refuse(const tm_call *call)
{
    for (int i = 2; i < 4; i++)
        if (tm_view_present(&call->in[i]) && !tm_is_float(&call->in[i]))
            return "needs a float32 or bfloat16 bias and residual";
    return refuse(call);
}

static TM_PLANNED tm_gemm_matrix matrix(const tm_view *view, bool transposed)
{
    return (tm_gemm_matrix){ view->data, tm_view_ld(view), transposed, view->dtype };
}

/* in[0] and in[1] are the factors; the extents of C are those of out[0]. */
static TM_PLANNED tm_gemm product(const tm_call *call, int64_t k, bool transposed_a, bool transposed_b)
{
    const tm_view *c = &call->out[0];
    return (tm_gemm){
        .m = c->shape.n[0],
        .n = c->shape.n[1],
        .k = k,
        .a = matrix(&call->in[0], transposed_a),
        .b = matrix(&call->in[1], transposed_b),
        .c = c->data,
        .ldc = tm_view_ld(c),
        .c_dtype = c->dtype,
        .accumulate = call->accumulate & 1,
        .narrow_b = TM_PAIRS && is_rounded(call),
        .threads = call->threads,
        .workspace = call->workspace,
    };
}
static TM_PLANNED tm_gemm forward(const tm_call *call)
{
    tm_gemm        g = product(call, call->in[0].shape.n[1], false, true);
    const tm_view *bias = &call->in[2], *residual = &call->in[3];
    if (tm_view_present(bias)) g.bias = bias->data, g.bias_dtype = bias->dtype;
    if (tm_view_present(residual)) {
        g.residual = residual->data;
        g.residual_dtype = residual->dtype;
        g.ld_residual = residual->shape.n[1];
    }
    return g;
}
static TM_PLANNED tm_gemm dgrad(const tm_call *call)
{
    return product(call, call->in[0].shape.n[1], false, false);
}
static TM_PLANNED tm_gemm wgrad(const tm_call *call)
{
    return product(call, call->in[0].shape.n[0], true, false);
}

#define KERNEL(name)                                                                                                   \
    static TM_PLANNED size_t name##_workspace(const tm_call *call)                                                     \
    {                                                                                                                  \
        tm_gemm g = name(call);                                                                                        \
        return TM_K(tm_gemm_workspace)(&g);                                                                            \
    }                                                                                                                  \
    static void name##_run(const tm_call *call)                                                                        \
    {                                                                                                                  \
        tm_gemm g = name(call);                                                                                        \
        TM_K(tm_gemm_run)(&g);                                                                                         \
    }
KERNEL(forward)
KERNEL(dgrad)
KERNEL(wgrad)
#undef KERNEL

#define PRODUCT(op_name, refuse_it, which, rounds_it)                                                                  \
    {                                                                                                                  \
        .op = TM_OP_##op_name, .name = #op_name "/own-" TM_ISA_NAME, .refuse = refuse_it,                              \
        .workspace = which##_workspace, .run = which##_run, .rounds = TM_PAIRS ? rounds_it : 0                         \
    }
const tm_kernel TM_K(tm_cpu_linear)[] = {
    PRODUCT(linear, forward_refuse, forward, 1u << 1),
    PRODUCT(linear_dgrad, refuse, dgrad, 1u << 1),
    PRODUCT(linear_wgrad, refuse, wgrad, 0),
    { .name = NULL },
};
