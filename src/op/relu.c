/* SPDX-License-Identifier: Apache-2.0 */
/* op/relu.c - rectified linear unit (Nair & Hinton 2010): y = max(x, 0), dx = dy where y > 0, else 0.
 *
 * The gradient reads the output, which the next layer keeps anyway, so that x can die.
 * x (any shape) -> y (same shape)
 */
#include "graph/gradient.h"
#include "op/describe.h"

static void relu_reference(const tm_call *call)
{
    int64_t       count = tm_shape_elements(call->in[0].shape);
    const double *x = call->in[0].data;
    double       *y = call->out[0].data;
    for (int64_t i = 0; i < count; i++) y[i] = x[i] <= 0 ? 0 : x[i]; /* no number stays none */
}

static void relu_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id y = node->out[0], dy = tm_gradient_of(gradient, y);
    if (dy == TM_NONE || !tm_gradient_wanted(gradient, node->in[0])) return;
    tm_tensor_id in[TM_MAX_IN] = { dy, y }, out[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, TM_OP_relu_grad, NULL, 0, in, out, 0);
    tm_gradient_add(gradient, node->in[0], out[0]);
}

static const tm_shape cases[] = { { 2, { 1, 2 } },   { 2, { 3, 7 } },   { 2, { 8, 9 } },    { 2, { 1, 65 } },
                                  { 2, { 9, 130 } }, { 2, { 65, 33 } }, { 1, { 16 } },      { 2, { 2, 15 } },
                                  { 2, { 63, 17 } }, { 2, { 1, 768 } }, { 2, { 200, 768 } } };

static bool relu_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, cases[k], 0.1, 2);
    return true;
}

const tm_op tm_op_relu = {
    .name = "relu",
    .formula = "y = max(x, 0)",
    .group = "elementwise",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = tm_infer_same,
    .reference = relu_reference,
    .gradient = relu_gradient,
    .cost = tm_cost_moved,
    .vector = 1,
    .inplace = 1U << 0,
    .example = relu_example,
    .rounding = tm_rounding_f64,
    .in_name = { "x (...)" },
    .out_name = { "y (...)" },
};

/* in: dy, y; out: dx; all of one shape */
static void relu_grad_reference(const tm_call *call)
{
    int64_t       count = tm_shape_elements(call->in[1].shape);
    const double *dy = call->in[0].data, *y = call->in[1].data;
    double       *dx = call->out[0].data;
    for (int64_t i = 0; i < count; i++) dx[i] = y[i] <= 0 ? 0 : dy[i];
}

static bool relu_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, cases[k], 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, cases[k], 0.1, 2);
    return true;
}

const tm_op tm_op_relu_grad = {
    .name = "relu_grad",
    .formula = "dx = dy where y > 0, else 0",
    .group = "elementwise",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = tm_infer_same_grad,
    .reference = relu_grad_reference,
    .cost = tm_cost_moved,
    .vector = 1,
    .inplace = 1U << 0,
    .example = relu_grad_example,
    .rounding = tm_rounding_f64,
    .in_name = { "dy (...)", "y (...)" },
    .out_name = { "dx (...)" },
};
