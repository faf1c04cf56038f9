/* SPDX-License-Identifier: Apache-2.0 */
/* op/gated_add.c - a residual with one gate per sample and channel: y = x + gate u (adaLN-Zero: Peebles & Xie
 * 2023, 3.2).
 *
 *   dx = dy,  du = gate dy,  dgate = sum over the rows of the sample of dy u
 *
 * Row n belongs to sample n / T, T = seq. The gate may be a view: columns of a wider product.
 * x (B T, C), u (B T, C), gate (B, C) -> y (B T, C)
 */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

static const char *gated_add_check(tm_shape u, tm_shape gate, const tm_gated_add_attr *attr)
{
    if (attr->seq < 1) return "a sample must have rows";
    if (u.rank != 2) return "u must have two axes (rows, channels)";
    if (gate.rank != 2 || gate.n[1] != u.n[1]) return "the gate must have the shape (samples, channels)";
    return u.n[0] != gate.n[0] * attr->seq ? "the rows of u must be those of the samples" : NULL;
}

static const char *gated_add_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    if ((why = gated_add_check(in[1], in[2], attr))) return why;
    if (!tm_shape_equal(in[0], in[1])) return "u must have the shape of x";
    return tm_shape_fit(&out[0], in[0], "y must have the shape of x");
}

static void gated_add_reference(const tm_call *call)
{
    int64_t rows = call->in[0].shape.n[0], C = call->in[0].shape.n[1];
    int64_t T = ((const tm_gated_add_attr *)call->attr)->seq;
    for (int64_t n = 0; n < rows; n++) {
        const double *x = (const double *)call->in[0].data + n * C, *u = (const double *)call->in[1].data + n * C;
        const double *gate = tm_view_row(&call->in[2], n / T);
        double       *y = (double *)call->out[0].data + n * C;
        for (int64_t c = 0; c < C; c++) y[c] = x[c] + gate[c] * u[c];
    }
}

static void gated_add_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id x = node->in[0], u = node->in[1], gate = node->in[2], dy = tm_gradient_of(gradient, node->out[0]);
    if (dy == TM_NONE) return;
    if (tm_gradient_wanted(gradient, u) || tm_gradient_wanted(gradient, gate)) {
        tm_tensor_id in[TM_MAX_IN] = { dy, u, gate }, out[TM_MAX_OUT] = { TM_NONE, tm_gradient_out(gradient, gate) };
        tm_gradient_emit(gradient, TM_OP_gated_add_grad, node->attr, node->attr_bytes, in, out, 0);
        tm_gradient_add(gradient, u, out[0]);
        tm_gradient_add(gradient, gate, out[1]);
    }
    if (tm_gradient_wanted(gradient, x)) tm_gradient_add(gradient, x, dy);
}

static const struct {
    int64_t samples, rows, channels; /* rows of a sample */
} cases[] = { { 1, 1, 1 },    { 3, 2, 7 },   { 2, 9, 8 },   { 5, 1, 65 },  { 2, 65, 9 },
              { 1, 130, 33 }, { 2, 3, 768 }, { 2, 64, 16 }, { 3, 70, 65 }, { 2, 100, 768 } };

static bool gated_add_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_shape          x = tm_shape_2(cases[k].samples * cases[k].rows, cases[k].channels);
    tm_gated_add_attr attr = { .seq = cases[k].rows };
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, x, 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, x, 0, 1);
    tm_example_in(example, 2, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].samples, cases[k].channels), 0, 1);
    return true;
}

const tm_op tm_op_gated_add = {
    .name = "gated_add",
    .formula = "y = x + gate u, gate per sample",
    .group = "elementwise",
    .n_in = 3,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = gated_add_infer,
    .reference = gated_add_reference,
    .gradient = gated_add_gradient,
    .cost = tm_cost_moved,
    .vector = 2,
    .inplace = 1U << 0 | 1U << 1,
    .strided_in = 1U << 2,
    .example = gated_add_example,
    .in_name = { "x (B T, C)", "u (B T, C)", "gate (B, C)" },
    .out_name = { "y (B T, C)" },
    .attributes = "seq",
};

/* in: dy (N, C), u (N, C), gate (B, C); out: du (N, C), dgate (B, C) */
static const char *gated_add_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    if ((why = gated_add_check(in[1], in[2], attr))) return why;
    if (!tm_shape_equal(in[0], in[1])) return "dy must have the shape of u";
    if ((why = tm_shape_fit(&out[0], in[1], "du must have the shape of u"))) return why;
    return tm_shape_fit(&out[1], in[2], "dgate must have the shape of the gate");
}

static void gated_add_grad_reference(const tm_call *call)
{
    int64_t rows = call->in[1].shape.n[0], C = call->in[1].shape.n[1];
    int64_t T = ((const tm_gated_add_attr *)call->attr)->seq;
    for (int64_t n = 0; n < rows; n++) {
        const double *dy = (const double *)call->in[0].data + n * C, *u = (const double *)call->in[1].data + n * C;
        const double *gate = tm_view_row(&call->in[2], n / T);
        double       *du = (double *)call->out[0].data + n * C, *dgate = tm_view_row(&call->out[1], n / T);
        for (int64_t c = 0; c < C; c++) {
            dgate[c] = (n % T ? dgate[c] : 0) + dy[c] * u[c];
            du[c] = gate[c] * dy[c];
        }
    }
}

static tm_rounding gated_add_grad_rounding(const tm_call *call, int k)
{
    return tm_rounding_sum(k == 0 ? 1 : ((const tm_gated_add_attr *)call->attr)->seq);
}

const tm_op tm_op_gated_add_grad = {
    .name = "gated_add_grad",
    .formula = "du = gate dy; dgate = sum over the rows of a sample of dy u",
    .group = "elementwise",
    .n_in = 3,
    .n_out = 2,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_ACTIVATION },
    .infer = gated_add_grad_infer,
    .reference = gated_add_grad_reference,
    .cost = tm_cost_moved,
    .vector = 3,
    .inplace = 1U << 0 | 1U << 1,
    .strided_in = 1U << 2,
    .strided_out = 1U << 1,
    .example = gated_add_example,
    .rounding = gated_add_grad_rounding,
    .in_name = { "dy (B T, C)", "u (B T, C)", "gate (B, C)" },
    .out_name = { "du (B T, C)", "dgate (B, C)" },
    .attributes = "seq",
};
