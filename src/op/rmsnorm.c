/* SPDX-License-Identifier: Apache-2.0 */
/* op/rmsnorm.c - root-mean-square normalisation over the last axis.
 *
 *   r    = 1 / sqrt(mean_c(x_c^2) + eps)
 *   y_c  = x_c r w_c                                         (Zhang & Sennrich 2019, eq. 4)
 *   dw_c = sum_n dy_nc x_nc r_n
 *   dx_c = addend_c + r (h_c - x_c r^2 mean_k(h_k x_k)),  h = dy w
 *
 * x (N, C), w (C) -> y (N, C), rstd (N)
 */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>

static const char *rmsnorm_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    const char *why;
    if (in[0].rank != 2) return "x must have two axes (rows, channels)";
    if (!tm_shape_is_vector(in[1], in[0].n[1])) return "the weight must have one value per channel of x";
    if ((why = tm_shape_fit(&out[0], in[0], "y must have the shape of x"))) return why;
    return tm_shape_fit(&out[1], tm_shape_1(in[0].n[0]), "rstd must have one value per row of x");
}

static void rmsnorm_reference(const tm_call *call)
{
    const tm_norm_attr *attr = call->attr;
    int64_t             rows = call->in[0].shape.n[0], channels = call->in[0].shape.n[1];
    const double       *w = call->in[1].data;
    double             *rstd = call->out[1].data;
    for (int64_t n = 0; n < rows; n++) {
        const double *x = (const double *)call->in[0].data + n * channels;
        double       *y = (double *)call->out[0].data + n * channels;
        double        sum = 0;
        for (int64_t c = 0; c < channels; c++) sum += x[c] * x[c];
        rstd[n] = 1 / sqrt(sum / (double)channels + attr->eps);
        for (int64_t c = 0; c < channels; c++) y[c] = x[c] * rstd[n] * w[c];
    }
}

static void rmsnorm_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id x = node->in[0], w = node->in[1], dy = tm_gradient_of(gradient, node->out[0]);
    unsigned     accumulate = 0;
    if (dy == TM_NONE) return;
    bool         wanted = tm_gradient_wanted(gradient, x);
    tm_tensor_id dw = tm_gradient_parameter(gradient, w, 1, &accumulate);
    if (!wanted && dw == TM_NONE) return;
    tm_tensor_id addend = wanted ? tm_gradient_take(gradient, x) : TM_NONE;
    tm_tensor_id in[TM_MAX_IN] = { dy, x, w, node->out[1], addend }, out[TM_MAX_OUT] = { TM_NONE, dw };
    tm_gradient_emit(gradient, TM_OP_rmsnorm_grad, node->attr, node->attr_bytes, in, out, accumulate);
    if (wanted) tm_gradient_add(gradient, x, out[0]);
}

static const struct {
    int64_t rows, channels;
    double  eps; /* large where there are too few channels for a gradient of x without it */
    bool    addend, dw;
} cases[] = { { 1, 1, 0.5, false, true },    { 3, 7, 1e-5, true, true },     { 9, 8, 1e-6, true, false },
              { 2, 65, 1e-5, false, false }, { 65, 9, 1e-6, false, true },   { 130, 33, 1e-5, true, true },
              { 3, 768, 1e-6, true, true },  { 2, 1, 0.5, true, true },      { 63, 16, 1e-5, false, true },
              { 64, 17, 1e-5, true, true },  { 200, 65, 1e-5, false, true }, { 200, 768, 1e-5, true, true } };

static tm_rounding rmsnorm_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(call->in[0].shape.n[1]);
}

static bool rmsnorm_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &(tm_norm_attr){ .eps = cases[k].eps }, sizeof(tm_norm_attr));
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].channels), 0, 2);
    tm_example_in(example, 1, TM_ROLE_PARAMETER, tm_shape_1(cases[k].channels), 1, 0.3);
    return true;
}

const tm_op tm_op_rmsnorm = {
    .name = "rmsnorm",
    .formula = "y = x rstd w, rstd = 1 / sqrt(mean(x^2) + eps)",
    .group = "norm",
    .n_in = 2,
    .n_out = 2,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_STATISTIC },
    .infer = rmsnorm_infer,
    .reference = rmsnorm_reference,
    .gradient = rmsnorm_gradient,
    .cost = tm_cost_moved,
    .vector = 4,
    .cheap = true,
    .example = rmsnorm_example,
    .rounding = rmsnorm_rounding,
    .in_name = { "x (N, C)", "w (C)" },
    .out_name = { "y (N, C)", "rstd (N)" },
    .attributes = "eps",
};

/* in: dy (N, C), x (N, C), w (C), rstd (N), [addend (N, C)]; out: dx (N, C), [dw (C)] */
static const char *rmsnorm_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    const char *why;
    if (in[1].rank != 2) return "x must have two axes (rows, channels)";
    if (!tm_shape_equal(in[0], in[1])) return "dy must have the shape of x";
    if (!tm_shape_is_vector(in[2], in[1].n[1])) return "the weight must have one value per channel of x";
    if (!tm_shape_is_vector(in[3], in[1].n[0])) return "rstd must have one value per row of x";
    if (tm_shape_present(in[4]) && !tm_shape_equal(in[4], in[1])) return "the addend must have the shape of x";
    if ((why = tm_shape_fit(&out[0], in[1], "dx must have the shape of x"))) return why;
    return tm_shape_fit_optional(&out[1], in[2], "dw must have the shape of the weight");
}

static void rmsnorm_grad_reference(const tm_call *call)
{
    int64_t       rows = call->in[1].shape.n[0], channels = call->in[1].shape.n[1];
    const double *w = call->in[2].data, *rstd = call->in[3].data;
    double       *dw = tm_call_sums(call, 1);
    for (int64_t n = 0; n < rows; n++) {
        const double *dy = (const double *)call->in[0].data + n * channels;
        const double *x = (const double *)call->in[1].data + n * channels;
        const double *addend = tm_view_present(&call->in[4]) ? (const double *)call->in[4].data + n * channels : NULL;
        double       *dx = (double *)call->out[0].data + n * channels;
        double        r = rstd[n], sum = 0;
        for (int64_t c = 0; c < channels; c++) {
            sum += dy[c] * w[c] * x[c];
            if (dw) dw[c] += dy[c] * x[c] * r;
        }
        for (int64_t c = 0; c < channels; c++)
            dx[c] = (addend ? addend[c] : 0) + r * (dy[c] * w[c] - x[c] * r * r * sum / (double)channels);
    }
}

/* dx: over a row; dw: over the rows, and what is there. */
static tm_rounding rmsnorm_grad_rounding(const tm_call *call, int k)
{
    return tm_rounding_sum(k == 0 ? call->in[0].shape.n[1] : call->in[0].shape.n[0] + 1);
}

static bool rmsnorm_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_shape shape = tm_shape_2(cases[k].rows, cases[k].channels), channels = tm_shape_1(cases[k].channels);
    tm_example_begin(example, &(tm_norm_attr){ .eps = cases[k].eps }, sizeof(tm_norm_attr));
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, shape, 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, shape, 0, 2);
    tm_example_in(example, 2, TM_ROLE_PARAMETER, channels, 1, 0.3);
    tm_example_in(example, 3, TM_ROLE_STATISTIC, tm_shape_1(cases[k].rows), 0.5, 0.05);
    if (cases[k].addend) tm_example_in(example, 4, TM_ROLE_ACTIVATION, shape, 0, 1);
    if (cases[k].dw) example->out[1] = channels;
    return true;
}

const tm_op tm_op_rmsnorm_grad = {
    .name = "rmsnorm_grad",
    .formula = "dx = addend + rstd (h - x rstd^2 mean(h x)), h = dy w; dw = sum over rows of dy x rstd",
    .group = "norm",
    .n_in = 5,
    .n_out = 2,
    .optional_in = 1U << 4,
    .optional_out = 1U << 1,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_GRADIENT },
    .infer = rmsnorm_grad_infer,
    .reference = rmsnorm_grad_reference,
    .cost = tm_cost_moved,
    .vector = 9,
    .inplace = 1U << 0 | 1U << 4,
    .example = rmsnorm_grad_example,
    .rounding = rmsnorm_grad_rounding,
    .in_name = { "dy (N, C)", "x (N, C)", "w (C)", "rstd (N)", "[addend (N, C)]" },
    .out_name = { "dx (N, C)", "[dw (C)]" },
    .attributes = "eps",
};
