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

TEST(a_future_token_changes_no_past_output)
{
    for (int64_t token = 0; token < 9; token++) assert_int_equal(first_changed(3, token), token);
    for (int64_t token = 0; token < 65; token += 16) assert_int_equal(first_changed(5, token), token);
    for (int64_t token = 0; token < 7; token++) assert_int_equal(first_changed(2, token), 0); /* not causal */
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

/* The statistic of sequence b, head h and query i is element (b, h, i). Keys are 1, the first query of a head is what
 * tells it: lse of query i is its number and ln of the keys that it sees. */
TEST(statistics_stand_by_head)
{
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

/* Sequences are rows of their own: two of them give what each gives alone, statistics included. */
TEST(sequences_do_not_see_each_other)
{
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
TEST(softmax_is_safe)
{
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
