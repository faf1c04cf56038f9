/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of runs, to the letter: for every gate some runs, and each of them with one piece of evidence another
 * one, at and around the values where the verdict turns. After a change that is meant: TM_RECORD=1
 * build/release/tests/train/test_whole_verdicts; git diff tests/train/whole-verdicts.txt
 */
#include "support/whole.h"
#include "train/verdict.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

enum { LOSSES = 120 };
static double losses[LOSSES];

/* Of 100 steps whose losses fall in a straight line, scattered a little. */
static void make(double from, double to, double scatter)
{
    for (int i = 0; i < LOSSES; i++)
        losses[i] = from + (to - from) * i / 99 + scatter * (i % 3 - 1) * (1 + 0.01 * (i % 7));
}

static tm_evidence start(tm_source_gate gate)
{
    const double none = (double)NAN;
    return (tm_evidence){ .gate = gate,
                          .losses = losses,
                          .n_losses = 100,
                          .total_steps = 100,
                          .finite = true,
                          .validation = none,
                          .validation_error = none,
                          .floor = 2,
                          .validation_floor = 2.25,
                          .unigram_entropy = 3,
                          .compressed = none,
                          .target_gap = 0.05,
                          .step_variation = 0.02,
                          .start = none,
                          .first_loss = 4 };
}

static int line_of(const char *text, const char *place)
{
    int line = 1;
    for (; text < place; text++) line += *text == '\n';
    return line;
}

/* Words that were said before, by the line where. */
static void say(tm_text *out, const char *what, double value, const tm_evidence *e)
{
    char reason[TM_REASON_BYTES];
    memset(reason, 'x', sizeof reason);
    tm_verdict verdict = tm_verdict_of(e, reason);
    assert_non_null(memchr(reason, 0, sizeof reason));
    char   *where = NULL;
    tm_text line = { 0 };
    tm_text_printf(&line, ": %s: %s\n", tm_verdict_name(verdict), reason);
    if (out->data) where = strstr(out->data, line.data);
    tm_text_printf(out, "  %s %.6g", what, value);
    where ? tm_text_printf(out, ": as in line %d\n", line_of(out->data, where)) : tm_text_add(out, line.data);
    tm_text_fini(&line);
}

#define EACH(member, ...)                                                                                              \
    do {                                                                                                               \
        static const double values_[] = { __VA_ARGS__ };                                                               \
        for (size_t i_ = 0; i_ < sizeof values_ / sizeof values_[0]; i_++) {                                           \
            tm_evidence own_ = *base;                                                                                  \
            own_.member = values_[i_];                                                                                 \
            say(out, #member, values_[i_], &own_);                                                                     \
        }                                                                                                              \
    } while (0)
#define EACH_WHOLE(member, ...)                                                                                        \
    do {                                                                                                               \
        static const int64_t values_[] = { __VA_ARGS__ };                                                              \
        for (size_t i_ = 0; i_ < sizeof values_ / sizeof values_[0]; i_++) {                                           \
            tm_evidence own_ = *base;                                                                                  \
            own_.member = values_[i_];                                                                                 \
            say(out, #member, (double)values_[i_], &own_);                                                             \
        }                                                                                                              \
    } while (0)

static void vary_steps(tm_text *out, const tm_evidence *base)
{
    static const tm_steady drifts[] = {
        { .reached = true, .drift = 5, .drift_lo = 4, .drift_hi = 6 },
        { .drift = (double)NAN, .shift = 9 },
        { .drift = 5, .drift_lo = 4, .drift_hi = 6 },
        { .drift = 1.5, .drift_lo = 2.01, .drift_hi = 3 },
        { .drift = 1.5, .drift_lo = 2, .drift_hi = 3 },
        { .drift = -1.5, .drift_lo = -3, .drift_hi = -2.01 },
        { .drift = -1.5, .drift_lo = -3, .drift_hi = -2 },
        { .drift = 5, .drift_lo = 4, .drift_hi = 6, .shift = 2.01, .shift_at = 7 },
        { .drift = 5, .drift_lo = 4, .drift_hi = 6, .shift = -3.25, .shift_at = 0 },
        { .drift = 0.5, .drift_lo = -1, .drift_hi = 1, .shift = 2 },
    };
    for (size_t i = 0; i < sizeof drifts / sizeof drifts[0]; i++) {
        tm_evidence e = *base;
        e.steady = &drifts[i];
        say(out, "steady", (double)i, &e);
        e.total_steps = 150;
        e.step_variation = 0.3;
        say(out, "steady, varied", (double)i, &e);
    }
    for (int i = 0; i < 6; i++) {
        tm_evidence e = *base;
        e.machine = i % 3 == 0 ? TM_VERDICT_VALID : i % 3 == 1 ? TM_VERDICT_NOISY : TM_VERDICT_INVALID;
        e.machine_reason = i < 3 ? "others compute" : NULL;
        e.step_variation = i == 1 ? 0.2 : 0.02;
        say(out, "machine", i, &e);
    }
    EACH(step_variation, 0.0999, 0.1, 0.1001, 0.55);
    EACH(slowdown_pct, 0, -1, 2.5);
}

static void vary(tm_text *out, const tm_evidence *base)
{
    tm_evidence e = *base;
    say(out, "as it is", 0, &e);
    EACH(validation, 0.5, 1.94, 1.96, 2.19, 2.21, 2.2999, 2.3, 2.3001, 2.98, 2.99, 2.9925, 2.9926, 3, 3.5, 4.5);
    EACH(floor, 1, 2.2, 2.6, 3.9, 4.5, (double)NAN);
    EACH(unigram_entropy, 1, 2, 2.4, 3.9, 4.2, (double)NAN);
    EACH(target_gap, 0, 0.1, 0.7, 5);
    EACH(compressed, 1, 14.9, 15.1, 20);
    EACH(start, 3.99, 4, 4.00004, 4.00006, 3.5);
    EACH_WHOLE(finite, 0);
    EACH_WHOLE(images, 1);
    EACH_WHOLE(must_reach_target, 1);
    EACH_WHOLE(interrupted, 1);
    EACH_WHOLE(total_steps, 0, 1, 4, 49, 50, 51);
    EACH_WHOLE(n_losses, 0, 1, 4, 5, 6, 9, 20, 49, 50, 51, 59, 60);
    e = *base, e.impossible = "more than the machine can do";
    say(out, "impossible", 0, &e);
    e = *base, e.unreal = "the losses are not real";
    say(out, "unreal", 0, &e);
    for (int64_t n = 3; n < 8; n++)
        for (int late = 0; late < 3; late++) {
            e = *base;
            e.head = (tm_loss_head){ .mean = 4 - 0.8 * late, .deviation = 0.05 * late, .n = n };
            e.total_steps = 400;
            e.n_losses = n == 7 ? 100 : n == 6 ? 50 : n == 5 ? 49 : 4;
            say(out, "head", (double)(10 * n + late), &e);
            e.interrupted = true;
            say(out, "head, interrupted", (double)(10 * n + late), &e);
        }
    e = *base, e.validation = 2.26, e.validation_error = 0.001;
    vary_steps(out, &e);
    for (int images = 0; images < 2; images++)
        for (int must = 0; must < 2; must++)
            for (int stopped = 0; stopped < 2; stopped++) {
                static const double finals[] = { 1.9, 2.24, 2.26, 2.31, 2.9, 3.2 };
                for (size_t i = 0; i < sizeof finals / sizeof finals[0]; i++) {
                    e = *base;
                    e.validation = finals[i], e.validation_error = 0.004;
                    e.images = images, e.must_reach_target = must, e.interrupted = stopped;
                    e.start = 3;
                    e.total_steps = e.n_losses = must ? 30 : 100;
                    say(out, "all", (double)(100 * images + 10 * must + stopped), &e);
                }
            }
}

static void verdicts_are_as_recorded(void **state)
{
    static const double runs[][3] = { { 4, 2.3, 0 },   { 4, 2.3, 0.3 }, { 4, 3.99, 0.001 },
                                      { 4, 3.9, 0.2 }, { 3.2, 3.3, 0 }, { 4, 2.02, 0.01 } };
    tm_text             out = { 0 };
    (void)state;
    for (int gate = TM_GATE_FLOOR; gate <= TM_GATE_PREFERENCE; gate++)
        for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
            tm_evidence e = start((tm_source_gate)gate);
            make(runs[i][0], runs[i][1], runs[i][2]);
            tm_text_printf(&out, "gate %d, from %g to %g, scattered %g\n", gate, runs[i][0], runs[i][1], runs[i][2]);
            vary(&out, &e);
        }
    for (int64_t steps = 0; steps < 2000; steps += 1 + steps / 3)
        tm_text_printf(&out, "head of %lld: %lld\n", (long long)steps, (long long)tm_loss_head_limit(steps));
    tm_loss_head head = { 0 };
    for (int i = 0; i < 9; i++) {
        head = tm_loss_head_add(head, 4 - 0.3 * (i % 4));
        tm_text_printf(&out, "head %.12g %.12g %lld\n", head.mean, head.deviation, (long long)head.n);
    }
    whole_is("tests/train/whole-verdicts.txt", &out);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(verdicts_are_as_recorded) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
