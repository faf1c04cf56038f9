/* SPDX-License-Identifier: Apache-2.0 */
#include "bench/timing.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/cpu.h"
#include "base/file.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MAX_SAMPLES = 100000, ESTIMATE_CALLS = 5, LINE = 64, SETTLE_NS = 300000000 };

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
    int64_t         *turns; /* calls so far, by candidate */
    int              count;
    unsigned char   *flush; /* NULL: warm */
    int64_t          flush_bytes, tick_ns;
} session;

static bool stopped(const session *s)
{
    return s->timing->stop && *s->timing->stop;
}

static bool over(const session *s)
{
    return stopped(s) || tm_now_ns() >= s->timing->end_ns;
}

static double timed_calls(session *s, int i, int64_t calls)
{
    const tm_timed *timed = &s->timed[i];
    int64_t         turn = s->turns[i], start = tm_now_ns();
    for (int64_t c = 0; c < calls; c++) timed->call(timed->context, turn + c);
    int64_t took = tm_now_ns() - start;
    s->turns[i] += calls;
    return (double)took * 1e-9;
}

/* Seconds per call of one sample. */
static double sample(session *s, int i)
{
    if (s->flush) overwrite(s->flush, s->flush_bytes, s->timing->threads);
    if (s->timing->settle) {
        wait_for_quiet();
        (void)timed_calls(s, i, 1);
    }
    int64_t loops = s->samples[i].loops;
    return timed_calls(s, i, loops) / (double)loops;
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

/* Rounds that the wanted time makes. */
static int64_t rounds_wanted(const session *s)
{
    double a_round = 0;
    for (int i = 0; i < s->count; i++) a_round += s->samples[i].estimate * (double)s->samples[i].loops;
    double  wanted = s->timing->duration_s > 0 ? s->timing->duration_s : s->timing->rep_ms * 1e-3 * s->count;
    double  rounds = wanted / (a_round > 1e-9 ? a_round : 1e-9);
    int64_t least = s->timing->min_samples;
    return rounds < (double)least ? least : rounds > MAX_SAMPLES ? MAX_SAMPLES : (int64_t)rounds;
}

static void take_rounds(session *s)
{
    int64_t rounds = rounds_wanted(s), start = tm_now_ns();
    bool    by_time = s->timing->duration_s > 0;
    if (by_time) rounds = MAX_SAMPLES;
    for (int i = 0; i < s->count; i++) s->samples[i].seconds = tm_alloc((size_t)rounds * sizeof(double));
    for (int64_t round = 0; round < rounds && !over(s); round++) {
        bool enough = round >= s->timing->min_samples;
        if (by_time && enough && (double)(tm_now_ns() - start) * 1e-9 >= s->timing->duration_s) break;
        for (int k = 0; k < s->count; k++) {
            int i = round % 2 ? s->count - 1 - k : k;
            s->samples[i].seconds[round] = sample(s, i);
        }
        for (int i = 0; i < s->count; i++) s->samples[i].n = round + 1;
    }
}

tm_status tm_time(const tm_timing *timing, const tm_timed *timed, int count, tm_samples *out, tm_error *err)
{
    TM_ASSERT(count >= 1);
    session s = { .timing = timing, .timed = timed, .samples = out, .count = count };
    for (int i = 0; i < count; i++) out[i] = (tm_samples){ .loops = 1 };
    s.turns = tm_alloc((size_t)count * sizeof *s.turns);
    s.tick_ns = tm_clock_tick_ns();
    if (timing->cold) {
        s.flush_bytes = 2 * tm_last_level_bytes(NULL);
        s.flush = tm_alloc((size_t)s.flush_bytes);
        overwrite(s.flush, s.flush_bytes, timing->threads);
    }
    for (int i = 0; i < count && !over(&s); i++) {
        if (timing->settle) wait_for_quiet();
        warm_up(&s, i);
    }
    if (!over(&s)) take_rounds(&s);
    free(s.flush);
    free(s.turns);
    return stopped(&s) ? tm_fail(err, TM_INTERRUPTED, "stopped while timing") : TM_OK;
}
