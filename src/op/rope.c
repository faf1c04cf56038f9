/* SPDX-License-Identifier: Apache-2.0 */
/* op/rope.c - rotary position embedding of the first heads of each row (Su et al. 2021, eq. 34).
 *
 *   (y_a, y_b) = (x_a cos - x_b sin, x_a sin + x_b cos)       cos, sin = table[t][i], table[t][D/2 + i], t = row mod T
 *   dx is the transpose: (dx_a, dx_b) = (dy_a cos + dy_b sin, dy_b cos - dy_a sin)
 *
 * Pair i of a head is (i, i + D/2) in the half layout and (2i, 2i + 1) in the interleaved one. Columns past
 * heads x D (the values of a fused row) are copied.
 * x (N, W), table (T, D) -> y (N, W)
 */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

static const char *rope_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_rope_attr *attr = attr_;
    if (attr->seq < 1 || attr->heads < 1 || attr->head_dim < 1) return "sequence, heads and head size must be positive";
    if (attr->head_dim % 2 != 0) return "the head size must be even";
    if (attr->layout != TM_ROPE_HALF && attr->layout != TM_ROPE_INTERLEAVED) return "unknown layout of pairs";
    if (in[0].rank != 2) return "x must have two axes (rows, heads)";
    if (in[0].n[0] % attr->seq != 0) return "the rows of x must be a multiple of the sequence length";
    if (in[0].n[1] < attr->heads * attr->head_dim) return "a row of x is shorter than its rotated heads";
    if (!tm_shape_is_matrix(in[1], attr->seq, attr->head_dim))
        return "the table must have the shape (tokens, head size)";
    return tm_shape_fit(&out[0], in[0], "y must have the shape of x");
}

/* `direction` 1: forward, -1: its transpose. x and y may be the same. */
static void rotate(const tm_call *call, double direction)
{
    const tm_rope_attr *attr = call->attr;
    int64_t             rows = call->in[0].shape.n[0], width = call->in[0].shape.n[1], half = attr->head_dim / 2;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = (const double *)call->in[0].data + r * width;
        const double *table = (const double *)call->in[1].data + r % attr->seq * attr->head_dim;
        double       *y = (double *)call->out[0].data + r * width;
        for (int64_t h = 0; h < attr->heads; h++)
            for (int64_t i = 0; i < half; i++) {
                int64_t a = h * attr->head_dim + (attr->layout == TM_ROPE_HALF ? i : 2 * i);
                int64_t b = attr->layout == TM_ROPE_HALF ? a + half : a + 1;
                double  cosine = table[i], sine = direction * table[half + i], xa = x[a], xb = x[b];
                y[a] = xa * cosine - xb * sine;
                y[b] = xa * sine + xb * cosine;
            }
        for (int64_t c = attr->heads * attr->head_dim; c < width; c++) y[c] = x[c];
    }
}

static void rope_reference(const tm_call *call)
{
    rotate(call, 1);
}

static void rope_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id x = node->in[0], dy = tm_gradient_of(gradient, node->out[0]);
    if (dy == TM_NONE || !tm_gradient_wanted(gradient, x)) return;
    tm_tensor_id in[TM_MAX_IN] = { dy, node->in[1] }, out[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, TM_OP_rope_grad, node->attr, node->attr_bytes, in, out, 0);
    tm_gradient_add(gradient, x, out[0]);
}

static tm_cost rope_cost(const tm_call *call)
{
    return tm_call_cost(call, 0);
}

/* The rotation is linear in the table too, so any values serve. */
static bool rope_example(int k, tm_example *example)
{
    static const struct {
        int64_t batch, seq, heads, head_dim, copied, layout;
    } cases[] = { { 1, 1, 1, 2, 0, TM_ROPE_HALF },        { 2, 3, 3, 4, 4, TM_ROPE_HALF },
                  { 2, 7, 3, 6, 6, TM_ROPE_INTERLEAVED }, { 1, 9, 2, 8, 3, TM_ROPE_INTERLEAVED },
                  { 3, 8, 5, 16, 16, TM_ROPE_HALF },      { 1, 65, 2, 10, 1, TM_ROPE_INTERLEAVED },
                  { 1, 33, 3, 64, 64, TM_ROPE_HALF },
                  { 3, 5, 3, 34, 7, TM_ROPE_INTERLEAVED }, { 3, 5, 3, 130, 0, TM_ROPE_HALF },
                  { 2, 40, 3, 128, 7, TM_ROPE_INTERLEAVED }, { 2, 40, 3, 130, 7, TM_ROPE_HALF } };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_rope_attr attr = {
        .seq = cases[k].seq, .heads = cases[k].heads, .head_dim = cases[k].head_dim, .layout = cases[k].layout
    };
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION,
                  tm_shape_2(cases[k].batch * attr.seq, attr.heads * attr.head_dim + cases[k].copied), 0, 1);
    tm_example_in(example, 1, TM_ROLE_CONSTANT, tm_shape_2(attr.seq, attr.head_dim), 0, 1);
    return true;
}

const tm_op tm_op_rope = {
    .name = "rope",
    .formula = "(y_a, y_b) = (x_a cos - x_b sin, x_a sin + x_b cos) per pair of a rotated head",
    .group = "elementwise",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = rope_infer,
    .reference = rope_reference,
    .gradient = rope_gradient,
    .cost = rope_cost,
    .vector = 3,
    .inplace = 1U << 0,
    .example = rope_example,
    .in_name = { "x (N, W)", "table (T, D)" },
    .out_name = { "y (N, W)" },
    .attributes = "seq, heads, head_dim, layout",
};

/* in: dy (N, W), table (T, D); out: dx (N, W) */
static void rope_grad_reference(const tm_call *call)
{
    rotate(call, -1);
}

const tm_op tm_op_rope_grad = {
    .name = "rope_grad",
    .formula = "(dx_a, dx_b) = (dy_a cos + dy_b sin, dy_b cos - dy_a sin) per pair of a rotated head",
    .group = "elementwise",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = rope_infer,
    .reference = rope_grad_reference,
    .cost = rope_cost,
    .vector = 3,
    .inplace = 1U << 0,
    .example = rope_example,
    .in_name = { "dy (N, W)", "table (T, D)" },
    .out_name = { "dx (N, W)" },
    .attributes = "seq, heads, head_dim, layout",
};
