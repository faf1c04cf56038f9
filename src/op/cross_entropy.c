/* SPDX-License-Identifier: Apache-2.0 */
/* op/cross_entropy.c - cross entropy of the softmax of logits, for output layers whose products are ops of their own;
 * else op/linear_cross_entropy.c has both in one.
 *
 *   p_nv = exp(z_nv) / sum_u exp(z_nu)
 *   loss = sum over rows with a target of -ln p_n,target      (a sum: the cotangent's scale makes it a mean)
 *   dz_nv = s (p_nv - [v = target_n]), 0 for rows without a target
 *
 * z (N, V), targets (N) -> loss ()
 */
#include "base/status.h"
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>

static const char *logits_check(const tm_shape *in)
{
    if (in[0].rank != 2) return "the logits must have two axes (rows, vocabulary)";
    return tm_shape_is_vector(in[1], in[0].n[0]) ? NULL : "there must be one target per row of logits";
}

static const char *cross_entropy_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why = logits_check(in);
    (void)attr;
    return why ? why : tm_shape_fit(&out[0], (tm_shape){ .rank = 0 }, "the loss must be a scalar");
}

/* ln of the sum of exp(z). */
static double sum_of(const double *z, int64_t n)
{
    double max = -HUGE_VAL, sum = 0;
    for (int64_t v = 0; v < n; v++) max = fmax(max, z[v]);
    for (int64_t v = 0; v < n; v++) sum += exp(z[v] - max);
    return max + log(sum);
}

static void cross_entropy_reference(const tm_call *call)
{
    int64_t        rows = call->in[0].shape.n[0], vocabulary = call->in[0].shape.n[1];
    const int32_t *targets = call->in[1].data;
    double        *loss = tm_call_sums(call, 0);
    for (int64_t n = 0; n < rows; n++) {
        const double *z = (const double *)call->in[0].data + n * vocabulary;
        if (targets[n] == TM_IGNORED_TARGET) continue;
        TM_ASSERT(targets[n] >= 0 && targets[n] < vocabulary);
        *loss += sum_of(z, vocabulary) - z[targets[n]];
    }
}

static void cross_entropy_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id z = node->in[0], scalars = tm_gradient_of(gradient, node->out[0]);
    if (scalars == TM_NONE || !tm_gradient_wanted(gradient, z)) return;
    tm_tensor_id in[TM_MAX_IN] = { z, node->in[1], scalars }, out[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, TM_OP_cross_entropy_grad, NULL, 0, in, out, 0);
    tm_gradient_add(gradient, z, out[0]);
}

/* A row's exponentials are added in float32, rows in double. */
static tm_rounding cross_entropy_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(2 * call->in[0].shape.n[1]);
}

static const struct {
    int64_t rows, vocabulary, ignored_every;
} cases[] = { { 1, 2, 0 }, { 3, 9, 0 },  { 9, 7, 4 },     { 8, 65, 2 },   { 65, 33, 7 }, { 7, 130, 3 },
              { 2, 5, 1 }, { 70, 3, 0 }, { 13, 1025, 5 }, { 6, 2063, 4 }, { 40, 517, 9 } };

static bool cross_entropy_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_STATISTIC, tm_shape_2(cases[k].rows, cases[k].vocabulary), 0, 1);
    tm_example_int(example, 1, tm_shape_1(cases[k].rows), cases[k].vocabulary);
    example->ignored_every = cases[k].ignored_every;
    return true;
}

const tm_op tm_op_cross_entropy = {
    .name = "cross_entropy",
    .formula = "loss = sum over rows with a target of (ln sum exp(z) - z[target])",
    .group = "loss",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_SCALAR },
    .infer = cross_entropy_infer,
    .reference = cross_entropy_reference,
    .gradient = cross_entropy_gradient,
    .cost = tm_cost_moved,
    .vector = 4, /* largest, minus it, exp, sum */
    .example = cross_entropy_example,
    .rounding = cross_entropy_rounding,
    .in_name = { "z (N, V)", "targets (N)" },
    .out_name = { "loss ()" },
};

/* in: z (N, V), targets (N), scalars (8); out: dz (N, V) */
static const char *cross_entropy_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why = logits_check(in);
    (void)attr;
    if (why) return why;
    if (!tm_shape_is_vector(in[2], TM_SCALAR_COUNT)) return "there must be eight scalars";
    return tm_shape_fit(&out[0], in[0], "dz must have the shape of the logits");
}

static void cross_entropy_grad_reference(const tm_call *call)
{
    int64_t        rows = call->in[0].shape.n[0], vocabulary = call->in[0].shape.n[1];
    double         scale = ((const double *)call->in[2].data)[TM_SCALAR_LOSS_SCALE];
    const int32_t *targets = call->in[1].data;
    for (int64_t n = 0; n < rows; n++) {
        const double *z = (const double *)call->in[0].data + n * vocabulary;
        double       *dz = (double *)call->out[0].data + n * vocabulary, all = sum_of(z, vocabulary);
        bool          counts = targets[n] != TM_IGNORED_TARGET;
        TM_ASSERT(!counts || (targets[n] >= 0 && targets[n] < vocabulary));
        for (int64_t v = 0; v < vocabulary; v++)
            dz[v] = counts ? scale * (exp(z[v] - all) - (v == targets[n] ? 1 : 0)) : 0;
    }
}

static bool cross_entropy_grad_example(int k, tm_example *example)
{
    if (!cross_entropy_example(k, example)) return false;
    tm_example_in(example, 2, TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT), 0.5, 0.1);
    return true;
}

const tm_op tm_op_cross_entropy_grad = {
    .name = "cross_entropy_grad",
    .formula = "dz = s (softmax(z) - onehot(target))",
    .group = "loss",
    .n_in = 3,
    .n_out = 1,
    .out_role = { TM_ROLE_STATISTIC },
    .infer = cross_entropy_grad_infer,
    .reference = cross_entropy_grad_reference,
    .cost = tm_cost_moved,
    .vector = 6, /* and divided by the sum, scaled */
    .inplace = 1U << 0,
    .example = cross_entropy_grad_example,
    .rounding = cross_entropy_rounding,
    .in_name = { "z (N, V)", "targets (N)", "scalars (8)" },
    .out_name = { "dz (N, V)" },
};
