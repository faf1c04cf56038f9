/* SPDX-License-Identifier: Apache-2.0 */
/* op/add_bias.c - y = a + b + bias: what stands behind the sum of a product over ranks, whose bias is added once.
 *
 *   da = db = dy,  dbias = column sums of dy
 *
 * a (N, C), b (N, C), bias (C) -> y (N, C)
 */
#include "graph/gradient.h"
#include "op/describe.h"

static const char *add_bias_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (in[0].rank != 2 || !tm_shape_equal(in[0], in[1])) return "the summands must be matrices of the same shape";
    if (!tm_shape_is_vector(in[2], in[0].n[1])) return "the bias must have one value per column";
    return tm_shape_fit(&out[0], in[0], "y must have the shape of the summands");
}

static void add_bias_reference(const tm_call *call)
{
    int64_t       rows = call->in[0].shape.n[0], columns = call->in[0].shape.n[1];
    const double *a = call->in[0].data, *b = call->in[1].data, *bias = call->in[2].data;
    double       *y = call->out[0].data;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) y[r * columns + c] = a[r * columns + c] + b[r * columns + c] + bias[c];
}

static void add_bias_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id dy = tm_gradient_of(gradient, node->out[0]);
    unsigned     add = 0;
    if (dy == TM_NONE) return;
    tm_tensor_id dbias = tm_gradient_parameter(gradient, node->in[2], 0, &add);
    if (dbias != TM_NONE)
        tm_gradient_emit(gradient, TM_OP_bias_grad, NULL, 0, (tm_tensor_id[TM_MAX_IN]){ dy },
                         (tm_tensor_id[TM_MAX_OUT]){ dbias }, add);
    for (int k = 0; k < 2; k++)
        if (tm_gradient_wanted(gradient, node->in[k])) tm_gradient_add(gradient, node->in[k], dy);
}

static tm_rounding add_bias_rounding(const tm_call *call, int k)
{
    (void)call;
    (void)k;
    return tm_rounding_sum(3);
}

static bool add_bias_example(int k, tm_example *example)
{
    static const int64_t cases[][2] = {
        { 1, 1 }, { 3, 7 }, { 65, 8 }, { 1, 1030 }, { 2, 15 }, { 63, 17 }, { 200, 768 }
    };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    for (int i = 0; i < 2; i++)
        tm_example_in(example, i, TM_ROLE_ACTIVATION, tm_shape_2(cases[k][0], cases[k][1]), 0, 1);
    tm_example_in(example, 2, TM_ROLE_PARAMETER, tm_shape_1(cases[k][1]), 0, 1);
    return true;
}

const tm_op tm_op_add_bias = {
    .name = "add_bias",
    .formula = "y = a + b + bias",
    .group = "elementwise",
    .n_in = 3,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = add_bias_infer,
    .reference = add_bias_reference,
    .gradient = add_bias_gradient,
    .cost = tm_cost_moved,
    .vector = 2,
    .inplace = 1U << 0 | 1U << 1,
    .cheap = true,
    .example = add_bias_example,
    .rounding = add_bias_rounding,
    .in_name = { "a (N, C)", "b (N, C)", "bias (C)" },
    .out_name = { "y (N, C)" },
};
