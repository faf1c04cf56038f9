/* SPDX-License-Identifier: Apache-2.0 */
/* op/gather_rows.c - rows to their experts and back.
 *
 *   gather_rows  y_p = w[order p] x[order p / k]                  place p holds pair order p = t k + j of op/dispatch.c
 *   combine      z_t = addend_t + sum_j w_tj y[inverse(t k + j)]  j ascending
 *
 * Without weights w is 1. Each is the other's transpose, so that the gradient of either is gathered, never scattered:
 * no bit depends on which thread comes first. dw_tj = <a row of one, a row of the other's gradient>:
 *   combine_weights_grad  dw_tj = <a_t, b[inverse(t k + j)]>
 *
 * gather_rows  x (N, C), order (N k), inverse (N k), [weights (N, k)] -> y (N k, C)
 * combine      y (N k, C), order (N k), inverse (N k), [weights (N, k)], [addend (N, C)] -> z (N, C)
 */
#include "base/status.h"
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

static const char *slots_check(const tm_shape *in, int64_t pairs, int64_t k)
{
    if (k < 1 || pairs % k != 0) return "there must be top_k places per row";
    if (!tm_shape_is_vector(in[1], pairs) || !tm_shape_is_vector(in[2], pairs))
        return "order and inverse must have one value per place";
    if (tm_shape_present(in[3]) && !tm_shape_is_matrix(in[3], pairs / k, k))
        return "the weights must have the shape (rows, top_k)";
    return NULL;
}

static const char *gather_rows_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    int64_t     k = ((const tm_slots_attr *)attr)->top_k;
    const char *why;
    if (in[0].rank != 2) return "x must have two axes (rows, channels)";
    if ((why = slots_check(in, in[0].n[0] * k, k))) return why;
    return tm_shape_fit(&out[0], tm_shape_2(in[0].n[0] * k, in[0].n[1]), "y must have top_k rows per row of x");
}

static void gather_rows_reference(const tm_call *call)
{
    int64_t        k = ((const tm_slots_attr *)call->attr)->top_k;
    int64_t        places = call->out[0].shape.n[0], channels = call->out[0].shape.n[1];
    const int32_t *order = call->in[1].data;
    const double  *x = call->in[0].data, *w = call->in[3].data;
    double        *y = call->out[0].data;
    for (int64_t p = 0; p < places; p++) {
        TM_ASSERT(order[p] >= 0 && order[p] < places);
        for (int64_t c = 0; c < channels; c++)
            y[p * channels + c] = (w ? w[order[p]] : 1) * x[order[p] / k * channels + c];
    }
}

/* dw of either op: rows of `a` (N, C) with places of `b` (N k, C). */
static void weights_gradient(tm_gradient *gradient, const tm_node *node, tm_tensor_id a, tm_tensor_id b)
{
    if (!tm_gradient_wanted(gradient, node->in[3])) return;
    tm_tensor_id in[TM_MAX_IN] = { a, b, node->in[2] }, out[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, TM_OP_combine_weights_grad, node->attr, node->attr_bytes, in, out, 0);
    tm_gradient_add(gradient, node->in[3], out[0]);
}

static void gather_rows_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id dy = tm_gradient_of(gradient, node->out[0]);
    if (dy == TM_NONE) return;
    weights_gradient(gradient, node, node->in[0], dy);
    if (!tm_gradient_wanted(gradient, node->in[0])) return;
    tm_tensor_id before = tm_gradient_take(gradient, node->in[0]);
    tm_tensor_id in[TM_MAX_IN] = { dy, node->in[1], node->in[2], node->in[3], before }, out[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, TM_OP_combine, node->attr, node->attr_bytes, in, out, 0);
    tm_gradient_add(gradient, node->in[0], out[0]);
}

static const struct {
    int64_t rows, top_k, channels;
    bool    weights, addend;
} cases[] = { { 1, 1, 1, false, false }, { 5, 2, 7, true, false },  { 9, 3, 20, false, true },
              { 13, 1, 33, true, true }, { 66, 6, 64, true, true }, { 100, 8, 130, false, false } };

static void example_begin(int k, tm_example *example, tm_shape rows)
{
    int64_t pairs = cases[k].rows * cases[k].top_k;
    tm_example_begin(example, &(tm_slots_attr){ .top_k = cases[k].top_k }, sizeof(tm_slots_attr));
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, rows, 0, 1);
    tm_example_order(example, 1, pairs, false);
    tm_example_order(example, 2, pairs, true);
    if (cases[k].weights)
        tm_example_in(example, 3, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].top_k), 0.3, 0.2);
}

static bool gather_rows_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    example_begin(k, example, tm_shape_2(cases[k].rows, cases[k].channels));
    return true;
}

const tm_op tm_op_gather_rows = {
    .name = "gather_rows",
    .formula = "y[p] = w[order[p]] x[order[p] / k]",
    .group = "experts",
    .n_in = 4,
    .n_out = 1,
    .optional_in = 1U << 3,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = gather_rows_infer,
    .reference = gather_rows_reference,
    .gradient = gather_rows_gradient,
    .cost = tm_cost_moved,
    .cheap = true,
    .example = gather_rows_example,
    .in_name = { "x (N, C)", "order (N k)", "inverse (N k)", "[weights (N, k)]" },
    .out_name = { "y (N k, C)" },
    .attributes = "top_k",
};

/* ---- combine ---- */

static const char *combine_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    int64_t     k = ((const tm_slots_attr *)attr)->top_k;
    const char *why;
    if (in[0].rank != 2) return "y must have two axes (places, channels)";
    if ((why = slots_check(in, in[0].n[0], k))) return why;
    tm_shape z = tm_shape_2(in[0].n[0] / k, in[0].n[1]);
    if (tm_shape_present(in[4]) && !tm_shape_equal(in[4], z)) return "the addend must have the shape of z";
    return tm_shape_fit(&out[0], z, "z must have one row for top_k places");
}

static void combine_reference(const tm_call *call)
{
    int64_t        k = ((const tm_slots_attr *)call->attr)->top_k;
    int64_t        rows = call->out[0].shape.n[0], channels = call->out[0].shape.n[1];
    const int32_t *inverse = call->in[2].data;
    const double  *y = call->in[0].data, *w = call->in[3].data, *addend = call->in[4].data;
    double        *z = call->out[0].data;
    for (int64_t t = 0; t < rows; t++)
        for (int64_t c = 0; c < channels; c++) {
            double sum = addend ? addend[t * channels + c] : 0;
            for (int64_t j = 0; j < k; j++) {
                TM_ASSERT(inverse[t * k + j] >= 0 && inverse[t * k + j] < rows * k);
                sum += (w ? w[t * k + j] : 1) * y[inverse[t * k + j] * channels + c];
            }
            z[t * channels + c] = sum;
        }
}

/* The weights' gradient comes first: y may die there. */
static void combine_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id dz = tm_gradient_of(gradient, node->out[0]);
    if (dz == TM_NONE) return;
    weights_gradient(gradient, node, dz, node->in[0]);
    if (tm_gradient_wanted(gradient, node->in[0])) {
        tm_tensor_id in[TM_MAX_IN] = { dz, node->in[1], node->in[2], node->in[3] }, out[TM_MAX_OUT] = { TM_NONE };
        tm_gradient_emit(gradient, TM_OP_gather_rows, node->attr, node->attr_bytes, in, out, 0);
        tm_gradient_add(gradient, node->in[0], out[0]);
    }
    if (tm_gradient_wanted(gradient, node->in[4])) tm_gradient_add(gradient, node->in[4], dz);
}

static tm_rounding combine_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(((const tm_slots_attr *)call->attr)->top_k + 1);
}

static bool combine_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    example_begin(k, example, tm_shape_2(cases[k].rows * cases[k].top_k, cases[k].channels));
    if (cases[k].addend)
        tm_example_in(example, 4, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].channels), 0, 1);
    return true;
}

const tm_op tm_op_combine = {
    .name = "combine",
    .formula = "z[t] = addend[t] + sum over j of w[t, j] y[inverse[t k + j]]",
    .group = "experts",
    .n_in = 5,
    .n_out = 1,
    .optional_in = 1U << 3 | 1U << 4,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = combine_infer,
    .reference = combine_reference,
    .gradient = combine_gradient,
    .cost = tm_cost_moved,
    .vector = 2,
    .inplace = 1U << 4,
    .example = combine_example,
    .rounding = combine_rounding,
    .in_name = { "y (N k, C)", "order (N k)", "inverse (N k)", "[weights (N, k)]", "[addend (N, C)]" },
    .out_name = { "z (N, C)" },
    .attributes = "top_k",
};

/* ---- combine_weights_grad: in: a (N, C), b (N k, C), inverse (N k); out: dw (N, k) ---- */

static const char *combine_weights_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    int64_t k = ((const tm_slots_attr *)attr)->top_k;
    if (in[0].rank != 2) return "a must have two axes (rows, channels)";
    if (k < 1 || !tm_shape_is_matrix(in[1], in[0].n[0] * k, in[0].n[1])) return "b must have top_k rows per row of a";
    if (!tm_shape_is_vector(in[2], in[1].n[0])) return "inverse must have one value per row of b";
    return tm_shape_fit(&out[0], tm_shape_2(in[0].n[0], k), "dw must have the shape (rows, top_k)");
}

static void combine_weights_grad_reference(const tm_call *call)
{
    int64_t        pairs = call->in[1].shape.n[0], channels = call->in[1].shape.n[1];
    int64_t        k = ((const tm_slots_attr *)call->attr)->top_k;
    const int32_t *inverse = call->in[2].data;
    for (int64_t i = 0; i < pairs; i++) {
        const double *a = (const double *)call->in[0].data + i / k * channels;
        const double *b = (const double *)call->in[1].data + inverse[i] * channels;
        double        sum = 0;
        for (int64_t c = 0; c < channels; c++) sum += a[c] * b[c];
        ((double *)call->out[0].data)[i] = sum;
    }
}

static tm_cost combine_weights_grad_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 0);
    cost.vector = 2 * (double)tm_shape_elements(call->in[1].shape);
    return cost;
}

static tm_rounding combine_weights_grad_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(call->in[0].shape.n[1]);
}

static bool combine_weights_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    int64_t pairs = cases[k].rows * cases[k].top_k;
    tm_example_begin(example, &(tm_slots_attr){ .top_k = cases[k].top_k }, sizeof(tm_slots_attr));
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].channels), 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, tm_shape_2(pairs, cases[k].channels), 0, 1);
    tm_example_order(example, 2, pairs, true);
    return true;
}

const tm_op tm_op_combine_weights_grad = {
    .name = "combine_weights_grad",
    .formula = "dw[t, j] = sum over c of a[t, c] b[inverse[t k + j], c]",
    .group = "experts",
    .n_in = 3,
    .n_out = 1,
    .out_role = { TM_ROLE_STATISTIC },
    .infer = combine_weights_grad_infer,
    .reference = combine_weights_grad_reference,
    .cost = combine_weights_grad_cost,
    .example = combine_weights_grad_example,
    .rounding = combine_weights_grad_rounding,
    .in_name = { "a (N, C)", "b (N k, C)", "inverse (N k)" },
    .out_name = { "dw (N, k)" },
    .attributes = "top_k",
};
