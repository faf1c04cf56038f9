/* SPDX-License-Identifier: Apache-2.0 */
/* op/vocabulary.c - the cross entropy of logits whose vocabulary ranks divide (Shoeybi et al. 2019, section 3): a rank
 * has the logits of classes first .. first + V' - 1, and what it tells the others of a row are three numbers.
 *
 *   vocabulary_parts   e_nv = exp(z_nv - m_n);  parts: m_n = max_v z_nv, s_n = sum_v e_nv, t_n = z_n,target, or 0 if
 *                      the target is of another rank or does not count
 *   vocabulary_loss    of the parts of all ranks r: M = max_r m_r, S = sum_r s_r exp(m_r - M)
 *                      loss = sum over rows with a target of ln S + M - sum_r t_r
 *                      dz_nv = s (e_nv exp(m_own - M) / S - [v = target_n]); where another loss is made of those of
 *                      rows, dlosses_n stands in the place of s
 *
 * z (N, V'), targets (N) -> e (N, V'), parts (3, N)
 * e (N, V'), targets (N), all parts (3 R, N) -> [loss ()], [losses (N)]
 *
 * Every rank computes the same loss; e has no gradient by itself: that of the loss is the one of z.
 */
#include "base/status.h"
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>

static bool is_here(const tm_vocabulary_attr *attr, int32_t target, int64_t classes)
{
    return target >= attr->first && target < attr->first + classes;
}

static const char *logits_check(const tm_shape *in, const void *attr_)
{
    const tm_vocabulary_attr *attr = attr_;
    if (attr->first < 0 || attr->ranks < 1 || attr->rank < 0 || attr->rank >= attr->ranks)
        return "the first class and the rank must be those of a group";
    if (in[0].rank != 2) return "the logits must have two axes (rows, vocabulary)";
    return tm_shape_is_vector(in[1], in[0].n[0]) ? NULL : "there must be one target per row of logits";
}

static const char *vocabulary_parts_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why = logits_check(in, attr);
    if (!why) why = tm_shape_fit(&out[0], in[0], "e must have the shape of the logits");
    return why ? why : tm_shape_fit(&out[1], tm_shape_2(3, in[0].n[0]), "the parts must have the shape (3, rows)");
}

static void vocabulary_parts_reference(const tm_call *call)
{
    const tm_vocabulary_attr *attr = call->attr;
    int64_t                   rows = call->in[0].shape.n[0], classes = call->in[0].shape.n[1];
    const int32_t            *targets = call->in[1].data;
    double                   *parts = call->out[1].data;
    for (int64_t n = 0; n < rows; n++) {
        const double *z = (const double *)call->in[0].data + n * classes;
        double       *e = (double *)call->out[0].data + n * classes, most = -HUGE_VAL, sum = 0;
        double        hit = is_here(attr, targets[n], classes) ? z[targets[n] - attr->first] : 0;
        for (int64_t v = 0; v < classes; v++) most = fmax(most, z[v]);
        for (int64_t v = 0; v < classes; v++) sum += e[v] = exp(z[v] - most);
        parts[n] = most;
        parts[rows + n] = sum;
        parts[2 * rows + n] = hit;
    }
}

static void vocabulary_parts_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id dz = tm_gradient_of(gradient, node->out[0]);
    if (dz != TM_NONE) tm_gradient_add(gradient, node->in[0], dz);
}

static tm_rounding vocabulary_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(2 * call->in[0].shape.n[1]);
}

static const struct {
    int64_t rows, classes, first, all, ignored_every, rank, ranks;
} cases[] = { { 1, 2, 0, 4, 0, 0, 2 },           { 3, 9, 9, 18, 0, 1, 2 },     { 9, 7, 14, 28, 4, 2, 4 },
              { 8, 65, 0, 130, 2, 0, 2 },        { 65, 33, 33, 66, 7, 1, 2 },  { 70, 3, 0, 9, 0, 0, 3 },
              { 13, 1025, 1025, 2050, 5, 1, 2 }, { 6, 2063, 0, 2063, 4, 0, 1 } };

static bool begin_example(int k, tm_example *example)
{
    tm_vocabulary_attr attr;
    if (k >= TM_COUNT_OF(cases)) return false;
    attr = (tm_vocabulary_attr){ .first = cases[k].first, .rank = cases[k].rank, .ranks = cases[k].ranks };
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_STATISTIC, tm_shape_2(cases[k].rows, cases[k].classes), 0, 1);
    tm_example_int(example, 1, tm_shape_1(cases[k].rows), cases[k].all);
    example->ignored_every = cases[k].ignored_every;
    return true;
}

const tm_op tm_op_vocabulary_parts = {
    .name = "vocabulary_parts",
    .formula = "e = exp(z - m), parts: m = max z, s = sum of e, t = z[target] if it is here",
    .group = "loss",
    .n_in = 2,
    .n_out = 2,
    .out_role = { TM_ROLE_STATISTIC, TM_ROLE_STATISTIC },
    .infer = vocabulary_parts_infer,
    .reference = vocabulary_parts_reference,
    .gradient = vocabulary_parts_gradient,
    .cost = tm_cost_moved,
    .vector = 4, /* largest, minus it, exp, sum */
    .inplace = 1U << 0,
    .example = begin_example,
    .rounding = vocabulary_rounding,
    .in_name = { "z (N, V)", "targets (N)" },
    .out_name = { "e (N, V)", "parts (3, N)" },
    .attributes = "first, rank, ranks",
};

/* --- the loss ----------------------------------------------------------------------------------------------------- */

static const char *parts_check(const tm_shape *in, const void *attr)
{
    const char *why = logits_check(in, attr);
    if (why) return why;
    return tm_shape_is_matrix(in[2], 3 * ((const tm_vocabulary_attr *)attr)->ranks, in[0].n[0])
               ? NULL
               : "the parts must have the shape (3 ranks, rows)";
}

static const char *vocabulary_loss_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why = parts_check(in, attr);
    if (!why) why = tm_shape_fit_optional(&out[0], (tm_shape){ .rank = 0 }, "the loss must be a scalar");
    return why ? why : tm_shape_fit_optional(&out[1], tm_shape_1(in[0].n[0]), "there must be one loss per row");
}

/* Of row n over all ranks: the largest logit, the sum of exponentials against it, the target's logit. */
static void join_parts(const double *parts, int64_t rows, int64_t ranks, int64_t n, double *most, double *sum,
                       double *hit)
{
    *most = -HUGE_VAL;
    *sum = *hit = 0;
    for (int64_t r = 0; r < ranks; r++) *most = fmax(*most, parts[3 * r * rows + n]);
    for (int64_t r = 0; r < ranks; r++) {
        *sum += parts[(3 * r + 1) * rows + n] * exp(parts[3 * r * rows + n] - *most);
        *hit += parts[(3 * r + 2) * rows + n];
    }
}

static void vocabulary_loss_reference(const tm_call *call)
{
    const tm_vocabulary_attr *attr = call->attr;
    const int32_t            *targets = call->in[1].data;
    int64_t                   rows = call->in[0].shape.n[0];
    double                   *loss = tm_call_sums(call, 0), *losses = tm_call_sums(call, 1), most, sum, hit;
    for (int64_t n = 0; n < rows; n++) {
        if (targets[n] == TM_IGNORED_TARGET) continue;
        join_parts(call->in[2].data, rows, attr->ranks, n, &most, &sum, &hit);
        double row = log(sum) + most - hit;
        if (loss) *loss += row;
        if (losses) losses[n] += row;
    }
}

static void vocabulary_loss_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id e = node->in[0], scalars = tm_gradient_of(gradient, node->out[0]);
    tm_tensor_id rows = scalars == TM_NONE ? tm_gradient_of(gradient, node->out[1]) : TM_NONE;
    if ((scalars == TM_NONE && rows == TM_NONE) || !tm_gradient_wanted(gradient, e)) return;
    tm_tensor_id in[TM_MAX_IN] = { e, node->in[1], node->in[2], scalars, rows }, out[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, TM_OP_vocabulary_loss_grad, node->attr, node->attr_bytes, in, out, 0);
    tm_gradient_add(gradient, e, out[0]);
}

static bool vocabulary_loss_example(int k, tm_example *example)
{
    if (!begin_example(k, example)) return false;
    example->offset[0] = 1.5; /* exponentials and their sums are positive */
    example->scale[0] = 0.1;
    tm_example_in(example, 2, TM_ROLE_STATISTIC, tm_shape_2(3 * cases[k].ranks, cases[k].rows), 1, 0.2);
    if (k % 2)
        example->out[1] = tm_shape_1(cases[k].rows);
    else
        example->out[0] = (tm_shape){ .rank = 0 };
    return true;
}

static tm_cost vocabulary_loss_cost(const tm_call *call) /* e is there for the gradient */
{
    tm_cost cost = tm_call_cost(call, 0);
    cost.bytes -= tm_view_bytes(&call->in[0]);
    cost.vector = 2 * (double)tm_shape_elements(call->in[2].shape);
    return cost;
}

/* Devices compute the losses of rows in float32, and add them in float64. */
static tm_rounding vocabulary_loss_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(((const tm_vocabulary_attr *)call->attr)->ranks);
}

const tm_op tm_op_vocabulary_loss = {
    .name = "vocabulary_loss",
    .formula = "loss = sum over rows with a target of (ln S + M - t), of the parts of all ranks",
    .group = "loss",
    .n_in = 3,
    .n_out = 2,
    .optional_out = 1U << 0 | 1U << 1,
    .out_role = { TM_ROLE_SCALAR, TM_ROLE_STATISTIC },
    .infer = vocabulary_loss_infer,
    .reference = vocabulary_loss_reference,
    .gradient = vocabulary_loss_gradient,
    .cost = vocabulary_loss_cost,
    .example = vocabulary_loss_example,
    .rounding = vocabulary_loss_rounding,
    .in_name = { "e (N, V)", "targets (N)", "parts (3 R, N)" },
    .out_name = { "[loss ()]", "[losses (N)]" },
    .attributes = "first, rank, ranks",
};

/* in: e (N, V'), targets (N), all parts (3 R, N), [scalars (8)], [dlosses (N)]: one of the two; out: dz (N, V') */
static const char *vocabulary_loss_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why = parts_check(in, attr);
    if (why) return why;
    bool rows = tm_shape_present(in[4]);
    if (rows == tm_shape_present(in[3])) return "there must be scalars, or gradients of the rows' losses";
    if (!rows && !tm_shape_is_vector(in[3], TM_SCALAR_COUNT)) return "there must be eight scalars";
    if (rows && !tm_shape_is_vector(in[4], in[0].n[0])) return "there must be one gradient per row";
    return tm_shape_fit(&out[0], in[0], "dz must have the shape of the logits");
}

static void vocabulary_loss_grad_reference(const tm_call *call)
{
    const tm_vocabulary_attr *attr = call->attr;
    const int32_t            *targets = call->in[1].data;
    const double             *parts = call->in[2].data;
    int64_t                   rows = call->in[0].shape.n[0], classes = call->in[0].shape.n[1];
    const double             *scalars = call->in[3].data, *dlosses = call->in[4].data;
    double                    most, sum, hit;
    for (int64_t n = 0; n < rows; n++) {
        double        scale = dlosses ? dlosses[n] : scalars[TM_SCALAR_LOSS_SCALE];
        const double *e = (const double *)call->in[0].data + n * classes;
        double       *dz = (double *)call->out[0].data + n * classes;
        bool          counts = targets[n] != TM_IGNORED_TARGET;
        join_parts(parts, rows, attr->ranks, n, &most, &sum, &hit);
        double factor = counts ? scale * exp(parts[3 * attr->rank * rows + n] - most) / sum : 0;
        for (int64_t v = 0; v < classes; v++)
            dz[v] = e[v] * factor - (counts && attr->first + v == targets[n] ? scale : 0);
    }
}

static tm_cost vocabulary_loss_grad_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 0);
    cost.vector = (double)tm_shape_elements(call->in[0].shape) + 2 * (double)tm_shape_elements(call->in[2].shape);
    return cost;
}

/* The factor of a row is rounded, and the product. */
static tm_rounding vocabulary_loss_grad_rounding(const tm_call *call, int k)
{
    (void)call;
    (void)k;
    return tm_rounding_sum(4);
}

static bool vocabulary_loss_grad_example(int k, tm_example *example)
{
    if (!vocabulary_loss_example(k, example)) return false;
    example->out[0].rank = example->out[1].rank = -1;
    if (k % 3 == 2)
        tm_example_in(example, 4, TM_ROLE_STATISTIC, tm_shape_1(cases[k].rows), 0.5, 0.1);
    else
        tm_example_in(example, 3, TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT), 0.5, 0.1);
    return true;
}

const tm_op tm_op_vocabulary_loss_grad = {
    .name = "vocabulary_loss_grad",
    .formula = "dz = s (e exp(m - M) / S - onehot(target)), of the parts of all ranks; s: dlosses[n], if given",
    .group = "loss",
    .n_in = 5,
    .optional_in = 1U << 3 | 1U << 4,
    .n_out = 1,
    .out_role = { TM_ROLE_STATISTIC },
    .infer = vocabulary_loss_grad_infer,
    .reference = vocabulary_loss_grad_reference,
    .cost = vocabulary_loss_grad_cost,
    .inplace = 1U << 0,
    .example = vocabulary_loss_grad_example,
    .rounding = vocabulary_loss_grad_rounding,
    .in_name = { "e (N, V)", "targets (N)", "parts (3 R, N)", "[scalars (8)]", "[dlosses (N)]" },
    .out_name = { "dz (N, V)" },
    .attributes = "first, rank, ranks",
};
