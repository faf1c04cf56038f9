/* SPDX-License-Identifier: Apache-2.0 */
/* Whose time it is: telling of a step counts for the next one; evaluations, checkpoints and looking at the speed count
 * for none. The clock goes on by a microsecond whenever the run looks at it, and by what the listener takes.
 */
#include "support/test.h"
#include "support/folder.h"
#include "support/looked_clock.h"
#include "run_fixture.h"
#include "step_cases.h"

#include "train/run/run.h"

#include <time.h>

enum { STEPS = 40, SAVED = 10, STEP_NS = 200000000, OTHER_NS = 400000000 };

/* ---- a run ---- */

typedef struct {
    tm_sink sink;
    double  seconds[STEPS], logging[STEPS], end;
    int     steps, evaluations, checkpoints, quantized;
    bool    behind; /* a thread writes checkpoints */
    bool    valid;
    char    reason[TM_REASON_BYTES];
} listener;

static void listen(tm_sink *sink, const tm_event *event)
{
    listener *l = (listener *)sink;
    if (event->kind == TM_EVENT_STEP_DONE) {
        const tm_step_done *s = &event->step_done;
        for (size_t i = 0; i < s->n_phases; i++)
            if (strcmp(s->phases[i].name, "logging") == 0) l->logging[l->steps] = s->phases[i].value;
        l->seconds[l->steps++] = s->seconds;
        now_ns += STEP_NS;
        if (l->behind && l->steps > SAVED && l->checkpoints == 0)
            nanosleep(&(struct timespec){ .tv_nsec = 5000000 }, NULL);
    }
    int *of = event->kind == TM_EVENT_EVALUATION   ? &l->evaluations
              : event->kind == TM_EVENT_CHECKPOINT ? &l->checkpoints
              : event->kind == TM_EVENT_QUANTIZED  ? &l->quantized
                                                   : NULL;
    if (of) ++*of, now_ns += OTHER_NS;
    if (event->kind == TM_EVENT_RUN_ENDED) {
        l->end = event->run_ended.seconds;
        l->valid = event->run_ended.verdict != TM_VERDICT_INVALID;
        snprintf(l->reason, sizeof l->reason, "%s", event->run_ended.reason);
    }
}

static tm_run_options options_of(void)
{
    tm_run_options o = small_run("synthetic", STEPS);
    o.learning_rate = 1e-3;
    o.seed = o.source.seed = 7;
    o.validation_steps = 2;
    o.checkpoint_not_last = true;
    o.checkpoint_interval = SAVED;
    o.checkpoint_keep = 1;
    o.schedule.warmup_steps = 0, o.schedule.decay_ratio = 0;
    return o;
}

static listener run(const tm_run_options *options)
{
    listener l = { .sink = { .handle = listen }, .behind = options->checkpoint_behind };
    tm_error err;
    look_ns = 1000;
    tm_status st = run_small(options, "cpu", 1, &l.sink, NULL, &err);
    if (st != (l.valid ? TM_OK : TM_NUMBERS)) fail_msg("%s", err.text);
    assert_int_equal(l.steps, STEPS);
    return l;
}

/* Steps with the time that telling of the one before took; the others, behind every `anew` steps, begin when what lay
 * between is over. */
static void check(const listener *l, int anew)
{
    const double telling = STEP_NS * 1e-9, least = 1e-3; /* what looks of one step make is less */
    double       sum = 0;
    for (int s = 0; s < STEPS; s++) {
        double wanted = s == 0 || (anew && s % anew == 0) ? 0 : telling;
        if (!(l->seconds[s] >= wanted && l->seconds[s] < wanted + least))
            fail_msg("step %d took %.9g s, not %.9g s", s + 1, l->seconds[s], wanted);
        if (!(l->logging[s] >= wanted && l->logging[s] <= l->seconds[s]))
            fail_msg("logging in step %d took %.9g s", s + 1, l->logging[s]);
        sum += l->seconds[s];
    }
    assert_true(l->end >= sum + OTHER_NS * 1e-9 * (l->evaluations + l->checkpoints));
}

/* Also where the speed is looked at behind each step, to a width that is never reached. */
TEST(telling_counts_for_the_next_step)
{
    tm_run_options o = options_of();
    for (int looks = 0; looks < 2; looks++) {
        o.target_half_width = looks ? 1e-9 : 0;
        listener l = run(&o);
        check(&l, 0);
    }
}

/* Nor do factors of products in low precision, which are told behind a step. */
TEST(evaluations_count_for_none)
{
    tm_run_options o = options_of();
    o.validate = true;
    o.validation_freq = o.quantize_freq = 8;
    listener l = run(&o);
    assert_int_equal(l.evaluations, STEPS / 8);
    check(&l, 8);
    o.validate = false;
    o.step.quantize = quantize_with("fp8_rowwise");
    o.step.shape.ffn_dim = 96; /* whole blocks */
    l = run(&o);
    assert_int_equal(l.quantized, STEPS / 8);
    check(&l, 0);
}

/* Saving behind the training ends when a step finds that all is written, at the latest when the next one begins. */
TEST_WITH(checkpoints_count_for_none, NULL, test_folder_teardown)
{
    for (int behind = 0; behind < 2; behind++) {
        tm_run_options o = options_of();
        o.checkpoint = true;
        o.checkpoint_folder = test_in_folder(behind ? "behind" : "before");
        o.checkpoint_behind = behind;
        listener l = run(&o);
        assert_int_equal(l.checkpoints, STEPS / SAVED - 1); /* not of the last step */
        check(&l, SAVED);
    }
}

/* It is the fastest step that must not be faster than the machine; here the first one, as nothing is told before. */
TEST(the_first_step_may_be_the_fastest)
{
    tm_run_options o = options_of();
    double         flops = 0;
    o.peaks.flops = 1;
    listener    l = run(&o);
    const char *least = strstr(l.reason, "less than ");
    assert_true(!l.valid && least);
    assert_int_equal(sscanf(least, "less than %lf s", &flops), 1);
    assert_true(l.seconds[0] < 1e-3 && l.seconds[1] >= 2e-1);
    o.peaks.flops = flops / 1e-1; /* all others could be */
    l = run(&o);
    assert_true(!l.valid && strstr(l.reason, "the fastest step took "));
    o.peaks.flops = flops / l.seconds[0] * 1.5; /* and now the first one, too */
    l = run(&o);
    assert_true(!strstr(l.reason, "the fastest step took "));
}

TESTS_ALONE
