/* SPDX-License-Identifier: Apache-2.0 */
/* op/attention.c - scaled dot-product attention with grouped key/value heads, from a fused row of q, k and v heads.
 *
 *   s_ij = scale <q_i, k_j>,  p_ij = exp(s_ij - lse_i),  lse_i = ln sum_j exp(s_ij)      j visible to i
 *   o_i  = sum_j p_ij v_j                                  (Vaswani et al. 2017, eq. 1; groups: Ainslie et al. 2023)
 *   dv_j = sum_i p_ij do_i
 *   ds_ij = p_ij (<do_i, v_j> - <do_i, o_i>)               (Dao et al. 2022, appendix B.2)
 *   dq_i = scale sum_j ds_ij k_j,  dk_j = scale sum_i ds_ij q_i;  dk and dv are summed over the query heads of a group
 *
 * Causal: j is visible to i when j <= i; with a window of W keys: when i - W < j <= i. Query head h reads key/value
 * head h / (H / J). qkv (N, (H + 2J) D): H q heads, J k heads, J v heads -> o (N, H D), lse (B, H, T)
 */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>

static const char *attention_check(tm_shape qkv, const tm_attention_attr *attr)
{
    if (attr->seq < 1 || attr->heads < 1 || attr->kv_heads < 1 || attr->head_dim < 1)
        return "sequence, heads, key/value heads and head size must be positive";
    if (attr->window < 0 || (attr->window > 0 && !attr->causal)) return "a window needs causal attention";
    if (attr->heads % attr->kv_heads != 0) return "the heads must be a multiple of the key/value heads";
    if (qkv.rank != 2) return "qkv must have two axes (rows, heads)";
    if (qkv.n[0] % attr->seq != 0) return "the rows of qkv must be a multiple of the sequence length";
    if (qkv.n[1] != (attr->heads + 2 * attr->kv_heads) * attr->head_dim)
        return "the columns of qkv must be (heads + 2 key/value heads) x head size";
    return NULL;
}

static tm_shape attention_lse_shape(tm_shape qkv, const tm_attention_attr *attr)
{
    return tm_shape_3(qkv.n[0] / attr->seq, attr->heads, attr->seq);
}

static const char *attention_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_attention_attr *attr = attr_;
    const char              *why;
    if ((why = attention_check(in[0], attr))) return why;
    if ((why = tm_shape_fit(&out[0], tm_shape_2(in[0].n[0], attr->heads * attr->head_dim),
                            "o must have one head per query head")))
        return why;
    return tm_shape_fit(&out[1], attention_lse_shape(in[0], attr),
                        "lse must have the shape (sequences, heads, tokens)");
}

/* Keys visible to query i: first_key(i) .. end_of_keys(i) - 1. */
static int64_t first_key(const tm_attention_attr *attr, int64_t i)
{
    return attr->window > 0 && i >= attr->window ? i - attr->window + 1 : 0;
}
static int64_t end_of_keys(const tm_attention_attr *attr, int64_t i)
{
    return attr->causal ? i + 1 : attr->seq;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Query i: key j of its head is keys[j * stride], value j is values[j * stride]. */
static void attend(const double *q, const double *keys, const double *values, int64_t i, int64_t stride,
                   const tm_attention_attr *attr, double *o, double *lse)
{
    double  max = -HUGE_VAL, sum = 0;
    int64_t first = first_key(attr, i), visible = end_of_keys(attr, i);
    for (int64_t j = first; j < visible; j++) max = fmax(max, attr->scale * dot(q, keys + j * stride, attr->head_dim));
    for (int64_t d = 0; d < attr->head_dim; d++) o[d] = 0;
    for (int64_t j = first; j < visible; j++) {
        double e = exp(attr->scale * dot(q, keys + j * stride, attr->head_dim) - max);
        sum += e;
        for (int64_t d = 0; d < attr->head_dim; d++) o[d] += e * values[j * stride + d];
    }
    for (int64_t d = 0; d < attr->head_dim; d++) o[d] /= sum;
    *lse = max + log(sum);
}

static void attention_reference(const tm_call *call)
{
    const tm_attention_attr *attr = call->attr;
    int64_t T = attr->seq, H = attr->heads, J = attr->kv_heads, D = attr->head_dim, W = (H + 2 * J) * D;
    int64_t batch = call->in[0].shape.n[0] / T;
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t i = 0; i < T; i++) {
                const double *qkv = (const double *)call->in[0].data + b * T * W;
                int64_t       j = h / (H / J); /* key/value head */
                double       *o = (double *)call->out[0].data + ((b * T + i) * H + h) * D;
                double       *lse = (double *)call->out[1].data + (b * H + h) * T + i;
                attend(qkv + i * W + h * D, qkv + (H + j) * D, qkv + (H + J + j) * D, i, W, attr, o, lse);
            }
}

static void attention_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id qkv = node->in[0], d_o = tm_gradient_of(gradient, node->out[0]);
    if (d_o == TM_NONE || !tm_gradient_wanted(gradient, qkv)) return;
    tm_tensor_id in[TM_MAX_IN] = { d_o, qkv, node->out[0], node->out[1] }, out[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, TM_OP_attention_grad, node->attr, node->attr_bytes, in, out, 0);
    tm_gradient_add(gradient, qkv, out[0]);
}

/* Multiply-adds of one of the products (scores, or probabilities times values): visible pairs x head size. */
static double attention_product(const tm_call *call, tm_shape qkv)
{
    const tm_attention_attr *attr = call->attr;
    double                   T = (double)attr->seq, pairs = attr->causal ? T * (T + 1) / 2 : T * T;
    if (attr->window > 0 && attr->window < attr->seq) { /* the first keys of late queries are out of sight */
        double beyond = T - (double)attr->window;
        pairs -= beyond * (beyond + 1) / 2;
    }
    return (double)(qkv.n[0] / attr->seq) * (double)attr->heads * pairs * (double)attr->head_dim;
}

static tm_cost attention_cost(const tm_call *call)
{
    double  product = attention_product(call, call->in[0].shape);
    tm_cost cost = tm_call_cost(call, 2 * 2 * product); /* q k^T, p v */
    cost.vector = 5 * product / (double)((const tm_attention_attr *)call->attr)->head_dim; /* scale, largest, -, exp, sum */
    return cost;
}

/* A score, then a sum over keys; dk and dv: over the queries of all heads of a group. */
static tm_rounding attention_rounding(const tm_call *call, int k)
{
    const tm_attention_attr *attr = call->attr;
    (void)k;
    return tm_rounding_sum(attr->head_dim + attr->seq * (attr->heads / attr->kv_heads));
}

static const struct {
    int64_t           batch;
    tm_attention_attr attr;
} cases[] = {
    { 2, { .seq = 1, .heads = 1, .kv_heads = 1, .head_dim = 1, .scale = 1, .causal = 1 } },
    { 2, { .seq = 3, .heads = 2, .kv_heads = 1, .head_dim = 4, .scale = 0.5, .causal = 1 } },
    { 1, { .seq = 7, .heads = 4, .kv_heads = 2, .head_dim = 3, .scale = 0.577, .causal = 0 } },
    { 2, { .seq = 9, .heads = 3, .kv_heads = 3, .head_dim = 8, .scale = 0.353, .causal = 1 } },
    { 3, { .seq = 8, .heads = 6, .kv_heads = 2, .head_dim = 7, .scale = 0.8, .causal = 1 } },
    { 1, { .seq = 65, .heads = 2, .kv_heads = 1, .head_dim = 16, .scale = 0.25, .causal = 1 } },
    { 2, { .seq = 33, .heads = 4, .kv_heads = 4, .head_dim = 9, .scale = 0.333, .causal = 0 } },
    { 1, { .seq = 130, .heads = 1, .kv_heads = 1, .head_dim = 64, .scale = 0.125, .causal = 1 } },
    { 2, { .seq = 9, .heads = 2, .kv_heads = 1, .head_dim = 5, .scale = 0.4, .causal = 1, .window = 1 } },
    { 1, { .seq = 77, .heads = 2, .kv_heads = 2, .head_dim = 8, .scale = 0.35, .causal = 1, .window = 40 } },
    { 2, { .seq = 12, .heads = 2, .kv_heads = 1, .head_dim = 4, .scale = 0.5, .causal = 1, .window = 12 } },
    { 1, { .seq = 2, .heads = 4, .kv_heads = 1, .head_dim = 16, .scale = 0.25, .causal = 0 } },
    { 2, { .seq = 31, .heads = 2, .kv_heads = 2, .head_dim = 24, .scale = 0.2, .causal = 1 } },
    { 1, { .seq = 32, .heads = 1, .kv_heads = 1, .head_dim = 2, .scale = 0.7, .causal = 1 } },
    { 1, { .seq = 33, .heads = 3, .kv_heads = 1, .head_dim = 17, .scale = 0.24, .causal = 1, .window = 32 } },
    { 2, { .seq = 97, .heads = 4, .kv_heads = 2, .head_dim = 16, .scale = 0.25, .causal = 1, .window = 33 } },
    { 1, { .seq = 33, .heads = 1, .kv_heads = 1, .head_dim = 40, .scale = 0.16, .causal = 1, .window = 7 } },
    { 1, { .seq = 41, .heads = 3, .kv_heads = 1, .head_dim = 5, .scale = 0.4, .causal = 0 } },
    { 2, { .seq = 97, .heads = 4, .kv_heads = 2, .head_dim = 16, .scale = 0.25, .causal = 1, .window = 2 } },
    { 1, { .seq = 97, .heads = 2, .kv_heads = 2, .head_dim = 16, .scale = 0.25, .causal = 1, .window = 31 } },
    { 1, { .seq = 97, .heads = 2, .kv_heads = 1, .head_dim = 16, .scale = 0.25, .causal = 1, .window = 65 } },
    { 2, { .seq = 97, .heads = 2, .kv_heads = 1, .head_dim = 16, .scale = 0.25, .causal = 1, .window = 96 } },
    /* for the blocks of kernels: 32 queries; 512, 256 or 128 keys for heads up to 64, 128 and 256 */
    { 1, { .seq = 97, .heads = 4, .kv_heads = 1, .head_dim = 80, .scale = 0.11, .causal = 0 } },
    { 1, { .seq = 41, .heads = 3, .kv_heads = 1, .head_dim = 255, .scale = 0.06, .causal = 1 } },
    { 2, { .seq = 65, .heads = 2, .kv_heads = 1, .head_dim = 256, .scale = 0.06, .causal = 1 } },
    { 1, { .seq = 300, .heads = 2, .kv_heads = 1, .head_dim = 200, .scale = 0.07, .causal = 1, .window = 129 } },
    { 1, { .seq = 1500, .heads = 1, .kv_heads = 1, .head_dim = 8, .scale = 0.35, .causal = 1, .window = 1 } },
    { 2, { .seq = 1500, .heads = 1, .kv_heads = 1, .head_dim = 8, .scale = 0.35, .causal = 1, .window = 511 } },
    { 1, { .seq = 1500, .heads = 1, .kv_heads = 1, .head_dim = 8, .scale = 0.35, .causal = 1, .window = 513 } },
    { 1, { .seq = 200, .heads = 2, .kv_heads = 2, .head_dim = 128, .scale = 0.09, .causal = 1 } },
    { 2, { .seq = 300, .heads = 1, .kv_heads = 1, .head_dim = 200, .scale = 0.07, .causal = 0 } },
    { 1, { .seq = 513, .heads = 4, .kv_heads = 2, .head_dim = 64, .scale = 0.125, .causal = 1 } },
    { 1, { .seq = 600, .heads = 1, .kv_heads = 1, .head_dim = 96, .scale = 0.1, .causal = 1, .window = 257 } },
    { 2, { .seq = 1100, .heads = 1, .kv_heads = 1, .head_dim = 48, .scale = 0.14, .causal = 0 } },
    { 1, { .seq = 1300, .heads = 4, .kv_heads = 1, .head_dim = 8, .scale = 0.35, .causal = 1, .window = 64 } },
    { 1, { .seq = 1500, .heads = 2, .kv_heads = 1, .head_dim = 8, .scale = 0.35, .causal = 1 } },
};

static bool attention_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    const tm_attention_attr *attr = &cases[k].attr;
    tm_example_begin(example, attr, sizeof *attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION,
                  tm_shape_2(cases[k].batch * attr->seq, (attr->heads + 2 * attr->kv_heads) * attr->head_dim), 0, 1);
    return true;
}

const tm_op tm_op_attention = {
    .name = "attention",
    .formula = "o = softmax(scale q k^T) v, lse = ln sum exp(scale q k^T)",
    .group = "attention",
    .n_in = 1,
    .n_out = 2,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_STATISTIC },
    .infer = attention_infer,
    .reference = attention_reference,
    .gradient = attention_gradient,
    .cost = attention_cost,
    .example = attention_example,
    .rounding = attention_rounding,
    .in_name = { "qkv (N, (H + 2J) D)" },
    .out_name = { "o (N, H D)", "lse (B, H, T)" },
    .attributes = "seq, heads, kv_heads, head_dim, scale, causal, window",
};

/* in: do (N, H D), qkv (N, (H + 2J) D), o (N, H D), lse (B, H, T); out: dqkv (N, (H + 2J) D) */
static const char *attention_grad_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_attention_attr *attr = attr_;
    const char              *why;
    if ((why = attention_check(in[1], attr))) return why;
    if (!tm_shape_is_matrix(in[2], in[1].n[0], attr->heads * attr->head_dim))
        return "o must have one head per query head";
    if (!tm_shape_equal(in[0], in[2])) return "do must have the shape of o";
    if (!tm_shape_equal(in[3], attention_lse_shape(in[1], attr)))
        return "lse must have the shape (sequences, heads, tokens)";
    return tm_shape_fit(&out[0], in[1], "dqkv must have the shape of qkv");
}

/* Adds what query row i of head h contributes. qkv and dqkv are the sequence's first row. */
static void attend_grad(const double *d_o, const double *o, const double *qkv, double lse, int64_t i, int64_t h,
                        const tm_attention_attr *attr, double *dqkv)
{
    int64_t D = attr->head_dim, W = (attr->heads + 2 * attr->kv_heads) * D;
    int64_t q = i * W + h * D; /* offset of this query; of key and value row 0 of its head: */
    int64_t key = (attr->heads + h / (attr->heads / attr->kv_heads)) * D, value = key + attr->kv_heads * D;
    double  delta = dot(d_o, o, D);
    for (int64_t j = first_key(attr, i); j < end_of_keys(attr, i); j++) {
        int64_t k = key + j * W, v = value + j * W;
        double  p = exp(attr->scale * dot(qkv + q, qkv + k, D) - lse);
        double  ds = p * (dot(d_o, qkv + v, D) - delta) * attr->scale;
        for (int64_t d = 0; d < D; d++) {
            dqkv[q + d] += ds * qkv[k + d];
            dqkv[k + d] += ds * qkv[q + d];
            dqkv[v + d] += p * d_o[d];
        }
    }
}

static void attention_grad_reference(const tm_call *call)
{
    const tm_attention_attr *attr = call->attr;
    int64_t                  T = attr->seq, H = attr->heads, D = attr->head_dim, W = call->in[1].shape.n[1];
    int64_t                  batch = call->in[1].shape.n[0] / T;
    const double *d_o = call->in[0].data, *qkv = call->in[1].data, *o = call->in[2].data, *lse = call->in[3].data;
    double       *dqkv = tm_call_sums(call, 0);
    for (int64_t b = 0; b < batch; b++)
        for (int64_t h = 0; h < H; h++)
            for (int64_t i = 0; i < T; i++) {
                int64_t head = ((b * T + i) * H + h) * D;
                attend_grad(d_o + head, o + head, qkv + b * T * W, lse[(b * H + h) * T + i], i, h, attr,
                            dqkv + b * T * W);
            }
}

static tm_cost attention_grad_cost(const tm_call *call)
{
    double  product = attention_product(call, call->in[1].shape);
    tm_cost cost = tm_call_cost(call, 2 * 5 * product); /* q k^T, do v^T, dq, dk, dv */
    cost.vector = 6 * product / (double)((const tm_attention_attr *)call->attr)->head_dim; /* scale, -, exp; -, *, scale */
    return cost;
}

static bool attention_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    const tm_attention_attr *attr = &cases[k].attr;
    tm_shape qkv = tm_shape_2(cases[k].batch * attr->seq, (attr->heads + 2 * attr->kv_heads) * attr->head_dim);
    tm_shape o = tm_shape_2(qkv.n[0], attr->heads * attr->head_dim);
    tm_example_begin(example, attr, sizeof *attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, o, 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, qkv, 0, 1);
    tm_example_in(example, 2, TM_ROLE_ACTIVATION, o, 0, 0.5);
    tm_example_in(example, 3, TM_ROLE_STATISTIC, attention_lse_shape(qkv, attr), log((double)attr->seq) + 1, 0.2);
    return true;
}

const tm_op tm_op_attention_grad = {
    .name = "attention_grad",
    .formula = "dv = p^T do, ds = p (do v^T - rowsum(do o)), dq = scale ds k, dk = scale ds^T q",
    .group = "attention",
    .n_in = 4,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = attention_grad_infer,
    .reference = attention_grad_reference,
    .cost = attention_grad_cost,
    .example = attention_grad_example,
    .rounding = attention_rounding,
    .in_name = { "do (N, H D)", "qkv (N, (H + 2J) D)", "o (N, H D)", "lse (B, H, T)" },
    .out_name = { "dqkv (N, (H + 2J) D)" },
    .attributes = "seq, heads, kv_heads, head_dim, scale, causal, window",
};
