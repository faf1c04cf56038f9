/* SPDX-License-Identifier: Apache-2.0 */
/* A batch in parts of whole blocks of rows gives the bits of the whole, in every kernel that sums over rows; rows of an
 * expert give those of a product of their own. (Values: test_kernels.c. Matrix products alone: test_gemm.c.) */
#include "support/test.h"
#include "kernel_test.h"

static const isa_table norm[] = ISA_TABLES(norm), reduce[] = ISA_TABLES(reduce), embedding[] = ISA_TABLES(embedding),
                       grouped[] = ISA_TABLES(grouped), linear[] = ISA_TABLES(linear);
static const isa_table loss[] = { { "base", tm_cpu_loss_base },
#if defined(__x86_64__)
                                  { "avx2", tm_cpu_loss_avx2 },
                                  { "avx512", tm_cpu_loss_avx512 },
                                  { "avx512_bf16", tm_cpu_loss_avx512_bf16 }, /* of bfloat16 alone */
                                  { "amx", tm_cpu_loss_amx }
#endif
};

static job norm_job(bool centred, int64_t c, tm_dtype format)
{
    static const tm_norm_attr attr = { .eps = 1e-5 };
    const int64_t             n = 300;
    job                       j = job_new(centred ? TM_OP_layernorm_grad : TM_OP_rmsnorm_grad, &attr);
    int                       k = 3;
    job_in(&j, 0, format, tm_shape_2(n, c), 0., 1.), job_in(&j, 1, format, tm_shape_2(n, c), .5, 2.);
    job_in(&j, 2, format, tm_shape_1(c), 1., .3);
    if (centred) job_in(&j, k++, TM_F32, tm_shape_1(n), .5, .1);
    job_in(&j, k, TM_F32, tm_shape_1(n), .5, .02);
    job_in(&j, k + 1, format, tm_shape_2(n, c), 0., 3.);
    job_out(&j, 0, format, tm_shape_2(n, c));
    job_out(&j, 1, TM_F32, tm_shape_1(c));
    if (centred) job_out(&j, 2, TM_F32, tm_shape_1(c));
    return j;
}

TEST(gradients_of_norms)
{
    for (int64_t at = 64; at < 256; at += 128) {
        job j = norm_job(false, 768, TM_F32);
        job_check_split(&j, norm, COUNT(norm), at, 0x1b, 1, 2);
        j = norm_job(true, 17, TM_BF16);
        job_check_split(&j, norm, COUNT(norm), at, 0x3b, 1, 6);
    }
}

TEST(gradients_of_biases)
{
    for (int64_t at = 64; at < 256; at += 128) {
        job j = job_new(TM_OP_bias_grad, NULL);
        j.call.accumulate = at == 64;
        job_in(&j, 0, TM_F32, tm_shape_2(300, 769), 0., 1.);
        job_out(&j, 0, TM_F32, tm_shape_1(769));
        job_check_split(&j, reduce, COUNT(reduce), at, 1, 0, 1);
    }
}

/* Few tokens, so that rows of the table have many gradients. */
TEST(gradients_of_tables)
{
    static const tm_embedding_attr attr = { .seq = 50 };
    for (int64_t at = 50; at < 300; at += 100) {
        job j = job_new(TM_OP_embedding_grad, &attr);
        job_in(&j, 0, TM_F32, tm_shape_2(300, 200), 0., 1.);
        job_in(&j, 1, TM_I32, tm_shape_1(300), 0., 2.);
        job_out(&j, 0, TM_F32, tm_shape_2(29, 200));
        job_out(&j, 1, TM_F32, tm_shape_2(attr.seq + 2, 200));
        job_check_split(&j, embedding, COUNT(embedding), at, 3, 0, 3);
    }
}

enum { FLOAT32 = 3 }; /* so many tables take it */

/* --- losses ------------------------------------------------------------------------------------------------------- */

static job loss_job(tm_dtype format, int64_t rows, int64_t classes, const tm_loss_attr *attr)
{
    job j = job_new(TM_OP_linear_cross_entropy_grad, attr);
    j.call.accumulate = 1 | 4;
    job_in(&j, 0, format, tm_shape_2(rows, 24), 0., .4), job_in(&j, 1, format, tm_shape_2(classes, 24), 0., 1.);
    job_in(&j, 2, TM_I32, tm_shape_1(rows), 0., (double)classes);
    for (int64_t i = 3; i < rows; i += 5) tm_value_set(j.in[2].initial, TM_I32, i, TM_IGNORED_TARGET);
    job_in(&j, 3, TM_F64, tm_shape_1(TM_SCALAR_COUNT), 0., 0.);
    tm_value_set(j.in[3].initial, TM_F64, TM_SCALAR_LOSS_SCALE, 1. / (double)rows);
    job_out(&j, 0, TM_F64, (tm_shape){ .rank = 0 });
    job_out(&j, 1, TM_F32, tm_shape_2(rows, 24)), job_out(&j, 2, TM_F32, tm_shape_2(classes, 24));
    job_out(&j, 3, TM_F32, tm_shape_2(attr->chunk, classes)); /* scratch */
    return j;
}

/* 1536 rows in chunks of any size, and as micro-batches of 512 and 1024 rows; more than 1024 classes are two slices. */
static void check_losses(tm_dtype format, int64_t classes)
{
    static const int64_t chunks[] = { 1536, 512, 1024 };
    result_bits          whole[COUNT(loss)] = { { { NULL } } };
    for (int c = 0; c < COUNT(chunks); c++) {
        tm_loss_attr attr = { .chunk = chunks[c] };
        job          j = loss_job(format, 1536, classes, &attr);
        for (int t = 0; t < COUNT(loss); t++) {
            if (!isa_available(loss[t].isa) || (format == TM_F32 && t >= FLOAT32)) continue;
            job_run(&j, &loss[t], 2);
            if (c == 0) whole[t] = bits_save(&j);
            bits_compare(&j, &whole[t], loss[t].isa, "in chunks");
        }
        job_free(&j);
    }
    for (int t = 0; t < COUNT(loss); t++) bits_free(&whole[t]);
}

TEST(losses_in_chunks)
{
    check_losses(TM_F32, 37);
    check_losses(TM_BF16, 37);
    check_losses(TM_BF16, 1100);
}

TEST(losses_of_micro_batches)
{
    static const tm_loss_attr attr = { .chunk = 512 };
    for (int k = 0; k < 3; k++) {
        job j = loss_job(k ? TM_BF16 : TM_F32, 1536, k == 2 ? 1100 : 37, &attr);
        job_check_split(&j, loss, k ? COUNT(loss) : FLOAT32, 512, 5, 2, 5);
    }
}

/* --- experts ------------------------------------------------------------------------------------------------------ */

/* The same product, grouped, and of the rows of one expert. kind: 0 forward, 1 of the input, 2 of the weight. */
static void compare(int kind, tm_dtype format, int64_t rows, int64_t inputs, int64_t outputs, int64_t experts,
                    const int32_t *offsets)
{
    static const tm_op_id ops[][2] = { { TM_OP_grouped_linear, TM_OP_linear },
                                       { TM_OP_grouped_linear_dgrad, TM_OP_linear_dgrad },
                                       { TM_OP_grouped_linear_wgrad, TM_OP_linear_wgrad } };
    int64_t               from = kind ? outputs : inputs, to = kind ? inputs : outputs;
    int64_t               size = (int64_t)tm_dtype_bytes(format), matrix = outputs * inputs;
    tm_shape              of_all = tm_shape_3(experts, outputs, inputs), of_one = tm_shape_2(outputs, inputs);
    job                   all = job_new(ops[kind][0], NULL);
    all.call.op = tm_op_get(ops[kind][0]);
    job_in(&all, 0, format, tm_shape_2(rows, from), 0, 1);
    job_in(&all, 1, format, kind == 2 ? tm_shape_2(rows, inputs) : of_all, 0, 1);
    job_in(&all, 2, TM_I32, tm_shape_1(experts + 1), 0, 1);
    memcpy(all.in[2].initial, offsets, (size_t)(experts + 1) * sizeof *offsets);
    job_out(&all, 0, format, kind == 2 ? of_all : tm_shape_2(rows, to));
    for (int t = 0; t < COUNT(grouped); t++) {
        if (!isa_available(grouped[t].isa)) continue;
        job_run(&all, &grouped[t], 3);
        for (int64_t e = 0; e < experts; e++) {
            int64_t n = offsets[e + 1] - offsets[e];
            if (n == 0) continue;
            job one = job_new(ops[kind][1], NULL);
            job_in(&one, 0, format, tm_shape_2(n, from), 0, 1);
            job_in(&one, 1, format, kind == 2 ? tm_shape_2(n, inputs) : of_one, 0, 1);
            job_out(&one, 0, format, kind == 2 ? of_one : tm_shape_2(n, to));
            memcpy(one.in[0].initial, all.in[0].initial + offsets[e] * from * size, one.in[0].bytes);
            int64_t at = kind == 2 ? offsets[e] * inputs : e * matrix;
            memcpy(one.in[1].initial, all.in[1].initial + at * size, one.in[1].bytes);
            job_run(&one, &linear[t], 1);
            int64_t result = kind == 2 ? e * matrix : offsets[e] * to;
            if (memcmp((char *)tensor_data(&all.out[0]) + result * size, tensor_data(&one.out[0]), one.out[0].bytes))
                fail_msg("%s, product %d, expert %d: other bits than linear", grouped[t].isa, kind, (int)e);
            job_free(&one);
        }
    }
    job_free(&all);
}

/* Uneven, none at all, and so large that all threads work on each: from 200 million FLOPs on. */
TEST(rows_of_experts)
{
    static const int32_t uneven[] = { 0, 5, 5, 700, 1300 }, large[] = { 0, 130, 400 };
    for (int kind = 0; kind < 3; kind++) {
        compare(kind, TM_F32, 1300, 40, 24, 4, uneven);
        compare(kind, TM_BF16, 1300, 40, 24, 4, uneven);
        compare(kind, TM_F32, 400, 700, 730, 2, large);
    }
}
