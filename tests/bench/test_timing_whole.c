/* SPDX-License-Identifier: Apache-2.0 */
/* How calls of given lengths are timed, to the nanosecond, by a clock that only they move: which call is made when,
 * every sample, and why it ends (tests/golden/whole-timing.txt). */
#include "base/clock.h"
#include "base/cpu.h"
#include "bench/timing.h"
#include "support/fake_clock.h"
#include "support/whole.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

enum { READ_NS = 10, SHORTEST_NS = READ_NS * TM_LEAST_TICKS, MOST = 3 };

static volatile sig_atomic_t stop_now;

/* A call that takes `ns` nanoseconds, in turn. */
typedef struct {
    const int64_t *ns;
    int64_t        n, calls;
    int            me;
    int64_t        stop_at; /* the call that sets stop_now; 0: none */
    tm_text       *log;
    int64_t        first, last; /* turns in a row that are not told yet; first < 0: none */
} caller;

static caller callers[MOST];

/* "A0-4": calls 0 to 4. */
static void tell_calls(caller *c)
{
    if (c->first < 0) return;
    tm_text_printf(c->log, " %c%lld", 'A' + c->me, (long long)c->first);
    if (c->last > c->first) tm_text_printf(c->log, "-%lld", (long long)c->last);
    c->first = -1;
}

static void call(void *context, int64_t turn)
{
    caller *c = context;
    for (int i = 0; i < MOST; i++)
        if (&callers[i] != c) tell_calls(&callers[i]);
    if (c->first >= 0 && turn != c->last + 1) tell_calls(c);
    if (c->first < 0) c->first = turn;
    c->last = turn;
    fake_clock_pass(c->ns[c->calls++ % c->n]);
    if (c->calls == c->stop_at) stop_now = 1;
}

static void tell_samples(const tm_samples *s, tm_text *out)
{
    double sum = 0;
    for (int64_t i = 0; i < s->n; i++) sum += s->seconds[i];
    tm_text_printf(out,
                   "  n %lld, warmup %lld, loops %lld, estimate %.9g, stop %d, %s (%.*s), sum %.12g:", (long long)s->n,
                   (long long)s->warmup, (long long)s->loops, s->estimate, (int)s->stop, tm_verdict_name(s->verdict),
                   s->verdict == TM_VERDICT_NOT_JUDGED ? 99 : 0, s->reason, sum);
    for (int64_t i = 0; i < s->n && i < 24; i++) tm_text_printf(out, " %.9g", s->seconds[i] * 1e6);
    tm_text_add(out, "\n");
}

typedef struct {
    const char *what;
    tm_timing   timing; /* end_ns: after the begin; 0: in a day */
    int         count;
    int64_t     stop_at; /* of A */
    int64_t     ns[MOST][8];
    bool        brief; /* the calls are not told */
} timing_case;

#define MS 1000000
static const timing_case cases[] = {
    { "the least number", { .min_samples = 3 }, 1, 0, { { 1 * MS, 2 * MS, 4 * MS } }, false },
    { "none is enough", { .min_samples = 0 }, 1, 0, { { 1 * MS } }, false },
    { "a warm-up that the first call fills", { .warmup_ms = 1, .min_samples = 1 }, 1, 0, { { 1 * MS } }, false },
    { "one that the second fills", { .warmup_ms = 2, .min_samples = 1 }, 1, 0, { { 1 * MS - 20 } }, false },
    { "estimates", { .warmup_ms = 12, .min_samples = 2 }, 1, 0, { { 9 * MS, 3 * MS, 2 * MS, 4 * MS } }, false },
    { "the least comes late",
      { .warmup_ms = 40, .min_samples = 2 },
      1,
      0,
      { { 9 * MS, 8 * MS, 7 * MS, 6 * MS, 5 * MS, 4 * MS, 3 * MS } },
      false },
    { "many warm-up calls", { .warmup_ms = 20, .min_samples = 2 }, 1, 0, { { 300000, 310000, 290000 } }, false },
    { "short calls", { .warmup_ms = 1, .min_samples = 3 }, 1, 0, { { 5, 15, 10 } }, false },
    { "calls of no time", { .min_samples = 3 }, 1, 0, { { 0 } }, false },
    { "just long enough", { .min_samples = 2 }, 1, 0, { { SHORTEST_NS - READ_NS } }, false },
    { "just too short", { .min_samples = 2 }, 1, 0, { { SHORTEST_NS - READ_NS - 1 } }, false },
    { "as many as the time gives", { .rep_ms = 10, .min_samples = 3 }, 1, 0, { { 1 * MS - READ_NS } }, false },
    { "one less", { .rep_ms = 10, .min_samples = 3 }, 1, 0, { { 1 * MS } }, false },
    { "of three",
      { .rep_ms = 12, .min_samples = 2 },
      3,
      0,
      { { 1 * MS - READ_NS }, { 2 * MS - READ_NS }, { 3 * MS - READ_NS, 9 * MS } },
      false },
    { "short ones beside long ones", { .rep_ms = 1, .min_samples = 2 }, 2, 0, { { 1000 }, { 70000, 90000 } }, false },
    { "precise at once",
      { .rep_ms = 20, .precision = 0.5, .min_samples = 3 },
      1,
      0,
      { { 1 * MS, 1 * MS + 2000, 1 * MS - 3000, 1 * MS + 1000, 1 * MS - 1000 } },
      true },
    { "precise later",
      { .rep_ms = 10, .precision = 0.1, .min_samples = 3 },
      1,
      0,
      { { 1 * MS, 1200000, 800000, 1500000, 600000, 1100000, 900000 } },
      true },
    { "precise, of two",
      { .rep_ms = 10, .precision = 0.08, .min_samples = 3 },
      2,
      0,
      { { 1 * MS, 1200000, 800000 }, { 500000, 1500000, 600000, 700000, 400000 } },
      true },
    { "never precise",
      { .rep_ms = 10, .precision = 1e-6, .min_samples = 3 },
      1,
      0,
      { { 1 * MS, 1200000, 800000, 1500000, 600000, 1100000, 900000 } },
      true },
    { "a duration",
      { .rep_ms = 1, .precision = 0.5, .duration_s = 0.012, .min_samples = 3 },
      1,
      0,
      { { 2 * MS - READ_NS } },
      false },
    { "a duration of two",
      { .duration_s = 0.006, .min_samples = 1 },
      2,
      0,
      { { 2 * MS - READ_NS }, { 1 * MS - READ_NS } },
      false },
    { "too short a duration", { .duration_s = 1e-9, .min_samples = 4 }, 1, 0, { { 2 * MS } }, false },
    { "the budget ends before", { .end_ns = 1, .min_samples = 3 }, 2, 0, { { MS }, { MS } }, false },
    { "in the first warm-up",
      { .end_ns = 25 * MS, .warmup_ms = 100, .min_samples = 3 },
      2,
      0,
      { { 4 * MS }, { 4 * MS } },
      false },
    { "in the last of it",
      { .end_ns = 25 * MS, .warmup_ms = 100, .min_samples = 3 },
      2,
      0,
      { { 100000 }, { MS } },
      true },
    { "in the second one",
      { .end_ns = 25 * MS, .warmup_ms = 10, .min_samples = 3 },
      2,
      0,
      { { 4 * MS }, { 9 * MS } },
      false },
    { "in the samples",
      { .end_ns = 25 * MS, .duration_s = 9, .min_samples = 3 },
      2,
      0,
      { { 4 * MS }, { 3 * MS } },
      false },
    { "stopped in the warm-up", { .warmup_ms = 100, .min_samples = 3 }, 2, 3, { { 4 * MS }, { 3 * MS } }, false },
    { "stopped in the samples", { .duration_s = 9, .min_samples = 3 }, 2, 4, { { 4 * MS }, { 3 * MS } }, false },
    { "settling", { .rep_ms = 1, .settle = true, .min_samples = 3 }, 2, 0, { { 30 * MS }, { 25 * MS } }, false },
    { "settling, many in a turn",
      { .rep_ms = 30, .settle = true, .min_samples = 2 },
      2,
      0,
      { { 3 * MS - READ_NS }, { 4 * MS - READ_NS } },
      false },
    { "settling, few wanted",
      { .rep_ms = 1, .settle = true, .min_samples = 2 },
      2,
      0,
      { { 3 * MS }, { 4 * MS } },
      false },
    { "settling, looped", { .rep_ms = 4, .settle = true, .min_samples = 2 }, 2, 0, { { 4000 }, { 1 * MS } }, true },
    { "too many", { .duration_s = 1e6, .min_samples = 3 }, 1, 0, { { SHORTEST_NS } }, true },
    { "more than can be", { .rep_ms = 1e6, .min_samples = 3 }, 1, 0, { { SHORTEST_NS } }, true },
};

static void time_case(const timing_case *c, tm_text *out)
{
    tm_timed   timed[MOST];
    tm_samples samples[MOST];
    tm_error   err = { 0 };
    tm_text    log = { 0 };
    tm_timing  t = c->timing;
    stop_now = 0;
    for (int i = 0; i < MOST; i++) {
        int64_t n = 0;
        while (n < 8 && c->ns[i][n]) n++;
        callers[i] = (caller){ .ns = c->ns[i], .n = n ? n : 1, .me = i, .log = &log, .first = -1 };
        timed[i] = (tm_timed){ call, &callers[i] };
    }
    callers[0].stop_at = c->stop_at;
    fake_clock_start(READ_NS, 0);
    /* The clock's tick is measured first. */
    int64_t before = 2000 * READ_NS;
    t.end_ns = (int64_t)FAKE_BEGIN_S * 1000000000 + before + (t.end_ns ? t.end_ns : (int64_t)86400 * 1000 * MS);
    t.threads = 1;
    t.stop = &stop_now;
    tm_status st = tm_time(&t, timed, c->count, samples, &err);
    int64_t   passed = fake_clock_passed() - before;
    fake_clock_stop();
    for (int i = 0; i < MOST; i++) tell_calls(&callers[i]);
    tm_text_printf(out, "== %s: %s%s%s, %s%lld ns, %llu naps\n", c->what, tm_status_text(st), *err.text ? ": " : "",
                   err.text, passed > 900 * MS ? "at least " : "", (long long)(passed > 900 * MS ? 900 * MS : passed),
                   (unsigned long long)fake_clock.naps);
    if (!c->brief && log.data) tm_text_printf(out, " %s\n", log.data);
    for (int i = 0; i < c->count; i++) {
        if (c->brief) tm_text_printf(out, "  %lld calls\n", (long long)callers[i].calls);
        tell_samples(&samples[i], out);
        tm_samples_fini(&samples[i]);
        assert_null(samples[i].seconds);
    }
    tm_text_fini(&log);
}

static void every_sample(void **state)
{
    (void)state;
    tm_text out = { 0 };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) time_case(&cases[i], &out);
    whole_is("tests/golden/whole-timing.txt", &out);
}

/* --- what lies between samples ------------------------------------------------------------------------------------ */

static unsigned char *flushed; /* the buffer by which the caches are emptied */
static size_t         flushed_bytes;
static bool           no_aligned;

void *aligned_alloc(size_t alignment, size_t size)
{
    void *memory = NULL;
    if (no_aligned || posix_memalign(&memory, alignment, size) != 0) return NULL;
    if (fake_clock.on && alignment == 2 << 20) flushed = memory, flushed_bytes = size;
    return memory;
}

static unsigned char seen[8]; /* what stood in the buffer's first line at each call */

static void look(void *context, int64_t turn)
{
    int64_t *wrong = context;
    if (turn < 8 && flushed) seen[turn] = flushed[0];
    if (turn == 4 && flushed)
        for (size_t i = 0; i < flushed_bytes; i++) *wrong += flushed[i] != (i % 64 == 0 ? 4 : 0);
    fake_clock_pass(MS);
}

/* Before each sample, not before the first call and not within, a byte of every line is written. */
static void the_cache_is_emptied(void **state)
{
    (void)state;
    int64_t    wrong = 0, least = 2 * tm_last_level_bytes(NULL);
    tm_timed   timed = { look, &wrong };
    tm_samples samples;
    tm_timing  t = { .min_samples = 4, .end_ns = INT64_MAX, .threads = 1, .cold = true };
    fake_clock_start(READ_NS, 500 * MS); /* a parallel region: what empties it takes long */
    assert_int_equal(tm_time(&t, &timed, 1, &samples, NULL), TM_OK);
    fake_clock_stop();
    assert_int_equal(flushed_bytes, (least + (2 << 20) - 1) / (2 << 20) * (2 << 20));
    assert_int_equal(wrong, 0);
    for (int i = 0; i < 5; i++) assert_int_equal(seen[i], i);
    for (int i = 0; i < 4; i++) assert_true(samples.seconds[i] > 0.99e-3 && samples.seconds[i] < 1.01e-3);
    assert_int_equal(fake_clock.regions, 4);
    tm_samples_fini(&samples);
    flushed = NULL; /* freed */
    no_aligned = true;
    fake_clock_start(READ_NS, 0);
    assert_int_equal(tm_time(&t, &timed, 1, &samples, NULL), TM_OK);
    fake_clock_stop();
    no_aligned = false;
    assert_int_equal(fake_clock.regions, 4);
    tm_samples_fini(&samples);
}

static atomic_int turning;

static void *turn_in_circles(void *unused)
{
    (void)unused;
    while (atomic_load(&turning) == 1) continue;
    return NULL;
}

static void nothing(void *context, int64_t turn)
{
    (void)context, (void)turn;
    fake_clock_pass(30 * MS);
}

/* Other threads that run are waited for, 0.3 s at most each time; one that sleeps is not. */
static void others_are_waited_for(void **state)
{
    (void)state;
    pthread_t  thread;
    tm_timed   timed = { nothing, NULL };
    tm_samples samples;
    tm_timing  t = { .min_samples = 2, .end_ns = INT64_MAX, .threads = 1, .settle = true };
    atomic_store(&turning, 1);
    assert_int_equal(pthread_create(&thread, NULL, turn_in_circles, NULL), 0);
    fake_clock_start(READ_NS, 0);
    assert_int_equal(tm_time(&t, &timed, 1, &samples, NULL), TM_OK);
    fake_clock_stop();
    /* Before the warm-up and before each of two turns: 300 ms in steps of 0.5 ms and a reading. */
    assert_int_equal(fake_clock.naps, 3 * 600);
    atomic_store(&turning, 0);
    pthread_join(thread, NULL);
    assert_int_equal(samples.n, 2);
    tm_samples_fini(&samples);
    fake_clock_start(READ_NS, 0);
    assert_int_equal(tm_time(&t, &timed, 1, &samples, NULL), TM_OK);
    fake_clock_stop();
    assert_int_equal(fake_clock.naps, 0);
    tm_samples_fini(&samples);
}

static void ticks_and_rotations(void **state)
{
    (void)state;
    bool    known = false;
    int64_t bytes = tm_cpu_last_level_bytes(""), used = tm_last_level_bytes(&known);
    assert_int_equal(known, bytes > 0);
    assert_int_equal(used, bytes > 0 ? bytes : (int64_t)64 << 20);
    static const int64_t sizes[] = { 1, 7, 4096, 1000003 };
    for (size_t i = 0; i < 4; i++) assert_int_equal(tm_rotation(sizes[i]), 2 * used / sizes[i] + 1);
    assert_int_equal(tm_rotation(0), 2 * used + 1);
    assert_int_equal(tm_rotation(2 * used), 2);
    assert_int_equal(tm_rotation(2 * used + 1), 2);
    assert_int_equal(tm_rotation(used), 3);
    fake_clock_start(17, 0);
    assert_int_equal(tm_clock_tick_ns(), 17);
    fake_clock_stop();
    assert_int_equal(fake_clock_passed(), 2000 * 17);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_sample),
    cmocka_unit_test(the_cache_is_emptied),
    cmocka_unit_test(others_are_waited_for),
    cmocka_unit_test(ticks_and_rotations),
};

TM_TESTS_ALONE(tests, NULL, NULL)
