/* SPDX-License-Identifier: Apache-2.0 */
/* A float32 weight that counts as rounded (tm_call.rounded) gives the bits of its bfloat16 copy, in every kernel that
 * says it does that (tm_kernel.rounds); the others refuse. */
#include "kernel_test.h"

static const char *const sets[] = { "base", "avx2", "avx512", "avx512_bf16", "amx" };

static const tm_kernel *kernel_of(const char *set, tm_op_id op)
{
    const tm_kernel *const *families = tm_cpu_kernel_tables(set);
    for (; families && *families; families++)
        for (const tm_kernel *kernel = *families; kernel->run; kernel++)
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

static void a_weight_rounded_on_the_way_is_a_copy(void **state)
{
    static const int64_t      n[] = { 1, 33, 130 }, k[] = { 5, 64, 600 }, m[] = { 7, 48, 70 };
    static const tm_loss_attr loss = { .chunk = 40 };
    (void)state;
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

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(a_weight_rounded_on_the_way_is_a_copy) };
    return cmocka_run_group_tests_name("device: rounded weights", tests, NULL, NULL);
}
