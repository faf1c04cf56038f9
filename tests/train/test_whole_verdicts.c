/* SPDX-License-Identifier: Apache-2.0 */
/* What is said of runs, to the letter: for every gate some runs, and each of them with one piece of evidence another
 * one, at and around the values where the verdict turns. After a change that is meant: TM_RECORD=1
 * build/release/tests/train/test_whole_verdicts; git diff tests/train/whole-verdicts.txt
 */
#include "support/whole.h"
#include "train/run/verdict.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "support/test.h"

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
    tm_text line = { 0 };
    tm_text_printf(&line, ": %s: %s\n", tm_verdict_name(verdict), reason);
    const char *where = out->data ? strstr(out->data, line.data) : NULL;
    const int   number = where ? line_of(out->data, where) : 0; /* before the text moves */
    tm_text_printf(out, "  %s %.6g", what, value);
    number ? tm_text_printf(out, ": as in line %d\n", number) : tm_text_add(out, line.data);
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

/* Runs that go on: losses that rise since the checkpoint and scatter, and very few of them. */
static void vary_heads(tm_text *out)
{
    static const double scatters[] = { 0.03, 0.05, 0.06, 0.065, 0.07, 0.075, 0.08, 0.09, 0.1, 0.12 };
    for (int gate = TM_GATE_FLOOR; gate <= TM_GATE_PREFERENCE; gate += TM_GATE_PREFERENCE - TM_GATE_FLOOR)
        for (int64_t n = 4; n <= 6; n++) {
            tm_evidence e = start((tm_source_gate)gate);
            e.total_steps = 400;
            e.head = (tm_loss_head){ .mean = 4, .deviation = 0.1, .n = n };
            for (size_t i = 0; i < sizeof scatters / sizeof scatters[0]; i++) {
                make(3.2, 3.3, scatters[i]);
                say(out, "risen", scatters[i], &e);
            }
            make(3.2, 3.4, 0.01);
            for (e.n_losses = 49; e.n_losses <= 50; e.n_losses++) say(out, "risen", (double)e.n_losses, &e);
            make(3.2, 3.2, 0.01);
            for (e.n_losses = 1; e.n_losses <= 6; e.n_losses++)
                for (int scatter = 1; scatter <= 3; scatter++) {
                    e.head.deviation = 0.2 * scatter;
                    say(out, "few", (double)(10 * e.n_losses + scatter), &e);
                }
        }
    make(4, 2.3, 0);
    tm_evidence begun = start(TM_GATE_PREFERENCE);
    for (int i = -13; i <= 13; i++) {
        begun.start = 4 + 5e-6 * i;
        say(out, "begun", 5e-6 * i, &begun);
    }
}

/* One loss since the checkpoint: the mean of the last ones, to the bit. */
static void vary_edge(tm_text *out, tm_source_gate gate, double first, double deviation, double last, double validation)
{
    tm_evidence e = start(gate);
    e.total_steps = 400;
    e.n_losses = 1;
    e.head = (tm_loss_head){ .mean = first, .deviation = deviation, .n = 5 };
    losses[0] = last;
    e.validation = validation;
    e.start = gate == TM_GATE_PREFERENCE ? 4 : (double)NAN;
    e.unigram_entropy = gate == TM_GATE_UNIFORM ? 20 : 3;
    e.compressed = gate == TM_GATE_HELD_OUT ? 5 : (double)NAN;
    say(out, "edge", last, &e);
    e.target_gap = 1;
    say(out, "edge, wide gap", last, &e);
}

/* Where two numbers are equal. */
static void vary_edges(tm_text *out)
{
    const double none = (double)NAN, error = sqrt(0.2 * 0.2 / 5 + 0.2 * 0.2 / 1);
    vary_edge(out, TM_GATE_FLOOR, 4, 0, 4 - 0.01 * (4 - 2), none);
    vary_edge(out, TM_GATE_FLOOR, 4, 0, 3.97, none);
    vary_edge(out, TM_GATE_FLOOR, 4, 0.2, 4 - 3 * error, none);
    vary_edge(out, TM_GATE_FLOOR, 4, 0, 3, 2.25 - 5 * 0.01);
    vary_edge(out, TM_GATE_FLOOR, 4, 0, 3, 2.205);
    vary_edge(out, TM_GATE_FLOOR, 4, 0, 3, 2.25 + 0.99 * (3 - 2.25));
    vary_edge(out, TM_GATE_FLOOR, 4, 0, 3, 3.25);
    vary_edge(out, TM_GATE_UNIFORM, 20.5, 0, 21, none);
    vary_edge(out, TM_GATE_UNIFORM, 20.5, 0, 19, none);
    vary_edge(out, TM_GATE_UNIFORM, 22, 0, 22, none);
    vary_edge(out, TM_GATE_HELD_OUT, 4, 0, 3, 1);
    vary_edge(out, TM_GATE_HELD_OUT, 4, 0, 3, 3);
    vary_edge(out, TM_GATE_PREFERENCE, 4, 0.2, 4 - 3 * error, none);
    vary_edge(out, TM_GATE_PREFERENCE, 4, 0, 3, 4);
    static const double entropies[] = { 2, 2.25, 2.5, 3.5 }, finals[] = { 2.25, 2.497, 2.4976, 3, 3.2 };
    tm_evidence         e = start(TM_GATE_FLOOR);
    make(4, 2.3, 0);
    e.target_gap = 1;
    for (int i = 0; i < 20; i++) {
        e.unigram_entropy = entropies[i / 5], e.validation = finals[i % 5];
        say(out, "entropy", e.unigram_entropy, &e);
    }
    e = start(TM_GATE_FLOOR);
    e.head = (tm_loss_head){ .mean = 4, .deviation = 0.1, .n = 5 };
    make(3.2, 3.2, 0);
    say(out, "flat", 0, &e);
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
    tm_text_add(&out, "runs that go on\n");
    vary_heads(&out);
    vary_edges(&out);
    for (int64_t steps = 0; steps < 2000; steps += 1 + steps / 3)
        tm_text_printf(&out, "head of %lld: %lld\n", (long long)steps, (long long)tm_loss_head_limit(steps));
    tm_loss_head head = { 0 };
    for (int i = 0; i < 9; i++) {
        head = tm_loss_head_add(head, 4 - 0.3 * (i % 4));
        tm_text_printf(&out, "head %.12g %.12g %lld\n", head.mean, head.deviation, (long long)head.n);
    }
    whole_is("tests/train/whole-verdicts.txt", &out);
}

static const struct CMUnitTest tests[] = { cmocka_unit_test(verdicts_are_as_recorded) };

TM_TESTS(tests, NULL, NULL)
