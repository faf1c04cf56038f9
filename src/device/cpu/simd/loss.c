/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/loss.c - linear layer and cross-entropy in chunks of rows, with or without gradients; all logits
 * never exist at once.
 *
 *   z (N, V) = x (N, C) w (V, C)^T + scale u (N, r) b (V, r)^T      (u and b: of an adapter, if there is one)
 *   loss    += sum over rows of log(sum_v e^(z_v - m)) - (z_target - m),  m = max_v z_v
 *   dz       = (softmax(z) - onehot(target)) * s,  dx = dz w,  dw += dz^T x,  du = scale dz b,  db += scale dz^T u
 *
 * linear_token_losses: the losses of the rows by themselves; its gradient: a scale for each row.
 * A row whose target is TM_IGNORED_TARGET has no loss and no gradient. Exponentials are summed in 16 lanes over runs of
 * TM_SUM_RUN logits, the runs in double; rows are added to the loss in ascending order in double. dw is the product of
 * the chunks in ascending order: with chunks that are multiples of TM_GEMM_BLOCK a float32 dw has the bits of one
 * product over all rows. A bfloat16 dw is rounded once per chunk. With bfloat16 x and w, dz is rounded to bfloat16 for
 * its products (loss_slices.h).
 */
#include "base/status.h"
#include "device/cpu/gemm.h"
#include "device/cpu/simd/common.h"
#include "device/cpu/simd/kernels.h"
#include "device/cpu/simd/loss_row.h"
#include "op/attrs.h"

#include <math.h>

/* The operands of the four ops by name. */
typedef struct {
    const tm_view *x, *w, *targets;
    const tm_view *scalars, *scales; /* what losses count: all the same, or each row its own; NULL: the other */
    const tm_view *loss, *losses;    /* their sum; of each row; NULL where it is not wanted */
    const tm_view *dx, *dw, *logits; /* dx and dw NULL where they are not wanted */
    const tm_view *u, *b, *du, *db;  /* NULL without an adapter; db NULL where it is not wanted */
    double         scale;            /* of u b^T */
    int64_t        rank;             /* columns of u; 0: no adapter */
    bool           gradients, add_loss, add_losses, add_dw, add_db;
    bool           rounded;                     /* a float32 w counts as rounded to bfloat16 */
    int64_t        rows, width, classes, chunk; /* N, C, V */
} operands;

/* in: x, w, targets, [what losses count]; out: [the sum | losses by row, without gradients], [dx, dw], logits */
static TM_PLANNED operands operands_of(const tm_call *call, bool gradients, bool by_row)
{
    operands       o = { .x = &call->in[0], .w = &call->in[1], .targets = &call->in[2], .gradients = gradients };
    const tm_view *out = call->out;
    if (!by_row) o.loss = out++;
    if (by_row && !gradients) o.losses = out++;
    o.add_loss = o.loss && call->accumulate & 1;
    o.rounded = call->rounded != 0;
    if (!gradients && !by_row && tm_view_present(&call->out[2])) o.losses = &call->out[2];
    o.add_losses = !gradients && !by_row && call->accumulate >> 2 & 1;
    if (gradients) {
        *(by_row ? &o.scales : &o.scalars) = &call->in[3];
        if (tm_view_present(&out[0])) o.dx = &out[0];
        if (tm_view_present(&out[1])) o.dw = &out[1];
        o.add_dw = call->accumulate >> (out + 1 - call->out) & 1;
        out += 2;
    }
    o.logits = out;
    int u = gradients ? 4 : 3;
    if (!by_row && tm_view_present(&call->in[u])) {
        o.u = &call->in[u];
        o.b = o.u + 1;
        o.scale = ((const tm_loss_attr *)call->attr)->scale;
        o.rank = o.u->shape.n[1];
        if (gradients) o.du = &call->out[4];
        if (gradients && tm_view_present(&call->out[5])) o.db = &call->out[5];
        o.add_db = call->accumulate >> 5 & 1;
    }
    o.rows = o.x->shape.n[0];
    o.width = o.x->shape.n[1];
    o.classes = o.w->shape.n[0];
    o.chunk = ((const tm_loss_attr *)call->attr)->chunk;
    if (o.chunk > o.rows) o.chunk = o.rows;
    return o;
}

static TM_PLANNED bool in_bfloat16(const operands *o)
{
    return o->x->dtype == TM_BF16 && (o->w->dtype == TM_BF16 || (TM_PAIRS && o->rounded));
}

static TM_PLANNED const char *refuse(const operands *o)
{
    if (!TM_PAIRS && o->rounded) return "does not round weights while packing";
    if (!tm_is_float(o->x) || !tm_is_float(o->w)) return "needs float32 or bfloat16 inputs";
    if (o->targets->dtype != TM_I32) return "needs int32 targets";
    if (o->scalars && o->scalars->dtype != TM_F64) return "needs float64 scalars";
    if (o->scales && o->scales->dtype != TM_F32) return "needs float32 cotangents";
    if (o->logits->dtype != TM_F32) return "needs float32 logits";
    if (o->loss && o->loss->dtype != TM_F64) return "needs a float64 loss";
    if (o->losses && o->losses->dtype != TM_F64 && (o->loss || !tm_is_float(o->losses)))
        return o->loss ? "needs float64 losses of rows" : "needs float32 or bfloat16 losses";
    if (o->dx && !tm_is_float(o->dx)) return "needs a float32 or bfloat16 gradient of x";
    if (o->dw && !tm_is_float(o->dw)) return "needs a float32 or bfloat16 gradient of w";
    if (!o->u) return NULL;
    if (!tm_is_float(o->u) || !tm_is_float(o->b)) return "needs a float32 or bfloat16 adapter";
    if (o->du && !tm_is_float(o->du)) return "needs a float32 or bfloat16 gradient of u";
    if (o->db && !tm_is_float(o->db)) return "needs a float32 or bfloat16 gradient of b";
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
        .narrow_b = TM_PAIRS && o->rounded,
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
        .narrow_b = TM_PAIRS && o->rounded,
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
    };
}
static void run_product(tm_gemm g, const tm_call *call, void *workspace)
{
    g.threads = call->threads;
    g.workspace = workspace;
    TM_K(tm_gemm_run)(&g);
}

/* ---- an adapter's products; su (chunk, r), float32: scale u, later dz b ---- */

/* Added to logits z (n, classes) of classes v ... */
static TM_PLANNED tm_gemm adapter_logits(const operands *o, const float *su, int64_t n, int64_t v, int64_t classes,
                                         float *z)
{
    return (tm_gemm){ .m = n,
                      .n = classes,
                      .k = o->rank,
                      .a = { su, o->rank, false, TM_F32 },
                      .b = { rows_of(o->b, v), o->rank, true, o->b->dtype },
                      .c = z,
                      .ldc = classes,
                      .c_dtype = TM_F32,
                      .accumulate = true };
}
static TM_PLANNED tm_gemm du_product(const operands *o, float *su, int64_t n)
{
    return (tm_gemm){ .m = n,
                      .n = o->rank,
                      .k = o->classes,
                      .a = { o->logits->data, o->classes, false, TM_F32 },
                      .b = { o->b->data, o->rank, false, o->b->dtype },
                      .c = su,
                      .ldc = o->rank,
                      .c_dtype = TM_F32 };
}
static TM_PLANNED tm_gemm db_product(const operands *o, const float *su, int64_t from, int64_t n)
{
    return (tm_gemm){ .m = o->classes,
                      .n = o->rank,
                      .k = n,
                      .a = { o->logits->data, o->classes, true, TM_F32 },
                      .b = { su, o->rank, false, TM_F32 },
                      .c = o->db->data,
                      .ldc = o->rank,
                      .c_dtype = o->db->dtype,
                      .accumulate = o->add_db || from > 0 };
}

/* `n` elements of `to` become scale times those of `from`. */
static void scaled(const operands *o, const void *from, tm_dtype from_dtype, int64_t from_first, void *to,
                   tm_dtype to_dtype, int64_t to_first, int64_t n)
{
    v16 factor = v16_set1((float)o->scale);
    for (int64_t i = 0; i < n; i += TM_LANES)
        v16_put(to, to_dtype, to_first + i, v16_mul(factor, v16_get(from, from_dtype, from_first + i, n - i)), n - i);
}

/* Of rows [from, from + n), where there is an adapter. */
static void scale_u(const operands *o, float *su, int64_t from, int64_t n)
{
    if (o->u) scaled(o, o->u->data, o->u->dtype, from * o->rank, su, TM_F32, 0, n * o->rank);
}

/* ---- rows ---- */

static double scale_of(const operands *o, int64_t row)
{
    if (o->scales) return (double)((const float *)o->scales->data)[row];
    return o->scalars ? ((const double *)o->scalars->data)[TM_SCALAR_LOSS_SCALE] : 0;
}

/* Adds the losses of rows [from, from + n) to *sum, in their order, and notes them. */
static void add_losses(const operands *o, const double *losses, int64_t from, int64_t n, double *sum)
{
    for (int64_t r = 0; r < n; r++) *sum += losses[r];
    for (int64_t r = 0; o->losses && r < n; r++) {
        double *wide = o->losses->dtype == TM_F64 ? (double *)o->losses->data + from + r : NULL;
        if (wide)
            *wide = losses[r] + (o->add_losses ? *wide : 0);
        else
            v16_put(o->losses->data, o->losses->dtype, from + r, v16_set1((float)losses[r]), 1);
    }
}

#include "device/cpu/simd/loss_slices.h"

#if !TM_PAIRS
/* ---- whole rows ---- */

static void loss_rows(const operands *o, int64_t from, int64_t n, double *losses, int threads)
{
    float         *logits = o->logits->data;
    const int32_t *targets = (const int32_t *)o->targets->data + from;
    int64_t        group = TM_TASK_LOGITS / o->classes + 1;
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1 && n > group)
    for (int64_t task = 0; task < (n + group - 1) / group; task++)
        for (int64_t r = task * group; r < n && r < (task + 1) * group; r++)
            losses[r] =
                tm_loss_row(logits + r * o->classes, o->classes, targets[r], o->gradients, scale_of(o, from + r));
}

static TM_PLANNED size_t largest_product(const operands *o, int threads)
{
    size_t  most = 0;
    int64_t n[2] = { o->chunk, o->chunk > 0 ? o->rows % o->chunk : 0 };
    for (int i = 0; i < 2; i++) {
        tm_gemm g[6] = { logits_product(o, 0, n[i]) };
        int     count = 1;
        if (o->dx) g[count++] = dx_product(o, 0, n[i]);
        if (o->dw) g[count++] = dw_product(o, 0, n[i]);
        if (o->u) g[count++] = adapter_logits(o, NULL, n[i], 0, o->classes, NULL);
        if (o->du) g[count++] = du_product(o, NULL, n[i]);
        if (o->db) g[count++] = db_product(o, NULL, 0, n[i]);
        for (int j = 0; j < count; j++) {
            g[j].threads = threads;
            size_t bytes = n[i] > 0 ? TM_K(tm_gemm_workspace)(&g[j]) : 0;
            if (bytes > most) most = bytes;
        }
    }
    return most;
}

static TM_PLANNED size_t whole_workspace(const operands *o, int threads)
{
    return (size_t)o->chunk * (sizeof(double) + (size_t)o->rank * sizeof(float)) + largest_product(o, threads);
}

static void run_whole(const tm_call *call, const operands *o)
{
    double *losses = call->workspace, *loss = o->loss ? o->loss->data : NULL;
    float  *su = (float *)(losses + o->chunk);
    void   *scratch = su + o->chunk * o->rank;
    double  sum = o->add_loss ? *loss : 0;
    for (int64_t from = 0; from < o->rows; from += o->chunk) {
        int64_t n = o->rows - from < o->chunk ? o->rows - from : o->chunk;
        run_product(logits_product(o, from, n), call, scratch);
        scale_u(o, su, from, n);
        if (o->u) run_product(adapter_logits(o, su, n, 0, o->classes, o->logits->data), call, scratch);
        loss_rows(o, from, n, losses, call->threads);
        add_losses(o, losses, from, n, &sum);
        if (o->dx) run_product(dx_product(o, from, n), call, scratch);
        if (o->dw) run_product(dw_product(o, from, n), call, scratch);
        if (o->db) run_product(db_product(o, su, from, n), call, scratch);
        if (o->du) run_product(du_product(o, su, n), call, scratch);
        if (o->du) scaled(o, su, TM_F32, 0, o->du->data, o->du->dtype, from * o->rank, n * o->rank);
    }
    if (loss) *loss = sum;
}

#endif

/* ---- kernels ---- */

#if TM_PAIRS
#define WHOLE_KERNEL(name, gradients, by_row)
#else
#define WHOLE_KERNEL(name, gradients, by_row)                                                                          \
    static TM_PLANNED const char *name##_refuse(const tm_call *call)                                                   \
    {                                                                                                                  \
        operands o = operands_of(call, gradients, by_row);                                                             \
        return in_bfloat16(&o) ? "bfloat16 goes in slices" : refuse(&o);                                               \
    }                                                                                                                  \
    static TM_PLANNED size_t name##_workspace(const tm_call *call)                                                     \
    {                                                                                                                  \
        operands o = operands_of(call, gradients, by_row);                                                             \
        return whole_workspace(&o, call->threads);                                                                     \
    }                                                                                                                  \
    static void name##_run(const tm_call *call)                                                                        \
    {                                                                                                                  \
        operands o = operands_of(call, gradients, by_row);                                                             \
        run_whole(call, &o);                                                                                           \
    }
#endif
#define KERNEL(name, gradients, by_row)                                                                                \
    static TM_PLANNED const char *name##_slices_refuse(const tm_call *call)                                            \
    {                                                                                                                  \
        operands o = operands_of(call, gradients, by_row);                                                             \
        return in_bfloat16(&o) ? refuse(&o) : "needs bfloat16 inputs";                                                 \
    }                                                                                                                  \
    static TM_PLANNED size_t name##_slices_workspace(const tm_call *call)                                              \
    {                                                                                                                  \
        operands o = operands_of(call, gradients, by_row);                                                             \
        return slices_workspace(&o, call->threads);                                                                    \
    }                                                                                                                  \
    static void name##_slices_run(const tm_call *call)                                                                 \
    {                                                                                                                  \
        operands o = operands_of(call, gradients, by_row);                                                             \
        run_slices(call, &o);                                                                                          \
    }                                                                                                                  \
    WHOLE_KERNEL(name, gradients, by_row)
KERNEL(forward, false, false)
KERNEL(grad, true, false)
KERNEL(by_row, false, true)
KERNEL(by_row_grad, true, true)
#undef KERNEL
#undef WHOLE_KERNEL

#define SLICED(op_name, which)                                                                                         \
    {                                                                                                                  \
        .op = TM_OP_##op_name, .name = #op_name "/slices-" TM_ISA_NAME, .refuse = which##_slices_refuse,               \
        .workspace = which##_slices_workspace, .run = which##_slices_run, .two_rows = true,                            \
        .rounds = TM_PAIRS ? 1u << 1 : 0                                                                               \
    }
#define WHOLE(op_name, which) TM_KERNEL(op_name, #op_name "/own-", which##_refuse, which##_workspace, which##_run)
const tm_kernel TM_K(tm_cpu_loss)[] = {
    SLICED(linear_cross_entropy, forward),
    SLICED(linear_cross_entropy_grad, grad),
    SLICED(linear_token_losses, by_row),
    SLICED(linear_token_losses_grad, by_row_grad),
#if !TM_PAIRS
    WHOLE(linear_cross_entropy, forward),
    WHOLE(linear_cross_entropy_grad, grad),
    WHOLE(linear_token_losses, by_row),
    WHOLE(linear_token_losses_grad, by_row_grad),
#endif
    { .name = NULL },
};
