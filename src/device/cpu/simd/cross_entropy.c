/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/cross_entropy.c - cross entropy of logits that are there, and its gradient: rows by themselves, then
 * their losses added in ascending order in double. */
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"
#include "device/cpu/simd/loss_row.h"
#include "graph/value.h"

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

/* ---- of a vocabulary that ranks divide (op/vocabulary.c) ---- */

static TM_PLANNED const char *vocabulary_parts_refuse(const tm_call *call)
{
    for (int k = 0; k < 2; k++)
        if (call->out[k].dtype != TM_F32) return "needs float32 results";
    if (call->in[0].dtype != TM_F32) return "needs float32 logits";
    return call->in[1].dtype == TM_I32 ? NULL : "needs int32 targets";
}
static TM_PLANNED const char *vocabulary_loss_refuse(const tm_call *call)
{
    if (call->in[2].dtype != TM_F32) return "needs float32 parts";
    if (call->in[1].dtype != TM_I32) return "needs int32 targets";
    if (tm_view_present(&call->out[1]) && call->out[1].dtype != TM_F32 && call->out[1].dtype != TM_F64)
        return "needs float32 or float64 losses";
    return !tm_view_present(&call->out[0]) || call->out[0].dtype == TM_F64 ? NULL : "needs a float64 loss";
}
static TM_PLANNED const char *vocabulary_loss_grad_refuse(const tm_call *call)
{
    if (call->in[0].dtype != TM_F32 || call->in[2].dtype != TM_F32 || call->out[0].dtype != TM_F32)
        return "needs float32 logits, parts and gradients";
    if (call->in[1].dtype != TM_I32) return "needs int32 targets";
    if (tm_view_present(&call->in[4])) return call->in[4].dtype == TM_F32 ? NULL : "needs float32 gradients of rows";
    return call->in[3].dtype == TM_F64 ? NULL : "needs float64 scalars";
}

static void parts_rows(const tm_call *call, int64_t begin, int64_t end)
{
    const tm_vocabulary_attr *attr = call->attr;
    int64_t                   rows = tm_view_rows(&call->in[0]), classes = tm_view_columns(&call->in[0]);
    const int32_t            *targets = call->in[1].data;
    float                    *parts = call->out[1].data;
    for (int64_t r = begin; r < end; r++) {
        const float *z = (const float *)call->in[0].data + r * classes;
        float       *e = (float *)call->out[0].data + r * classes;
        int64_t      hit = targets[r] - attr->first;
        if (e != z) memcpy(e, z, (size_t)classes * sizeof *e);
        parts[r] = tm_row_max(e, classes);
        parts[2 * rows + r] = hit >= 0 && hit < classes ? e[hit] : 0;
        parts[rows + r] = (float)tm_sum_exponentials(e, classes, parts[r], true);
    }
}

static void vocabulary_parts_run(const tm_call *call)
{
    tm_parallel(call, parts_rows, tm_view_rows(&call->in[0]), 1, tm_view_elements(&call->in[0]));
}

/* Of row r over all ranks, in their order: the largest logit, the sum of exponentials, the target's logit. */
TM_INLINE double join_parts(const tm_call *call, int64_t r, double *most, double *hit)
{
    const tm_vocabulary_attr *attr = call->attr;
    const float              *parts = call->in[2].data;
    int64_t                   rows = tm_view_elements(&call->in[1]);
    double                    sum = 0;
    *most = (double)parts[r];
    *hit = 0;
    for (int64_t k = 1; k < attr->ranks; k++) *most = fmax(*most, (double)parts[3 * k * rows + r]);
    for (int64_t k = 0; k < attr->ranks; k++) {
        sum += (double)parts[(3 * k + 1) * rows + r] * exp((double)parts[3 * k * rows + r] - *most);
        *hit += (double)parts[(3 * k + 2) * rows + r];
    }
    return sum;
}

static void vocabulary_loss_run(const tm_call *call)
{
    const int32_t *targets = call->in[1].data;
    const tm_view *losses = &call->out[1];
    double        *loss = call->out[0].data, all = loss && call->accumulate & 1 ? *loss : 0;
    bool           adds = call->accumulate >> 1 & 1;
    for (int64_t r = 0, rows = tm_view_elements(&call->in[1]); r < rows; r++) {
        double row = 0, most, hit;
        if (targets[r] != TM_IGNORED_TARGET) {
            row = log(join_parts(call, r, &most, &hit));
            row += most - hit;
        }
        all += row;
        if (!tm_view_present(losses)) continue;
        tm_value_set(losses->data, losses->dtype, r, row + (adds ? tm_value_get(losses->data, losses->dtype, r) : 0));
    }
    if (loss) *loss = all;
}

static void vocabulary_gradient_rows(const tm_call *call, int64_t begin, int64_t end)
{
    const tm_vocabulary_attr *attr = call->attr;
    int64_t                   classes = tm_view_columns(&call->in[0]), rows = tm_view_rows(&call->in[0]);
    const int32_t            *targets = call->in[1].data;
    const float              *parts = call->in[2].data;
    const double             *scalars = call->in[3].data;
    const float              *dlosses = call->in[4].data;
    double                    most, hit;
    for (int64_t r = begin; r < end; r++) {
        double       scale = dlosses ? (double)dlosses[r] : scalars[TM_SCALAR_LOSS_SCALE];
        const float *e = (const float *)call->in[0].data + r * classes;
        float       *dz = (float *)call->out[0].data + r * classes;
        int64_t      target = targets[r] - attr->first;
        if (targets[r] == TM_IGNORED_TARGET) {
            memset(dz, 0, (size_t)classes * sizeof *dz);
            continue;
        }
        double sum = join_parts(call, r, &most, &hit);
        double factor = scale * exp((double)parts[3 * attr->rank * rows + r] - most) / sum;
        bool   here = target >= 0 && target < classes;
        float  at = here ? (float)((double)e[target] * factor - scale) : 0;
        v16    by = v16_set1((float)factor);
        for (int64_t i = 0; i < classes; i += TM_LANES)
            v16_put(dz, TM_F32, i, v16_mul(v16_get(e, TM_F32, i, classes - i), by), classes - i);
        if (here) dz[target] = at;
    }
}

static void vocabulary_loss_grad_run(const tm_call *call)
{
    tm_parallel(call, vocabulary_gradient_rows, tm_view_rows(&call->in[0]), 1, tm_view_elements(&call->in[0]));
}

const tm_kernel TM_K(tm_cpu_cross_entropy)[] = {
    TM_KERNEL(cross_entropy, "cross_entropy/", cross_entropy_refuse, cross_entropy_workspace, cross_entropy_run),
    TM_KERNEL(cross_entropy_grad, "cross_entropy_grad/", cross_entropy_grad_refuse, NULL, cross_entropy_grad_run),
    TM_KERNEL(vocabulary_parts, "vocabulary_parts/", vocabulary_parts_refuse, NULL, vocabulary_parts_run),
    TM_KERNEL(vocabulary_loss, "vocabulary_loss/", vocabulary_loss_refuse, NULL, vocabulary_loss_run),
    TM_KERNEL(vocabulary_loss_grad, "vocabulary_loss_grad/", vocabulary_loss_grad_refuse, NULL,
              vocabulary_loss_grad_run),
    { .name = NULL },
};
