/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels by hand, where neither the oracle nor a golden number of others reaches: Adafactor, and
 * the rest that AdamW keeps. */
#include "op/attrs.h"
#include "op/describe.h"
#include "support/execute.h"

#include "support/test.h"

static void expect(const double *have, const double *want, int n)
{
    for (int i = 0; i < n; i++)
        if (!(fabs(have[i] - want[i]) <= 1e-14 * (1 + fabs(want[i]))))
            fail_msg("value %d is %.17g, wanted %.17g", i, have[i], want[i]);
}
#define EXPECT(have, ...) expect(have, (const double[]){ __VA_ARGS__ }, (int)(sizeof(have) / sizeof((have)[0])))

/* A call whose views the test then sets. */
static tm_call call_of(const tm_op *op, const void *attr)
{
    tm_call call = { .op = op, .attr = attr, .threads = 1 };
    for (int k = 0; k < TM_MAX_IN; k++) call.in[k] = tm_view_absent();
    for (int k = 0; k < TM_MAX_OUT; k++) call.out[k] = tm_view_absent();
    return call;
}

/* With a compensation the weight is what is stored and the rest that its format had no room for; in float64 none
 * remains. */
TEST(adamw_adds_the_rest)
{
    double        p[2] = { 1, 1 }, m[2] = { 0, 0 }, v[2] = { 0, 0 }, g[2] = { 0, 0 }, rest[2] = { 0.25, -0.5 };
    double        scalars[TM_SCALAR_COUNT] = { 0 };
    tm_shape      two = tm_shape_1(2);
    tm_adamw_attr attr = { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.5 };
    tm_call       call = call_of(&tm_op_adamw, &attr);
    scalars[TM_SCALAR_LEARNING_RATE] = 0.5;
    scalars[TM_SCALAR_CORRECTION1] = scalars[TM_SCALAR_CORRECTION2] = 1;
    call.in[0] = call.out[0] = tm_view_f64(two, p);
    call.in[1] = tm_view_f64(two, g);
    call.in[2] = call.out[1] = tm_view_f64(two, m);
    call.in[3] = call.out[2] = tm_view_f64(two, v);
    call.in[4] = tm_view_f64(tm_shape_1(TM_SCALAR_COUNT), scalars);
    call.in[5] = tm_view_f64(two, (double[]){ 1, 1 });
    call.in[6] = call.out[3] = tm_view_f64(two, rest);
    call.op->reference(&call);
    EXPECT(p, 0.9375, 0.375); /* three quarters of 1.25 and of 0.5 */
    EXPECT(rest, 0, 0);
}

/* A matrix of rank one in squares has its own variances: from zero means and s = 1 the update is the gradient's sign,
 * of size max(eps2, rms(p)) rho; half of it when d is 0.5. A vector gives the same. */
TEST(adafactor_of_a_product_moves_by_signs)
{
    enum { R = 2, C = 3 };
    static const double a[R] = { 1, -2 }, b[C] = { 0.5, -1, 3 };
    for (int k = 0; k < 4; k++) {
        bool              matrix = k & 1;
        double            p[R * C], g[R * C], r[R * C] = { 0 }, q[C] = { 0 }, scalars[TM_SCALAR_COUNT] = { 0 };
        tm_adafactor_attr attr = {
            .eps1 = 1e-12, .eps2 = 1e-3, .clip_threshold = k < 2 ? 1 : 0.5, .weight_decay = 0.1
        };
        tm_call call = call_of(&tm_op_adafactor, &attr);
        for (int i = 0; i < R * C; i++) p[i] = i % 2 ? 2 : -2, g[i] = 2 * a[i / C] * b[i % C];
        scalars[TM_SCALAR_LEARNING_RATE] = 0.01;
        scalars[TM_SCALAR_SHARE] = 1;
        scalars[TM_SCALAR_RELATIVE_STEP] = 0.001;
        call.in[0] = call.out[0] = tm_view_f64(matrix ? tm_shape_2(R, C) : tm_shape_1(R * C), p);
        call.in[1] = tm_view_f64(call.in[0].shape, g);
        call.in[2] = call.out[1] = tm_view_f64(matrix ? tm_shape_1(R) : tm_shape_1(R * C), r);
        if (matrix) call.in[3] = call.out[2] = tm_view_f64(tm_shape_1(C), q);
        call.in[4] = tm_view_f64(tm_shape_1(TM_SCALAR_COUNT), scalars);
        call.in[5] = tm_view_f64(tm_shape_1(2), (double[]){ 77, 0.5 });
        call.op->reference(&call);
        if (matrix) {
            expect(r, (const double[]){ 41. / 12, 41. / 3 }, R); /* a^2 times the mean of b^2, which is 41 / 12 */
            EXPECT(q, 0.625, 2.5, 22.5);                         /* b^2 times the mean of a^2, which is 5 / 2 */
        }
        for (int i = 0; i < R * C; i++) {
            double before = i % 2 ? 2 : -2, sign = g[i] > 0 ? 1 : -1, step = 2 * 0.001 * (k < 2 ? 1 : 0.5);
            expect(p + i, (const double[]){ before * (1 - 0.001) - step * sign }, 1);
        }
    }
}

/* The second of two steps with s = 0.5: means halfway between the old and the new; rms(u) below 1 is not enlarged. */
TEST(adafactor_remembers_means)
{
    double            p[4] = { 1, 1, 1, 1 }, g[4] = { 1, 3, 2, 2 }, r[2] = { 9, 4 }, q[2] = { 2.5, 10.5 };
    double            scalars[TM_SCALAR_COUNT] = { 0 };
    tm_adafactor_attr attr = { .eps1 = 1e-12, .eps2 = 1e-3, .clip_threshold = 1, .weight_decay = 0 };
    tm_call           call = call_of(&tm_op_adafactor, &attr);
    scalars[TM_SCALAR_SHARE] = 0.5;
    scalars[TM_SCALAR_RELATIVE_STEP] = 1;
    call.in[0] = call.out[0] = tm_view_f64(tm_shape_2(2, 2), p);
    call.in[1] = tm_view_f64(tm_shape_2(2, 2), g);
    call.in[2] = call.out[1] = tm_view_f64(tm_shape_1(2), r);
    call.in[3] = call.out[2] = tm_view_f64(tm_shape_1(2), q);
    call.in[4] = tm_view_f64(tm_shape_1(TM_SCALAR_COUNT), scalars);
    call.in[5] = tm_view_f64(tm_shape_1(2), (double[]){ 77, 1 });
    call.op->reference(&call);
    EXPECT(r, 7, 4);     /* row means 5, 4 */
    EXPECT(q, 2.5, 8.5); /* column means 2.5, 6.5 */
    double mean = 5.5, u[4] = { 1 / sqrt(7 * 2.5 / mean), 3 / sqrt(7 * 8.5 / mean), 2 / sqrt(4 * 2.5 / mean),
                                2 / sqrt(4 * 8.5 / mean) };
    double rms = sqrt((u[0] * u[0] + u[1] * u[1] + u[2] * u[2] + u[3] * u[3]) / 4), step = rms > 1 ? 1 / rms : 1;
    EXPECT(p, 1 - step * u[0], 1 - step * u[1], 1 - step * u[2], 1 - step * u[3]);
}
