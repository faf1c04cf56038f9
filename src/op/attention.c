/* SPDX-License-Identifier: Apache-2.0 */
/* op/attention.c - scaled dot-product attention with grouped key/value heads, documents, windows and sinks.
 *
 *   s_ij = scale <q_i, k_j>,  p_ij = exp(s_ij - lse_i),  lse_i = ln (sum_j exp(s_ij) + exp(sink_h))    j visible to i
 *   o_i  = sum_j p_ij v_j                                  (Vaswani et al. 2017, eq. 1; groups: Ainslie et al. 2023)
 *   dv_j = sum_i p_ij do_i,   delta_i = <do_i, o_i>
 *   ds_ij = p_ij (<do_i, v_j> - delta_i)                   (Dao et al. 2022, appendix B.2)
 *   dq_i = scale sum_j ds_ij k_j,  dk_j = scale sum_i ds_ij q_i;  dk and dv are summed over the query heads of a group
 *   dsink_h = - sum_i exp(sink_h - lse_i) delta_i          (a sink is a logit without a value; gpt-oss, OpenAI 2025)
 *
 * Query i of a sequence stands at position p = q_offset + i, key j at position j. It sees key j when j < seq_k, and
 * j <= p (causal), and j > p - window (window), and j >= first_key[i] - key0 (documents of a packed sequence). Rows
 * that it does not see do not count, but must be finite: kernels may multiply them by 0. A query that sees no key has o
 * = 0 and lse = sink, or -infinity without sinks. Query head h reads key/value head h / (H / J).
 *
 * q (B seq_q, H dim_qk), k (B seq_k, J dim_qk), v (B seq_k, J dim_v), [first_key (B seq_q) int32], [sinks (H)]
 *   -> o (B seq_q, H dim_v), lse (B, H, seq_q)
 * q, k and v may be views: columns of one fused matrix.
 *
 * Costs count the pairs that causality and window leave. What documents leave is in the data: with first_key, costs are
 * those of one document, the most that it can be.
 */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>

/* `in`: q, k, v, first_key, sinks. */
static const char *attention_check(const tm_shape *in, const tm_attention_attr *attr)
{
    if (attr->seq_q < 1 || attr->seq_k < 1) return "the sequence lengths must be positive";
    if (attr->heads < 1 || attr->kv_heads < 1 || attr->dim_qk < 1 || attr->dim_v < 1)
        return "heads, key/value heads and head sizes must be positive";
    if (attr->window < 0 || (attr->window > 0 && !attr->causal)) return "a window needs causal attention";
    if (attr->heads % attr->kv_heads != 0) return "the heads must be a multiple of the key/value heads";
    if (in[0].rank != 2 || in[0].n[1] != attr->heads * attr->dim_qk)
        return "q must have the shape (rows, heads x size of a query)";
    if (in[0].n[0] % attr->seq_q != 0) return "the rows of q must be a multiple of the sequence length";
    int64_t batch = in[0].n[0] / attr->seq_q, keys = batch * attr->seq_k;
    if (!tm_shape_is_matrix(in[1], keys, attr->kv_heads * attr->dim_qk))
        return "k must have the shape (sequences x keys, key/value heads x size of a key)";
    if (!tm_shape_is_matrix(in[2], keys, attr->kv_heads * attr->dim_v))
        return "v must have the shape (sequences x keys, key/value heads x size of a value)";
    if (tm_shape_present(in[3]) && !tm_shape_is_vector(in[3], in[0].n[0]))
        return "first_key must have one value per row of q";
    if (tm_shape_present(in[4]) && !tm_shape_is_vector(in[4], attr->heads)) return "sinks must have one value per head";
    return NULL;
}

static tm_shape o_shape(tm_shape q, const tm_attention_attr *attr)
{
    return tm_shape_2(q.n[0], attr->heads * attr->dim_v);
}
static tm_shape lse_shape(tm_shape q, const tm_attention_attr *attr)
{
    return tm_shape_3(q.n[0] / attr->seq_q, attr->heads, attr->seq_q);
}

static const char *attention_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    if ((why = attention_check(in, attr))) return why;
    if ((why = tm_shape_fit(&out[0], o_shape(in[0], attr), "o must have one head per query head"))) return why;
    return tm_shape_fit(&out[1], lse_shape(in[0], attr), "lse must have the shape (sequences, heads, queries)");
}

/* Keys that a query at position p sees: first_key .. end_of_keys - 1. `document`: the first key of its document, or 0.
 */
static int64_t first_key(const tm_attention_attr *attr, int64_t p, int64_t document)
{
    int64_t first = attr->window > 0 && p >= attr->window ? p - attr->window + 1 : 0;
    return first > document ? first : document;
}
static int64_t end_of_keys(const tm_attention_attr *attr, int64_t p)
{
    return attr->causal && p + 1 < attr->seq_k ? p + 1 : attr->seq_k;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Head h of query i of a sequence: where its operands are, and the keys that it sees. */
typedef struct {
    const tm_attention_attr *attr;
    const tm_view           *k, *v;
    int64_t                  query, row0; /* row of q; row of key 0 */
    int64_t                  k_at, v_at;  /* columns of its key/value head */
    int64_t                  first, end;  /* keys that it sees */
    int64_t                  statistic;   /* of lse */
} place;

/* `in`: q, k, v, first_key, sinks. */
static place place_of(const tm_view *in, const tm_attention_attr *attr, int64_t b, int64_t h, int64_t i)
{
    const int32_t *documents = in[3].data;
    int64_t        j = h / (attr->heads / attr->kv_heads), p = attr->q_offset + i, query = b * attr->seq_q + i;
    return (place){ .attr = attr,
                    .k = &in[1],
                    .v = &in[2],
                    .query = query,
                    .row0 = b * attr->seq_k,
                    .k_at = j * attr->dim_qk,
                    .v_at = j * attr->dim_v,
                    .first = first_key(attr, p, documents ? documents[query] - attr->key0 : 0),
                    .end = end_of_keys(attr, p),
                    .statistic = (b * attr->heads + h) * attr->seq_q + i };
}
static const double *key_of(const place *at, int64_t j)
{
    return tm_view_row(at->k, at->row0 + j) + at->k_at;
}
static const double *value_of(const place *at, int64_t j)
{
    return tm_view_row(at->v, at->row0 + j) + at->v_at;
}

static void attend(const place *at, const double *q, const double *sink, double *o, double *lse)
{
    const tm_attention_attr *attr = at->attr;
    double                   max = sink ? *sink : -HUGE_VAL, sum = 0;
    for (int64_t j = at->first; j < at->end; j++) max = fmax(max, attr->scale * dot(q, key_of(at, j), attr->dim_qk));
    if (sink) sum = exp(*sink - max);
    for (int64_t d = 0; d < attr->dim_v; d++) o[d] = 0;
    for (int64_t j = at->first; j < at->end; j++) {
        double e = exp(attr->scale * dot(q, key_of(at, j), attr->dim_qk) - max);
        sum += e;
        for (int64_t d = 0; d < attr->dim_v; d++) o[d] += e * value_of(at, j)[d];
    }
    for (int64_t d = 0; d < attr->dim_v && sum > 0; d++) o[d] /= sum;
    *lse = max + log(sum);
}

static void attention_reference(const tm_call *call)
{
    const tm_attention_attr *attr = call->attr;
    const double            *sinks = call->in[4].data;
    double                  *lse = call->out[1].data;
    for (int64_t b = 0; b < call->in[0].shape.n[0] / attr->seq_q; b++)
        for (int64_t h = 0; h < attr->heads; h++)
            for (int64_t i = 0; i < attr->seq_q; i++) {
                place at = place_of(call->in, attr, b, h, i);
                attend(&at, tm_view_row(&call->in[0], at.query) + h * attr->dim_qk, sinks ? &sinks[h] : NULL,
                       tm_view_row(&call->out[0], at.query) + h * attr->dim_v, &lse[at.statistic]);
            }
}

static void attention_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id        d_o = tm_gradient_of(gradient, node->out[0]);
    const tm_tensor_id *in = node->in;
    bool                wanted = false;
    unsigned            accumulate = 0;
    for (int k = 0; k < 5; k++) wanted |= k != 3 && tm_gradient_wanted(gradient, in[k]);
    if (d_o == TM_NONE || !wanted) return;
    tm_tensor_id from[TM_MAX_IN] = { d_o, in[0], in[1], in[2], node->out[0], node->out[1], in[3], in[4] };
    tm_tensor_id out[TM_MAX_OUT];
    for (int k = 0; k < 3; k++) out[k] = tm_gradient_out(gradient, in[k]);
    out[3] = tm_gradient_parameter(gradient, in[4], 3, &accumulate);
    tm_gradient_emit(gradient, TM_OP_attention_grad, node->attr, node->attr_bytes, from, out, accumulate);
    for (int k = 0; k < 3; k++) tm_gradient_add(gradient, in[k], out[k]);
}

/* Sum of min(n, keys) over n = 1 .. last. */
static double pairs_up_to(int64_t last, int64_t keys)
{
    double n = (double)last, most = (double)keys;
    if (last <= 0) return 0;
    return last <= keys ? n * (n + 1) / 2 : most * (most + 1) / 2 + (n - most) * most;
}

/* Pairs of a query and a key that it sees, over batch and heads, if there are no documents. */
static double visible_pairs(const tm_attention_attr *attr, tm_shape q)
{
    int64_t from = attr->q_offset, to = from + attr->seq_q;
    double  pairs = (double)attr->seq_q * (double)attr->seq_k;
    if (attr->causal) pairs = pairs_up_to(to, attr->seq_k) - pairs_up_to(from, attr->seq_k);
    if (attr->window > 0) /* the first keys of late queries are out of sight */
        pairs -= pairs_up_to(to - attr->window, attr->seq_k) - pairs_up_to(from - attr->window, attr->seq_k);
    return (double)(q.n[0] / attr->seq_q) * (double)attr->heads * pairs;
}

static tm_cost attention_cost(const tm_call *call)
{
    const tm_attention_attr *attr = call->attr;
    double                   pairs = visible_pairs(attr, call->in[0].shape);
    tm_cost cost = tm_call_cost(call, 2 * pairs * (double)(attr->dim_qk + attr->dim_v)); /* q k^T, p v */
    cost.vector = 5 * pairs; /* scale, largest, -, exp, sum */
    return cost;
}

/* A score, then a sum over keys; dk and dv: over the queries of all heads of a group; dsinks: over all queries. Matrix
 * units take p and ds as bfloat16, as flash attention does (Dao et al. 2022); lse and dsinks are made without them. */
static tm_rounding attention_rounding(const tm_call *call, int k)
{
    const tm_attention_attr *attr = call->attr;
    int64_t                  rows = attr->seq_q * (attr->heads / attr->kv_heads);
    if (k == 3) rows = call->in[0].shape.n[0];
    tm_rounding r = tm_rounding_sum(attr->dim_qk + (attr->dim_v > attr->dim_qk ? attr->dim_v - attr->dim_qk : 0) +
                                    (rows > attr->seq_k ? rows : attr->seq_k));
    r.narrow = call->op == &tm_op_attention ? k == 0 : k < 3;
    return r;
}

static const struct {
    int64_t           batch;
    tm_attention_attr attr;
    int64_t           first_keys; /* > 0: first keys below it */
    bool              sinks;
} cases[] = {
#define SELF(T, H, J, D) .seq_q = T, .seq_k = T, .heads = H, .kv_heads = J, .dim_qk = D, .dim_v = D
    { 2, { SELF(1, 1, 1, 1), .scale = 1, .causal = 1 }, 0, true }, /* alone, a key gets no dq */
    { 2, { SELF(3, 2, 1, 4), .scale = 0.5, .causal = 1 }, 0, false },
    { 1, { SELF(7, 4, 2, 3), .scale = 0.577, .causal = 0 }, 0, false },
    { 2, { SELF(9, 3, 3, 8), .scale = 0.353, .causal = 1 }, 0, false },
    { 3, { SELF(8, 6, 2, 7), .scale = 0.8, .causal = 1 }, 0, false },
    { 1, { SELF(65, 2, 1, 16), .scale = 0.25, .causal = 1 }, 0, false },
    { 2, { SELF(33, 4, 4, 9), .scale = 0.333, .causal = 0 }, 0, false },
    { 1, { SELF(130, 1, 1, 64), .scale = 0.125, .causal = 1 }, 0, false },
    { 2, { SELF(9, 2, 1, 5), .scale = 0.4, .causal = 1, .window = 1 }, 0, true },
    { 1, { SELF(77, 2, 2, 8), .scale = 0.35, .causal = 1, .window = 40 }, 0, false },
    { 2, { SELF(12, 2, 1, 4), .scale = 0.5, .causal = 1, .window = 12 }, 0, false },
    { 1, { SELF(2, 4, 1, 16), .scale = 0.25, .causal = 0 }, 0, false },
    { 2, { SELF(31, 2, 2, 24), .scale = 0.2, .causal = 1 }, 0, false },
    { 1, { SELF(32, 1, 1, 2), .scale = 0.7, .causal = 1 }, 0, false },
    { 1, { SELF(33, 3, 1, 17), .scale = 0.24, .causal = 1, .window = 32 }, 0, false },
    { 2, { SELF(97, 4, 2, 16), .scale = 0.25, .causal = 1, .window = 33 }, 0, false },
    { 1, { SELF(33, 1, 1, 40), .scale = 0.16, .causal = 1, .window = 7 }, 0, false },
    { 1, { SELF(41, 3, 1, 5), .scale = 0.4, .causal = 0 }, 0, false },
    { 2, { SELF(97, 4, 2, 16), .scale = 0.25, .causal = 1, .window = 2 }, 0, false },
    { 1, { SELF(97, 2, 2, 16), .scale = 0.25, .causal = 1, .window = 31 }, 0, false },
    { 1, { SELF(97, 2, 1, 16), .scale = 0.25, .causal = 1, .window = 65 }, 0, false },
    { 2, { SELF(97, 2, 1, 16), .scale = 0.25, .causal = 1, .window = 96 }, 0, false },
    /* for the blocks of kernels: 32 queries; 512, 256 or 128 keys for heads up to 64, 128 and 256 */
    { 1, { SELF(97, 4, 1, 80), .scale = 0.11, .causal = 0 }, 0, false },
    { 1, { SELF(41, 3, 1, 255), .scale = 0.06, .causal = 1 }, 0, false },
    { 2, { SELF(65, 2, 1, 256), .scale = 0.06, .causal = 1 }, 0, false },
    { 1, { SELF(300, 2, 1, 200), .scale = 0.07, .causal = 1, .window = 129 }, 0, false },
    { 1, { SELF(1500, 1, 1, 8), .scale = 0.35, .causal = 1, .window = 1 }, 0, false },
    { 2, { SELF(1060, 1, 1, 8), .scale = 0.35, .causal = 1, .window = 511 }, 0, false },
    { 1, { SELF(1300, 1, 1, 8), .scale = 0.35, .causal = 1, .window = 513 }, 0, false },
    { 1, { SELF(200, 2, 2, 128), .scale = 0.09, .causal = 1 }, 0, false },
    { 2, { SELF(300, 1, 1, 200), .scale = 0.07, .causal = 0 }, 0, false },
    { 1, { SELF(513, 4, 2, 64), .scale = 0.125, .causal = 1 }, 0, false },
    { 1, { SELF(600, 1, 1, 96), .scale = 0.1, .causal = 1, .window = 257 }, 0, false },
    { 1, { SELF(1060, 1, 1, 48), .scale = 0.14, .causal = 0 }, 0, false },
    { 1, { SELF(1060, 4, 1, 8), .scale = 0.35, .causal = 1, .window = 64 }, 0, false },
    { 1, { SELF(1060, 2, 1, 8), .scale = 0.35, .causal = 1 }, 0, false },
#undef SELF
#define CROSS(Q, K, OFFSET, H, J, DQK, DV)                                                                             \
    .seq_q = Q, .seq_k = K, .q_offset = OFFSET, .heads = H, .kv_heads = J, .dim_qk = DQK, .dim_v = DV
    { 2, { CROSS(5, 9, 4, 2, 1, 6, 4), .scale = 0.4, .causal = 1 }, 0, false }, /* keys from before */
    { 1, { CROSS(6, 4, 0, 4, 2, 3, 5), .scale = 0.6, .causal = 1 }, 0, true },  /* fewer keys than queries */
    { 2,
      { CROSS(7, 20, 9, 2, 2, 8, 3), .scale = 0.35, .causal = 1 },
      10,
      false }, /* documents; keys that nobody sees */
    { 1,
      { CROSS(70, 90, 20, 4, 1, 24, 16), .scale = 0.2, .causal = 1, .window = 30 },
      21,
      true },                                                                           /* all of it together */
    { 1, { CROSS(40, 600, 550, 1, 1, 12, 20), .scale = 0.3, .causal = 1 }, 551, true }, /* past a block of keys */
    { 2, { CROSS(8, 8, 3, 2, 1, 192, 128), .scale = 0.07, .causal = 0 }, 8, true },
    { 2, { CROSS(40, 40, 40, 2, 1, 8, 8), .scale = 0.35, .causal = 1, .key0 = 20 }, 60, false }, /* a later chunk's */
#undef CROSS
};

static void example_inputs(tm_example *example, int k, int first)
{
    const tm_attention_attr *attr = &cases[k].attr;
    int64_t                  keys = cases[k].batch * attr->seq_k;
    tm_shape                 q = tm_shape_2(cases[k].batch * attr->seq_q, attr->heads * attr->dim_qk);
    tm_example_in(example, first, TM_ROLE_ACTIVATION, q, 0, 1);
    tm_example_in(example, first + 1, TM_ROLE_ACTIVATION, tm_shape_2(keys, attr->kv_heads * attr->dim_qk), 0, 1);
    tm_example_in(example, first + 2, TM_ROLE_ACTIVATION, tm_shape_2(keys, attr->kv_heads * attr->dim_v), 0, 1);
}
static void example_extras(tm_example *example, int k, int first)
{
    const tm_attention_attr *attr = &cases[k].attr;
    if (cases[k].first_keys)
        tm_example_int(example, first, tm_shape_1(cases[k].batch * attr->seq_q), cases[k].first_keys);
    if (cases[k].sinks) tm_example_in(example, first + 1, TM_ROLE_PARAMETER, tm_shape_1(attr->heads), 0.5, 1);
}

static bool attention_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &cases[k].attr, sizeof cases[k].attr);
    example_inputs(example, k, 0);
    example_extras(example, k, 3);
    return true;
}

const tm_op tm_op_attention = {
    .name = "attention",
    .formula = "o = softmax(scale q k^T) v, lse = ln sum exp(scale q k^T)",
    .group = "attention",
    .n_in = 5,
    .n_out = 2,
    .optional_in = 1U << 3 | 1U << 4,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_STATISTIC },
    .infer = attention_infer,
    .reference = attention_reference,
    .gradient = attention_gradient,
    .cost = attention_cost,
    .any_dtype_in = 1U << 4,
    .strided_in = 1U << 0 | 1U << 1 | 1U << 2,
    .example = attention_example,
    .rounding = attention_rounding,
    .in_name = { "q (B seq_q, H dim_qk)", "k (B seq_k, J dim_qk)", "v (B seq_k, J dim_v)", "[first_key (B seq_q)]",
                 "[sinks (H)]" },
    .out_name = { "o (B seq_q, H dim_v)", "lse (B, H, seq_q)" },
    .attributes = "seq_q, seq_k, q_offset, heads, kv_heads, dim_qk, dim_v, scale, causal, window, key0",
};

/* in: do, q, k, v, o, lse, [first_key], [sinks]; out: dq, dk, dv, each like its own; [dsinks (H), by the caller] */
static const char *attention_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    tm_shape    own[] = { in[1], in[2], in[3], in[6], in[7] };
    if ((why = attention_check(own, attr))) return why;
    if (!tm_shape_equal(in[4], o_shape(in[1], attr))) return "o must have one head per query head";
    if (!tm_shape_equal(in[0], in[4])) return "do must have the shape of o";
    if (!tm_shape_equal(in[5], lse_shape(in[1], attr))) return "lse must have the shape (sequences, heads, queries)";
    if (tm_shape_present(out[3]) && !tm_shape_present(in[7])) return "without sinks they have no gradient";
    for (int k = 0; k < 3; k++)
        if ((why = tm_shape_fit(&out[k], in[1 + k], "dq, dk and dv must have the shapes of q, k and v"))) return why;
    return tm_shape_fit_optional(&out[3], tm_shape_present(in[7]) ? in[7] : out[3],
                                 "dsinks must have one value per head");
}

/* Adds what head h of a query contributes to the rows that it reads. */
static void attend_grad(const tm_call *call, const place *at, int64_t h)
{
    const tm_attention_attr *attr = at->attr;
    const double            *q = tm_view_row(&call->in[1], at->query) + h * attr->dim_qk, *sinks = call->in[7].data;
    const double            *d_o = tm_view_row(&call->in[0], at->query) + h * attr->dim_v;
    const double            *o = tm_view_row(&call->in[4], at->query) + h * attr->dim_v;
    double                  *dq = tm_view_row(&call->out[0], at->query) + h * attr->dim_qk, *dsinks = call->out[3].data;
    double                   delta = dot(d_o, o, attr->dim_v), lse = ((const double *)call->in[5].data)[at->statistic];
    for (int64_t j = at->first; j < at->end; j++) {
        const double *k = key_of(at, j), *v = value_of(at, j);
        double       *dk = tm_view_row(&call->out[1], at->row0 + j) + at->k_at;
        double       *dv = tm_view_row(&call->out[2], at->row0 + j) + at->v_at;
        double        p = exp(attr->scale * dot(q, k, attr->dim_qk) - lse);
        double        ds = p * (dot(d_o, v, attr->dim_v) - delta) * attr->scale;
        for (int64_t d = 0; d < attr->dim_qk; d++) {
            dq[d] += ds * k[d];
            dk[d] += ds * q[d];
        }
        for (int64_t d = 0; d < attr->dim_v; d++) dv[d] += p * d_o[d];
    }
    if (dsinks) dsinks[h] -= exp(sinks[h] - lse) * delta;
}

static void attention_grad_reference(const tm_call *call)
{
    const tm_attention_attr *attr = call->attr;
    const tm_view            own[] = { call->in[1], call->in[2], call->in[3], call->in[6], call->in[7] };
    for (int k = 0; k < 3; k++)
        for (int64_t r = 0; r < call->out[k].shape.n[0]; r++)
            for (int64_t c = 0; c < call->out[k].shape.n[1]; c++) tm_view_row(&call->out[k], r)[c] = 0;
    tm_call_sums(call, 3);
    for (int64_t b = 0; b < call->in[1].shape.n[0] / attr->seq_q; b++)
        for (int64_t h = 0; h < attr->heads; h++)
            for (int64_t i = 0; i < attr->seq_q; i++) {
                place at = place_of(own, attr, b, h, i);
                attend_grad(call, &at, h);
            }
}

static tm_cost attention_grad_cost(const tm_call *call)
{
    const tm_attention_attr *attr = call->attr;
    double                   pairs = visible_pairs(attr, call->in[1].shape);
    /* q k^T, dq, dk; do v^T, dv */
    tm_cost cost = tm_call_cost(call, 2 * pairs * (double)(3 * attr->dim_qk + 2 * attr->dim_v));
    cost.vector = 6 * pairs; /* scale, -, exp; -, *, scale */
    return cost;
}

static bool attention_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    const tm_attention_attr *attr = &cases[k].attr;
    tm_shape                 q = tm_shape_2(cases[k].batch * attr->seq_q, attr->heads * attr->dim_qk);
    tm_example_begin(example, attr, sizeof *attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, o_shape(q, attr), 0, 1);
    example_inputs(example, k, 1);
    tm_example_in(example, 4, TM_ROLE_ACTIVATION, o_shape(q, attr), 0, 0.5);
    tm_example_in(example, 5, TM_ROLE_STATISTIC, lse_shape(q, attr), log((double)attr->seq_k) + 1, 0.2);
    example_extras(example, k, 6);
    if (cases[k].sinks) example->out[3] = tm_shape_1(attr->heads);
    return true;
}

const tm_op tm_op_attention_grad = {
    .name = "attention_grad",
    .formula = "dv = p^T do, ds = p (do v^T - rowsum(do o)), dq = scale ds k, dk = scale ds^T q",
    .group = "attention",
    .n_in = 8,
    .n_out = 4,
    .optional_in = 1U << 6 | 1U << 7,
    .optional_out = 1U << 3,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_ACTIVATION, TM_ROLE_ACTIVATION, TM_ROLE_GRADIENT },
    .infer = attention_grad_infer,
    .reference = attention_grad_reference,
    .cost = attention_grad_cost,
    .any_dtype_in = 1U << 7,
    .strided_in = 1U << 1 | 1U << 2 | 1U << 3,
    .strided_out = 1U << 0 | 1U << 1 | 1U << 2,
    .example = attention_grad_example,
    .rounding = attention_rounding,
    .in_name = { "do (B seq_q, H dim_v)", "q (B seq_q, H dim_qk)", "k (B seq_k, J dim_qk)", "v (B seq_k, J dim_v)",
                 "o (B seq_q, H dim_v)", "lse (B, H, seq_q)", "[first_key (B seq_q)]", "[sinks (H)]" },
    .out_name = { "dq (B seq_q, H dim_qk)", "dk (B seq_k, J dim_qk)", "dv (B seq_k, J dim_v)", "[dsinks (H)]" },
    .attributes = "seq_q, seq_k, q_offset, heads, kv_heads, dim_qk, dim_v, scale, causal, window, key0",
};
