/* SPDX-License-Identifier: Apache-2.0 */
/* op/head_norm.c - root-mean-square normalisation of each head by itself (the q and k norms of Qwen3, of fused rows).
 *
 *   r    = 1 / sqrt(mean_d(x_d^2) + eps),  y_d = x_d r w_d           over the D elements of a head
 *   dw_d = sum over rows and heads of dy_d x_d r,  dx_d = r (h_d - x_d r^2 mean_k(h_k x_k)),  h = dy w
 *
 * Head h begins at column first + h stride. All heads share the D values of w, or there are two times D: heads from
 * `second` on have the second D (keys behind queries). All other columns are copied.
 * x (N, W), w (D) or (2 D) -> y (N, W), rstd (N, heads)
 */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>
#include <string.h>

static int64_t stride_of(const tm_head_norm_attr *attr)
{
    return attr->stride ? attr->stride : attr->head_dim;
}

static const char *head_norm_check(tm_shape x, tm_shape w, const tm_head_norm_attr *attr)
{
    if (attr->heads < 1 || attr->head_dim < 1) return "heads and head size must be positive";
    if (attr->second < 0 || attr->second >= attr->heads) return "the second half of the weights belongs to no head";
    if (attr->first < 0 || (attr->stride != 0 && attr->stride < attr->head_dim)) return "normalised heads overlap";
    if (x.rank != 2) return "x must have two axes (rows, heads)";
    if (x.n[1] < attr->first + (attr->heads - 1) * stride_of(attr) + attr->head_dim)
        return "a row of x is shorter than its normalised heads";
    if (!tm_shape_is_vector(w, (attr->second ? 2 : 1) * attr->head_dim))
        return "the weight must have one value per element of a head, or two times as many";
    return NULL;
}

static const char *head_norm_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_head_norm_attr *attr = attr_;
    const char              *why;
    if ((why = head_norm_check(in[0], in[1], attr))) return why;
    if ((why = tm_shape_fit(&out[0], in[0], "y must have the shape of x"))) return why;
    return tm_shape_fit(&out[1], tm_shape_2(in[0].n[0], attr->heads), "rstd must have one value per row and head");
}

/* Offset of head h in its row, and of its weights. */
static int64_t column_of(const tm_head_norm_attr *attr, int64_t h)
{
    return attr->first + h * stride_of(attr);
}
static int64_t weights_of(const tm_head_norm_attr *attr, int64_t h)
{
    return attr->second && h >= attr->second ? attr->head_dim : 0;
}

static void head_norm_reference(const tm_call *call)
{
    const tm_head_norm_attr *attr = call->attr;
    int64_t                  rows = call->in[0].shape.n[0], width = call->in[0].shape.n[1], D = attr->head_dim;
    double                  *rstd = call->out[1].data;
    memcpy(call->out[0].data, call->in[0].data, (size_t)(rows * width) * sizeof(double));
    for (int64_t n = 0; n < rows; n++)
        for (int64_t h = 0; h < attr->heads; h++) {
            const double *x = (const double *)call->in[0].data + n * width + column_of(attr, h);
            const double *w = (const double *)call->in[1].data + weights_of(attr, h);
            double       *y = (double *)call->out[0].data + n * width + column_of(attr, h);
            double        sum = 0, *r = &rstd[n * attr->heads + h];
            for (int64_t d = 0; d < D; d++) sum += x[d] * x[d];
            *r = 1 / sqrt(sum / (double)D + attr->eps);
            for (int64_t d = 0; d < D; d++) y[d] = x[d] * *r * w[d];
        }
}

static void head_norm_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id x = node->in[0], w = node->in[1], dy = tm_gradient_of(gradient, node->out[0]);
    unsigned     accumulate = 0;
    if (dy == TM_NONE) return;
    tm_tensor_id dw = tm_gradient_parameter(gradient, w, 1, &accumulate);
    if (!tm_gradient_wanted(gradient, x) && dw == TM_NONE) return;
    tm_tensor_id in[TM_MAX_IN] = { dy, x, w, node->out[1] }, out[TM_MAX_OUT] = { TM_NONE, dw };
    tm_gradient_emit(gradient, TM_OP_head_norm_grad, node->attr, node->attr_bytes, in, out, accumulate);
    tm_gradient_add(gradient, x, out[0]);
}

static double normalised(const tm_call *call, int64_t rows)
{
    const tm_head_norm_attr *attr = call->attr;
    return (double)(rows * attr->heads * attr->head_dim);
}
static tm_cost head_norm_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 0);
    cost.vector = 4 * normalised(call, call->in[0].shape.n[0]);
    return cost;
}

/* A sum over a head; dw: over all rows and heads. */
static tm_rounding head_norm_rounding(const tm_call *call, int k)
{
    const tm_head_norm_attr *attr = call->attr;
    bool                     sums = k == 1 && call->op == &tm_op_head_norm_grad;
    return tm_rounding_sum(sums ? call->in[0].shape.n[0] * attr->heads : attr->head_dim);
}

static const struct {
    int64_t           rows, more; /* columns behind the heads */
    tm_head_norm_attr attr;
    bool              dw;
} cases[] = {
    { 1, 0, { .eps = 0.5, .heads = 1, .head_dim = 1 }, true },
    { 3, 5, { .eps = 1e-5, .heads = 2, .head_dim = 7 }, true },
    { 9, 16, { .eps = 1e-6, .heads = 6, .head_dim = 8, .second = 4 }, true }, /* four of q, two of k, two of v */
    { 130, 3, { .eps = 1e-5, .heads = 3, .head_dim = 17, .first = 4, .stride = 20, .second = 1 }, true },
    { 65, 128, { .eps = 1e-6, .heads = 3, .head_dim = 64, .second = 2 }, false },
    { 5, 3, { .eps = 1e-5, .heads = 3, .head_dim = 4, .first = 2, .stride = 7, .second = 1 }, true },
};
static tm_shape x_shape(int k)
{
    const tm_head_norm_attr *attr = &cases[k].attr;
    return tm_shape_2(cases[k].rows, column_of(attr, attr->heads - 1) + attr->head_dim + cases[k].more);
}
static tm_shape w_shape(int k)
{
    const tm_head_norm_attr *attr = &cases[k].attr;
    return tm_shape_1((attr->second ? 2 : 1) * attr->head_dim);
}

static bool head_norm_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &cases[k].attr, sizeof cases[k].attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, x_shape(k), 0, 2);
    tm_example_in(example, 1, TM_ROLE_PARAMETER, w_shape(k), 1, 0.3);
    return true;
}

const tm_op tm_op_head_norm = {
    .name = "head_norm",
    .formula = "y = x rstd w, rstd = 1 / sqrt(mean(x^2) + eps), over each head",
    .group = "norm",
    .n_in = 2,
    .n_out = 2,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_STATISTIC },
    .infer = head_norm_infer,
    .reference = head_norm_reference,
    .gradient = head_norm_gradient,
    .cost = head_norm_cost,
    .cheap = true,
    .example = head_norm_example,
    .rounding = head_norm_rounding,
    .in_name = { "x (N, W)", "w (D) or (2 D)" },
    .out_name = { "y (N, W)", "rstd (N, heads)" },
    .attributes = "eps, heads, head_dim, first, stride, second",
};

/* in: dy (N, W), x (N, W), w, rstd (N, heads); out: dx (N, W), [dw like w] */
static const char *head_norm_grad_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_head_norm_attr *attr = attr_;
    const char              *why;
    if ((why = head_norm_check(in[1], in[2], attr))) return why;
    if (!tm_shape_equal(in[0], in[1])) return "dy must have the shape of x";
    if (!tm_shape_is_matrix(in[3], in[1].n[0], attr->heads)) return "rstd must have one value per row and head";
    if ((why = tm_shape_fit(&out[0], in[1], "dx must have the shape of x"))) return why;
    return tm_shape_fit_optional(&out[1], in[2], "dw must have the shape of the weight");
}

static void head_norm_grad_reference(const tm_call *call)
{
    const tm_head_norm_attr *attr = call->attr;
    int64_t                  rows = call->in[1].shape.n[0], width = call->in[1].shape.n[1], D = attr->head_dim;
    double                  *sums = tm_call_sums(call, 1);
    if (call->out[0].data != call->in[0].data)
        memcpy(call->out[0].data, call->in[0].data, (size_t)(rows * width) * sizeof(double));
    for (int64_t n = 0; n < rows; n++)
        for (int64_t h = 0; h < attr->heads; h++) {
            int64_t       at = n * width + column_of(attr, h), weights = weights_of(attr, h);
            const double *dy = (const double *)call->in[0].data + at, *x = (const double *)call->in[1].data + at;
            const double *w = (const double *)call->in[2].data + weights;
            double       *dx = (double *)call->out[0].data + at, sum = 0;
            double        r = ((const double *)call->in[3].data)[n * attr->heads + h];
            for (int64_t d = 0; d < D; d++) {
                sum += dy[d] * w[d] * x[d];
                if (sums) sums[weights + d] += dy[d] * x[d] * r;
            }
            for (int64_t d = 0; d < D; d++) dx[d] = r * (dy[d] * w[d] - x[d] * r * r * sum / (double)D);
        }
}

static tm_cost head_norm_grad_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 0);
    cost.vector = 9 * normalised(call, call->in[0].shape.n[0]);
    return cost;
}

static bool head_norm_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &cases[k].attr, sizeof cases[k].attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, x_shape(k), 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, x_shape(k), 0, 2);
    tm_example_in(example, 2, TM_ROLE_PARAMETER, w_shape(k), 1, 0.3);
    tm_example_in(example, 3, TM_ROLE_STATISTIC, tm_shape_2(cases[k].rows, cases[k].attr.heads), 0.5, 0.05);
    if (cases[k].dw) example->out[1] = w_shape(k);
    return true;
}

const tm_op tm_op_head_norm_grad = {
    .name = "head_norm_grad",
    .formula = "dx = rstd (h - x rstd^2 mean(h x)), h = dy w; dw = sum over rows and heads of dy x rstd",
    .group = "norm",
    .n_in = 4,
    .n_out = 2,
    .optional_out = 1U << 1,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_GRADIENT },
    .infer = head_norm_grad_infer,
    .reference = head_norm_grad_reference,
    .cost = head_norm_grad_cost,
    .inplace = 1U << 0,
    .example = head_norm_grad_example,
    .rounding = head_norm_rounding,
    .in_name = { "dy (N, W)", "x (N, W)", "w (D) or (2 D)", "rstd (N, heads)" },
    .out_name = { "dx (N, W)", "[dw (D) or (2 D)]" },
    .attributes = "eps, heads, head_dim, first, stride, second",
};
