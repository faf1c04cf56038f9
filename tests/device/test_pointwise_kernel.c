/* SPDX-License-Identifier: Apache-2.0 */
/* Pointwise kernels against formulas in double. Tolerances: an exponential is good to 4 units and inherits the rounding
 * of its argument; every other operation rounds once. */
#include "kernel_test.h"

static const isa_table tables[] = ISA_TABLES(pointwise);
static const double    root = 0.79788456080286535588;

static double gelu_q(double x)
{
    return root * (x + .044715 * x * x * x);
}
static double sigmoid(double u)
{
    return 1. / (1. + exp(-u));
}

static void gelu_judge(const job *j, const char *isa)
{
    for (int64_t i = 0, n = tm_shape_elements(j->out[0].shape); i < n; i++) {
        double x = in_at(j, 0, i), q = gelu_q(x), y = x * sigmoid(2. * q), rest = sigmoid(-2. * q);
        judge(j, 0, i, y, ((5. * fabs(2. * q) + 4.) * rest + 3.) * U_F32 * fabs(y), isa);
    }
}
static void gelu_grad_judge(const job *j, const char *isa)
{
    for (int64_t i = 0, n = tm_shape_elements(j->out[0].shape); i < n; i++) {
        double dy = in_at(j, 0, i), x = in_at(j, 1, i), q = gelu_q(x), s = sigmoid(2. * q), rest = sigmoid(-2. * q);
        double inner = 2. * x * root * (1. + 3. * .044715 * x * x) * rest, error = (5. * fabs(2. * q) + 8.) * U_F32;
        if (fabs(x) >= 10.) error = 0., inner = 0., s = x > 0.;
        judge(j, 0, i, dy * s * (1. + inner), fabs(dy) * s * ((error + 4. * U_F32) * (fabs(inner) + 1.)) + 1e-30, isa);
    }
}
static void relu_judge(const job *j, const char *isa)
{
    for (int64_t i = 0, n = tm_shape_elements(j->out[0].shape); i < n; i++)
        judge(j, 0, i, in_at(j, 0, i) > 0. ? in_at(j, 0, i) : 0., 0., isa);
}
static void relu_grad_judge(const job *j, const char *isa)
{
    for (int64_t i = 0, n = tm_shape_elements(j->out[0].shape); i < n; i++)
        judge(j, 0, i, in_at(j, 1, i) > 0. ? in_at(j, 0, i) : 0., 0., isa);
}
static void swiglu_judge(const job *j, const char *isa)
{
    int64_t width = j->out[0].shape.n[1];
    for (int64_t i = 0, n = tm_shape_elements(j->out[0].shape); i < n; i++) {
        int64_t at = i / width * 2 * width + i % width;
        double  a = in_at(j, 0, at), up = in_at(j, 0, at + width), y = a * sigmoid(a) * up;
        judge(j, 0, i, y, ((fabs(a) + 4.) * sigmoid(-a) + 4.) * U_F32 * fabs(y) + 1e-30, isa);
    }
}
static void swiglu_grad_judge(const job *j, const char *isa)
{
    int64_t width = j->in[0].shape.n[1];
    for (int64_t i = 0, n = tm_shape_elements(j->in[0].shape); i < n; i++) {
        int64_t at = i / width * 2 * width + i % width;
        double  dy = in_at(j, 0, i), a = in_at(j, 1, at), up = in_at(j, 1, at + width), s = sigmoid(a), t = sigmoid(-a);
        double  error = (fabs(a) + 8.) * U_F32;
        judge(j, 0, at, dy * up * s * (1. + a * t), 2. * error * fabs(dy * up) * s * (1. + fabs(a) * t) + 1e-30, isa);
        judge(j, 0, at + width, dy * a * s, error * fabs(dy * a * s) + 1e-30, isa);
    }
}
static void add_judge(const job *j, const char *isa)
{
    for (int64_t i = 0, n = tm_shape_elements(j->out[0].shape); i < n; i++)
        judge(j, 0, i, in_at(j, 0, i) + in_at(j, 1, i), 0., isa);
}
static void cast_judge(const job *j, const char *isa)
{
    for (int64_t i = 0, n = tm_shape_elements(j->out[0].shape); i < n; i++) {
        double wanted = in_at(j, 0, i);
        if (j->out[0].dtype == TM_BF16) wanted = (double)tm_bf16_value(tm_bf16_round((float)wanted));
        if (out_at(j, 0, i) != wanted) fail_msg("%s: cast of %.9g gives %.9g", isa, in_at(j, 0, i), out_at(j, 0, i));
    }
}

/* Saturated, tiny and exactly representable arguments among the random ones. */
static void add_specials(tensor *t)
{
    static const double specials[] = { 0., -0., 100., -100., 30., -30., 9.999, -9.999, 1e-6, -1e-6, 1., -1., 5., -5. };
    for (int64_t i = 0, n = tm_shape_elements(t->shape); i < n && i < 3 * COUNT(specials); i++)
        if (i % 3 == 0) tm_value_set(t->initial, t->dtype, i, specials[i / 3]);
}

static void shapes(tm_dtype format, int64_t n, int64_t c)
{
    for (int alias = -1; alias < 2; alias++) {
        job j;
        if (alias < 1) {
            j = job_new(TM_OP_gelu, NULL);
            add_specials(job_in(&j, 0, format, tm_shape_2(n, c), 0., 3.)), job_out(&j, 0, format, tm_shape_2(n, c));
            j.alias[0] = alias;
            job_check(&j, tables, COUNT(tables), gelu_judge);
            j = job_new(TM_OP_gelu_grad, NULL);
            job_in(&j, 0, format, tm_shape_2(n, c), 0., 1.),
                add_specials(job_in(&j, 1, format, tm_shape_2(n, c), 0., 3.));
            job_out(&j, 0, format, tm_shape_2(n, c));
            j.alias[0] = alias;
            job_check(&j, tables, COUNT(tables), gelu_grad_judge);
            j = job_new(TM_OP_relu, NULL);
            add_specials(job_in(&j, 0, format, tm_shape_2(n, c), 0., 3.)), job_out(&j, 0, format, tm_shape_2(n, c));
            j.alias[0] = alias;
            job_check(&j, tables, COUNT(tables), relu_judge);
            j = job_new(TM_OP_relu_grad, NULL);
            job_in(&j, 0, format, tm_shape_2(n, c), 0., 1.),
                add_specials(job_in(&j, 1, format, tm_shape_2(n, c), 0., 3.));
            job_out(&j, 0, format, tm_shape_2(n, c));
            j.alias[0] = alias;
            job_check(&j, tables, COUNT(tables), relu_grad_judge);
        }
        if (alias < 0) {
            j = job_new(TM_OP_swiglu, NULL);
            add_specials(job_in(&j, 0, format, tm_shape_2(n, 2 * c), 0., 3.)), job_out(&j, 0, format, tm_shape_2(n, c));
            job_check(&j, tables, COUNT(tables), swiglu_judge);
        }
        if (alias) {
            j = job_new(TM_OP_swiglu_grad, NULL);
            job_in(&j, 0, format, tm_shape_2(n, c), 0., 1.);
            add_specials(job_in(&j, 1, format, tm_shape_2(n, 2 * c), 0., 3.));
            job_out(&j, 0, format, tm_shape_2(n, 2 * c));
            j.alias[0] = alias;
            job_check(&j, tables, COUNT(tables), swiglu_grad_judge);
        }
        j = job_new(TM_OP_add, NULL);
        job_in(&j, 0, format, tm_shape_2(n, c), 0., 1.), job_in(&j, 1, format, tm_shape_2(n, c), 0., 10.);
        job_out(&j, 0, format, tm_shape_2(n, c));
        j.alias[0] = alias;
        job_check(&j, tables, COUNT(tables), add_judge);
    }
    for (int to = 0; to < 2; to++) {
        tm_dtype other = to ? TM_BF16 : TM_F32;
        job      j = job_new(TM_OP_cast, NULL);
        add_specials(job_in(&j, 0, format, tm_shape_2(n, c), 0., 3.)), job_out(&j, 0, other, tm_shape_2(n, c));
        job_check(&j, tables, COUNT(tables), cast_judge);
    }
}
static void test_flat_f32(void **state)
{
    (void)state;
    for (int a = 0; a < COUNT(kt_rows); a++)
        for (int b = 0; b < COUNT(kt_columns); b++) shapes(TM_F32, kt_rows[a], kt_columns[b]);
}
static void test_flat_bf16(void **state)
{
    (void)state;
    for (int a = 0; a < COUNT(kt_rows); a++)
        for (int b = 0; b < COUNT(kt_columns); b++) shapes(TM_BF16, kt_rows[a], kt_columns[b]);
}

/* Every number of the formats that weights are held in, into both formats that are computed with. */
static void test_cast_of_held_formats(void **state)
{
    (void)state;
    static const tm_dtype from[] = { TM_F16, TM_E4M3, TM_E5M2, TM_E4M3FNUZ, TM_E5M2FNUZ }, to[] = { TM_F32, TM_BF16 };
    for (int t = 0; t < COUNT(tables); t++)
        for (int f = 0; f < 2 * COUNT(from); f++) {
            if (!isa_available(tables[t].isa)) continue;
            tm_dtype format = from[f / 2];
            int64_t  n = format == TM_F16 ? 65536 : 256;
            job      j = job_new(TM_OP_cast, NULL);
            job_in(&j, 0, format, tm_shape_1(n), 0., 1.), job_out(&j, 0, to[f % 2], tm_shape_1(n));
            for (int64_t i = 0; i < n; i++) {
                if (format == TM_F16)
                    ((uint16_t *)(void *)j.in[0].initial)[i] = (uint16_t)i;
                else
                    j.in[0].initial[i] = (unsigned char)i;
            }
            const tm_kernel *kernel = tables[t].kernels;
            job_reset(&j);
            while (kernel->run && (kernel->op != TM_OP_cast || kernel->refuse(&j.call))) kernel++;
            assert_non_null(kernel->run);
            call_run(kernel, &j.call, 3);
            for (int64_t i = 0; i < n; i++) {
                float  wide = (float)in_at(&j, 0, i);
                double wanted = to[f % 2] == TM_BF16 ? (double)tm_bf16_value(tm_bf16_round(wide)) : (double)wide;
                if (!(out_at(&j, 0, i) == wanted || (isnan(wanted) && isnan(out_at(&j, 0, i)))))
                    fail_msg("%s: %s code %lld gives %.9g, wanted %.9g", tables[t].isa, tm_dtype_name(format),
                             (long long)i, out_at(&j, 0, i), wanted);
            }
            job_free(&j);
        }
}

/* Every float32 with a bfloat16 tie, its neighbours, infinities, NaN, the largest and the subnormal numbers. */
static void test_cast_rounds_to_nearest_even(void **state)
{
    (void)state;
    static const uint32_t low[] = { 0, 1, 0x7fff, 0x8000, 0x8001, 0xffff };
    enum { HIGH = 0x10000, N = HIGH * 6 };
    job j = job_new(TM_OP_cast, NULL);
    job_in(&j, 0, TM_F32, tm_shape_1(N), 0., 0.), job_out(&j, 0, TM_BF16, tm_shape_1(N));
    for (uint32_t i = 0; i < N; i++) {
        uint32_t u = i / 6 << 16 | low[i % 6];
        memcpy(j.in[0].initial + 4 * (size_t)i, &u, 4);
    }
    for (int t = 0; t < COUNT(tables); t++) {
        if (!isa_available(tables[t].isa)) continue;
        job_run(&j, &tables[t], 2);
        const uint16_t *got = j.call.out[0].data;
        for (int64_t i = 0; i < N; i++) {
            float f = ((const float *)tensor_data(&j.in[0]))[i];
            if (isnan(f) ? !isnan(tm_bf16_value(got[i])) : got[i] != tm_bf16_round(f))
                fail_msg("%s: %a gives %04x", tables[t].isa, (double)f, got[i]);
        }
    }
    job_free(&j);
}

static void test_nan_stays(void **state)
{
    (void)state;
    static const tm_op_id ops[] = { TM_OP_gelu, TM_OP_relu, TM_OP_relu_grad, TM_OP_gelu_grad, TM_OP_add };
    for (int k = 0; k < COUNT(ops); k++) {
        job j = job_new(ops[k], NULL);
        job_in(&j, 0, TM_F32, tm_shape_1(40), 0., 1.);
        bool two = ops[k] != TM_OP_gelu && ops[k] != TM_OP_relu;
        if (two) job_in(&j, 1, TM_F32, tm_shape_1(40), 0., 1.);
        if (ops[k] == TM_OP_relu_grad) tm_value_set(j.in[0].initial, TM_F32, 17, (double)NAN);
        job_out(&j, 0, TM_F32, tm_shape_1(40));
        tm_value_set(j.in[two ? 1 : 0].initial, TM_F32, 17, (double)NAN);
        for (int t = 0; t < COUNT(tables); t++) {
            if (!isa_available(tables[t].isa)) continue;
            job_run(&j, &tables[t], 1);
            for (int64_t i = 0; i < 40; i++)
                if (isnan(out_at(&j, 0, i)) != (i == 17)) fail_msg("%s: op %d, element %d", tables[t].isa, k, (int)i);
        }
        job_free(&j);
    }
}

/* ---- rope ---- */

static void rope_judge(const job *j, const char *isa)
{
    const tm_rope_attr *a = j->call.attr;
    int64_t             n = j->in[0].shape.n[0], width = j->in[0].shape.n[1], d = a->head_dim, half = d / 2;
    double              sign = j->op == TM_OP_rope ? 1. : -1.;
    for (int64_t r = 0; r < n; r++) {
        for (int64_t h = 0; h < a->heads; h++)
            for (int64_t i = 0; i < half; i++) {
                int64_t at = r * width + h * d, first = a->layout == TM_ROPE_HALF ? at + i : at + 2 * i;
                int64_t second = a->layout == TM_ROPE_HALF ? first + half : first + 1;
                double  c = in_at(j, 1, r % a->seq * d + i), s = sign * in_at(j, 1, r % a->seq * d + half + i);
                double  x = in_at(j, 0, first), y = in_at(j, 0, second);
                judge(j, 0, first, x * c - y * s, U_F32 * (fabs(x * c) + fabs(y * s)), isa);
                judge(j, 0, second, y * c + x * s, U_F32 * (fabs(y * c) + fabs(x * s)), isa);
            }
        for (int64_t i = a->heads * d; i < width; i++) judge(j, 0, r * width + i, in_at(j, 0, r * width + i), 0., isa);
    }
}
static void rope(tm_dtype format)
{
    static const int64_t dims[] = { 2, 6, 16, 34, 64, 128, 130 };
    for (int d = 0; d < COUNT(dims); d++)
        for (int k = 0; k < 16; k++) {
            tm_rope_attr attr = { .seq = k & 1 ? 5 : 40,
                                  .heads = 3,
                                  .head_dim = dims[d],
                                  .layout = k & 2 ? TM_ROPE_HALF : TM_ROPE_INTERLEAVED };
            int64_t      n = k & 1 ? 15 : 80, width = 3 * dims[d] + (k & 4 ? 7 : 0);
            for (int alias = -1; alias < 1; alias++) {
                job j = job_new(k & 8 ? TM_OP_rope : TM_OP_rope_grad, &attr);
                job_in(&j, 0, format, tm_shape_2(n, width), 0., 1.);
                tensor *table = job_in(&j, 1, TM_F32, tm_shape_2(attr.seq, dims[d]), 0., 1.);
                for (int64_t p = 0; p < attr.seq; p++)
                    for (int64_t i = 0; i < dims[d] / 2; i++) {
                        double angle = (double)p * pow(10000., -2. * (double)i / (double)dims[d]);
                        tm_value_set(table->initial, TM_F32, p * dims[d] + i, cos(angle));
                        tm_value_set(table->initial, TM_F32, p * dims[d] + dims[d] / 2 + i, sin(angle));
                    }
                job_out(&j, 0, format, tm_shape_2(n, width));
                j.alias[0] = alias;
                job_check(&j, tables, COUNT(tables), rope_judge);
            }
        }
}
static void test_rope_f32(void **state)
{
    (void)state;
    rope(TM_F32);
}
static void test_rope_bf16(void **state)
{
    (void)state;
    rope(TM_BF16);
}
static void test_rope_refuses_wide_heads(void **state)
{
    (void)state;
    tm_rope_attr attr = { .seq = 1, .heads = 1, .head_dim = 514 };
    job          j = job_new(TM_OP_rope, &attr);
    job_in(&j, 0, TM_F32, tm_shape_2(1, 514), 0., 1.), job_in(&j, 1, TM_F32, tm_shape_2(1, 514), 0., 1.);
    job_out(&j, 0, TM_F32, tm_shape_2(1, 514));
    job_reset(&j);
    assert_non_null(kernel_find(tables[0].kernels, TM_OP_rope)->refuse(&j.call));
    job_free(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_flat_f32),
        cmocka_unit_test(test_flat_bf16),
        cmocka_unit_test(test_cast_of_held_formats),
        cmocka_unit_test(test_cast_rounds_to_nearest_even),
        cmocka_unit_test(test_nan_stays),
        cmocka_unit_test(test_rope_f32),
        cmocka_unit_test(test_rope_bf16),
        cmocka_unit_test(test_rope_refuses_wide_heads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
