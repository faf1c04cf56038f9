/* SPDX-License-Identifier: Apache-2.0 */
/* What test_kernels.c does not see of merging attention: queries that saw no key of one set, or of neither; results in
 * the place of the first part; large statistics. */
#include "support/test.h"
#include "kernel_test.h"

enum { ROWS = 6, HEADS = 2, DIM = 19 };

static const isa_table tables[] = ISA_TABLES(attention_merge);

static void merge(const tm_kernel *kernel, const float *oa, const float *la, const float *ob, const float *lb, float *o,
                  float *lse)
{
    tm_attention_attr attr = { .seq_q = ROWS / 2, .heads = HEADS, .dim_v = DIM };
    tm_call           call = { .attr = &attr, .threads = 2 };
    tm_shape          rows = tm_shape_2(ROWS, HEADS * DIM), statistics = tm_shape_3(2, HEADS, ROWS / 2);
    for (int k = 0; k < TM_MAX_IN; k++) call.in[k].shape.rank = -1;
    for (int k = 0; k < TM_MAX_OUT; k++) call.out[k].shape.rank = -1;
    call.in[0] = (tm_view){ TM_F32, rows, (void *)(uintptr_t)oa, 0 };
    call.in[1] = (tm_view){ TM_F32, statistics, (void *)(uintptr_t)la, 0 };
    call.in[2] = (tm_view){ TM_F32, rows, (void *)(uintptr_t)ob, 0 };
    call.in[3] = (tm_view){ TM_F32, statistics, (void *)(uintptr_t)lb, 0 };
    call.out[0] = (tm_view){ TM_F32, rows, o, 0 };
    call.out[1] = (tm_view){ TM_F32, statistics, lse, 0 };
    assert_null(kernel->refuse(&call));
    kernel->run(&call);
}

static int64_t statistic_of(int64_t row, int64_t head)
{
    return (row / (ROWS / 2) * HEADS + head) * (ROWS / 2) + row % (ROWS / 2);
}

/* Of each row: both parts; the first; the second; neither. */
TEST(parts_without_keys_count_nothing)
{
    enum { N = ROWS * HEADS * DIM, L = ROWS * HEADS };
    for (int t = 0; t < COUNT(tables); t++) {
        if (!isa_available(tables[t].isa)) continue;
        for (int in_place = 0; in_place < 2; in_place++) {
            float oa[N], ob[N], la[L], lb[L], o[N], lse[L];
            for (int i = 0; i < N; i++) oa[i] = (float)tm_random_normal(1, 0, (uint64_t)i);
            for (int i = 0; i < N; i++) ob[i] = (float)tm_random_normal(2, 0, (uint64_t)i);
            for (int64_t r = 0; r < ROWS; r++)
                for (int64_t h = 0; h < HEADS; h++) {
                    la[statistic_of(r, h)] = r % 4 < 2 ? 80.f + (float)r : -INFINITY;
                    lb[statistic_of(r, h)] = r % 4 == 0 || r % 4 == 2 ? 79.5f : -INFINITY;
                    for (int d = 0; d < DIM && r % 4 >= 2; d++) oa[(r * HEADS + h) * DIM + d] = 0;
                    for (int d = 0; d < DIM && r % 4 % 2; d++) ob[(r * HEADS + h) * DIM + d] = 0;
                }
            memcpy(o, oa, sizeof o), memcpy(lse, la, sizeof lse);
            merge(tables[t].kernels, in_place ? o : oa, in_place ? lse : la, ob, lb, o, lse);
            for (int64_t r = 0; r < ROWS; r++)
                for (int64_t h = 0; h < HEADS; h++) {
                    int64_t s = statistic_of(r, h);
                    double  first = la[s], second = lb[s], max = fmax(first, second), have = lse[s];
                    double  a = exp(first - max), b = exp(second - max), wanted = max + log(a + b);
                    for (int64_t i = (r * HEADS + h) * DIM, d = 0; d < DIM; d++, i++) {
                        double want = r % 4 == 3 ? 0 : (a * (double)oa[i] + b * (double)ob[i]) / (a + b);
                        if (!(fabs((double)o[i] - want) <= 1e-6 * (1 + fabs(want))))
                            fail_msg("%s: row %d: %g, wanted %g", tables[t].isa, (int)r, (double)o[i], want);
                    }
                    if (r % 4 == 3)
                        assert_true(have == -HUGE_VAL);
                    else if (!(fabs(have - wanted) <= 1e-5))
                        fail_msg("%s: row %d: lse %g, wanted %g", tables[t].isa, (int)r, have, wanted);
                }
        }
    }
}
