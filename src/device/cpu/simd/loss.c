/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/loss.c - linear layer and cross-entropy in chunks of rows, with or without gradients; all logits
 * never exist at once.
 *
 *   z (N, V) = x (N, C) w (V, C)^T
 *   loss    += sum over rows of log(sum_v e^(z_v - m)) - (z_target - m),  m = max_v z_v
 *   dz       = (softmax(z) - onehot(target)) * scale,  dx = dz w,  dw += dz^T x
 *
 * A row whose target is TM_IGNORED_TARGET has no loss and no gradient. Exponentials are summed in 16 lanes over runs of
 * SUM_RUN logits, the runs in double; rows are added to the loss in ascending order in double. dw is the product of the
 * chunks in ascending order: with chunks that are multiples of TM_GEMM_BLOCK a float32 dw has the bits of one product
 * over all rows. A bfloat16 dw is rounded once per chunk. With bfloat16 x and w, kernels with tile registers round dz
 * to bfloat16 for its two products.
 */
#include "base/status.h"
#include "device/cpu/gemm.h"
#include "device/cpu/simd/common.h"
#include "device/cpu/simd/kernels.h"
#include "op/attrs.h"

#include <math.h>

enum { SUM_RUN = 1024, TASK_LOGITS = 1 << 14 }; /* logits of a task: about 10 us */

/* The operands of both ops by name. */
typedef struct {
    const tm_view *x, *w, *targets, *scalars; /* scalars NULL: no gradients */
    const tm_view *loss, *dx, *dw, *logits;   /* dx and dw NULL where they are not wanted */
    bool           add_loss, add_dw;
    int64_t        rows, width, classes, chunk; /* N, C, V */
} operands;

static TM_PLANNED operands operands_of(const tm_call *call, bool gradients)
{
    operands o = { .x = &call->in[0], .w = &call->in[1], .targets = &call->in[2], .loss = &call->out[0] };
    o.logits = &call->out[gradients ? 3 : 1];
    o.add_loss = call->accumulate & 1;
    if (gradients) {
        o.scalars = &call->in[3];
        if (tm_view_present(&call->out[1])) o.dx = &call->out[1];
        if (tm_view_present(&call->out[2])) o.dw = &call->out[2];
        o.add_dw = call->accumulate >> 2 & 1;
    }
    o.rows = o.x->shape.n[0];
    o.width = o.x->shape.n[1];
    o.classes = o.w->shape.n[0];
    o.chunk = ((const tm_loss_attr *)call->attr)->chunk;
    if (o.chunk > o.rows) o.chunk = o.rows;
    return o;
}

static TM_PLANNED const char *refuse(const operands *o)
{
    if (TM_PAIRS && !(o->x->dtype == TM_BF16 && o->w->dtype == TM_BF16)) return "needs bfloat16 inputs";
    if (!tm_is_float(o->x) || !tm_is_float(o->w)) return "needs float32 or bfloat16 inputs";
    if (o->targets->dtype != TM_I32) return "needs int32 targets";
    if (o->scalars && o->scalars->dtype != TM_F64) return "needs float64 scalars";
    if (o->logits->dtype != TM_F32) return "needs float32 logits";
    if (o->loss->dtype != TM_F64) return "needs a float64 loss";
    if (o->dx && !tm_is_float(o->dx)) return "needs a float32 or bfloat16 gradient of x";
    if (o->dw && !tm_is_float(o->dw)) return "needs a float32 or bfloat16 gradient of w";
    return NULL;
}

/* ---- the three products of rows [from, from + n) ---- */

static const void *rows_of(const tm_view *view, int64_t from)
{
    if (!view->data) return NULL;
    return (const char *)view->data + (size_t)(from * view->shape.n[1]) * (view->dtype == TM_BF16 ? 2 : 4);
}
static TM_PLANNED tm_gemm logits_product(const operands *o, int64_t from, int64_t n)
{
    return (tm_gemm){
        .m = n,
        .n = o->classes,
        .k = o->width,
        .a = { rows_of(o->x, from), o->width, false, o->x->dtype },
        .b = { o->w->data, o->width, true, o->w->dtype },
        .c = o->logits->data,
        .ldc = o->classes,
        .c_dtype = TM_F32,
    };
}
static TM_PLANNED tm_gemm dx_product(const operands *o, int64_t from, int64_t n)
{
    return (tm_gemm){
        .m = n,
        .n = o->width,
        .k = o->classes,
        .a = { o->logits->data, o->classes, false, TM_F32 },
        .b = { o->w->data, o->width, false, o->w->dtype },
        .c = (void *)(uintptr_t)rows_of(o->dx, from),
        .ldc = o->width,
        .c_dtype = o->dx->dtype,
        .narrow = TM_PAIRS,
    };
}
static TM_PLANNED tm_gemm dw_product(const operands *o, int64_t from, int64_t n)
{
    return (tm_gemm){
        .m = o->classes,
        .n = o->width,
        .k = n,
        .a = { o->logits->data, o->classes, true, TM_F32 },
        .b = { rows_of(o->x, from), o->width, false, o->x->dtype },
        .c = o->dw->data,
        .ldc = o->width,
        .c_dtype = o->dw->dtype,
        .accumulate = o->add_dw || from > 0,
        .narrow = TM_PAIRS,
    };
}
static void run_product(tm_gemm g, const tm_call *call, void *workspace)
{
    g.threads = call->threads;
    g.workspace = workspace;
    TM_K(tm_gemm_run)(&g);
}

/* ---- rows ---- */

static float row_max(const float *z, int64_t n)
{
    if (n < TM_LANES) {
        float most = z[0];
        for (int64_t i = 1; i < n; i++) most = z[i] > most ? z[i] : most;
        return most;
    }
    v16 most = v16_load(z);
    for (int64_t i = TM_LANES; i + TM_LANES <= n; i += TM_LANES) most = v16_max(most, v16_load(z + i));
    return v16_largest(v16_max(most, v16_load(z + n - TM_LANES)));
}

/* e^(z - most) of up to 16 elements, zero beyond; written back to z when `keep`. */
TM_INLINE v16 exponentials(float *z, v16 most, int64_t n, bool keep)
{
    v16 e = v16_exp(v16_sub(v16_get(z, TM_F32, 0, n), most));
    if (keep) v16_put(z, TM_F32, 0, e, n);
    if (n >= TM_LANES) return e;
    float lanes[TM_LANES] = { 0 };
    v16_store_n(lanes, e, n);
    return v16_load(lanes);
}
TM_INLINE double sum_exponentials(float *z, int64_t n, float most, bool keep)
{
    double sum = 0;
    v16    top = v16_set1(most);
    for (int64_t run = 0; run < n; run += SUM_RUN) {
        int64_t end = run + SUM_RUN < n ? run + SUM_RUN : n;
        v16     lanes = v16_zero();
        for (int64_t i = run; i < end; i += TM_LANES) lanes = v16_add(lanes, exponentials(z + i, top, end - i, keep));
        sum += (double)v16_sum(lanes);
    }
    return sum;
}

/* The loss of one row of logits; with `gradient`, the row becomes its gradient times `scale`. */
static double loss_row(float *z, int64_t n, int32_t target, bool gradient, double scale)
{
    if (target == TM_IGNORED_TARGET) {
        if (gradient) memset(z, 0, (size_t)n * sizeof *z);
        return 0;
    }
    TM_ASSERT(target >= 0 && target < n);
    float  most = row_max(z, n);
    double aim = (double)z[target] - (double)most;
    if (!gradient) return log(sum_exponentials(z, n, most, false)) - aim;
    double sum = sum_exponentials(z, n, most, true);
    v16    factor = v16_set1((float)(scale / sum));
    float  hit = (float)(((double)z[target] / sum - 1) * scale);
    for (int64_t i = 0; i < n; i += TM_LANES)
        v16_put(z, TM_F32, i, v16_mul(v16_get(z, TM_F32, i, n - i), factor), n - i);
    z[target] = hit;
    return log(sum) - aim;
}

static void loss_rows(const operands *o, int64_t from, int64_t n, double *losses, int threads)
{
    float         *logits = o->logits->data;
    const int32_t *targets = (const int32_t *)o->targets->data + from;
    double         scale = o->scalars ? ((const double *)o->scalars->data)[TM_SCALAR_LOSS_SCALE] : 0;
    int64_t        group = TASK_LOGITS / o->classes + 1;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1 && n > group)
    for (int64_t task = 0; task < (n + group - 1) / group; task++)
        for (int64_t r = task * group; r < n && r < (task + 1) * group; r++)
            losses[r] = loss_row(logits + r * o->classes, o->classes, targets[r], o->scalars != NULL, scale);
}

/* ---- kernels ---- */

static TM_PLANNED size_t largest_product(const operands *o, int threads)
{
    size_t  most = 0;
    int64_t n[2] = { o->chunk, o->chunk > 0 ? o->rows % o->chunk : 0 };
    for (int i = 0; i < 2; i++) {
        tm_gemm g[3] = { logits_product(o, 0, n[i]) };
        int     count = 1;
        if (o->dx) g[count++] = dx_product(o, 0, n[i]);
        if (o->dw) g[count++] = dw_product(o, 0, n[i]);
        for (int j = 0; j < count; j++) {
            g[j].threads = threads;
            size_t bytes = n[i] > 0 ? TM_K(tm_gemm_workspace)(&g[j]) : 0;
            if (bytes > most) most = bytes;
        }
    }
    return most;
}

static void run(const tm_call *call, const operands *o)
{
    double *losses = call->workspace, *loss = o->loss->data;
    void   *scratch = losses + o->chunk;
    double  sum = o->add_loss ? *loss : 0;
    for (int64_t from = 0; from < o->rows; from += o->chunk) {
        int64_t n = o->rows - from < o->chunk ? o->rows - from : o->chunk;
        run_product(logits_product(o, from, n), call, scratch);
        loss_rows(o, from, n, losses, call->threads);
        for (int64_t r = 0; r < n; r++) sum += losses[r];
        if (o->dx) run_product(dx_product(o, from, n), call, scratch);
        if (o->dw) run_product(dw_product(o, from, n), call, scratch);
    }
    *loss = sum;
}

#define KERNEL(name, gradients)                                                                                        \
    static TM_PLANNED const char *name##_refuse(const tm_call *call)                                                   \
    {                                                                                                                  \
        operands o = operands_of(call, gradients);                                                                     \
        return refuse(&o);                                                                                             \
    }                                                                                                                  \
    static TM_PLANNED size_t name##_workspace(const tm_call *call)                                                     \
    {                                                                                                                  \
        operands o = operands_of(call, gradients);                                                                     \
        return (size_t)o.chunk * sizeof(double) + largest_product(&o, call->threads);                                  \
    }                                                                                                                  \
    static void name##_run(const tm_call *call)                                                                        \
    {                                                                                                                  \
        operands o = operands_of(call, gradients);                                                                     \
        run(call, &o);                                                                                                 \
    }
KERNEL(forward, false)
KERNEL(grad, true)
#undef KERNEL

const tm_kernel TM_K(tm_cpu_loss)[] = {
    TM_KERNEL(linear_cross_entropy, "linear_cross_entropy/own-", forward_refuse, forward_workspace, forward_run),
    TM_KERNEL(linear_cross_entropy_grad, "linear_cross_entropy_grad/own-", grad_refuse, grad_workspace, grad_run),
    { .run = NULL },
};
