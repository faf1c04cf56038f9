/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by hand, and what must hold of it for any input. */
#include "support/test.h"
#include "values.h"

/* Two tokens, one head, scores 0 and ln 3 for the second: probabilities 1/4 and 3/4. */
TEST(attention_of_two_tokens)
{
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

/* Values that are all alike within a head come out as they are, from the head that h / (H / J) says. */
TEST(query_heads_read_the_head_of_their_group)
{
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

/* A window of two keys: equal scores, so a query gives the mean of its own value and the one before. */
TEST(attention_sees_its_window)
{
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
TEST(attention_sees_its_document)
{
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

/* Scores after a rotation depend on the distance of two tokens only (Su et al. 2021, eq. 11). */
TEST(rotated_scores_depend_on_distance)
{
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
