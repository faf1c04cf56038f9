/* SPDX-License-Identifier: Apache-2.0 */
/* op/scaled_mm.c - a product of codes: of matrices that `quantize` gives as codes with scales beside them. It stands in
 * the place of `linear` and of its gradients (graph/passes/codes.c), all of which sum along the rows of both factors.
 *
 *   c[n][m] = scale_a[n] scale_b[m] sum_k a[n][k] b[m][k] + bias[m] + residual[n][m]
 *
 * a (N, K), b (M, K) in formats of 8 bits, scale_a (1) or (N), scale_b (1) or (M), [bias (M)], [residual (N, M)]
 * -> c (N, M). A scale of one number is that of the whole matrix. a, b and c may be views.
 */
#include "op/describe.h"

enum { A, B, SCALE_A, SCALE_B, BIAS, RESIDUAL, OPERANDS };

static const char *scaled_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    (void)attr;
    if (in[A].rank != 2) return "a must have two axes (rows, depth)";
    if (in[B].rank != 2) return "b must have two axes (columns, depth)";
    if (in[A].n[1] != in[B].n[1]) return "the second axes of a and of b differ";
    tm_shape c = tm_shape_2(in[A].n[0], in[B].n[0]);
    if (!tm_shape_is_vector(in[SCALE_A], 1) && !tm_shape_is_vector(in[SCALE_A], c.n[0]))
        return "there must be one scale of a, or one of each row";
    if (!tm_shape_is_vector(in[SCALE_B], 1) && !tm_shape_is_vector(in[SCALE_B], c.n[1]))
        return "there must be one scale of b, or one of each row";
    if (tm_shape_present(in[BIAS]) && !tm_shape_is_vector(in[BIAS], c.n[1]))
        return "the bias must have one value per column of c";
    if (tm_shape_present(in[RESIDUAL]) && !tm_shape_equal(in[RESIDUAL], c))
        return "the residual must have the shape of c";
    return tm_shape_fit(&out[0], c, "c must have the rows of a and a column for each row of b");
}

static double scale_of(const tm_view *scales, int64_t i)
{
    return ((const double *)scales->data)[scales->shape.n[0] == 1 ? 0 : i];
}

static void scaled_reference(const tm_call *call)
{
    int64_t       rows = call->in[A].shape.n[0], depth = call->in[A].shape.n[1], columns = call->in[B].shape.n[0];
    const double *bias = call->in[BIAS].data, *residual = call->in[RESIDUAL].data;
    for (int64_t n = 0; n < rows; n++) {
        const double *a = tm_view_row(&call->in[A], n);
        double       *c = tm_view_row(&call->out[0], n);
        for (int64_t m = 0; m < columns; m++) {
            const double *b = tm_view_row(&call->in[B], m);
            double        sum = 0;
            for (int64_t k = 0; k < depth; k++) sum += a[k] * b[k];
            sum *= scale_of(&call->in[SCALE_A], n) * scale_of(&call->in[SCALE_B], m);
            if (bias) sum += bias[m];
            if (residual) sum += residual[n * columns + m];
            c[m] = (tm_call_adds(call, 0) ? c[m] : 0) + sum;
        }
    }
}

static tm_cost scaled_cost(const tm_call *call)
{
    const tm_shape a = call->in[A].shape, c = call->out[0].shape;
    tm_cost        cost = tm_call_cost(call, 2.0 * (double)a.n[0] * (double)a.n[1] * (double)c.n[1]);
    int            extras = tm_view_present(&call->in[BIAS]) + tm_view_present(&call->in[RESIDUAL]);
    cost.vector = extras * (double)tm_shape_elements(c);
    return cost;
}

/* Beside the sum the scales, the bias, the residual and what is added to. */
static tm_rounding scaled_rounding(const tm_call *call, int k)
{
    (void)k;
    return tm_rounding_sum(call->in[A].shape.n[1] + 5);
}

/* Libraries take multiples of 16; the others are for references. */
static const struct {
    int64_t  n, k, m;
    tm_dtype a, b;
    bool     lines, bias, residual;
} cases[] = { { 3, 5, 7, TM_E4M3, TM_E5M2, false, true, true },
              { 16, 32, 32, TM_E4M3, TM_E4M3, false, false, false },
              { 33, 48, 32, TM_E5M2, TM_E4M3, false, true, false },
              { 40, 64, 16, TM_E4M3, TM_E5M2, false, false, true },
              { 17, 80, 64, TM_E4M3, TM_E4M3, true, true, false },
              { 48, 16, 32, TM_E5M2, TM_E4M3, true, false, false },
              { 16, 32, 32, TM_E4M3FNUZ, TM_E4M3FNUZ, false, false, false },
              { 50, 64, 32, TM_E5M2FNUZ, TM_E4M3FNUZ, false, true, false },
              { 18, 144, 16, TM_E4M3FNUZ, TM_E5M2FNUZ, true, false, true },
              { 64, 512, 80, TM_E4M3, TM_E4M3, true, false, true },
              { 16, 32, 16, TM_E5M2, TM_E5M2, false, false, false },
              { 32, 20, 36, TM_E4M3, TM_E4M3, true, true, true } };

static bool scaled_example(int i, tm_example *example)
{
    if (i >= TM_COUNT_OF(cases)) return false;
    int64_t n = cases[i].n, k = cases[i].k, m = cases[i].m;
    tm_example_begin(example, NULL, 0);
    tm_example_in(example, A, TM_ROLE_ACTIVATION, tm_shape_2(n, k), 0, 8);
    tm_example_in(example, B, TM_ROLE_ACTIVATION, tm_shape_2(m, k), 0, 8);
    tm_example_in(example, SCALE_A, TM_ROLE_STATISTIC, tm_shape_1(cases[i].lines ? n : 1), 0.25, 0.05);
    tm_example_in(example, SCALE_B, TM_ROLE_STATISTIC, tm_shape_1(cases[i].lines ? m : 1), 0.125, 0.02);
    example->dtype[A] = cases[i].a, example->dtype[B] = cases[i].b;
    if (cases[i].bias) tm_example_in(example, BIAS, TM_ROLE_PARAMETER, tm_shape_1(m), 0, 1);
    if (cases[i].residual) tm_example_in(example, RESIDUAL, TM_ROLE_ACTIVATION, tm_shape_2(n, m), 0, 1);
    return true;
}

const tm_op tm_op_scaled_mm = {
    .name = "scaled_mm",
    .formula = "c = scale_a scale_b a b^T + bias + residual; a, b: codes of 8 bits",
    .group = "linear",
    .n_in = OPERANDS,
    .n_out = 1,
    .optional_in = 1U << BIAS | 1U << RESIDUAL,
    .out_role = { TM_ROLE_ACTIVATION },
    .infer = scaled_infer,
    .reference = scaled_reference,
    .cost = scaled_cost,
    .strided_in = 1U << A | 1U << B,
    .strided_out = 1U << 0,
    .example = scaled_example,
    .rounding = scaled_rounding,
    .no_fast_kernel = "CPUs multiply what codes stand for: no plan of theirs has it",
    .in_name = { "a (N, K)", "b (M, K)", "scale_a (P)", "scale_b (Q)", "[bias (M)]", "[residual (N, M)]" },
    .out_name = { "c (N, M)" },
};
