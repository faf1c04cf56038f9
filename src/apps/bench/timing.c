/* SPDX-License-Identifier: Apache-2.0 */
#include "apps/bench/timing.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"
#include "system/validity.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_SAMPLES = 100000, ESTIMATE_CALLS = 5, LINE = 64, SETTLE_NS = 300000000, TURN_NS = 20000000 };

int64_t tm_clock_tick_ns(void)
{
    int64_t least = INT64_MAX;
    for (int i = 0; i < 1000; i++) {
        int64_t start = tm_now_ns(), now = start;
        while (now == start) now = tm_now_ns();
        if (now - start < least) least = now - start;
    }
    return least;
}

int64_t tm_last_level_bytes(bool *known)
{
    int64_t bytes = tm_cpu_last_level_bytes("");
    if (known) *known = bytes > 0;
    return bytes > 0 ? bytes : (int64_t)64 << 20;
}

int64_t tm_rotation(int64_t bytes)
{
    int64_t sets = 2 * tm_last_level_bytes(NULL) / (bytes > 0 ? bytes : 1) + 1;
    return sets < 2 ? 2 : sets;
}

void tm_samples_fini(tm_samples *samples)
{
    free(samples->seconds);
    *samples = (tm_samples){ 0 };
}

/* --- between samples ------------------------------------------------------------------------- */

/* Writes a line of every 64 bytes of a buffer larger than the caches. */
static void overwrite(unsigned char *buffer, int64_t bytes, int threads)
{
#pragma omp parallel for schedule(static) num_threads(threads)
    for (int64_t i = 0; i < bytes; i += LINE) buffer[i]++;
}

/* Is another thread of this process running or ready to run? */
static bool others_run(void)
{
    DIR *tasks = opendir("/proc/self/task");
    if (!tasks) return false;
    bool running = false;
    long self = syscall(SYS_gettid);
    for (struct dirent *entry; !running && (entry = readdir(tasks));) {
        char path[300], text[512];
        if (entry->d_name[0] == '.' || strtol(entry->d_name, NULL, 10) == self) continue;
        snprintf(path, sizeof path, "/proc/self/task/%s/stat", entry->d_name);
        const char *state = tm_file_read_line(path, text, sizeof text) ? strrchr(text, ')') : NULL;
        running = state && state[1] == ' ' && state[2] == 'R';
    }
    closedir(tasks);
    return running;
}

/* Thread pools wait for more work by turning in circles, some for tens of milliseconds: whoever is timed next would
 * share the processors with them. Gives up after 0.3 s. */
static void wait_for_quiet(void)
{
    for (int64_t end = tm_now_ns() + SETTLE_NS; others_run() && tm_now_ns() < end;) usleep(500);
}

/* --- samples --------------------------------------------------------------------------------- */

typedef struct {
    const tm_timing *timing;
    const tm_timed  *timed;
    tm_samples      *samples;
    int64_t         *turns;    /* calls so far, by candidate */
    size_t          *capacity; /* of samples[i].seconds */
    int              count;
    tm_validity     *validity;
    int64_t          burst; /* samples of a turn */
    unsigned char   *flush; /* NULL: warm */
    int64_t          flush_bytes, tick_ns;
    tm_error         failure; /* of a series; TM_OK: none */
} session;

static bool stopped(const session *s)
{
    return s->timing->stop && *s->timing->stop;
}

static bool over(const session *s)
{
    return stopped(s) || s->failure.status != TM_OK || tm_now_ns() >= s->timing->end_ns;
}

static double timed_calls(session *s, int i, int64_t calls)
{
    const tm_timed *timed = &s->timed[i];
    int64_t         turn = s->turns[i], start = tm_now_ns();
    double          seconds = 0;
    s->turns[i] += calls;
    if (s->timing->series) {
        if (s->failure.status == TM_OK)
            s->failure.status = s->timing->series(timed->context, turn, calls, &seconds, &s->failure);
        return seconds;
    }
    for (int64_t c = 0; c < calls; c++) timed->call(timed->context, turn + c);
    return (double)(tm_now_ns() - start) * 1e-9;
}

/* A turn of candidate i: `burst` samples, the first with index `from`. Returns the seconds of timed calls. */
static double take_turn(session *s, int i, int64_t from)
{
    tm_samples *out = &s->samples[i];
    double      seconds = 0;
    if (s->timing->settle) {
        wait_for_quiet();
        (void)timed_calls(s, i, 1);
    }
    for (int64_t at = from; at < from + s->burst; at++) {
        if (s->flush) overwrite(s->flush, s->flush_bytes, s->timing->threads);
        double took = timed_calls(s, i, out->loops);
        out->seconds = tm_grow(out->seconds, &s->capacity[i], (size_t)at, sizeof *out->seconds);
        out->seconds[at] = took / (double)out->loops;
        seconds += took;
    }
    return seconds;
}

/* A first call that pays for what is made once, then up to five that tell the time of a call; then the warm-up that is
 * still wanted. */
static void warm_up(session *s, int i)
{
    tm_samples *out = &s->samples[i];
    double      wanted = s->timing->warmup_ms * 1e-3, spent = timed_calls(s, i, 1), least = spent;
    for (int c = 0; c < ESTIMATE_CALLS && spent < wanted && !over(s); c++) {
        double took = timed_calls(s, i, 1);
        if (took < least) least = took;
        spent += took;
    }
    while (spent < wanted && !over(s)) spent += timed_calls(s, i, 1 + (int64_t)(1e-3 / (least + 1e-9)));
    out->warmup = s->turns[i];
    out->estimate = least;
    double shortest = (double)s->tick_ns * TM_LEAST_TICKS * 1e-9;
    out->loops = least < shortest ? (int64_t)ceil(1.25 * shortest / (least > 1e-9 ? least : 1e-9)) : 1;
}

/* Samples of each that the wanted time makes. */
static int64_t samples_wanted(const session *s)
{
    double a_round = 0;
    for (int i = 0; i < s->count; i++) a_round += s->samples[i].estimate * (double)s->samples[i].loops;
    double  samples = s->timing->rep_ms * 1e-3 * s->count / (a_round > 1e-9 ? a_round : 1e-9);
    int64_t least = s->timing->min_samples;
    return samples < (double)least ? least : samples > MAX_SAMPLES ? MAX_SAMPLES : (int64_t)samples;
}

/* Samples in a turn: one; where others must settle before it, as many as make TURN_NS of the quickest. */
static int64_t samples_of_turn(const session *s, int64_t wanted)
{
    double quickest = (double)INFINITY;
    if (!s->timing->settle) return 1;
    for (int i = 0; i < s->count; i++) quickest = fmin(quickest, s->samples[i].estimate * (double)s->samples[i].loops);
    double burst = TURN_NS * 1e-9 / (quickest > 1e-9 ? quickest : 1e-9);
    return burst < 1 ? 1 : burst > (double)wanted ? wanted : (int64_t)burst;
}

/* Are all known as precisely as wanted? */
static bool precise(const session *s)
{
    for (int i = 0; i < s->count; i++) {
        tm_sample_summary sum = tm_stats_summarize(s->samples[i].seconds, NULL, 1, s->samples[i].n);
        if (!sum.steady.reached || !(sum.half_width <= s->timing->precision)) return false;
    }
    return true;
}

/* After n samples of each, `seconds` of timed calls: go on? At *look samples precision is looked at next. */
static tm_stop enough(const session *s, int64_t n, int64_t wanted, double seconds, int64_t *look)
{
    const tm_timing *t = s->timing;
    if (n < t->min_samples) return TM_STOP_NO;
    if (n >= MAX_SAMPLES) return TM_STOP_SAMPLES;
    if (t->duration_s > 0) return seconds >= t->duration_s * s->count ? TM_STOP_SECONDS : TM_STOP_NO;
    if (n < wanted) return TM_STOP_NO;
    if (t->precision <= 0) return TM_STOP_SAMPLES;
    if (n >= *look) {
        *look = n + 1 + n / 10; /* chance does not get a try at every sample */
        if (precise(s)) return TM_STOP_PRECISE;
    }
    return seconds >= t->rep_ms * 1e-3 * TM_MOST_REPS * s->count ? TM_STOP_SECONDS : TM_STOP_NO;
}

static void take_rounds(session *s)
{
    int64_t wanted = samples_wanted(s), look = 0, n = 0;
    double  seconds = 0;
    tm_stop stop = TM_STOP_NO;
    s->burst = samples_of_turn(s, wanted);
    s->validity = tm_validity_start("");
    for (int64_t round = 0; stop == TM_STOP_NO && !over(s); round++) {
        for (int k = 0; k < s->count; k++) seconds += take_turn(s, round % 2 ? s->count - 1 - k : k, n);
        if (s->failure.status != TM_OK) break; /* this round does not count */
        n += s->burst;
        tm_validity_sample(s->validity);
        for (int i = 0; i < s->count; i++) s->samples[i].n = n;
        stop = enough(s, n, wanted, seconds, &look);
    }
    tm_validity_report report;
    tm_validity_stop(s->validity, 0, &report);
    tm_validity_destroy(s->validity);
    for (int i = 0; i < s->count; i++) {
        s->samples[i].stop = stop;
        s->samples[i].verdict = report.verdict;
        snprintf(s->samples[i].reason, sizeof s->samples[i].reason, "%s", report.reason);
    }
}

/* In huge pages: tens of thousands of page faults would look like a disturbed machine. */
static void take_flush_buffer(session *s)
{
    enum { HUGE_PAGE = 2 << 20 };
    s->flush_bytes = (2 * tm_last_level_bytes(NULL) + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    s->flush = aligned_alloc(HUGE_PAGE, (size_t)s->flush_bytes);
    if (!s->flush) s->flush = tm_alloc((size_t)s->flush_bytes); /* ends the program with a message */
    madvise(s->flush, (size_t)s->flush_bytes, MADV_HUGEPAGE);
    memset(s->flush, 0, (size_t)s->flush_bytes);
}

tm_status tm_time(const tm_timing *timing, const tm_timed *timed, int count, tm_samples *out, tm_error *err)
{
    TM_ASSERT(count >= 1);
    session s = { .timing = timing, .timed = timed, .samples = out, .count = count };
    for (int i = 0; i < count; i++) out[i] = (tm_samples){ .loops = 1, .verdict = TM_VERDICT_NOT_JUDGED };
    s.turns = tm_alloc((size_t)count * sizeof *s.turns);
    s.capacity = tm_alloc((size_t)count * sizeof *s.capacity);
    s.tick_ns = timing->tick_ns > 0 ? timing->tick_ns : tm_clock_tick_ns();
    if (timing->cold) take_flush_buffer(&s);
    for (int i = 0; i < count && !over(&s); i++) {
        if (timing->settle) wait_for_quiet();
        warm_up(&s, i);
    }
    if (!over(&s)) take_rounds(&s);
    free(s.flush);
    free(s.turns);
    free(s.capacity);
    if (s.failure.status != TM_OK) return tm_fail(err, s.failure.status, "%s", s.failure.text);
    return stopped(&s) ? tm_fail(err, TM_INTERRUPTED, "stopped while timing") : TM_OK;
}
