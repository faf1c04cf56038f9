/* SPDX-License-Identifier: Apache-2.0 */
/* What test_kernels.c does not see of the norms' gradients: a batch in parts gives the bits of the whole, and sums of
 * whole numbers are exact. And rows of zeros that rescale meets. */
#include "support/test.h"
#include "kernel_test.h"

static const isa_table    tables[] = ISA_TABLES(norm);
static const tm_norm_attr attr = { .eps = 1e-5 };

enum { ADDEND = 1, WEIGHT = 2, BIAS = 4, IN_DY = 8 };

static job grad_job(bool centred, int64_t n, int64_t c, tm_dtype format, tm_dtype gradient, int with)
{
    job j = job_new(centred ? TM_OP_layernorm_grad : TM_OP_rmsnorm_grad, &attr);
    int k = 3;
    job_in(&j, 0, format, tm_shape_2(n, c), 0., 1.), job_in(&j, 1, format, tm_shape_2(n, c), .5, 2.);
    job_in(&j, 2, format, tm_shape_1(c), 1., .3);
    if (centred) job_in(&j, k++, TM_F32, tm_shape_1(n), .5, .1);
    job_in(&j, k, TM_F32, tm_shape_1(n), .5, .02);
    if (with & ADDEND) job_in(&j, k + 1, format, tm_shape_2(n, c), 0., 3.);
    job_out(&j, 0, format, tm_shape_2(n, c));
    if (with & WEIGHT) job_out(&j, 1, gradient, tm_shape_1(c));
    if (centred && with & BIAS) job_out(&j, 2, gradient, tm_shape_1(c));
    if (with & IN_DY) j.alias[0] = 0;
    return j;
}

TEST(test_split_keeps_bits)
{
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
TEST(test_exact_sums)
{
    job j = grad_job(true, 200, 65, TM_F32, TM_F32, WEIGHT | BIAS);
    for (int k = 0; k < 5; k++)
        for (int64_t i = 0, n = tm_shape_elements(j.in[k].shape); i < n; i++)
            tm_value_set(j.in[k].initial, TM_F32, i,
                         k == 4 ? .5 : (double)tm_random_below(3, (uint64_t)k, (uint64_t)i, 9) - 4.);
    job_check(&j, tables, COUNT(tables), exact_judge);
}

/* Columns whose row has the norm 0 are multiplied with m / 1, others with m / 4; so are sums divided. */
static void zeros_judge(const job *j, const char *isa)
{
    bool    gradient = j->op == TM_OP_rescale_wgrad;
    int64_t n = j->in[0].shape.n[0], c = j->in[0].shape.n[1];
    for (int64_t k = 0; k < c; k++) {
        double norm = k % 3 == 0 ? 1 : 4, sum = 0;
        for (int64_t i = 0; i < n; i++) {
            double z = in_at(j, 0, i * c + k);
            if (!gradient && out_at(j, 0, i * c + k) != z * in_at(j, 1, k) / norm)
                fail_msg("%s: element %lld, %lld", isa, (long long)i, (long long)k);
            if (gradient) sum += z * in_at(j, 1, i * c + k);
        }
        if (gradient && out_at(j, 0, k) != sum / norm) fail_msg("%s: sum %lld", isa, (long long)k);
    }
}

TEST(test_rows_of_zeros)
{
    static const isa_table        all[] = ISA_TABLES(rescale);
    static const tm_low_rank_attr part = { .scale = 1, .rank = 1, .parts = 1, .part = { { 0, 37 } } };
    for (int gradient = 0; gradient < 2; gradient++) {
        job j = job_new(gradient ? TM_OP_rescale_wgrad : TM_OP_rescale, &part);
        job_in(&j, 0, TM_F32, tm_shape_2(5, 37), 0., 1.);
        job_in(&j, 1, TM_F32, gradient ? tm_shape_2(5, 37) : tm_shape_1(37), 0., 1.);
        job_in(&j, 2, TM_F32, tm_shape_1(37), 0., 1.);
        job_out(&j, 0, TM_F32, gradient ? tm_shape_1(37) : tm_shape_2(5, 37));
        for (int k = 0; k < 2; k++) /* whole numbers: every result is exact */
            for (int64_t i = 0, n = tm_shape_elements(j.in[k].shape); i < n; i++)
                tm_value_set(j.in[k].initial, TM_F32, i, (double)tm_random_below(3, (uint64_t)k, (uint64_t)i, 9) - 4.);
        for (int64_t i = 0; i < 37; i++) tm_value_set(j.in[2].initial, TM_F32, i, i % 3 == 0 ? 0. : 4.);
        job_check(&j, all, COUNT(all), zeros_judge);
    }
}
