/* SPDX-License-Identifier: Apache-2.0 */
/* device/cpu/simd/grouped.c - kernels of grouped_linear and its gradients: a product of device/cpu/gemm.h for every
 * expert, of as many rows as the offsets say when it runs.
 *
 * Large experts one after the other, all threads on each; small ones side by side, one thread on up to TASK_ROWS rows
 * of a result. A product's bits depend on neither threads nor on how its rows are split, so either way they are the
 * same, and those of `linear` on the rows of that expert.
 */
#include "base/status.h"
#include "device/cpu/gemm.h"
#include "device/cpu/simd/elementwise.h"
#include "device/cpu/simd/kernels.h"

enum {
    TASK_ROWS = 512,        /* rows of a result that one thread computes at a time */
    LARGE_FLOPS = 200000000 /* of an expert with its share of the rows: worth all threads */
};

/* What the three products differ in. `rows`: of the operands, of all experts or (product_of) of one. */
typedef struct {
    int64_t rows, m, n, k; /* of all rows together; of the weights' gradient m and n are its own */
    bool    gradient;      /* of the weights: rows are summed over */
} extent;

static TM_PLANNED extent extent_of(const tm_call *call)
{
    const tm_view *a = &call->in[0];
    extent         e = { .rows = a->shape.n[0], .gradient = call->op == &tm_op_grouped_linear_wgrad };
    e.m = e.gradient ? a->shape.n[1] : e.rows;
    e.n = call->out[0].shape.n[call->out[0].shape.rank - 1];
    e.k = e.gradient ? e.rows : a->shape.n[1];
    return e;
}
static TM_PLANNED int64_t experts_of(const tm_call *call)
{
    return (call->op == &tm_op_grouped_linear_wgrad ? &call->out[0] : &call->in[1])->shape.n[0];
}
static TM_PLANNED bool is_large(const tm_call *call)
{
    extent e = extent_of(call);
    return 2. * (double)e.m * (double)e.n * (double)e.k / (double)experts_of(call) >= LARGE_FLOPS;
}
/* Float32 weights are rounded while they are packed. */
static TM_PLANNED bool is_rounded(const tm_call *call)
{
    return call->rounded == 1u << 1 && call->in[1].dtype == TM_F32;
}
/* Scratch of one product of any expert, a multiple of 64 bytes. */
static TM_PLANNED size_t scratch_of(const tm_call *call)
{
    extent  e = extent_of(call);
    bool    large = is_large(call);
    tm_gemm g = { .m = large ? e.m : tm_min(e.m, TASK_ROWS),
                  .n = e.n,
                  .k = e.k,
                  .a.dtype = call->in[0].dtype,
                  .b.dtype = call->in[1].dtype,
                  .c_dtype = call->out[0].dtype,
                  .narrow_b = TM_PAIRS && is_rounded(call),
                  .threads = large ? call->threads : 1 };
    return (TM_K(tm_gemm_workspace_most)(&g) + 63) / 64 * 64;
}
static TM_PLANNED size_t product_workspace(const tm_call *call)
{
    return scratch_of(call) * (size_t)(is_large(call) ? 1 : call->threads);
}

static const void *element(const tm_view *view, int64_t i)
{
    return (const char *)view->data + (size_t)i * tm_dtype_bytes(view->dtype);
}

/* Rows [from, to) of the result of expert e, whose rows of the operands are begin .. end - 1. */
static tm_gemm product_of(const tm_call *call, int64_t e, int64_t begin, int64_t end, int64_t from, int64_t to)
{
    const tm_view *a = &call->in[0], *b = &call->in[1], *c = &call->out[0], *bias = &call->in[3];
    extent         all = extent_of(call);
    int64_t        wa = a->shape.n[1], wb = b->shape.n[b->shape.rank - 1], per = call->in[1].shape.n[1] * wb;
    tm_gemm g = { .m = to - from, .n = all.n, .ldc = all.n, .c_dtype = c->dtype, .accumulate = call->accumulate & 1 };
    if (all.gradient) {
        g.k = end - begin;
        g.a = (tm_gemm_matrix){ element(a, begin * wa + from), wa, true, a->dtype };
        g.b = (tm_gemm_matrix){ element(b, begin * wb), wb, false, b->dtype };
        g.c = (void *)(uintptr_t)element(c, (e * all.m + from) * all.n);
        return g;
    }
    g.k = wa;
    g.narrow_b = TM_PAIRS && is_rounded(call);
    g.a = (tm_gemm_matrix){ element(a, (begin + from) * wa), wa, false, a->dtype };
    g.b = (tm_gemm_matrix){ element(b, e * per), wb, call->op == &tm_op_grouped_linear, b->dtype };
    g.c = (void *)(uintptr_t)element(c, (begin + from) * all.n);
    if (call->op == &tm_op_grouped_linear && tm_view_present(bias))
        g.bias = element(bias, e * all.n), g.bias_dtype = bias->dtype;
    const tm_view *residual = &call->in[4];
    if (call->op == &tm_op_grouped_linear && tm_view_present(residual)) {
        g.residual = element(residual, (begin + from) * all.n);
        g.residual_dtype = residual->dtype;
        g.ld_residual = all.n;
    }
    return g;
}

static const int32_t *offsets_of(const tm_call *call, const tm_view *view)
{
    const int32_t *offsets = view->data;
    int64_t        experts = tm_view_elements(view) - 1;
    TM_ASSERT(offsets[0] == 0 && offsets[experts] <= call->in[0].shape.n[0]);
    for (int64_t e = 0; e < experts; e++) TM_ASSERT(offsets[e] <= offsets[e + 1]);
    return offsets;
}

static void run_large(const tm_call *call, const int32_t *offsets, int64_t experts)
{
    extent all = extent_of(call);
    for (int64_t e = 0; e < experts; e++) {
        tm_gemm g =
            product_of(call, e, offsets[e], offsets[e + 1], 0, all.gradient ? all.m : offsets[e + 1] - offsets[e]);
        g.threads = call->threads;
        g.workspace = call->workspace;
        TM_K(tm_gemm_run)(&g);
    }
}

/* Tasks of an expert: runs of at most TASK_ROWS rows of its result. */
static int64_t tasks_of(const extent *all, const int32_t *offsets, int64_t e)
{
    return tm_ceil_div(all->gradient ? all->m : offsets[e + 1] - offsets[e], TASK_ROWS);
}

static void run_small(const tm_call *call, const int32_t *offsets, int64_t experts)
{
    extent  all = extent_of(call);
    int64_t tasks = 0, threads = call->threads;
    size_t  scratch = scratch_of(call);
    for (int64_t e = 0; e < experts; e++) tasks += tasks_of(&all, offsets, e);
    if (2. * (double)all.m * (double)all.n * (double)all.k < 1e6) threads = 1; /* a region costs more than it saves */
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads) if (threads > 1)
    for (int64_t t = 0; t < tasks; t++) {
        int64_t e = 0, part = t;
        while (part >= tasks_of(&all, offsets, e)) part -= tasks_of(&all, offsets, e++);
        int64_t rows = all.gradient ? all.m : offsets[e + 1] - offsets[e], parts = tasks_of(&all, offsets, e);
        tm_gemm g = product_of(call, e, offsets[e], offsets[e + 1], rows * part / parts, rows * (part + 1) / parts);
        g.threads = 1;
        g.workspace = (char *)call->workspace + scratch * (size_t)omp_get_thread_num();
        TM_K(tm_gemm_run)(&g);
    }
}

/* Zeros in the rows of nobody. */
static void clear_behind(const tm_call *call, int32_t used)
{
    const tm_view *y = &call->out[0];
    int64_t        rows = call->in[0].shape.n[0], columns = y->shape.n[1];
    if (extent_of(call).gradient || call->accumulate || used == rows) return;
    memset((void *)(uintptr_t)element(y, used * columns), 0,
           (size_t)((rows - used) * columns) * tm_dtype_bytes(y->dtype));
}

static void product_run(const tm_call *call)
{
    const int32_t *offsets = offsets_of(call, &call->in[2]);
    (is_large(call) ? run_large : run_small)(call, offsets, experts_of(call));
    clear_behind(call, offsets[experts_of(call)]);
}

static TM_PLANNED const char *product_refuse(const tm_call *call)
{
    if (TM_PAIRS && !(call->in[0].dtype == TM_BF16 && (call->in[1].dtype == TM_BF16 || is_rounded(call))))
        return "needs bfloat16 inputs";
    if (!TM_PAIRS && call->rounded) return "does not round weights on the way";
    if (!tm_is_float(&call->in[0]) || !tm_is_float(&call->in[1])) return "needs float32 or bfloat16 inputs";
    if (call->in[2].dtype != TM_I32) return "needs int32 offsets";
    if (call->op == &tm_op_grouped_linear && (tm_refuse_format(&call->in[3]) || tm_refuse_format(&call->in[4])))
        return "needs a float32 or bfloat16 bias and residual";
    return tm_is_float(&call->out[0]) ? NULL : "needs a float32 or bfloat16 output";
}

#if !TM_PAIRS
/* ---- grouped_bias_grad: the rows of an expert are added one after the other, then to what is there ---- */

TM_INLINE void bias_columns(const tm_call *call, tm_dtype format, tm_dtype stored, int64_t begin, int64_t end)
{
    const int32_t *offsets = call->in[1].data;
    int64_t        columns = tm_view_columns(&call->in[0]), experts = tm_view_elements(&call->in[1]) - 1;
    for (int64_t e = 0; e < experts; e++)
        for (int64_t j = begin; j < end; j += TM_LANES) {
            int64_t n = tm_lanes(j, end), at = e * columns + j;
            v16     sum = v16_zero();
            for (int64_t r = offsets[e]; r < offsets[e + 1]; r++)
                sum = v16_add(sum, v16_get(call->in[0].data, format, r * columns + j, n));
            if (call->accumulate & 1u) sum = v16_add(v16_get(call->out[0].data, stored, at, n), sum);
            v16_put(call->out[0].data, stored, at, sum, n);
        }
}
TM_PART_2(bias_columns, in[0], out[0])

static void bias_run(const tm_call *call)
{
    offsets_of(call, &call->in[1]);
    tm_parallel(call, bias_columns_part, tm_view_columns(&call->in[0]), TM_LANES, tm_view_elements(&call->in[0]));
}
static TM_PLANNED const char *bias_refuse(const tm_call *call)
{
    const char *why = tm_refuse_format(&call->in[0]);
    if (!why && call->in[1].dtype != TM_I32) why = "needs int32 offsets";
    return why ? why : tm_refuse_format(&call->out[0]);
}
#endif

#define PRODUCT_OF_WEIGHTS(op_name)                                                                                    \
    {                                                                                                                  \
        .op = TM_OP_##op_name, .name = #op_name "/own-" TM_ISA_NAME, .refuse = product_refuse,                         \
        .workspace = product_workspace, .run = product_run, .rounds = TM_PAIRS ? 1u << 1 : 0                           \
    }

const tm_kernel TM_K(tm_cpu_grouped)[] = {
    PRODUCT_OF_WEIGHTS(grouped_linear),
    PRODUCT_OF_WEIGHTS(grouped_linear_dgrad),
    TM_KERNEL(grouped_linear_wgrad, "grouped_linear_wgrad/own-", product_refuse, product_workspace, product_run),
#if !TM_PAIRS
    TM_KERNEL(grouped_bias_grad, "grouped_bias_grad/", bias_refuse, NULL, bias_run),
#endif
    { .name = NULL },
};
