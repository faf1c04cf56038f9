/* SPDX-License-Identifier: Apache-2.0 */
/* Every rule of verdict.h, on both sides of its edge. */
#include "train/run/verdict.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "support/test.h"

enum { LOSSES = 100 };
static const double nothing = (double)NAN;

/* Losses that fall from `from` to `to` over the run, straight. */
static tm_evidence evidence_of(const char *source, double *losses, double from, double to)
{
    for (int i = 0; i < LOSSES; i++) losses[i] = from + (to - from) * i / (LOSSES - 1);
    return (tm_evidence){ .gate = tm_source_traits_of(source)->gate,
                          .losses = losses,
                          .n_losses = LOSSES,
                          .total_steps = LOSSES,
                          .finite = true,
                          .validation = nothing,
                          .validation_error = nothing,
                          .floor = 2,
                          .validation_floor = 2,
                          .unigram_entropy = 3,
                          .compressed = nothing,
                          .target_gap = 0.05,
                          .step_variation = 0.02 };
}

/* `word` is in the reason; one that ends with '$' ends it. */
static bool says(const char *reason, const char *word)
{
    const size_t n = strlen(word), all = strlen(reason);
    if (n == 0 || word[n - 1] != '$') return strstr(reason, word) != NULL;
    return all >= n - 1 && strncmp(reason + all - (n - 1), word, n - 1) == 0;
}

static void expect(const tm_evidence *e, tm_verdict wanted, const char *word)
{
    char reason[TM_REASON_BYTES];
    memset(reason, 'x', sizeof reason);
    tm_verdict got = tm_verdict_of(e, reason);
    assert_non_null(memchr(reason, 0, sizeof reason));
    if (got != wanted || !says(reason, word))
        fail_msg("%s (%s), wanted %s and '%s'", tm_verdict_name(got), reason, tm_verdict_name(wanted), word);
}

static void numbers_that_are_not_finite_are_invalid(void **state)
{
    static const char *const sources[] = { "synthetic", "mock", "text" };
    double                   losses[LOSSES];
    (void)state;
    for (int i = 0; i < 3; i++) {
        tm_evidence e = evidence_of(sources[i], losses, 4, 2.01);
        e.finite = false;
        expect(&e, TM_VERDICT_INVALID, "not finite");
        e.n_losses = e.total_steps = 1; /* few steps are no excuse */
        expect(&e, TM_VERDICT_INVALID, "not finite");
        e.step_variation = 1;
        expect(&e, TM_VERDICT_INVALID, "not finite");
    }
}

static void few_steps_are_not_judged(void **state)
{
    static const char *const sources[] = { "synthetic", "mock", "text" };
    double                   losses[LOSSES];
    (void)state;
    for (int i = 0; i < 3; i++) {
        tm_evidence e = evidence_of(sources[i], losses, 4, 3.5);
        e.n_losses = e.total_steps = TM_JUDGED_STEPS - 1;
        expect(&e, TM_VERDICT_NOT_JUDGED, "49");
        e.total_steps = TM_JUDGED_STEPS; /* a resumed run counts the steps before */
        char reason[TM_REASON_BYTES];
        assert_true(tm_verdict_of(&e, reason) != TM_VERDICT_NOT_JUDGED);
    }
    for (int i = 1; i < 3; i++) { /* a held-out loss is no goal there */
        tm_evidence known = evidence_of(sources[i], losses, 4, 2.5);
        known.validation = 2.6, known.total_steps = 20;
        expect(&known, TM_VERDICT_NOT_JUDGED, "20 steps");
    }
    tm_evidence e = evidence_of("synthetic", losses, 4, 2.5);
    e.n_losses = e.total_steps = 0;
    expect(&e, TM_VERDICT_NOT_JUDGED, "0 steps");
    /* the goal reached early is judged: that was the job */
    e = evidence_of("synthetic", losses, 4, 2.1);
    e.n_losses = e.total_steps = 30;
    e.validation = 2.04;
    e.must_reach_target = true;
    expect(&e, TM_VERDICT_VALID, "within");
    e.must_reach_target = false; /* it was not: then nobody has certified the gradients */
    expect(&e, TM_VERDICT_NOT_JUDGED, "30 steps are too few");
    e.validation = 1.96;
    expect(&e, TM_VERDICT_NOT_JUDGED, "30 steps are too few");
    /* and a loss below the language's entropy is a leak after any number of steps */
    e.validation = 1.5;
    expect(&e, TM_VERDICT_INVALID, "leaks");
}

static void below_the_entropy_something_leaks(void **state)
{
    double losses[LOSSES];
    (void)state;
    tm_evidence e = evidence_of("synthetic", losses, 4, 1.0);
    expect(&e, TM_VERDICT_INVALID, "leaks"); /* the training loss, without a validation */
    e = evidence_of("synthetic", losses, 4, 2.01);
    e.validation = 1.94; /* five errors below, an unknown error counts as 0.01 */
    expect(&e, TM_VERDICT_INVALID, "leaks");
    e.validation = 1.96;
    expect(&e, TM_VERDICT_VALID, "within");
    e.validation_error = 0.001;
    expect(&e, TM_VERDICT_INVALID, "leaks");
    e.validation_error = 0.02;
    e.validation = 1.91;
    expect(&e, TM_VERDICT_VALID, "within");
    e.validation = 1.89;
    expect(&e, TM_VERDICT_INVALID, "leaks");
}

static void the_goal_is_the_entropy_and_the_gap(void **state)
{
    double losses[LOSSES];
    (void)state;
    tm_evidence e = evidence_of("synthetic", losses, 4, 2.3);
    e.must_reach_target = true;
    e.validation = 2.049;
    expect(&e, TM_VERDICT_VALID, "within 0.05");
    e.validation = 2.051;
    expect(&e, TM_VERDICT_INVALID, "did not come within 0.05");
    e.must_reach_target = false;
    expect(&e, TM_VERDICT_VALID, "fell");
    e.target_gap = 0.06;
    expect(&e, TM_VERDICT_VALID, "within 0.06");
}

static void no_progress_is_invalid(void **state)
{
    double losses[LOSSES];
    (void)state;
    tm_evidence e = evidence_of("synthetic", losses, 4, 4);
    expect(&e, TM_VERDICT_INVALID, "no progress");
    e = evidence_of("synthetic", losses, 4, 4.5);
    expect(&e, TM_VERDICT_INVALID, "no progress");
    e = evidence_of("synthetic", losses, 4, 3.99); /* half a per cent of the way */
    expect(&e, TM_VERDICT_INVALID, "no progress");
    e = evidence_of("synthetic", losses, 4, 3.95);
    expect(&e, TM_VERDICT_VALID, "fell");
    for (int i = 0; i < LOSSES; i++) losses[i] = i % 2 ? 4.2 : 3.8; /* the ends' means, not the last loss, decide */
    expect(&e, TM_VERDICT_INVALID, "no progress");
}

static void mock_data_teach_ln_v_only(void **state)
{
    double losses[LOSSES];
    (void)state;
    tm_evidence e = evidence_of("mock", losses, 3.6, 3.0);
    e.floor = e.validation_floor = nothing;
    expect(&e, TM_VERDICT_VALID, "ln V");
    e = evidence_of("mock", losses, 3.6, 3.3); /* not there, but closer */
    expect(&e, TM_VERDICT_VALID, "ln V is 3.0000$");
    e = evidence_of("mock", losses, 3.05, 3.1); /* never far from it */
    expect(&e, TM_VERDICT_VALID, "ln V is 3.0000$");
    e = evidence_of("mock", losses, 3.6, 3.9);
    expect(&e, TM_VERDICT_INVALID, "does not come closer");
    e = evidence_of("mock", losses, 3.6, 3.61);
    expect(&e, TM_VERDICT_INVALID, "does not come closer");
    for (int i = 0; i < LOSSES; i++) losses[i] += i % 2 ? 0.05 : -0.05;
    for (int i = LOSSES - 10; i < LOSSES; i++) losses[i] += 0.02; /* farther by less than batches scatter */
    expect(&e, TM_VERDICT_VALID, "ln V");
    for (int i = LOSSES - 10; i < LOSSES; i++) losses[i] += 0.3;
    expect(&e, TM_VERDICT_INVALID, "does not come closer");
    e = evidence_of("mock", losses, 3.5, 1.0); /* uniform tokens cannot be learnt */
    expect(&e, TM_VERDICT_INVALID, "leaks");
    e = evidence_of("mock", losses, 3.5, 2.6); /* nor a little: closer to ln V than at first, from the wrong side */
    expect(&e, TM_VERDICT_INVALID, "leaks");
}

static void text_must_beat_its_single_tokens(void **state)
{
    double losses[LOSSES];
    (void)state;
    tm_evidence e = evidence_of("text", losses, 5, 2.5);
    e.floor = e.validation_floor = nothing;
    expect(&e, TM_VERDICT_VALID, "held-out loss");
    e.validation = 3.01;
    expect(&e, TM_VERDICT_INVALID, "nothing was learned");
    e.validation = 2.99;
    expect(&e, TM_VERDICT_VALID, "2.99");
    e = evidence_of("text", losses, 5, 3.5);
    e.floor = e.validation_floor = nothing;
    expect(&e, TM_VERDICT_INVALID, "nothing was learned");
}

/* Images have no tokens to predict one by one: the loss of predicting nothing takes their place. */
static void images_must_beat_no_prediction(void **state)
{
    double losses[LOSSES];
    char   reason[TM_REASON_BYTES];
    (void)state;
    tm_evidence e = evidence_of("text", losses, 5, 2.5);
    e.images = true;
    e.unigram_entropy = 2;
    e.validation = 1.9375;
    assert_int_equal(tm_verdict_of(&e, reason), TM_VERDICT_VALID);
    assert_string_equal(reason, "held-out loss 1.9375, without any prediction 2.0000");
    e.validation = 2;
    assert_int_equal(tm_verdict_of(&e, reason), TM_VERDICT_INVALID);
    assert_string_equal(reason, "held-out loss 2.0000, without any prediction 2.0000: nothing was learned");
    e.unigram_entropy = nothing;
    expect(&e, TM_VERDICT_NOT_JUDGED, "no data is held out to compare with");
}

static void uneven_step_times_are_noisy(void **state)
{
    static const char *const sources[] = { "synthetic", "mock", "text" };
    double                   losses[LOSSES];
    (void)state;
    for (int i = 0; i < 3; i++) {
        tm_evidence e = evidence_of(sources[i], losses, 3.5, 2.9);
        e.step_variation = 0.099;
        expect(&e, TM_VERDICT_VALID, "");
        e.step_variation = 0.11;
        expect(&e, TM_VERDICT_NOISY, "step times vary by 11 %");
        e.step_variation = nothing; /* unknown is not noisy */
        expect(&e, TM_VERDICT_VALID, "");
    }
    tm_evidence e = evidence_of("synthetic", losses, 4, 4);
    e.step_variation = 1; /* noise excuses nothing */
    expect(&e, TM_VERDICT_INVALID, "no progress");
    e.n_losses = e.total_steps = 10;
    expect(&e, TM_VERDICT_NOT_JUDGED, "10 steps");
}

/* The speed of a run that passed: what disturbed the machine makes it noisy, only an absent machine invalid. */
static void the_machine_must_have_been_there(void **state)
{
    double losses[LOSSES];
    (void)state;
    tm_evidence e = evidence_of("synthetic", losses, 3.5, 2.9);
    e.machine = TM_VERDICT_VALID;
    e.machine_reason = "left alone";
    expect(&e, TM_VERDICT_VALID, "loss fell");
    e.machine = TM_VERDICT_NOT_JUDGED; /* too short: no reason to doubt */
    expect(&e, TM_VERDICT_VALID, "loss fell");
    e.machine = TM_VERDICT_NOISY;
    e.machine_reason = "other work took 90 %";
    expect(&e, TM_VERDICT_NOISY, "floor 2.0000; other work took 90 %");
    e.step_variation = 0.2;
    expect(&e, TM_VERDICT_NOISY, "; step times vary by 20 %; other work took 90 %");
    e.machine = TM_VERDICT_INVALID;
    e.machine_reason = "the hypervisor gave 60 % away";
    expect(&e, TM_VERDICT_INVALID, "; but the figures do not measure this machine: the hypervisor gave 60 % away");
    e.n_losses = e.total_steps = 10; /* no result anyway */
    expect(&e, TM_VERDICT_NOT_JUDGED, "10 steps");
    e = evidence_of("synthetic", losses, 4, 4);
    e.machine = TM_VERDICT_NOISY;
    e.machine_reason = "other work";
    expect(&e, TM_VERDICT_INVALID, "no progress"); /* noise excuses nothing */
}

/* What is said is said to its end, however much there is. */
static void reasons_have_room(void **state)
{
    double losses[LOSSES];
    char   machine[600];
    (void)state;
    memset(machine, 'm', sizeof machine);
    strcpy(machine + sizeof machine - 9, " the end");
    tm_evidence e = evidence_of("synthetic", losses, 3.5, 2.9);
    e.machine = TM_VERDICT_NOISY;
    e.machine_reason = machine;
    e.step_variation = 0.2;
    expect(&e, TM_VERDICT_NOISY, "m the end");
    e.slowdown_pct = 3;
    expect(&e, TM_VERDICT_NOT_JUDGED, "m the end");
    e = evidence_of("synthetic", losses, 3.5, 2.9);
    e.unreal = machine;
    expect(&e, TM_VERDICT_INVALID, "m the end");
}

static void steps_must_be_steady(void **state)
{
    double losses[LOSSES];
    (void)state;
    tm_steady   s = { .reached = true, .drift = 1 };
    tm_evidence e = evidence_of("synthetic", losses, 3.5, 2.9);
    e.steady = &s;
    expect(&e, TM_VERDICT_VALID, "");
    s = (tm_steady){ .drift = -7, .drift_lo = -9, .drift_hi = -4 };
    expect(&e, TM_VERDICT_NOISY, "; the step time drifts by -7.0 %");
    s = (tm_steady){ .drift = 7, .drift_lo = 4, .drift_hi = 9, .shift = 12, .shift_at = 60 };
    e.total_steps = LOSSES + 1000; /* resumed after step 1,000: index 60 is step 1,061 */
    expect(&e, TM_VERDICT_NOISY, "; the step time changed by +12.0 % at step 1061");
    s = (tm_steady){ .warmup = 50, .drift = 0, .drift_lo = -1, .drift_hi = 1 };
    expect(&e, TM_VERDICT_NOISY, "; steady state was not reached");
    s.drift = nothing; /* too few steps to tell */
    expect(&e, TM_VERDICT_VALID, "");
}

/* The causal mask off by one: 0.14 bits per byte of a text that a compressor makes 2.4 of. */
static void too_good_to_be_true(void **state)
{
    double losses[LOSSES];
    (void)state;
    tm_evidence e = evidence_of("text", losses, 5, 0.097);
    e.validation = 0.097;
    expect(&e, TM_VERDICT_VALID, "held-out loss 0.0970");
    e.compressed = 1.66;
    expect(&e, TM_VERDICT_INVALID, "a fifth of what a compressor needs, 1.6600");
    e.validation = 0.34;
    expect(&e, TM_VERDICT_VALID, "held-out loss 0.3400");
    e.compressed = nothing;
    e.validation = 0.001;
    expect(&e, TM_VERDICT_VALID, "held-out loss 0.0010");
}

static void nothing_is_faster_than_physics(void **state)
{
    double losses[LOSSES];
    (void)state;
    tm_evidence e = evidence_of("synthetic", losses, 3.5, 2.9);
    e.impossible = "the fastest step took nothing";
    expect(&e, TM_VERDICT_INVALID, "the fastest step took nothing");
    e.n_losses = e.total_steps = 10; /* few steps are no excuse */
    expect(&e, TM_VERDICT_INVALID, "the fastest step took nothing");
}

/* A validation loss that is not a number must never pass, nor an entropy that is unknown where it is needed. */
static void numbers_that_cannot_be_compared_do_not_pass(void **state)
{
    double losses[LOSSES];
    (void)state;
    tm_evidence e = evidence_of("text", losses, 5, 2.5);
    e.unigram_entropy = nothing;
    expect(&e, TM_VERDICT_NOT_JUDGED, "data.validation_fraction");
    e = evidence_of("mock", losses, 5, 2.5);
    e.unigram_entropy = nothing;
    expect(&e, TM_VERDICT_INVALID, "");
    e = evidence_of("synthetic", losses, 4, 3);
    e.validation = (double)INFINITY;
    e.must_reach_target = true;
    expect(&e, TM_VERDICT_INVALID, "");
    e = evidence_of("synthetic", losses, 4, 3);
    e.floor = e.validation_floor = nothing;
    expect(&e, TM_VERDICT_INVALID, "");
}

/* A run that was stopped has not failed; what is wrong at any time still is. */
static void an_interrupted_run_has_not_failed(void **state)
{
    static const char *const sources[] = { "synthetic", "mock", "text" };
    double                   losses[LOSSES];
    (void)state;
    for (int i = 0; i < 3; i++)
        for (int interrupted = 0; interrupted < 2; interrupted++) {
            tm_evidence e = evidence_of(sources[i], losses, 4, 4);
            e.interrupted = interrupted;
            expect(&e, interrupted ? TM_VERDICT_NOT_JUDGED : TM_VERDICT_INVALID,
                   interrupted ? "interrupted after step 100" : "");
            e.finite = false;
            expect(&e, TM_VERDICT_INVALID, "not finite");
        }
    tm_evidence e = evidence_of("synthetic", losses, 4, 3);
    e.must_reach_target = e.interrupted = true;
    expect(&e, TM_VERDICT_NOT_JUDGED, "did not come within");
    e.validation = 1; /* below the entropy */
    expect(&e, TM_VERDICT_INVALID, "leaks");
    e.validation = 2.04;
    expect(&e, TM_VERDICT_VALID, "within");
}

/* The last few steps of a run that goes on show no progress of their own. */
static void a_run_that_goes_on_is_judged_as_a_whole(void **state)
{
    double losses[LOSSES];
    (void)state;
    tm_evidence  whole = evidence_of("synthetic", losses, 4, 3);
    tm_loss_head head = { 0 };
    while (head.n < tm_loss_head_limit(LOSSES - 2)) head = tm_loss_head_add(head, losses[head.n]);
    assert_true(head.n == 9 && head.mean > 3.9 && head.mean < 4 && head.deviation > 0);
    expect(&whole, TM_VERDICT_VALID, "fell");
    for (int64_t n = 1; n <= 20; n++) {
        tm_evidence e = whole;
        e.losses = losses + LOSSES - n;
        e.n_losses = n;
        if (n < 6)
            expect(&e, TM_VERDICT_INVALID, "no progress"); /* without the head: first and last are the same losses */
        e.head = head;
        expect(&e, TM_VERDICT_VALID, "fell");
        e.head.n = 4; /* too few to say anything */
        if (n < 6) expect(&e, TM_VERDICT_INVALID, "no progress");
        e.head.n = head.n;
        e.head.mean = 3.001;
        expect(&e, n < 5 ? TM_VERDICT_NOT_JUDGED : TM_VERDICT_INVALID, n < 5 ? "since the checkpoint" : "no progress");
    }
}

/* What was no training is invalid, however the losses look; but few steps are not judged at all. */
static void what_was_no_training_is_invalid(void **state)
{
    double losses[LOSSES];
    (void)state;
    tm_evidence e = evidence_of("synthetic", losses, 4, 2.01);
    e.validation = 2.01;
    expect(&e, TM_VERDICT_VALID, "within");
    e.unreal = "no weight has moved";
    expect(&e, TM_VERDICT_INVALID, "no weight has moved");
    e.gate = TM_GATE_UNIFORM;
    expect(&e, TM_VERDICT_INVALID, "no weight has moved");
    e = evidence_of("synthetic", losses, 4, 3);
    e.unreal = "no weight has moved";
    e.total_steps = 20;
    expect(&e, TM_VERDICT_NOT_JUDGED, "too few");
    e.validation = 2.04; /* reached: judged after any number of steps */
    expect(&e, TM_VERDICT_INVALID, "no weight has moved");
    e.must_reach_target = true;
    expect(&e, TM_VERDICT_INVALID, "no weight has moved");
}

/* A gap so wide that nothing has to be learnt: the floor is 2, single tokens give 3. */
static void a_gap_must_mean_something(void **state)
{
    double losses[LOSSES];
    (void)state;
    tm_evidence e = evidence_of("synthetic", losses, 4, 3.5);
    e.target_gap = 10;
    e.validation = 3.5;
    expect(&e, TM_VERDICT_INVALID, "not below what single tokens give, 3.0000");
    e.validation = 2.995;
    expect(&e, TM_VERDICT_INVALID, "not below what single tokens give");
    e.validation = 2.98;
    expect(&e, TM_VERDICT_VALID, "within 10 nat");
}

/* A planted slowdown makes no result, whatever was learnt; what is wrong stays wrong. */
static void slowed_down_on_purpose_is_not_judged(void **state)
{
    double losses[LOSSES];
    (void)state;
    tm_evidence e = evidence_of("synthetic", losses, 4, 3);
    e.slowdown_pct = 3;
    expect(&e, TM_VERDICT_NOT_JUDGED, "slowed down by 3 % on purpose (debug.slowdown_pct); loss fell");
    e.validation = 1; /* below the entropy */
    expect(&e, TM_VERDICT_INVALID, "slowed down by 3 % on purpose (debug.slowdown_pct); loss 1.0000 is below");
}

/* Pairs: the first loss is known, the loss falls, and that on pairs that are held out, too. */
static void preferences_hold_for_other_pairs(void **state)
{
    double losses[LOSSES];
    (void)state;
    tm_evidence e = evidence_of("preference", losses, 0.7, 0.4);
    e.start = 0.6931, e.first_loss = 0.6931;
    expect(&e, TM_VERDICT_VALID, "loss fell from 0.");
    e.validation = 0.69;
    expect(&e, TM_VERDICT_VALID, ", held-out 0.6900");
    e.validation = 0.6931; /* as without training */
    expect(&e, TM_VERDICT_INVALID, "held-out loss 0.6931, without training 0.6931: what was learned holds");
    e.start = nothing; /* what it would be is not known */
    expect(&e, TM_VERDICT_VALID, ", held-out 0.6931");
    e.validation = nothing;
    for (int sign = -1; sign < 2; sign += 2) {
        e.start = 4, e.first_loss = 4 + sign * 4.9e-5;
        expect(&e, TM_VERDICT_VALID, "loss fell");
        e.first_loss = 4 + sign * 5.1e-5;
        expect(&e, TM_VERDICT_INVALID, "wanted 4.000000: the model that begins is not what it is compared with");
    }
    e = evidence_of("preference", losses, 0.7, 0.7001);
    expect(&e, TM_VERDICT_INVALID, "no progress: the mean loss went from");
}

/* Losses that rise again after a checkpoint undo what was there before it; five losses of the beginning are enough to
 * tell, and 50 steps. */
static void what_rises_since_the_checkpoint_is_invalid(void **state)
{
    static const char *const sources[] = { "synthetic", "preference" };
    double                   losses[LOSSES];
    (void)state;
    for (int i = 0; i < 2; i++) {
        tm_evidence e = evidence_of(sources[i], losses, 2.9, 3.1);
        e.total_steps = 400;
        for (int64_t n = TM_JUDGED_STEPS - 1; n <= TM_JUDGED_STEPS; n++) {
            e.head = (tm_loss_head){ .mean = 4, .deviation = 0.1, .n = 5 };
            e.n_losses = n;
            if (n < TM_JUDGED_STEPS)
                expect(&e, TM_VERDICT_VALID, "fell");
            else
                expect(&e, TM_VERDICT_INVALID, "rose from 2.9");
        }
    }
}

/* How much one loss since the checkpoint scatters is not known: it is taken as that of the beginning. */
static void one_loss_scatters_as_the_first_ones(void **state)
{
    double losses[LOSSES];
    (void)state;
    tm_evidence e = evidence_of("synthetic", losses, 4, 3);
    e.total_steps = 400, e.n_losses = 1;
    e.head = (tm_loss_head){ .mean = 4, .deviation = 0.2, .n = 5 };
    const double error = sqrt(0.2 * 0.2 / 5 + 0.2 * 0.2 / 1);
    losses[0] = 4 - 3.01 * error;
    expect(&e, TM_VERDICT_VALID, "fell");
    losses[0] = 4 - 2.99 * error;
    expect(&e, TM_VERDICT_NOT_JUDGED, "");
}

/* The beginning of a run is its first tenth, of 5 to 100 losses; mean and deviation are those of all of them. */
static void the_beginning_is_a_tenth(void **state)
{
    static const int64_t steps[][2] = { { 0, 5 },      { 59, 5 },     { 60, 6 },      { 999, 99 },
                                        { 1000, 100 }, { 1010, 100 }, { 100000, 100 } };
    double               sum = 0, squares = 0;
    tm_loss_head         head = { 0 };
    (void)state;
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++)
        assert_int_equal(tm_loss_head_limit(steps[i][0]), steps[i][1]);
    for (int n = 1; n <= 9; n++) {
        const double loss = 4 - 0.3 * (n % 4);
        head = tm_loss_head_add(head, loss);
        sum += loss, squares += loss * loss;
        const double variance = n > 1 ? (squares - sum * sum / n) / (n - 1) : 0;
        assert_int_equal(head.n, n);
        assert_true(fabs(head.mean - sum / n) < 1e-12 && fabs(head.deviation * head.deviation - variance) < 1e-12);
    }
}

/* Where no certificate says what training losses are, and no sample comes twice, those that are held out do. */
static void losses_without_a_certificate_are_those_of_new_samples(void **state)
{
    double losses[LOSSES];
    (void)state;
    tm_evidence e = evidence_of("synthetic", losses, 4, 2.5);
    e.validation = 3.4, e.validation_error = 0.01;
    expect(&e, TM_VERDICT_VALID, "loss fell");
    e.unproven = true;
    expect(&e, TM_VERDICT_INVALID, "are far below the held-out loss, 3.4000");
    e.validation = 2.8; /* a tenth more than the last losses, and what they scatter */
    expect(&e, TM_VERDICT_VALID, "loss fell");
    e.validation = 2.2; /* dropout */
    expect(&e, TM_VERDICT_VALID, "loss fell");
    e.validation = 3.4, e.validation_floor = 2.5; /* of another length */
    expect(&e, TM_VERDICT_VALID, "loss fell");
    e.validation = nothing, e.validation_floor = 2;
    expect(&e, TM_VERDICT_VALID, "loss fell");
    for (int i = 0; i < LOSSES; i++) losses[i] += i % 2 ? 0.5 : -0.5; /* which scatter */
    e.validation = 3.4;
    expect(&e, TM_VERDICT_VALID, "loss fell");
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(losses_without_a_certificate_are_those_of_new_samples),
    cmocka_unit_test(preferences_hold_for_other_pairs),
    cmocka_unit_test(what_rises_since_the_checkpoint_is_invalid),
    cmocka_unit_test(one_loss_scatters_as_the_first_ones),
    cmocka_unit_test(the_beginning_is_a_tenth),
    cmocka_unit_test(numbers_that_are_not_finite_are_invalid),
    cmocka_unit_test(few_steps_are_not_judged),
    cmocka_unit_test(below_the_entropy_something_leaks),
    cmocka_unit_test(the_goal_is_the_entropy_and_the_gap),
    cmocka_unit_test(no_progress_is_invalid),
    cmocka_unit_test(mock_data_teach_ln_v_only),
    cmocka_unit_test(text_must_beat_its_single_tokens),
    cmocka_unit_test(images_must_beat_no_prediction),
    cmocka_unit_test(uneven_step_times_are_noisy),
    cmocka_unit_test(the_machine_must_have_been_there),
    cmocka_unit_test(reasons_have_room),
    cmocka_unit_test(steps_must_be_steady),
    cmocka_unit_test(too_good_to_be_true),
    cmocka_unit_test(nothing_is_faster_than_physics),
    cmocka_unit_test(numbers_that_cannot_be_compared_do_not_pass),
    cmocka_unit_test(an_interrupted_run_has_not_failed),
    cmocka_unit_test(a_run_that_goes_on_is_judged_as_a_whole),
    cmocka_unit_test(what_was_no_training_is_invalid),
    cmocka_unit_test(a_gap_must_mean_something),
    cmocka_unit_test(slowed_down_on_purpose_is_not_judged),
};

TM_TESTS(tests, NULL, NULL)
