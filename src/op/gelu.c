/* SPDX-License-Identifier: Apache-2.0 */
/* op/gelu.c - Gaussian error linear unit, tanh form (Hendrycks & Gimpel 2016, section 2).
 *
 *   y  = x/2 (1 + th),  th = tanh(sqrt(2/pi) (x + 0.044715 x^3))
 *   dx = dy ((1 + th)/2 + x/2 (1 - th^2) sqrt(2/pi) (1 + 3 0.044715 x^2))
 *
 * x (any shape) -> y (same shape)
 */
#include "graph/gradient.h"
#include "op/describe.h"

#include <math.h>

static const double sqrt_2_over_pi = 0.79788456080286535588, cubic = 0.044715;

static void gelu_reference(const tm_call *call)
{
    int64_t       count = tm_shape_elements(call->in[0].shape);
    const double *x = call->in[0].data;
    double       *y = call->out[0].data;
    for (int64_t i = 0; i < count; i++) {
        double th = tanh(sqrt_2_over_pi * (x[i] + cubic * x[i] * x[i] * x[i]));
        y[i] = 0.5 * x[i] * (1 + th);
    }
}

static void gelu_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_gradient_pair(gradient, node, TM_OP_gelu_grad);
}

static const tm_shape cases[] = { { 2, { 1, 1 } },   { 2, { 3, 7 } },   { 2, { 8, 9 } },    { 2, { 1, 65 } },
                                  { 2, { 9, 130 } }, { 2, { 65, 33 } }, { 1, { 16 } },      { 2, { 2, 15 } },
                                  { 2, { 63, 17 } }, { 2, { 1, 768 } }, { 2, { 200, 768 } } };

static bool gelu_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, cases[k], 0, 2);
    return true;
}

const tm_op tm_op_gelu = {
    .name = "gelu",
    .formula = "y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))",
    .group = "elementwise",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = tm_infer_same,
    .reference = gelu_reference,
    .gradient = gelu_gradient,
    .cost = tm_cost_moved,
    .vector = 9,
    .inplace = 1U << 0,
    .cheap = true,
    .example = gelu_example,
    .in_name = { "x (...)" },
    .out_name = { "y (...)" },
};

/* in: dy, x; out: dx; all of one shape */
static void gelu_grad_reference(const tm_call *call)
{
    int64_t       count = tm_shape_elements(call->in[1].shape);
    const double *dy = call->in[0].data, *x = call->in[1].data;
    double       *dx = call->out[0].data;
    for (int64_t i = 0; i < count; i++) {
        double th = tanh(sqrt_2_over_pi * (x[i] + cubic * x[i] * x[i] * x[i]));
        double slope = sqrt_2_over_pi * (1 + 3 * cubic * x[i] * x[i]);
        dx[i] = dy[i] * (0.5 * (1 + th) + 0.5 * x[i] * (1 - th * th) * slope);
    }
}

static bool gelu_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, cases[k], 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, cases[k], 0, 2);
    return true;
}

const tm_op tm_op_gelu_grad = {
    .name = "gelu_grad",
    .formula = "dx = dy ((1 + th)/2 + x/2 (1 - th^2) sqrt(2/pi) (1 + 3 0.044715 x^2)), th as in gelu",
    .group = "elementwise",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = tm_infer_same_grad,
    .reference = gelu_grad_reference,
    .cost = tm_cost_moved,
    .vector = 16,
    .inplace = 1U << 0,
    .example = gelu_grad_example,
    .in_name = { "dy (...)", "x (...)" },
    .out_name = { "dx (...)" },
};
