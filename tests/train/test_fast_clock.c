/* SPDX-License-Identifier: Apache-2.0 */
/* A run by a clock that goes wrong: while the steps are timed it shows a thousandth of the time that passes. The speed
 * is then one that the processor's arithmetic, measured by the same clock when it is right again, does not have.
 *
 * This file takes the place of base/clock.c in its program: it defines all that base/clock.h declares.
 */
#include "support/training.h"

#include "base/clock.h"
#include "train/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { STEPS = 60 };

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
    tm_run_options o = { .model_name = "small",
                         .steps = STEPS,
                         .learning_rate = 3e-3,
                         .max_norm = 1,
                         .seed = 77,
                         .prefetch = 2,
                         .checkpoint_load_step = -1,
                         .step = test_llama_options() };
    o.step.shape.vocab_size = 64;
    o.step.recompute.cheap = true;
    o.schedule = (tm_schedule){ .kind = TM_SCHEDULE_WARMUP_STABLE_DECAY,
                                .steps = STEPS,
                                .warmup_steps = 3,
                                .decay_ratio = -1,
                                .decay = TM_DECAY_COSINE };
    o.source = (tm_source_options){ .name = "mock", .vocab = 64, .seq = o.step.seq, .seed = o.seed };
    tm_device            *device = test_device_open("cpu", 1);
    tm_source            *source;
    tm_error              err = { 0 };
    volatile sig_atomic_t stop = 0;
    *l = (listener){ .sink = { .handle = listen }, .planted = planted };
    if (tm_source_open(&o.source, &source, &err) != TM_OK) fail_msg("%s", err.text);
    tm_event_bus bus = { .sinks = (tm_sink *[]){ &l->sink }, .count = 1 };
    tm_status    st = tm_run(&o, device, source, &bus, &stop, &err);
    tm_source_close(source);
    tm_device_close(device);
    return st;
}

static void the_planted_clock_is_noticed(void **state)
{
    (void)state;
    listener l;
    assert_int_equal(run(1, &l), TM_OK);
    assert_null(strstr(l.reason, "the fastest step"));
    assert_int_equal(run(1000, &l), TM_NUMBERS);
    assert_int_equal(l.verdict, TM_VERDICT_INVALID);
    assert_non_null(strstr(l.reason, "the fastest step took "));
    assert_non_null(strstr(l.reason, "FLOP cannot be done in less than "));
}

int main(int argc, char **argv)
{
    (void)argc;
    test_threads_sleep(argv);
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_planted_clock_is_noticed) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
