/* SPDX-License-Identifier: Apache-2.0 */
/* A tensor beside the one that it should be: what is counted of zeros, infinities and no numbers, exact sums, one row
 * of the record, the same bits for every split. */
#include "support/test.h"
#include "kernel_test.h"
#include "op/compare.h"

static const isa_table tables[] = ISA_TABLES(compare);

static job compare_job(tm_compare_attr *attr, tm_dtype a, tm_dtype b, tm_shape shape, int64_t rows)
{
    job j = job_new(TM_OP_compare, attr);
    job_in(&j, 0, a, shape, 0., 1.), job_in(&j, 1, b, shape, 0., 1.);
    job_out(&j, 0, TM_F64, tm_shape_2(rows, TM_COMPARED));
    return j;
}

TEST(test_special_numbers)
{
    static const double a[] = { 0, 0, 1, INFINITY, -INFINITY, NAN, 2, 0x1p-60, -0x1p-48, 0x1p15, -0x1p20, 3 };
    static const double b[] = { 0, 5, 0, 1, INFINITY, -2, NAN, 0, -0x1p-48, 0x1p15, -0x1p20, 4 };
    tm_compare_attr     attr = { .row = 0, .rows = 1 };
    for (int k = 0; k < 2; k++) {
        job j = compare_job(&attr, k ? TM_BF16 : TM_F32, k ? TM_F32 : TM_BF16, tm_shape_1(12), 1);
        for (int64_t i = 0; i < 12; i++) {
            tm_value_set(j.in[0].initial, j.in[0].dtype, i, a[i]);
            tm_value_set(j.in[1].initial, j.in[1].dtype, i, b[i]);
        }
        for (int t = 0; t < COUNT(tables); t++) {
            if (!isa_available(tables[t].isa)) continue;
            job_run(&j, &tables[t], 1);
            double sums = 0x1p-96 + 0x1p30 + 0x1p40;
            assert_true(out_at(&j, 0, TM_COMPARED_ERROR) == 25 + 1 + 0x1p-120 + 1);
            assert_true(out_at(&j, 0, TM_COMPARED_OWN) == 1 + 0x1p-120 + sums + 9);
            assert_true(out_at(&j, 0, TM_COMPARED_REFERENCE) == 25 + sums + 16);
            assert_true(out_at(&j, 0, TM_COMPARED_DOT) == sums + 12);
            assert_true(out_at(&j, 0, TM_COMPARED_OWN_MOST) == 0x1p20 && out_at(&j, 0, TM_COMPARED_MOST) == 0x1p20);
            assert_true(out_at(&j, 0, TM_COMPARED_UNDERFLOW) == 1);
            assert_true(out_at(&j, 0, TM_COMPARED_OVERFLOW) == 2); /* infinity for 1, no number for -2 */
            assert_true(out_at(&j, 0, TM_COMPARED_BROKEN) == 2);
            assert_true(out_at(&j, 0, TM_COMPARED_OWN_ZEROS) == 2 && out_at(&j, 0, TM_COMPARED_ZEROS) == 3);
            assert_true(out_at(&j, 0, TM_COMPARED_OWN_BINS) == 2); /* 2^-60 is beyond the end, 2^-48 in it */
            assert_true(out_at(&j, 0, TM_COMPARED_BINS) == 1);
            assert_true(out_at(&j, 0, TM_COMPARED_BINS + TM_EXPONENT_BINS - 1) == 2);  /* 2^15 and beyond */
            assert_true(out_at(&j, 0, TM_COMPARED_BINS - TM_EXPONENT_FIRST + 2) == 2); /* 5 and 4 */
        }
        job_free(&j);
    }
}

/* Sums of small whole numbers are exact whatever the order, over more than one block. */
TEST(test_sums_are_exact)
{
    enum { N = 40000 };
    tm_compare_attr attr = { .row = 1, .rows = 3 };
    job             j = compare_job(&attr, TM_F32, TM_BF16, tm_shape_2(200, N / 200), 3);
    double          error = 0, own = 0;
    for (int64_t i = 0; i < N; i++) {
        double a = (double)(i % 11 - 5), b = (double)(i % 7 - 3);
        tm_value_set(j.in[0].initial, TM_F32, i, a), tm_value_set(j.in[1].initial, TM_BF16, i, b);
        error += (a - b) * (a - b), own += a * a;
    }
    for (int t = 0; t < COUNT(tables); t++)
        for (int threads = 1; threads <= 3; threads += 2) {
            if (!isa_available(tables[t].isa)) continue;
            job_run(&j, &tables[t], threads);
            assert_true(out_at(&j, 0, TM_COMPARED + TM_COMPARED_ERROR) == error);
            assert_true(out_at(&j, 0, TM_COMPARED + TM_COMPARED_OWN) == own);
            double counted = out_at(&j, 0, TM_COMPARED + TM_COMPARED_ZEROS);
            for (int e = 0; e < TM_EXPONENT_BINS; e++) counted += out_at(&j, 0, TM_COMPARED + TM_COMPARED_BINS + e);
            assert_true(counted == N);
        }
    job_free(&j);
}
