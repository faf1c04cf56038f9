/* SPDX-License-Identifier: Apache-2.0 */
/* Plans of steps that update weights within the backward pass: what is no longer there, and where all else lies.
 * (Numbers: tests/differential, compare.early.) */
#include "support/training.h"

#include <string.h>

#include "support/test.h"

/* A Llama in two formats, a GPT with a tied table; moments and activations offloaded or not. */
enum { PLANS = 4 };
static tm_step_options options_of(int which)
{
    tm_step_options o = which < 2 ? test_llama_options() : test_gpt_options();
    o.accumulation = 1;
    o.precision = which % 2 ? &tm_precision_bf16 : &tm_precision_f32;
    o.recompute = (tm_recompute){ .cheap = true, .every_n = 1 };
    if (which % 2) o.offload = (tm_offload){ .optimizer = true, .activations = true, .space = TM_SPACE_HOST };
    return o;
}

static tm_step *plan(tm_step_options o, bool early)
{
    tm_device *device = test_device_open("cpu", 1);
    tm_chooser chooser = tm_device_chooser(device);
    o.early_updates = early;
    tm_step *step = test_step_plan(&o, &chooser);
    tm_device_close(device);
    return step;
}

static size_t count(const tm_program *program, tm_op_id op)
{
    size_t n = 0;
    for (size_t x = 0; x < program->count; x++) n += program->instructions[x].node->op == op;
    return n;
}

TEST(gradients_take_no_memory_from_step_to_step)
{
    for (int which = 0; which < PLANS; which++) {
        tm_step *early = plan(options_of(which), true), *plain = plan(options_of(which), false);
        size_t   gradients = plain->plan->spaces[TM_SPACE_DEVICE].gradient_bytes;
        assert_true(gradients > 0);
        assert_int_equal(early->plan->spaces[TM_SPACE_DEVICE].gradient_bytes, 0);
        size_t constant = tm_plan_aligned(early->plan, 2 * sizeof(double));
        assert_int_equal(early->plan->persistent_bytes, plain->plan->persistent_bytes - gradients + constant);
        assert_true(early->plan->arena_bytes < plain->plan->arena_bytes);
        tm_step_destroy(early), tm_step_destroy(plain);
    }
}

TEST(the_same_instructions_are_in_other_programs)
{
    for (int which = 0; which < PLANS; which++) {
        tm_step *early = plan(options_of(which), true), *plain = plan(options_of(which), false);
        for (int op = 0; op < TM_OP_COUNT; op++) {
            size_t first = count(early->first, (tm_op_id)op), update = count(early->update, (tm_op_id)op);
            assert_int_equal(first + update, count(plain->first, (tm_op_id)op) + count(plain->update, (tm_op_id)op));
        }
        assert_int_equal(count(early->update, TM_OP_adamw), 0);
        assert_int_equal(count(early->update, TM_OP_square_sum), 0);
        assert_int_equal(count(early->update, TM_OP_clip), 1);
        tm_step_destroy(early), tm_step_destroy(plain);
    }
}

TEST(what_is_offloaded_stays_so)
{
    for (int which = 1; which < PLANS; which += 2) {
        tm_step *early = plan(options_of(which), true), *plain = plan(options_of(which), false);
        assert_true(plain->plan->spaces[TM_SPACE_HOST].arena_bytes > 0);
        assert_int_equal(early->plan->spaces[TM_SPACE_HOST].arena_bytes,
                         plain->plan->spaces[TM_SPACE_HOST].arena_bytes);
        tm_step_destroy(early), tm_step_destroy(plain);
    }
}
