/* SPDX-License-Identifier: Apache-2.0 */
/* op/relu2.c - squared ReLU (So et al. 2021): y = max(x, 0)^2, dx = 2 max(x, 0) dy. x (any shape) -> y (same shape). */
#include "graph/gradient.h"
#include "op/describe.h"

static const tm_shape cases[] = {
    { 2, { 1, 2 } }, { 2, { 3, 7 } }, { 1, { 16 } }, { 2, { 65, 33 } }, { 2, { 200, 768 } }
};

static tm_cost cost(const tm_call *call)
{
    return tm_call_cost(call, 0);
}

static const char *relu2_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    return tm_shape_fit(&out[0], in[0], "y must have the shape of x");
}

static void relu2_reference(const tm_call *call)
{
    const double *x = call->in[0].data;
    double       *y = call->out[0].data;
    for (int64_t i = 0, n = tm_shape_elements(call->in[0].shape); i < n; i++) y[i] = x[i] <= 0 ? 0 : x[i] * x[i];
}

static void relu2_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id dy = tm_gradient_of(gradient, node->out[0]);
    if (dy == TM_NONE || !tm_gradient_wanted(gradient, node->in[0])) return;
    tm_tensor_id in[TM_MAX_IN] = { dy, node->in[0] }, out[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, TM_OP_relu2_grad, NULL, 0, in, out, 0);
    tm_gradient_add(gradient, node->in[0], out[0]);
}

static bool relu2_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, cases[k], 0.1, 2);
    return true;
}

const tm_op tm_op_relu2 = {
    .name = "relu2",
    .formula = "y = max(x, 0)^2",
    .group = "elementwise",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = relu2_infer,
    .reference = relu2_reference,
    .gradient = relu2_gradient,
    .cost = cost,
    .vector = 2,
    .inplace = 1U << 0,
    .example = relu2_example,
    .rounding = tm_rounding_f64,
    .in_name = { "x (...)" },
    .out_name = { "y (...)" },
};

static const char *relu2_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (!tm_shape_equal(in[0], in[1])) return "dy must have the shape of x";
    return tm_shape_fit(&out[0], in[1], "dx must have the shape of x");
}

static void relu2_grad_reference(const tm_call *call)
{
    const double *dy = call->in[0].data, *x = call->in[1].data;
    double       *dx = call->out[0].data;
    for (int64_t i = 0, n = tm_shape_elements(call->in[1].shape); i < n; i++) dx[i] = x[i] <= 0 ? 0 : 2 * x[i] * dy[i];
}

static bool relu2_grad_example(int k, tm_example *example)
{
    if (!relu2_example(k, example)) return false;
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, cases[k], 0.1, 2);
    return true;
}

const tm_op tm_op_relu2_grad = {
    .name = "relu2_grad",
    .formula = "dx = 2 max(x, 0) dy",
    .group = "elementwise",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = relu2_grad_infer,
    .reference = relu2_grad_reference,
    .cost = cost,
    .vector = 3,
    .inplace = 1U << 0,
    .example = relu2_grad_example,
    .rounding = tm_rounding_f64,
    .in_name = { "dy (...)", "x (...)" },
    .out_name = { "dx (...)" },
};
