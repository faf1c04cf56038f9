/* SPDX-License-Identifier: Apache-2.0 */
/* op/rope.c - rotary position embedding of heads of each row (Su et al. 2021, eq. 34).
 *
 *   (y_a, y_b) = (x_a cos - x_b sin, x_a sin + x_b cos)       cos, sin = table[t][i], table[t][D/2 + i]
 *   dx is the transpose: (dx_a, dx_b) = (dy_a cos + dy_b sin, dy_b cos - dy_a sin)
 *
 * Row r stands at position t = positions[r], which starts again with each document of a packed row; without them, at
 * r mod T. Head h begins at column first + h stride. Pair i of a head is (i, i + D/2) in the half layout and
 * (2i, 2i + 1) in the interleaved one. All other columns are copied.
 * x (N, W), table (T, D), [positions (N) int32, below the rows of the table] -> y (N, W)
 */
#include "base/status.h"
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

static int64_t stride_of(const tm_rope_attr *attr)
{
    return attr->stride ? attr->stride : attr->head_dim;
}

static const char *rope_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_rope_attr *attr = attr_;
    if (attr->seq < 1 || attr->heads < 1 || attr->head_dim < 1) return "sequence, heads and head size must be positive";
    if (attr->head_dim % 2 != 0) return "the head size must be even";
    if (attr->layout != TM_ROPE_HALF && attr->layout != TM_ROPE_INTERLEAVED) return "unknown layout of pairs";
    if (in[0].rank != 2) return "x must have two axes (rows, heads)";
    if (attr->first < 0 || (attr->stride != 0 && attr->stride < attr->head_dim)) return "rotated heads overlap";
    if (in[0].n[1] < attr->first + (attr->heads - 1) * stride_of(attr) + attr->head_dim)
        return "a row of x is shorter than its rotated heads";
    if (tm_shape_present(in[2])) {
        if (!tm_shape_is_vector(in[2], in[0].n[0])) return "positions must have one value per row of x";
        if (in[1].rank != 2 || in[1].n[1] != attr->head_dim)
            return "the table must have the shape (positions, head size)";
        return tm_shape_fit(&out[0], in[0], "y must have the shape of x");
    }
    if (in[0].n[0] % attr->seq != 0) return "the rows of x must be a multiple of the sequence length";
    if (!tm_shape_is_matrix(in[1], attr->seq, attr->head_dim))
        return "the table must have the shape (tokens, head size)";
    return tm_shape_fit(&out[0], in[0], "y must have the shape of x");
}

/* `direction` 1: forward, -1: its transpose. x and y may be the same. */
static void rotate(const tm_call *call, double direction)
{
    const tm_rope_attr *attr = call->attr;
    const int32_t      *positions = call->in[2].data;
    int64_t             rows = call->in[0].shape.n[0], width = call->in[0].shape.n[1], half = attr->head_dim / 2;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = (const double *)call->in[0].data + r * width;
        int64_t       position = positions ? positions[r] : r % attr->seq;
        const double *table = (const double *)call->in[1].data + position * attr->head_dim;
        double       *y = (double *)call->out[0].data + r * width;
        TM_ASSERT(position >= 0 && position < call->in[1].shape.n[0]);
        for (int64_t c = 0; x != y && c < width; c++) y[c] = x[c];
        for (int64_t h = 0; h < attr->heads; h++)
            for (int64_t i = 0; i < half; i++) {
                int64_t a = attr->first + h * stride_of(attr) + (attr->layout == TM_ROPE_HALF ? i : 2 * i);
                int64_t b = attr->layout == TM_ROPE_HALF ? a + half : a + 1;
                double  cosine = table[i], sine = direction * table[half + i], xa = x[a], xb = x[b];
                y[a] = xa * cosine - xb * sine;
                y[b] = xa * sine + xb * cosine;
            }
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
    tm_tensor_id in[TM_MAX_IN] = { dy, node->in[1], node->in[2] }, out[TM_MAX_OUT] = { TM_NONE };
    tm_gradient_emit(gradient, TM_OP_rope_grad, node->attr, node->attr_bytes, in, out, 0);
    tm_gradient_add(gradient, x, out[0]);
}

/* The rotation is linear in the table too, so any values serve. */
static bool rope_example(int k, tm_example *example)
{
    static const struct {
        int64_t      batch, copied, positions;
        tm_rope_attr attr;
    } cases[] = {
#define ROPE(T, H, D, LAYOUT) .seq = T, .heads = H, .head_dim = D, .layout = TM_ROPE_##LAYOUT
        { 1, 0, 0, { ROPE(1, 1, 2, HALF) } },
        { 2, 4, 0, { ROPE(3, 3, 4, HALF) } },
        { 2, 6, 0, { ROPE(7, 3, 6, INTERLEAVED) } },
        { 1, 3, 0, { ROPE(9, 2, 8, INTERLEAVED) } },
        { 3, 16, 0, { ROPE(8, 5, 16, HALF) } },
        { 1, 1, 0, { ROPE(65, 2, 10, INTERLEAVED) } },
        { 1, 64, 0, { ROPE(33, 3, 64, HALF) } },
        { 2, 0, 0, { ROPE(5, 3, 4, HALF), .first = 6, .stride = 10 } },
        { 1, 7, 12, { ROPE(9, 2, 64, INTERLEAVED), .first = 128, .stride = 192 } },
        { 3, 5, 9, { ROPE(4, 2, 6, HALF) } },
        { 3, 7, 0, { ROPE(5, 3, 34, INTERLEAVED) } },
        { 3, 0, 0, { ROPE(5, 3, 130, HALF) } },
        { 2, 7, 0, { ROPE(40, 3, 128, INTERLEAVED) } },
        { 2, 7, 0, { ROPE(40, 3, 130, HALF) } },
#undef ROPE
    };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_rope_attr attr = cases[k].attr;
    int64_t last = attr.first + (attr.heads - 1) * stride_of(&attr) + attr.head_dim, positions = cases[k].positions;
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].batch * attr.seq, last + cases[k].copied), 0, 1);
    tm_example_in(example, 1, TM_ROLE_CONSTANT, tm_shape_2(positions ? positions : attr.seq, attr.head_dim), 0, 1);
    if (positions) tm_example_int(example, 2, tm_shape_1(cases[k].batch * attr.seq), positions);
    return true;
}

const tm_op tm_op_rope = {
    .name = "rope",
    .formula = "(y_a, y_b) = (x_a cos - x_b sin, x_a sin + x_b cos) per pair of a rotated head",
    .group = "elementwise",
    .n_in = 3,
    .n_out = 1,
    .optional_in = 1U << 2,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = rope_infer,
    .reference = rope_reference,
    .gradient = rope_gradient,
    .cost = tm_cost_moved,
    .vector = 3,
    .inplace = 1U << 0,
    .example = rope_example,
    .in_name = { "x (N, W)", "table (T, D)", "[positions (N)]" },
    .out_name = { "y (N, W)" },
    .attributes = "seq, heads, head_dim, layout, first, stride",
};

/* in: dy (N, W), table (T, D), [positions (N)]; out: dx (N, W) */
static void rope_grad_reference(const tm_call *call)
{
    rotate(call, -1);
}

const tm_op tm_op_rope_grad = {
    .name = "rope_grad",
    .formula = "(dx_a, dx_b) = (dy_a cos + dy_b sin, dy_b cos - dy_a sin) per pair of a rotated head",
    .group = "elementwise",
    .n_in = 3,
    .n_out = 1,
    .optional_in = 1U << 2,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = rope_infer,
    .reference = rope_grad_reference,
    .cost = tm_cost_moved,
    .vector = 3,
    .inplace = 1U << 0,
    .example = rope_example,
    .in_name = { "dy (N, W)", "table (T, D)", "[positions (N)]" },
    .out_name = { "dx (N, W)" },
    .attributes = "seq, heads, head_dim, layout, first, stride",
};
