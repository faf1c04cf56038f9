/* SPDX-License-Identifier: Apache-2.0 */
/* op/silu.c - sigmoid linear unit (Elfwing et al. 2017): y = x s(x), s(x) = 1 / (1 + e^-x); dx = dy s (1 + x (1 - s)).
 *
 * x (any shape) -> y (same shape)
 */
#include "graph/gradient.h"
#include "op/describe.h"

#include <math.h>

static void silu_reference(const tm_call *call)
{
    int64_t       count = tm_shape_elements(call->in[0].shape);
    const double *x = call->in[0].data;
    double       *y = call->out[0].data;
    for (int64_t i = 0; i < count; i++) y[i] = x[i] / (1 + exp(-x[i]));
}

static void silu_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_gradient_pair(gradient, node, TM_OP_silu_grad);
}

static const tm_shape cases[] = { { 2, { 1, 1 } }, { 2, { 3, 7 } },  { 2, { 1, 65 } },  { 2, { 9, 130 } },
                                  { 1, { 16 } },   { 2, { 2, 15 } }, { 2, { 63, 17 } }, { 2, { 200, 768 } } };

static bool silu_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, cases[k], 0, 2);
    return true;
}

const tm_op tm_op_silu = {
    .name = "silu",
    .formula = "y = x / (1 + exp(-x))",
    .group = "elementwise",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = tm_infer_same,
    .reference = silu_reference,
    .gradient = silu_gradient,
    .cost = tm_cost_moved,
    .vector = 4,
    .inplace = 1U << 0,
    .cheap = true,
    .example = silu_example,
    .in_name = { "x (...)" },
    .out_name = { "y (...)" },
};

/* in: dy, x; out: dx; all of one shape */
static void silu_grad_reference(const tm_call *call)
{
    int64_t       count = tm_shape_elements(call->in[1].shape);
    const double *dy = call->in[0].data, *x = call->in[1].data;
    double       *dx = call->out[0].data;
    for (int64_t i = 0; i < count; i++) {
        double s = 1 / (1 + exp(-x[i]));
        dx[i] = dy[i] * s * (1 + x[i] * (1 - s));
    }
}

static bool silu_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, cases[k], 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, cases[k], 0, 2);
    return true;
}

const tm_op tm_op_silu_grad = {
    .name = "silu_grad",
    .formula = "dx = dy s (1 + x (1 - s)), s = 1 / (1 + exp(-x))",
    .group = "elementwise",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = tm_infer_same_grad,
    .reference = silu_grad_reference,
    .cost = tm_cost_moved,
    .vector = 8,
    .inplace = 1U << 0,
    .example = silu_grad_example,
    .in_name = { "dy (...)", "x (...)" },
    .out_name = { "dx (...)" },
};
