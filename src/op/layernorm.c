/* SPDX-License-Identifier: Apache-2.0 */
/* op/layernorm.c - layer normalisation over the last axis (Ba, Kiros & Hinton 2016, eq. 4; variance over C, biased).
 *
 *   mean = mean_c(x_c),  r = 1 / sqrt(mean_c((x_c - mean)^2) + eps),  xh_c = (x_c - mean) r
 *   y_c  = xh_c w_c + b_c
 *   dw_c = sum_n dy_nc xh_nc,  db_c = sum_n dy_nc
 *   dx_c = addend_c + r (h_c - mean_k(h_k) - xh_c mean_k(h_k xh_k)),  h = dy w
 *
 * x (N, C), w (C), [b (C)] -> y (N, C), mean (N), rstd (N)
 */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>

static const char *layernorm_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    const char *why;
    if (in[0].rank != 2) return "x must have two axes (rows, channels)";
    if (!tm_shape_is_vector(in[1], in[0].n[1])) return "the weight must have one value per channel of x";
    if (tm_shape_present(in[2]) && !tm_shape_equal(in[2], in[1])) return "the bias must have the shape of the weight";
    if ((why = tm_shape_fit(&out[0], in[0], "y must have the shape of x"))) return why;
    if ((why = tm_shape_fit(&out[1], tm_shape_1(in[0].n[0]), "mean must have one value per row of x"))) return why;
    return tm_shape_fit(&out[2], tm_shape_1(in[0].n[0]), "rstd must have one value per row of x");
}

static void layernorm_reference(const tm_call *call)
{
    const tm_norm_attr *attr = call->attr;
    int64_t             rows = call->in[0].shape.n[0], channels = call->in[0].shape.n[1];
    const double       *w = call->in[1].data, *b = call->in[2].data;
    double             *mean = call->out[1].data, *rstd = call->out[2].data;
    for (int64_t n = 0; n < rows; n++) {
        const double *x = (const double *)call->in[0].data + n * channels;
        double       *y = (double *)call->out[0].data + n * channels;
        double        sum = 0, squares = 0;
        for (int64_t c = 0; c < channels; c++) sum += x[c];
        mean[n] = sum / (double)channels;
        for (int64_t c = 0; c < channels; c++) squares += (x[c] - mean[n]) * (x[c] - mean[n]);
        rstd[n] = 1 / sqrt(squares / (double)channels + attr->eps);
        for (int64_t c = 0; c < channels; c++) y[c] = (x[c] - mean[n]) * rstd[n] * w[c] + (b ? b[c] : 0);
    }
}

static void layernorm_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id x = node->in[0], w = node->in[1], b = node->in[2], dy = tm_gradient_of(gradient, node->out[0]);
    unsigned     accumulate = 0;
    if (dy == TM_NONE) return;
    bool         wanted = tm_gradient_wanted(gradient, x);
    tm_tensor_id dw = tm_gradient_parameter(gradient, w, 1, &accumulate);
    tm_tensor_id db = tm_gradient_parameter(gradient, b, 2, &accumulate);
    if (!wanted && dw == TM_NONE && db == TM_NONE) return;
    tm_tensor_id addend = wanted ? tm_gradient_take(gradient, x) : TM_NONE;
    tm_tensor_id in[TM_MAX_IN] = { dy, x, w, node->out[1], node->out[2], addend };
    tm_tensor_id out[TM_MAX_OUT] = { TM_NONE, dw, db };
    tm_gradient_emit(gradient, TM_OP_layernorm_grad, node->attr, node->attr_bytes, in, out, accumulate);
    if (wanted) tm_gradient_add(gradient, x, out[0]);
}

static const struct {
    int64_t rows, channels;
    double  eps; /* large where there are too few channels for a gradient of x without it */
    bool    bias, addend, dw, db;
} cases[] = { { 1, 3, 0.1, true, false, true, true },     { 3, 7, 1e-5, true, true, true, true },
              { 9, 8, 1e-6, false, true, true, false },   { 2, 65, 1e-5, true, false, false, true },
              { 65, 9, 1e-6, true, false, true, true },   { 130, 33, 1e-5, true, true, true, true },
              { 8, 2, 0.5, false, true, false, false },   { 3, 768, 1e-5, true, true, true, true },
              { 63, 16, 1e-5, true, false, true, true },  { 64, 17, 1e-5, false, true, true, true },
              { 200, 65, 1e-5, true, true, true, false }, { 200, 768, 1e-5, true, true, true, true },
              { 33000, 1, 0.5, true, true, true, true } };

static tm_rounding layernorm_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(call->in[0].shape.n[1]);
}

static bool layernorm_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_shape channels = tm_shape_1(cases[k].channels);
    tm_example_begin(example, &(tm_norm_attr){ .eps = cases[k].eps }, sizeof(tm_norm_attr));
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].channels), 0.5, 2);
    tm_example_in(example, 1, TM_ROLE_PARAMETER, channels, 1, 0.3);
    if (cases[k].bias) tm_example_in(example, 2, TM_ROLE_PARAMETER, channels, 0, 0.5);
    return true;
}

const tm_op tm_op_layernorm = {
    .name = "layernorm",
    .formula = "y = (x - mean) rstd w + b, rstd = 1 / sqrt(mean((x - mean)^2) + eps)",
    .group = "norm",
    .n_in = 3,
    .n_out = 3,
    .optional_in = 1U << 2,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_STATISTIC, TM_ROLE_STATISTIC },
    .infer = layernorm_infer,
    .reference = layernorm_reference,
    .gradient = layernorm_gradient,
    .cost = tm_cost_moved,
    .vector = 7,
    .cheap = true,
    .example = layernorm_example,
    .rounding = layernorm_rounding,
    .in_name = { "x (N, C)", "w (C)", "[b (C)]" },
    .out_name = { "y (N, C)", "mean (N)", "rstd (N)" },
    .attributes = "eps",
};

/* in: dy (N, C), x (N, C), w (C), mean (N), rstd (N), [addend (N, C)]; out: dx (N, C), [dw (C)], [db (C)] */
static const char *layernorm_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    const char *why;
    if (in[1].rank != 2) return "x must have two axes (rows, channels)";
    if (!tm_shape_equal(in[0], in[1])) return "dy must have the shape of x";
    if (!tm_shape_is_vector(in[2], in[1].n[1])) return "the weight must have one value per channel of x";
    if (!tm_shape_is_vector(in[3], in[1].n[0])) return "mean must have one value per row of x";
    if (!tm_shape_is_vector(in[4], in[1].n[0])) return "rstd must have one value per row of x";
    if (tm_shape_present(in[5]) && !tm_shape_equal(in[5], in[1])) return "the addend must have the shape of x";
    if ((why = tm_shape_fit(&out[0], in[1], "dx must have the shape of x"))) return why;
    if ((why = tm_shape_fit_optional(&out[1], in[2], "dw must have the shape of the weight"))) return why;
    return tm_shape_fit_optional(&out[2], in[2], "db must have the shape of the weight");
}

static void layernorm_grad_reference(const tm_call *call)
{
    int64_t       rows = call->in[1].shape.n[0], channels = call->in[1].shape.n[1];
    const double *w = call->in[2].data, *mean = call->in[3].data, *rstd = call->in[4].data;
    double       *dw = tm_call_sums(call, 1), *db = tm_call_sums(call, 2);
    for (int64_t n = 0; n < rows; n++) {
        const double *dy = (const double *)call->in[0].data + n * channels;
        const double *x = (const double *)call->in[1].data + n * channels;
        const double *addend = tm_view_present(&call->in[5]) ? (const double *)call->in[5].data + n * channels : NULL;
        double       *dx = (double *)call->out[0].data + n * channels;
        double        sum = 0, dot = 0;
        for (int64_t c = 0; c < channels; c++) {
            double xh = (x[c] - mean[n]) * rstd[n];
            sum += dy[c] * w[c];
            dot += dy[c] * w[c] * xh;
            if (dw) dw[c] += dy[c] * xh;
            if (db) db[c] += dy[c];
        }
        for (int64_t c = 0; c < channels; c++) {
            double xh = (x[c] - mean[n]) * rstd[n];
            dx[c] = (addend ? addend[c] : 0) +
                    rstd[n] * (dy[c] * w[c] - sum / (double)channels - xh * dot / (double)channels);
        }
    }
}

/* dx: over a row; dw and db: over the rows, and what is there. */
static tm_rounding layernorm_grad_rounding(const tm_call *call, int k)
{
    return tm_rounding_sum(k == 0 ? call->in[0].shape.n[1] : call->in[0].shape.n[0] + 1);
}

static bool layernorm_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_shape shape = tm_shape_2(cases[k].rows, cases[k].channels), channels = tm_shape_1(cases[k].channels);
    tm_example_begin(example, &(tm_norm_attr){ .eps = cases[k].eps }, sizeof(tm_norm_attr));
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, shape, 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, shape, 0.5, 2);
    tm_example_in(example, 2, TM_ROLE_PARAMETER, channels, 1, 0.3);
    tm_example_in(example, 3, TM_ROLE_STATISTIC, tm_shape_1(cases[k].rows), 0.5, 0.3);
    tm_example_in(example, 4, TM_ROLE_STATISTIC, tm_shape_1(cases[k].rows), 0.5, 0.05);
    if (cases[k].addend) tm_example_in(example, 5, TM_ROLE_ACTIVATION, shape, 0, 1);
    if (cases[k].dw) example->out[1] = channels;
    if (cases[k].db) example->out[2] = channels;
    return true;
}

const tm_op tm_op_layernorm_grad = {
    .name = "layernorm_grad",
    .formula = "dx = addend + rstd (h - mean(h) - xh mean(h xh)), h = dy w, xh = (x - mean) rstd; "
               "dw = sum over rows of dy xh, db = sum over rows of dy",
    .group = "norm",
    .n_in = 6,
    .n_out = 3,
    .optional_in = 1U << 5,
    .optional_out = 1U << 1 | 1U << 2,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_GRADIENT, TM_ROLE_GRADIENT },
    .infer = layernorm_grad_infer,
    .reference = layernorm_grad_reference,
    .cost = tm_cost_moved,
    .vector = 13,
    .inplace = 1U << 0 | 1U << 5,
    .example = layernorm_grad_example,
    .rounding = layernorm_grad_rounding,
    .in_name = { "dy (N, C)", "x (N, C)", "w (C)", "mean (N)", "rstd (N)", "[addend (N, C)]" },
    .out_name = { "dx (N, C)", "[dw (C)]", "[db (C)]" },
    .attributes = "eps",
};
