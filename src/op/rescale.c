/* SPDX-License-Identifier: Apache-2.0 */
/* op/rescale.c - weights split into magnitude and direction (Liu et al. 2024, "DoRA", equation 5): row j of an adapted
 * part p of a matrix w, with the product of an adapter added to it, has the length m_j,
 *
 *   w'_j = m_j / n_j (w_j + scale b_j a_p),   n_j = || w_j + scale b_j a_p ||
 *
 * so that, with z = x w^T + scale x a_p^T b^T (op/low_rank.c), y = x w'^T + bias is z with its columns rescaled:
 *
 *   y_nj = m_j / n_j z_nj + bias_j + residual_nj        columns of no part: z_nj + bias_j + residual_nj
 *   dz_nj = m_j / n_j dy_nj,  dm_j = sum over n of dy_nj z_nj / n_j
 *
 * n counts as a constant (section 4.3 there): nothing flows into w, a and b through it; that of a row of zeros counts
 * as 1. Where ranks have some of the columns of w and a, each has the norms of its parts of the rows, and `joined_norm`
 * makes those of whole rows of them:
 *
 *   n_j = sqrt(sum over parts p of n_pj^2)          the parts of all ranks one after the other: (P R), perhaps twice
 *
 * w (M, K), a (P r, K), b (R, r) -> n (R); R: rows of all parts together
 * z (N, M), m (R), n (R), [bias (M)] -> y (N, M). `rescale_add`, which has a residual (N, M), too, is an op of its own:
 * made again from z, the residual stream would be made again from the first block on.
 */
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"
#include "op/parts.h"

#include <math.h>

static const char *adapted_norm_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_low_rank_attr *attr = attr_;
    if (in[0].rank != 2) return "the weight must have two axes (outputs, inputs)";
    int64_t rows = tm_rows_of_parts(attr, in[0].n[0]);
    if (rows < 0) return "the parts must be contiguous rows of the weight, in order";
    if (!tm_shape_is_matrix(in[1], attr->parts * attr->rank, in[0].n[1]))
        return "a must have `rank` rows for each part and the inputs of the weight";
    if (!tm_shape_is_matrix(in[2], rows, attr->rank)) return "b must have one row of `rank` values per adapted row";
    return tm_shape_fit(&out[0], tm_shape_1(rows), "there must be one norm per adapted row");
}

static void adapted_norm_reference(const tm_call *call)
{
    const tm_low_rank_attr *attr = call->attr;
    int64_t                 width = call->in[0].shape.n[1];
    const double           *w = call->in[0].data, *a = call->in[1].data, *b = call->in[2].data;
    double                 *norm = call->out[0].data;
    for (int64_t p = 0, row = 0; p < attr->parts; p++)
        for (int64_t m = 0; m < attr->part[p].rows; m++, row++) {
            double squares = 0;
            for (int64_t k = 0; k < width; k++) {
                double sum = 0;
                for (int64_t r = 0; r < attr->rank; r++)
                    sum += b[row * attr->rank + r] * a[(p * attr->rank + r) * width + k];
                double value = w[(attr->part[p].column + m) * width + k] + attr->scale * sum;
                squares += value * value;
            }
            norm[row] = sqrt(squares);
        }
}

/* The product b a of the adapted rows; squares and sums of these. */
static tm_cost adapted_norm_cost(const tm_call *call)
{
    double  values = (double)call->in[2].shape.n[0] * (double)call->in[0].shape.n[1];
    tm_cost cost = tm_call_cost(call, 2 * values * (double)((const tm_low_rank_attr *)call->attr)->rank);
    cost.vector = 2 * values;
    return cost;
}

/* The sum over the ranks and what it is added to; squares are summed in float64. */
static tm_rounding adapted_norm_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(((const tm_low_rank_attr *)call->attr)->rank + 2);
}

static const struct {
    int64_t          rows, columns, inputs;
    bool             bias;
    tm_low_rank_attr attr;
} cases[] = {
    { 1, 1, 1, false, { .scale = 2, .rank = 1, .parts = 1, .part = { { 0, 1 } } } },
    { 5, 9, 7, true, { .scale = 0.5, .rank = 2, .parts = 2, .part = { { 0, 4 }, { 6, 3 } } } },
    { 9, 8, 16, false, { .scale = 1, .rank = 3, .parts = 1, .part = { { 0, 8 } } } },
    { 70, 40, 33, true, { .scale = -1.25, .rank = 4, .parts = 3, .part = { { 0, 16 }, { 16, 8 }, { 30, 7 } } } },
    { 130, 33, 70, false, { .scale = 0.7, .rank = 8, .parts = 1, .part = { { 8, 20 } } } },
    { 600, 70, 130, true, { .scale = 2, .rank = 5, .parts = 2, .part = { { 1, 33 }, { 35, 35 } } } },
    { 33, 1030, 520, false, { .scale = 2, .rank = 16, .parts = 2, .part = { { 0, 600 }, { 600, 430 } } } },
};

static int64_t case_rows(int k)
{
    return tm_rows_of_parts(&cases[k].attr, cases[k].columns);
}

static bool adapted_norm_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    const tm_low_rank_attr *attr = &cases[k].attr;
    tm_example_begin(example, attr, sizeof *attr);
    tm_example_in(example, 0, TM_ROLE_PARAMETER, tm_shape_2(cases[k].columns, cases[k].inputs), 0, 1);
    tm_example_in(example, 1, TM_ROLE_PARAMETER, tm_shape_2(attr->parts * attr->rank, cases[k].inputs), 0, 1);
    tm_example_in(example, 2, TM_ROLE_PARAMETER, tm_shape_2(case_rows(k), attr->rank), 0, 0.5);
    return true;
}

const tm_op tm_op_adapted_norm = {
    .name = "adapted_norm",
    .formula = "n_j = length of w_j + scale b_j a_p for the rows j of each part p; a constant for gradients",
    .group = "linear",
    .n_in = 3,
    .n_out = 1,
    .out_role = { TM_ROLE_STATISTIC },
    .infer = adapted_norm_infer,
    .reference = adapted_norm_reference,
    .cost = adapted_norm_cost,
    .any_dtype_in = 1U << 0 | 1U << 1 | 1U << 2,
    .example = adapted_norm_example,
    .rounding = adapted_norm_rounding,
    .in_name = { "w (M, K)", "a (P r, K)", "b (R, r)" },
    .out_name = { "n (R)" },
    .attributes = "scale, rank, parts, part: column, rows",
};

/* --- joined_norm -------------------------------------------------------------------------------------------------- */

static const char *joined_norm_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    int64_t parts = ((const tm_joined_attr *)attr_)->parts;
    if (parts < 1) return "there must be a part";
    if (in[0].rank != 1 || in[0].n[0] % parts != 0)
        return "the parts must be vectors of one length, one behind the other";
    if (tm_shape_present(in[1]) && !tm_shape_equal(in[1], in[0]))
        return "the second parts must be as many as the first";
    return tm_shape_fit(&out[0], tm_shape_1(in[0].n[0] / parts), "there must be one norm per row");
}

static void joined_norm_reference(const tm_call *call)
{
    int64_t parts = ((const tm_joined_attr *)call->attr)->parts, rows = call->out[0].shape.n[0];
    double *norm = call->out[0].data;
    for (int64_t j = 0; j < rows; j++) {
        double squares = 0;
        for (int i = 0; i < 2; i++)
            for (int64_t p = 0; tm_view_present(&call->in[i]) && p < parts; p++) {
                double value = ((const double *)call->in[i].data)[p * rows + j];
                squares += value * value;
            }
        norm[j] = sqrt(squares);
    }
}

static tm_cost joined_norm_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 0);
    cost.vector = 2.0 * (1 + tm_view_present(&call->in[1])) * (double)tm_shape_elements(call->in[0].shape);
    return cost;
}

static bool joined_norm_example(int k, tm_example *example)
{
    static const struct {
        int64_t parts, rows;
        bool    second;
    } sizes[] = { { 1, 1, false }, { 2, 7, false }, { 3, 33, true }, { 8, 130, false }, { 2, 1030, true } };
    if (k >= TM_COUNT_OF(sizes)) return false;
    tm_example_begin(example, &(tm_joined_attr){ sizes[k].parts }, sizeof(tm_joined_attr));
    for (int i = 0; i <= sizes[k].second; i++)
        tm_example_in(example, i, TM_ROLE_STATISTIC, tm_shape_1(sizes[k].parts * sizes[k].rows), 2, 0.3);
    return true;
}

const tm_op tm_op_joined_norm = {
    .name = "joined_norm",
    .formula = "n_j = sqrt(sum over parts p of n_pj^2): the length of row j, of which each part has some elements",
    .group = "linear",
    .n_in = 2,
    .n_out = 1,
    .optional_in = 1U << 1,
    .out_role = { TM_ROLE_STATISTIC },
    .infer = joined_norm_infer,
    .reference = joined_norm_reference,
    .cost = joined_norm_cost,
    .example = joined_norm_example,
    .rounding = tm_rounding_f64,
    .in_name = { "parts (P R)", "[parts (P R)]" },
    .out_name = { "n (R)" },
    .attributes = "parts",
};

/* --- rescale, rescale_add ----------------------------------------------------------------------------------------- */

static const char *scales_check(const tm_shape *in, const tm_low_rank_attr *attr)
{
    if (in[0].rank != 2) return "z must have two axes (rows, outputs)";
    int64_t rows = tm_rows_of_parts(attr, in[0].n[1]);
    if (rows < 0) return "the parts must be contiguous columns of z, in order";
    if (!tm_shape_is_vector(in[1], rows)) return "there must be one magnitude per adapted column";
    if (!tm_shape_is_vector(in[2], rows)) return "there must be one norm per adapted column";
    return NULL;
}

static const char *rescale_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why = scales_check(in, attr);
    if (why) return why;
    if (tm_shape_present(in[3]) && !tm_shape_is_vector(in[3], in[0].n[1]))
        return "the bias must have one value per "
               "column of z";
    return tm_shape_fit(&out[0], in[0], "y must have the shape of z");
}

static const char *rescale_add_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    if (!tm_shape_equal(in[4], in[0])) return "the residual must have the shape of z";
    return rescale_infer(in, attr, out);
}

/* The part that column `column` is in, or -1; *row: its row among those of all parts. */
static int part_of(const tm_low_rank_attr *attr, int64_t column, int64_t *row)
{
    *row = 0;
    for (int p = 0; p < (int)attr->parts; *row += attr->part[p++].rows) {
        int64_t at = column - attr->part[p].column;
        if (at < 0 || at >= attr->part[p].rows) continue;
        *row += at;
        return p;
    }
    return -1;
}

/* A row of zeros has no direction: its norm counts as 1. */
static double norm_at(const double *norm, int64_t row)
{
    return norm[row] == 0 ? 1 : norm[row];
}

static void rescale_reference(const tm_call *call)
{
    int64_t       columns = call->in[0].shape.n[1], row;
    const double *z = call->in[0].data, *m = call->in[1].data, *norm = call->in[2].data, *bias = call->in[3].data;
    const double *residual = call->op == &tm_op_rescale_add ? call->in[4].data : NULL;
    double       *y = call->out[0].data;
    for (int64_t c = 0; c < columns; c++) {
        double factor = part_of(call->attr, c, &row) < 0 ? 1 : m[row] / norm_at(norm, row);
        for (int64_t n = 0; n < call->in[0].shape.n[0]; n++) {
            double value = factor * z[n * columns + c];
            if (bias) value += bias[c];
            if (residual) value += residual[n * columns + c];
            y[n * columns + c] = value;
        }
    }
}

static void rescale_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id z = node->in[0], m = node->in[1], norm = node->in[2], bias = node->in[3];
    tm_tensor_id residual = node->op == TM_OP_rescale_add ? node->in[4] : TM_NONE;
    tm_tensor_id dy = tm_gradient_of(gradient, node->out[0]);
    unsigned     add_dbias = 0, add_dm = 0;
    if (dy == TM_NONE) return;
    tm_tensor_id dbias = tm_gradient_parameter(gradient, bias, 0, &add_dbias);
    if (dbias != TM_NONE)
        tm_gradient_emit(gradient, TM_OP_bias_grad, NULL, 0, (tm_tensor_id[TM_MAX_IN]){ dy },
                         (tm_tensor_id[TM_MAX_OUT]){ dbias }, add_dbias);
    tm_tensor_id dm = tm_gradient_parameter(gradient, m, 0, &add_dm);
    if (dm != TM_NONE)
        tm_gradient_emit(gradient, TM_OP_rescale_wgrad, node->attr, node->attr_bytes,
                         (tm_tensor_id[TM_MAX_IN]){ dy, z, norm }, (tm_tensor_id[TM_MAX_OUT]){ dm }, add_dm);
    if (tm_gradient_wanted(gradient, z)) {
        tm_tensor_id in[TM_MAX_IN] = { dy, m, norm, TM_NONE }, dz[TM_MAX_OUT] = { TM_NONE };
        tm_gradient_emit(gradient, TM_OP_rescale, node->attr, node->attr_bytes, in, dz, 0);
        tm_gradient_add(gradient, z, dz[0]);
    }
    if (tm_gradient_wanted(gradient, residual)) tm_gradient_add(gradient, residual, dy);
}

static tm_cost rescale_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 0);
    int     extras = tm_view_present(&call->in[3]) + (call->op == &tm_op_rescale_add); /* bias, residual */
    cost.vector = (1 + extras) * (double)tm_shape_elements(call->in[0].shape);
    return cost;
}

static bool rescale_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &cases[k].attr, sizeof cases[k].attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].columns), 0, 1);
    tm_example_in(example, 1, TM_ROLE_PARAMETER, tm_shape_1(case_rows(k)), 1, 0.3);
    tm_example_in(example, 2, TM_ROLE_STATISTIC, tm_shape_1(case_rows(k)), 2, 0.2);
    if (cases[k].bias) tm_example_in(example, 3, TM_ROLE_PARAMETER, tm_shape_1(cases[k].columns), 0, 1);
    return true;
}

static bool rescale_add_example(int k, tm_example *example)
{
    if (!rescale_example(k, example)) return false;
    tm_example_in(example, 4, TM_ROLE_ACTIVATION, example->in[0], 0, 1);
    return true;
}

const tm_op tm_op_rescale = {
    .name = "rescale",
    .formula = "y_j = m_j / n_j z_j + bias_j in the columns j of each part; z_j + bias_j in the others",
    .group = "elementwise",
    .n_in = 4,
    .n_out = 1,
    .optional_in = 1U << 3,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = rescale_infer,
    .reference = rescale_reference,
    .gradient = rescale_gradient,
    .cost = rescale_cost,
    .inplace = 1U << 0,
    .any_dtype_in = 1U << 1,
    .cheap = true,
    .example = rescale_example,
    .in_name = { "z (N, M)", "m (R)", "n (R)", "[bias (M)]" },
    .out_name = { "y (N, M)" },
    .attributes = "parts, part: column, rows",
};

const tm_op tm_op_rescale_add = {
    .name = "rescale_add",
    .formula = "y as rescale, + residual",
    .group = "elementwise",
    .n_in = 5,
    .n_out = 1,
    .optional_in = 1U << 3,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = rescale_add_infer,
    .reference = rescale_reference,
    .gradient = rescale_gradient,
    .cost = rescale_cost,
    .inplace = 1U << 0 | 1U << 4,
    .any_dtype_in = 1U << 1,
    .example = rescale_add_example,
    .in_name = { "z (N, M)", "m (R)", "n (R)", "[bias (M)]", "residual (N, M)" },
    .out_name = { "y (N, M)" },
    .attributes = "parts, part: column, rows",
};

/* --- rescale_wgrad: in: dy (N, M), z (N, M), n (R); out: dm (R) ------------------------------------------------------
 */

static const char *rescale_wgrad_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_low_rank_attr *attr = attr_;
    if (in[0].rank != 2) return "dy must have two axes (rows, outputs)";
    if (!tm_shape_equal(in[1], in[0])) return "z must have the shape of dy";
    int64_t rows = tm_rows_of_parts(attr, in[0].n[1]);
    if (rows < 0) return "the parts must be contiguous columns of dy, in order";
    if (!tm_shape_is_vector(in[2], rows)) return "there must be one norm per adapted column";
    return tm_shape_fit(&out[0], in[2], "dm must have one value per adapted column");
}

static void rescale_wgrad_reference(const tm_call *call)
{
    const tm_low_rank_attr *attr = call->attr;
    int64_t                 columns = call->in[0].shape.n[1];
    const double           *dy = call->in[0].data, *z = call->in[1].data, *norm = call->in[2].data;
    double                 *dm = tm_call_sums(call, 0);
    for (int64_t p = 0, row = 0; p < attr->parts; p++)
        for (int64_t m = 0; m < attr->part[p].rows; m++, row++) {
            double sum = 0;
            for (int64_t n = 0; n < call->in[0].shape.n[0]; n++) {
                int64_t at = n * columns + attr->part[p].column + m;
                sum += dy[at] * z[at];
            }
            dm[row] += sum / norm_at(norm, row);
        }
}

static tm_cost rescale_wgrad_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 0);
    cost.vector = 2 * (double)call->in[0].shape.n[0] * (double)call->in[2].shape.n[0];
    return cost;
}

static tm_rounding rescale_wgrad_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(call->in[0].shape.n[0] + 2);
}

static bool rescale_wgrad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &cases[k].attr, sizeof cases[k].attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].columns), 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].columns), 0, 1);
    tm_example_in(example, 2, TM_ROLE_STATISTIC, tm_shape_1(case_rows(k)), 2, 0.2);
    example->out[0] = tm_shape_1(case_rows(k));
    return true;
}

const tm_op tm_op_rescale_wgrad = {
    .name = "rescale_wgrad",
    .formula = "dm_j = sum over rows of dy_j z_j / n_j",
    .group = "elementwise",
    .n_in = 3,
    .n_out = 1,
    .out_role = { TM_ROLE_GRADIENT },
    .infer = rescale_wgrad_infer,
    .reference = rescale_wgrad_reference,
    .cost = rescale_wgrad_cost,
    .example = rescale_wgrad_example,
    .rounding = rescale_wgrad_rounding,
    .in_name = { "dy (N, M)", "z (N, M)", "n (R)" },
    .out_name = { "dm (R)" },
    .attributes = "parts, part: column, rows",
};
