/* SPDX-License-Identifier: Apache-2.0 */
/* op/clip.c - from the sum of squares of all gradients to their norm and the factor that limits it
 * (Pascanu, Mikolov & Bengio 2013, algorithm 1; the 1e-6 is PyTorch's).
 *
 *   norm = sqrt(sum),  coefficient = max_norm > 0 ? min(1, max_norm / (norm + 1e-6)) : 1
 *
 * A norm that is not a number gives a coefficient that is none: it must not look like an unclipped step.
 * sum (), scalars (8) -> result (2): norm, coefficient
 */
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>

static const char *clip_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (in[0].rank != 0) return "the sum must be a scalar";
    if (!tm_shape_is_vector(in[1], TM_SCALAR_COUNT)) return "there must be eight scalars";
    return tm_shape_fit(&out[0], tm_shape_1(2), "the result must have two values");
}

static void clip_reference(const tm_call *call)
{
    const double *sum = call->in[0].data, *scalars = call->in[1].data;
    double       *result = call->out[0].data, max_norm = scalars[TM_SCALAR_MAX_NORM], norm = sqrt(*sum);
    double        coefficient = max_norm / (norm + 1e-6);
    if (max_norm <= 0 || coefficient > 1) coefficient = 1;
    result[0] = norm;
    result[1] = coefficient;
}

/* Clipped, not clipped, switched off. */
static bool clip_example(int k, tm_example *example)
{
    static const double sums[] = { 9, 0.01, 9 }, scalars[] = { 0.5, 0.5, -0.5 };
    if (k >= TM_COUNT_OF(sums)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_SCALAR, (tm_shape){ .rank = 0 }, sums[k], sums[k] / 50);
    tm_example_in(example, 1, TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT), scalars[k], 0.01);
    return true;
}

const tm_op tm_op_clip = {
    .name = "clip",
    .formula = "norm = sqrt(sum), coefficient = min(1, max_norm / (norm + 1e-6)), or 1 without a limit",
    .group = "clip",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_SCALAR },
    .infer = clip_infer,
    .reference = clip_reference,
    .cost = tm_cost_moved,
    .vector = 5,
    .example = clip_example,
    .rounding = tm_rounding_f64,
    .in_name = { "sum ()", "scalars (8)" },
    .out_name = { "result (2)" },
};
