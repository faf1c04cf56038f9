/* SPDX-License-Identifier: Apache-2.0 */
/* op/balance_loss.c - the loss that keeps experts evenly loaded (Fedus et al. 2021, eq. 4; per sequence: DeepSeek-V2).
 *
 *   f_e = E / (T k) times how many of a sequence's (row, slot) pairs go to expert e,  P_e = mean over its rows of s_e
 *   loss = alpha sum over sequences of T sum_e f_e P_e
 *   ds_te = z alpha f_e                                            (through P alone; z: the scale of the loss)
 *
 * T rows are a sequence; T = N: one balance for the batch. The sum counts a sequence T times, as the cross entropy
 * counts its T rows: scaled by 1 / targets, both are means.
 * scores (N, E), ids (N, k) int32 -> loss ()
 */
#include "base/status.h"
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <string.h>

/* The rows of a sequence: all of them when attr->seq is 0. */
static int64_t rows_of_sequence(const tm_balance_attr *attr, int64_t rows)
{
    return attr->seq > 0 ? attr->seq : rows;
}

static const char *balance_check(tm_shape ids, const tm_balance_attr *attr, int64_t rows)
{
    if (attr->top_k < 1 || !tm_shape_is_matrix(ids, rows, attr->top_k))
        return "the ids must have the shape (rows, top_k)";
    if (attr->seq < 0 || rows % rows_of_sequence(attr, rows) != 0)
        return "the rows must be a multiple of the sequence length";
    return NULL;
}

static const char *balance_loss_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    if (in[0].rank != 2) return "the scores must have two axes (rows, experts)";
    if (in[0].n[1] > TM_MAX_EXPERTS) return "there are at most 1024 experts";
    if ((why = balance_check(in[1], attr, in[0].n[0]))) return why;
    return tm_shape_fit(&out[0], (tm_shape){ .rank = 0 }, "the loss must be a scalar");
}

/* Pairs of each expert among `rows` rows. */
static void count_pairs(const int32_t *ids, int64_t pairs, int64_t experts, double *count)
{
    for (int64_t e = 0; e < experts; e++) count[e] = 0;
    for (int64_t i = 0; i < pairs; i++) {
        TM_ASSERT(ids[i] >= 0 && ids[i] < experts);
        count[ids[i]]++;
    }
}

static void balance_loss_reference(const tm_call *call)
{
    const tm_balance_attr *attr = call->attr;
    int64_t                rows = call->in[0].shape.n[0], experts = call->in[0].shape.n[1], k = attr->top_k;
    int64_t                length = rows_of_sequence(attr, rows);
    const double          *s = call->in[0].data;
    double                *loss = tm_call_sums(call, 0), count[TM_MAX_EXPERTS];
    for (int64_t from = 0; from < rows; from += length) {
        count_pairs((const int32_t *)call->in[1].data + from * k, length * k, experts, count);
        for (int64_t t = from; t < from + length; t++)
            for (int64_t e = 0; e < experts; e++)
                *loss += attr->alpha * count[e] * (double)experts / (double)(length * k) * s[t * experts + e];
    }
}

static void balance_loss_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id scalars = tm_gradient_of(gradient, node->out[0]);
    if (scalars == TM_NONE || !tm_gradient_wanted(gradient, node->in[0])) return;
    tm_tensor_id in[TM_MAX_IN] = { node->in[0], node->in[1], scalars }, out[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, TM_OP_balance_loss_grad, node->attr, node->attr_bytes, in, out, 0);
    tm_gradient_add(gradient, node->in[0], out[0]);
}

static tm_cost balance_cost(const tm_call *call)
{
    return tm_call_cost(call, 0);
}

static const struct {
    int64_t rows, experts, top_k, seq;
} cases[] = { { 1, 2, 1, 1 }, { 12, 8, 3, 12 }, { 12, 7, 2, 4 }, { 30, 33, 6, 0 }, { 130, 16, 4, 65 } };

static bool balance_loss_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_balance_attr attr = { .seq = cases[k].seq, .top_k = cases[k].top_k, .alpha = 0.25 };
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].experts), 0.2, 0.1);
    tm_example_int(example, 1, tm_shape_2(cases[k].rows, cases[k].top_k), cases[k].experts);
    return true;
}

const tm_op tm_op_balance_loss = {
    .name = "balance_loss",
    .formula = "loss = alpha sum over sequences of T sum_e f_e P_e, f_e = E / (T k) pairs of e, P_e = mean of scores",
    .group = "experts",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_SCALAR },
    .infer = balance_loss_infer,
    .reference = balance_loss_reference,
    .gradient = balance_loss_gradient,
    .cost = balance_cost,
    .vector = 2,
    .example = balance_loss_example,
    .rounding = tm_rounding_f64,
    .in_name = { "scores (N, E)", "ids (N, k)" },
    .out_name = { "loss ()" },
    .attributes = "seq, top_k, alpha",
};

/* in: scores (N, E): its shape alone is of use, ids (N, k), scalars (8); out: dscores (N, E) */
static const char *balance_loss_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    if (in[0].rank != 2) return "the scores must have two axes (rows, experts)";
    if (in[0].n[1] > TM_MAX_EXPERTS) return "there are at most 1024 experts";
    if ((why = balance_check(in[1], attr, in[0].n[0]))) return why;
    if (!tm_shape_is_vector(in[2], TM_SCALAR_COUNT)) return "there must be eight scalars";
    return tm_shape_fit(&out[0], in[0], "dscores must have the shape of the scores");
}

static void balance_loss_grad_reference(const tm_call *call)
{
    const tm_balance_attr *attr = call->attr;
    int64_t                rows = call->in[0].shape.n[0], experts = call->in[0].shape.n[1], k = attr->top_k;
    int64_t                length = rows_of_sequence(attr, rows);
    double                 scale = ((const double *)call->in[2].data)[TM_SCALAR_LOSS_SCALE], count[TM_MAX_EXPERTS];
    double                *ds = call->out[0].data;
    for (int64_t from = 0; from < rows; from += length) {
        count_pairs((const int32_t *)call->in[1].data + from * k, length * k, experts, count);
        for (int64_t t = from; t < from + length; t++)
            for (int64_t e = 0; e < experts; e++)
                ds[t * experts + e] = scale * attr->alpha * count[e] * (double)experts / (double)(length * k);
    }
}

static bool balance_loss_grad_example(int k, tm_example *example)
{
    if (!balance_loss_example(k, example)) return false;
    tm_example_in(example, 2, TM_ROLE_SCALAR, tm_shape_1(TM_SCALAR_COUNT), 0.5, 0.1);
    return true;
}

const tm_op tm_op_balance_loss_grad = {
    .name = "balance_loss_grad",
    .formula = "dscores[t, e] = z alpha f_e",
    .group = "experts",
    .n_in = 3,
    .n_out = 1,
    .out_role = { TM_ROLE_STATISTIC },
    .infer = balance_loss_grad_infer,
    .reference = balance_loss_grad_reference,
    .cost = balance_cost,
    .vector = 1,
    .example = balance_loss_grad_example,
    .in_name = { "scores (N, E)", "ids (N, k)", "scalars (8)" },
    .out_name = { "dscores (N, E)" },
    .attributes = "seq, top_k, alpha",
};
