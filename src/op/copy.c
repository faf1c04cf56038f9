/* SPDX-License-Identifier: Apache-2.0 */
/* op/copy.c - the same bits in another place: `fetch` brings a tensor to the device, `store` takes it away, `copy`
 * takes columns of a matrix to or from a matrix of their own.
 *
 *   y = x
 *
 * Both views have one format. Passes put them in after differentiation, so there is no gradient rule. Those between
 * spaces run on the stream for copies.
 */
#include "graph/tensor.h"
#include "op/attrs.h"
#include "op/describe.h"

static void copy_reference(const tm_call *call)
{
    int64_t rows = tm_view_rows_of(&call->in[0]), columns = tm_shape_elements(call->in[0].shape) / rows;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < columns; c++) tm_view_row(&call->out[0], r)[c] = tm_view_row(&call->in[0], r)[c];
}

static bool copy_example(int k, tm_example *example)
{
    static const tm_shape cases[] = { { 1, { 1 } }, { 2, { 3, 7 } }, { 2, { 65, 17 } }, { 3, { 2, 5, 13 } } };
    tm_copy_attr          attr = { .space = TM_SPACE_HOST };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, cases[k], 0, 1);
    return true;
}

const tm_op tm_op_fetch = {
    .name = "fetch",
    .formula = "y = x, x in another space",
    .group = "copies",
    .stream = TM_ON_COPY,
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_STAGED },
    .infer = tm_infer_same,
    .reference = copy_reference,
    .cost = tm_cost_moved,
    .any_dtype_in = 1U << 0,
    .example = copy_example,
    .rounding = tm_rounding_f64,
    .in_name = { "x (...)" },
    .out_name = { "y (...)" },
    .attributes = "space",
};

const tm_op tm_op_store = {
    .name = "store",
    .formula = "y = x, y in another space",
    .group = "copies",
    .stream = TM_ON_COPY,
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_STAGED },
    .infer = tm_infer_same,
    .reference = copy_reference,
    .cost = tm_cost_moved,
    .any_dtype_in = 1U << 0,
    .example = copy_example,
    .rounding = tm_rounding_f64,
    .in_name = { "x (...)" },
    .out_name = { "y (...)" },
    .attributes = "space",
};

static bool columns_example(int k, tm_example *example)
{
    static const tm_shape cases[] = { { 2, { 1, 1 } }, { 2, { 3, 7 } }, { 2, { 65, 17 } }, { 2, { 9, 40 } } };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, cases[k], 0, 1);
    return true;
}

const tm_op tm_op_copy = {
    .name = "copy",
    .formula = "y = x, columns of a matrix or a matrix of their own",
    .group = "copies",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = tm_infer_same,
    .reference = copy_reference,
    .cost = tm_cost_moved,
    .strided_in = 1U << 0,
    .strided_out = 1U << 0,
    .example = columns_example,
    .rounding = tm_rounding_f64,
    .no_fast_kernel = "on CPUs join and split copy: no plan of theirs has it",
    .in_name = { "x (...)" },
    .out_name = { "y (...)" },
};
