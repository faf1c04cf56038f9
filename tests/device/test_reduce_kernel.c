/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over rows and over whole tensors, bit for bit; the clip coefficient. */
#include "support/test.h"
#include "kernel_test.h"

static const isa_table tables[] = ISA_TABLES(reduce);

/* ---- bias_grad ---- */

static job bias_job(int64_t n, int64_t m, tm_dtype format, tm_dtype gradient, bool accumulate)
{
    job j = job_new(TM_OP_bias_grad, NULL);
    j.call.accumulate = accumulate;
    job_in(&j, 0, format, tm_shape_2(n, m), 0., 1.);
    job_out(&j, 0, gradient, tm_shape_1(m));
    return j;
}
/* The fixed order: blocks of 64 rows, row by row, then block sums to the accumulator. Additions only, so that a loop in
 * float32 gives the kernel's bits. */
static void bias_judge(const job *j, const char *isa)
{
    int64_t n = j->in[0].shape.n[0], m = j->in[0].shape.n[1];
    for (int64_t c = 0; c < m; c++) {
        float sum = (float)old_at(j, 0, c);
        for (int64_t block = 0; block < n; block += 64) {
            float part = (float)in_at(j, 0, block * m + c);
            for (int64_t i = block + 1; i < n && i < block + 64; i++) part += (float)in_at(j, 0, i * m + c);
            sum = block == 0 && !j->call.accumulate ? part : sum + part;
        }
        double wanted = j->out[0].dtype == TM_BF16 ? (double)tm_bf16_value(tm_bf16_round(sum)) : (double)sum;
        if (out_at(j, 0, c) != wanted) fail_msg("%s: column %lld is not in the fixed order", isa, (long long)c);
    }
}
TEST(test_bias_grad)
{
    static const int64_t rows[] = { 1, 65, 200 };
    for (int a = 0; a < COUNT(rows); a++)
        for (int k = 0; k < 8; k++) {
            job j = bias_job(rows[a], 65, k & 1 ? TM_BF16 : TM_F32, k & 2 ? TM_BF16 : TM_F32, k & 4);
            job_check(&j, tables, COUNT(tables), bias_judge);
        }
}
TEST(test_bias_grad_split_keeps_bits)
{
    for (int64_t at = 64; at < 256; at += 64) {
        job j = bias_job(300, 769, TM_F32, TM_F32, at == 64);
        job_check_split(&j, tables, COUNT(tables), at, 1, 0, 1);
    }
}

/* ---- square_sum ---- */

/* Squares that neither fit into float32 nor are normal there. */
TEST(test_square_sum_beyond_float32)
{
    for (int e = -100; e <= 100; e += 200) {
        job j = job_new(TM_OP_square_sum, NULL);
        job_in(&j, 0, TM_F32, tm_shape_1(50), 0., ldexp(1., e)), job_out(&j, 0, TM_F64, (tm_shape){ .rank = 0 });
        for (int64_t i = 0; i < 50; i++) tm_value_set(j.in[0].initial, TM_F32, i, ldexp((double)(i % 5 - 2), e));
        for (int t = 0; t < COUNT(tables); t++) {
            if (!isa_available(tables[t].isa)) continue;
            job_run(&j, &tables[t], 1);
            assert_true(out_at(&j, 0, 0) == ldexp(100., 2 * e));
        }
        job_free(&j);
    }
}
static void exact_judge(const job *j, const char *isa)
{
    double sum = old_at(j, 0, 0);
    for (int64_t i = 0; i < tm_shape_elements(j->in[0].shape); i++) sum += in_at(j, 0, i) * in_at(j, 0, i);
    if (out_at(j, 0, 0) != sum) fail_msg("%s: %.17g, wanted exactly %.17g", isa, out_at(j, 0, 0), sum);
}
TEST(test_square_sum_exact)
{
    job j = job_new(TM_OP_square_sum, NULL);
    job_in(&j, 0, TM_F32, tm_shape_2(101, 997), 0., 1.), job_out(&j, 0, TM_F64, (tm_shape){ .rank = 0 });
    for (int64_t i = 0; i < 101 * 997; i++)
        tm_value_set(j.in[0].initial, TM_F32, i, (double)tm_random_below(5, 0, (uint64_t)i, 2001) - 1000.);
    job_check(&j, tables, COUNT(tables), exact_judge);
}

/* ---- clip ---- */

TEST(test_clip)
{
    static const double cases[][4] = { /* sum, largest norm, norm, coefficient */
                                       { 16., 1., 4., 1. / (4. + 1e-6) },
                                       { 16., 8., 4., 1. },
                                       { 16., 0., 4., 1. },
                                       { 16., -1., 4., 1. },
                                       { 0., 1., 0., 1. },
                                       { 2.25, .5, 1.5, .5 / (1.5 + 1e-6) }
    };
    for (int t = 0; t < COUNT(tables); t++) {
        if (!isa_available(tables[t].isa)) continue;
        for (int k = 0; k <= COUNT(cases); k++) {
            job j = job_new(TM_OP_clip, NULL);
            job_in(&j, 0, TM_F64, (tm_shape){ .rank = 0 }, 0., 1.),
                job_in(&j, 1, TM_F64, tm_shape_1(TM_SCALAR_COUNT), 0., 1.);
            job_out(&j, 0, TM_F64, tm_shape_1(2));
            tm_value_set(j.in[0].initial, TM_F64, 0, k < COUNT(cases) ? cases[k][0] : (double)NAN);
            tm_value_set(j.in[1].initial, TM_F64, TM_SCALAR_MAX_NORM, k < COUNT(cases) ? cases[k][1] : 1.);
            job_run(&j, &tables[t], 1);
            if (k < COUNT(cases)) {
                assert_true(out_at(&j, 0, 0) == cases[k][2]);
                assert_true(out_at(&j, 0, 1) == cases[k][3]);
            } else {
                assert_true(isnan(out_at(&j, 0, 0)) && isnan(out_at(&j, 0, 1)));
            }
            job_free(&j);
        }
    }
}
