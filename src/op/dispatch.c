/* SPDX-License-Identifier: Apache-2.0 */
/* op/dispatch.c - rows in the order of their experts: a stable counting sort; and what is counted there.
 *
 *   offsets[e] = how many (row, slot) pairs go to experts below e;  order[p] = t k + j: pair (t, j) stands at place p,
 *   pairs of one expert in ascending order;  inverse[t k + j] = p
 *
 * ids (N, k) int32 -> offsets (E + 1), order (N k), inverse (N k), all int32
 */
#include "base/status.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <string.h>

static const char *dispatch_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_dispatch_attr *attr = attr_;
    const char             *why;
    if (in[0].rank != 2) return "the ids must have two axes (rows, slots)";
    if (attr->experts < 1 || attr->experts > TM_MAX_EXPERTS) return "there is one expert at least and 1024 at most";
    tm_shape pairs = tm_shape_1(in[0].n[0] * in[0].n[1]);
    if ((why = tm_shape_fit(&out[0], tm_shape_1(attr->experts + 1), "there must be one offset more than experts")))
        return why;
    for (int k = 1; k < 3; k++)
        if ((why = tm_shape_fit(&out[k], pairs, "order and inverse must have one value per row and slot"))) return why;
    return NULL;
}

static void dispatch_reference(const tm_call *call)
{
    const tm_dispatch_attr *attr = call->attr;
    int64_t                 pairs = tm_shape_elements(call->in[0].shape), place = 0;
    const int32_t          *ids = call->in[0].data;
    int32_t                *offsets = call->out[0].data, *order = call->out[1].data, *inverse = call->out[2].data;
    for (int64_t i = 0; i < pairs; i++) TM_ASSERT(ids[i] >= 0 && ids[i] < attr->experts);
    for (int64_t e = 0; e < attr->experts; e++) {
        offsets[e] = (int32_t)place;
        for (int64_t i = 0; i < pairs; i++) {
            if (ids[i] != e) continue;
            order[place] = (int32_t)i;
            inverse[i] = (int32_t)place++;
        }
    }
    offsets[attr->experts] = (int32_t)place;
}

static bool dispatch_example(int k, tm_example *example)
{
    static const struct {
        int64_t rows, slots, experts;
    } cases[] = { { 1, 1, 1 }, { 7, 2, 4 }, { 9, 3, 30 }, { 100, 6, 8 }, { 65, 1, 3 }, { 700, 8, 128 } };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &(tm_dispatch_attr){ .experts = cases[k].experts }, sizeof(tm_dispatch_attr));
    tm_example_int(example, 0, tm_shape_2(cases[k].rows, cases[k].slots), cases[k].experts);
    return true;
}

const tm_op tm_op_dispatch = {
    .name = "dispatch",
    .formula = "order = the (row, slot) pairs sorted by expert, stable; inverse[order[p]] = p; offsets[e] = pairs of "
               "experts below e",
    .group = "experts",
    .n_in = 1,
    .n_out = 3,
    .out_role = { TM_ROLE_INDEX, TM_ROLE_INDEX, TM_ROLE_INDEX },
    .infer = dispatch_infer,
    .reference = dispatch_reference,
    .cost = tm_cost_moved,
    .vector = 3,
    .example = dispatch_example,
    .in_name = { "ids (N, k)" },
    .out_name = { "offsets (E + 1)", "order (N k)", "inverse (N k)" },
    .attributes = "experts",
};

/* ---- expert_counts: how many pairs an expert gets. offsets (E + 1) -> counts (E) float64, added to over the
 * micro-batches of a step ---- */

static const char *expert_counts_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (in[0].rank != 1 || in[0].n[0] < 2) return "there must be one offset more than experts";
    return tm_shape_fit(&out[0], tm_shape_1(in[0].n[0] - 1), "there must be one count per expert");
}

static void expert_counts_reference(const tm_call *call)
{
    const int32_t *offsets = call->in[0].data;
    double        *counts = tm_call_sums(call, 0);
    for (int64_t e = 0; e < call->out[0].shape.n[0]; e++) counts[e] += offsets[e + 1] - offsets[e];
}

static bool expert_counts_example(int k, tm_example *example)
{
    static const struct {
        int64_t experts, pairs;
    } cases[] = { { 1, 5 }, { 3, 2 }, { 8, 100 }, { 130, 4096 } };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_offsets(example, 0, cases[k].experts, cases[k].pairs);
    return true;
}

const tm_op tm_op_expert_counts = {
    .name = "expert_counts",
    .formula = "counts[e] += offsets[e + 1] - offsets[e]",
    .group = "experts",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_SCALAR },
    .infer = expert_counts_infer,
    .reference = expert_counts_reference,
    .cost = tm_cost_moved,
    .vector = 2,
    .state = true,
    .example = expert_counts_example,
    .rounding = tm_rounding_f64,
    .in_name = { "offsets (E + 1)" },
    .out_name = { "counts (E)" },
};

/* ---- expert_span: where the rows of all experts together begin and end, for what all of them share.
 * offsets (E + 1) -> span (2) ---- */

static const char *expert_span_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (in[0].rank != 1 || in[0].n[0] < 2) return "there must be one offset more than experts";
    return tm_shape_fit(&out[0], tm_shape_1(2), "there must be a begin and an end");
}

static void expert_span_reference(const tm_call *call)
{
    const int32_t *offsets = call->in[0].data;
    int32_t       *span = call->out[0].data;
    span[0] = offsets[0];
    span[1] = offsets[call->in[0].shape.n[0] - 1];
}

const tm_op tm_op_expert_span = {
    .name = "expert_span",
    .formula = "span = (offsets[0], offsets[E])",
    .group = "experts",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_INDEX },
    .infer = expert_span_infer,
    .reference = expert_span_reference,
    .cost = tm_cost_moved,
    .vector = 1,
    .example = expert_counts_example,
    .in_name = { "offsets (E + 1)" },
    .out_name = { "span (2)" },
};

/* ---- expert_bias: balance without a loss (Wang et al. 2024): experts with less than the mean get a larger bias.
 *
 *   delta = rate sign(mean(counts) - counts);  bias += delta - mean(delta)
 *
 * counts (E) float64, bias (E) -> bias (E), the tensor that came in ---- */

static const char *expert_bias_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (in[0].rank != 1) return "counts must have one axis";
    if (!tm_shape_equal(in[0], in[1])) return "the bias must have one value per expert";
    return tm_shape_fit(&out[0], in[1], "the new bias must have one value per expert");
}

static void expert_bias_reference(const tm_call *call)
{
    const tm_expert_bias_attr *attr = call->attr;
    int64_t                    experts = call->in[0].shape.n[0];
    const double              *counts = call->in[0].data, *bias = call->in[1].data;
    double                    *out = call->out[0].data, mean = 0, signs = 0;
    for (int64_t e = 0; e < experts; e++) mean += counts[e] / (double)experts;
    for (int64_t e = 0; e < experts; e++) signs += (counts[e] < mean) - (counts[e] > mean);
    for (int64_t e = 0; e < experts; e++)
        out[e] = bias[e] + attr->rate * ((counts[e] < mean) - (counts[e] > mean) - signs / (double)experts);
}

static bool expert_bias_example(int k, tm_example *example)
{
    static const int64_t cases[] = { 1, 3, 8, 130 };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &(tm_expert_bias_attr){ .rate = 0.25 }, sizeof(tm_expert_bias_attr));
    tm_example_in(example, 0, TM_ROLE_SCALAR, tm_shape_1(cases[k]), 10, 3);
    tm_example_in(example, 1, TM_ROLE_STATE, tm_shape_1(cases[k]), 0, 1);
    return true;
}

const tm_op tm_op_expert_bias = {
    .name = "expert_bias",
    .formula = "delta = rate sign(mean(counts) - counts); bias += delta - mean(delta)",
    .group = "experts",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_STATE },
    .infer = expert_bias_infer,
    .reference = expert_bias_reference,
    .cost = tm_cost_moved,
    .vector = 6,
    .inplace = 1U << 1,
    .state = true,
    .example = expert_bias_example,
    .in_name = { "counts (E)", "bias (E)" },
    .out_name = { "bias (E)" },
    .attributes = "rate",
};
