/* SPDX-License-Identifier: Apache-2.0 */
/* op/cast.c - the same values in another number format, rounded to nearest even. The formats are those of the views.
 * Casts are put in after differentiation, so there is no gradient rule. */
#include "op/describe.h"

static void cast_reference(const tm_call *call)
{
    int64_t       count = tm_shape_elements(call->in[0].shape);
    const double *x = call->in[0].data;
    double       *y = call->out[0].data;
    for (int64_t i = 0; i < count; i++) y[i] = x[i];
}

static bool cast_example(int k, tm_example *example)
{
    static const tm_shape cases[] = { { 1, { 1 } },      { 2, { 3, 7 } },    { 2, { 9, 8 } },  { 3, { 2, 5, 13 } },
                                      { 1, { 1030 } },   { 1, { 16 } },      { 2, { 2, 15 } }, { 2, { 63, 17 } },
                                      { 2, { 1, 768 } }, { 2, { 200, 768 } } };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_PARAMETER, cases[k], 0, 1);
    return true;
}

const tm_op tm_op_cast = {
    .name = "cast",
    .formula = "y = x, in another number format",
    .group = "elementwise",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_WEIGHT_COPY },
    .infer = tm_infer_same,
    .reference = cast_reference,
    .cost = tm_cost_moved,
    .vector = 1,
    .any_dtype_in = 1U << 0,
    .cheap = true,
    .example = cast_example,
    .rounding = tm_rounding_f64,
    .in_name = { "x (...)" },
    .out_name = { "y (...)" },
};
