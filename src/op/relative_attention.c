/* SPDX-License-Identifier: Apache-2.0 */
/* op/relative_attention.c - attention in both directions with a bias for each class of distances (Raffel et al. 2020,
 * section 2.1). Of frozen encoders: it has no gradient.
 *
 *   s_ij = scale <q_i, k_j> + table[bucket(j - i), h],  p_ij = exp(s_ij - lse_i),  lse_i = ln sum_j exp(s_ij)
 *   o_i  = sum_j p_ij v_j
 *
 * q, k, v (B T, H D), table (buckets, H) -> o (B T, H D), lse (B, H, T)
 * q, k and v may be views: columns of one fused matrix. Every token sees all of its sequence.
 */
#include "op/attrs.h"
#include "op/describe.h"
#include "op/relative.h"

#include <math.h>

int64_t tm_relative_bucket(int64_t distance, int64_t buckets, int64_t max_distance)
{
    int64_t half = buckets / 2, single = half / 2, from = distance > 0 ? half : 0,
            n = distance < 0 ? -distance : distance;
    if (n < single) return from + n;
    /* powers are met exactly, whatever the logarithms round to */
    double rank =
        log((double)n / (double)single) / log((double)max_distance / (double)single) * (double)(half - single);
    int64_t class = single + (int64_t)(rank + 1e-6);
    return from + (class < half ? class : half - 1);
}

static const char *relative_attention_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_relative_attr *attr = attr_;
    const char             *why;
    if (attr->seq < 1) return "the sequence length must be positive";
    if (attr->heads < 1 || attr->dim < 1) return "heads and head size must be positive";
    if (in[0].rank != 2 || in[0].n[1] != attr->heads * attr->dim)
        return "q must have the shape (rows, heads x size of a head)";
    if (in[0].n[0] % attr->seq != 0) return "the rows of q must be a multiple of the sequence length";
    if (!tm_shape_equal(in[1], in[0]) || !tm_shape_equal(in[2], in[0])) return "k and v must have the shape of q";
    if (in[3].rank != 2 || in[3].n[1] != attr->heads) return "the table must have one column per head";
    if (in[3].n[0] < 4 || in[3].n[0] % 4 != 0) return "the rows of the table must be a multiple of 4";
    if (attr->max_distance <= in[3].n[0] / 4) return "max_distance must be beyond the distances with rows of their own";
    if ((why = tm_shape_fit(&out[0], in[0], "o must have the shape of q"))) return why;
    return tm_shape_fit(&out[1], tm_shape_3(in[0].n[0] / attr->seq, attr->heads, attr->seq),
                        "lse must have the shape (sequences, heads, tokens)");
}

/* Head h of token i of the sequence whose first row is `row0`. */
static void attend(const tm_call *call, int64_t row0, int64_t h, int64_t i, double *lse)
{
    const tm_relative_attr *attr = call->attr;
    const tm_view          *table = &call->in[3];
    const double           *q = tm_view_row(&call->in[0], row0 + i) + h * attr->dim;
    double                 *o = tm_view_row(&call->out[0], row0 + i) + h * attr->dim, most = -HUGE_VAL, sum = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (int64_t d = 0; d < attr->dim && pass == 1; d++) o[d] = 0;
        for (int64_t j = 0; j < attr->seq; j++) {
            const double *k = tm_view_row(&call->in[1], row0 + j) + h * attr->dim;
            const double *v = tm_view_row(&call->in[2], row0 + j) + h * attr->dim;
            double score = tm_view_row(table, tm_relative_bucket(j - i, table->shape.n[0], attr->max_distance))[h];
            for (int64_t d = 0; d < attr->dim; d++) score += attr->scale * q[d] * k[d];
            if (pass == 0) {
                most = fmax(most, score);
                continue;
            }
            double e = exp(score - most);
            sum += e;
            for (int64_t d = 0; d < attr->dim; d++) o[d] += e * v[d];
        }
    }
    for (int64_t d = 0; d < attr->dim; d++) o[d] /= sum;
    *lse = most + log(sum);
}

static void relative_attention_reference(const tm_call *call)
{
    const tm_relative_attr *attr = call->attr;
    double                 *lse = call->out[1].data;
    for (int64_t b = 0; b < call->in[0].shape.n[0] / attr->seq; b++)
        for (int64_t h = 0; h < attr->heads; h++)
            for (int64_t i = 0; i < attr->seq; i++)
                attend(call, b * attr->seq, h, i, &lse[(b * attr->heads + h) * attr->seq + i]);
}

static tm_cost relative_attention_cost(const tm_call *call)
{
    const tm_relative_attr *attr = call->attr;
    double                  pairs = (double)call->in[0].shape.n[0] * (double)attr->seq * (double)attr->heads;
    tm_cost                 cost = tm_call_cost(call, 4 * pairs * (double)attr->dim); /* q k^T, p v */
    cost.vector = 6 * pairs; /* scale, bias, largest, -, exp, sum */
    return cost;
}

/* As attention: a score, then a sum over keys; matrix units take p as bfloat16. */
static tm_rounding relative_attention_rounding(const tm_call *call, int k)
{
    const tm_relative_attr *attr = call->attr;
    tm_rounding             r = tm_rounding_sum(attr->dim + attr->seq + 1);
    r.narrow = k == 0;
    return r;
}

static bool relative_attention_example(int k, tm_example *example)
{
    static const struct {
        int64_t          batch, buckets;
        tm_relative_attr attr;
    } cases[] = {
        { 1, 4, { .seq = 1, .heads = 1, .dim = 1, .max_distance = 2, .scale = 1 } },
        { 2, 8, { .seq = 5, .heads = 3, .dim = 7, .max_distance = 20, .scale = 0.4 } },
        { 1, 32, { .seq = 33, .heads = 2, .dim = 16, .max_distance = 128, .scale = 0.25 } },
        { 2, 32, { .seq = 150, .heads = 2, .dim = 8, .max_distance = 128, .scale = 0.35 } },
        { 1, 64, { .seq = 65, .heads = 1, .dim = 40, .max_distance = 30, .scale = 0.16 } },
        { 1, 8, { .seq = 600, .heads = 1, .dim = 64, .max_distance = 300, .scale = 0.125 } },
        { 1, 16, { .seq = 300, .heads = 1, .dim = 200, .max_distance = 64, .scale = 0.07 } },
    };
    if (k >= TM_COUNT_OF(cases)) return false;
    const tm_relative_attr *attr = &cases[k].attr;
    tm_shape                q = tm_shape_2(cases[k].batch * attr->seq, attr->heads * attr->dim);
    tm_example_begin(example, attr, sizeof *attr);
    for (int i = 0; i < 3; i++) tm_example_in(example, i, TM_ROLE_ACTIVATION, q, 0, 1);
    tm_example_in(example, 3, TM_ROLE_PARAMETER, tm_shape_2(cases[k].buckets, attr->heads), 0, 1);
    return true;
}

const tm_op tm_op_relative_attention = {
    .name = "relative_attention",
    .formula = "o = softmax(scale q k^T + table[bucket(j - i)]) v, lse = ln sum exp of the same",
    .group = "attention",
    .n_in = 4,
    .n_out = 2,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_STATISTIC },
    .infer = relative_attention_infer,
    .reference = relative_attention_reference,
    .cost = relative_attention_cost,
    .any_dtype_in = 1U << 3,
    .strided_in = 1U << 0 | 1U << 1 | 1U << 2,
    .example = relative_attention_example,
    .rounding = relative_attention_rounding,
    .in_name = { "q (B T, H D)", "k (B T, H D)", "v (B T, H D)", "table (buckets, H)" },
    .out_name = { "o (B T, H D)", "lse (B, H, T)" },
    .attributes = "seq, heads, dim, max_distance, scale",
};
