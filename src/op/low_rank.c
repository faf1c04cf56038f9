/* SPDX-License-Identifier: Apache-2.0 */
/* op/low_rank.c - what an adapter adds to a product (Hu et al. 2021, "LoRA", section 4.1), for each adapted part p of
 * the columns of y, with rank columns of u and rows of b of its own:
 *
 *   y_p  = base_p + scale u_p b_p^T            all other columns: y = base
 *   du_p = scale dy_p b_p,  db_p = scale dy_p^T u_p,  dbase = dy
 *
 * base (N, M), u (N, P r), b (R, r) -> y (N, M); R: rows of all parts together
 */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"
#include "op/parts.h"

#include <string.h>

static const char *low_rank_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_low_rank_attr *attr = attr_;
    if (in[0].rank != 2) return "the base must have two axes (rows, outputs)";
    int64_t rows = tm_rows_of_parts(attr, in[0].n[1]);
    if (rows < 0) return "the parts must be contiguous columns of the base, in order";
    if (!tm_shape_is_matrix(in[1], in[0].n[0], attr->parts * attr->rank))
        return "u must have the rows of the base and `rank` columns for each part";
    if (!tm_shape_is_matrix(in[2], rows, attr->rank)) return "b must have one row of `rank` values per adapted column";
    return tm_shape_fit(&out[0], in[0], "y must have the shape of the base");
}

static void low_rank_reference(const tm_call *call)
{
    const tm_low_rank_attr *attr = call->attr;
    int64_t                 n_rows = call->in[0].shape.n[0], columns = call->in[0].shape.n[1];
    const double           *base = call->in[0].data, *b = call->in[2].data;
    double                 *y = call->out[0].data;
    if (y != base) memcpy(y, base, (size_t)(n_rows * columns) * sizeof *y);
    for (int64_t n = 0; n < n_rows; n++)
        for (int64_t p = 0, row = 0; p < attr->parts; p++) {
            const double *u = tm_view_row(&call->in[1], n) + p * attr->rank;
            for (int64_t m = 0; m < attr->part[p].rows; m++, row++) {
                double sum = 0;
                for (int64_t r = 0; r < attr->rank; r++) sum += u[r] * b[row * attr->rank + r];
                y[n * columns + attr->part[p].column + m] += attr->scale * sum;
            }
        }
}

static void low_rank_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id base = node->in[0], u = node->in[1], b = node->in[2];
    tm_tensor_id dy = tm_gradient_of(gradient, node->out[0]);
    unsigned     add_db = 0;
    if (dy == TM_NONE) return;
    tm_tensor_id db = tm_gradient_parameter(gradient, b, 0, &add_db);
    if (db != TM_NONE)
        tm_gradient_emit(gradient, TM_OP_low_rank_wgrad, node->attr, node->attr_bytes,
                         (tm_tensor_id[TM_MAX_IN]){ dy, u }, (tm_tensor_id[TM_MAX_OUT]){ db }, add_db);
    if (tm_gradient_wanted(gradient, u)) {
        tm_tensor_id du[TM_MAX_OUT] = { TM_NONE };
        tm_gradient_emit(gradient, TM_OP_low_rank_dgrad, node->attr, node->attr_bytes,
                         (tm_tensor_id[TM_MAX_IN]){ dy, b }, du, 0);
        tm_gradient_add(gradient, u, du[0]);
    }
    if (tm_gradient_wanted(gradient, base)) tm_gradient_add(gradient, base, dy);
}

/* Of each of the three: one multiply-add for every row, adapted column and rank. */
static double products(const tm_call *call, int64_t rows_of_b)
{
    const tm_low_rank_attr *attr = call->attr;
    return 2.0 * (double)call->in[0].shape.n[0] * (double)rows_of_b * (double)attr->rank;
}

static tm_cost low_rank_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, products(call, call->in[2].shape.n[0]));
    cost.vector = (double)tm_shape_elements(call->in[1].shape);
    return cost;
}

/* The sum over the ranks and what it is added to; rounded once for each part that a value is in: one. */
static tm_rounding low_rank_rounding(const tm_call *call, int k)
{
    (void)k;
    tm_rounding rounding = tm_rounding_sum(((const tm_low_rank_attr *)call->attr)->rank + 2);
    rounding.stores = 2; /* u, scaled, is rounded to float32 */
    return rounding;
}

static const struct {
    int64_t          rows, columns;
    tm_low_rank_attr attr;
} cases[] = {
    { 1, 1, { .scale = 2, .rank = 1, .parts = 1, .part = { { 0, 1 } } } },
    { 5, 9, { .scale = 0.5, .rank = 2, .parts = 2, .part = { { 0, 4 }, { 6, 3 } } } },
    { 9, 8, { .scale = 1, .rank = 3, .parts = 1, .part = { { 0, 8 } } } },
    { 70, 40, { .scale = -1.25, .rank = 4, .parts = 3, .part = { { 0, 16 }, { 16, 8 }, { 30, 7 } } } },
    { 65, 33, { .scale = 0.7, .rank = 8, .parts = 1, .part = { { 8, 20 } } } },
    { 600, 70, { .scale = 2, .rank = 5, .parts = 2, .part = { { 1, 33 }, { 35, 35 } } } },
    { 33, 1030, { .scale = 2, .rank = 16, .parts = 2, .part = { { 0, 600 }, { 600, 430 } } } },
};

static int64_t case_rows(int k)
{
    return tm_rows_of_parts(&cases[k].attr, cases[k].columns);
}

static bool low_rank_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    const tm_low_rank_attr *attr = &cases[k].attr;
    tm_example_begin(example, attr, sizeof *attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].columns), 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, attr->parts * attr->rank), 0, 1);
    tm_example_in(example, 2, TM_ROLE_PARAMETER, tm_shape_2(case_rows(k), attr->rank), 0, 0.5);
    return true;
}

const tm_op tm_op_low_rank = {
    .name = "low_rank",
    .formula = "y = base, and y_p += scale u_p b_p^T in the columns of each part p",
    .group = "linear",
    .n_in = 3,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = low_rank_infer,
    .reference = low_rank_reference,
    .gradient = low_rank_gradient,
    .cost = low_rank_cost,
    .inplace = 1U << 0,
    .example = low_rank_example,
    .rounding = low_rank_rounding,
    .in_name = { "base (N, M)", "u (N, P r)", "b (R, r)" },
    .out_name = { "y (N, M)" },
    .attributes = "scale, rank, parts, part: column, rows",
};

/* in: dy (N, M), b (R, r); out: du (N, P r) */
static const char *low_rank_dgrad_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_low_rank_attr *attr = attr_;
    if (in[0].rank != 2) return "dy must have two axes (rows, outputs)";
    int64_t rows = tm_rows_of_parts(attr, in[0].n[1]);
    if (rows < 0) return "the parts must be contiguous columns of dy, in order";
    if (!tm_shape_is_matrix(in[1], rows, attr->rank)) return "b must have one row of `rank` values per adapted column";
    return tm_shape_fit(&out[0], tm_shape_2(in[0].n[0], attr->parts * attr->rank),
                        "du must have the rows of dy and `rank` columns for each part");
}

static void low_rank_dgrad_reference(const tm_call *call)
{
    const tm_low_rank_attr *attr = call->attr;
    int64_t                 columns = call->in[0].shape.n[1];
    const double           *dy = call->in[0].data, *b = call->in[1].data;
    for (int64_t n = 0; n < call->in[0].shape.n[0]; n++)
        for (int64_t p = 0, row = 0; p < attr->parts; row += attr->part[p++].rows) {
            double *du = tm_view_row(&call->out[0], n) + p * attr->rank;
            for (int64_t r = 0; r < attr->rank; r++) {
                double sum = 0;
                for (int64_t m = 0; m < attr->part[p].rows; m++)
                    sum += dy[n * columns + attr->part[p].column + m] * b[(row + m) * attr->rank + r];
                du[r] = attr->scale * sum;
            }
        }
}

static tm_cost low_rank_dgrad_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, products(call, call->in[1].shape.n[0]));
    cost.vector = (double)tm_shape_elements(call->out[0].shape);
    return cost;
}

static tm_rounding low_rank_dgrad_rounding(const tm_call *call, int k)
{
    (void)k;
    tm_rounding rounding = tm_rounding_sum(call->in[1].shape.n[0] + 1);
    rounding.stores = 2; /* the sum, and its multiple */
    return rounding;
}

static bool low_rank_dgrad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    const tm_low_rank_attr *attr = &cases[k].attr;
    tm_example_begin(example, attr, sizeof *attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].columns), 0, 1);
    tm_example_in(example, 1, TM_ROLE_PARAMETER, tm_shape_2(case_rows(k), attr->rank), 0, 0.5);
    return true;
}

const tm_op tm_op_low_rank_dgrad = {
    .name = "low_rank_dgrad",
    .formula = "du_p = scale dy_p b_p",
    .group = "linear",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = low_rank_dgrad_infer,
    .reference = low_rank_dgrad_reference,
    .cost = low_rank_dgrad_cost,
    .example = low_rank_dgrad_example,
    .rounding = low_rank_dgrad_rounding,
    .in_name = { "dy (N, M)", "b (R, r)" },
    .out_name = { "du (N, P r)" },
    .attributes = "scale, rank, parts, part: column, rows",
};

/* in: dy (N, M), u (N, P r); out: db (R, r) */
static const char *low_rank_wgrad_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_low_rank_attr *attr = attr_;
    if (in[0].rank != 2) return "dy must have two axes (rows, outputs)";
    int64_t rows = tm_rows_of_parts(attr, in[0].n[1]);
    if (rows < 0) return "the parts must be contiguous columns of dy, in order";
    if (!tm_shape_is_matrix(in[1], in[0].n[0], attr->parts * attr->rank))
        return "u must have the rows of dy and `rank` columns for each part";
    return tm_shape_fit(&out[0], tm_shape_2(rows, attr->rank), "db must have one row per adapted column");
}

static void low_rank_wgrad_reference(const tm_call *call)
{
    const tm_low_rank_attr *attr = call->attr;
    int64_t                 columns = call->in[0].shape.n[1], n_rows = call->in[0].shape.n[0];
    const double           *dy = call->in[0].data;
    double                 *db = tm_call_sums(call, 0);
    for (int64_t p = 0, row = 0; p < attr->parts; row += attr->part[p++].rows)
        for (int64_t m = 0; m < attr->part[p].rows; m++)
            for (int64_t r = 0; r < attr->rank; r++) {
                double sum = 0;
                for (int64_t n = 0; n < n_rows; n++)
                    sum +=
                        dy[n * columns + attr->part[p].column + m] * tm_view_row(&call->in[1], n)[p * attr->rank + r];
                db[(row + m) * attr->rank + r] += attr->scale * sum;
            }
}

static tm_cost low_rank_wgrad_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, products(call, call->out[0].shape.n[0]));
    cost.vector = (double)tm_shape_elements(call->in[1].shape);
    return cost;
}

static tm_rounding low_rank_wgrad_rounding(const tm_call *call, int k)
{
    (void)k;
    tm_rounding rounding = tm_rounding_sum(call->in[0].shape.n[0] + 2);
    rounding.stores = 2; /* u, scaled, is rounded to float32 */
    return rounding;
}

static bool low_rank_wgrad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    const tm_low_rank_attr *attr = &cases[k].attr;
    tm_example_begin(example, attr, sizeof *attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].columns), 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, attr->parts * attr->rank), 0, 1);
    example->out[0] = tm_shape_2(case_rows(k), attr->rank);
    return true;
}

const tm_op tm_op_low_rank_wgrad = {
    .name = "low_rank_wgrad",
    .formula = "db_p = scale dy_p^T u_p",
    .group = "linear",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_GRADIENT },
    .infer = low_rank_wgrad_infer,
    .reference = low_rank_wgrad_reference,
    .cost = low_rank_wgrad_cost,
    .example = low_rank_wgrad_example,
    .rounding = low_rank_wgrad_rounding,
    .in_name = { "dy (N, M)", "u (N, P r)" },
    .out_name = { "db (R, r)" },
    .attributes = "scale, rank, parts, part: column, rows",
};
