/* SPDX-License-Identifier: Apache-2.0 */
/* op/sequence_order.c - rows of sequences that ranks have in parts, from the order of the ranks to that of the tokens,
 * and back.
 *
 *   Each of B sequences is cut into n R chunks of S rows, n = 1 or 2. Rank r has chunk r and, of two, chunk 2R - 1 - r:
 *   under a causal mask all then have as much to do (Llama team 2024, section 3.3.2). x: what R ranks have, one rank
 *   after the other; of a rank the first chunks of all sequences, then the second ones. y: sequence by sequence, chunks
 *   ascending. inverse 1: from y to x, which is also the transpose.
 *
 * x (R n B S, C) -> y (B n R S, C)
 */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

static const char *sequence_order_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_sequence_attr *attr = attr_;
    if (attr->samples < 1 || attr->ranks < 1) return "there is at least one sequence, and one rank";
    if (attr->chunks != 1 && attr->chunks != 2) return "a rank has one or two chunks of a sequence";
    if (in[0].rank != 2) return "x must have two axes (rows, channels)";
    if (in[0].n[0] % (attr->chunks * attr->ranks * attr->samples) != 0)
        return "the rows must be equal chunks, as many of each rank";
    return tm_shape_fit(&out[0], in[0], "y must have the shape of x");
}

static void sequence_order_reference(const tm_call *call)
{
    const tm_sequence_attr *attr = call->attr;
    int64_t                 R = attr->ranks, B = attr->samples, n = attr->chunks * R;
    int64_t                 chunk = call->in[0].shape.n[0] / (n * B) * call->in[0].shape.n[1]; /* elements */
    const double           *x = call->in[0].data;
    double                 *y = call->out[0].data;
    for (int64_t b = 0; b < B; b++)
        for (int64_t k = 0; k < n; k++) {
            int64_t of_rank = k < R ? k : 2 * R - 1 - k, second = k >= R;
            int64_t by_rank = (of_rank * attr->chunks + second) * B + b, by_token = b * n + k;
            int64_t from = attr->inverse ? by_token : by_rank, to = attr->inverse ? by_rank : by_token;
            for (int64_t i = 0; i < chunk; i++) y[to * chunk + i] = x[from * chunk + i];
        }
}

static void sequence_order_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_sequence_attr attr = *(const tm_sequence_attr *)node->attr;
    tm_tensor_id     in[TM_MAX_IN] = { tm_gradient_of(gradient, node->out[0]) }, out[TM_MAX_OUT] = { TM_NONE };
    attr.inverse = !attr.inverse;
    if (in[0] == TM_NONE || !tm_gradient_wanted(gradient, node->in[0])) return;
    tm_gradient_emit(gradient, TM_OP_sequence_order, &attr, sizeof attr, in, out, 0);
    tm_gradient_add(gradient, node->in[0], out[0]);
}

static bool sequence_order_example(int k, tm_example *example)
{
    static const struct {
        tm_sequence_attr attr;
        int64_t          chunk, channels;
    } cases[] = { { { 1, 1, 2, 0 }, 1, 1 },   { { 1, 2, 2, 0 }, 1, 3 },  { { 3, 2, 2, 0 }, 2, 5 },
                  { { 2, 4, 2, 0 }, 3, 33 },  { { 2, 3, 2, 1 }, 4, 17 }, { { 1, 4, 2, 1 }, 5, 64 },
                  { { 3, 1, 2, 1 }, 2, 130 }, { { 2, 3, 1, 0 }, 2, 7 },  { { 4, 2, 1, 1 }, 3, 20 },
                  { { 2, 5, 2, 0 }, 33, 65 } };
    if (k >= TM_COUNT_OF(cases)) return false;
    int64_t rows = cases[k].attr.chunks * cases[k].attr.ranks * cases[k].attr.samples * cases[k].chunk;
    tm_example_begin(example, &cases[k].attr, sizeof cases[k].attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(rows, cases[k].channels), 0, 1);
    return true;
}

const tm_op tm_op_sequence_order = {
    .name = "sequence_order",
    .formula = "y = the chunks of x in the order of the tokens; rank r has chunk r, of two also chunk 2R - 1 - r",
    .group = "copies",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = sequence_order_infer,
    .reference = sequence_order_reference,
    .gradient = sequence_order_gradient,
    .cost = tm_cost_moved,
    .example = sequence_order_example,
    .rounding = tm_rounding_f64,
    .in_name = { "x (R n B S, C)" },
    .out_name = { "y (B n R S, C)" },
    .attributes = "samples, ranks, chunks, inverse",
};
