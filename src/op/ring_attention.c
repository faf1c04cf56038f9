/* SPDX-License-Identifier: Apache-2.0 */
/* op/ring_attention.c - causal attention (op/attention.c) whose queries, keys and values ranks have in parts, without
 * any rank having all keys (Liu et al. 2023): keys and values go round the ring of the R ranks, and each adds up what
 * its queries see of those that come by (op/merge_attention.c). The gradients of keys and values go round with them,
 * and get to their owner in the end.
 *
 * A sequence of 2 R chunks of L tokens; a rank has the chunks r and 2 R - 1 - r of B sequences: first those of all
 * sequences in front, then the others. In every step but the first each rank has two pairs of chunks to compute.
 *
 * q (2 B L, H dim_qk), kv (2 B L, J (dim_qk + dim_v)), [first_key (2 B L) int32, counted in the sequence], [sinks (H)]
 *   -> o (2 B L, H dim_v), lse (2 B, H, L)
 *
 * No device computes it: a pass makes attention of chunks, merges and messages of it (graph/passes/ring.c). A reference
 * exists for a group of one, which has all of the two chunks.
 */
#include "base/status.h"
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>

static tm_shape o_shape(tm_shape q, const tm_attention_attr *attr)
{
    return tm_shape_2(q.n[0], attr->heads * attr->dim_v);
}
static tm_shape lse_shape(tm_shape q, const tm_attention_attr *attr)
{
    return tm_shape_3(q.n[0] / attr->seq_q, attr->heads, attr->seq_q);
}

/* `in`: q, kv, first_key, sinks. */
static const char *ring_check(const tm_shape *in, const tm_ring_attr *ring)
{
    const tm_attention_attr *attr = &ring->attention;
    if (ring->ranks < 1 || ring->rank < 0 || ring->rank >= ring->ranks) return "the rank is not in the group";
    if (!attr->causal || attr->seq_q < 1 || attr->seq_q != attr->seq_k)
        return "attention is causal, of chunks of equal length";
    if (attr->heads < 1 || attr->kv_heads < 1 || attr->heads % attr->kv_heads != 0)
        return "the heads must be a multiple of the key/value heads";
    if (in[0].rank != 2 || in[0].n[1] != attr->heads * attr->dim_qk || in[0].n[0] % (2 * attr->seq_q) != 0)
        return "q must have the shape (rows of two chunks, heads x size of a query)";
    if (!tm_shape_is_matrix(in[1], in[0].n[0], attr->kv_heads * (attr->dim_qk + attr->dim_v)))
        return "kv must have the rows of q, and the columns of keys and values";
    if (tm_shape_present(in[2]) && !tm_shape_is_vector(in[2], in[0].n[0]))
        return "first_key must have one value per row of q";
    if (tm_shape_present(in[3]) && !tm_shape_is_vector(in[3], attr->heads)) return "sinks must have one value per head";
    return NULL;
}

static const char *ring_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const tm_ring_attr *ring = attr;
    const char         *why;
    if ((why = ring_check(in, ring))) return why;
    if ((why = tm_shape_fit(&out[0], o_shape(in[0], &ring->attention), "o must have one head per query head")))
        return why;
    return tm_shape_fit(&out[1], lse_shape(in[0], &ring->attention),
                        "lse must have the shape (chunks, heads, queries)");
}

/* Head h of query i of chunk c of sequence b, in a group of one. */
typedef struct {
    const tm_attention_attr *attr;
    const tm_view           *kv;
    int64_t                  rows, sequence;         /* of a chunk of all sequences; b */
    int64_t                  query, statistic, head; /* row of q; of lse; key/value head */
    int64_t                  first, end;             /* keys that it sees */
} place;

/* `in`: kv, first_key. */
static place place_of(const tm_attention_attr *attr, const tm_view *kv, const tm_view *first_key, int64_t row,
                      int64_t h)
{
    int64_t        rows = kv->shape.n[0] / 2, chunk = row / rows, p = chunk * attr->seq_q + row % attr->seq_q;
    const int32_t *documents = first_key->data;
    int64_t        first = attr->window > 0 && p >= attr->window ? p - attr->window + 1 : 0;
    if (documents && documents[row] > first) first = documents[row];
    return (place){ .attr = attr,
                    .kv = kv,
                    .rows = rows,
                    .sequence = row % rows / attr->seq_q,
                    .query = row,
                    .statistic = (row / attr->seq_q * attr->heads + h) * attr->seq_q + row % attr->seq_q,
                    .head = h / (attr->heads / attr->kv_heads),
                    .first = first,
                    .end = p + 1 };
}

/* Key j of its sequence; the values stand behind all keys. */
static double *key_of(const place *at, const tm_view *kv, int64_t j)
{
    int64_t L = at->attr->seq_k;
    return tm_view_row(kv, j / L * at->rows + at->sequence * L + j % L) + at->head * at->attr->dim_qk;
}
static double *value_of(const place *at, const tm_view *kv, int64_t j)
{
    int64_t L = at->attr->seq_k;
    return tm_view_row(kv, j / L * at->rows + at->sequence * L + j % L) + at->attr->kv_heads * at->attr->dim_qk +
           at->head * at->attr->dim_v;
}

static double dot(const double *a, const double *b, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static void attend(const place *at, const double *q, const double *sink, double *o, double *lse)
{
    const tm_attention_attr *attr = at->attr;
    double                   max = sink ? *sink : -HUGE_VAL, sum = 0;
    for (int64_t j = at->first; j < at->end; j++)
        max = fmax(max, attr->scale * dot(q, key_of(at, at->kv, j), attr->dim_qk));
    if (sink) sum = exp(*sink - max);
    for (int64_t d = 0; d < attr->dim_v; d++) o[d] = 0;
    for (int64_t j = at->first; j < at->end; j++) {
        double e = exp(attr->scale * dot(q, key_of(at, at->kv, j), attr->dim_qk) - max);
        sum += e;
        for (int64_t d = 0; d < attr->dim_v; d++) o[d] += e * value_of(at, at->kv, j)[d];
    }
    for (int64_t d = 0; d < attr->dim_v && sum > 0; d++) o[d] /= sum;
    *lse = max + log(sum);
}

static void ring_reference(const tm_call *call)
{
    const tm_ring_attr      *ring = call->attr;
    const tm_attention_attr *attr = &ring->attention;
    const double            *sinks = call->in[3].data;
    double                  *lse = call->out[1].data;
    TM_ASSERT(ring->ranks == 1);
    for (int64_t row = 0; row < call->in[0].shape.n[0]; row++)
        for (int64_t h = 0; h < attr->heads; h++) {
            place at = place_of(attr, &call->in[1], &call->in[2], row, h);
            attend(&at, tm_view_row(&call->in[0], row) + h * attr->dim_qk, sinks ? &sinks[h] : NULL,
                   tm_view_row(&call->out[0], row) + h * attr->dim_v, &lse[at.statistic]);
        }
}

static void ring_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id        d_o = tm_gradient_of(gradient, node->out[0]);
    const tm_tensor_id *in = node->in;
    bool                wanted = false;
    unsigned            accumulate = 0;
    for (int k = 0; k < 4; k++) wanted |= k != 2 && tm_gradient_wanted(gradient, in[k]);
    if (d_o == TM_NONE || !wanted) return;
    tm_tensor_id from[TM_MAX_IN] = { d_o, in[0], in[1], node->out[0], node->out[1], in[2], in[3] };
    tm_tensor_id out[TM_MAX_OUT] = { TM_NONE, TM_NONE, TM_NONE };
    out[2] = tm_gradient_parameter(gradient, in[3], 2, &accumulate);
    tm_gradient_emit(gradient, TM_OP_ring_attention_grad, node->attr, node->attr_bytes, from, out, accumulate);
    for (int k = 0; k < 2; k++)
        if (tm_gradient_wanted(gradient, in[k])) tm_gradient_add(gradient, in[k], out[k]);
}

/* Every pair of a query and a key that causality leaves, of a rank of R: R (2 L)^2 / 2. */
static tm_cost ring_cost(const tm_call *call, int q, double products)
{
    const tm_ring_attr *ring = call->attr;
    double              L = (double)ring->attention.seq_q, sequences = (double)call->in[q].shape.n[0] / (2 * L);
    return tm_call_cost(call,
                        sequences * (double)ring->attention.heads * 2 * products * 2 * L * L * (double)ring->ranks);
}
static tm_cost ring_attention_cost(const tm_call *call)
{
    const tm_ring_attr *ring = call->attr;
    return ring_cost(call, 0, (double)(ring->attention.dim_qk + ring->attention.dim_v));
}
static tm_cost ring_attention_grad_cost(const tm_call *call)
{
    const tm_ring_attr *ring = call->attr;
    return ring_cost(call, 1, (double)(3 * ring->attention.dim_qk + 2 * ring->attention.dim_v));
}

static const struct {
    int64_t batch, length, heads, kv_heads, dim_qk, dim_v, window;
    bool    documents, sinks;
} cases[] = { { 1, 1, 1, 1, 2, 3, 0, false, false },
              { 2, 3, 2, 1, 4, 4, 0, false, false },
              { 1, 5, 4, 2, 3, 6, 0, true, false },
              { 2, 4, 2, 2, 5, 2, 3, false, true },
              { 2, 6, 2, 1, 4, 3, 7, true, true } };

static tm_ring_attr ring_of(int k)
{
    return (tm_ring_attr){ .ranks = 1,
                           .attention = { .seq_q = cases[k].length,
                                          .seq_k = cases[k].length,
                                          .heads = cases[k].heads,
                                          .kv_heads = cases[k].kv_heads,
                                          .dim_qk = cases[k].dim_qk,
                                          .dim_v = cases[k].dim_v,
                                          .scale = 0.5,
                                          .causal = 1,
                                          .window = cases[k].window } };
}

/* q, kv from input `first` on; first_key and sinks from input `extras`. */
static void example_inputs(tm_example *example, int k, int first, int extras)
{
    tm_ring_attr             ring = ring_of(k);
    const tm_attention_attr *attr = &ring.attention;
    int64_t                  rows = 2 * cases[k].batch * attr->seq_q;
    tm_example_in(example, first, TM_ROLE_ACTIVATION, tm_shape_2(rows, attr->heads * attr->dim_qk), 0, 1);
    tm_example_in(example, first + 1, TM_ROLE_ACTIVATION,
                  tm_shape_2(rows, attr->kv_heads * (attr->dim_qk + attr->dim_v)), 0, 1);
    if (cases[k].documents) tm_example_int(example, extras, tm_shape_1(rows), 1); /* all of one document */
    if (cases[k].sinks) tm_example_in(example, extras + 1, TM_ROLE_PARAMETER, tm_shape_1(attr->heads), 0.5, 1);
}

static bool ring_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_ring_attr ring = ring_of(k);
    tm_example_begin(example, &ring, sizeof ring);
    example_inputs(example, k, 0, 2);
    return true;
}

const tm_op tm_op_ring_attention = {
    .name = "ring_attention",
    .formula = "o = softmax(scale q k^T) v, lse = ln sum exp(scale q k^T), keys and values passed from rank to rank",
    .group = "attention",
    .n_in = 4,
    .n_out = 2,
    .optional_in = 1U << 2 | 1U << 3,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_STATISTIC },
    .infer = ring_infer,
    .reference = ring_reference,
    .gradient = ring_gradient,
    .cost = ring_attention_cost,
    .any_dtype_in = 1U << 3,
    .example = ring_example,
    .no_fast_kernel = "a pass makes attention of chunks, merges and messages of it",
    .in_name = { "q (2 B L, H dim_qk)", "kv (2 B L, J (dim_qk + dim_v))", "[first_key (2 B L)]", "[sinks (H)]" },
    .out_name = { "o (2 B L, H dim_v)", "lse (2 B, H, L)" },
    .attributes = "axes, ranks, rank, attention",
};

/* in: do, q, kv, o, lse, [first_key], [sinks]; out: dq, dkv, [dsinks (H), by the caller] */
static const char *ring_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const tm_ring_attr *ring = attr;
    const char         *why;
    tm_shape            own[] = { in[1], in[2], in[5], in[6] };
    if ((why = ring_check(own, ring))) return why;
    if (!tm_shape_equal(in[3], o_shape(in[1], &ring->attention))) return "o must have one head per query head";
    if (!tm_shape_equal(in[0], in[3])) return "do must have the shape of o";
    if (!tm_shape_equal(in[4], lse_shape(in[1], &ring->attention)))
        return "lse must have the shape (chunks, heads, queries)";
    if (tm_shape_present(out[2]) && !tm_shape_present(in[6])) return "without sinks they have no gradient";
    for (int k = 0; k < 2; k++)
        if ((why = tm_shape_fit(&out[k], in[1 + k], "dq and dkv must have the shapes of q and kv"))) return why;
    return tm_shape_fit_optional(&out[2], tm_shape_present(in[6]) ? in[6] : out[2],
                                 "dsinks must have one value per head");
}

static void ring_grad_reference(const tm_call *call)
{
    const tm_ring_attr      *ring = call->attr;
    const tm_attention_attr *attr = &ring->attention;
    const double            *lse = call->in[4].data, *sinks = call->in[6].data;
    double                  *dsinks = tm_call_sums(call, 2);
    TM_ASSERT(ring->ranks == 1);
    for (int k = 0; k < 2; k++) tm_call_sums(call, k);
    for (int64_t row = 0; row < call->in[1].shape.n[0]; row++)
        for (int64_t h = 0; h < attr->heads; h++) {
            place         at = place_of(attr, &call->in[2], &call->in[5], row, h);
            const double *q = tm_view_row(&call->in[1], row) + h * attr->dim_qk;
            const double *d_o = tm_view_row(&call->in[0], row) + h * attr->dim_v;
            double       *dq = tm_view_row(&call->out[0], row) + h * attr->dim_qk, of = lse[at.statistic];
            double        delta = dot(d_o, tm_view_row(&call->in[3], row) + h * attr->dim_v, attr->dim_v);
            for (int64_t j = at.first; j < at.end; j++) {
                const double *k = key_of(&at, &call->in[2], j), *v = value_of(&at, &call->in[2], j);
                double       *dk = key_of(&at, &call->out[1], j), *dv = value_of(&at, &call->out[1], j);
                double        p = exp(attr->scale * dot(q, k, attr->dim_qk) - of);
                double        ds = p * (dot(d_o, v, attr->dim_v) - delta) * attr->scale;
                for (int64_t d = 0; d < attr->dim_qk; d++) dq[d] += ds * k[d], dk[d] += ds * q[d];
                for (int64_t d = 0; d < attr->dim_v; d++) dv[d] += p * d_o[d];
            }
            if (dsinks) dsinks[h] -= exp(sinks[h] - of) * delta;
        }
}

static bool ring_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_ring_attr ring = ring_of(k);
    tm_shape     q = tm_shape_2(2 * cases[k].batch * cases[k].length, cases[k].heads * cases[k].dim_qk);
    tm_example_begin(example, &ring, sizeof ring);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, o_shape(q, &ring.attention), 0, 1);
    example_inputs(example, k, 1, 5);
    tm_example_in(example, 3, TM_ROLE_ACTIVATION, o_shape(q, &ring.attention), 0, 0.5);
    tm_example_in(example, 4, TM_ROLE_STATISTIC, lse_shape(q, &ring.attention), log((double)cases[k].length) + 1, 0.2);
    if (cases[k].sinks) example->out[2] = tm_shape_1(cases[k].heads);
    return true;
}

const tm_op tm_op_ring_attention_grad = {
    .name = "ring_attention_grad",
    .formula = "dv = p^T do, ds = p (do v^T - rowsum(do o)), dq = scale ds k, dk = scale ds^T q",
    .group = "attention",
    .n_in = 7,
    .n_out = 3,
    .optional_in = 1U << 5 | 1U << 6,
    .optional_out = 1U << 2,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_ACTIVATION, TM_ROLE_GRADIENT },
    .infer = ring_grad_infer,
    .reference = ring_grad_reference,
    .cost = ring_attention_grad_cost,
    .any_dtype_in = 1U << 6,
    .example = ring_grad_example,
    .no_fast_kernel = "a pass makes gradients of attention of chunks, sums and messages of it",
    .in_name = { "do (2 B L, H dim_v)", "q (2 B L, H dim_qk)", "kv (2 B L, J (dim_qk + dim_v))", "o (2 B L, H dim_v)",
                 "lse (2 B, H, L)", "[first_key (2 B L)]", "[sinks (H)]" },
    .out_name = { "dq (2 B L, H dim_qk)", "dkv (2 B L, J (dim_qk + dim_v))", "[dsinks (H)]" },
    .attributes = "axes, ranks, rank, attention",
};
