/* SPDX-License-Identifier: Apache-2.0 */
/* A run by a clock that goes wrong: while the steps are timed it shows a thousandth of the time that passes. The speed
 * is then one that the processor's arithmetic, measured by the same clock when it is right again, does not have.
 * A run by a clock that only goes on when it is read: what belongs to a step is then known to the reading.
 *
 * This file takes the place of base/clock.c in its program: it defines all that base/clock.h declares.
 */
#include "support/test.h"
#include "support/folder.h"
#include "run_fixture.h"

#include "base/clock.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { STEPS = 50 }; /* the fewest that are judged */

static int64_t slowness = 1; /* real time per shown time */
static int64_t real_since, shown_since;

static int64_t real_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Readings of the thread that trains, each 10 us after the one before it; 0: the clock is another. From reading number
 * last_reading of a step on it is back_ns earlier. */
enum { READING_NS = 10000, BEGIN_NS = 2000000000 };
static _Thread_local bool trains;
static _Atomic int64_t    counted_ns;
static int64_t            readings, last_reading, back_ns;

static int64_t counted_now(void)
{
    if (!trains) return counted_ns;
    if (++readings == last_reading) counted_ns -= back_ns;
    return counted_ns += READING_NS;
}

int64_t tm_now_ns(void)
{
    if (counted_ns) return counted_now();
    return shown_since + (real_ns() - real_since) / slowness;
}

static void set_slowness(int64_t value)
{
    shown_since = tm_now_ns();
    real_since = real_ns();
    slowness = value;
}

int64_t tm_thread_delayed_ns(void)
{
    return 0;
}

int64_t tm_wall_ms(void)
{
    return (int64_t)time(NULL) * 1000;
}

int64_t tm_process_age_ns(void)
{
    return 1;
}

char *tm_wall_text(char out[32])
{
    strcpy(out, "2026-01-31T12:00:00Z");
    return out;
}

typedef struct {
    tm_sink    sink;
    int64_t    planted;
    tm_verdict verdict;
    char       reason[TM_REASON_BYTES];
} listener;

static void listen(tm_sink *sink, const tm_event *event)
{
    listener *l = (listener *)sink;
    if (event->kind == TM_EVENT_RUN_STARTED) set_slowness(l->planted);
    if (event->kind == TM_EVENT_STEP_DONE && event->step_done.step == STEPS) set_slowness(1);
    if (event->kind != TM_EVENT_RUN_ENDED) return;
    l->verdict = event->run_ended.verdict;
    snprintf(l->reason, sizeof l->reason, "%s", event->run_ended.reason);
}

static tm_run_options options_of(void)
{
    tm_run_options o = small_run("mock", STEPS);
    o.learning_rate = 3e-3;
    o.target_gap = 0;
    o.checkpoint_interval = 0;
    o.step.recompute.cheap = true;
    o.schedule.decay = TM_DECAY_COSINE;
    return o;
}

static tm_status run_options(const tm_run_options *o, tm_sink *sink)
{
    tm_error  err;
    tm_status st = run_small(o, "cpu", 1, sink, NULL, &err);
    if (st != TM_OK && err.status != TM_NUMBERS) fail_msg("%s", err.text);
    return st;
}

static tm_status run(int64_t planted, listener *l)
{
    tm_run_options o = options_of();
    *l = (listener){ .sink = { .handle = listen }, .planted = planted };
    return run_options(&o, &l->sink);
}

TEST(the_planted_clock_is_noticed)
{
    listener l;
    assert_int_equal(run(1, &l), TM_OK);
    assert_null(strstr(l.reason, "the fastest step"));
    assert_int_equal(run(1000, &l), TM_NUMBERS);
    assert_int_equal(l.verdict, TM_VERDICT_INVALID);
    assert_non_null(strstr(l.reason, "the fastest step took "));
    assert_non_null(strstr(l.reason, "FLOP cannot be done in less than "));
}

static const double READING = 1e-5;

/* What steps took in readings, but for the lines of the device. */
typedef struct {
    tm_sink sink;
    tm_text told;
    double  all, phases, first, least; /* of all steps; without what no phase says */
    bool    behind;                    /* who writes behind is done at any step: none is slow */
    char    line[200], reason[TM_REASON_BYTES];
} times;

static bool is_own(const char *name)
{
    static const char *const own[] = { "logging", "data", "unaccounted" };
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strcmp(name, own[i]) == 0) return true;
    return false;
}

/* The step, and what it took if that is not what the one before it took. */
static void note_step(times *t, const tm_step_done *s)
{
    char    line[sizeof t->line];
    double  others = 0, slowdown = 0;
    tm_text own = { 0 };
    t->all += s->seconds;
    if (s->step == 1) t->first = t->least = s->seconds;
    if (s->seconds < t->least) t->least = s->seconds;
    for (size_t i = 0; i < s->n_phases; i++) {
        const double value = s->phases[i].value;
        if (i + 1 < s->n_phases) t->phases += value;
        if (strcmp(s->phases[i].name, "injected slowdown") == 0)
            slowdown = value;
        else if (is_own(s->phases[i].name))
            tm_text_printf(&own, " %s %.6g", s->phases[i].name, value / READING);
        else
            others += value;
    }
    if (slowdown > 0) tm_text_printf(&own, ", slower by %.1f", slowdown / (s->seconds - slowdown));
    snprintf(line, sizeof line, "%s of %.6g", own.data, (s->seconds - others - slowdown) / READING);
    if (t->behind) snprintf(line, sizeof line, s->seconds - others < 20 * READING ? " quick" : " slow");
    if (strcmp(line, t->line) != 0) tm_text_printf(&t->told, "%lld%s\n", (long long)s->step, line);
    memcpy(t->line, line, sizeof line);
    tm_text_fini(&own);
    if (t->behind) nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    if (s->step > 2) last_reading = readings; /* as many as in the next one */
    readings = 0;
}

static void note_times(tm_sink *sink, const tm_event *event)
{
    times *t = (times *)sink;
    if (event->kind == TM_EVENT_STEP_DONE) note_step(t, &event->step_done);
    if (event->kind == TM_EVENT_EVALUATION)
        tm_text_printf(&t->told, "evaluation %.0f\n", event->evaluation.seconds / READING);
    if (event->kind == TM_EVENT_CHECKPOINT && !t->behind)
        tm_text_printf(&t->told, "checkpoint %.0f\n", event->checkpoint.seconds / READING);
    if (event->kind == TM_EVENT_LOOK) tm_text_printf(&t->told, "look %.0f\n", event->look.seconds / READING);
    if (event->kind != TM_EVENT_RUN_ENDED) return;
    tm_text_printf(&t->told, "%s, first step after %g", event->run_ended.stopped, event->run_ended.first_step_seconds);
    snprintf(t->reason, sizeof t->reason, "%s", event->run_ended.reason);
}

static times run_counted(const tm_run_options *o)
{
    times t = { .sink = { .handle = note_times }, .behind = o->checkpoint_behind };
    trains = true;
    counted_ns = BEGIN_NS;
    readings = last_reading = 0;
    run_options(o, &t.sink);
    counted_ns = back_ns = 0;
    return t;
}

static void saves(tm_run_options *o)
{
    o->checkpoint = true, o->checkpoint_folder = test_in_folder("checkpoint"), o->checkpoint_interval = 2;
    o->checkpoint_keep = 1;
}

static void saves_behind(tm_run_options *o)
{
    saves(o);
    o->checkpoint_folder = test_in_folder("behind");
    o->checkpoint_behind = true;
}

static void evaluates(tm_run_options *o)
{
    o->validate = true, o->validation_freq = 2, o->validation_steps = 1;
}

static void looks(tm_run_options *o)
{
    o->microscope = 2, o->microscope_bound = 1, o->step.compared = &tm_precision_f32;
}

static void is_slow(tm_run_options *o)
{
    o->slowdown_pct = 50;
}

static void knows_its_speed(tm_run_options *o)
{
    o->target_half_width = 0.5;
    o->steps = 60;
}

static void certifies(tm_run_options *o)
{
    o->certify = true;
    o->steps = 60;
}

static void plain(tm_run_options *o)
{
    (void)o;
}

TEST(a_step_is_what_is_read_in_it)
{
    static const struct {
        void (*make)(tm_run_options *);
        const char *told;
    } cases[] = { { plain, "1 logging 1 data 1 unaccounted 5 of 7\n"
                           "2 logging 6 data 1 unaccounted 5 of 12\n"
                           "3 logging 4 data 1 unaccounted 5 of 10\n"
                           "all steps done, first step after 1e-09" },
                  { saves, "1 logging 1 data 1 unaccounted 5 of 7\n"
                           "2 logging 6 data 1 unaccounted 5 of 12\n"
                           "checkpoint 2\n"
                           "3 logging 1 data 1 unaccounted 5 of 7\n"
                           "4 logging 4 data 1 unaccounted 5 of 10\n"
                           "checkpoint 2\n"
                           "5 logging 1 data 1 unaccounted 5 of 7\n"
                           "6 logging 4 data 1 unaccounted 5 of 10\n"
                           "checkpoint 2\n"
                           "all steps done, first step after 1e-09" },
                  { saves, "all steps done, first step after 0" }, /* by the checkpoint of the case before */
                  { saves_behind, "1 quick\n"
                                  "all steps done, first step after 1e-09" },
                  { evaluates, "1 logging 1 data 1 unaccounted 5 of 7\n"
                               "2 logging 6 data 1 unaccounted 5 of 12\n"
                               "evaluation 1\n"
                               "3 logging 1 data 1 unaccounted 5 of 7\n"
                               "4 logging 4 data 1 unaccounted 5 of 10\n"
                               "evaluation 1\n"
                               "5 logging 1 data 1 unaccounted 5 of 7\n"
                               "6 logging 4 data 1 unaccounted 5 of 10\n"
                               "evaluation 1\n"
                               "all steps done, first step after 1e-09" },
                  { looks, "1 logging 1 data 1 unaccounted 5 of 7\n"
                           "look 1\n"
                           "2 logging 6 data 1 unaccounted 5 of 12\n"
                           "3 logging 4 data 1 unaccounted 5 of 10\n"
                           "look 1\n"
                           "look 1\n"
                           "all steps done, first step after 1e-09" },
                  { is_slow, "1 logging 1 data 1 unaccounted 6, slower by 0.5 of 8\n"
                             "2 logging 6 data 1 unaccounted 6, slower by 0.5 of 13\n"
                             "3 logging 4 data 1 unaccounted 6, slower by 0.5 of 11\n"
                             "all steps done, first step after 1e-09" },
                  { knows_its_speed, "1 logging 1 data 1 unaccounted 5 of 7\n"
                                     "2 logging 7 data 1 unaccounted 5 of 13\n"
                                     "3 logging 5 data 1 unaccounted 5 of 11\n"
                                     "all steps done, first step after 1e-09" },
                  /* the certificates of the first update, the data and another update read the clock, too */
                  { certifies, "1 logging 1 data 2 unaccounted 11 of 14\n"
                               "2 logging 6 data 2 unaccounted 6 of 14\n"
                               "3 logging 4 data 2 unaccounted 6 of 12\n"
                               "6 logging 4 data 2 unaccounted 8 of 14\n"
                               "7 logging 4 data 2 unaccounted 6 of 12\n"
                               "all steps done, first step after 1e-09" } };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_run_options o = options_of();
        o.peaks.flops = 1e15;
        o.steps = o.schedule.steps = 6;
        cases[i].make(&o);
        times t = run_counted(&o);
        assert_string_equal(t.told.data, cases[i].told);
        assert_null(strstr(t.reason, "the fastest step"));
        tm_text_fini(&t.told);
    }
}

/* Phases that are longer than their steps are no measurement. */
TEST(phases_that_are_longer_than_steps)
{
    char           reason[200];
    tm_run_options o = options_of();
    o.peaks.flops = 1e15;
    back_ns = 10 * READING_NS;
    times t = run_counted(&o);
    snprintf(reason, sizeof reason, "the phases of the steps take %.4g s together, the steps %.4g s", t.phases, t.all);
    assert_string_equal(t.reason, reason);
    tm_text_fini(&t.told);
}

/* Be it any of them. */
TEST(the_fastest_step_is_told)
{
    char           reason[200];
    tm_run_options o = options_of();
    o.peaks.flops = 1;
    o.steps = o.schedule.steps = 6;
    back_ns = 10 * READING_NS;
    times t = run_counted(&o);
    snprintf(reason, sizeof reason, "the fastest step took %.4g s, but", t.least);
    if (!(t.least < t.first) || !strstr(t.reason, reason)) fail_msg("%s: %s", reason, t.reason);
    tm_text_fini(&t.told);
}

TESTS_ALONE
