/* SPDX-License-Identifier: Apache-2.0 */
/* The rules of timing: how often a call is made, in which order, when it ends. The calls sleep or count, so that no
 * busy machine can break the tests: nothing is asserted about how fast anything is. */
#include <math.h>

#include "support/test.h"

#include "base/clock.h"
#include "bench/timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LOG = 1 << 16 };

typedef struct {
    int     *log; /* who was called, in order */
    int64_t *n;
    int      me;
    int64_t  calls, next; /* next: the turn that must come */
    int64_t  sleep_ns;
    bool     in_order;
} counter;

static void count(void *context, int64_t turn)
{
    counter *c = context;
    if (turn != c->next++) c->in_order = false;
    c->calls++;
    if (*c->n < LOG) c->log[(*c->n)++] = c->me;
    if (c->sleep_ns) nanosleep(&(struct timespec){ .tv_nsec = c->sleep_ns }, NULL);
}

typedef struct {
    int        log[LOG];
    int64_t    n;
    counter    counters[3];
    tm_timed   timed[3];
    tm_samples samples[3];
} bed;

static bed *make(int64_t sleep_ns)
{
    bed *b = calloc(1, sizeof *b);
    for (int i = 0; i < 3; i++) {
        b->counters[i] = (counter){ .log = b->log, .n = &b->n, .me = i, .sleep_ns = sleep_ns, .in_order = true };
        b->timed[i] = (tm_timed){ count, &b->counters[i] };
    }
    return b;
}

static void drop(bed *b)
{
    for (int i = 0; i < 3; i++) tm_samples_fini(&b->samples[i]);
    free(b);
}

/* What another clock says of `count`: 3 ms for each call; which fails at the call `sleep_ns`, if it is not 0. */
static tm_status count_series(void *context, int64_t turn, int64_t calls, double *seconds, tm_error *err)
{
    counter *c = context;
    int64_t  fails = c->sleep_ns;
    c->sleep_ns = 0;
    for (int64_t i = 0; i < calls; i++) count(c, turn + i);
    c->sleep_ns = fails;
    *seconds = 3e-3 * (double)calls;
    return fails && c->calls >= fails ? tm_fail(err, TM_DEVICE, "it is gone") : TM_OK;
}

static tm_timing plain(void)
{
    return (tm_timing){ .warmup_ms = 0, .rep_ms = 0, .min_samples = 3, .end_ns = INT64_MAX, .threads = 1 };
}

/* Another clock counts, in coarse steps; what fails ends it, and the round in which it does is left out. */
TEST(a_clock_of_ones_own)
{
    bed      *b = make(0);
    tm_error  err = { 0 };
    tm_timing t = plain();
    t.series = count_series;
    t.tick_ns = 12000; /* samples of 12 ms and a quarter: 5 calls */
    assert_int_equal(tm_time(&t, b->timed, 2, b->samples, &err), TM_OK);
    for (int i = 0; i < 2; i++) {
        assert_true(b->samples[i].n == 3 && b->samples[i].loops == 5 && b->samples[i].warmup == 1);
        assert_true(b->counters[i].calls == 16 && b->counters[i].in_order);
        for (int k = 0; k < 3; k++) assert_true(fabs(b->samples[i].seconds[k] - 3e-3) < 1e-15);
    }
    drop(b);
    b = make(0);
    b->counters[1].sleep_ns = 8; /* in its second sample */
    assert_int_equal(tm_time(&t, b->timed, 2, b->samples, &err), TM_DEVICE);
    assert_string_equal(err.text, "it is gone");
    assert_true(b->samples[0].n == 1 && b->samples[1].n == 1 && b->counters[1].calls == 11);
    drop(b);
}

TEST(the_least_number_of_samples_is_taken)
{
    bed      *b = make(1000000);
    tm_error  err = { 0 };
    tm_timing t = plain();
    assert_int_equal(tm_time(&t, b->timed, 1, b->samples, &err), TM_OK);
    assert_int_equal(b->samples[0].n, 3);
    assert_int_equal(b->samples[0].warmup, 1);
    assert_int_equal(b->samples[0].loops, 1);
    assert_int_equal(b->samples[0].stop, TM_STOP_SAMPLES);
    assert_int_equal(b->counters[0].calls, 4);
    assert_true(b->counters[0].in_order);
    for (int i = 0; i < 3; i++) assert_true(b->samples[0].seconds[i] >= 1e-3);
    drop(b);
}

/* Milliseconds become counts: 30 ms of calls that take 5 ms or more are at most 6 calls and a first one. */
TEST(milliseconds_become_counts)
{
    bed      *b = make(5000000);
    tm_error  err = { 0 };
    tm_timing t = plain();
    t.warmup_ms = 10;
    t.rep_ms = 30;
    assert_int_equal(tm_time(&t, b->timed, 1, b->samples, &err), TM_OK);
    assert_in_range(b->samples[0].warmup, 1, 2);
    assert_in_range(b->samples[0].n, 3, 6);
    assert_int_equal(b->counters[0].calls, b->samples[0].warmup + b->samples[0].n);
    assert_true(b->samples[0].estimate >= 5e-3);
    drop(b);
}

/* A call that takes no time is made so often per sample that a thousand ticks pass. */
TEST(short_calls_are_looped)
{
    bed      *b = make(0);
    tm_error  err = { 0 };
    tm_timing t = plain();
    int64_t   tick = tm_clock_tick_ns();
    assert_true(tick >= 1);
    t.warmup_ms = 1;
    assert_int_equal(tm_time(&t, b->timed, 1, b->samples, &err), TM_OK);
    assert_true(b->samples[0].loops > 10);
    assert_int_equal(b->counters[0].calls, b->samples[0].warmup + b->samples[0].n * b->samples[0].loops);
    assert_true((double)b->samples[0].loops * b->samples[0].estimate * 1e9 >= 1000. * (double)tick / 2);
    assert_true(b->counters[0].in_order);
    drop(b);
}

TEST(candidates_take_turns)
{
    bed      *b = make(200000);
    tm_error  err = { 0 };
    tm_timing t = plain();
    t.min_samples = 6;
    assert_int_equal(tm_time(&t, b->timed, 3, b->samples, &err), TM_OK);
    static const int wanted[] = { 0, 1, 2, 2, 1, 0, 0, 1, 2, 2, 1, 0 };
    for (int i = 0; i < 3; i++) assert_int_equal(b->samples[i].n, 6);
    for (int i = 0; i < 12; i++) assert_int_equal(b->log[3 + i], wanted[i]); /* behind the first call of each */
    drop(b);
}

TEST(settling_makes_a_call_that_does_not_count)
{
    bed      *b = make(30000000); /* longer than a turn: one sample each */
    tm_error  err = { 0 };
    tm_timing t = plain();
    t.settle = true;
    assert_int_equal(tm_time(&t, b->timed, 2, b->samples, &err), TM_OK);
    assert_int_equal(b->samples[0].n, 3);
    assert_int_equal(b->counters[0].calls, 1 + 2 * 3);
    drop(b);
}

TEST(duration_and_budget_end_it)
{
    tm_error  err = { 0 };
    tm_timing t = plain();
    t.duration_s = 0.05;
    bed    *b = make(2000000);
    int64_t start = tm_now_ns();
    assert_int_equal(tm_time(&t, b->timed, 1, b->samples, &err), TM_OK);
    assert_int_equal(b->samples[0].stop, TM_STOP_SECONDS);
    assert_true(tm_now_ns() - start >= 50000000);
    assert_in_range(b->samples[0].n, 3, 25);
    drop(b);

    b = make(1000);
    t.duration_s = 1e-9; /* too short for the least number of samples */
    assert_int_equal(tm_time(&t, b->timed, 1, b->samples, &err), TM_OK);
    assert_int_equal(b->samples[0].n, 3);
    drop(b);

    b = make(20000000);
    t.duration_s = 100;
    t.end_ns = tm_now_ns() + 100000000;
    assert_int_equal(tm_time(&t, b->timed, 1, b->samples, &err), TM_OK);
    assert_int_equal(b->samples[0].stop, TM_STOP_NO);
    assert_in_range(b->samples[0].n, 0, 5);
    drop(b);

    b = make(1000);
    t.end_ns = tm_now_ns() - 1;
    assert_int_equal(tm_time(&t, b->timed, 2, b->samples, &err), TM_OK);
    assert_int_equal(b->samples[0].n, 0);
    assert_int_equal(b->counters[0].calls, 0);
    drop(b);
}

static volatile sig_atomic_t stop_now;

static void stop_at_ten(void *context, int64_t turn)
{
    count(context, turn);
    if (turn == 10) stop_now = 1;
}

TEST(a_user_can_stop_it)
{
    bed      *b = make(100000);
    tm_error  err = { 0 };
    tm_timing t = plain();
    t.duration_s = 100;
    t.stop = &stop_now;
    b->timed[0].call = stop_at_ten;
    assert_int_equal(tm_time(&t, b->timed, 1, b->samples, &err), TM_INTERRUPTED);
    assert_in_range(b->samples[0].n, 1, 10);
    drop(b);
}

TEST(precision_ends_it_earlier_or_later)
{
    tm_error  err = { 0 };
    tm_timing t = plain();
    t.rep_ms = 20;
    t.precision = 1; /* 100 %: met as soon as there is an interval and no drift */
    bed *b = make(1000000);
    assert_int_equal(tm_time(&t, b->timed, 1, b->samples, &err), TM_OK);
    assert_int_equal(b->samples[0].stop, TM_STOP_PRECISE);
    drop(b);

    t.precision = 1e-12; /* never met: ten times rep_ms */
    b = make(1000000);
    assert_int_equal(tm_time(&t, b->timed, 1, b->samples, &err), TM_OK);
    assert_int_equal(b->samples[0].stop, TM_STOP_SECONDS);
    double sum = 0;
    for (int64_t i = 0; i < b->samples[0].n; i++) sum += b->samples[0].seconds[i];
    assert_true(sum >= 0.2 && sum - b->samples[0].seconds[b->samples[0].n - 1] < 0.2);
    drop(b);
}

/* The cache is overwritten between samples, outside of them: a sample of a call that sleeps 1 ms holds no more. */
TEST(the_cold_cache_is_not_timed)
{
    tm_error  err = { 0 };
    tm_timing t = plain();
    t.cold = true;
    bed    *b = make(1000);
    int64_t start = tm_now_ns();
    t.min_samples = 20;
    assert_int_equal(tm_time(&t, b->timed, 1, b->samples, &err), TM_OK);
    double wall = (double)(tm_now_ns() - start) * 1e-9, timed = 20 * b->samples[0].seconds[0];
    for (int64_t i = 1; i < b->samples[0].n; i++) timed = fmin(timed, 20 * b->samples[0].seconds[i]);
    timed *= (double)b->samples[0].loops;
    printf("# 20 times the shortest sample: %.3g s of %.3g s\n", timed, wall);
    assert_true(timed < 0.8 * wall); /* overwriting takes at least as long as these calls */
    drop(b);
}

TEST(operands_rotate_through_twice_the_cache)
{
    bool    known;
    int64_t cache = tm_last_level_bytes(&known);
    assert_true(cache > 0);
    for (int64_t bytes = 1000; bytes < (int64_t)1 << 33; bytes *= 7) {
        assert_true(tm_rotation(bytes) * bytes > 2 * cache && tm_rotation(bytes) >= 2);
        assert_true(tm_rotation(bytes) == 2 || (tm_rotation(bytes) - 1) * bytes <= 2 * cache);
    }
}
