/* SPDX-License-Identifier: Apache-2.0 */
/* op/linear.c - the linear layer and its three gradients. Weights are stored as w[out][in].
 *
 *   y  = x w^T + bias + residual
 *   dx = dy w,  dw = dy^T x,  dbias = column sums of dy,  dresidual = dy      (matrix calculus of the line above)
 *
 * x (N, K), w (M, K), [bias (M)], [residual (N, M)] -> y (N, M)
 * x and dx may be views: columns of a matrix.
 */
#include "graph/gradient.h"
#include "op/describe.h"

static const char *linear_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (in[0].rank != 2) return "x must have two axes (rows, inputs)";
    if (in[1].rank != 2) return "the weight must have two axes (outputs, inputs)";
    if (in[1].n[1] != in[0].n[1]) return "the second axes of x and of the weight differ";
    tm_shape y = tm_shape_2(in[0].n[0], in[1].n[0]);
    if (tm_shape_present(in[2]) && !tm_shape_is_vector(in[2], y.n[1])) return "the bias must have one value per output";
    if (tm_shape_present(in[3]) && !tm_shape_equal(in[3], y)) return "the residual must have the shape of y";
    return tm_shape_fit(&out[0], y, "y must have the rows of x and the outputs of the weight");
}

static void linear_reference(const tm_call *call)
{
    int64_t       rows = call->in[0].shape.n[0], inputs = call->in[0].shape.n[1], outputs = call->in[1].shape.n[0];
    const double *w = call->in[1].data, *bias = call->in[2].data, *residual = call->in[3].data;
    double       *y = call->out[0].data;
    for (int64_t n = 0; n < rows; n++)
        for (int64_t m = 0; m < outputs; m++) {
            const double *x = tm_view_row(&call->in[0], n);
            double        sum = 0;
            for (int64_t k = 0; k < inputs; k++) sum += x[k] * w[m * inputs + k];
            if (bias) sum += bias[m];
            if (residual) sum += residual[n * outputs + m];
            y[n * outputs + m] = sum;
        }
}

/* The weight's gradient comes first: x may die there, before dx of the same size is made. */
static void linear_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_tensor_id x = node->in[0], w = node->in[1], bias = node->in[2], residual = node->in[3];
    tm_tensor_id dy = tm_gradient_of(gradient, node->out[0]);
    unsigned     add_dbias = 0, add_dw = 0;
    if (dy == TM_NONE) return;
    tm_tensor_id dbias = tm_gradient_parameter(gradient, bias, 0, &add_dbias);
    if (dbias != TM_NONE)
        tm_gradient_emit(gradient, TM_OP_bias_grad, NULL, 0, (tm_tensor_id[TM_MAX_IN]){ dy },
                         (tm_tensor_id[TM_MAX_OUT]){ dbias }, add_dbias);
    tm_tensor_id dw = tm_gradient_parameter(gradient, w, 0, &add_dw);
    if (dw != TM_NONE)
        tm_gradient_emit(gradient, TM_OP_linear_wgrad, NULL, 0, (tm_tensor_id[TM_MAX_IN]){ dy, x },
                         (tm_tensor_id[TM_MAX_OUT]){ dw }, add_dw);
    if (tm_gradient_wanted(gradient, x)) {
        tm_tensor_id dx[TM_MAX_OUT] = { tm_gradient_out(gradient, x) };
        tm_gradient_emit(gradient, TM_OP_linear_dgrad, NULL, 0, (tm_tensor_id[TM_MAX_IN]){ dy, w }, dx, 0);
        tm_gradient_add(gradient, x, dx[0]);
    }
    if (tm_gradient_wanted(gradient, residual)) tm_gradient_add(gradient, residual, dy);
}

static tm_cost linear_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 2.0 * (double)call->in[0].shape.n[0] * (double)call->in[0].shape.n[1] *
                                          (double)call->in[1].shape.n[0]);
    int     extras = tm_view_present(&call->in[2]) + tm_view_present(&call->in[3]); /* bias, residual */
    cost.vector = extras * (double)tm_shape_elements(call->out[0].shape);
    return cost;
}

static tm_rounding linear_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(call->in[0].shape.n[1] + 2);
}

/* 600 and 1030 inputs cross the 512-element blocks of the fast kernels, 70 and 130 rows their 64-row blocks. */
static const struct {
    int64_t n, k, m;
    bool    bias, residual;
} cases[] = { { 1, 1, 1, false, false },    { 3, 7, 9, true, false },    { 8, 9, 7, false, true },
              { 7, 65, 3, true, true },     { 65, 8, 33, false, false }, { 70, 20, 40, true, true },
              { 130, 3, 8, true, false },   { 5, 600, 18, true, true },  { 600, 2, 3, true, false },
              { 2, 1030, 3, false, false }, { 31, 33, 65, true, true },  { 64, 64, 16, false, true },
              { 200, 17, 1, true, true },   { 37, 513, 70, true, true }, { 1, 65, 768, true, false },
              { 600, 530, 300, true, true } };

static bool linear_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].n, cases[k].k), 0, 1);
    tm_example_in(example, 1, TM_ROLE_PARAMETER, tm_shape_2(cases[k].m, cases[k].k), 0, 0.5);
    if (cases[k].bias) tm_example_in(example, 2, TM_ROLE_PARAMETER, tm_shape_1(cases[k].m), 0, 1);
    if (cases[k].residual) tm_example_in(example, 3, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].n, cases[k].m), 0, 1);
    return true;
}

const tm_op tm_op_linear = {
    .name = "linear",
    .formula = "y = x w^T + bias + residual",
    .group = "linear",
    .n_in = 4,
    .n_out = 1,
    .optional_in = 1U << 2 | 1U << 3,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = linear_infer,
    .reference = linear_reference,
    .gradient = linear_gradient,
    .cost = linear_cost,
    .strided_in = 1U << 0,
    .example = linear_example,
    .rounding = linear_rounding,
    .in_name = { "x (N, K)", "w (M, K)", "[bias (M)]", "[residual (N, M)]" },
    .out_name = { "y (N, M)" },
};

/* in: dy (N, M), w (M, K); out: dx (N, K) */
static const char *linear_dgrad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (in[0].rank != 2) return "dy must have two axes (rows, outputs)";
    if (in[1].rank != 2) return "the weight must have two axes (outputs, inputs)";
    if (in[0].n[1] != in[1].n[0]) return "dy must have one column per output of the weight";
    return tm_shape_fit(&out[0], tm_shape_2(in[0].n[0], in[1].n[1]),
                        "dx must have the rows of dy and the inputs of the weight");
}

static void linear_dgrad_reference(const tm_call *call)
{
    int64_t       rows = call->in[0].shape.n[0], outputs = call->in[1].shape.n[0], inputs = call->in[1].shape.n[1];
    const double *dy = call->in[0].data, *w = call->in[1].data;
    for (int64_t n = 0; n < rows; n++) {
        double *dx = tm_view_row(&call->out[0], n);
        for (int64_t k = 0; k < inputs; k++) dx[k] = 0;
        for (int64_t m = 0; m < outputs; m++)
            for (int64_t k = 0; k < inputs; k++) dx[k] += dy[n * outputs + m] * w[m * inputs + k];
    }
}

static tm_cost linear_dgrad_cost(const tm_call *call)
{
    return tm_call_cost(call, 2.0 * (double)call->in[0].shape.n[0] * (double)call->in[1].shape.n[0] *
                                  (double)call->in[1].shape.n[1]);
}

static bool linear_dgrad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].n, cases[k].m), 0, 1);
    tm_example_in(example, 1, TM_ROLE_PARAMETER, tm_shape_2(cases[k].m, cases[k].k), 0, 0.5);
    return true;
}

const tm_op tm_op_linear_dgrad = {
    .name = "linear_dgrad",
    .formula = "dx = dy w",
    .group = "linear",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = linear_dgrad_infer,
    .reference = linear_dgrad_reference,
    .cost = linear_dgrad_cost,
    .strided_out = 1U << 0,
    .example = linear_dgrad_example,
    .rounding = linear_rounding,
    .in_name = { "dy (N, M)", "w (M, K)" },
    .out_name = { "dx (N, K)" },
};

/* in: dy (N, M), x (N, K); out: dw (M, K) */
static const char *linear_wgrad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (in[0].rank != 2) return "dy must have two axes (rows, outputs)";
    if (in[1].rank != 2) return "x must have two axes (rows, inputs)";
    if (in[0].n[0] != in[1].n[0]) return "dy and x must have the same rows";
    return tm_shape_fit(&out[0], tm_shape_2(in[0].n[1], in[1].n[1]),
                        "dw must have the outputs of dy and the inputs of x");
}

static void linear_wgrad_reference(const tm_call *call)
{
    int64_t       rows = call->in[0].shape.n[0], outputs = call->in[0].shape.n[1], inputs = call->in[1].shape.n[1];
    const double *dy = call->in[0].data;
    double       *dw = tm_call_sums(call, 0);
    for (int64_t n = 0; n < rows; n++) {
        const double *x = tm_view_row(&call->in[1], n);
        for (int64_t m = 0; m < outputs; m++)
            for (int64_t k = 0; k < inputs; k++) dw[m * inputs + k] += dy[n * outputs + m] * x[k];
    }
}

static tm_cost linear_wgrad_cost(const tm_call *call)
{
    return tm_call_cost(call, 2.0 * (double)call->in[0].shape.n[0] * (double)call->in[0].shape.n[1] *
                                  (double)call->in[1].shape.n[1]);
}

/* Over the rows, and what is there: of bias_grad too. */
static tm_rounding row_sum_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(call->in[0].shape.n[0] + 1);
}

static bool linear_wgrad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].n, cases[k].m), 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].n, cases[k].k), 0, 1);
    example->out[0] = tm_shape_2(cases[k].m, cases[k].k);
    return true;
}

const tm_op tm_op_linear_wgrad = {
    .name = "linear_wgrad",
    .formula = "dw = dy^T x",
    .group = "linear",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_GRADIENT },
    .infer = linear_wgrad_infer,
    .reference = linear_wgrad_reference,
    .cost = linear_wgrad_cost,
    .strided_in = 1U << 1,
    .example = linear_wgrad_example,
    .rounding = row_sum_rounding,
    .in_name = { "dy (N, M)", "x (N, K)" },
    .out_name = { "dw (M, K)" },
};

/* in: dy (N, M); out: db (M) */
static const char *bias_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (in[0].rank != 2) return "dy must have two axes (rows, outputs)";
    return tm_shape_fit(&out[0], tm_shape_1(in[0].n[1]), "db must have one value per column of dy");
}

static void bias_grad_reference(const tm_call *call)
{
    int64_t       rows = call->in[0].shape.n[0], outputs = call->in[0].shape.n[1];
    const double *dy = call->in[0].data;
    double       *db = tm_call_sums(call, 0);
    for (int64_t n = 0; n < rows; n++)
        for (int64_t m = 0; m < outputs; m++) db[m] += dy[n * outputs + m];
}

static bool bias_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, tm_shape_2(cases[k].n, cases[k].m), 0, 1);
    example->out[0] = tm_shape_1(cases[k].m);
    return true;
}

const tm_op tm_op_bias_grad = {
    .name = "bias_grad",
    .formula = "db = sum over rows of dy",
    .group = "linear",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_GRADIENT },
    .infer = bias_grad_infer,
    .reference = bias_grad_reference,
    .cost = tm_cost_moved,
    .vector = 1,
    .example = bias_grad_example,
    .rounding = row_sum_rounding,
    .in_name = { "dy (N, M)" },
    .out_name = { "db (M)" },
};
