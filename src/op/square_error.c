/* SPDX-License-Identifier: Apache-2.0 */
/* op/square_error.c - summed square error against fixed targets: loss = sum (y - t)^2, dy = 2 s (y - t).
 *
 * s is scalars[TM_SCALAR_LOSS_SCALE]; one over the number of elements makes the mean of it. Targets have no gradient.
 * y, t (one shape) -> loss ()
 */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

static const char *square_error_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (!tm_shape_equal(in[0], in[1])) return "the targets must have the shape of y";
    return tm_shape_fit(&out[0], (tm_shape){ .rank = 0 }, "the loss must be a scalar");
}

static void square_error_reference(const tm_call *call)
{
    int64_t       count = tm_shape_elements(call->in[0].shape);
    const double *y = call->in[0].data, *t = call->in[1].data;
    double       *loss = tm_call_sums(call, 0);
    for (int64_t i = 0; i < count; i++) *loss += (y[i] - t[i]) * (y[i] - t[i]);
}

static void square_error_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id y = node->in[0], scalars = tm_gradient_of(gradient, node->out[0]);
    if (scalars == TM_NONE || !tm_gradient_wanted(gradient, y)) return;
    tm_tensor_id in[TM_MAX_IN] = { y, node->in[1], scalars }, out[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, TM_OP_square_error_grad, NULL, 0, in, out, 0);
    tm_gradient_add(gradient, y, out[0]);
}

static const tm_shape cases[] = { { 1, { 1 } },      { 2, { 3, 7 } },  { 2, { 1, 65 } }, { 2, { 9, 130 } },
                                  { 2, { 65, 33 } }, { 1, { 1030 } },  { 1, { 15 } },    { 1, { 16 } },
                                  { 1, { 33 } },     { 1, { 16384 } }, { 1, { 16385 } }, { 1, { 100003 } } };

static bool square_error_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, cases[k], 0, 1);
    tm_example_in(example, 1, TM_ROLE_CONSTANT, cases[k], 0.5, 1);
    return true;
}

const tm_op tm_op_square_error = {
    .name = "square_error",
    .formula = "loss = sum of (y - t)^2",
    .group = "loss",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_SCALAR },
    .infer = square_error_infer,
    .reference = square_error_reference,
    .gradient = square_error_gradient,
    .cost = tm_cost_moved,
    .vector = 3,
    .example = square_error_example,
    .rounding = tm_rounding_f64,
    .in_name = { "y (...)", "t (...)" },
    .out_name = { "loss ()" },
};

/* in: y, t (one shape), scalars (8); out: dy */
static const char *square_error_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (!tm_shape_equal(in[0], in[1])) return "the targets must have the shape of y";
    if (!tm_shape_is_vector(in[2], TM_SCALAR_COUNT)) return "there must be eight scalars";
    return tm_shape_fit(&out[0], in[0], "dy must have the shape of y");
}

static void square_error_grad_reference(const tm_call *call)
{
    int64_t       count = tm_shape_elements(call->in[0].shape);
    const double *y = call->in[0].data, *t = call->in[1].data;
    double       *dy = call->out[0].data, scale = ((const double *)call->in[2].data)[TM_SCALAR_LOSS_SCALE];
    for (int64_t i = 0; i < count; i++) dy[i] = 2 * scale * (y[i] - t[i]);
}

static bool square_error_grad_example(int k, tm_example *example)
{
    if (!square_error_example(k, example)) return false;
    tm_example_in(example, 2, TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT), 0.5, 0.1);
    return true;
}

const tm_op tm_op_square_error_grad = {
    .name = "square_error_grad",
    .formula = "dy = 2 s (y - t)",
    .group = "loss",
    .n_in = 3,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = square_error_grad_infer,
    .reference = square_error_grad_reference,
    .cost = tm_cost_moved,
    .vector = 3,
    .inplace = 1U << 0,
    .example = square_error_grad_example,
    .in_name = { "y (...)", "t (...)", "scalars (8)" },
    .out_name = { "dy (...)" },
};
