/* SPDX-License-Identifier: Apache-2.0 */
/* op/modulate.c - layer normalisation without weights, scaled and shifted per sample (adaLN: Peebles & Xie 2023, 3.2).
 *
 *   mean = mean_c(x_c),  r = 1 / sqrt(mean_c((x_c - mean)^2) + eps),  xh_c = (x_c - mean) r
 *   y_c  = xh_c (1 + scale_c) + shift_c
 *   dshift_c = sum over the rows of the sample of dy_c,  dscale_c = sum of dy_c xh_c
 *   dx_c = addend_c + r (h_c - mean_k(h_k) - xh_c mean_k(h_k xh_k)),  h = dy (1 + scale)
 *
 * Row n belongs to sample n / T, T = seq. shift and scale may be views: columns of one product.
 * x (B T, C), shift (B, C), scale (B, C) -> y (N, C), mean (N), rstd (N)
 */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>

static const char *modulate_check(tm_shape x, tm_shape shift, tm_shape scale, const tm_modulate_attr *attr)
{
    if (attr->seq < 1) return "a sample must have rows";
    if (x.rank != 2) return "x must have two axes (rows, channels)";
    if (shift.rank != 2 || shift.n[1] != x.n[1]) return "the shift must have the shape (samples, channels)";
    if (!tm_shape_equal(shift, scale)) return "the scale must have the shape of the shift";
    return x.n[0] != shift.n[0] * attr->seq ? "the rows of x must be those of the samples" : NULL;
}

static const char *modulate_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    if ((why = modulate_check(in[0], in[1], in[2], attr))) return why;
    if ((why = tm_shape_fit(&out[0], in[0], "y must have the shape of x"))) return why;
    if ((why = tm_shape_fit(&out[1], tm_shape_1(in[0].n[0]), "mean must have one value per row of x"))) return why;
    return tm_shape_fit(&out[2], tm_shape_1(in[0].n[0]), "rstd must have one value per row of x");
}

static void modulate_reference(const tm_call *call)
{
    const tm_modulate_attr *attr = call->attr;
    int64_t                 rows = call->in[0].shape.n[0], C = call->in[0].shape.n[1], T = attr->seq;
    double                 *mean = call->out[1].data, *rstd = call->out[2].data;
    for (int64_t n = 0; n < rows; n++) {
        const double *x = (const double *)call->in[0].data + n * C, *shift = tm_view_row(&call->in[1], n / T);
        const double *scale = tm_view_row(&call->in[2], n / T);
        double       *y = (double *)call->out[0].data + n * C, sum = 0, squares = 0;
        for (int64_t c = 0; c < C; c++) sum += x[c];
        mean[n] = sum / (double)C;
        for (int64_t c = 0; c < C; c++) squares += (x[c] - mean[n]) * (x[c] - mean[n]);
        rstd[n] = 1 / sqrt(squares / (double)C + attr->eps);
        for (int64_t c = 0; c < C; c++) y[c] = (x[c] - mean[n]) * rstd[n] * (1 + scale[c]) + shift[c];
    }
}

static void modulate_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id x = node->in[0], shift = node->in[1], scale = node->in[2];
    tm_tensor_id dy = tm_gradient_of(gradient, node->out[0]);
    if (dy == TM_NONE) return;
    tm_tensor_id addend = tm_gradient_take(gradient, x);
    tm_tensor_id in[TM_MAX_IN] = { dy, x, scale, node->out[1], node->out[2], addend };
    tm_tensor_id out[TM_MAX_OUT] = { TM_NONE, tm_gradient_out(gradient, shift), tm_gradient_out(gradient, scale) };
    tm_gradient_emit(gradient, TM_OP_modulate_grad, node->attr, node->attr_bytes, in, out, 0);
    tm_gradient_add(gradient, x, out[0]);
    tm_gradient_add(gradient, shift, out[1]);
    tm_gradient_add(gradient, scale, out[2]);
}

static tm_rounding modulate_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(call->in[0].shape.n[1] + 1);
}

static const struct {
    int64_t samples, rows, channels; /* rows of a sample */
    double  eps;                     /* large where there are too few channels for a gradient of x without it */
    bool    addend;
} cases[] = { { 1, 1, 3, 0.1, false },    { 3, 2, 7, 1e-6, true },    { 2, 9, 8, 1e-6, false },
              { 5, 1, 65, 1e-6, true },   { 2, 65, 9, 1e-6, true },   { 1, 130, 33, 1e-6, true },
              { 4, 3, 2, 0.5, false },    { 2, 3, 768, 1e-6, true },  { 2, 64, 16, 1e-6, true },
              { 3, 70, 65, 1e-6, false }, { 2, 100, 768, 1e-6, true } };

static bool modulate_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_shape         per_sample = tm_shape_2(cases[k].samples, cases[k].channels);
    tm_shape         x = tm_shape_2(cases[k].samples * cases[k].rows, cases[k].channels);
    tm_modulate_attr attr = { .eps = cases[k].eps, .seq = cases[k].rows };
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, x, 0.5, 2);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, per_sample, 0, 0.5);
    tm_example_in(example, 2, TM_ROLE_ACTIVATION, per_sample, 0, 0.3);
    return true;
}

const tm_op tm_op_modulate = {
    .name = "modulate",
    .formula =
        "y = (x - mean) rstd (1 + scale) + shift, rstd = 1 / sqrt(mean((x - mean)^2) + eps), scale, shift per sample",
    .group = "norm",
    .n_in = 3,
    .n_out = 3,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_STATISTIC, TM_ROLE_STATISTIC },
    .infer = modulate_infer,
    .reference = modulate_reference,
    .gradient = modulate_gradient,
    .cost = tm_cost_moved,
    .vector = 8,
    .cheap = true,
    .strided_in = 1U << 1 | 1U << 2,
    .example = modulate_example,
    .rounding = modulate_rounding,
    .in_name = { "x (B T, C)", "shift (B, C)", "scale (B, C)" },
    .out_name = { "y (B T, C)", "mean (B T)", "rstd (B T)" },
    .attributes = "eps, seq",
};

/* in: dy (N, C), x (N, C), scale (B, C), mean (N), rstd (N), [addend (N, C)]; out: dx (N, C), dshift, dscale (B, C) */
static const char *modulate_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    if ((why = modulate_check(in[1], in[2], in[2], attr))) return why;
    if (!tm_shape_equal(in[0], in[1])) return "dy must have the shape of x";
    if (!tm_shape_is_vector(in[3], in[1].n[0])) return "mean must have one value per row of x";
    if (!tm_shape_is_vector(in[4], in[1].n[0])) return "rstd must have one value per row of x";
    if (tm_shape_present(in[5]) && !tm_shape_equal(in[5], in[1])) return "the addend must have the shape of x";
    if ((why = tm_shape_fit(&out[0], in[1], "dx must have the shape of x"))) return why;
    if ((why = tm_shape_fit(&out[1], in[2], "dshift must have the shape of the scale"))) return why;
    return tm_shape_fit(&out[2], in[2], "dscale must have the shape of the scale");
}

static void modulate_grad_reference(const tm_call *call)
{
    int64_t       rows = call->in[1].shape.n[0], C = call->in[1].shape.n[1];
    int64_t       T = ((const tm_modulate_attr *)call->attr)->seq;
    const double *mean = call->in[3].data, *rstd = call->in[4].data;
    for (int64_t n = 0; n < rows; n++) {
        const double *dy = (const double *)call->in[0].data + n * C, *x = (const double *)call->in[1].data + n * C;
        const double *scale = tm_view_row(&call->in[2], n / T);
        const double *addend = call->in[5].data ? (const double *)call->in[5].data + n * C : NULL;
        double       *dx = (double *)call->out[0].data + n * C, sum = 0, dot = 0;
        double       *dshift = tm_view_row(&call->out[1], n / T), *dscale = tm_view_row(&call->out[2], n / T);
        for (int64_t c = 0; c < C; c++) {
            double xh = (x[c] - mean[n]) * rstd[n], h = dy[c] * (1 + scale[c]);
            sum += h;
            dot += h * xh;
            dshift[c] = (n % T ? dshift[c] : 0) + dy[c];
            dscale[c] = (n % T ? dscale[c] : 0) + dy[c] * xh;
        }
        for (int64_t c = 0; c < C; c++) {
            double xh = (x[c] - mean[n]) * rstd[n], h = dy[c] * (1 + scale[c]);
            dx[c] = (addend ? addend[c] : 0) + rstd[n] * (h - (sum + xh * dot) / (double)C);
        }
    }
}

/* dshift and dscale: over the rows of a sample. */
static tm_rounding modulate_grad_rounding(const tm_call *call, int k)
{
    const tm_modulate_attr *attr = call->attr;
    return tm_rounding_sum(k == 0 ? call->in[1].shape.n[1] + 1 : attr->seq);
}

static bool modulate_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    int64_t          rows = cases[k].samples * cases[k].rows;
    tm_shape         x = tm_shape_2(rows, cases[k].channels);
    tm_modulate_attr attr = { .eps = cases[k].eps, .seq = cases[k].rows };
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, x, 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, x, 0.5, 2);
    tm_example_in(example, 2, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].samples, cases[k].channels), 0, 0.3);
    tm_example_in(example, 3, TM_ROLE_STATISTIC, tm_shape_1(rows), 0.5, 0.1);
    tm_example_in(example, 4, TM_ROLE_STATISTIC, tm_shape_1(rows), 0.5, 0.05);
    if (cases[k].addend) tm_example_in(example, 5, TM_ROLE_ACTIVATION, x, 0, 1);
    return true;
}

const tm_op tm_op_modulate_grad = {
    .name = "modulate_grad",
    .formula = "dx = addend + rstd (h - mean(h) - xh mean(h xh)), h = dy (1 + scale), xh = (x - mean) rstd; "
               "dshift = sum over the rows of a sample of dy; dscale = of dy xh",
    .group = "norm",
    .n_in = 6,
    .n_out = 3,
    .optional_in = 1U << 5,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_ACTIVATION, TM_ROLE_ACTIVATION },
    .infer = modulate_grad_infer,
    .reference = modulate_grad_reference,
    .cost = tm_cost_moved,
    .vector = 14,
    .inplace = 1U << 0 | 1U << 5,
    .strided_in = 1U << 2,
    .strided_out = 1U << 1 | 1U << 2,
    .example = modulate_grad_example,
    .rounding = modulate_grad_rounding,
    .in_name = { "dy (B T, C)", "x (B T, C)", "scale (B, C)", "mean (B T)", "rstd (B T)", "[addend (B T, C)]" },
    .out_name = { "dx (B T, C)", "dshift (B, C)", "dscale (B, C)" },
    .attributes = "eps, seq",
};
