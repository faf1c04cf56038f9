/* SPDX-License-Identifier: Apache-2.0 */
/* op/sgd.c - stochastic gradient descent with momentum (Polyak 1964; Nesterov's form: Sutskever et al. 2013), as
 * torch.optim.SGD computes it with dampening 0; the weight decay is coupled (part of the gradient):
 *
 *   g  = c g + weight_decay p                  c: coefficient of the clip
 *   b  = momentum b + g                        b starts at 0
 *   p -= lr (nesterov ? g + momentum b : b)    without momentum: p -= lr g, and there is no b
 *
 * p, g, [b] (one shape), scalars (8), clip (2) -> p, [b]: the tensors that came in, changed in place
 */
#include "op/attrs.h"
#include "op/describe.h"

static const char *sgd_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    bool        has_buffer = ((const tm_sgd_attr *)attr)->momentum > 0;
    if (!tm_shape_equal(in[1], in[0])) return "the gradient must have the shape of the parameter";
    if (tm_shape_present(in[2]) != has_buffer) return "there is a momentum buffer if, and only if, momentum is above 0";
    if (has_buffer && !tm_shape_equal(in[2], in[0])) return "the momentum buffer must have the shape of the parameter";
    if (!tm_shape_is_vector(in[3], TM_SCALAR_COUNT)) return "there must be eight scalars";
    if (!tm_shape_is_vector(in[4], 2)) return "the clip must have two values";
    if ((why = tm_shape_fit(&out[0], in[0], "an output must have the shape of the parameter"))) return why;
    if (has_buffer) return tm_shape_fit(&out[1], in[0], "an output must have the shape of the parameter");
    return tm_shape_present(out[1]) ? "there is a momentum buffer if, and only if, momentum is above 0" : NULL;
}

static void sgd_reference(const tm_call *call)
{
    const tm_sgd_attr *attr = call->attr;
    int64_t            count = tm_shape_elements(call->in[0].shape);
    const double      *p = call->in[0].data, *g = call->in[1].data, *b = call->in[2].data;
    const double      *scalars = call->in[3].data, *clip = call->in[4].data;
    double            *new_p = call->out[0].data, *new_b = call->out[1].data;
    for (int64_t i = 0; i < count; i++) {
        double gradient = g[i] * clip[1] + attr->weight_decay * p[i], direction = gradient;
        if (b) {
            new_b[i] = attr->momentum * b[i] + gradient;
            direction = attr->nesterov ? gradient + attr->momentum * new_b[i] : new_b[i];
        }
        new_p[i] = p[i] - scalars[TM_SCALAR_LEARNING_RATE] * direction;
    }
}

static bool sgd_example(int k, tm_example *example)
{
    static const tm_shape    cases[] = { { 1, { 1 } },    { 2, { 3, 7 } }, { 1, { 9 } },     { 2, { 65, 17 } },
                                         { 1, { 1030 } }, { 1, { 16 } },   { 1, { 40001 } }, { 1, { 16384 } } };
    static const tm_sgd_attr attrs[] = { { .momentum = 0.9, .weight_decay = 0.1 },
                                         { .momentum = 0.8, .weight_decay = 0.01, .nesterov = 1 },
                                         { .momentum = 0, .weight_decay = 0 } };
    if (k >= TM_COUNT_OF(cases)) return false;
    const tm_sgd_attr *attr = &attrs[k % 3];
    tm_example_begin(example, attr, sizeof *attr);
    tm_example_in(example, 0, TM_ROLE_PARAMETER, cases[k], 0, 1);
    tm_example_in(example, 1, TM_ROLE_GRADIENT, cases[k], 0, 1);
    if (attr->momentum > 0) tm_example_in(example, 2, TM_ROLE_MOMENT, cases[k], 0, 1);
    tm_example_in(example, 3, TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT), 0.5, 0.05);
    tm_example_in(example, 4, TM_ROLE_SCALAR, tm_shape_1(2), 0.7, 0.1);
    example->out[0] = cases[k];
    if (attr->momentum > 0) example->out[1] = cases[k];
    return true;
}

const tm_op tm_op_sgd = {
    .name = "sgd",
    .formula = "g = c g + wd p; b = momentum b + g; p -= lr (nesterov ? g + momentum b : b)",
    .group = "optimizer",
    .n_in = 5,
    .n_out = 2,
    .optional_in = 1U << 2,
    .optional_out = 1U << 1,
    .out_role = { TM_ROLE_PARAMETER, TM_ROLE_MOMENT },
    .infer = sgd_infer,
    .reference = sgd_reference,
    .cost = tm_cost_moved,
    .vector = 9,
    .inplace = 1U << 0,
    .any_dtype_in = 1U << 0 | 1U << 1 | 1U << 2,
    .example = sgd_example,
    .in_name = { "p (...)", "g (...)", "[b (...)]", "scalars (8)", "clip (2)" },
    .out_name = { "p (...)", "[b (...)]" },
    .attributes = "momentum, weight_decay, nesterov, rounding, first",
};
