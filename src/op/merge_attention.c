/* SPDX-License-Identifier: Apache-2.0 */
/* op/merge_attention.c - attention over two sets of keys, from that over each (op/attention.c).
 *
 *   lse = ln (exp(lse_a) + exp(lse_b)),  o = exp(lse_a - lse) o_a + exp(lse_b - lse) o_b
 *
 * A query that saw no key of a set has -infinity there, and o = 0. With neither: -infinity and 0.
 *
 * oa, ob (B seq_q, H dim_v), lsea, lseb (B, H, seq_q) -> o, lse, like them
 */
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>

static const char *merge_attention_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_attention_attr *attr = attr_;
    const char              *why;
    if (attr->seq_q < 1 || attr->heads < 1 || attr->dim_v < 1) return "sizes must be positive";
    if (in[0].rank != 2 || in[0].n[1] != attr->heads * attr->dim_v || in[0].n[0] % attr->seq_q != 0)
        return "o must have the shape (sequences x queries, heads x size of a value)";
    tm_shape lse = tm_shape_3(in[0].n[0] / attr->seq_q, attr->heads, attr->seq_q);
    if (!tm_shape_equal(in[2], in[0])) return "both results must have the same shape";
    if (!tm_shape_equal(in[1], lse) || !tm_shape_equal(in[3], lse))
        return "lse must have the shape (sequences, heads, queries)";
    if ((why = tm_shape_fit(&out[0], in[0], "o must have the shape of its parts"))) return why;
    return tm_shape_fit(&out[1], lse, "lse must have the shape of its parts");
}

static void merge_attention_reference(const tm_call *call)
{
    const tm_attention_attr *attr = call->attr;
    const double *oa = call->in[0].data, *la = call->in[1].data, *ob = call->in[2].data, *lb = call->in[3].data;
    double       *o = call->out[0].data, *lse = call->out[1].data;
    for (int64_t r = 0; r < call->in[0].shape.n[0]; r++)
        for (int64_t h = 0; h < attr->heads; h++) {
            int64_t at = (r / attr->seq_q * attr->heads + h) * attr->seq_q + r % attr->seq_q;
            double  max = fmax(la[at], lb[at]), a = exp(la[at] - max), b = exp(lb[at] - max), sum = a + b;
            bool    none = max == -HUGE_VAL;
            for (int64_t d = 0; d < attr->dim_v; d++) {
                int64_t i = (r * attr->heads + h) * attr->dim_v + d;
                o[i] = none ? 0 : (a * oa[i] + b * ob[i]) / sum;
            }
            lse[at] = none ? max : max + log(sum);
        }
}

static tm_cost merge_attention_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 0);
    cost.vector = 3 * (double)tm_shape_elements(call->in[0].shape);
    return cost;
}

/* The exponentials of differences of statistics, which are sums themselves. */
static tm_rounding merge_attention_rounding(const tm_call *call, int k)
{
    (void)call;
    (void)k;
    return tm_rounding_sum(16);
}

static bool merge_attention_example(int k, tm_example *example)
{
    static const int64_t cases[][4] = { { 1, 1, 1, 1 },  { 2, 3, 2, 4 },   { 1, 7, 3, 16 }, { 3, 5, 1, 33 },
                                        { 2, 65, 4, 8 }, { 1, 40, 2, 64 }, { 1, 300, 3, 7 } };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_attention_attr attr = { .seq_q = cases[k][1], .heads = cases[k][2], .dim_v = cases[k][3] };
    tm_shape          o = tm_shape_2(cases[k][0] * attr.seq_q, attr.heads * attr.dim_v);
    tm_shape          lse = tm_shape_3(cases[k][0], attr.heads, attr.seq_q);
    tm_example_begin(example, &attr, sizeof attr);
    for (int i = 0; i < 2; i++) {
        tm_example_in(example, 2 * i, TM_ROLE_ACTIVATION, o, 0, 1);
        tm_example_in(example, 2 * i + 1, TM_ROLE_STATISTIC, lse, i, 2);
    }
    return true;
}

const tm_op tm_op_merge_attention = {
    .name = "merge_attention",
    .formula = "lse = ln (exp(lse_a) + exp(lse_b)), o = exp(lse_a - lse) o_a + exp(lse_b - lse) o_b",
    .group = "attention",
    .n_in = 4,
    .n_out = 2,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_STATISTIC },
    .infer = merge_attention_infer,
    .reference = merge_attention_reference,
    .cost = merge_attention_cost,
    .inplace = 1U << 0,
    .example = merge_attention_example,
    .rounding = merge_attention_rounding,
    .in_name = { "oa (B seq_q, H dim_v)", "lsea (B, H, seq_q)", "ob (B seq_q, H dim_v)", "lseb (B, H, seq_q)" },
    .out_name = { "o (B seq_q, H dim_v)", "lse (B, H, seq_q)" },
    .attributes = "seq_q, heads, dim_v",
};
