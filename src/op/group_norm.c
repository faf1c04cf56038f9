/* SPDX-License-Identifier: Apache-2.0 */
/* op/group_norm.c - group normalisation (Wu & He 2018, eq. 1, 2, 7; variance biased), forward only.
 *
 *   mean_bg, var_bg: of all rows of sample b and all channels of group g
 *   y_rc = (x_rc - mean_bg) / sqrt(var_bg + eps) w_c + bias_c;  silu: y_rc / (1 + e^-y_rc) is stored
 *
 * x (B T, C), w (C), bias (C) -> y (B T, C)
 */
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>

static const char *group_norm_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_group_norm_attr *attr = attr_;
    if (attr->samples < 1 || attr->groups < 1) return "samples and groups must be positive";
    if (in[0].rank != 2) return "x must have two axes (positions, channels)";
    if (in[0].n[0] % attr->samples != 0) return "the rows of x must be a multiple of the samples";
    if (in[0].n[1] % attr->groups != 0) return "the channels of x must be a multiple of the groups";
    if (!tm_shape_is_vector(in[1], in[0].n[1])) return "the weight must have one value per channel of x";
    if (!tm_shape_is_vector(in[2], in[0].n[1])) return "the bias must have one value per channel of x";
    return tm_shape_fit(&out[0], in[0], "y must have the shape of x");
}

static void group_norm_reference(const tm_call *call)
{
    const tm_group_norm_attr *attr = call->attr;
    int64_t                   channels = call->in[0].shape.n[1], rows = call->in[0].shape.n[0] / attr->samples;
    int64_t                   width = channels / attr->groups, n = rows * width;
    const double             *w = call->in[1].data, *bias = call->in[2].data;
    for (int64_t unit = 0; unit < attr->samples * attr->groups; unit++) {
        int64_t       from = unit / attr->groups * rows * channels + unit % attr->groups * width;
        const double *x = (const double *)call->in[0].data + from;
        double       *y = (double *)call->out[0].data + from, sum = 0, squares = 0;
        for (int64_t i = 0; i < n; i++) sum += x[i / width * channels + i % width];
        double mean = sum / (double)n;
        for (int64_t i = 0; i < n; i++) squares += pow(x[i / width * channels + i % width] - mean, 2);
        double rstd = 1 / sqrt(squares / (double)n + attr->eps);
        for (int64_t i = 0; i < n; i++) {
            int64_t at = i / width * channels + i % width, c = unit % attr->groups * width + i % width;
            double  value = (x[at] - mean) * rstd * w[c] + bias[c];
            y[at] = attr->silu ? value / (1 + exp(-value)) : value;
        }
    }
}

static tm_cost group_norm_cost(const tm_call *call)
{
    const tm_group_norm_attr *attr = call->attr;
    tm_cost                   cost = tm_call_cost(call, 0);
    cost.vector = (attr->silu ? 10 : 7) * (double)tm_shape_elements(call->in[0].shape);
    return cost;
}

static tm_rounding group_norm_rounding(const tm_call *call, int k)
{
    const tm_group_norm_attr *attr = call->attr;
    (void)k;
    return tm_rounding_sum(tm_shape_elements(call->in[0].shape) / (attr->samples * attr->groups) + 4);
}

/* 130 rows and more cross the blocks of 128 rows of the fast kernels. */
static const struct {
    int64_t samples, rows, channels, groups, silu;
    double  eps;
} cases[] = { { 1, 1, 4, 2, 0, 0.1 },     { 2, 3, 6, 3, 1, 1e-6 },     { 1, 15, 32, 8, 1, 1e-6 },
              { 3, 9, 65, 5, 0, 1e-5 },   { 2, 70, 7, 7, 1, 1e-5 },    { 1, 130, 33, 1, 0, 1e-6 },
              { 2, 64, 17, 17, 0, 1e-3 }, { 1, 200, 64, 32, 1, 1e-6 }, { 2, 65, 512, 32, 0, 1e-6 } };

static bool group_norm_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_group_norm_attr attr = {
        .eps = cases[k].eps, .samples = cases[k].samples, .groups = cases[k].groups, .silu = cases[k].silu
    };
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].samples * cases[k].rows, cases[k].channels), 0.5,
                  2);
    tm_example_in(example, 1, TM_ROLE_PARAMETER, tm_shape_1(cases[k].channels), 1, 0.3);
    tm_example_in(example, 2, TM_ROLE_PARAMETER, tm_shape_1(cases[k].channels), 0, 0.5);
    return true;
}

const tm_op tm_op_group_norm = {
    .name = "group_norm",
    .formula = "y = (x - mean) / sqrt(var + eps) w + bias, mean and var over a sample's rows and a group's channels; "
               "silu: y / (1 + exp(-y))",
    .group = "norm",
    .n_in = 3,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = group_norm_infer,
    .reference = group_norm_reference,
    .cost = group_norm_cost,
    .inplace = 1U << 0,
    .example = group_norm_example,
    .rounding = group_norm_rounding,
    .in_name = { "x (B T, C)", "w (C)", "bias (C)" },
    .out_name = { "y (B T, C)" },
    .attributes = "samples, groups, eps, silu",
};
