/* SPDX-License-Identifier: Apache-2.0 */
/* op/head_rope.c - head_norm, the join of the rows of two matrices, and rope in one pass (op/head_norm.c, op/rope.c).
 *
 *   u   = x r w of each head, r = 1 / sqrt(mean_d(x_d^2) + eps)
 *   y   = R(t) u                              R(t): the rotation of pairs by the angles of position t
 *   du  = R(t)^T dy,  dw = sum over rows and heads of du x r,  dx = r (h - x r^2 mean(h x)),  h = du w
 *
 * x are the rows of a, or sample by sample those of a, then those of b (attr.first_rows), each with weights of their
 * own. Row r of y has position t = positions[r]; without them r mod T. Columns behind the heads are copied.
 * a (N, W), w (D) or (2 D), table (T, D), [positions (N)], [b (M, W), w_b] -> y (N + M, W), rstd (N + M, heads)
 * Passes make it of those ops (graph/passes/head_rope.c). a, b and their gradients may be views.
 */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>
#include <stdlib.h>

/* Operands, forward and of the gradient. */
enum { A, W_A, TABLE, POSITIONS, B, W_B };
enum { DY, X_A, GW_A, RSTD, GTABLE, GPOSITIONS, X_B, GW_B };
enum { DX_A, DW_A, DX_B, DW_B };

static int64_t rows_of(const tm_head_rope_attr *attr, int part)
{
    return part == 0 ? attr->first_rows : attr->seq - attr->first_rows;
}

/* Of the rows of one part. */
static const char *part_check(tm_shape x, tm_shape w, const tm_head_rope_attr *attr)
{
    if (x.rank != 2) return "a and b must have two axes (rows, heads)";
    if (x.n[1] < attr->heads * attr->head_dim) return "a row is shorter than its heads";
    if (!tm_shape_is_vector(w, (attr->second ? 2 : 1) * attr->head_dim))
        return "the weights must have one value per element of a head, or two times as many";
    return NULL;
}

static const char *attr_check(const tm_head_rope_attr *attr)
{
    if (attr->seq < 1 || attr->heads < 1 || attr->head_dim < 1) return "sequence, heads and head size must be positive";
    if (attr->head_dim % 2 != 0) return "the head size must be even";
    if (attr->layout != TM_ROPE_HALF && attr->layout != TM_ROPE_INTERLEAVED) return "unknown layout of pairs";
    if (attr->second < 0 || attr->second >= attr->heads) return "the second half of the weights belongs to no head";
    if (attr->first_rows < 0 || attr->first_rows >= attr->seq + (attr->first_rows == 0))
        return "a sample must have rows of a and of b";
    return NULL;
}

/* x, w: of both parts. */
static const char *operands_check(const tm_shape x[2], const tm_shape w[2], tm_shape table, tm_shape positions,
                                  const tm_head_rope_attr *attr)
{
    const char *why = attr_check(attr);
    bool        joins = attr->first_rows > 0;
    if (!why) why = part_check(x[0], w[0], attr);
    if (why) return why;
    if (joins != tm_shape_present(x[1]) || joins != tm_shape_present(w[1])) return "b belongs to first_rows > 0";
    if (joins && tm_shape_present(positions)) return "positions belong to rows of a alone";
    if (tm_shape_present(positions)) {
        if (!tm_shape_is_vector(positions, x[0].n[0])) return "positions must have one value per row";
        return table.rank == 2 && table.n[1] == attr->head_dim ? NULL
                                                               : "the table must have the shape (positions, head size)";
    }
    if (!tm_shape_is_matrix(table, attr->seq, attr->head_dim))
        return "the table must have the shape (tokens, head size)";
    if (!joins) return x[0].n[0] % attr->seq == 0 ? NULL : "the rows must be a multiple of the sequence length";
    if ((why = part_check(x[1], w[1], attr))) return why;
    int64_t samples = x[0].n[0] / attr->first_rows;
    if (x[0].n[0] != samples * attr->first_rows || x[1].n[0] != samples * rows_of(attr, 1) || x[1].n[1] != x[0].n[1])
        return "a and b must have their rows of the same samples, and the same columns";
    return NULL;
}

static tm_shape whole_of(const tm_shape x[2])
{
    return tm_shape_2(x[0].n[0] + (tm_shape_present(x[1]) ? x[1].n[0] : 0), x[0].n[1]);
}

static const char *head_rope_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_head_rope_attr *attr = attr_;
    const tm_shape           x[2] = { in[A], in[B] }, w[2] = { in[W_A], in[W_B] };
    const char              *why = operands_check(x, w, in[TABLE], in[POSITIONS], attr);
    if (why) return why;
    if ((why = tm_shape_fit(&out[0], whole_of(x), "y must have the rows of a and of b"))) return why;
    return tm_shape_fit(&out[1], tm_shape_2(whole_of(x).n[0], attr->heads),
                        "rstd must have one value per row and head");
}

/* The row of the whole that row n of a part is. */
static int64_t place_of(const tm_head_rope_attr *attr, int part, int64_t n)
{
    int64_t rows = rows_of(attr, part);
    if (attr->first_rows == 0) return n;
    return n / rows * attr->seq + (part ? attr->first_rows : 0) + n % rows;
}

static const double *angles_of(const tm_head_rope_attr *attr, const tm_view *table, const tm_view *positions, int64_t r)
{
    int64_t t = positions->data ? ((const int32_t *)positions->data)[r] : r % attr->seq;
    return (const double *)table->data + t * attr->head_dim;
}

static int64_t weights_of(const tm_head_rope_attr *attr, int64_t h)
{
    return attr->second && h >= attr->second ? attr->head_dim : 0;
}

/* Element d of a head that is rotated; direction -1: back. */
static double rotated(const double *u, int64_t d, const double *angles, const tm_head_rope_attr *attr, double direction)
{
    bool    apart = attr->layout == TM_ROPE_HALF;
    int64_t half = attr->head_dim / 2, i = apart ? d % half : d / 2;
    double  cosine = angles[i], sine = direction * angles[half + i];
    if (apart ? d < half : d % 2 == 0) return u[d] * cosine - u[apart ? d + half : d + 1] * sine;
    return u[apart ? d - half : d - 1] * sine + u[d] * cosine;
}

static void head_rope_reference(const tm_call *call)
{
    const tm_head_rope_attr *attr = call->attr;
    int64_t                  D = attr->head_dim;
    double                  *u = tm_alloc((size_t)D * sizeof *u);
    for (int part = 0; part < (attr->first_rows ? 2 : 1); part++) {
        const tm_view *from = &call->in[part ? B : A];
        const double  *weights = call->in[part ? W_B : W_A].data;
        for (int64_t n = 0; n < from->shape.n[0]; n++) {
            int64_t       r = place_of(attr, part, n);
            const double *x = tm_view_row(from, n),
                         *angles = angles_of(attr, &call->in[TABLE], &call->in[POSITIONS], r);
            double *y = tm_view_row(&call->out[0], r);
            for (int64_t c = 0; c < from->shape.n[1]; c++) y[c] = x[c];
            for (int64_t h = 0; h < attr->heads; h++) {
                const double *w = weights + weights_of(attr, h);
                double        sum = 0, *scale = (double *)call->out[1].data + r * attr->heads + h;
                for (int64_t d = 0; d < D; d++) sum += x[h * D + d] * x[h * D + d];
                *scale = 1 / sqrt(sum / (double)D + attr->eps);
                for (int64_t d = 0; d < D; d++) u[d] = x[h * D + d] * *scale * w[d];
                for (int64_t d = 0; d < D; d++) y[h * D + d] = rotated(u, d, angles, attr, 1);
            }
        }
    }
    free(u);
}

static void head_rope_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id dy = tm_gradient_of(gradient, node->out[0]), out[TM_MAX_OUT] = { TM_NONE, TM_NONE, TM_NONE, TM_NONE };
    bool         joins = node->in[B] != TM_NONE, wanted = false;
    unsigned     accumulate = 0;
    if (dy == TM_NONE) return;
    for (int part = 0; part < (joins ? 2 : 1); part++) {
        tm_tensor_id x = node->in[part ? B : A];
        int          k = part ? DW_B : DW_A;
        out[k] = tm_gradient_parameter(gradient, node->in[part ? W_B : W_A], k, &accumulate);
        out[k - 1] = tm_gradient_out(gradient, x);
        bool below = tm_gradient_wanted(gradient, x);
        if (part && below && out[k - 1] == TM_NONE) out[k - 1] = tm_gradient_like(gradient, x);
        wanted = wanted || below || out[k] != TM_NONE;
    }
    if (!wanted) return;
    tm_tensor_id in[TM_MAX_IN] = { dy,           node->in[A],     node->in[W_A],
                                   node->out[1], node->in[TABLE], node->in[POSITIONS],
                                   node->in[B],  node->in[W_B] };
    tm_gradient_emit(gradient, TM_OP_head_rope_grad, node->attr, node->attr_bytes, in, out, accumulate);
    tm_gradient_add(gradient, node->in[A], out[DX_A]);
    if (joins) tm_gradient_add(gradient, node->in[B], out[DX_B]);
}

static tm_cost cost_of(const tm_call *call, const tm_view *y, double each)
{
    const tm_head_rope_attr *attr = call->attr;
    tm_cost                  cost = tm_call_cost(call, 0);
    cost.vector = each * (double)(y->shape.n[0] * attr->heads * attr->head_dim);
    return cost;
}

/* As head_norm and rope. */
static tm_cost head_rope_cost(const tm_call *call)
{
    return cost_of(call, &call->out[0], 7);
}

/* A sum over a head, and a rotation; dw: over all rows and heads. */
static tm_rounding head_rope_rounding(const tm_call *call, int k)
{
    const tm_head_rope_attr *attr = call->attr;
    bool                     grad = call->op == &tm_op_head_rope_grad;
    if (grad && (k == DW_A || k == DW_B))
        return tm_rounding_sum(call->in[k == DW_A ? X_A : X_B].shape.n[0] * attr->heads + 2);
    return tm_rounding_sum(attr->head_dim + 2);
}

static const struct {
    int64_t           samples, more; /* columns behind the heads */
    tm_head_rope_attr attr;
    int64_t           positions; /* > 0: so many, by number */
    unsigned          frozen;    /* bit p: the weights of part p */
} cases[] = {
#define OF(T, FIRST, H, D, LAYOUT)                                                                                     \
    .eps = 1e-5, .seq = T, .first_rows = FIRST, .heads = H, .head_dim = D, .layout = TM_ROPE_##LAYOUT
    { 1, 0, { OF(1, 0, 1, 2, HALF) }, 0, 0 },
    { 3, 5, { OF(4, 0, 3, 6, HALF), .second = 2 }, 0, 0 },
    { 2, 3, { OF(5, 2, 2, 4, INTERLEAVED), .second = 1 }, 0, 0 },
    { 2, 0, { OF(33, 0, 5, 16, INTERLEAVED), .second = 3 }, 0, 1 },
    { 3, 16, { OF(9, 4, 6, 16, HALF), .second = 4 }, 0, 2 },
    { 2, 8, { OF(40, 33, 3, 32, INTERLEAVED), .second = 1 }, 0, 0 },
    { 1, 0, { OF(35, 0, 4, 64, HALF), .second = 2 }, 50, 0 },
    { 2, 128, { OF(11, 3, 2, 128, INTERLEAVED) }, 0, 0 },
    { 3, 0, { OF(5, 0, 3, 34, HALF) }, 7, 1 },
#undef OF
};

static int64_t rows_in(int k, int part)
{
    const tm_head_rope_attr *attr = &cases[k].attr;
    return cases[k].samples * (attr->first_rows ? rows_of(attr, part) : attr->seq);
}
static tm_shape x_shape(int k, int part)
{
    return tm_shape_2(rows_in(k, part), cases[k].attr.heads * cases[k].attr.head_dim + cases[k].more);
}
static tm_shape w_shape(int k)
{
    return tm_shape_1((cases[k].attr.second ? 2 : 1) * cases[k].attr.head_dim);
}
static void example_angles(tm_example *example, int k, int at)
{
    const tm_head_rope_attr *attr = &cases[k].attr;
    int64_t                  positions = cases[k].positions;
    tm_example_in(example, at, TM_ROLE_CONSTANT, tm_shape_2(positions ? positions : attr->seq, attr->head_dim), 0, 1);
    if (positions) tm_example_int(example, at + 1, tm_shape_1(rows_in(k, 0)), positions);
}

/* The rotation is linear in the table too, so any values serve. */
static bool head_rope_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &cases[k].attr, sizeof cases[k].attr);
    for (int part = 0; part < (cases[k].attr.first_rows ? 2 : 1); part++) {
        tm_example_in(example, part ? B : A, TM_ROLE_ACTIVATION, x_shape(k, part), 0, 2);
        tm_example_in(example, part ? W_B : W_A, TM_ROLE_PARAMETER, w_shape(k), 1, 0.3);
    }
    example_angles(example, k, TABLE);
    return true;
}

#define NOT_ON_CPUS "on CPUs norms and rotations stay ops of their own: no plan of theirs has it"

const tm_op tm_op_head_rope = {
    .name = "head_rope",
    .formula = "y = rope(head_norm(x)), x = the rows of a, or of each sample those of a, then of b",
    .group = "norm",
    .n_in = 6,
    .n_out = 2,
    .optional_in = 1U << POSITIONS | 1U << B | 1U << W_B,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_STATISTIC },
    .infer = head_rope_infer,
    .reference = head_rope_reference,
    .gradient = head_rope_gradient,
    .cost = head_rope_cost,
    .strided_in = 1U << A | 1U << B,
    .example = head_rope_example,
    .rounding = head_rope_rounding,
    .no_fast_kernel = NOT_ON_CPUS,
    .in_name = { "a (N, W)", "w (D) or (2 D)", "table (T, head_dim)", "[positions (N)]", "[b (M, W)]",
                 "[w_b (D) or (2 D)]" },
    .out_name = { "y (N + M, W)", "rstd (N + M, heads)" },
    .attributes = "eps, heads, head_dim, second, seq, layout, first_rows",
};

/* in: dy, a, w, rstd, table, [positions], [b, w_b]; out: da, [dw], [db], [dw of b] */
static const char *head_rope_grad_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_head_rope_attr *attr = attr_;
    const tm_shape           x[2] = { in[X_A], in[X_B] }, w[2] = { in[GW_A], in[GW_B] };
    const char              *why = operands_check(x, w, in[GTABLE], in[GPOSITIONS], attr);
    if (why) return why;
    if (!tm_shape_equal(in[DY], whole_of(x))) return "dy must have the rows of a and of b";
    if ((why = tm_shape_fit(&out[DX_A], x[0], "dx must have the shape of x"))) return why;
    if (tm_shape_present(out[DX_B]) && !tm_shape_present(x[1])) return "without b there is no db";
    if ((why = tm_shape_fit_optional(&out[DX_B], x[1], "dx must have the shape of x"))) return why;
    if (!tm_shape_is_matrix(in[RSTD], in[DY].n[0], attr->heads)) return "rstd must have one value per row and head";
    for (int k = DW_A; k <= DW_B; k += DW_B - DW_A) {
        if (k == DW_B && tm_shape_present(out[k]) && !tm_shape_present(w[1])) return "without b there is no dw of b";
        why = tm_shape_fit_optional(&out[k], w[k == DW_B], "dw must have the shape of the weights");
        if (why) return why;
    }
    return NULL;
}

/* A head of a row; dx, sums: NULL if nobody asks. */
static void head_grad(double *dx, double *sums, const double *du, const double *x, const double *w, double r, int64_t D)
{
    double sum = 0;
    for (int64_t d = 0; d < D; d++) {
        sum += du[d] * w[d] * x[d];
        if (sums) sums[d] += du[d] * x[d] * r;
    }
    for (int64_t d = 0; dx && d < D; d++) dx[d] = r * (du[d] * w[d] - x[d] * r * r * sum / (double)D);
}

static void head_rope_grad_reference(const tm_call *call)
{
    const tm_head_rope_attr *attr = call->attr;
    int64_t                  D = attr->head_dim, columns = call->in[DY].shape.n[1];
    double                  *du = tm_alloc((size_t)D * sizeof *du);
    for (int part = 0; part < (attr->first_rows ? 2 : 1); part++) {
        const tm_view *from = &call->in[part ? X_B : X_A], *to = &call->out[part ? DX_B : DX_A];
        const double  *weights = call->in[part ? GW_B : GW_A].data;
        double        *sums = tm_call_sums(call, part ? DW_B : DW_A);
        for (int64_t n = 0; n < from->shape.n[0]; n++) {
            int64_t       r = place_of(attr, part, n);
            const double *x = tm_view_row(from, n), *dy = tm_view_row(&call->in[DY], r);
            const double *angles = angles_of(attr, &call->in[GTABLE], &call->in[GPOSITIONS], r);
            const double *rstd = (const double *)call->in[RSTD].data + r * attr->heads;
            double       *dx = to->data ? tm_view_row(to, n) : NULL;
            for (int64_t c = attr->heads * D; dx && c < columns; c++) dx[c] = dy[c];
            for (int64_t h = 0; h < attr->heads; h++) {
                int64_t w = weights_of(attr, h);
                for (int64_t d = 0; d < D; d++) du[d] = rotated(dy + h * D, d, angles, attr, -1);
                head_grad(dx ? dx + h * D : NULL, sums ? sums + w : NULL, du, x + h * D, weights + w, rstd[h], D);
            }
        }
    }
    free(du);
}

static tm_cost head_rope_grad_cost(const tm_call *call)
{
    return cost_of(call, &call->in[DY], 12);
}

static bool head_rope_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &cases[k].attr, sizeof cases[k].attr);
    tm_shape x[2] = { x_shape(k, 0), { .rank = -1 } };
    for (int part = 0; part < (cases[k].attr.first_rows ? 2 : 1); part++) {
        x[part] = x_shape(k, part);
        tm_example_in(example, part ? X_B : X_A, TM_ROLE_ACTIVATION, x[part], 0, 2);
        tm_example_in(example, part ? GW_B : GW_A, TM_ROLE_PARAMETER, w_shape(k), 1, 0.3);
        if (part) example->out[DX_B] = x[1];
        if (!(cases[k].frozen >> part & 1U)) example->out[part ? DW_B : DW_A] = w_shape(k);
    }
    tm_example_in(example, DY, TM_ROLE_ACTIVATION, whole_of(x), 0, 1);
    tm_example_in(example, RSTD, TM_ROLE_STATISTIC, tm_shape_2(whole_of(x).n[0], cases[k].attr.heads), 0.5, 0.05);
    example_angles(example, k, GTABLE);
    return true;
}

const tm_op tm_op_head_rope_grad = {
    .name = "head_rope_grad",
    .formula = "du = rope_grad(dy), dx and dw = head_norm_grad(du) for the rows of a and of b",
    .group = "norm",
    .n_in = 8,
    .n_out = 4,
    .optional_in = 1U << GPOSITIONS | 1U << X_B | 1U << GW_B,
    .optional_out = 1U << DW_A | 1U << DX_B | 1U << DW_B,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_GRADIENT, TM_ROLE_ACTIVATION, TM_ROLE_GRADIENT },
    .infer = head_rope_grad_infer,
    .reference = head_rope_grad_reference,
    .cost = head_rope_grad_cost,
    .strided_in = 1U << X_A | 1U << X_B,
    .strided_out = 1U << DX_A | 1U << DX_B,
    .example = head_rope_grad_example,
    .rounding = head_rope_rounding,
    .no_fast_kernel = NOT_ON_CPUS,
    .in_name = { "dy (N + M, W)", "a (N, W)", "w (D) or (2 D)", "rstd (N + M, heads)", "table (T, head_dim)",
                 "[positions (N)]", "[b (M, W)]", "[w_b (D) or (2 D)]" },
    .out_name = { "da (N, W)", "[dw (D) or (2 D)]", "[db (M, W)]", "[dw_b (D) or (2 D)]" },
    .attributes = "eps, heads, head_dim, second, seq, layout, first_rows",
};
