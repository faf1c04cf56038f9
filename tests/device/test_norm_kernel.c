/* SPDX-License-Identifier: Apache-2.0 */
/* Norm kernels against formulas in double. Tolerances count the roundings of the float32 computation: a sum over C in
 * 16 lanes and a tree of 4 makes at most C / 16 + 5 of them. */
#include "kernel_test.h"

static const isa_table    tables[] = ISA_TABLES(norm);
static const tm_norm_attr attr = { .eps = 1e-5 };

static double sum_roundings(int64_t columns)
{
    return (double)columns / 16. + 6.;
}

static void rmsnorm_judge(const job *j, const char *isa)
{
    int64_t n = j->in[0].shape.n[0], c = j->in[0].shape.n[1];
    for (int64_t i = 0; i < n; i++) {
        double square = 0.;
        for (int64_t k = 0; k < c; k++) square += in_at(j, 0, i * c + k) * in_at(j, 0, i * c + k);
        double rstd = 1. / sqrt(square / (double)c + attr.eps), error = sum_roundings(c) / 2. * U_F32;
        judge(j, 1, i, rstd, error * rstd, isa);
        for (int64_t k = 0; k < c; k++) {
            double y = in_at(j, 0, i * c + k) * rstd * in_at(j, 1, k);
            judge(j, 0, i * c + k, y, (error + 3. * U_F32) * fabs(y), isa);
        }
    }
}

static void layernorm_judge(const job *j, const char *isa)
{
    int64_t n = j->in[0].shape.n[0], c = j->in[0].shape.n[1];
    for (int64_t i = 0; i < n; i++) {
        double sum = 0., size = 0., square = 0.;
        for (int64_t k = 0; k < c; k++) sum += in_at(j, 0, i * c + k), size += fabs(in_at(j, 0, i * c + k));
        double mean = sum / (double)c, mean_error = (sum_roundings(c) + 1.) * U_F32 * size / (double)c;
        for (int64_t k = 0; k < c; k++) square += pow(in_at(j, 0, i * c + k) - mean, 2.);
        /* the variance about a mean that is off by e is larger by e^2; each difference is rounded */
        double rstd = 1. / sqrt(square / (double)c + attr.eps);
        double error = (sum_roundings(c) + 2.) / 2. * U_F32 + rstd * rstd * mean_error * mean_error;
        judge(j, 1, i, mean, mean_error, isa);
        judge(j, 2, i, rstd, error * rstd, isa);
        for (int64_t k = 0; k < c; k++) {
            double xhat = (in_at(j, 0, i * c + k) - mean) * rstd, w = in_at(j, 1, k);
            double b = j->in[2].present ? in_at(j, 2, k) : 0.;
            double bound = fabs(w) * (rstd * mean_error + (error + 4. * U_F32) * (fabs(xhat) + rstd * mean_error));
            judge(j, 0, i * c + k, xhat * w + b, bound + U_F32 * fabs(xhat * w + b), isa);
        }
    }
}

/* Both gradients: x, statistics and all else as given to the kernel. */
static void grad_judge(const job *j, const char *isa, bool centred)
{
    int     rstd_at = centred ? 4 : 3, addend = rstd_at + 1;
    int64_t n = j->in[0].shape.n[0], c = j->in[0].shape.n[1];
    double *dw = calloc((size_t)c * 4, sizeof *dw), *dw_size = dw + c, *db = dw + 2 * c, *db_size = dw + 3 * c;
    for (int64_t i = 0; i < n; i++) {
        double mean = centred ? in_at(j, 3, i) : 0., rstd = in_at(j, rstd_at, i);
        double sum = 0., dot = 0., sum_size = 0., dot_size = 0.;
        for (int64_t k = 0; k < c; k++) {
            double dy = in_at(j, 0, i * c + k), xhat = (in_at(j, 1, i * c + k) - mean) * rstd, h = dy * in_at(j, 2, k);
            if (centred) sum += h, sum_size += fabs(h);
            dot += h * xhat, dot_size += fabs(h * xhat);
            dw[k] += dy * xhat, dw_size[k] += fabs(dy * xhat), db[k] += dy, db_size[k] += fabs(dy);
        }
        double roundings = (sum_roundings(c) + 4.) * U_F32 / (double)c;
        for (int64_t k = 0; k < c; k++) {
            double xhat = (in_at(j, 1, i * c + k) - mean) * rstd, h = in_at(j, 0, i * c + k) * in_at(j, 2, k);
            double d = h - sum / (double)c - xhat * dot / (double)c;
            double extra = j->in[addend].present ? in_at(j, addend, i * c + k) : 0.;
            double error = roundings * (sum_size + fabs(xhat) * dot_size) +
                           4. * U_F32 * (fabs(h) + fabs(sum / (double)c) + fabs(xhat * dot / (double)c));
            judge(j, 0, i * c + k, extra + rstd * d, rstd * error + U_F32 * fabs(extra + rstd * d), isa);
        }
    }
    for (int64_t k = 0; k < c; k++) {
        double roundings = 6. * sqrt((double)n + 4.) * U_F32;
        if (j->out[1].present)
            judge(j, 1, k, dw[k] + old_at(j, 1, k), roundings * (dw_size[k] + fabs(old_at(j, 1, k))), isa);
        if (centred && j->out[2].present)
            judge(j, 2, k, db[k] + old_at(j, 2, k), roundings * (db_size[k] + fabs(old_at(j, 2, k))), isa);
    }
    free(dw);
}
static void rmsnorm_grad_judge(const job *j, const char *isa)
{
    grad_judge(j, isa, false);
}
static void layernorm_grad_judge(const job *j, const char *isa)
{
    grad_judge(j, isa, true);
}

static void forward(tm_dtype format)
{
    for (int a = 0; a < COUNT(kt_rows); a++)
        for (int b = 0; b < COUNT(kt_columns); b++) {
            int64_t n = kt_rows[a], c = kt_columns[b];
            job     j = job_new(TM_OP_rmsnorm, &attr);
            job_in(&j, 0, format, tm_shape_2(n, c), .5, 2.), job_in(&j, 1, format, tm_shape_1(c), 1., .3);
            job_out(&j, 0, format, tm_shape_2(n, c)), job_out(&j, 1, TM_F32, tm_shape_1(n));
            job_check(&j, tables, COUNT(tables), rmsnorm_judge);
            for (int bias = 0; bias < 2; bias++) {
                j = job_new(TM_OP_layernorm, &attr);
                job_in(&j, 0, format, tm_shape_2(n, c), .5, 2.), job_in(&j, 1, format, tm_shape_1(c), 1., .3);
                if (bias) job_in(&j, 2, format, tm_shape_1(c), 0., .5);
                job_out(&j, 0, format, tm_shape_2(n, c));
                job_out(&j, 1, TM_F32, tm_shape_1(n)), job_out(&j, 2, TM_F32, tm_shape_1(n));
                job_check(&j, tables, COUNT(tables), layernorm_judge);
            }
        }
}
static void test_forward_f32(void **state)
{
    (void)state;
    forward(TM_F32);
}
static void test_forward_bf16(void **state)
{
    (void)state;
    forward(TM_BF16);
}

enum { ADDEND = 1, WEIGHT = 2, BIAS = 4, ACCUMULATE = 8, IN_DY = 16, IN_ADDEND = 32 };

static job grad_job(bool centred, int64_t n, int64_t c, tm_dtype format, tm_dtype gradient, int with)
{
    job j = job_new(centred ? TM_OP_layernorm_grad : TM_OP_rmsnorm_grad, &attr);
    int k = 3;
    if (with & ACCUMULATE) j.call.accumulate = centred ? 6 : 2;
    job_in(&j, 0, format, tm_shape_2(n, c), 0., 1.), job_in(&j, 1, format, tm_shape_2(n, c), .5, 2.);
    job_in(&j, 2, format, tm_shape_1(c), 1., .3);
    if (centred) job_in(&j, k++, TM_F32, tm_shape_1(n), .5, .1);
    job_in(&j, k, TM_F32, tm_shape_1(n), .5, .02);
    if (with & ADDEND) job_in(&j, k + 1, format, tm_shape_2(n, c), 0., 3.);
    job_out(&j, 0, format, tm_shape_2(n, c));
    if (with & WEIGHT) job_out(&j, 1, gradient, tm_shape_1(c));
    if (centred && with & BIAS) job_out(&j, 2, gradient, tm_shape_1(c));
    if (with & IN_DY) j.alias[0] = 0;
    if (with & IN_ADDEND) j.alias[0] = k + 1;
    return j;
}

static void grads(tm_dtype format, tm_dtype gradient)
{
    static const int with[] = { WEIGHT | BIAS | ADDEND, WEIGHT | BIAS | ADDEND | ACCUMULATE | IN_ADDEND, IN_DY,
                                BIAS | ADDEND | IN_ADDEND, WEIGHT | ACCUMULATE | IN_DY };
    for (int a = 0; a < COUNT(kt_rows); a++)
        for (int b = 0; b < COUNT(kt_columns); b++)
            for (int w = 0; w < COUNT(with); w++) {
                if (w > 1 && b % 2) continue;
                job j = grad_job(false, kt_rows[a], kt_columns[b], format, gradient, with[w]);
                job_check(&j, tables, COUNT(tables), rmsnorm_grad_judge);
                j = grad_job(true, kt_rows[a], kt_columns[b], format, gradient, with[w]);
                job_check(&j, tables, COUNT(tables), layernorm_grad_judge);
            }
}
static void test_grads_f32(void **state)
{
    (void)state;
    grads(TM_F32, TM_F32);
}
static void test_grads_bf16_activations(void **state)
{
    (void)state;
    grads(TM_BF16, TM_F32);
}
static void test_grads_bf16(void **state)
{
    (void)state;
    grads(TM_BF16, TM_BF16);
}

static void test_split_keeps_bits(void **state)
{
    (void)state;
    for (int64_t at = 64; at < 256; at += 64) {
        job j = grad_job(false, 300, 768, TM_F32, TM_F32, WEIGHT | ADDEND | IN_DY);
        job_check_split(&j, tables, COUNT(tables), at, 0x1b, 1, 2);
        j = grad_job(true, 300, 17, TM_BF16, TM_F32, WEIGHT | BIAS | ADDEND);
        job_check_split(&j, tables, COUNT(tables), at, 0x3b, 1, 6);
    }
}

/* Small integers and powers of two: every sum is exact in any order. */
static void exact_judge(const job *j, const char *isa)
{
    int64_t n = j->in[0].shape.n[0], c = j->in[0].shape.n[1];
    for (int64_t k = 0; k < c; k++) {
        double dw = 0., db = 0.;
        for (int64_t i = 0; i < n; i++) {
            db += in_at(j, 0, i * c + k);
            dw += in_at(j, 0, i * c + k) * (in_at(j, 1, i * c + k) - in_at(j, 3, i)) * in_at(j, 4, i);
        }
        if (out_at(j, 1, k) != dw || out_at(j, 2, k) != db) fail_msg("%s: column %lld is not exact", isa, (long long)k);
    }
}
static void test_exact_sums(void **state)
{
    (void)state;
    job j = grad_job(true, 200, 65, TM_F32, TM_F32, WEIGHT | BIAS);
    for (int k = 0; k < 5; k++)
        for (int64_t i = 0, n = tm_shape_elements(j.in[k].shape); i < n; i++)
            tm_value_set(j.in[k].initial, TM_F32, i,
                      k == 4 ? .5 : (double)tm_random_below(3, (uint64_t)k, (uint64_t)i, 9) - 4.);
    job_check(&j, tables, COUNT(tables), exact_judge);
}

static void test_refuses_what_it_cannot_do(void **state)
{
    (void)state;
    job              j = grad_job(true, 4, 8, TM_F32, TM_F32, WEIGHT);
    const tm_kernel *kernel = kernel_find(tables[0].kernels, TM_OP_layernorm_grad);
    job_reset(&j);
    assert_null(kernel->refuse(&j.call));
    j.call.in[1].dtype = TM_BF16;
    assert_string_equal(kernel->refuse(&j.call), "operands differ in number format");
    j.call.in[1].dtype = TM_F32, j.call.in[3].dtype = TM_BF16;
    assert_non_null(kernel->refuse(&j.call));
    j.call.in[3].dtype = TM_F32, j.call.in[0].dtype = TM_F64;
    assert_string_equal(kernel->refuse(&j.call), "needs float32 or bfloat16");
    job_free(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward_f32), cmocka_unit_test(test_forward_bf16),
        cmocka_unit_test(test_grads_f32),   cmocka_unit_test(test_grads_bf16_activations),
        cmocka_unit_test(test_grads_bf16),  cmocka_unit_test(test_split_keeps_bits),
        cmocka_unit_test(test_exact_sums),  cmocka_unit_test(test_refuses_what_it_cannot_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
