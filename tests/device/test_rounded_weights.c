/* SPDX-License-Identifier: Apache-2.0 */
/* A float32 weight that counts as rounded (tm_call.rounded) gives the bits of its bfloat16 copy, in every kernel that
 * says it does that (tm_kernel.rounds); the others refuse. So does a weight in blocks of NF4 or E4M3. */
#include "support/test.h"
#include "graph/blocks.h"
#include "kernel_test.h"

static const char *const sets[] = { "base", "avx2", "avx512", "avx512_bf16", "amx" };

static const tm_kernel *kernel_of(const char *set, tm_op_id op)
{
    const tm_kernel *const *families = tm_cpu_kernel_tables(set);
    for (; families && *families; families++)
        for (const tm_kernel *kernel = *families; kernel->name; kernel++)
            if (kernel->op == op) return kernel;
    return NULL;
}

/* in[0] (rows, inner) and in[1] (n[0], n[1]) with a float32 weight and with its copy; other operands are set by `more`.
 */
static void compare(const char *set, tm_op_id op, tm_shape x, tm_shape w, tm_shape y, const void *attr,
                    void (*more)(job *j, tm_shape x))
{
    const tm_kernel *kernel = kernel_of(set, op);
    result_bits      copied = { { NULL } };
    if (!kernel) return;
    for (int rounded = 0; rounded < 2; rounded++) {
        job j = job_new(op, attr);
        job_in(&j, 0, TM_BF16, x, 0., 1.);
        job_in(&j, 1, rounded ? TM_F32 : TM_BF16, w, 0., 1.);
        if (more)
            more(&j, x);
        else
            job_out(&j, 0, TM_BF16, y);
        j.call.rounded = rounded ? 2 : 0;
        job_reset(&j);
        j.call.op = tm_op_get(op);
        j.call.threads = 2;
        if (rounded && !(kernel->rounds >> 1 & 1)) {
            assert_non_null(kernel->refuse(&j.call));
        } else {
            call_run(kernel, &j.call, 2);
            if (rounded) bits_compare(&j, &copied, set, "than with a copy");
            if (!rounded) copied = bits_save(&j);
        }
        job_free(&j);
    }
    bits_free(&copied);
}

/* Targets, scalars; loss, dx, dw and the place of the logits, which is scratch. */
static void loss_operands(job *j, tm_shape x)
{
    int64_t rows = x.n[0], classes = j->in[1].shape.n[0], chunk = ((const tm_loss_attr *)j->call.attr)->chunk;
    job_in(j, 2, TM_I32, tm_shape_1(rows), 0., (double)classes);
    job_in(j, 3, TM_F64, tm_shape_1(TM_SCALAR_COUNT), 0.1, 0.);
    job_out(j, 0, TM_F64, (tm_shape){ .rank = 0 });
    job_out(j, 1, TM_BF16, x);
    job_out(j, 2, TM_F32, j->in[1].shape);
    job_out(j, 3, TM_F32, tm_shape_2(chunk, classes));
}

/* Rows of each of the experts, unevenly; the result. */
static void grouped_operands(job *j, tm_shape x, int64_t columns)
{
    int64_t experts = j->in[1].shape.n[0], rows = x.n[0];
    job_in(j, 2, TM_I32, tm_shape_1(experts + 1), 0., 1.);
    for (int64_t e = 0; e <= experts; e++)
        tm_value_set(j->in[2].initial, TM_I32, e, (double)(rows * e * e / (experts * experts)));
    job_out(j, 0, TM_BF16, tm_shape_2(rows, columns));
}
static void forward_operands(job *j, tm_shape x)
{
    grouped_operands(j, x, j->in[1].shape.n[1]);
}
static void dgrad_operands(job *j, tm_shape dy)
{
    grouped_operands(j, dy, j->in[1].shape.n[2]);
}

TEST(a_weight_rounded_on_the_way_is_a_copy)
{
    static const int64_t      n[] = { 1, 33, 130 }, k[] = { 5, 64, 600 }, m[] = { 7, 48, 70 };
    static const tm_loss_attr loss = { .chunk = 40 };
    for (int s = 0; s < COUNT(sets); s++)
        for (int i = 0; i < 3; i++) {
            tm_shape x = tm_shape_2(n[i], k[i]), w = tm_shape_2(m[i], k[i]), y = tm_shape_2(n[i], m[i]);
            compare(sets[s], TM_OP_linear, x, w, y, NULL, NULL);
            compare(sets[s], TM_OP_linear_dgrad, y, w, x, NULL, NULL);
            compare(sets[s], TM_OP_grouped_linear, x, tm_shape_3(3, m[i], k[i]), y, NULL, forward_operands);
            compare(sets[s], TM_OP_grouped_linear_dgrad, y, tm_shape_3(3, m[i], k[i]), x, NULL, dgrad_operands);
            compare(sets[s], TM_OP_linear_cross_entropy_grad, x, w, y, &loss, loss_operands);
        }
}

/* --- blocks ------------------------------------------------------------------------------------------------------- */

static void normal_values(void *context, int64_t first, int64_t n, float *out)
{
    (void)context;
    for (int64_t i = 0; i < n; i++) out[i] = 0.02f * (float)tm_random_normal(11, 3, (uint64_t)(first + i));
}
static tm_status keep(void *context, size_t offset, const void *bytes, size_t n, tm_error *err)
{
    (void)err;
    memcpy((char *)context + offset, bytes, n);
    return TM_OK;
}

/* n weights in blocks; of E4M3 the first ones have every code that is a number. */
static void make_blocks(tm_dtype format, int64_t n, char *blocks)
{
    tm_dtype whole = format == TM_E4M3_BLOCKS ? format : TM_NF4_BLOCKS;
    assert_int_equal(tm_blocked_store(whole, &(tm_nf4_io){ normal_values, keep, blocks, 1 }, n, NULL), TM_OK);
    for (int64_t i = 0; i < n && i < 256 && whole == TM_E4M3_BLOCKS; i++)
        if ((i & 0x7F) != 0x7F) blocks[TM_E4M3_HEAD + i] = (char)i;
}

/* x (N, K) w (M, K)^T or dy (N, M) w (M, K), w in blocks, or a copy of it; `threads` as given. */
static job blocked_job(tm_op_id op, tm_dtype blocked, bool copied, tm_shape w, int64_t rows, int threads)
{
    tm_dtype format = copied ? TM_BF16 : blocked, whole = blocked == TM_E4M3_BLOCKS ? blocked : TM_NF4_BLOCKS;
    bool     forward = op == TM_OP_linear;
    int64_t  n = tm_shape_elements(w);
    char    *blocks = malloc(tm_tensor_bytes(w, TM_E4M3_BLOCKS)); /* the most */
    make_blocks(blocked, n, blocks);
    job j = job_new(op, NULL);
    job_in(&j, 0, TM_BF16, tm_shape_2(rows, forward ? w.n[1] : w.n[0]), 0., 1.);
    tensor_open(&j.in[1], format, w);
    for (int64_t i = 0; i < n && format == TM_BF16; i++)
        tm_value_set(j.in[1].initial, TM_BF16, i, (double)tm_blocked_value(whole, blocks, i));
    if (format == whole) memcpy(j.in[1].initial, blocks, j.in[1].bytes);
    if (format == TM_NF4_SCALED) tm_blocked_copy(TM_NF4_BLOCKS, blocks, 0, format, j.in[1].initial, 0, n);
    job_out(&j, 0, TM_BF16, tm_shape_2(rows, forward ? w.n[0] : w.n[1]));
    j.call.rounded = format == TM_BF16 ? 0 : 2;
    job_reset(&j);
    j.call.op = tm_op_get(op);
    j.call.threads = threads;
    free(blocks);
    return j;
}

static void compare_blocks(const char *set, tm_op_id op, tm_dtype format, tm_shape w, int64_t rows)
{
    const tm_kernel *kernel = kernel_of(set, op);
    if (!kernel) return;
    job copy = blocked_job(op, format, true, w, rows, 1), j = blocked_job(op, format, false, w, rows, 1);
    if (kernel->rounds >> 1 & 1 && w.n[1] % TM_NF4_BLOCK == 0) {
        call_run(kernel, &copy.call, 1);
        result_bits copied = bits_save(&copy);
        for (int threads = 1; threads <= 3; threads++) {
            job_reset(&j);
            j.call.op = tm_op_get(op);
            j.call.threads = threads;
            call_run(kernel, &j.call, threads);
            bits_compare(&j, &copied, set, "than with a copy");
        }
        bits_free(&copied);
    } else {
        assert_non_null(kernel->refuse(&j.call));
    }
    job_free(&copy), job_free(&j);
}

/* Products of few and of many rows, whole and with edges, of one block of the sum and of several; rows of a weight that
 * begin within a group of blocks; a row that is no multiple of a block is refused. All formats in blocks. */
FULL_TEST(a_weight_in_blocks_decoded_on_the_way_is_a_copy)
{
    static const int64_t m[] = { 96, 70, 320, 130, 40, 33, 2100 }, k[] = { 64, 576, 2112, 192, 4160, 96, 128 },
                         rows[] = { 5, 300, 40, 1100, 290, 7, 30 };
    static const tm_dtype formats[] = { TM_NF4_BLOCKS, TM_NF4_SCALED, TM_E4M3_BLOCKS };
    for (int s = 0; s < COUNT(sets); s++)
        for (int i = 0; i < COUNT(m); i++)
            for (int f = 0; f < COUNT(formats); f++) {
                tm_dtype format = formats[f];
                compare_blocks(sets[s], TM_OP_linear, format, tm_shape_2(m[i], k[i]), rows[i]);
                compare_blocks(sets[s], TM_OP_linear_dgrad, format, tm_shape_2(m[i], k[i]), rows[i]);
            }
}

/* Codes of E4M3 that are no number, of both signs: what they are multiplied into is none, and nothing else. */
TEST(codes_that_are_no_number_stay_none)
{
    enum { ROWS = 5, INNER = 64, COLUMNS = 40 };
    for (int s = 0; s < COUNT(sets); s++) {
        const tm_kernel *kernel = kernel_of(sets[s], TM_OP_linear);
        if (!kernel || !(kernel->rounds >> 1 & 1)) continue;
        job   j = blocked_job(TM_OP_linear, TM_E4M3_BLOCKS, false, tm_shape_2(COLUMNS, INNER), ROWS, 1);
        char *codes = (char *)j.in[1].initial + TM_E4M3_HEAD;
        for (int c = 0; c < COLUMNS; c++) memset(codes + c * INNER, 0x38, INNER);
        codes[3 * INNER + 7] = 0x7F, codes[33 * INNER + 40] = (char)0xFF;
        job_reset(&j);
        j.call.op = tm_op_get(TM_OP_linear);
        j.call.threads = 1;
        call_run(kernel, &j.call, 1);
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            bool   none = i % COLUMNS == 3 || i % COLUMNS == 33;
            double y = tm_value_get(j.call.out[0].data, TM_BF16, i);
            if (none != (isnan(y) != 0)) fail_msg("%s: element %d is %g", sets[s], i, y);
        }
        job_free(&j);
    }
}
