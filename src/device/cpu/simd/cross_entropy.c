/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/cross_entropy.c - cross entropy of logits that are there, and its gradient: rows by themselves, then
 * their losses added in ascending order in double. */
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "device/cpu/simd/loss_row.h"

static TM_PLANNED const char *cross_entropy_refuse(const tm_call *call)
{
    if (call->in[0].dtype != TM_F32) return "needs float32 logits";
    if (call->in[1].dtype != TM_I32) return "needs int32 targets";
    return call->out[0].dtype == TM_F64 ? NULL : "needs a float64 loss";
}
static TM_PLANNED const char *cross_entropy_grad_refuse(const tm_call *call)
{
    if (call->in[0].dtype != TM_F32 || call->out[0].dtype != TM_F32)
        return "needs float32 logits and gradients of them";
    if (call->in[1].dtype != TM_I32) return "needs int32 targets";
    return call->in[2].dtype == TM_F64 ? NULL : "needs float64 scalars";
}
static TM_PLANNED size_t cross_entropy_workspace(const tm_call *call)
{
    return (size_t)tm_view_rows(&call->in[0]) * sizeof(double);
}

static void loss_rows(const tm_call *call, int64_t begin, int64_t end)
{
    int64_t        classes = tm_view_columns(&call->in[0]);
    const int32_t *targets = call->in[1].data;
    double        *losses = call->workspace;
    for (int64_t r = begin; r < end; r++)
        losses[r] = tm_loss_row((float *)call->in[0].data + r * classes, classes, targets[r], false, 0);
}

static void cross_entropy_run(const tm_call *call)
{
    int64_t rows = tm_view_rows(&call->in[0]);
    double *loss = call->out[0].data, sum = call->accumulate & 1 ? *loss : 0;
    tm_parallel(call, loss_rows, rows, 1, tm_view_elements(&call->in[0]));
    for (int64_t r = 0; r < rows; r++) sum += ((const double *)call->workspace)[r];
    *loss = sum;
}

static void gradient_rows(const tm_call *call, int64_t begin, int64_t end)
{
    int64_t        classes = tm_view_columns(&call->in[0]);
    const int32_t *targets = call->in[1].data;
    double         scale = ((const double *)call->in[2].data)[TM_SCALAR_LOSS_SCALE];
    for (int64_t r = begin; r < end; r++) {
        const float *z = (const float *)call->in[0].data + r * classes;
        float       *dz = (float *)call->out[0].data + r * classes;
        if (dz != z) memcpy(dz, z, (size_t)classes * sizeof *dz);
        tm_loss_row(dz, classes, targets[r], true, scale);
    }
}

static void cross_entropy_grad_run(const tm_call *call)
{
    tm_parallel(call, gradient_rows, tm_view_rows(&call->in[0]), 1, tm_view_elements(&call->in[0]));
}

const tm_kernel TM_K(tm_cpu_cross_entropy)[] = {
    TM_KERNEL(cross_entropy, "cross_entropy/", cross_entropy_refuse, cross_entropy_workspace, cross_entropy_run),
    TM_KERNEL(cross_entropy_grad, "cross_entropy_grad/", cross_entropy_grad_refuse, NULL, cross_entropy_grad_run),
    { .run = NULL },
};
