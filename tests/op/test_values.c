/* SPDX-License-Identifier: Apache-2.0 */
/* Reference kernels against numbers worked out by hand, and against what must hold for any input. */
#include "support/test.h"
#include "values.h"

#define EXPECT_FIRST(have, ...)                                                                                        \
    expect(have, (const double[]){ __VA_ARGS__ }, (int)(sizeof((double[]){ __VA_ARGS__ }) / sizeof(double)))

/* A picture of 2 x 3 positions: 1 2 3 / 4 5 6. */
TEST(convolutions)
{
    double              y[24], w[9] = { 0, 0, 0, 0, 1, 0, 0, 0, 10 }; /* the middle, and what is below and right */
    tm_convolution_attr attr = { 1, 2, 3, 3, 1, 1, 1, 1 };
    tm_call             call = call_of(&tm_op_convolution, &attr);
    call.in[0] = tm_view_f64(tm_shape_2(6, 1), (double[]){ 1, 2, 3, 4, 5, 6 });
    call.in[1] = tm_view_f64(tm_shape_2(1, 9), w);
    call.out[0] = tm_view_f64(tm_shape_2(6, 1), y);
    call.op->reference(&call);
    EXPECT_FIRST(y, 51, 62, 3, 4, 5, 6);
    attr.stride = 2, attr.pad_before = 0, attr.pad_after = 1; /* corners 0 and 2 of line 0 are met first */
    call.in[2] = tm_view_f64(tm_shape_1(1), (double[]){ 0.5 });
    call.out[0] = tm_view_f64(tm_shape_2(1, 1), y);
    call.op->reference(&call);
    EXPECT_FIRST(y, 5.5);
    attr = (tm_convolution_attr){ 1, 2, 3, 1, 1, 0, 0, 2 };
    call.in[1] = tm_view_f64(tm_shape_2(1, 1), w + 4);
    call.in[2] = tm_view_absent();
    call.out[0] = tm_view_f64(tm_shape_2(24, 1), y);
    call.op->reference(&call);
    EXPECT_FIRST(y, 1, 1, 2, 2, 3, 3, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 4, 4, 5, 5, 6, 6);
    /* two channels, two samples of one position: the order of the weight is place, then channel */
    attr = (tm_convolution_attr){ 2, 1, 1, 2, 1, 1, 0, 1 };
    call.in[0] = tm_view_f64(tm_shape_2(2, 2), (double[]){ 1, 2, 3, 4 });
    call.in[1] = tm_view_f64(tm_shape_2(1, 8), (double[]){ 9, 9, 9, 9, 9, 9, 1, 10 });
    call.out[0] = tm_view_f64(tm_shape_2(2, 1), y);
    call.op->reference(&call);
    EXPECT_FIRST(y, 21, 43);
}

TEST(group_norms)
{
    double             y[8], sigmoid = 0.7310585786300049; /* of 1 */
    tm_group_norm_attr attr = { .eps = 0, .samples = 2, .groups = 2 };
    tm_call            call = call_of(&tm_op_group_norm, &attr);
    call.in[0] = tm_view_f64(tm_shape_2(4, 2), (double[]){ 1, 10, 3, 10, 5, -1, 5.5, 1 });
    call.in[1] = tm_view_f64(tm_shape_1(2), (double[]){ 1, 2 });
    call.in[2] = tm_view_f64(tm_shape_1(2), (double[]){ 0, 100 });
    call.out[0] = tm_view_f64(tm_shape_2(4, 2), y);
    attr.eps = 1e-300; /* of a variance 0 */
    call.op->reference(&call);
    EXPECT_FIRST(y, -1, 100, 1, 100, -1, 98, 1, 102);
    attr = (tm_group_norm_attr){ .eps = 0, .samples = 1, .groups = 1, .silu = 1 };
    call.in[0] = tm_view_f64(tm_shape_2(2, 2), (double[]){ 3, 3, 7, 7 });
    call.in[1] = tm_view_f64(tm_shape_1(2), (double[]){ 1, -1 });
    call.in[2] = tm_view_f64(tm_shape_1(2), (double[]){ 0, 0 });
    call.out[0] = tm_view_f64(tm_shape_2(2, 2), y);
    call.op->reference(&call);
    EXPECT_FIRST(y, sigmoid - 1, sigmoid, sigmoid, sigmoid - 1);
}

/* Ten values, and the same again. */
static void expect_twice(const double *have, const double *want)
{
    expect(have, want, 10);
    expect(have + 10, want, 10);
}

TEST(rotations)
{
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
TEST(rotations_by_position)
{
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

/* (1 - 3)^2 + (2 - 2.5)^2, and half of that scale back. */
TEST(square_error_and_its_gradient)
{
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

/* Two heads of two with weights of their own: the second two weights belong to heads from `second` on. */
TEST(keys_have_their_own_norm_weights)
{
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

/* A row of zeros has the norm 0, which counts as 1; the row behind it has its own. */
TEST(a_row_of_zeros_has_the_norm_one)
{
    double           y[2], dm[2];
    tm_low_rank_attr attr = { .scale = 1, .rank = 1, .parts = 1, .part = { { 0, 2 } } };
    tm_call          call = call_of(&tm_op_rescale, &attr), wgrad = call_of(&tm_op_rescale_wgrad, &attr);
    call.in[0] = tm_view_f64(tm_shape_2(1, 2), (double[]){ 3, 5 });
    call.in[1] = tm_view_f64(tm_shape_1(2), (double[]){ 7, 8 });
    call.in[2] = tm_view_f64(tm_shape_1(2), (double[]){ 0, 4 });
    call.out[0] = tm_view_f64(tm_shape_2(1, 2), y);
    call.op->reference(&call);
    EXPECT(y, 21, 10);
    wgrad.in[0] = tm_view_f64(tm_shape_2(1, 2), (double[]){ 2, 6 });
    wgrad.in[1] = call.in[0];
    wgrad.in[2] = call.in[2];
    wgrad.out[0] = tm_view_f64(tm_shape_1(2), dm);
    wgrad.op->reference(&wgrad);
    EXPECT(dm, 6, 7.5);
}

/* Two pairs and what is left of the row: D is 0 and 1, -0.2 and 0.3. */
TEST(loss_of_two_pairs)
{
    double             loss[1], record[6], dlosses[8], scalars[TM_SCALAR_COUNT] = { 2 };
    tm_preference_attr attr = { .seq = 8, .kind = TM_PREFERENCE_SIGMOID, .beta = 1 };
    tm_call call = call_of(&tm_op_preference_loss, &attr), grad = call_of(&tm_op_preference_loss_grad, &attr);
    call.in[0] = tm_view_f64(tm_shape_1(8), (double[]){ 1, 2, 0.5, 3, 1, 0.7, 0.2, 9 });
    call.in[1] = tm_view_i32(tm_shape_1(8), (int32_t[]){ -100, 5, 5, -100, 5, 5, 5, -100 });
    call.in[2] = tm_view_i32(tm_shape_1(8), (int32_t[]){ 0, 0, 0, 3, 3, 5, 6, 7 });
    call.in[3] = tm_view_f64(tm_shape_1(8), (double[]){ 7, 1.5, 1, 7, 2, 0.5, 0.5, 7 });
    call.out[0] = tm_view_f64((tm_shape){ .rank = 0 }, loss);
    call.out[1] = tm_view_f64(tm_shape_1(6), record);
    for (int k = 0; k < 4; k++) grad.in[k] = call.in[k];
    grad.in[4] = tm_view_f64(tm_shape_1(TM_SCALAR_COUNT), scalars);
    grad.out[0] = tm_view_f64(tm_shape_1(8), dlosses);
    call.op->reference(&call);
    grad.op->reference(&grad);
    double one = 2 / (1 + exp(-1)), half = 2 / (1 + exp(-0.5)); /* margins -1 and -0.5 */
    EXPECT(loss, log(1 + exp(1)) + log(1 + exp(0.5)));
    EXPECT(record, -0.2, 1.3, 0, -3.2, -1.2, 2);
    EXPECT(dlosses, 0, one, one, 0, -one, half, -half, 0);
    attr.label_smoothing = 0.25;
    call.op->reference(&call);
    EXPECT(loss, 0.75 * (log(1 + exp(1)) + log(1 + exp(0.5))) + 0.25 * (log(1 + exp(-1)) + log(1 + exp(-0.5))));
    grad.op->reference(&grad);
    EXPECT(dlosses, 0, one - 0.5, one - 0.5, 0, 0.5 - one, half - 0.5, 0.5 - half, 0);
    attr.label_smoothing = 0;
    attr.kind = TM_PREFERENCE_HINGE;
    call.op->reference(&call);
    grad.op->reference(&grad);
    EXPECT(loss, 2 + 1.5);
    EXPECT(dlosses, 0, 2, 2, 0, -2, 2, -2, 0);
    attr.kind = TM_PREFERENCE_IPO; /* of the first pair the chosen sequence has two targets */
    call.op->reference(&call);
    grad.op->reference(&grad);
    EXPECT(loss, 1.5 * 1.5 + 1);
    EXPECT(dlosses, 0, 3, 3, 0, -6, 4, -4, 0);
    call.in[3] = tm_view_absent();
    attr.kind = TM_PREFERENCE_SIGMOID;
    call.op->reference(&call);
    EXPECT(loss, log(1 + exp(1.5)) + log(1 + exp(0.5)));
}

/* Two sequences of eight tokens (1 .. 8, 11 .. 18), two ranks: of the first 1, 2 and 7, 8; 3, 4 and 5, 6 of the second.
 */
TEST(chunks_come_in_the_order_of_tokens)
{
    double           y[16], x[16];
    tm_sequence_attr attr = { .samples = 2, .ranks = 2, .chunks = 2 };
    tm_call          call = call_of(&tm_op_sequence_order, &attr);
    call.in[0] = tm_view_f64(tm_shape_2(16, 1), (double[]){ 1, 2, 11, 12, 7, 8, 17, 18, 3, 4, 13, 14, 5, 6, 15, 16 });
    call.out[0] = tm_view_f64(tm_shape_2(16, 1), y);
    call.op->reference(&call);
    EXPECT(y, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 17, 18);
    attr.inverse = 1;
    call.in[0] = call.out[0];
    call.out[0] = tm_view_f64(tm_shape_2(16, 1), x);
    call.op->reference(&call);
    EXPECT(x, 1, 2, 11, 12, 7, 8, 17, 18, 3, 4, 13, 14, 5, 6, 15, 16);
    attr.chunks = 1; /* 1 .. 8, 11 .. 18 in halves */
    call.in[0] = tm_view_f64(tm_shape_2(16, 1), (double[]){ 1, 2, 3, 4, 11, 12, 13, 14, 5, 6, 7, 8, 15, 16, 17, 18 });
    call.out[0] = tm_view_f64(tm_shape_2(16, 1), y);
    attr.inverse = 0;
    call.op->reference(&call);
    EXPECT(y, 1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 14, 15, 16, 17, 18);
}

/* Of three pairs two go to expert 0, one of them is here. */
TEST(balance_of_more_rows_than_are_here)
{
    double          loss[1], ds[2];
    tm_balance_attr attr = { .top_k = 1, .alpha = 0.5 };
    tm_call         call = call_of(&tm_op_balance_loss, &attr);
    call.in[0] = tm_view_f64(tm_shape_2(1, 2), (double[]){ 0.75, 0.25 });
    call.in[1] = (tm_view){ .dtype = TM_I32, .shape = tm_shape_2(3, 1), .data = (int32_t[]){ 0, 1, 0 } };
    call.out[0] = tm_view_f64((tm_shape){ .rank = 0 }, loss);
    call.op->reference(&call);
    EXPECT(loss, 0.5 * (4.0 / 3 * 0.75 + 2.0 / 3 * 0.25)); /* f = 2 x 2/3, 2 x 1/3 */
    tm_call grad = call_of(&tm_op_balance_loss_grad, &attr);
    grad.in[0] = call.in[0];
    grad.in[1] = call.in[1];
    grad.in[2] = tm_view_f64(tm_shape_1(TM_SCALAR_COUNT), (double[TM_SCALAR_COUNT]){ [TM_SCALAR_LOSS_SCALE] = 3 });
    grad.out[0] = tm_view_f64(tm_shape_2(1, 2), ds);
    grad.op->reference(&grad);
    EXPECT(ds, 2, 1);
}

/* Rank 0 has by far the largest logit, which is the target's: exponentials against that of another rank overflow. */
TEST(loss_of_a_vocabulary_in_parts)
{
    double                   loss = 0;
    const tm_vocabulary_attr attr = { .ranks = 2 };
    int32_t                  target = 0;
    tm_call                  call = call_of(&tm_op_vocabulary_loss, &attr);
    call.in[0] = tm_view_f64(tm_shape_2(1, 1), (double[]){ 1 });
    call.in[1] = (tm_view){ .dtype = TM_I32, .shape = tm_shape_1(1), .data = &target };
    call.in[2] = tm_view_f64(tm_shape_2(6, 1), (double[]){ 1000, 2, 1000, 0, 3, 0 });
    call.out[0] = tm_view_f64((tm_shape){ .rank = 0 }, &loss);
    call.op->reference(&call);
    assert_true(fabs(loss - log(2)) < 1e-12);
}
