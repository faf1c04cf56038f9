/* SPDX-License-Identifier: Apache-2.0 */
/* op/grouped_linear.c - a linear layer for each expert's rows, and its three gradients. Which rows are whose is in the
 * data: rows offsets[e] .. offsets[e + 1] - 1 are those of expert e. Rows behind the last expert's belong to nobody:
 * their results are 0.
 *
 *   y_r = w_e x_r + bias_e + residual_r
 *   dx_r = dy_r w_e,  dw_e = sum over its rows of dy_r^T x_r,  dbias_e = sum over its rows of dy_r     (0 without
 * rows), dresidual = dy
 *
 * x (R, K), w (E, M, K), offsets (E + 1) int32, [bias (E M), one expert after the other], [residual (R, M)] -> y (R, M)
 */
#include "base/status.h"
#include "graph/gradient.h"
#include "op/attrs.h"
#include "op/describe.h"

static const char *grouped_check(tm_shape w, tm_shape offsets)
{
    if (w.rank != 3) return "the weights must have three axes (experts, outputs, inputs)";
    if (!tm_shape_is_vector(offsets, w.n[0] + 1)) return "there must be one offset more than experts";
    return NULL;
}

static const char *grouped_linear_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    (void)attr;
    if (in[0].rank != 2) return "x must have two axes (rows, inputs)";
    if ((why = grouped_check(in[1], in[2]))) return why;
    if (in[1].n[2] != in[0].n[1]) return "the last axes of x and of the weights differ";
    if (tm_shape_present(in[3]) && !tm_shape_is_vector(in[3], in[1].n[0] * in[1].n[1]))
        return "the bias must have one value per expert and output";
    if (tm_shape_present(in[4]) && !tm_shape_is_matrix(in[4], in[0].n[0], in[1].n[1]))
        return "the residual must have the shape of y";
    return tm_shape_fit(&out[0], tm_shape_2(in[0].n[0], in[1].n[1]),
                        "y must have the rows of x and the outputs of the weights");
}

/* Checks the offsets of `rows` rows. */
static const int32_t *offsets_of(const tm_view *view, int64_t rows)
{
    const int32_t *offsets = view->data;
    int64_t        experts = view->shape.n[0] - 1;
    TM_ASSERT(offsets[0] == 0 && offsets[experts] <= rows);
    for (int64_t e = 0; e < experts; e++) TM_ASSERT(offsets[e] <= offsets[e + 1]);
    return offsets;
}

static void grouped_linear_reference(const tm_call *call)
{
    int64_t        experts = call->in[1].shape.n[0], outputs = call->in[1].shape.n[1], inputs = call->in[1].shape.n[2];
    const int32_t *offsets = offsets_of(&call->in[2], call->in[0].shape.n[0]);
    const double  *bias = call->in[3].data, *residual = call->in[4].data;
    for (int64_t e = 0; e < experts; e++)
        for (int64_t r = offsets[e]; r < offsets[e + 1]; r++)
            for (int64_t m = 0; m < outputs; m++) {
                const double *x = (const double *)call->in[0].data + r * inputs;
                const double *w = (const double *)call->in[1].data + (e * outputs + m) * inputs;
                double        sum = bias ? bias[e * outputs + m] : 0;
                for (int64_t k = 0; k < inputs; k++) sum += x[k] * w[k];
                if (residual) sum += residual[r * outputs + m];
                ((double *)call->out[0].data)[r * outputs + m] = sum;
            }
    for (int64_t i = offsets[experts] * outputs; i < call->in[0].shape.n[0] * outputs; i++)
        ((double *)call->out[0].data)[i] = 0;
}

/* The weights' gradient comes first: x may die there, before dx of the same size is made. */
static void grouped_linear_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id x = node->in[0], w = node->in[1], offsets = node->in[2], residual = node->in[4];
    tm_tensor_id dy = tm_gradient_of(gradient, node->out[0]);
    unsigned     add_dbias = 0, add_dw = 0;
    if (dy == TM_NONE) return;
    tm_tensor_id dbias = tm_gradient_parameter(gradient, node->in[3], 0, &add_dbias);
    if (dbias != TM_NONE)
        tm_gradient_emit(gradient, TM_OP_grouped_bias_grad, NULL, 0, (tm_tensor_id[TM_MAX_IN]){ dy, offsets },
                         (tm_tensor_id[TM_MAX_OUT]){ dbias }, add_dbias);
    tm_tensor_id dw = tm_gradient_parameter(gradient, w, 0, &add_dw);
    if (dw != TM_NONE)
        tm_gradient_emit(gradient, TM_OP_grouped_linear_wgrad, node->attr, node->attr_bytes,
                         (tm_tensor_id[TM_MAX_IN]){ dy, x, offsets }, (tm_tensor_id[TM_MAX_OUT]){ dw }, add_dw);
    if (tm_gradient_wanted(gradient, x)) {
        tm_tensor_id in[TM_MAX_IN] = { dy, w, offsets }, dx[TM_MAX_OUT] = { TM_NONE };
        tm_gradient_emit(gradient, TM_OP_grouped_linear_dgrad, node->attr, node->attr_bytes, in, dx, 0);
        tm_gradient_add(gradient, x, dx[0]);
    }
    if (tm_gradient_wanted(gradient, residual)) tm_gradient_add(gradient, residual, dy);
}

static tm_cost grouped_cost(const tm_call *call, int64_t inputs, int64_t outputs)
{
    const tm_grouped_attr *attr = call->attr;
    int64_t                rows = attr ? attr->even : call->in[0].shape.n[0];
    return tm_call_cost(call, 2.0 * (double)rows * (double)inputs * (double)outputs);
}

static tm_cost grouped_linear_cost(const tm_call *call)
{
    tm_cost cost = grouped_cost(call, call->in[1].shape.n[2], call->in[1].shape.n[1]);
    int     extras = tm_view_present(&call->in[3]) + tm_view_present(&call->in[4]); /* bias, residual */
    cost.vector = extras * (double)tm_shape_elements(call->out[0].shape);
    return cost;
}

/* Over the inputs or outputs. */
static tm_rounding columns_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(call->in[0].shape.n[1] + 2);
}

/* 600 inputs cross the 512-element blocks of the fast kernels, 1500 rows of few experts their 512 rows. With more
 * experts than the root of the rows the first ones have none. */
static const struct {
    int64_t rows, inputs, outputs, experts;
    bool    bias;
    int64_t behind; /* rows of nobody */
} cases[] = { { 1, 1, 1, 1, false, 0 },      { 9, 7, 5, 4, true, 0 },       { 20, 33, 17, 3, false, 0 },
              { 70, 8, 40, 8, true, 0 },     { 5, 600, 9, 2, true, 0 },     { 1500, 16, 9, 2, true, 0 },
              { 300, 64, 96, 17, false, 0 }, { 3, 16, 16, 6, true, 0 },     { 1300, 70, 530, 3, true, 0 },
              { 40, 20, 24, 5, true, 11 },   { 700, 17, 40, 3, false, 690 } };

static int64_t rows_of_experts(int k)
{
    return cases[k].rows - cases[k].behind;
}

static void begin_example(int k, tm_example *example)
{
    tm_example_begin(example, &(tm_grouped_attr){ .even = rows_of_experts(k) }, sizeof(tm_grouped_attr));
}

static bool grouped_linear_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    begin_example(k, example);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].inputs), 0, 1);
    tm_example_in(example, 1, TM_ROLE_PARAMETER, tm_shape_3(cases[k].experts, cases[k].outputs, cases[k].inputs), 0,
                  0.5);
    tm_example_offsets(example, 2, cases[k].experts, rows_of_experts(k));
    if (cases[k].bias)
        tm_example_in(example, 3, TM_ROLE_PARAMETER, tm_shape_1(cases[k].experts * cases[k].outputs), 0, 1);
    if (k % 3 == 1) /* with a bias and without */
        tm_example_in(example, 4, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].outputs), 0, 1);
    return true;
}

const tm_op tm_op_grouped_linear = {
    .name = "grouped_linear",
    .formula = "y[r] = w[e] x[r] + bias[e] + residual[r], offsets[e] <= r < offsets[e + 1]",
    .group = "linear",
    .n_in = 5,
    .n_out = 1,
    .optional_in = 1U << 3 | 1U << 4,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = grouped_linear_infer,
    .reference = grouped_linear_reference,
    .gradient = grouped_linear_gradient,
    .cost = grouped_linear_cost,
    .example = grouped_linear_example,
    .rounding = columns_rounding,
    .in_name = { "x (R, K)", "w (E, M, K)", "offsets (E + 1)", "[bias (E M)]", "[residual (R, M)]" },
    .out_name = { "y (R, M)" },
    .attributes = "even",
};

/* in: dy (R, M), w (E, M, K), offsets (E + 1); out: dx (R, K) */
static const char *grouped_linear_dgrad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why;
    (void)attr;
    if (in[0].rank != 2) return "dy must have two axes (rows, outputs)";
    if ((why = grouped_check(in[1], in[2]))) return why;
    if (in[0].n[1] != in[1].n[1]) return "dy must have one column per output of the weights";
    return tm_shape_fit(&out[0], tm_shape_2(in[0].n[0], in[1].n[2]),
                        "dx must have the rows of dy and the inputs of the weights");
}

static void grouped_linear_dgrad_reference(const tm_call *call)
{
    int64_t        experts = call->in[1].shape.n[0], outputs = call->in[1].shape.n[1], inputs = call->in[1].shape.n[2];
    const int32_t *offsets = offsets_of(&call->in[2], call->in[0].shape.n[0]);
    const double  *dy = call->in[0].data, *w = call->in[1].data;
    double        *dx = tm_call_sums(call, 0);
    for (int64_t e = 0; e < experts; e++)
        for (int64_t r = offsets[e]; r < offsets[e + 1]; r++)
            for (int64_t m = 0; m < outputs; m++)
                for (int64_t k = 0; k < inputs; k++)
                    dx[r * inputs + k] += dy[r * outputs + m] * w[(e * outputs + m) * inputs + k];
}

static tm_cost grouped_linear_dgrad_cost(const tm_call *call)
{
    return grouped_cost(call, call->in[1].shape.n[2], call->in[1].shape.n[1]);
}

static bool grouped_linear_dgrad_example(int k, tm_example *example)
{
    if (!grouped_linear_example(k, example)) return false;
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].outputs), 0, 1);
    example->in[3].rank = example->in[4].rank = -1;
    return true;
}

const tm_op tm_op_grouped_linear_dgrad = {
    .name = "grouped_linear_dgrad",
    .formula = "dx[r] = dy[r] w[e], offsets[e] <= r < offsets[e + 1]",
    .group = "linear",
    .n_in = 3,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = grouped_linear_dgrad_infer,
    .reference = grouped_linear_dgrad_reference,
    .cost = grouped_linear_dgrad_cost,
    .example = grouped_linear_dgrad_example,
    .rounding = columns_rounding,
    .in_name = { "dy (R, M)", "w (E, M, K)", "offsets (E + 1)" },
    .out_name = { "dx (R, K)" },
    .attributes = "even",
};

/* in: dy (R, M), x (R, K), offsets (E + 1); out: dw (E, M, K) */
static const char *grouped_linear_wgrad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (in[0].rank != 2) return "dy must have two axes (rows, outputs)";
    if (in[1].rank != 2) return "x must have two axes (rows, inputs)";
    if (in[0].n[0] != in[1].n[0]) return "dy and x must have the same rows";
    if (in[2].rank != 1 || in[2].n[0] < 2) return "there must be one offset more than experts";
    return tm_shape_fit(&out[0], tm_shape_3(in[2].n[0] - 1, in[0].n[1], in[1].n[1]),
                        "dw must have the shape (experts, outputs of dy, inputs of x)");
}

static void grouped_linear_wgrad_reference(const tm_call *call)
{
    int64_t experts = call->out[0].shape.n[0], outputs = call->out[0].shape.n[1], inputs = call->out[0].shape.n[2];
    const int32_t *offsets = offsets_of(&call->in[2], call->in[0].shape.n[0]);
    const double  *dy = call->in[0].data, *x = call->in[1].data;
    double        *dw = tm_call_sums(call, 0);
    for (int64_t e = 0; e < experts; e++)
        for (int64_t r = offsets[e]; r < offsets[e + 1]; r++)
            for (int64_t m = 0; m < outputs; m++)
                for (int64_t k = 0; k < inputs; k++)
                    dw[(e * outputs + m) * inputs + k] += dy[r * outputs + m] * x[r * inputs + k];
}

static tm_cost grouped_linear_wgrad_cost(const tm_call *call)
{
    return grouped_cost(call, call->in[1].shape.n[1], call->in[0].shape.n[1]);
}

/* One expert may have all rows. */
static tm_rounding rows_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(call->in[0].shape.n[0] + 1);
}

static bool grouped_linear_wgrad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    begin_example(k, example);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].outputs), 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].inputs), 0, 1);
    tm_example_offsets(example, 2, cases[k].experts, rows_of_experts(k));
    example->out[0] = tm_shape_3(cases[k].experts, cases[k].outputs, cases[k].inputs);
    return true;
}

const tm_op tm_op_grouped_linear_wgrad = {
    .name = "grouped_linear_wgrad",
    .formula = "dw[e] = sum of dy[r]^T x[r], offsets[e] <= r < offsets[e + 1]",
    .group = "linear",
    .n_in = 3,
    .n_out = 1,
    .out_role = { TM_ROLE_GRADIENT },
    .infer = grouped_linear_wgrad_infer,
    .reference = grouped_linear_wgrad_reference,
    .cost = grouped_linear_wgrad_cost,
    .example = grouped_linear_wgrad_example,
    .rounding = rows_rounding,
    .in_name = { "dy (R, M)", "x (R, K)", "offsets (E + 1)" },
    .out_name = { "dw (E, M, K)" },
    .attributes = "even",
};

/* in: dy (R, M), offsets (E + 1); out: db (E M) */
static const char *grouped_bias_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (in[0].rank != 2) return "dy must have two axes (rows, outputs)";
    if (in[1].rank != 1 || in[1].n[0] < 2) return "there must be one offset more than experts";
    return tm_shape_fit(&out[0], tm_shape_1((in[1].n[0] - 1) * in[0].n[1]),
                        "db must have one value per expert and output");
}

static void grouped_bias_grad_reference(const tm_call *call)
{
    int64_t        experts = call->in[1].shape.n[0] - 1, outputs = call->in[0].shape.n[1];
    const int32_t *offsets = offsets_of(&call->in[1], call->in[0].shape.n[0]);
    double        *db = tm_call_sums(call, 0);
    for (int64_t e = 0; e < experts; e++)
        for (int64_t r = offsets[e]; r < offsets[e + 1]; r++)
            for (int64_t m = 0; m < outputs; m++)
                db[e * outputs + m] += ((const double *)call->in[0].data)[r * outputs + m];
}

static bool grouped_bias_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].rows, cases[k].outputs), 0, 1);
    tm_example_offsets(example, 1, cases[k].experts, rows_of_experts(k));
    example->out[0] = tm_shape_1(cases[k].experts * cases[k].outputs);
    return true;
}

const tm_op tm_op_grouped_bias_grad = {
    .name = "grouped_bias_grad",
    .formula = "db[e] = sum of dy[r], offsets[e] <= r < offsets[e + 1]",
    .group = "linear",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_GRADIENT },
    .infer = grouped_bias_grad_infer,
    .reference = grouped_bias_grad_reference,
    .cost = tm_cost_moved,
    .vector = 1,
    .example = grouped_bias_grad_example,
    .rounding = rows_rounding,
    .in_name = { "dy (R, M)", "offsets (E + 1)" },
    .out_name = { "db (E M)" },
};
