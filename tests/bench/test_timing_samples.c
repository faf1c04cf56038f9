/* SPDX-License-Identifier: Apache-2.0 */
/* How calls of given lengths are timed, to the nanosecond, by a clock that only they move: which call is made when,
 * every sample, and why it ends. */
#include "base/cpu.h"
#include "apps/bench/timing.h"
#include "support/fake_clock.h"
#include "stats/sampling.h"

#include <stdatomic.h>

#include "support/test.h"

enum { READ_NS = 10, SHORTEST_NS = READ_NS * TM_LEAST_TICKS, MOST = 3 };

static volatile sig_atomic_t stop_now;

/* A call that takes `ns` nanoseconds, in turn. */
typedef struct {
    const int64_t *ns;
    int64_t        n, calls, next; /* next: the turn that must come */
    int            me;
    int64_t        stop_at; /* the call that sets stop_now; 0: none */
} caller;

static caller callers[MOST];

static void call(void *context, int64_t turn)
{
    caller *c = context;
    assert_int_equal(turn, c->next);
    c->next++;
    fake_clock_pass(c->ns[c->calls++ % c->n]);
    if (c->calls == c->stop_at) stop_now = 1;
}

typedef struct {
    const char *what;
    tm_timing   timing; /* end_ns: after the begin; 0: in a day */
    int         count;
    int64_t     stop_at; /* of A */
    int64_t     ns[MOST][8];
    bool        brief; /* calls differ: figures of means only */
} timing_case;

#define MS 1000000
/* clang-format off */
static const timing_case cases[] = {
    { "the least number", { .min_samples = 3 }, 1, 0, { { 1 * MS, 2 * MS, 4 * MS } }, false },
    { "a warm-up that the first call fills", { .warmup_ms = 1, .min_samples = 1 }, 1, 0, { { 1 * MS } }, false },
    { "just long enough", { .min_samples = 2 }, 1, 0, { { SHORTEST_NS - READ_NS } }, false },
    { "just too short", { .min_samples = 2 }, 1, 0, { { SHORTEST_NS - READ_NS - 1 } }, false },
    { "as many as the time gives", { .rep_ms = 10, .min_samples = 3 }, 1, 0, { { 1 * MS - READ_NS } }, false },
    { "of three", { .rep_ms = 12, .min_samples = 2 }, 3, 0, { { 1 * MS - READ_NS }, { 2 * MS - READ_NS },
      { 3 * MS - READ_NS, 9 * MS } }, false },
    { "precise at once", { .rep_ms = 20, .precision = 0.5, .min_samples = 3 }, 1, 0, { { 1 * MS, 1 * MS + 2000,
      1 * MS - 3000, 1 * MS + 1000, 1 * MS - 1000 } }, true },
    { "never precise", { .rep_ms = 10, .precision = 1e-6, .min_samples = 3 }, 1, 0, { { 1 * MS, 1200000, 800000,
      1500000, 600000, 1100000, 900000 } }, true },
    { "a duration", { .rep_ms = 1, .precision = 0.5, .duration_s = 0.012, .min_samples = 3 }, 1, 0,
      { { 2 * MS - READ_NS } }, false },
    { "in the first warm-up", { .end_ns = 25 * MS, .warmup_ms = 100, .min_samples = 3 }, 2, 0, { { 4 * MS },
      { 4 * MS } }, false },
    { "in the samples", { .end_ns = 25 * MS, .duration_s = 9, .min_samples = 3 }, 2, 0, { { 4 * MS }, { 3 * MS } },
      false },
    { "stopped in the warm-up", { .warmup_ms = 100, .min_samples = 3 }, 2, 3, { { 4 * MS }, { 3 * MS } }, false },
    { "stopped in the samples", { .duration_s = 9, .min_samples = 3 }, 2, 4, { { 4 * MS }, { 3 * MS } }, false },
    { "settling", { .rep_ms = 1, .settle = true, .min_samples = 3 }, 2, 0, { { 30 * MS }, { 25 * MS } }, false },
    { "settling, looped", { .rep_ms = 4, .settle = true, .min_samples = 2 }, 2, 0, { { 4000 }, { 1 * MS } }, true },
    { "too many", { .duration_s = 1e6, .min_samples = 3 }, 1, 0, { { SHORTEST_NS } }, true },
};
/* clang-format on */

static double least_of(const caller *c)
{
    double least = 1e300;
    for (int64_t i = 0; i < c->n; i++) least = fmin(least, (double)c->ns[i]);
    return least;
}

/* Seconds of calls [from, from + n). */
static double seconds_of(const caller *c, int64_t from, int64_t n)
{
    double sum = 0;
    for (int64_t i = from; i < from + n; i++) sum += (double)c->ns[i % c->n] * 1e-9;
    return sum;
}

/* Warm-up calls fill their time, by the least of them; calls that are shorter than what the clock can tell are looped.
 * Each sample is the time of its calls and a reading of the clock, of one call. */
static void samples_are_right(const timing_case *c, const tm_samples *s, const caller *who, double sum)
{
    const double least = least_of(who) * 1e-9, read = READ_NS * 1e-9, shortest = SHORTEST_NS * 1e-9;
    const double warm = c->timing.warmup_ms * 1e-3, w = (double)s->warmup;
    if (s->n == 0) return;
    assert_true(s->warmup >= 1 && (w == 1 || (w - 2) * least < warm));
    if (!(seconds_of(who, 0, s->warmup) + 3 * w * read >= warm)) fail_msg("%s: %g warm-up calls", c->what, w);
    assert_true(s->estimate >= least && s->estimate <= seconds_of(who, 0, s->warmup) + 2 * read);
    if (least + read >= shortest)
        assert_int_equal(s->loops, 1);
    else /* a quarter more than what the clock can tell, by what a call and a reading take */
        assert_true(s->loops > 1 && (double)s->loops * s->estimate >= shortest &&
                    (double)(s->loops - 1) * s->estimate < 1.25 * shortest);
    for (int64_t i = 0; i < s->n; i++) {
        double wanted = seconds_of(who, c->timing.settle ? 0 : s->warmup + i * s->loops, s->loops) + read;
        if (!(fabs(s->seconds[i] - wanted / (double)s->loops) < 1e-15 * (double)(1 + s->n)))
            fail_msg("%s: sample %lld is %.12g s, wanted %.12g", c->what, (long long)i, s->seconds[i],
                     wanted / (double)s->loops);
        sum += s->seconds[i];
    }
    if (!c->timing.settle) assert_int_equal(who->calls, s->warmup + s->n * s->loops);
    if (c->timing.settle)
        assert_true(who->calls > s->warmup + s->n * s->loops); /* the first of each turn does not count */
    /* Less than a second cannot be judged, and the reason has the length. */
    bool judged = s->verdict != TM_VERDICT_NOT_JUDGED;
    if (!judged) assert_non_null(strstr(s->reason, "too short to judge the machine by"));
    if (judged) assert_true(sum * (double)s->loops >= 0.9);
}

/* As many rounds, of a sample of each, as the time of all gives; at least the number that is wanted, and at most what
 * there is room for. */
static void number_is_right(const timing_case *c, const tm_samples *s)
{
    const tm_timing *t = &c->timing;
    double           of_rounds = 0, estimated = 0, n = (double)s->n, wanted;
    for (int i = 0; i < c->count; i++) {
        assert_int_equal(s[i].n, s->n);
        assert_int_equal(s[i].stop, s->stop);
        estimated += s[i].estimate * (double)s[i].loops;
        for (int64_t k = 0; k < s->n; k++) of_rounds += s[i].seconds[k] * (double)s[i].loops;
    }
    if (s->stop == TM_STOP_NO) return; /* ended by the budget or the user */
    double time = (t->duration_s > 0 ? t->duration_s : t->rep_ms * 1e-3) * c->count, round = of_rounds / n;
    assert_true(n >= t->min_samples && n >= 1 && n <= 100000);
    if (n >= 100000) return;
    switch (s->stop) {
    case TM_STOP_SAMPLES: /* of the time that they were estimated to take; whole turns where it settles */
        wanted = fmax(fmax(1, t->min_samples), floor(time / estimated * (1 + 1e-12)));
        if (!(n >= wanted && n <= (t->settle ? 2 * wanted : wanted)))
            fail_msg("%s: %g samples, wanted %g", c->what, n, wanted);
        break;
    case TM_STOP_PRECISE:
        for (int i = 0; i < c->count; i++)
            assert_true(tm_stats_summarize(s[i].seconds, NULL, 1, s[i].n).half_width <= t->precision);
        assert_true(of_rounds >= 0.9 * time);
        break;
    default: /* the duration, or ten times the time without being precise */
        if (t->duration_s <= 0) time *= TM_MOST_REPS;
        if (!(n <= t->min_samples || (of_rounds >= time * (1 - 1e-9) && of_rounds - round < time)))
            fail_msg("%s: %g samples take %g s of %g", c->what, n, of_rounds, time);
    }
}

static void time_case(const timing_case *c)
{
    tm_timed   timed[MOST];
    tm_samples samples[MOST];
    tm_error   err = { 0 };
    tm_timing  t = c->timing;
    double     in_calls = 0, calls = 0;
    stop_now = 0;
    for (int i = 0; i < MOST; i++) {
        int64_t n = 0;
        while (n < 8 && c->ns[i][n]) n++;
        callers[i] = (caller){ .ns = c->ns[i], .n = n ? n : 1, .me = i };
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
    double    passed = (double)(fake_clock_passed() - before) * 1e-9;
    fake_clock_stop();
    assert_int_equal(st, c->stop_at ? TM_INTERRUPTED : TM_OK);
    for (int i = 0; i < MOST; i++)
        in_calls += seconds_of(&callers[i], 0, callers[i].calls), calls += (double)callers[i].calls;
    /* All of the time is that of calls and of readings of the clock, but for waiting. */
    if (!t.settle && passed < 0.9 && !(passed >= in_calls && passed <= in_calls + (4 * calls + 140) * READ_NS * 1e-9))
        fail_msg("%s: %.9g s, %.9g of them in calls", c->what, passed, in_calls);
    number_is_right(c, samples);
    bool ends = c->timing.end_ns || c->stop_at;
    assert_int_equal(samples[0].stop == TM_STOP_NO, ends);
    if (c->timing.end_ns) assert_true(passed >= (double)c->timing.end_ns * 1e-9);
    if (c->stop_at) assert_non_null(strstr(err.text, "stopped while timing"));
    for (int i = 0; i < c->count; i++) {
        samples_are_right(c, &samples[i], &callers[i], 0);
        tm_samples_fini(&samples[i]);
        assert_null(samples[i].seconds);
    }
}

TEST(every_sample)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) time_case(&cases[i]);
}

/* --- another clock ------------------------------------------------------------------------------------------------ */

static int64_t fails_at; /* the call at which the second of two is gone; 0: none */

/* It says 3 ms for each call. */
static tm_status tell_series(void *context, int64_t turn, int64_t calls, double *seconds, tm_error *err)
{
    caller *c = context;
    assert_int_equal(turn, c->next);
    c->next += calls, c->calls += calls;
    *seconds = 3e-3 * (double)calls;
    return c->me == 1 && fails_at && c->calls >= fails_at ? tm_fail(err, TM_DEVICE, "it is gone") : TM_OK;
}

/* It counts in coarse steps; what fails ends it, and the round in which it does is left out. */
TEST(a_clock_of_ones_own)
{
    tm_timing t = { .min_samples = 3, .end_ns = INT64_MAX, .threads = 1, .series = tell_series };
    t.tick_ns = 12000; /* samples of 12 ms and a quarter: 5 calls */
    for (int fails = 0; fails < 2; fails++) {
        tm_timed   timed[2];
        tm_samples samples[2];
        tm_error   err = { 0 };
        fails_at = fails ? 8 : 0; /* in the second sample */
        for (int i = 0; i < 2; i++) {
            callers[i] = (caller){ .me = i };
            timed[i] = (tm_timed){ call, &callers[i] };
        }
        assert_int_equal(tm_time(&t, timed, 2, samples, &err), fails ? TM_DEVICE : TM_OK);
        assert_string_equal(err.text, fails ? "it is gone" : "");
        assert_int_equal(callers[1].calls, fails ? 11 : 16);
        for (int i = 0; i < 2; i++) {
            assert_true(samples[i].n == (fails ? 1 : 3) && samples[i].loops == 5 && samples[i].warmup == 1);
            for (int k = 0; k < samples[i].n; k++) assert_true(fabs(samples[i].seconds[k] - 3e-3) < 1e-15);
            tm_samples_fini(&samples[i]);
        }
    }
}

/* --- what lies between samples ------------------------------------------------------------------------------------ */

static unsigned char *flushed; /* the buffer by which the caches are emptied */
static size_t         flushed_bytes;

void *aligned_alloc(size_t alignment, size_t size)
{
    void *memory = NULL;
    if (posix_memalign(&memory, alignment, size) != 0) return NULL;
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
TEST(the_cache_is_emptied)
{
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
}

TESTS_ALONE
