/* SPDX-License-Identifier: Apache-2.0 */
/* What test_kernels.c does not see of the optimizers: where many small steps lead. (Bits: tests/gpu/test_optimizers.c.)
 */
#include "support/test.h"
#include "kernel_test.h"

static const isa_table tables[] = ISA_TABLES(optimizer);

static job adamw_job(int64_t n, tm_dtype format, tm_dtype moments, const tm_adamw_attr *attr, int step, bool shared)
{
    job j = job_new(TM_OP_adamw, attr);
    for (int k = 0; k < 4; k++) job_in(&j, k, k < 2 ? format : moments, tm_shape_1(n), 0., k == 0 ? 1. : .1);
    for (int64_t i = 0; i < n; i++) tm_value_set(j.in[3].initial, moments, i, pow(in_at(&j, 3, i), 2.) + 1e-6);
    job_in(&j, 4, TM_F64, tm_shape_1(TM_SCALAR_COUNT), 0., 1.), job_in(&j, 5, TM_F64, tm_shape_1(2), 0., 1.);
    tm_value_set(j.in[4].initial, TM_F64, TM_SCALAR_LEARNING_RATE, 1e-2);
    tm_value_set(j.in[4].initial, TM_F64, TM_SCALAR_CORRECTION1, 1. - pow(attr->beta1, step));
    tm_value_set(j.in[4].initial, TM_F64, TM_SCALAR_CORRECTION2, 1. - pow(attr->beta2, step));
    tm_value_set(j.in[4].initial, TM_F64, TM_SCALAR_ROUNDING, 0x1p52 + 12345);
    tm_value_set(j.in[5].initial, TM_F64, 1, .37);
    for (int k = 0; k < 3; k++) {
        job_out(&j, k, k < 1 ? format : moments, tm_shape_1(n));
        if (shared) j.alias[k] = k ? k + 1 : 0;
    }
    return j;
}
/* What rounding takes from a weight comes back: after many steps too small for bfloat16 the weight has moved as float32
 * would; without compensation it stands still, and by chance the mean of many weights moves. */
TEST(small_steps_add_up)
{
    enum { N = 4096, STEPS = 64 };
    static const tm_adamw_attr plain = { .beta1 = .9, .beta2 = .95, .eps = 1e-8 };
    static const tm_adamw_attr chance = { .beta1 = .9, .beta2 = .95, .eps = 1e-8, .rounding = 5 };
    for (int t = 0; t < COUNT(tables); t++) {
        double moved[3] = { 0 };
        if (!isa_available(tables[t].isa)) continue;
        for (int form = 0; form < 3; form++) { /* plain, compensated, by chance */
            job j = adamw_job(N, TM_BF16, TM_BF16, form == 2 ? &chance : &plain, 100000, true);
            if (form == 1)
                job_in(&j, 6, TM_BF16, tm_shape_1(N), 0., 0.), job_out(&j, 3, TM_BF16, tm_shape_1(N)), j.alias[3] = 6;
            tm_value_set(j.in[4].initial, TM_F64, TM_SCALAR_LEARNING_RATE, 1e-4); /* 1 has a neighbour at 1 - 2^-8 */
            for (int64_t i = 0; i < N; i++) {
                tm_value_set(j.in[0].initial, TM_BF16, i, 1.);
                tm_value_set(j.in[1].initial, TM_BF16, i, 1.);
                tm_value_set(j.in[2].initial, TM_BF16, i, .37);
                tm_value_set(j.in[3].initial, TM_BF16, i, .1369);
            }
            for (int step = 0; step < STEPS; step++) {
                tm_value_set(j.in[4].initial, TM_F64, TM_SCALAR_ROUNDING, 1000 + step);
                job_run(&j, &tables[t], 1);
                for (int k = 0; k < 4; k++)
                    if (j.out[k].present)
                        memcpy(j.in[j.alias[k]].initial, tensor_data(&j.in[j.alias[k]]), j.in[j.alias[k]].bytes);
            }
            for (int64_t i = 0; i < N; i++)
                moved[form] += (1. - out_at(&j, 0, i) - (form == 1 ? out_at(&j, 3, i) : 0.)) / N;
            job_free(&j);
        }
        assert_true(moved[0] == 0.);
        assert_true(fabs(moved[1] - STEPS * 1e-4) < .02 * STEPS * 1e-4);
        assert_true(fabs(moved[2] - STEPS * 1e-4) < .05 * STEPS * 1e-4);
    }
}

/* ---- ema ---- */

/* Weights that stand still are reached, and not missed by what rounded factors lack of 1. */
TEST(an_average_has_no_bias)
{
    static const tm_ema_attr attr = { .decay = .99 };
    for (int t = 0; t < COUNT(tables); t++) {
        if (!isa_available(tables[t].isa)) continue;
        job j = job_new(TM_OP_ema, &attr);
        job_in(&j, 0, TM_F32, tm_shape_1(33), 0., 1.), job_in(&j, 1, TM_F32, tm_shape_1(33), 0., 1.);
        job_out(&j, 0, TM_F32, tm_shape_1(33));
        j.alias[0] = 1;
        for (int step = 0; step < 4000; step++) {
            job_run(&j, &tables[t], 1);
            memcpy(j.in[1].initial, tensor_data(&j.in[1]), j.in[1].bytes);
        }
        for (int64_t i = 0; i < 33; i++)
            assert_true(fabs(out_at(&j, 0, i) - in_at(&j, 0, i)) <= 1e-5 * fabs(in_at(&j, 0, i)));
        job_free(&j);
    }
}
