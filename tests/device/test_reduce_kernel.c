/* SPDX-License-Identifier: Apache-2.0 */
/* Sums over rows and over whole tensors, and the clip coefficient. */
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
        float  sum = (float)old_at(j, 0, c);
        double exact = (double)sum, size = fabs(exact);
        for (int64_t block = 0; block < n; block += 64) {
            float part = (float)in_at(j, 0, block * m + c);
            for (int64_t i = block + 1; i < n && i < block + 64; i++) part += (float)in_at(j, 0, i * m + c);
            sum = block == 0 && !j->call.accumulate ? part : sum + part;
        }
        for (int64_t i = 0; i < n; i++) exact += in_at(j, 0, i * m + c), size += fabs(in_at(j, 0, i * m + c));
        judge(j, 0, c, exact, 6. * sqrt((double)n + 1.) * U_F32 * size, isa);
        double wanted = j->out[0].dtype == TM_BF16 ? (double)tm_bf16_value(tm_bf16_round(sum)) : (double)sum;
        if (out_at(j, 0, c) != wanted) fail_msg("%s: column %lld is not in the fixed order", isa, (long long)c);
    }
}
static void test_bias_grad(void **state)
{
    (void)state;
    for (int a = 0; a < COUNT(kt_rows); a++)
        for (int b = 0; b < COUNT(kt_columns); b++)
            for (int k = 0; k < 8; k++) {
                job j = bias_job(kt_rows[a], kt_columns[b], k & 1 ? TM_BF16 : TM_F32, k & 2 ? TM_BF16 : TM_F32, k & 4);
                job_check(&j, tables, COUNT(tables), bias_judge);
            }
}
static void test_bias_grad_split_keeps_bits(void **state)
{
    (void)state;
    for (int64_t at = 64; at < 256; at += 64) {
        job j = bias_job(300, 769, TM_F32, TM_F32, at == 64);
        job_check_split(&j, tables, COUNT(tables), at, 1, 0, 1);
    }
}

/* ---- square_sum ---- */

static void square_judge(const job *j, const char *isa)
{
    long double sum = (long double)old_at(j, 0, 0);
    int64_t     n = tm_shape_elements(j->in[0].shape);
    for (int64_t i = 0; i < n; i++) sum += (long double)in_at(j, 0, i) * (long double)in_at(j, 0, i);
    /* 512 additions of exact squares per lane, a tree of 5, then n / 16384 block sums: terms of one sign, but for what
     * was there */
    double size = (double)sum + 2. * fabs(old_at(j, 0, 0));
    judge(j, 0, 0, (double)sum, (518. + (double)n / 16384.) * 0x1p-53 * size, isa);
}
static void test_square_sum(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 1, 3, 15, 16, 17, 31, 32, 33, 1000, 16383, 16384, 16385, 100003 };
    for (int s = 0; s < COUNT(sizes); s++)
        for (int k = 0; k < 4; k++) {
            job j = job_new(TM_OP_square_sum, NULL);
            j.call.accumulate = k & 1;
            job_in(&j, 0, k & 2 ? TM_BF16 : TM_F32, tm_shape_1(sizes[s]), 0., 1.);
            job_out(&j, 0, TM_F64, (tm_shape){ .rank = 0 });
            job_check(&j, tables, COUNT(tables), square_judge);
        }
}
/* Squares that neither fit into float32 nor are normal there. */
static void test_square_sum_beyond_float32(void **state)
{
    (void)state;
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
static void test_square_sum_exact(void **state)
{
    (void)state;
    job j = job_new(TM_OP_square_sum, NULL);
    job_in(&j, 0, TM_F32, tm_shape_2(101, 997), 0., 1.), job_out(&j, 0, TM_F64, (tm_shape){ .rank = 0 });
    for (int64_t i = 0; i < 101 * 997; i++)
        tm_value_set(j.in[0].initial, TM_F32, i, (double)tm_random_below(5, 0, (uint64_t)i, 2001) - 1000.);
    job_check(&j, tables, COUNT(tables), exact_judge);
}

/* ---- square_error ---- */

static void error_judge(const job *j, const char *isa)
{
    long double sum = (long double)old_at(j, 0, 0);
    int64_t     n = tm_shape_elements(j->in[0].shape);
    for (int64_t i = 0; i < n; i++) {
        long double d = (long double)in_at(j, 0, i) - (long double)in_at(j, 1, i);
        sum += d * d;
    }
    /* as square_sum; a difference is rounded once, its square counts that twice */
    double size = (double)sum + 2. * fabs(old_at(j, 0, 0));
    judge(j, 0, 0, (double)sum, (521. + (double)n / 16384.) * 0x1p-53 * size, isa);
}
static void error_grad_judge(const job *j, const char *isa)
{
    double scale = 2. * in_at(j, 2, TM_SCALAR_LOSS_SCALE);
    for (int64_t i = 0, n = tm_shape_elements(j->in[0].shape); i < n; i++) {
        double wanted = scale * (in_at(j, 0, i) - in_at(j, 1, i));
        judge(j, 0, i, wanted, 2.1 * U_F32 * fabs(wanted), isa);
    }
}
static void test_square_error(void **state)
{
    (void)state;
    static const int64_t sizes[] = { 1, 3, 16, 17, 31, 33, 1000, 16383, 16385, 100003 };
    for (int s = 0; s < COUNT(sizes); s++)
        for (int k = 0; k < 4; k++) {
            tm_dtype format = k & 2 ? TM_BF16 : TM_F32;
            tm_shape shape = tm_shape_1(sizes[s]);
            job      j = job_new(TM_OP_square_error, NULL);
            j.call.accumulate = k & 1;
            job_in(&j, 0, format, shape, 0., 1.), job_in(&j, 1, TM_F32, shape, .5, 1.);
            job_out(&j, 0, TM_F64, (tm_shape){ .rank = 0 });
            job_check(&j, tables, COUNT(tables), error_judge);
            j = job_new(TM_OP_square_error_grad, NULL);
            job_in(&j, 0, format, shape, 0., 1.), job_in(&j, 1, TM_F32, shape, .5, 1.);
            job_in(&j, 2, TM_F64, tm_shape_1(TM_SCALAR_COUNT), .3, .1);
            job_out(&j, 0, format, shape);
            j.alias[0] = k & 1 ? 0 : -1;
            job_check(&j, tables, COUNT(tables), error_grad_judge);
        }
}

/* ---- clip ---- */

static void test_clip(void **state)
{
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bias_grad),        cmocka_unit_test(test_bias_grad_split_keeps_bits),
        cmocka_unit_test(test_square_sum),       cmocka_unit_test(test_square_sum_beyond_float32),
        cmocka_unit_test(test_square_error),     cmocka_unit_test(test_clip),
        cmocka_unit_test(test_square_sum_exact),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
