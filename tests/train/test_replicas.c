/* SPDX-License-Identifier: Apache-2.0 */
/* Copies of a model that train together: they follow one rank with all samples, and have the bits of one that sums
 * apart what they sum apart. */
#include "support/test.h"
#include "ranks_fixture.h"

static void copies_follow_one_rank(void **state)
{
    static const int worlds[] = { 1, 2, 3, 4 };
    (void)state;
    for (int k = 0; k < MODELS; k++) {
        for (size_t w = 0; w < sizeof worlds / sizeof worlds[0]; w++) {
            int    ranks = worlds[w], steps = ranks == 2 || k == 0 ? MOST_STEPS : 6;
            job    alone = run_alone(model_options(k), ranks, 1, steps);
            job    together = run_ranks(model_options(k), ranks, 1, TM_SHARE_COPIES, steps);
            double far = apart(&together, &alone);
            print_message("# model %d, %d ranks: losses %.3g apart, %.4g -> %.4g\n", k, ranks, far, alone.loss[0],
                          alone.loss[steps - 1]);
            if (!(far <= 1e-5)) fail_msg("model %d, %d ranks: losses are %.3g apart", k, ranks, far);
            if (ranks == 1 && together.weights[0] != alone.weights[0]) fail_msg("model %d: a world of one differs", k);
        }
    }
}

/* Not almost: equal. */
static void copies_have_the_bits_of_separate_sums(void **state)
{
    (void)state;
    for (int k = 0; k < MODELS; k++)
        for (int ranks = 2; ranks <= 4; ranks++)
            for (int64_t accumulation = 1; accumulation <= 2; accumulation++) {
                tm_step_options o = model_options(k);
                o.accumulation = accumulation;
                job alone = run_alone(o, ranks, ranks, 4), together = run_ranks(o, ranks, 1, TM_SHARE_COPIES, 4);
                job again = ranks > 2 ? together : run_ranks(o, ranks, 1, TM_SHARE_COPIES, 4);
                for (int t = 0; t < 4; t++)
                    if (alone.loss[t] != together.loss[t] || alone.norm[t] != together.norm[t])
                        fail_msg("model %d, %d ranks x %d: step %d: loss %.17g alone, %.17g together; norm %.17g, "
                                 "%.17g",
                                 k, ranks, (int)accumulation, t + 1, alone.loss[t], together.loss[t], alone.norm[t],
                                 together.norm[t]);
                assert_true(alone.weights[0] == together.weights[0]);
                assert_true(again.weights[0] == together.weights[0]);
            }
}

/* That the bits agree is not for want of a difference: one sum of all micro-batches has others. */
static void one_sum_has_other_bits(void **state)
{
    (void)state;
    tm_step_options o = model_options(0);
    o.accumulation = 2;
    job one = run_alone(o, 2, 1, 5), two = run_alone(o, 2, 2, 5);
    assert_true(one.weights[0] != two.weights[0]);
    assert_true(apart(&one, &two) < 1e-5);
}

static int64_t reductions(const tm_step *step, const char *name)
{
    const tm_program *program = tm_plan_program(step->plan, name);
    int64_t           n = 0;
    for (size_t x = 0; program && x < program->count; x++) {
        const tm_instruction *i = &program->instructions[x];
        n += i->call.op == &tm_op_all_reduce && i->call.in[0].dtype == TM_F32;
        if (i->call.op == &tm_op_all_reduce) assert_int_equal(i->stream, TM_ON_COMMUNICATION);
    }
    return n;
}

/* In the last program of micro-batches, each unit once, while there is still something to compute; a tied table, whose
 * look-ups are summed apart, before the update. */
static void reductions_run_beside_the_backward_pass(void **state)
{
    (void)state;
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    for (int gpt = 0; gpt < 2; gpt++)
        for (int64_t accumulation = 1; accumulation <= 3; accumulation++) {
            tm_step_options o = model_options(gpt);
            o.accumulation = accumulation;
            o.layout.mesh = tm_mesh_one();
            o.layout.mesh.degree[TM_AXIS_REPLICATE] = 2;
            tm_step          *step = test_step_plan(&o, &chooser);
            const tm_program *program = tm_plan_program(step->plan, accumulation > 1 ? "last" : "first");
            int64_t           units = (int64_t)step->units.n_units, late = gpt && accumulation > 1;
            assert_true((tm_plan_program(step->plan, "further") != NULL) == (accumulation == 3));
            assert_int_equal(reductions(step, program->name), units - late);
            assert_int_equal(reductions(step, "update"), late);
            assert_int_equal(reductions(step, "further"), 0);
            if (accumulation > 1) assert_int_equal(reductions(step, "first"), 0);
            size_t beside = 0;
            for (size_t x = 0; x + 1 < program->count; x++)
                beside += program->instructions[x].call.op == &tm_op_all_reduce &&
                          program->instructions[x + 1].stream == TM_ON_COMPUTE;
            assert_true(beside >= (size_t)units - 2);
            int64_t micro_batches = 0;
            for (size_t w = 0; w < step->training.n; w++)
                if (step->training.work[w].micro_batch >= 0) {
                    assert_int_equal(step->training.work[w].micro_batch, micro_batches);
                    micro_batches += step->training.work[w].count;
                }
            assert_int_equal(micro_batches, accumulation);
            tm_step_destroy(step);
        }
    tm_device_close(device);
}

static void separate_sums_that_do_not_divide_are_refused(void **state)
{
    (void)state;
    tm_error        err = { 0 };
    tm_device      *device = test_device_open("cpu", 1);
    tm_chooser      chooser = tm_device_chooser(device);
    tm_step_options o = model_options(0);
    tm_step        *step = NULL;
    o.accumulation = 4;
    o.layout.parts = 3;
    assert_int_equal(tm_step_create(&o, &chooser, &step, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "training.separate_sums is 3"));
    err = (tm_error){ 0 };
    o.layout.parts = 2;
    o.precision = &tm_precision_bf16_pure;
    assert_int_equal(tm_step_create(&o, &chooser, &step, &err), TM_UNSUPPORTED);
    assert_non_null(strstr(err.text, "float32"));
    tm_device_close(device);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(copies_follow_one_rank),
    cmocka_unit_test(copies_have_the_bits_of_separate_sums),
    cmocka_unit_test(one_sum_has_other_bits),
    cmocka_unit_test(reductions_run_beside_the_backward_pass),
    cmocka_unit_test(separate_sums_that_do_not_divide_are_refused),
};

TM_TESTS(tests, NULL, NULL)
