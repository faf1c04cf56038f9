/* SPDX-License-Identifier: Apache-2.0 */
/* The sum of gradients into the embedding's tables: additions only, so that a loop in float32 in the promised order
 * gives the kernel's bits. */
#include "support/test.h"
#include "kernel_test.h"

static const isa_table tables[] = ISA_TABLES(embedding);

static double rounded(float value, tm_dtype dtype)
{
    return dtype == TM_BF16 ? (double)tm_bf16_value(tm_bf16_round(value)) : (double)value;
}

/* One table: rows r with place(r) = row are added in ascending order to the old value; rows never met keep it (0
 * without accumulation). */
static void table_judge(const job *j, int k, const char *isa)
{
    const tm_embedding_attr *attr = j->call.attr;
    int64_t                  n = j->in[0].shape.n[0], c = j->in[0].shape.n[1];
    if (!j->out[k].present) return;
    for (int64_t row = 0; row < j->out[k].shape.n[0]; row++)
        for (int64_t i = 0; i < c; i++) {
            float sum = (float)old_at(j, k, row * c + i);
            for (int64_t r = 0; r < n; r++)
                if ((k ? r % attr->seq : (int64_t)in_at(j, 1, r)) == row) sum += (float)in_at(j, 0, r * c + i);
            if (out_at(j, k, row * c + i) != rounded(sum, j->out[k].dtype))
                fail_msg("%s: table %d, row %lld, column %lld: %.9g, wanted %.9g", isa, k, (long long)row, (long long)i,
                         out_at(j, k, row * c + i), (double)sum);
        }
}
static void grad_judge(const job *j, const char *isa)
{
    table_judge(j, 0, isa);
    table_judge(j, 1, isa);
}

enum { TABLE = 1, POSITIONS = 2, ACCUMULATE = 4, ROUNDED_DY = 8, ROUNDED_TABLE = 16, FEW_TOKENS = 32 };

static job grad_job(int64_t n, int64_t c, const tm_embedding_attr *attr, int with)
{
    tm_dtype stored = with & ROUNDED_TABLE ? TM_BF16 : TM_F32;
    job      j = job_new(TM_OP_embedding_grad, attr);
    if (with & ACCUMULATE) j.call.accumulate = 3;
    job_in(&j, 0, with & ROUNDED_DY ? TM_BF16 : TM_F32, tm_shape_2(n, c), 0., 1.);
    job_in(&j, 1, TM_I32, tm_shape_1(n), 0., with & FEW_TOKENS ? 2. : 29.);
    if (with & TABLE) job_out(&j, 0, stored, tm_shape_2(29, c));
    if (with & POSITIONS) job_out(&j, 1, stored, tm_shape_2(attr->seq + 2, c));
    return j;
}
TEST(test_embedding_grad)
{
    static const int     with[] = { TABLE | POSITIONS,
                                    TABLE | FEW_TOKENS | ACCUMULATE,
                                    POSITIONS | ACCUMULATE,
                                    TABLE | POSITIONS | ROUNDED_DY | ACCUMULATE,
                                    TABLE | POSITIONS | ROUNDED_DY | ROUNDED_TABLE | FEW_TOKENS,
                                    TABLE | POSITIONS | ROUNDED_DY | ROUNDED_TABLE | ACCUMULATE };
    static const int64_t rows[] = { 1, 65, 200 };
    for (int a = 0; a < COUNT(rows); a++)
        for (int w = 0; w < COUNT(with); w++) {
            tm_embedding_attr attr = { .seq = rows[a] % 5 ? rows[a] : rows[a] / 5 };
            job               j = grad_job(rows[a], 65, &attr, with[w]);
            job_check(&j, tables, COUNT(tables), grad_judge);
        }
}
TEST(test_unused_rows_are_zero)
{
    tm_embedding_attr attr = { .seq = 20 };
    job               j = grad_job(40, 17, &attr, TABLE | POSITIONS | FEW_TOKENS);
    for (int t = 0; t < COUNT(tables); t++) {
        if (!isa_available(tables[t].isa)) continue;
        job_run(&j, &tables[t], 2);
        for (int64_t i = 2 * 17; i < 29 * 17; i++) assert_true(out_at(&j, 0, i) == 0.);
        for (int64_t i = 20 * 17; i < 22 * 17; i++) assert_true(out_at(&j, 1, i) == 0.);
        assert_true(out_at(&j, 0, 0) != 0. && out_at(&j, 1, 0) != 0.);
    }
    job_free(&j);
}
TEST(test_split_keeps_bits)
{
    tm_embedding_attr attr = { .seq = 50 };
    for (int64_t at = 50; at < 300; at += 50) {
        job j = grad_job(300, 200, &attr, TABLE | POSITIONS | FEW_TOKENS);
        job_check_split(&j, tables, COUNT(tables), at, 3, 0, 3);
    }
}
static void exact_judge(const job *j, const char *isa)
{
    double got = 0., wanted = 0.;
    for (int64_t i = 0; i < tm_shape_elements(j->in[0].shape); i++) wanted += in_at(j, 0, i);
    for (int64_t i = 0; i < tm_shape_elements(j->out[0].shape); i++) got += out_at(j, 0, i);
    if (got != wanted) fail_msg("%s: the table sums to %.17g, its gradients to %.17g", isa, got, wanted);
}
TEST(test_nothing_is_lost)
{
    tm_embedding_attr attr = { .seq = 500 };
    job               j = grad_job(500, 65, &attr, TABLE);
    for (int64_t i = 0; i < 500 * 65; i++)
        tm_value_set(j.in[0].initial, TM_F32, i, (double)tm_random_below(5, 1, (uint64_t)i, 17) - 8.);
    job_check(&j, tables, COUNT(tables), exact_judge);
}
