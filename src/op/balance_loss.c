/* SPDX-License-Identifier: Apache-2.0 */
/* op/balance_loss.c - the loss that keeps experts evenly loaded (Fedus et al. 2021, eq. 4; per sequence: DeepSeek-V2).
 *
 *   f_e = E / (T k) times how many of a sequence's (row, slot) pairs go to expert e,  P_e = mean over its rows of s_e
 *   loss = alpha sum over sequences of T sum_e f_e P_e
 *   ds_te = z alpha f_e                                            (through P alone; z: the scale of the loss)
 *
 * T rows are a sequence; T = N: one balance for the batch. The sum counts a sequence T times, as the cross entropy
 * counts its T rows: scaled by 1 / targets, both are means. Ranks may have sequences in parts: ids (M, k) are then
 * those of all rows, M a multiple of N; f_e is that of whole sequences, P_e is summed over the rows that are here, so
 * that the losses of the ranks add up. Rows of a sequence then lie in chunks (tm_balance_rows_of). scores (N, E), ids
 * (N or M, k) int32 -> loss ()
 */
#include "base/status.h"
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <string.h>

static const char *balance_check(tm_shape ids, const tm_balance_attr *attr, int64_t rows)
{
    if (attr->top_k < 1 || ids.rank != 2 || ids.n[1] != attr->top_k || ids.n[0] < rows || ids.n[0] % rows != 0)
        return "the ids must have the shape (rows, top_k)";
    if (attr->seq < 0 || (attr->seq > 0 && ids.n[0] % attr->seq != 0))
        return "the rows must be a multiple of the sequence length";
    if (attr->chunk == 0) return attr->seq > 0 && ids.n[0] != rows ? "all rows of a sequence must be here" : NULL;
    if (attr->chunk < 0 || attr->seq == 0) return "chunks are those of sequences";
    return rows % (ids.n[0] / attr->seq * attr->chunk) != 0 ? "the rows must be as many chunks of each sequence" : NULL;
}

static const char *balance_loss_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    if (in[0].rank != 2) return "the scores must have two axes (rows, experts)";
    if (in[0].n[1] > TM_MAX_EXPERTS) return "there are at most 1024 experts";
    if ((why = balance_check(in[1], attr, in[0].n[0]))) return why;
    return tm_shape_fit(&out[0], (tm_shape){ .rank = 0 }, "the loss must be a scalar");
}

/* alpha f_e of sequence b. */
static void shares_of(const tm_call *call, int64_t b, double *share)
{
    const tm_balance_attr *attr = call->attr;
    int64_t                experts = call->in[0].shape.n[1], k = attr->top_k, counted = call->in[1].shape.n[0];
    tm_balance_rows        of = tm_balance_rows_of(attr, counted, counted);
    for (int64_t e = 0; e < experts; e++) share[e] = 0;
    for (int64_t r = 0; r < of.runs; r++) {
        const int32_t *ids = (const int32_t *)call->in[1].data + (r * of.sequences + b) * of.rows * k;
        for (int64_t i = 0; i < of.rows * k; i++) {
            TM_ASSERT(ids[i] >= 0 && ids[i] < experts);
            share[ids[i]]++;
        }
    }
    for (int64_t e = 0; e < experts; e++)
        share[e] = attr->alpha * share[e] * (double)experts / (double)(of.runs * of.rows * k);
}

static void balance_loss_reference(const tm_call *call)
{
    int64_t         experts = call->in[0].shape.n[1];
    tm_balance_rows here = tm_balance_rows_of(call->attr, call->in[0].shape.n[0], call->in[1].shape.n[0]);
    double         *loss = tm_call_sums(call, 0), share[TM_MAX_EXPERTS];
    for (int64_t b = 0; b < here.sequences; b++) {
        shares_of(call, b, share);
        for (int64_t r = 0; r < here.runs; r++) {
            const double *s = (const double *)call->in[0].data + (r * here.sequences + b) * here.rows * experts;
            for (int64_t i = 0; i < here.rows * experts; i++) *loss += share[i % experts] * s[i];
        }
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

static const struct {
    int64_t rows, experts, top_k, seq, chunk, times; /* times: rows that are counted, in those that are here */
} cases[] = { { 1, 2, 1, 1, 0, 1 },   { 12, 8, 3, 12, 0, 1 }, { 12, 7, 2, 4, 0, 1 },
              { 30, 33, 6, 0, 0, 1 }, { 5, 9, 2, 0, 0, 3 },   { 12, 5, 2, 12, 3, 2 },
              { 8, 17, 3, 8, 1, 4 },  { 12, 4, 1, 6, 3, 1 },  { 130, 16, 4, 65, 0, 1 } };

static bool balance_loss_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_balance_attr attr = { .seq = cases[k].seq, .top_k = cases[k].top_k, .alpha = 0.25, .chunk = cases[k].chunk };
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].experts), 0.2, 0.1);
    tm_example_int(example, 1, tm_shape_2(cases[k].times * cases[k].rows, cases[k].top_k), cases[k].experts);
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
    .cost = tm_cost_moved,
    .vector = 2,
    .example = balance_loss_example,
    .rounding = tm_rounding_f64,
    .in_name = { "scores (N, E)", "ids (N or more, k)" },
    .out_name = { "loss ()" },
    .attributes = "seq, top_k, alpha, chunk",
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
    int64_t         experts = call->in[0].shape.n[1];
    tm_balance_rows here = tm_balance_rows_of(call->attr, call->in[0].shape.n[0], call->in[1].shape.n[0]);
    double          scale = ((const double *)call->in[2].data)[TM_SCALAR_LOSS_SCALE], share[TM_MAX_EXPERTS];
    for (int64_t b = 0; b < here.sequences; b++) {
        shares_of(call, b, share);
        for (int64_t r = 0; r < here.runs; r++) {
            double *ds = (double *)call->out[0].data + (r * here.sequences + b) * here.rows * experts;
            for (int64_t i = 0; i < here.rows * experts; i++) ds[i] = scale * share[i % experts];
        }
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
    .cost = tm_cost_moved,
    .vector = 1,
    .example = balance_loss_grad_example,
    .in_name = { "scores (N, E)", "ids (N or more, k)", "scalars (8)" },
    .out_name = { "dscores (N, E)" },
    .attributes = "seq, top_k, alpha, chunk",
};
