/* SPDX-License-Identifier: Apache-2.0 */
/* op/scaled_mm.c - a product of codes: of matrices that `quantize` gives as codes with scales beside them. It stands in
 * the place of `linear` and of its gradients (graph/passes/codes.c), all of which sum along the rows of both factors.
 *
 *   c[n][m] = sum_k scale_a[n][k] a[n][k] scale_b[m][k] b[m][k] + bias[m] + residual[n][m]
 *
 * a (N, K), b (M, K) in formats of 8 or 4 bits, scale_a (P), scale_b (Q), [bias (M)], [residual (N, M)] -> c (N, M).
 * Plain scales are those of the whole matrix (1), or of its rows; those of blocks lie as op/codes.h says. a, b and c
 * may be views.
 */
#include "op/codes.h"
#include "op/describe.h"

#include <string.h>

enum { A, B, SCALE_A, SCALE_B, BIAS, RESIDUAL, OPERANDS };

/* Of one side: (lines, depth). */
static const char *scales_fit(const tm_shape *in, const void *attr, int side)
{
    int64_t lines = in[A + side].n[0], depth = in[A + side].n[1];
    int     kind = tm_scaled_kind(attr, side);
    if (kind <= TM_CODES_NOT || kind >= TM_CODES_KINDS) return "there is no such kind of scales";
    if (kind == TM_CODES_PLAIN)
        return tm_shape_is_vector(in[SCALE_A + side], 1) || tm_shape_is_vector(in[SCALE_A + side], lines)
                   ? NULL
                   : "there must be one scale of a factor, or one of each row";
    return tm_shape_is_vector(in[SCALE_A + side], tm_codes_scales(kind, lines, depth))
               ? NULL
               : "there must be a scale of each block of a factor, and what fills their layout up";
}

static const char *scaled_infer(const tm_shape *in, const void *attr, tm_shape *out)
{
    if (in[A].rank != 2) return "a must have two axes (rows, depth)";
    if (in[B].rank != 2) return "b must have two axes (columns, depth)";
    if (in[A].n[1] != in[B].n[1]) return "the second axes of a and of b differ";
    tm_shape c = tm_shape_2(in[A].n[0], in[B].n[0]);
    for (int side = 0; side < 2; side++) {
        const char *why = scales_fit(in, attr, side);
        if (why) return why;
    }
    if (tm_shape_present(in[BIAS]) && !tm_shape_is_vector(in[BIAS], c.n[1]))
        return "the bias must have one value per column of c";
    if (tm_shape_present(in[RESIDUAL]) && !tm_shape_equal(in[RESIDUAL], c))
        return "the residual must have the shape of c";
    return tm_shape_fit(&out[0], c, "c must have the rows of a and a column for each row of b");
}

/* Of element k of a row. */
static double scale_of(const tm_call *call, int side, int64_t row, int64_t k)
{
    const tm_view *scales = &call->in[SCALE_A + side];
    tm_shape       of = call->in[A + side].shape;
    int            kind = tm_scaled_kind(call->attr, side);
    int64_t        plain = scales->shape.n[0] == 1 ? 0 : row;
    return (
        (const double *)scales->data)[kind == TM_CODES_PLAIN ? plain : tm_codes_place(kind, of.n[0], of.n[1], row, k)];
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
            for (int64_t k = 0; k < depth; k++) sum += a[k] * b[k] * scale_of(call, 0, n, k) * scale_of(call, 1, m, k);
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
    return tm_rounding_sum(call->in[A].shape.n[1] + 7);
}

/* Libraries take multiples of 16, those of blocks in e8m0 row by row of 128; the others are for references, as scales
 * here fill layouts up with any numbers. */
static const struct {
    int64_t  n, k, m;
    tm_dtype a, b;
    bool     lines, bias, residual;
    uint8_t  scales[2]; /* 0: plain ones */
} cases[] = { { 3, 5, 7, TM_E4M3, TM_E5M2, false, true, true, { 0 } },
              { 16, 32, 32, TM_E4M3, TM_E4M3, false, false, false, { 0 } },
              { 33, 48, 32, TM_E5M2, TM_E4M3, false, true, false, { 0 } },
              { 40, 64, 16, TM_E4M3, TM_E5M2, false, false, true, { 0 } },
              { 17, 80, 64, TM_E4M3, TM_E4M3, true, true, false, { 0 } },
              { 48, 16, 32, TM_E5M2, TM_E4M3, true, false, false, { 0 } },
              { 16, 32, 32, TM_E4M3FNUZ, TM_E4M3FNUZ, false, false, false, { 0 } },
              { 50, 64, 32, TM_E5M2FNUZ, TM_E4M3FNUZ, false, true, false, { 0 } },
              { 18, 144, 16, TM_E4M3FNUZ, TM_E5M2FNUZ, true, false, true, { 0 } },
              { 64, 512, 80, TM_E4M3, TM_E4M3, true, false, true, { 0 } },
              { 16, 32, 16, TM_E5M2, TM_E5M2, false, false, false, { 0 } },
              { 32, 20, 36, TM_E4M3, TM_E4M3, true, true, true, { 0 } },
              { 20, 144, 36, TM_E4M3, TM_E4M3, false, true, false, { TM_CODES_RUNS, TM_CODES_SQUARES } },
              { 132, 272, 20, TM_E4M3, TM_E4M3, false, false, true, { TM_CODES_SQUARES, TM_CODES_RUNS } },
              { 132, 512, 16, TM_E4M3, TM_E4M3, false, true, false, { TM_CODES_SQUARES, TM_CODES_RUNS } },
              { 16, 512, 144, TM_E5M2, TM_E4M3, false, false, false, { TM_CODES_RUNS, TM_CODES_SQUARES } },
              { 36, 48, 32, TM_E4M3, TM_E5M2, false, false, false, { TM_CODES_RUNS, TM_CODES_RUNS } },
              { 40, 160, 132, TM_E4M3, TM_E4M3, false, false, false, { TM_CODES_TILES, TM_CODES_TILES } },
              { 130, 64, 20, TM_E5M2, TM_E4M3, false, true, false, { TM_CODES_TILES, TM_CODES_TILES } },
              { 128, 128, 256, TM_E5M2, TM_E4M3, false, true, false, { TM_CODES_TILES, TM_CODES_TILES } },
              { 16, 128, 48, TM_E4M3, TM_E4M3, false, false, true, { TM_CODES_ROWS, TM_CODES_ROWS } },
              { 32, 256, 16, TM_E5M2, TM_E4M3, false, false, false, { TM_CODES_ROWS, TM_CODES_ROWS } },
              { 20, 96, 36, TM_E4M3, TM_E5M2, false, true, true, { TM_CODES_ROWS, TM_CODES_ROWS } },
              { 36, 160, 132, TM_E2M1, TM_E2M1, false, true, false, { TM_CODES_ROWS, TM_CODES_ROWS } } };

static void scales_example(tm_example *example, int i, int side, double mean)
{
    int64_t  lines = side ? cases[i].m : cases[i].n;
    int      kind = cases[i].scales[side];
    tm_shape shape = tm_shape_1(kind ? tm_codes_scales(kind, lines, cases[i].k) : cases[i].lines ? lines : 1);
    tm_example_in(example, SCALE_A + side, TM_ROLE_STATISTIC, shape, mean, mean / 5);
    if (kind && tm_codes_scale_of(kind).dtype == TM_E8M0) example->dtype[SCALE_A + side] = TM_E8M0;
}

static bool scaled_example(int i, tm_example *example)
{
    if (i >= TM_COUNT_OF(cases)) return false;
    int64_t        n = cases[i].n, k = cases[i].k, m = cases[i].m;
    tm_scaled_attr attr = { { TM_CODES_PLAIN, TM_CODES_PLAIN } };
    if (cases[i].scales[0]) memcpy(attr.scales, cases[i].scales, sizeof attr.scales);
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, A, TM_ROLE_ACTIVATION, tm_shape_2(n, k), 0, 8);
    tm_example_in(example, B, TM_ROLE_ACTIVATION, tm_shape_2(m, k), 0, 8);
    scales_example(example, i, 0, 0.35); /* both powers of two beside it are as near */
    scales_example(example, i, 1, 0.0875);
    example->dtype[A] = cases[i].a, example->dtype[B] = cases[i].b;
    if (cases[i].bias) tm_example_in(example, BIAS, TM_ROLE_PARAMETER, tm_shape_1(m), 0, 1);
    if (cases[i].residual) tm_example_in(example, RESIDUAL, TM_ROLE_ACTIVATION, tm_shape_2(n, m), 0, 1);
    return true;
}

const tm_op tm_op_scaled_mm = {
    .name = "scaled_mm",
    .formula = "c = scale_a a (scale_b b)^T + bias + residual; a, b: codes; scales of a matrix, of rows or of blocks",
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
    .attributes = "scales",
};
