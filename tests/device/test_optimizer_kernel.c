/* SPDX-License-Identifier: Apache-2.0 */
/* What test_kernels.c does not see of the optimizers: rounding by chance, bit for bit against a plain float32 loop, and
 * where many small steps lead. */
#include "support/test.h"
#include "kernel_test.h"

static const isa_table tables[] = ISA_TABLES(optimizer);

static double rounded(float value, tm_dtype dtype)
{
    return dtype == TM_BF16 ? (double)tm_bf16_value(tm_bf16_round(value)) : (double)value;
}

/* By chance: with the 16 bits `shift` of word `which` of element i (device/cpu/simd/rounding.h, written down again). */
static uint32_t mixed(uint32_t x)
{
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    return x ^ x >> 16;
}
static double chosen(float value, tm_dtype dtype, int64_t stream, double step, int64_t i, uint32_t which, int shift)
{
    if (dtype != TM_BF16 || stream == 0) return rounded(value, dtype);
    uint64_t key = tm_random_u64((uint64_t)step, (uint64_t)stream, 0);
    uint32_t salt = (uint32_t)(key >> 32) + (uint32_t)((uint64_t)i >> 32) + which * 0x9e3779b9u;
    uint32_t word = mixed(mixed((uint32_t)i ^ (uint32_t)key) + mixed(salt)), bits;
    memcpy(&bits, &value, sizeof bits);
    return (double)tm_bf16_value((uint16_t)((bits + (word >> shift & 0xffffu)) >> 16));
}

/* The operations in their order, each rounded to float32. */
static void step_f32(const job *j, int64_t i, float *p, float *m, float *v)
{
    const tm_adamw_attr *a = j->call.attr;
    double               rate = in_at(j, 4, TM_SCALAR_LEARNING_RATE);
    float decay = (float)(rate * a->weight_decay), blend1 = (float)(1. - a->beta1), blend2 = (float)(1. - a->beta2);
    float step = (float)(rate / in_at(j, 4, TM_SCALAR_CORRECTION1)),
          root = (float)sqrt(in_at(j, 4, TM_SCALAR_CORRECTION2));
    float g = (float)in_at(j, 1, i) * (float)in_at(j, 5, 1);
    *p = (float)in_at(j, 0, i) + (j->in[6].present ? (float)in_at(j, 6, i) : 0), *m = (float)in_at(j, 2, i),
    *v = (float)in_at(j, 3, i);
    *p -= decay * *p;
    *m += blend1 * (g - *m);
    *v = (float)a->beta2 * *v + blend2 * g * g;
    *p -= step * *m / (sqrtf(*v) / root + (float)a->eps);
}
static void adamw_judge(const job *j, const char *isa)
{
    for (int64_t i = 0; i < tm_shape_elements(j->in[0].shape); i++) {
        float pf, mf, vf;
        step_f32(j, i, &pf, &mf, &vf);
        tm_dtype format = j->out[0].dtype, moments = j->out[1].dtype;
        int64_t  stream = ((const tm_adamw_attr *)j->call.attr)->rounding;
        int64_t  at = ((const tm_adamw_attr *)j->call.attr)->first + i;
        double   step = in_at(j, 4, TM_SCALAR_ROUNDING), p = chosen(pf, format, stream, step, at, 0, 0);
        if (out_at(j, 0, i) != p || out_at(j, 1, i) != chosen(mf, moments, stream, step, at, 0, 16) ||
            out_at(j, 2, i) != chosen(vf, moments, stream, step, at, 1, 0))
            fail_msg("%s: element %lld has other bits than a plain loop", isa, (long long)i);
        if (j->out[3].present && out_at(j, 3, i) != rounded(pf - (float)p, format))
            fail_msg("%s: the rest of element %lld is not what rounding took", isa, (long long)i);
    }
}

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
static void adamw(tm_dtype format, tm_dtype moments)
{
    static const int64_t       sizes[] = { 17, 20001 };
    static const tm_adamw_attr attrs[] = { { .beta1 = .9, .beta2 = .95, .eps = 1e-8, .weight_decay = .1 },
                                           { .beta1 = .9, .beta2 = .95, .eps = 1e-8, .rounding = 77 },
                                           /* of a part whose index passes the low half of it between two lanes */
                                           { .beta1 = .9, .rounding = 77, .eps = 1e-8, .first = (1LL << 32) - 23 } };
    for (int s = 0; s < COUNT(sizes); s++)
        for (int k = 0; k < COUNT(attrs); k++) {
            job j = adamw_job(sizes[s], format, moments, &attrs[k], 3, s == 0);
            job_check(&j, tables, COUNT(tables), adamw_judge);
        }
}
TEST(adamw_has_the_bits_of_a_plain_loop)
{
    adamw(TM_F32, TM_BF16);
    adamw(TM_BF16, TM_BF16);
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

/* ---- sgd ---- */

static void sgd_judge(const job *j, const char *isa)
{
    const tm_sgd_attr *a = j->call.attr;
    float              rate = (float)in_at(j, 3, TM_SCALAR_LEARNING_RATE), momentum = (float)a->momentum;
    double             step = in_at(j, 3, TM_SCALAR_ROUNDING);
    for (int64_t i = 0; i < tm_shape_elements(j->in[0].shape); i++) {
        float p = (float)in_at(j, 0, i), g = (float)in_at(j, 1, i) * (float)in_at(j, 4, 1), move;
        g = g + (float)a->weight_decay * p;
        move = g;
        if (a->momentum > 0) {
            float b = momentum * (float)in_at(j, 2, i) + g;
            move = a->nesterov ? g + momentum * b : b;
            if (out_at(j, 1, i) != chosen(b, j->out[1].dtype, a->rounding, step, a->first + i, 0, 16))
                fail_msg("%s: buffer %lld has other bits than a plain loop", isa, (long long)i);
        }
        if (out_at(j, 0, i) != chosen(p - rate * move, j->out[0].dtype, a->rounding, step, a->first + i, 0, 0))
            fail_msg("%s: element %lld has other bits than a plain loop", isa, (long long)i);
    }
}
TEST(sgd_has_the_bits_of_a_plain_loop)
{
    static const int64_t     sizes[] = { 17, 20001 };
    static const tm_sgd_attr attrs[] = { { .momentum = .8, .nesterov = 1 },
                                         { .momentum = .9, .weight_decay = .1, .rounding = 5, .first = 1001 } };
    for (int s = 0; s < COUNT(sizes); s++)
        for (int k = 0; k < COUNT(attrs); k++) {
            const tm_sgd_attr *attr = &attrs[k];
            tm_dtype           format = k ? TM_BF16 : TM_F32;
            job                j = job_new(TM_OP_sgd, attr);
            for (int i = 0; i < (attr->momentum > 0 ? 3 : 2); i++) job_in(&j, i, format, tm_shape_1(sizes[s]), 0., 1.);
            job_in(&j, 3, TM_F64, tm_shape_1(TM_SCALAR_COUNT), 0.1, .01);
            tm_value_set(j.in[3].initial, TM_F64, TM_SCALAR_ROUNDING, 0x1p52 + 12345);
            job_in(&j, 4, TM_F64, tm_shape_1(2), .5, .1);
            job_out(&j, 0, format, tm_shape_1(sizes[s]));
            if (attr->momentum > 0) job_out(&j, 1, format, tm_shape_1(sizes[s]));
            j.alias[0] = s % 2 ? 0 : -1;
            job_check(&j, tables, COUNT(tables), sgd_judge);
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
