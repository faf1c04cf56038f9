/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers that the examples of the ops do not have: rows of zeros, squares beyond float32, infinities and no numbers,
 * logits far from the others, parts of attention without keys. */
#include "support/test.h"
#include "kernel_test.h"
#include "op/compare.h"

/* --- norms and sums ----------------------------------------------------------------------------------------------- */

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

TEST(rows_of_zeros)
{
    static const isa_table        tables[] = ISA_TABLES(rescale);
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
        job_check(&j, tables, COUNT(tables), zeros_judge);
    }
}

static const isa_table reduce[] = ISA_TABLES(reduce);

/* Squares that neither fit into float32 nor are normal there. */
TEST(squares_beyond_float32)
{
    for (int e = -100; e <= 100; e += 200) {
        job j = job_new(TM_OP_square_sum, NULL);
        job_in(&j, 0, TM_F32, tm_shape_1(50), 0., 1.), job_out(&j, 0, TM_F64, (tm_shape){ .rank = 0 });
        for (int64_t i = 0; i < 50; i++) tm_value_set(j.in[0].initial, TM_F32, i, ldexp((double)(i % 5 - 2), e));
        for (int t = 0; t < COUNT(reduce); t++) {
            if (!isa_available(reduce[t].isa)) continue;
            job_run(&j, &reduce[t], 1);
            assert_true(out_at(&j, 0, 0) == ldexp(100., 2 * e));
        }
        job_free(&j);
    }
}

/* Sum of squares, largest norm: norm, coefficient. */
TEST(norms_that_are_not_clipped)
{
    static const double cases[][4] = {
        { 16., 0., 4., 1. }, { 16., -1., 4., 1. }, { 0., 1., 0., 1. }, { (double)NAN, 1., (double)NAN, (double)NAN }
    };
    for (int t = 0; t < COUNT(reduce); t++)
        for (int k = 0; k < COUNT(cases) && isa_available(reduce[t].isa); k++) {
            job j = job_new(TM_OP_clip, NULL);
            job_in(&j, 0, TM_F64, (tm_shape){ .rank = 0 }, 0., 1.);
            job_in(&j, 1, TM_F64, tm_shape_1(TM_SCALAR_COUNT), 0., 1.);
            job_out(&j, 0, TM_F64, tm_shape_1(2));
            tm_value_set(j.in[0].initial, TM_F64, 0, cases[k][0]);
            tm_value_set(j.in[1].initial, TM_F64, TM_SCALAR_MAX_NORM, cases[k][1]);
            job_run(&j, &reduce[t], 1);
            for (int i = 0; i < 2; i++)
                if (!(out_at(&j, 0, i) == cases[k][2 + i] || (isnan(out_at(&j, 0, i)) && isnan(cases[k][2 + i]))))
                    fail_msg("%s, case %d: %g", reduce[t].isa, k, out_at(&j, 0, i));
            job_free(&j);
        }
}

TEST(no_number_stays_none)
{
    static const isa_table tables[] = ISA_TABLES(pointwise);
    static const tm_op_id  ops[] = { TM_OP_gelu, TM_OP_relu, TM_OP_relu_grad, TM_OP_gelu_grad, TM_OP_add };
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

/* --- a tensor beside the one that it should be -------------------------------------------------------------------- */

/* What is infinite, no number or zero, as the reference counts it. */
TEST(what_differs_is_counted)
{
    static const isa_table tables[] = ISA_TABLES(compare);
    static const double    a[] = { 0, 0, 1, INFINITY, -INFINITY, NAN, 2, 0x1p-60, -0x1p-48, 0x1p15, -0x1p20, 3 };
    static const double    b[] = { 0, 5, 0, 1, INFINITY, -2, NAN, 0, -0x1p-48, 0x1p15, -0x1p20, 4 };
    tm_compare_attr        attr = { .row = 0, .rows = 1 };
    double                 wanted[TM_COMPARED] = { 0 };
    tm_call                reference = { .op = &tm_op_compare, .attr = &attr };
    reference.in[0] = (tm_view){ .dtype = TM_F64, .shape = tm_shape_1(12), .data = (void *)(uintptr_t)a };
    reference.in[1] = (tm_view){ .dtype = TM_F64, .shape = tm_shape_1(12), .data = (void *)(uintptr_t)b };
    reference.out[0] = (tm_view){ .dtype = TM_F64, .shape = tm_shape_2(1, TM_COMPARED), .data = wanted };
    tm_op_compare.reference(&reference);
    for (int k = 0; k < 2; k++) {
        job j = job_new(TM_OP_compare, &attr);
        job_in(&j, 0, k ? TM_BF16 : TM_F32, tm_shape_1(12), 0., 1.);
        job_in(&j, 1, k ? TM_F32 : TM_BF16, tm_shape_1(12), 0., 1.);
        job_out(&j, 0, TM_F64, tm_shape_2(1, TM_COMPARED));
        for (int64_t i = 0; i < 12; i++) {
            tm_value_set(j.in[0].initial, j.in[0].dtype, i, a[i]);
            tm_value_set(j.in[1].initial, j.in[1].dtype, i, b[i]);
        }
        for (int t = 0; t < COUNT(tables); t++) {
            if (!isa_available(tables[t].isa)) continue;
            job_run(&j, &tables[t], 1);
            for (int i = 0; i < TM_COMPARED; i++)
                if (out_at(&j, 0, i) != wanted[i])
                    fail_msg("%s: %d is %g, not %g", tables[t].isa, i, out_at(&j, 0, i), wanted[i]);
        }
        job_free(&j);
    }
}

/* --- losses ------------------------------------------------------------------------------------------------------- */

/* A logit far above the others: no loss, no gradient. Far below: the loss is the distance. Ignored rows: nothing. What
 * is no number stays one. */
TEST(logits_far_from_the_others)
{
    static const isa_table    tables[] = ISA_TABLES(loss);
    static const tm_loss_attr attr = { .chunk = 3 };
    job                       j = job_new(TM_OP_linear_cross_entropy_grad, &attr);
    job_in(&j, 0, TM_F32, tm_shape_2(3, 1), 0., 1.), job_in(&j, 1, TM_F32, tm_shape_2(20, 1), 0., 0.);
    job_in(&j, 2, TM_I32, tm_shape_1(3), 0., 1.), job_in(&j, 3, TM_F64, tm_shape_1(TM_SCALAR_COUNT), 0., 0.);
    job_out(&j, 0, TM_F64, (tm_shape){ .rank = 0 }), job_out(&j, 1, TM_F32, tm_shape_2(3, 1));
    job_out(&j, 2, TM_F32, tm_shape_2(20, 1)), job_out(&j, 3, TM_F32, tm_shape_2(3, 20));
    tm_value_set(j.in[3].initial, TM_F64, TM_SCALAR_LOSS_SCALE, 1);
    for (int t = 0; t < 4 * COUNT(tables); t++) { /* the outlier first, in the middle, beyond the last full sixteen */
        int  peak = (int[]){ 0, 5, 19, 0 }[t % 4];
        bool none = t % 4 == 3;
        if (!isa_available(tables[t / 4].isa)) continue;
        for (int v = 0; v < 20; v++) tm_value_set(j.in[1].initial, TM_F32, v, v == peak);
        for (int r = 0; r < 3; r++) {
            tm_value_set(j.in[0].initial, TM_F32, r, none && r == 0 ? (double)NAN : r == 1 ? -1000 : 1000);
            tm_value_set(j.in[2].initial, TM_I32, r, r == 2 ? TM_IGNORED_TARGET : peak);
        }
        job_run(&j, &tables[t / 4], 1);
        double of = out_at(&j, 0, 0), dx[] = { out_at(&j, 1, 0), out_at(&j, 1, 1), out_at(&j, 1, 2) };
        if (none)
            assert_true(isnan(of) && isnan(dx[0]));
        else /* row 1: 19 logits of 0 beside -1000 */
            assert_true(fabs(of - (1000 + log(19))) <= 1e-6 && fabs(dx[0]) <= 1e-30 && fabs(dx[1] + 1) <= 1e-6);
        assert_true(dx[2] == 0);
    }
    job_free(&j);
}

enum { CLASSES = 19, FIRST = 30, TARGETS = 6, PARTS = 3 * 2 };
static const int32_t targets[TARGETS] = { FIRST - 1,         FIRST,          FIRST + CLASSES - 1, FIRST + CLASSES,
                                          TM_IGNORED_TARGET, FIRST + CLASSES };

static job vocabulary_job(tm_op_id op)
{
    static const tm_vocabulary_attr attr = { .first = FIRST, .rank = 1, .ranks = 2 };
    bool                            back = op == TM_OP_vocabulary_loss_grad;
    job                             j = job_new(op, &attr);
    job_in(&j, 0, TM_F32, tm_shape_2(TARGETS, CLASSES), 0., 1.), job_in(&j, 1, TM_I32, tm_shape_1(TARGETS), 0., 1.);
    memcpy(j.in[1].initial, targets, sizeof targets);
    job_out(&j, 0, TM_F32, tm_shape_2(TARGETS, CLASSES));
    if (!back) job_out(&j, 1, TM_F32, tm_shape_2(3, TARGETS));
    if (back) job_in(&j, 2, TM_F32, tm_shape_2(PARTS, TARGETS), 1., 0.); /* of the other rank: most, sum, hit are 1 */
    if (back) job_in(&j, 4, TM_F32, tm_shape_1(TARGETS), .5, .1);
    return j;
}

/* A rank has 19 of the classes: targets at both ends of them, one before and one behind, and of no rank at all. */
TEST(targets_at_the_ends_of_a_part)
{
    static const isa_table tables[] = ISA_TABLES(cross_entropy);
    for (int t = 0; t < COUNT(tables); t++) {
        if (!isa_available(tables[t].isa)) continue;
        job first = vocabulary_job(TM_OP_vocabulary_parts), back = vocabulary_job(TM_OP_vocabulary_loss_grad);
        job_run(&first, &tables[t], 1);
        memcpy(back.in[0].initial, tensor_data(&first.out[0]), back.in[0].bytes);
        memcpy(back.in[2].initial + back.in[2].bytes / 2, tensor_data(&first.out[1]), back.in[2].bytes / 2);
        job_run(&back, &tables[t], 1);
        for (int r = 0; r < TARGETS; r++) {
            double most = -9, sum = 0;
            int    here = targets[r] - FIRST;
            bool   counts = here >= 0 && here < CLASSES;
            for (int c = 0; c < CLASSES; c++) most = fmax(most, in_at(&first, 0, r * CLASSES + c));
            for (int c = 0; c < CLASSES; c++) sum += exp(in_at(&first, 0, r * CLASSES + c) - most);
            assert_true(out_at(&first, 1, r) == most && fabs(out_at(&first, 1, TARGETS + r) / sum - 1) < 1e-5);
            assert_true(out_at(&first, 1, 2 * TARGETS + r) == (counts ? in_at(&first, 0, r * CLASSES + here) : 0));
            double top = fmax(most, 1), all = exp(1 - top) + sum * exp(most - top);
            for (int c = 0; c < CLASSES; c++) {
                double share = exp(in_at(&first, 0, r * CLASSES + c) - top) / all;
                double right = in_at(&back, 4, r) * (share - (counts && c == here));
                if (targets[r] == TM_IGNORED_TARGET) right = 0;
                if (fabs(out_at(&back, 0, r * CLASSES + c) - right) > 1e-5) fail_msg("row %d, class %d", r, c);
            }
        }
        job_free(&first), job_free(&back);
    }
}

/* --- attention merged --------------------------------------------------------------------------------------------- */

/* Of each row: both parts; the first; the second; neither. Also in the place of the first part. */
TEST(parts_without_keys_count_nothing)
{
    enum { ROWS = 6, HEADS = 2, DIM = 19, SEQ = ROWS / 2 };
    static const isa_table         tables[] = ISA_TABLES(attention_merge);
    static const tm_attention_attr attr = { .seq_q = SEQ, .heads = HEADS, .dim_v = DIM };
    for (int t = 0; t < 2 * COUNT(tables); t++) {
        if (!isa_available(tables[t / 2].isa)) continue;
        job j = job_new(TM_OP_merge_attention, &attr);
        for (int k = 0; k < 4; k++)
            job_in(&j, k, TM_F32, k % 2 ? tm_shape_3(2, HEADS, SEQ) : tm_shape_2(ROWS, HEADS * DIM), 0., 1.);
        job_out(&j, 0, TM_F32, tm_shape_2(ROWS, HEADS * DIM)), job_out(&j, 1, TM_F32, tm_shape_3(2, HEADS, SEQ));
        if (t % 2) j.alias[0] = 0, j.alias[1] = 1;
        for (int64_t r = 0; r < ROWS; r++)
            for (int64_t h = 0; h < HEADS; h++) {
                int64_t s = (r / SEQ * HEADS + h) * SEQ + r % SEQ, at = (r * HEADS + h) * DIM;
                bool    has[] = { r % 4 < 2, r % 2 == 0 };
                for (int part = 0; part < 2; part++) {
                    double lse = part ? 79.5 : 80. + (double)r;
                    tm_value_set(j.in[2 * part + 1].initial, TM_F32, s, has[part] ? lse : -HUGE_VAL);
                    for (int d = 0; d < DIM && !has[part]; d++) tm_value_set(j.in[2 * part].initial, TM_F32, at + d, 0);
                }
            }
        job_run(&j, &tables[t / 2], 2);
        for (int64_t i = 0; i < (int64_t)ROWS * HEADS * DIM; i++) {
            int64_t r = i / (HEADS * DIM), h = i / DIM % HEADS, s = (r / SEQ * HEADS + h) * SEQ + r % SEQ;
            double  first = in_at(&j, 1, s), second = in_at(&j, 3, s), max = fmax(first, second);
            double  a = exp(first - max), b = exp(second - max);
            bool    none = r % 4 == 3;
            double  want = none ? 0 : (a * in_at(&j, 0, i) + b * in_at(&j, 2, i)) / (a + b);
            if (!(fabs(out_at(&j, 0, i) - want) <= 1e-6 * (1 + fabs(want)))) fail_msg("row %d", (int)r);
            if (none ? out_at(&j, 1, s) != -HUGE_VAL : !(fabs(out_at(&j, 1, s) - (max + log(a + b))) <= 1e-5))
                fail_msg("row %d: the statistic", (int)r);
        }
        job_free(&j);
    }
}
