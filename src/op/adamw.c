/* SPDX-License-Identifier: Apache-2.0 */
/* op/adamw.c - one step of Adam with decoupled weight decay (Loshchilov & Hutter 2019, algorithm 2), PyTorch's order:
 *
 *   g  = c g                                         c: coefficient of the clip
 *   p -= lr weight_decay p
 *   m += (1 - beta1) (g - m)
 *   v  = beta2 v + (1 - beta2) g^2
 *   p -= (lr / (1 - beta1^t)) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 *
 * With c, Kahan's compensation (what rounding took from p; Kahan 1965), the weight is p + c:
 *
 *   w  = p + c, updated like p above;  p = w rounded to its format, c = w - p
 *
 * p, g, m, v (one shape), scalars (8), clip (2), [c (as p)] -> p, m, v, [c]: the tensors that came in, changed in
 * place; [w]: p as it is then, in another format
 */
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>

static const char *adamw_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    const char *why;
    for (int k = 1; k < 4; k++)
        if (!tm_shape_equal(in[k], in[0])) return "gradient and moments must have the shape of the parameter";
    if (!tm_shape_is_vector(in[4], TM_SCALAR_COUNT)) return "there must be eight scalars";
    if (!tm_shape_is_vector(in[5], 2)) return "the clip must have two values";
    if (tm_shape_present(in[6]) && !tm_shape_equal(in[6], in[0]))
        return "the compensation must have the parameter's shape";
    for (int k = 0; k < 3; k++)
        if ((why = tm_shape_fit(&out[k], in[0], "an output must have the shape of the parameter"))) return why;
    if ((why = tm_shape_fit_optional(&out[4], in[0], "the copy must have the shape of the parameter"))) return why;
    if (tm_shape_present(in[6])) return tm_shape_fit(&out[3], in[0], "an output must have the shape of the parameter");
    return tm_shape_present(out[3]) ? "a compensation must come in to go out" : NULL;
}

static void adamw_reference(const tm_call *call)
{
    const tm_adamw_attr *attr = call->attr;
    int64_t              count = tm_shape_elements(call->in[0].shape);
    const double        *p = call->in[0].data, *g = call->in[1].data, *m = call->in[2].data, *v = call->in[3].data;
    const double        *scalars = call->in[4].data, *clip = call->in[5].data;
    double              *new_p = call->out[0].data, *new_m = call->out[1].data, *new_v = call->out[2].data;
    double               rate = scalars[TM_SCALAR_LEARNING_RATE], coefficient = clip[1];
    double               step = rate / scalars[TM_SCALAR_CORRECTION1], root = sqrt(scalars[TM_SCALAR_CORRECTION2]);
    const double        *rest = call->in[6].data; /* in float64 nothing is lost: no rest remains */
    double              *new_rest = call->out[3].data, *copy = call->out[4].data;
    for (int64_t i = 0; i < count; i++) {
        double gradient = g[i] * coefficient, weight = rest ? p[i] + rest[i] : p[i];
        double decayed = weight - rate * attr->weight_decay * weight;
        new_m[i] = m[i] + (1 - attr->beta1) * (gradient - m[i]);
        new_v[i] = attr->beta2 * v[i] + (1 - attr->beta2) * gradient * gradient;
        new_p[i] = decayed - step * new_m[i] / (sqrt(new_v[i]) / root + attr->eps);
        if (new_rest) new_rest[i] = 0;
        if (copy) copy[i] = new_p[i];
    }
}

/* The scalars (rate, corrections) are all near 0.5, second moments positive. */
static bool adamw_example(int k, tm_example *example)
{
    static const tm_shape      cases[] = { { 1, { 1 } },      { 2, { 3, 7 } },  { 1, { 9 } },
                                           { 2, { 65, 17 } }, { 1, { 1030 } },  { 1, { 15 } },
                                           { 1, { 16 } },     { 1, { 16384 } }, { 1, { 40001 } } };
    static const tm_adamw_attr attrs[] = { { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1 },
                                           { .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-3, .weight_decay = 0 } };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &attrs[k % 2], sizeof attrs[0]);
    tm_example_in(example, 0, TM_ROLE_PARAMETER, cases[k], 0, 1);
    tm_example_in(example, 1, TM_ROLE_GRADIENT, cases[k], 0, 1);
    tm_example_in(example, 2, TM_ROLE_MOMENT, cases[k], 0, 1);
    tm_example_in(example, 3, TM_ROLE_MOMENT, cases[k], 1, 0.1);
    tm_example_in(example, 4, TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT), 0.5, 0.05);
    tm_example_in(example, 5, TM_ROLE_SCALAR, tm_shape_1(2), 0.7, 0.1);
    for (int out = 0; out < 3; out++) example->out[out] = cases[k];
    if (k % 3 == 1) example->out[4] = cases[k];
    return true;
}

const tm_op tm_op_adamw = {
    .name = "adamw",
    .formula = "p -= lr wd p; m += (1 - beta1) (c g - m); v = beta2 v + (1 - beta2) (c g)^2; "
               "p -= lr / (1 - beta1^t) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)",
    .group = "optimizer",
    .n_in = 7,
    .n_out = 5,
    .optional_in = 1U << 6,
    .optional_out = 1U << 3 | 1U << 4,
    .copy = 4,
    .out_role = { TM_ROLE_PARAMETER, TM_ROLE_MOMENT, TM_ROLE_MOMENT, TM_ROLE_MOMENT, TM_ROLE_COPY },
    .infer = adamw_infer,
    .reference = adamw_reference,
    .cost = tm_cost_moved,
    .vector = 14,
    .inplace = 1U << 0,
    .any_dtype_in = 1U << 0 | 1U << 1 | 1U << 2 | 1U << 3 | 1U << 6,
    .example = adamw_example,
    .in_name = { "p (...)", "g (...)", "m (...)", "v (...)", "scalars (8)", "clip (2)", "[c (...)]" },
    .out_name = { "p (...)", "m (...)", "v (...)", "[c (...)]", "[w (...)]" },
    .attributes = "beta1, beta2, eps, weight_decay, rounding, first",
};
