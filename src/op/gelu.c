/* SPDX-License-Identifier: Apache-2.0 */
/* op/gelu.c - Gaussian error linear unit, tanh form (Hendrycks & Gimpel 2016, section 2).
 *
 *   y  = x/2 (1 + th),  th = tanh(sqrt(2/pi) (x + 0.044715 x^3))
 *   dx = dy ((1 + th)/2 + x/2 (1 - th^2) sqrt(2/pi) (1 + 3 0.044715 x^2))
 *
 * x (any shape) -> y (same shape), which may be a view: columns of a matrix
 */
#include "graph/gradient.h"
#include "op/describe.h"

#include <math.h>

static const double sqrt_2_over_pi = 0.79788456080286535588, cubic = 0.044715;

static void gelu_reference(const tm_call *call)
{
    int64_t rows = tm_view_rows_of(&call->in[0]), columns = tm_shape_elements(call->in[0].shape) / rows;
    for (int64_t r = 0; r < rows; r++) {
        const double *x = tm_view_row(&call->in[0], r);
        double       *y = tm_view_row(&call->out[0], r);
        for (int64_t c = 0; c < columns; c++)
            y[c] = 0.5 * x[c] * (1 + tanh(sqrt_2_over_pi * (x[c] + cubic * x[c] * x[c] * x[c])));
    }
}

static void gelu_gradient(tm_gradient *gradient, const tm_node *node)
{
    tm_gradient_pair(gradient, node, TM_OP_gelu_grad);
}

static const tm_shape cases[] = { { 2, { 1, 1 } },   { 2, { 3, 7 } },   { 2, { 8, 9 } },    { 2, { 1, 65 } },
                                  { 2, { 9, 130 } }, { 2, { 65, 33 } }, { 1, { 16 } },      { 2, { 2, 15 } },
                                  { 2, { 63, 17 } }, { 2, { 1, 768 } }, { 2, { 200, 768 } } };

static bool gelu_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, cases[k], 0, 2);
    return true;
}

const tm_op tm_op_gelu = {
    .name = "gelu",
    .formula = "y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))",
    .group = "elementwise",
    .n_in = 1,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = tm_infer_same,
    .reference = gelu_reference,
    .gradient = gelu_gradient,
    .cost = tm_cost_moved,
    .vector = 9,
    .inplace = 1U << 0,
    .cheap = true,
    .strided_out = 1U << 0,
    .example = gelu_example,
    .in_name = { "x (...)" },
    .out_name = { "y (...)" },
};

/* in: dy, x; out: dx; all of one shape */
static double gelu_slope(double x)
{
    double th = tanh(sqrt_2_over_pi * (x + cubic * x * x * x));
    double slope = sqrt_2_over_pi * (1 + 3 * cubic * x * x);
    return 0.5 * (1 + th) + 0.5 * x * (1 - th * th) * slope;
}

static void gelu_grad_reference(const tm_call *call)
{
    int64_t       count = tm_shape_elements(call->in[1].shape);
    const double *dy = call->in[0].data, *x = call->in[1].data;
    double       *dx = call->out[0].data;
    for (int64_t i = 0; i < count; i++) dx[i] = dy[i] * gelu_slope(x[i]);
}

static bool gelu_grad_example(int k, tm_example *example)
{
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, cases[k], 0, 1);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, cases[k], 0, 2);
    return true;
}

const tm_op tm_op_gelu_grad = {
    .name = "gelu_grad",
    .formula = "dx = dy ((1 + th)/2 + x/2 (1 - th^2) sqrt(2/pi) (1 + 3 0.044715 x^2)), th as in gelu",
    .group = "elementwise",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = tm_infer_same_grad,
    .reference = gelu_grad_reference,
    .cost = tm_cost_moved,
    .vector = 16,
    .inplace = 1U << 0,
    .example = gelu_grad_example,
    .in_name = { "dy (...)", "x (...)" },
    .out_name = { "dx (...)" },
};

/* in: dy (N, F), x (N, F); out: dx (N, F), db (F): the bias of the product in front of gelu. A pass makes it of
 * gelu_grad and bias_grad (graph/passes/columns.c). dy may be a view. */
static const char *gelu_bias_grad_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    const char *why = tm_infer_same_grad(in, attr, out);
    if (why) return why;
    if (in[0].rank != 2) return "the inputs must have two axes (rows, columns)";
    return tm_shape_fit(&out[1], tm_shape_1(in[0].n[1]), "db must have one value per column");
}

static void gelu_bias_grad_reference(const tm_call *call)
{
    int64_t rows = call->in[1].shape.n[0], columns = call->in[1].shape.n[1];
    double *db = tm_call_sums(call, 1);
    for (int64_t r = 0; r < rows; r++) {
        const double *dy = tm_view_row(&call->in[0], r), *x = (const double *)call->in[1].data + r * columns;
        double       *dx = (double *)call->out[0].data + r * columns;
        for (int64_t c = 0; c < columns; c++) {
            dx[c] = dy[c] * gelu_slope(x[c]);
            db[c] += dx[c];
        }
    }
}

static tm_rounding gelu_bias_grad_rounding(const tm_call *call, int k)
{
    return k == 0 ? tm_rounding_sum(1) : tm_rounding_sum(call->in[1].shape.n[0] + 16);
}

static bool gelu_bias_grad_example(int k, tm_example *example)
{
    static const int64_t shapes[][2] = { { 1, 1 }, { 3, 7 }, { 65, 33 }, { 33, 24 }, { 130, 9 }, { 70, 520 } };
    if (k >= TM_COUNT_OF(shapes)) return false;
    tm_example_begin(example, NULL, 0);
    for (int i = 0; i < 2; i++)
        tm_example_in(example, i, TM_ROLE_ACTIVATION, tm_shape_2(shapes[k][0], shapes[k][1]), 0, 1 + i);
    example->out[1] = tm_shape_1(shapes[k][1]);
    return true;
}

const tm_op tm_op_gelu_bias_grad = {
    .name = "gelu_bias_grad",
    .formula = "dx as in gelu_grad, db = sum over rows of dx",
    .group = "elementwise",
    .n_in = 2,
    .n_out = 2,
    .out_role = { TM_ROLE_ACTIVATION, TM_ROLE_GRADIENT },
    .infer = gelu_bias_grad_infer,
    .reference = gelu_bias_grad_reference,
    .cost = tm_cost_moved,
    .vector = 17,
    .inplace = 1U << 0,
    .strided_in = 1U << 0,
    .example = gelu_bias_grad_example,
    .rounding = gelu_bias_grad_rounding,
    .no_fast_kernel = "on CPUs the sum of the bias stays an op of its own: no plan of theirs has it",
    .in_name = { "dy (N, F)", "x (N, F)" },
    .out_name = { "dx (N, F)", "db (F)" },
};
