/* SPDX-License-Identifier: Apache-2.0 */
/* Which evidence passes the gate and which does not. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include "support/test.h"

#include "base/random.h"
#include "train/run/verdict.h"

#include <math.h>
#include <string.h>

enum { STEPS = 60 };

/* Losses that go from `from` to `to` in a straight line, with uniform scatter of the given width. */
static void line(double losses[STEPS], double from, double to, double scatter)
{
    for (int i = 0; i < STEPS; i++)
        losses[i] = from + (to - from) * i / (STEPS - 1) + scatter * (tm_random_uniform(7, 1, (uint64_t)i) - 0.5);
}

static tm_verdict judge(const double *losses, double validation, tm_evidence more)
{
    char reason[TM_REASON_BYTES] = "";
    more.losses = losses;
    more.n_losses = more.n_losses ? more.n_losses : STEPS;
    more.total_steps = more.n_losses;
    more.finite = true;
    more.validation = validation;
    more.validation_error = 0.01;
    more.floor = more.validation_floor = 2;
    more.target_gap = 0.05;
    if (!more.gate) more.gate = TM_GATE_FLOOR;
    tm_verdict verdict = tm_verdict_of(&more, reason);
    assert_true(strlen(reason) > 0);
    return verdict;
}

static void progress_towards_the_floor_passes(void **state)
{
    (void)state;
    double losses[STEPS];
    line(losses, 4.6, 4.0, 0.1);
    assert_int_equal(judge(losses, 4.0, (tm_evidence){ 0 }), TM_VERDICT_VALID);
    assert_int_equal(judge(losses, 4.0, (tm_evidence){ .must_reach_target = true }), TM_VERDICT_INVALID);
    assert_int_equal(judge(losses, 2.04, (tm_evidence){ .must_reach_target = true }), TM_VERDICT_VALID);
    assert_int_equal(judge(losses, 1.9, (tm_evidence){ 0 }), TM_VERDICT_INVALID); /* below the floor */
    assert_int_equal(judge(losses, 4.0, (tm_evidence){ .step_variation = 0.3 }), TM_VERDICT_NOISY);
    assert_int_equal(judge(losses, 4.0, (tm_evidence){ .n_losses = 49 }), TM_VERDICT_NOT_JUDGED);
}

/* A run that learnt nothing once passed: its last small batches happened to be easier than its first ones. */
static void scatter_is_no_progress(void **state)
{
    (void)state;
    double losses[STEPS];
    line(losses, 4.6, 4.6, 0);
    for (int i = 0; i < STEPS; i++) losses[i] += i % 2 ? 0.2 : -0.2;
    for (int i = STEPS - 6; i < STEPS; i++) losses[i] -= 0.1; /* 4 % of the way to the floor, a third of the scatter */
    assert_int_equal(judge(losses, 4.6, (tm_evidence){ 0 }), TM_VERDICT_INVALID);
}

/* Resumed with a loss of 4 behind it, a run that spoils what was learnt does not live on that progress. */
static void undone_progress_is_none(void **state)
{
    (void)state;
    double       losses[STEPS];
    tm_loss_head head = { .mean = 4.6, .deviation = 0.05, .n = 50 };
    line(losses, 3.0, 3.3, 0.1);
    assert_int_equal(judge(losses, 3.3, (tm_evidence){ .head = head }), TM_VERDICT_INVALID);
    assert_int_equal(judge(losses, 3.3, (tm_evidence){ .head = head, .n_losses = 49 }), TM_VERDICT_NOT_JUDGED);
    line(losses, 3.0, 3.0, 0.1);
    assert_int_equal(judge(losses, 3.0, (tm_evidence){ .head = head }), TM_VERDICT_VALID);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(progress_towards_the_floor_passes),
    cmocka_unit_test(scatter_is_no_progress),
    cmocka_unit_test(undone_progress_is_none),
};

TM_TESTS(tests, NULL, NULL)
