/* SPDX-License-Identifier: Apache-2.0 */
/* relative_attention: its classes of distances are those of transformers; without a bias it is attention. */
#include "op/relative.h"
#include "support/test.h"
#include "values.h"

/* Where the next class begins, by T5Attention._relative_position_bucket of transformers 5.24. */
TEST(classes_begin_where_they_do_in_transformers)
{
    static const struct {
        int64_t buckets, most, begins[16];
    } cases[] = { { 32, 128, { 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91 } }, { 8, 20, { 1, 2, 7 } } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int64_t d = 0, wanted = 0; d < 300; d++) {
            if (d > 0 && cases[i].begins[wanted] == d) wanted++;
            assert_int_equal(tm_relative_bucket(-d, cases[i].buckets, cases[i].most), wanted);
            if (d > 0)
                assert_int_equal(tm_relative_bucket(d, cases[i].buckets, cases[i].most), wanted + cases[i].buckets / 2);
        }
}

/* Also with a bias that is the same for all distances: it moves lse alone. */
TEST(an_even_bias_changes_nothing_but_lse)
{
    for (int k = 0; k < 5; k++) {
        tm_example              example;
        tm_call                 call;
        const tm_relative_attr *attr = (const void *)example.attr;
        assert_true(tm_op_relative_attention.example(k, &example));
        tm_call_make(&call, &tm_op_relative_attention, &example, SEED);
        double *table = call.in[3].data, *lse = call.out[1].data, *o = call.out[0].data;
        int64_t n = tm_shape_elements(call.out[0].shape), rows = tm_shape_elements(call.out[1].shape);
        for (int64_t i = 0; i < tm_shape_elements(call.in[3].shape); i++) table[i] = 0.75;
        call.op->reference(&call);
        tm_attention_attr plain = tm_self_attention(attr->seq, attr->heads, attr->heads, attr->dim, attr->dim);
        tm_call           other = call_of(&tm_op_attention, &plain);
        double           *o2 = malloc((size_t)n * sizeof *o2), *lse2 = malloc((size_t)rows * sizeof *lse2);
        plain.scale = attr->scale;
        plain.causal = 0;
        memcpy(other.in, call.in, 3 * sizeof call.in[0]);
        other.out[0] = tm_view_f64(call.out[0].shape, o2);
        other.out[1] = tm_view_f64(call.out[1].shape, lse2);
        other.op->reference(&other);
        for (int64_t i = 0; i < n; i++) assert_true(fabs(o[i] - o2[i]) < 1e-12);
        for (int64_t i = 0; i < rows; i++) assert_true(fabs(lse[i] - lse2[i] - 0.75) < 1e-12);
        free(o2);
        free(lse2);
        tm_call_free(&call);
    }
}

/* Two tokens, no score: the bias of the next token is ln 3, of the one before -ln 3, of its own 0. */
TEST(bias_is_of_key_less_query)
{
    double           o[2], lse[2], zero[2] = { 0, 0 }, table[8] = { 0, -log(3.0), 9, 9, 9, log(3.0), 9, 9 };
    tm_relative_attr attr = { .seq = 2, .heads = 1, .dim = 1, .max_distance = 20, .scale = 1 };
    tm_call          call = call_of(&tm_op_relative_attention, &attr);
    call.in[0] = call.in[1] = tm_view_f64(tm_shape_2(2, 1), zero);
    call.in[2] = tm_view_f64(tm_shape_2(2, 1), (double[]){ 10, 20 });
    call.in[3] = tm_view_f64(tm_shape_2(8, 1), table);
    call.out[0] = tm_view_f64(tm_shape_2(2, 1), o);
    call.out[1] = tm_view_f64(tm_shape_3(1, 1, 2), lse);
    call.op->reference(&call);
    EXPECT(o, 17.5, 17.5);
    EXPECT(lse, log(4.0), log(4.0 / 3));
}
