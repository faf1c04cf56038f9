/* SPDX-License-Identifier: Apache-2.0 */
/* A run by a clock that goes wrong: while the steps are timed it shows a thousandth of the time that passes. The speed
 * is then one that the processor's arithmetic, measured by the same clock when it is right again, does not have.
 *
 * This file takes the place of base/clock.c in its program: it defines all that base/clock.h declares.
 */
#include "support/test.h"
#include "run_fixture.h"

#include "base/clock.h"

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

int64_t tm_now_ns(void)
{
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

static tm_status run(int64_t planted, listener *l)
{
    tm_run_options o = small_run("mock", STEPS);
    tm_error       err;
    *l = (listener){ .sink = { .handle = listen }, .planted = planted };
    tm_status st = run_small(&o, "cpu", 1, &l->sink, NULL, &err);
    if (st != TM_OK && err.status != TM_NUMBERS) fail_msg("%s", err.text);
    return st;
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

TESTS_ALONE
