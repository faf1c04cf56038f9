/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels against numbers worked out by hand, and against what must hold for any input. */
#include "../support/execute.h"
#include "base/random.h"
#include "op/attrs.h"
#include "op/describe.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEED = 20240609 };
static const tm_shape scalar = { .rank = 0 };

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

static tm_view scalars_with(double values[TM_SCALAR_COUNT], tm_scalar which, double value)
{
    values[which] = value;
    return tm_view_f64(tm_shape_1(TM_SCALAR_COUNT), values);
}

static void norms(void **state)
{
    (void)state;
    double       y[2], mean[1], rstd[1];
    tm_norm_attr attr = { .eps = 0 };
    tm_call      call = call_of(&tm_op_rmsnorm, &attr);
    call.in[0] = tm_view_f64(tm_shape_2(1, 2), (double[]){ 3, 4 });
    call.in[1] = tm_view_f64(tm_shape_1(2), (double[]){ 1, 2 });
    call.out[0] = tm_view_f64(tm_shape_2(1, 2), y);
    call.out[1] = tm_view_f64(tm_shape_1(1), rstd);
    call.op->reference(&call);
    EXPECT(rstd, 0.2 * sqrt(2.0)); /* mean of squares 12.5 */
    EXPECT(y, 0.6 * sqrt(2.0), 1.6 * sqrt(2.0));
    attr.eps = 3.5;
    call.op->reference(&call);
    EXPECT(rstd, 0.25);

    attr.eps = 0;
    call = call_of(&tm_op_layernorm, &attr);
    call.in[0] = tm_view_f64(tm_shape_2(1, 2), (double[]){ 1, 3 });
    call.in[1] = tm_view_f64(tm_shape_1(2), (double[]){ 2, 1 });
    call.in[2] = tm_view_f64(tm_shape_1(2), (double[]){ 0, 10 });
    call.out[0] = tm_view_f64(tm_shape_2(1, 2), y);
    call.out[1] = tm_view_f64(tm_shape_1(1), mean);
    call.out[2] = tm_view_f64(tm_shape_1(1), rstd);
    call.op->reference(&call);
    EXPECT(mean, 2);
    EXPECT(rstd, 1);
    EXPECT(y, -2, 11);
    attr.eps = 3;
    call.in[2] = tm_view_absent();
    call.op->reference(&call);
    EXPECT(rstd, 0.5);
    EXPECT(y, -1, 0.5);
}

static void linear_and_its_gradients(void **state)
{
    (void)state;
    double  y[2], dx[2], dw[2], db[2];
    tm_call call = call_of(&tm_op_linear, NULL);
    call.in[0] = tm_view_f64(tm_shape_2(1, 2), (double[]){ 1, 2 });
    call.in[1] = tm_view_f64(tm_shape_2(2, 2), (double[]){ 3, 4, 5, 6 });
    call.out[0] = tm_view_f64(tm_shape_2(1, 2), y);
    call.op->reference(&call);
    EXPECT(y, 11, 17);
    call.in[2] = tm_view_f64(tm_shape_1(2), (double[]){ 10, 20 });
    call.op->reference(&call);
    EXPECT(y, 21, 37);
    call.in[3] = tm_view_f64(tm_shape_2(1, 2), (double[]){ 100, 200 });
    call.op->reference(&call);
    EXPECT(y, 121, 237);

    tm_call dgrad = call_of(&tm_op_linear_dgrad, NULL);
    dgrad.in[0] = call.in[0];
    dgrad.in[1] = call.in[1];
    dgrad.out[0] = tm_view_f64(tm_shape_2(1, 2), dx);
    dgrad.op->reference(&dgrad);
    EXPECT(dx, 13, 16);

    tm_call wgrad = call_of(&tm_op_linear_wgrad, NULL);
    wgrad.in[0] = tm_view_f64(tm_shape_2(2, 2), (double[]){ 1, 2, 3, 4 });
    wgrad.in[1] = tm_view_f64(tm_shape_2(2, 1), (double[]){ 5, 6 });
    wgrad.out[0] = tm_view_f64(tm_shape_2(2, 1), dw);
    wgrad.op->reference(&wgrad);
    EXPECT(dw, 23, 34);

    tm_call bias = call_of(&tm_op_bias_grad, NULL);
    bias.in[0] = wgrad.in[0];
    bias.out[0] = tm_view_f64(tm_shape_1(2), db);
    bias.op->reference(&bias);
    EXPECT(db, 4, 6);
}

static void embeddings(void **state)
{
    (void)state;
    double            y[8], dtable[4], dpositions[3];
    tm_embedding_attr attr = { .seq = 2 };
    tm_view           tokens = tm_view_i32(tm_shape_1(4), (int32_t[]){ 2, 0, 2, 1 });
    tm_call           call = call_of(&tm_op_embedding, &attr);
    call.in[0] = tokens;
    call.in[1] = tm_view_f64(tm_shape_2(3, 2), (double[]){ 1, 2, 3, 4, 5, 6 });
    call.out[0] = tm_view_f64(tm_shape_2(4, 2), y);
    call.op->reference(&call);
    EXPECT(y, 5, 6, 1, 2, 5, 6, 3, 4);
    call.in[2] = tm_view_f64(tm_shape_2(3, 2), (double[]){ 10, 20, 30, 40, 50, 60 });
    call.op->reference(&call);
    EXPECT(y, 15, 26, 31, 42, 15, 26, 33, 44);

    tm_call grad = call_of(&tm_op_embedding_grad, &attr);
    grad.in[0] = tm_view_f64(tm_shape_2(4, 1), (double[]){ 1, 2, 4, 8 });
    grad.in[1] = tokens;
    grad.out[0] = tm_view_f64(tm_shape_2(4, 1), dtable);
    grad.out[1] = tm_view_f64(tm_shape_2(3, 1), dpositions);
    grad.op->reference(&grad);
    EXPECT(dtable, 2, 8, 5, 0); /* token 2 twice; token 3 never: exactly zero */
    EXPECT(dpositions, 5, 10, 0);
    assert_true(dtable[3] == 0 && dpositions[2] == 0);
}

/* Ten values, and the same again. */
static void expect_twice(const double *have, const double *want)
{
    expect(have, want, 10);
    expect(have + 10, want, 10);
}

static void rotations(void **state)
{
    (void)state;
    double       x[20] = { 7, 8, 9, 10, 11, 1, 2, 3, 4, 5, 7, 8, 9, 10, 11, 1, 2, 3, 4, 5 }; /* two equal sequences */
    double       y[20], dx[20];
    tm_rope_attr attr = { .seq = 2, .heads = 1, .head_dim = 4, .layout = TM_ROPE_HALF };
    tm_call      call = call_of(&tm_op_rope, &attr);
    call.in[0] = tm_view_f64(tm_shape_2(4, 5), x);
    call.in[1] =
        tm_view_f64(tm_shape_2(2, 4), (double[]){ 1, 1, 0, 0, 0, 0.6, 1, 0.8 }); /* no turn; cos, cos, sin, sin */
    call.out[0] = tm_view_f64(tm_shape_2(4, 5), y);
    call.op->reference(&call);
    expect_twice(y, (const double[]){ 7, 8, 9, 10, 11, -3, -2, 1, 4, 5 }); /* pairs (1, 3) and (2, 4) */
    tm_call grad = call;
    grad.op = &tm_op_rope_grad;
    grad.out[0] = tm_view_f64(tm_shape_2(4, 5), dx);
    grad.op->reference(&grad);
    expect_twice(dx, (const double[]){ 7, 8, 9, 10, 11, 3, 4.4, -1, 0.8, 5 });
    attr.layout = TM_ROPE_INTERLEAVED;
    call.op->reference(&call);
    expect_twice(y, (const double[]){ 7, 8, 9, 10, 11, -2, 1, -1.4, 4.8, 5 }); /* pairs (1, 2) and (3, 4) */
    grad.in[0] = call.out[0];
    grad.op->reference(&grad);
    expect_twice(dx, (const double[]){ 7, 8, 9, 10, 11, 1, 2, 3, 4, 5 }); /* turned back */
}

/* Positions that are given choose the row of the table; columns before the first head stay. */
static void rotations_by_position(void **state)
{
    (void)state;
    double       x[6] = { 5, 1, 2, 5, 1, 2 }, y[6];
    int32_t      positions[2] = { 1, 0 };
    tm_rope_attr attr = { .seq = 2, .heads = 1, .head_dim = 2, .first = 1, .layout = TM_ROPE_HALF };
    tm_call      call = call_of(&tm_op_rope, &attr);
    call.in[0] = tm_view_f64(tm_shape_2(2, 3), x);
    call.in[1] = tm_view_f64(tm_shape_2(2, 2), (double[]){ 1, 0, 0, 1 }); /* no turn; a quarter */
    call.in[2] = tm_view_i32(tm_shape_1(2), positions);
    call.out[0] = tm_view_f64(tm_shape_2(2, 3), y);
    call.op->reference(&call);
    EXPECT(y, 5, -2, 1, 5, 1, 2);
}

static void elementwise(void **state)
{
    (void)state;
    double  y[2], dx[2];
    tm_call call = call_of(&tm_op_gelu, NULL);
    call.in[0] = tm_view_f64(tm_shape_1(2), (double[]){ 1, -1 });
    call.out[0] = tm_view_f64(tm_shape_1(2), y);
    call.op->reference(&call);
    EXPECT(y, 0.8411919906082768, -0.15880800939172324);
    tm_call grad = call_of(&tm_op_gelu_grad, NULL);
    grad.in[0] = tm_view_f64(tm_shape_1(2), (double[]){ 1, 10 });
    grad.in[1] = call.in[0];
    grad.out[0] = tm_view_f64(tm_shape_1(2), dx);
    grad.op->reference(&grad);
    EXPECT(dx, 1.0829640838457826, -0.8296408384578255);

    call = call_of(&tm_op_relu, NULL);
    call.in[0] = tm_view_f64(tm_shape_1(2), (double[]){ -3, 5 });
    call.out[0] = tm_view_f64(tm_shape_1(2), y);
    call.op->reference(&call);
    EXPECT(y, 0, 5);
    grad = call_of(&tm_op_relu_grad, NULL);
    grad.in[0] = tm_view_f64(tm_shape_1(2), (double[]){ 7, 8 });
    grad.in[1] = call.out[0];
    grad.out[0] = tm_view_f64(tm_shape_1(2), dx);
    grad.op->reference(&grad);
    EXPECT(dx, 0, 8);

    double silu[1], dgu[2], sigmoid = 0.7310585786300049; /* of 1 */
    call = call_of(&tm_op_swiglu, NULL);
    call.in[0] = tm_view_f64(tm_shape_2(1, 2), (double[]){ 1, 2 });
    call.out[0] = tm_view_f64(tm_shape_2(1, 1), silu);
    call.op->reference(&call);
    EXPECT(silu, 2 * sigmoid);
    grad = call_of(&tm_op_swiglu_grad, NULL);
    grad.in[0] = tm_view_f64(tm_shape_2(1, 1), (double[]){ 3 });
    grad.in[1] = call.in[0];
    grad.out[0] = tm_view_f64(tm_shape_2(1, 2), dgu);
    grad.op->reference(&grad);
    EXPECT(dgu, 6 * 0.9276705118714869, 3 * sigmoid);

    double sum[2];
    call = call_of(&tm_op_add, NULL);
    call.in[0] = tm_view_f64(tm_shape_1(2), (double[]){ 0.1, 2 });
    call.in[1] = tm_view_f64(tm_shape_1(2), (double[]){ 0.5, -7 });
    call.out[0] = tm_view_f64(tm_shape_1(2), sum);
    call.op->reference(&call);
    EXPECT(sum, 0.6, -5);
    call.op = &tm_op_cast;
    call.in[1] = tm_view_absent();
    call.op->reference(&call);
    EXPECT(sum, 0.1, 2);
}

/* Two tokens, one head, scores 0 and ln 3 for the second: probabilities 1/4 and 3/4. */
static void attention_of_two_tokens(void **state)
{
    (void)state;
    double            o[2], lse[2], dqkv[6], half_ln3 = log(3.0) / 2;
    tm_attention_attr attr = tm_self_attention(2, 1, 1, 1, 2);
    tm_call           call = call_of(&tm_op_attention, &attr);
    tm_fused_qkv(&attr, tm_view_f64(tm_shape_2(2, 3), (double[]){ 1, 0, 10, 1, half_ln3, 20 }), call.in);
    call.out[0] = tm_view_f64(tm_shape_2(2, 1), o);
    call.out[1] = tm_view_f64(tm_shape_3(1, 1, 2), lse);
    call.op->reference(&call);
    EXPECT(o, 10, 17.5);
    EXPECT(lse, 0, log(4.0));
    tm_call grad = call_of(&tm_op_attention_grad, &attr);
    grad.in[0] = tm_view_f64(tm_shape_2(2, 1), (double[]){ 1, 1 });
    memcpy(&grad.in[1], call.in, 3 * sizeof call.in[0]);
    grad.in[4] = call.out[0];
    grad.in[5] = call.out[1];
    tm_fused_qkv(&attr, tm_view_f64(tm_shape_2(2, 3), dqkv), grad.out);
    grad.op->reference(&grad);
    EXPECT(dqkv, 0, -3.75, 1.25, 3.75 * half_ln3, 3.75, 0.75);
    attr.causal = 0;
    call.op->reference(&call);
    EXPECT(o, 17.5, 17.5);
    EXPECT(lse, log(4.0), log(4.0));
}

/* Logits 0 and ln 3: the second class has 3/4. Targets: second, first, none. */
static void loss_of_three_rows(void **state)
{
    (void)state;
    double       loss[1], dx[3], dw[2], logits[4], scalars[TM_SCALAR_COUNT] = { 0 }, ln3 = log(3.0);
    tm_loss_attr attr = { .chunk = 2 };
    tm_call      call = call_of(&tm_op_linear_cross_entropy, &attr);
    call.in[0] = tm_view_f64(tm_shape_2(3, 1), (double[]){ 1, 1, 1 });
    call.in[1] = tm_view_f64(tm_shape_2(2, 1), (double[]){ 0, ln3 });
    call.in[2] = tm_view_i32(tm_shape_1(3), (int32_t[]){ 1, 0, TM_IGNORED_TARGET });
    call.out[0] = tm_view_f64(scalar, loss);
    call.out[1] = tm_view_f64(tm_shape_2(2, 2), logits);
    call.op->reference(&call);
    EXPECT(loss, log(4.0 / 3) + log(4.0));
    tm_call grad = call;
    grad.op = &tm_op_linear_cross_entropy_grad;
    grad.in[3] = scalars_with(scalars, TM_SCALAR_LOSS_SCALE, 2);
    grad.out[1] = tm_view_f64(tm_shape_2(3, 1), dx);
    grad.out[2] = tm_view_f64(tm_shape_2(2, 1), dw);
    grad.out[3] = call.out[1];
    loss[0] = 0;
    grad.op->reference(&grad);
    EXPECT(loss, log(4.0 / 3) + log(4.0));
    EXPECT(dx, -0.5 * ln3, 1.5 * ln3, 0);
    EXPECT(dw, -1, 1);
}

static void clipping(void **state)
{
    (void)state;
    double  sum[1] = { 25 }, result[2], scalars[TM_SCALAR_COUNT] = { 0 };
    tm_call call = call_of(&tm_op_clip, NULL);
    call.in[0] = tm_view_f64(scalar, sum);
    call.in[1] = scalars_with(scalars, TM_SCALAR_MAX_NORM, 1);
    call.out[0] = tm_view_f64(tm_shape_1(2), result);
    call.op->reference(&call);
    EXPECT(result, 5, 1 / (5 + 1e-6));
    sum[0] = 0.25;
    call.op->reference(&call);
    EXPECT(result, 0.5, 1);
    sum[0] = 25;
    for (double off = 0; off >= -1; off--) {
        call.in[1] = scalars_with(scalars, TM_SCALAR_MAX_NORM, off);
        call.op->reference(&call);
        EXPECT(result, 5, 1);
    }
    call.in[1] = scalars_with(scalars, TM_SCALAR_MAX_NORM, 1);
    sum[0] = (double)NAN;
    call.op->reference(&call);
    assert_true(isnan(result[0]) && isnan(result[1]));

    call = call_of(&tm_op_square_sum, NULL);
    call.in[0] = tm_view_f64(tm_shape_1(3), (double[]){ 1, -2, 3 });
    call.out[0] = tm_view_f64(scalar, sum);
    call.op->reference(&call);
    EXPECT(sum, 14);
}

/* Two steps, computed with 40 digits. The gradient is twice what is meant, the clip halves it. */
static void adamw_takes_two_steps(void **state)
{
    (void)state;
    double        p[1] = { 1 }, m[1] = { 0 }, v[1] = { 0 }, g[1] = { 0.2 }, scalars[TM_SCALAR_COUNT] = { 0 };
    tm_adamw_attr attr = { .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1 };
    tm_call       call = call_of(&tm_op_adamw, &attr);
    scalars[TM_SCALAR_LEARNING_RATE] = 1e-3;
    scalars[TM_SCALAR_CORRECTION1] = 0.1;
    scalars[TM_SCALAR_CORRECTION2] = 0.05;
    call.in[0] = call.out[0] = tm_view_f64(tm_shape_1(1), p);
    call.in[1] = tm_view_f64(tm_shape_1(1), g);
    call.in[2] = call.out[1] = tm_view_f64(tm_shape_1(1), m);
    call.in[3] = call.out[2] = tm_view_f64(tm_shape_1(1), v);
    call.in[4] = tm_view_f64(tm_shape_1(TM_SCALAR_COUNT), scalars);
    call.in[5] = tm_view_f64(tm_shape_1(2), (double[]){ 77, 0.5 });
    call.op->reference(&call);
    EXPECT(p, 0.99890000009999999);
    EXPECT(m, 0.01);
    EXPECT(v, 0.0005);
    g[0] = -0.6;
    scalars[TM_SCALAR_CORRECTION1] = 0.19;
    scalars[TM_SCALAR_CORRECTION2] = 0.0975;
    call.op->reference(&call);
    EXPECT(p, 0.99928940584587624);
    EXPECT(m, -0.021);
    EXPECT(v, 0.004975);
}

/* torch.optim.SGD with dampening 0, by hand: two steps with momentum, plain and Nesterov's. */
static void sgd_takes_two_steps(void **state)
{
    (void)state;
    for (int nesterov = 0; nesterov < 2; nesterov++) {
        double      p[1] = { 1 }, b[1] = { 0 }, g[1] = { 0.4 }, scalars[TM_SCALAR_COUNT] = { 0 };
        tm_sgd_attr attr = { .momentum = 0.9, .weight_decay = 0.5, .nesterov = nesterov };
        tm_call     call = call_of(&tm_op_sgd, &attr);
        scalars[TM_SCALAR_LEARNING_RATE] = 0.1;
        call.in[0] = call.out[0] = tm_view_f64(tm_shape_1(1), p);
        call.in[1] = tm_view_f64(tm_shape_1(1), g);
        call.in[2] = call.out[1] = tm_view_f64(tm_shape_1(1), b);
        call.in[3] = tm_view_f64(tm_shape_1(TM_SCALAR_COUNT), scalars);
        call.in[4] = tm_view_f64(tm_shape_1(2), (double[]){ 77, 0.5 });
        call.op->reference(&call);
        EXPECT(b, 0.7); /* 0.2 + 0.5 */
        EXPECT(p, nesterov ? 1 - 0.1 * (0.7 + 0.63) : 0.93);
        double decay = 0.5 * p[0], wanted = 0.63 - 0.1 + decay, before = p[0];
        g[0] = -0.2;
        call.op->reference(&call);
        EXPECT(b, wanted);
        EXPECT(p, before - 0.1 * (nesterov ? -0.1 + decay + 0.9 * wanted : wanted));
    }
}

/* A matrix of rank one in squares has its own variances: from zero means and s = 1 the update is the gradient's sign,
 * of size max(eps2, rms(p)) rho; half of it when d is 0.5. A vector gives the same. */
static void adafactor_of_a_product_moves_by_signs(void **state)
{
    (void)state;
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
static void adafactor_remembers_means(void **state)
{
    (void)state;
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

/* ---- what holds for any input ---- */

static double normal(uint64_t stream, int64_t i)
{
    return tm_random_normal(SEED, stream, (uint64_t)i);
}

/* One more channel that is 1 in x and the same in every row of w shifts all logits of a row: the loss stays, and no
 * exponential overflows. */
static void loss_does_not_see_a_shift_of_the_logits(void **state)
{
    (void)state;
    enum { N = 5, C = 4, V = 9 };
    double       x[N * C], w[V * C], logits[3 * V], loss[2];
    int32_t      targets[N];
    tm_loss_attr attr = { .chunk = 3 };
    for (int shifted = 0; shifted < 2; shifted++) {
        for (int i = 0; i < N * C; i++) x[i] = i % C == C - 1 ? 1 : normal(0, i);
        for (int i = 0; i < V * C; i++) w[i] = i % C == C - 1 ? 2000.0 * shifted : normal(1, i);
        for (int i = 0; i < N; i++) targets[i] = (int32_t)tm_random_below(SEED, 2, (uint64_t)i, V);
        tm_call call = call_of(&tm_op_linear_cross_entropy, &attr);
        call.in[0] = tm_view_f64(tm_shape_2(N, C), x);
        call.in[1] = tm_view_f64(tm_shape_2(V, C), w);
        call.in[2] = tm_view_i32(tm_shape_1(N), targets);
        call.out[0] = tm_view_f64(scalar, &loss[shifted]);
        call.out[1] = tm_view_f64(tm_shape_2(3, V), logits);
        call.op->reference(&call);
    }
    assert_true(loss[0] > 1);
    assert_true(fabs(loss[0] - loss[1]) <= 1e-12 * 2000);
}

static void untrained_loss_is_ln_of_the_vocabulary(void **state)
{
    (void)state;
    double       x[6] = { 1, 2, 3, 4, 5, 6 }, w[20] = { 0 }, logits[10], loss[1];
    tm_loss_attr attr = { .chunk = 1 };
    tm_call      call = call_of(&tm_op_linear_cross_entropy, &attr);
    call.in[0] = tm_view_f64(tm_shape_2(3, 2), x);
    call.in[1] = tm_view_f64(tm_shape_2(10, 2), w);
    call.in[2] = tm_view_i32(tm_shape_1(3), (int32_t[]){ 0, 5, 9 });
    call.out[0] = tm_view_f64(scalar, loss);
    call.out[1] = tm_view_f64(tm_shape_2(1, 10), logits);
    call.op->reference(&call);
    EXPECT(loss, 3 * log(10.0));
}

/* The rows of a chunk are a matter of memory, not of results. */
static void loss_does_not_depend_on_the_chunk(void **state)
{
    (void)state;
    tm_example example;
    tm_call    call[2];
    for (int c = 0; c < 2; c++) {
        assert_true(tm_op_linear_cross_entropy_grad.example(4, &example));
        ((tm_loss_attr *)(void *)example.attr)->chunk = c ? 1 : 50;
        tm_call_make(&call[c], &tm_op_linear_cross_entropy_grad, &example, SEED);
        call[c].op->reference(&call[c]);
    }
    for (int k = 0; k < 3; k++)
        assert_memory_equal(call[0].out[k].data, call[1].out[k].data,
                            (size_t)tm_shape_elements(call[0].out[k].shape) * sizeof(double));
    tm_call_free(&call[0]);
    tm_call_free(&call[1]);
}

/* Changes one token of each sequence; returns the first token whose output differs, or T. */
static int64_t first_changed(int example_number, int64_t token)
{
    tm_example               example;
    tm_call                  before, after;
    const tm_attention_attr *attr = (const void *)example.attr;
    assert_true(tm_op_attention.example(example_number, &example));
    tm_call_make(&before, &tm_op_attention, &example, SEED);
    tm_call_make(&after, &tm_op_attention, &example, SEED);
    int64_t T = attr->seq_q, rows = example.in[0].n[0], out = before.out[0].shape.n[1], first = T;
    for (int k = 0; k < 3; k++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < example.in[k].n[1] && r % T == token; c++) tm_view_row(&after.in[k], r)[c] += 1;
    before.op->reference(&before);
    after.op->reference(&after);
    for (int64_t r = 0; r < rows; r++)
        if (memcmp((double *)before.out[0].data + r * out, (double *)after.out[0].data + r * out,
                   (size_t)out * sizeof(double)) != 0 &&
            r % T < first)
            first = r % T;
    tm_call_free(&before);
    tm_call_free(&after);
    return first;
}

static void a_future_token_changes_no_past_output(void **state)
{
    (void)state;
    for (int64_t token = 0; token < 9; token++) assert_int_equal(first_changed(3, token), token);
    for (int64_t token = 0; token < 65; token += 16) assert_int_equal(first_changed(5, token), token);
    for (int64_t token = 0; token < 7; token++) assert_int_equal(first_changed(2, token), 0); /* not causal */
}

/* Values that are all alike within a head come out as they are, from the head that h / (H / J) says. */
static void query_heads_read_the_head_of_their_group(void **state)
{
    (void)state;
    tm_attention_attr attr = tm_self_attention(4, 6, 2, 2, 0.7);
    enum { ROWS = 8, H = 6, J = 2, D = 2, W = (H + 2 * J) * D };
    double qkv[ROWS * W], o[ROWS * H * D], lse[2 * H * 4];
    for (int i = 0; i < ROWS * W; i++) {
        int column = i % W, head = column / D;
        qkv[i] = head < H + J ? normal(3, i) : 1 + head - (H + J) + 10 * (column % D);
    }
    tm_call call = call_of(&tm_op_attention, &attr);
    tm_fused_qkv(&attr, tm_view_f64(tm_shape_2(ROWS, W), qkv), call.in);
    call.out[0] = tm_view_f64(tm_shape_2(ROWS, H * D), o);
    call.out[1] = tm_view_f64(tm_shape_3(2, H, 4), lse);
    call.op->reference(&call);
    for (int i = 0; i < ROWS * H * D; i++) {
        int column = i % (H * D), head = column / D;
        expect(&o[i], &(double){ (head < 3 ? 1 : 2) + 10 * (column % D) }, 1);
    }
}

/* (1 - 3)^2 + (2 - 2.5)^2, and half of that scale back. */
static void square_error_and_its_gradient(void **state)
{
    (void)state;
    double  loss[1] = { 100 }, dy[2];
    tm_call call = call_of(&tm_op_square_error, NULL);
    call.in[0] = tm_view_f64(tm_shape_1(2), (double[]){ 1, 2 });
    call.in[1] = tm_view_f64(tm_shape_1(2), (double[]){ 3, 2.5 });
    call.out[0] = tm_view_f64((tm_shape){ .rank = 0 }, loss);
    call.op->reference(&call);
    EXPECT(loss, 4.25);
    call.accumulate = 1;
    call.op->reference(&call);
    EXPECT(loss, 8.5);
    tm_call grad = call_of(&tm_op_square_error_grad, NULL);
    grad.in[0] = call.in[0];
    grad.in[1] = call.in[1];
    grad.in[2] = tm_view_f64(tm_shape_1(8), (double[]){ 0.5, 9, 9, 9, 9, 9, 9, 9 });
    grad.out[0] = tm_view_f64(tm_shape_1(2), dy);
    grad.op->reference(&grad);
    EXPECT(dy, -2, -0.5);
}

/* A window of two keys: equal scores, so a query gives the mean of its own value and the one before. */
static void attention_sees_its_window(void **state)
{
    (void)state;
    double            o[4], lse[4], dqkv[12];
    tm_attention_attr attr = tm_self_attention(4, 1, 1, 1, 1);
    tm_call           call = call_of(&tm_op_attention, &attr);
    attr.window = 2;
    tm_fused_qkv(&attr, tm_view_f64(tm_shape_2(4, 3), (double[]){ 1, 0, 8, 1, 0, 4, 1, 0, 2, 1, 0, 6 }), call.in);
    call.out[0] = tm_view_f64(tm_shape_2(4, 1), o);
    call.out[1] = tm_view_f64(tm_shape_3(1, 1, 4), lse);
    call.op->reference(&call);
    EXPECT(o, 8, 6, 3, 4);
    EXPECT(lse, 0, log(2.0), log(2.0), log(2.0));
    tm_call grad = call_of(&tm_op_attention_grad, &attr);
    grad.in[0] = tm_view_f64(tm_shape_2(4, 1), (double[]){ 0, 0, 0, 1 });
    memcpy(&grad.in[1], call.in, 3 * sizeof call.in[0]);
    grad.in[4] = call.out[0];
    grad.in[5] = call.out[1];
    tm_fused_qkv(&attr, tm_view_f64(tm_shape_2(4, 3), dqkv), grad.out);
    grad.op->reference(&grad);
    EXPECT(dqkv, 0, 0, 0, 0, 0, 0, 0, -1, 0.5, 0, 1, 0.5);
}

/* The last token begins a document: it sees itself; the third one sees two tokens because of the window. */
static void attention_sees_its_document(void **state)
{
    (void)state;
    double            o[4], lse[4], dqkv[12];
    int32_t           first_key[4] = { 0, 0, 0, 3 };
    tm_attention_attr attr = tm_self_attention(4, 1, 1, 1, 1);
    tm_call           call = call_of(&tm_op_attention, &attr);
    attr.window = 2;
    tm_fused_qkv(&attr, tm_view_f64(tm_shape_2(4, 3), (double[]){ 1, 0, 8, 1, 0, 4, 1, 0, 2, 1, 0, 6 }), call.in);
    call.in[3] = tm_view_i32(tm_shape_1(4), first_key);
    call.out[0] = tm_view_f64(tm_shape_2(4, 1), o);
    call.out[1] = tm_view_f64(tm_shape_3(1, 1, 4), lse);
    call.op->reference(&call);
    EXPECT(o, 8, 6, 3, 6);
    EXPECT(lse, 0, log(2.0), log(2.0), 0);
    tm_call grad = call_of(&tm_op_attention_grad, &attr);
    grad.in[0] = tm_view_f64(tm_shape_2(4, 1), (double[]){ 0, 0, 0, 1 });
    memcpy(&grad.in[1], call.in, 3 * sizeof call.in[0]);
    grad.in[4] = call.out[0];
    grad.in[5] = call.out[1];
    grad.in[6] = call.in[3];
    tm_fused_qkv(&attr, tm_view_f64(tm_shape_2(4, 3), dqkv), grad.out);
    grad.op->reference(&grad);
    EXPECT(dqkv, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1);
}

/* The statistic of sequence b, head h and query i is element (b, h, i). Keys are 1, the first query of a head is what
 * tells it: lse of query i is its number and ln of the keys that it sees. */
static void statistics_stand_by_head(void **state)
{
    (void)state;
    enum { B = 2, H = 2, T = 2, W = H + 2 };
    tm_attention_attr attr = tm_self_attention(T, H, 1, 1, 1);
    tm_call           call = call_of(&tm_op_attention, &attr);
    double            qkv[B * T * W], o[B * T * H], lse[B * H * T];
    for (int row = 0; row < B * T; row++) {
        for (int h = 0; h < H; h++) qkv[row * W + h] = 10 * row + h; /* the query */
        qkv[row * W + H] = 1;
        qkv[row * W + H + 1] = 0;
    }
    tm_fused_qkv(&attr, tm_view_f64(tm_shape_2(B * T, W), qkv), call.in);
    call.out[0] = tm_view_f64(tm_shape_2(B * T, H), o);
    call.out[1] = tm_view_f64(tm_shape_3(B, H, T), lse);
    call.op->reference(&call);
    EXPECT(lse, 0, 10 + log(2.0), 1, 11 + log(2.0), 20, 30 + log(2.0), 21, 31 + log(2.0));
}

/* Two heads of two with weights of their own: the second two weights belong to heads from `second` on. */
static void keys_have_their_own_norm_weights(void **state)
{
    (void)state;
    double            y[4], rstd[2];
    tm_head_norm_attr attr = { .heads = 2, .head_dim = 2, .second = 1 };
    tm_call           call = call_of(&tm_op_head_norm, &attr);
    call.in[0] = tm_view_f64(tm_shape_2(1, 4), (double[]){ 1, 1, 2, 2 });
    call.in[1] = tm_view_f64(tm_shape_1(4), (double[]){ 3, 5, 7, 11 });
    call.out[0] = tm_view_f64(tm_shape_2(1, 4), y);
    call.out[1] = tm_view_f64(tm_shape_2(1, 2), rstd);
    call.op->reference(&call);
    EXPECT(rstd, 1, 0.5);
    EXPECT(y, 3, 5, 7, 11);
}

static void fill_has_its_value(void **state)
{
    (void)state;
    double       y[6] = { 9, 9, 9, 9, 9, 9 };
    tm_fill_attr attr = { .value = 1.5 };
    tm_call      call = call_of(&tm_op_fill, &attr);
    call.out[0] = tm_view_f64(tm_shape_2(2, 3), y);
    call.op->reference(&call);
    EXPECT(y, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5);
}

/* Sequences are rows of their own: two of them give what each gives alone, statistics included. */
static void sequences_do_not_see_each_other(void **state)
{
    (void)state;
    enum { T = 3, W = (2 + 2) * 4, OUT = 2 * 4 };
    tm_attention_attr attr = tm_self_attention(T, 2, 1, 4, 0.5);
    double            qkv[2 * T * W], together[2 * T * OUT], alone[2 * T * OUT], lse[2][2 * 2 * T];
    for (int i = 0; i < 2 * T * W; i++) qkv[i] = normal(4, i);
    tm_call call = call_of(&tm_op_attention, &attr);
    tm_fused_qkv(&attr, tm_view_f64(tm_shape_2(2 * T, W), qkv), call.in);
    call.out[0] = tm_view_f64(tm_shape_2(2 * T, OUT), together);
    call.out[1] = tm_view_f64(tm_shape_3(2, 2, T), lse[0]);
    call.op->reference(&call);
    for (int b = 0; b < 2; b++) {
        tm_fused_qkv(&attr, tm_view_f64(tm_shape_2(T, W), qkv + b * T * W), call.in);
        call.out[0] = tm_view_f64(tm_shape_2(T, OUT), alone + b * T * OUT);
        call.out[1] = tm_view_f64(tm_shape_3(1, 2, T), lse[1] + b * 2 * T);
        call.op->reference(&call);
    }
    assert_memory_equal(together, alone, sizeof alone);
    assert_memory_equal(lse[0], lse[1], sizeof lse[0]);
}

/* A large score overflows no exponential. */
static void softmax_is_safe(void **state)
{
    (void)state;
    double            o[2], lse[2];
    tm_attention_attr attr = tm_self_attention(2, 1, 1, 1, 1);
    tm_call           call = call_of(&tm_op_attention, &attr);
    tm_fused_qkv(&attr, tm_view_f64(tm_shape_2(2, 3), (double[]){ 1, 1000, 3, 1, 2000, 4 }), call.in);
    call.out[0] = tm_view_f64(tm_shape_2(2, 1), o);
    call.out[1] = tm_view_f64(tm_shape_3(1, 1, 2), lse);
    call.op->reference(&call);
    EXPECT(o, 3, 4);
    EXPECT(lse, 1000, 2000);
}

/* Scores after a rotation depend on the distance of two tokens only (Su et al. 2021, eq. 11). */
static void rotated_scores_depend_on_distance(void **state)
{
    (void)state;
    enum { T = 6, D = 4 };
    for (int64_t layout = TM_ROPE_HALF; layout <= TM_ROPE_INTERLEAVED; layout++) {
        double       x[T * 2 * D], y[T * 2 * D], table[T * D];
        tm_rope_attr attr = { .seq = T, .heads = 2, .head_dim = D, .layout = layout };
        for (int t = 0; t < T; t++)
            for (int i = 0; i < D / 2; i++) {
                table[t * D + i] = cos(t * (i + 0.3));
                table[t * D + D / 2 + i] = sin(t * (i + 0.3));
            }
        for (int i = 0; i < T * 2 * D; i++) x[i] = normal(5, i % (2 * D)); /* one query and one key, everywhere */
        tm_call call = call_of(&tm_op_rope, &attr);
        call.in[0] = tm_view_f64(tm_shape_2(T, 2 * D), x);
        call.in[1] = tm_view_f64(tm_shape_2(T, D), table);
        call.out[0] = tm_view_f64(tm_shape_2(T, 2 * D), y);
        call.op->reference(&call);
        double score[T][T];
        for (int i = 0; i < T; i++)
            for (int j = 0; j < T; j++) {
                score[i][j] = 0;
                for (int d = 0; d < D; d++) score[i][j] += y[i * 2 * D + d] * y[j * 2 * D + D + d];
            }
        for (int i = 1; i < T; i++)
            for (int j = 1; j < T; j++) expect(&score[i][j], &score[i - 1][j - 1], 1);
        assert_true(fabs(score[0][0] - score[3][0]) > 1e-3);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(norms),
        cmocka_unit_test(linear_and_its_gradients),
        cmocka_unit_test(embeddings),
        cmocka_unit_test(rotations),
        cmocka_unit_test(rotations_by_position),
        cmocka_unit_test(elementwise),
        cmocka_unit_test(attention_of_two_tokens),
        cmocka_unit_test(loss_of_three_rows),
        cmocka_unit_test(clipping),
        cmocka_unit_test(adamw_takes_two_steps),
        cmocka_unit_test(sgd_takes_two_steps),
        cmocka_unit_test(adafactor_of_a_product_moves_by_signs),
        cmocka_unit_test(adafactor_remembers_means),
        cmocka_unit_test(loss_does_not_see_a_shift_of_the_logits),
        cmocka_unit_test(untrained_loss_is_ln_of_the_vocabulary),
        cmocka_unit_test(loss_does_not_depend_on_the_chunk),
        cmocka_unit_test(a_future_token_changes_no_past_output),
        cmocka_unit_test(query_heads_read_the_head_of_their_group),
        cmocka_unit_test(attention_sees_its_window),
        cmocka_unit_test(attention_sees_its_document),
        cmocka_unit_test(statistics_stand_by_head),
        cmocka_unit_test(keys_have_their_own_norm_weights),
        cmocka_unit_test(fill_has_its_value),
        cmocka_unit_test(square_error_and_its_gradient),
        cmocka_unit_test(sequences_do_not_see_each_other),
        cmocka_unit_test(softmax_is_safe),
        cmocka_unit_test(rotated_scores_depend_on_distance),
    };
    return cmocka_run_group_tests_name("op/values", tests, NULL, NULL);
}
