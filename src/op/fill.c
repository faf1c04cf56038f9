/* SPDX-License-Identifier: Apache-2.0 */
/* op/fill.c - y = value everywhere: the columns of a gradient that no view contributed to (value 0). */
#include "op/attrs.h"
#include "op/describe.h"

static const char *fill_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)in, (void)attr;
    if (!tm_shape_present(out[0])) return "what is to be filled must be given";
    return out[0].rank == 2 ? NULL : "y must have two axes (rows, columns)";
}

static void fill_reference(const tm_call *call)
{
    const tm_fill_attr *attr = call->attr;
    const tm_view      *y = &call->out[0];
    for (int64_t r = 0; r < y->shape.n[0]; r++)
        for (int64_t c = 0; c < y->shape.n[1]; c++) tm_view_row(y, r)[c] = attr->value;
}

static bool fill_example(int k, tm_example *example)
{
    static const struct {
        int64_t rows, columns;
        double  value;
    } cases[] = { { 1, 1, 0 }, { 3, 7, 0 }, { 5, 33, 1.5 }, { 65, 300, 0 } };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &(tm_fill_attr){ .value = cases[k].value }, sizeof(tm_fill_attr));
    example->out[0] = tm_shape_2(cases[k].rows, cases[k].columns);
    return true;
}

const tm_op tm_op_fill = {
    .name = "fill",
    .formula = "y = value",
    .group = "elementwise",
    .n_in = 0,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = fill_infer,
    .reference = fill_reference,
    .cost = tm_cost_moved,
    .strided_out = 1U << 0,
    .example = fill_example,
    .rounding = tm_rounding_f64,
    .out_name = { "y (N, C)" },
    .attributes = "value",
};
