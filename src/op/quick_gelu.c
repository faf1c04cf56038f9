/* SPDX-License-Identifier: Apache-2.0 */
/* op/quick_gelu.c - Gaussian error linear unit by a sigmoid (Hendrycks & Gimpel 2016, section 2; of CLIP, Radford et
 * al. 2021): y = x s(1.702 x), s(u) = 1 / (1 + e^-u). Of frozen encoders: it has no gradient.
 *
 * x (any shape) -> y (same shape)
 */
#include "op/describe.h"

#include <math.h>

static void quick_gelu_reference(const tm_call *call)
{
    int64_t       count = tm_shape_elements(call->in[0].shape);
    const double *x = call->in[0].data;
    double       *y = call->out[0].data;
    for (int64_t i = 0; i < count; i++) y[i] = x[i] / (1 + exp(-1.702 * x[i]));
}

static const tm_shape cases[] = { { 2, { 1, 1 } }, { 2, { 3, 7 } },  { 2, { 1, 65 } },  { 2, { 9, 130 } },
                                  { 1, { 16 } },   { 2, { 2, 15 } }, { 2, { 63, 17 } }, { 2, { 77, 768 } } };

static bool quick_gelu_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, cases[k], 0, 2);
    return true;
}

const tm_op tm_op_quick_gelu = {
    .name = "quick_gelu",
    .formula = "y = x / (1 + exp(-1.702 x))",
    .group = "elementwise",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = tm_infer_same,
    .reference = quick_gelu_reference,
    .cost = tm_cost_moved,
    .vector = 4,
    .inplace = 1U << 0,
    .example = quick_gelu_example,
    .in_name = { "x (...)" },
    .out_name = { "y (...)" },
};
