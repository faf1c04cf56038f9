/* SPDX-License-Identifier: Apache-2.0 */
/* op/compare.c - a tensor beside the one that it should be: how far they are apart, how large their numbers are.
 *
 *   compare: a (...), b (...) -> row `row` of the record (R, TM_COMPARED)
 *
 * Sums of squares, of products, largest magnitudes, shares, and a histogram of the exponents of each (op/compare.h).
 */
#include "op/compare.h"

#include "op/describe.h"

#include <math.h>

static const char *compare_infer(const tm_shape *in, const void *attr_, tm_shape *out)
{
    const tm_compare_attr *attr = attr_;
    if (in[0].rank < 1 || !tm_shape_equal(in[0], in[1])) return "both must have the same shape";
    if (attr->row < 0 || attr->row >= attr->rows) return "the row must be one of the record";
    return tm_shape_fit(&out[0], tm_shape_2(attr->rows, TM_COMPARED), "the record must have its rows and columns");
}

static int bin_of(double x)
{
    int e;
    frexp(x, &e);
    e -= 1 + TM_EXPONENT_FIRST;
    return e < 0 ? 0 : e >= TM_EXPONENT_BINS ? TM_EXPONENT_BINS - 1 : e;
}

static void count(double *row, double x, int zeros, int bins, int most)
{
    if (x == 0) row[zeros]++;
    if (!isfinite(x)) return;
    if (x != 0) row[bins + bin_of(x)]++;
    row[most] = fmax(row[most], fabs(x));
}

static void compare_reference(const tm_call *call)
{
    const tm_compare_attr *attr = call->attr;
    double                *row = (double *)call->out[0].data + attr->row * TM_COMPARED;
    int64_t                columns = call->in[0].shape.n[call->in[0].shape.rank - 1];
    for (int i = 0; i < TM_COMPARED; i++) row[i] = 0;
    for (int64_t r = 0, rows = tm_view_rows_of(&call->in[0]); r < rows; r++)
        for (int64_t c = 0; c < columns; c++) {
            double a = tm_view_row(&call->in[0], r)[c], b = tm_view_row(&call->in[1], r)[c];
            count(row, a, TM_COMPARED_OWN_ZEROS, TM_COMPARED_OWN_BINS, TM_COMPARED_OWN_MOST);
            count(row, b, TM_COMPARED_ZEROS, TM_COMPARED_BINS, TM_COMPARED_MOST);
            if (!isfinite(b)) row[TM_COMPARED_BROKEN]++;
            if (a == 0 && b != 0) row[TM_COMPARED_UNDERFLOW]++;
            if (!isfinite(a) && isfinite(b)) row[TM_COMPARED_OVERFLOW]++;
            if (!isfinite(a) || !isfinite(b)) continue;
            row[TM_COMPARED_ERROR] += (a - b) * (a - b);
            row[TM_COMPARED_OWN] += a * a;
            row[TM_COMPARED_REFERENCE] += b * b;
            row[TM_COMPARED_DOT] += a * b;
        }
}

static tm_cost compare_cost(const tm_call *call)
{
    tm_cost cost = tm_call_cost(call, 0);
    cost.bytes -= tm_view_bytes(&call->out[0]); /* of which it writes a row */
    cost.bytes += TM_COMPARED * sizeof(double);
    return cost;
}

static bool compare_example(int k, tm_example *example)
{
    static const struct {
        tm_shape shape;
        double   offset, scale, other;
    } cases[] = { { { 1, { 1 } }, 1, 0.1, 1 },           { { 2, { 3, 7 } }, 0, 1, 1 },
                  { { 2, { 9, 16 } }, 0, 1e-9, 1e9 },    { { 1, { 1030 } }, -4, 0.5, 1e-12 },
                  { { 2, { 65, 129 } }, 0, 1e5, 1e-20 }, { { 2, { 130, 257 } }, 0.25, 1, 1 } };
    tm_compare_attr attr = { .row = 0, .rows = 1 };
    if (k >= TM_COUNT_OF(cases)) return false;
    tm_example_begin(example, &attr, sizeof attr);
    tm_example_in(example, 0, TM_ROLE_ACTIVATION, cases[k].shape, cases[k].offset, cases[k].scale);
    tm_example_in(example, 1, TM_ROLE_ACTIVATION, cases[k].shape, cases[k].offset, cases[k].other);
    return true;
}

const tm_op tm_op_compare = {
    .name = "compare",
    .formula =
        "record = sums of (a - b)^2, a^2, b^2, a b; largest sizes of a, b; zeros, underflow, overflow; histograms of "
        "the exponents",
    .group = "elementwise",
    .n_in = 2,
    .n_out = 1,
    .out_role = { TM_ROLE_SCALAR },
    .infer = compare_infer,
    .reference = compare_reference,
    .cost = compare_cost,
    .vector = 16,
    .any_dtype_in = 1U << 0 | 1U << 1,
    .strided_in = 1U << 0 | 1U << 1,
    .example = compare_example,
    .rounding = tm_rounding_f64,
    .in_name = { "a (...)", "b (...)" },
    .out_name = { "record (R, 139)" },
    .attributes = "row, rows",
};
