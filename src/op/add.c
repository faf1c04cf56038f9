/* SPDX-License-Identifier: Apache-2.0 */
/* op/add.c - y = a + b, all of one shape; da = db = dy. */
#include "graph/gradient.h"
#include "op/describe.h"

static const char *add_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (!tm_shape_equal(in[0], in[1])) return "the summands must have the same shape";
    return tm_shape_fit(&out[0], in[0], "y must have the shape of the summands");
}

static void add_reference(const tm_call *call)
{
    int64_t rows = tm_view_rows_of(&call->in[0]), columns = tm_shape_elements(call->in[0].shape) / rows;
    for (int64_t r = 0; r < rows; r++) {
        const double *a = tm_view_row(&call->in[0], r), *b = tm_view_row(&call->in[1], r);
        double       *y = tm_view_row(&call->out[0], r);
        for (int64_t i = 0; i < columns; i++) y[i] = a[i] + b[i];
    }
}

static void add_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id dy = tm_gradient_of(gradient, node->out[0]);
    if (dy == TM_NONE) return;
    for (int k = 0; k < 2; k++)
        if (tm_gradient_wanted(gradient, node->in[k])) tm_gradient_add(gradient, node->in[k], dy);
}

static bool add_example(int k, tm_example *example)
{
    static const tm_shape cases[] = { { 1, { 1 } },      { 2, { 3, 7 } },    { 3, { 2, 3, 9 } }, { 2, { 65, 8 } },
                                      { 1, { 1030 } },   { 1, { 16 } },      { 2, { 2, 15 } },   { 2, { 63, 17 } },
                                      { 2, { 1, 768 } }, { 2, { 200, 768 } } };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, cases[k], 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, cases[k], 0, 1);
    return true;
}

const tm_op tm_op_add = {
    .name = "add",
    .formula = "y = a + b",
    .group = "elementwise",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = add_infer,
    .reference = add_reference,
    .gradient = add_gradient,
    .cost = tm_cost_moved,
    .vector = 1,
    .inplace = 1U << 0 | 1U << 1,
    .cheap = true,
    .strided_in = 1U << 0 | 1U << 1,
    .strided_out = 1U << 0,
    .example = add_example,
    .rounding = tm_rounding_f64,
    .in_name = { "a (...)", "b (...)" },
    .out_name = { "y (...)" },
};
