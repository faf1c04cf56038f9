/* SPDX-License-Identifier: Apache-2.0 */
/* op/put_rows.c - rows into a table that stays: keys and values of tokens that are looked at again later.
 *
 *   y = table, then y[row_n] = x_n                     y may be the table itself: then nothing else is touched
 *
 * table (R, C), x (N, C), row (N) int32, different from each other, below R -> y (R, C)
 */
#include "base/status.h"
#include "op/describe.h"

static const char *put_rows_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (in[0].rank != 2 || in[1].rank != 2 || in[0].n[1] != in[1].n[1])
        return "table and x must have two axes and the same channels";
    if (!tm_shape_is_vector(in[2], in[1].n[0])) return "row must have one value per row of x";
    return tm_shape_fit(&out[0], in[0], "y must have the shape of the table");
}

static void put_rows_reference(const tm_call *call)
{
    int64_t        rows = call->in[0].shape.n[0], channels = call->in[0].shape.n[1];
    const int32_t *row = call->in[2].data;
    const double  *table = call->in[0].data;
    double        *y = call->out[0].data;
    for (int64_t i = 0; y != table && i < rows * channels; i++) y[i] = table[i];
    for (int64_t n = 0; n < call->in[1].shape.n[0]; n++) {
        TM_ASSERT(row[n] >= 0 && row[n] < rows);
        for (int64_t c = 0; c < channels; c++) y[row[n] * channels + c] = tm_view_row(&call->in[1], n)[c];
    }
}

/* As it is used: into the table itself. */
static tm_cost put_rows_cost(const tm_call *call)
{
    return (tm_cost){ .bytes = 2 * tm_view_bytes(&call->in[1]) + tm_view_bytes(&call->in[2]) };
}

static bool put_rows_example(int k, tm_example *example)
{
    static const struct {
        int64_t rows, channels, n;
    } cases[] = { { 1, 1, 1 }, { 7, 5, 3 }, { 64, 33, 64 }, { 65, 130, 9 } };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].channels), 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].n, cases[k].channels), 0, 1);
    tm_example_order(example, 2, cases[k].n, false);
    return true;
}

const tm_op tm_op_put_rows = {
    .name = "put_rows",
    .formula = "y = table, y[row[n]] = x[n]",
    .group = "attention",
    .n_in = 3,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = put_rows_infer,
    .reference = put_rows_reference,
    .cost = put_rows_cost,
    .inplace = 1U << 0,
    .state = true,
    .strided_in = 1U << 1,
    .example = put_rows_example,
    .in_name = { "table (R, C)", "x (N, C)", "row (N)" },
    .out_name = { "y (R, C)" },
};
