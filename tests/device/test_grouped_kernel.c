/* SPDX-License-Identifier: Apache-2.0 */
/* Grouped products have the bits of `linear` on the rows of each expert, whether experts are large or small and however
 * the rows fall; test_kernels.c judges their values. */
#include "support/test.h"
#include "kernel_test.h"

static const isa_table grouped[] = ISA_TABLES(grouped);
static const isa_table linear[] = ISA_TABLES(linear);

enum { X, DX, DW, KINDS };

/* The same product, grouped, and of the rows of one expert. */
static void compare(int kind, tm_dtype format, int64_t rows, int64_t inputs, int64_t outputs, int64_t experts,
                    const int32_t *offsets)
{
    static const tm_op_id ops[KINDS][2] = { { TM_OP_grouped_linear, TM_OP_linear },
                                            { TM_OP_grouped_linear_dgrad, TM_OP_linear_dgrad },
                                            { TM_OP_grouped_linear_wgrad, TM_OP_linear_wgrad } };
    int64_t               from = kind == X ? inputs : outputs, to = kind == X ? outputs : inputs;
    job                   all = job_new(ops[kind][0], NULL);
    all.call.op = tm_op_get(ops[kind][0]);
    job_in(&all, 0, format, tm_shape_2(rows, from), 0, 1);
    job_in(&all, 1, format, kind == DW ? tm_shape_2(rows, inputs) : tm_shape_3(experts, outputs, inputs), 0, 1);
    job_in(&all, 2, TM_I32, tm_shape_1(experts + 1), 0, 1);
    memcpy(all.in[2].initial, offsets, (size_t)(experts + 1) * sizeof *offsets);
    job_out(&all, 0, format, kind == DW ? tm_shape_3(experts, outputs, inputs) : tm_shape_2(rows, to));
    for (int t = 0; t < COUNT(grouped); t++) {
        if (!isa_available(grouped[t].isa)) continue;
        job_run(&all, &grouped[t], 3);
        for (int64_t e = 0; e < experts; e++) {
            int64_t n = offsets[e + 1] - offsets[e], size = (int64_t)tm_dtype_bytes(format);
            if (n == 0) continue;
            job one = job_new(ops[kind][1], NULL);
            job_in(&one, 0, format, tm_shape_2(n, from), 0, 1);
            job_in(&one, 1, format, kind == DW ? tm_shape_2(n, inputs) : tm_shape_2(outputs, inputs), 0, 1);
            job_out(&one, 0, format, kind == DW ? tm_shape_2(outputs, inputs) : tm_shape_2(n, to));
            memcpy(one.in[0].initial, all.in[0].initial + offsets[e] * from * size, one.in[0].bytes);
            int64_t at = kind == DW ? offsets[e] * inputs : e * outputs * inputs;
            memcpy(one.in[1].initial, all.in[1].initial + at * size, one.in[1].bytes);
            job_run(&one, &linear[t], 1);
            int64_t result = kind == DW ? e * outputs * inputs : offsets[e] * to;
            if (memcmp((char *)tensor_data(&all.out[0]) + result * size, tensor_data(&one.out[0]), one.out[0].bytes))
                fail_msg("%s, product %d, expert %d: other bits than linear", grouped[t].isa, kind, (int)e);
            job_free(&one);
        }
    }
    job_free(&all);
}

TEST(bits_are_those_of_linear)
{
    static const int32_t uneven[] = { 0, 5, 5, 700, 1300 }, all_to_one[] = { 0, 0, 0, 1300, 1300 };
    for (int kind = 0; kind < KINDS; kind++) {
        compare(kind, TM_F32, 1300, 40, 24, 4, uneven);
        compare(kind, TM_F32, 1300, 40, 24, 4, all_to_one);
        compare(kind, TM_BF16, 1300, 40, 24, 4, uneven);
    }
}

/* Experts of 200 million FLOPs and more: all threads on each. */
TEST(large_experts_too)
{
    static const int32_t offsets[] = { 0, 130, 400 };
    for (int kind = 0; kind < KINDS; kind++) compare(kind, TM_F32, 400, 700, 730, 2, offsets);
}

TEST(one_expert_is_linear)
{
    for (int kind = 0; kind < KINDS; kind++) compare(kind, TM_F32, 700, 600, 33, 1, (const int32_t[]){ 0, 700 });
}
