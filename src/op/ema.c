/* SPDX-License-Identifier: Apache-2.0 */
/* op/ema.c - an exponential moving average of weights (Polyak & Juditsky 1992, with a constant decay), behind an
 * update:
 *
 *   e += (1 - decay) (p - e)          decay 0: e = p, exactly
 *
 * This form, not decay e + (1 - decay) p, has no bias where the rounded factors do not sum to 1.
 *
 * p, e (one shape) -> e: the tensor that came in, changed in place
 */
#include "op/attrs.h"
#include "op/describe.h"

static const char *ema_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const double decay = ((const tm_ema_attr *)attr)->decay;
    if (!(decay >= 0 && decay < 1)) return "the decay must be at least 0 and below 1";
    if (!tm_shape_equal(in[1], in[0])) return "the average must have the shape of the parameter";
    return tm_shape_fit(&out[0], in[0], "the output must have the shape of the parameter");
}

static void ema_reference(const tm_call *call)
{
    const double  decay = ((const tm_ema_attr *)call->attr)->decay;
    int64_t       count = tm_shape_elements(call->in[0].shape);
    const double *p = call->in[0].data, *e = call->in[1].data;
    double       *out = call->out[0].data;
    for (int64_t i = 0; i < count; i++) out[i] = decay > 0 ? e[i] + (1 - decay) * (p[i] - e[i]) : p[i];
}

static bool ema_example(int k, tm_example *example)
{
    static const tm_shape    cases[] = { { 1, { 1 } },      { 2, { 3, 7 } }, { 1, { 9 } },
                                         { 2, { 65, 17 } }, { 1, { 16 } },   { 1, { 40001 } } };
    static const tm_ema_attr attrs[] = { { .decay = 0.9 }, { .decay = 0.9999 }, { .decay = 0 } };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &attrs[k % 3], sizeof attrs[0]);
    tm_example_in(example, 0, TM_ROLE_PARAMETER, cases[k], 0, 1);
    tm_example_in(example, 1, TM_ROLE_STATISTIC, cases[k], 0, 1);
    example->out[0] = cases[k];
    return true;
}

const tm_op tm_op_ema = {
    .name = "ema",
    .formula = "e += (1 - decay) (p - e); decay 0: e = p",
    .group = "optimizer",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_STATISTIC },
    .infer = ema_infer,
    .reference = ema_reference,
    .cost = tm_cost_moved,
    .vector = 3,
    .inplace = 1U << 1,
    .any_dtype_in = 1U << 0 | 1U << 1,
    .example = ema_example,
    .in_name = { "p (...)", "e (...)" },
    .out_name = { "e (...)" },
    .attributes = "decay",
};
