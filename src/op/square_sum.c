/* SPDX-License-Identifier: Apache-2.0 */
/* op/square_sum.c - sum of squares of a tensor of any shape: one term of the norm of all gradients. */
#include "op/describe.h"

static const char *square_sum_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    (void)in;
    return tm_shape_fit(&out[0], (tm_shape){ .rank = 0 }, "the sum must be a scalar");
}

static void square_sum_reference(const tm_call *call)
{
    int64_t       count = tm_shape_elements(call->in[0].shape);
    const double *x = call->in[0].data;
    double       *sum = tm_call_sums(call, 0);
    for (int64_t i = 0; i < count; i++) *sum += x[i] * x[i];
}

static bool square_sum_example(int k, tm_example *example)
{
    static const tm_shape cases[] = { { 1, { 1 } },       { 2, { 3, 7 } },  { 2, { 9, 8 } },  { 1, { 1030 } },
                                      { 2, { 65, 129 } }, { 1, { 15 } },    { 1, { 16 } },    { 1, { 33 } },
                                      { 1, { 16384 } },   { 1, { 16385 } }, { 1, { 100003 } } };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_GRADIENT, cases[k], 0, 1);
    return true;
}

const tm_op tm_op_square_sum = {
    .name = "square_sum",
    .formula = "sum = sum of x^2",
    .group = "clip",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_SCALAR },
    .infer = square_sum_infer,
    .reference = square_sum_reference,
    .cost = tm_cost_moved,
    .vector = 2,
    .any_dtype_in = 1U << 0,
    .example = square_sum_example,
    .rounding = tm_rounding_f64,
    .in_name = { "x (...)" },
    .out_name = { "sum ()" },
};
