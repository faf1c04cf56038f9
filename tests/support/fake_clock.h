/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/fake_clock.h - a clock that goes on only by what a test makes of it: a reading takes a given time, a
 * parallel region (a kernel) takes another, sleep takes as long as it says, and a test lets time pass. So what is
 * measured is known to the nanosecond. Each thread has a clock of its own; where it is not started it is the system's.
 * It defines functions of the system: to be included by one file of a program.
 */
#ifndef TM_TESTS_FAKE_CLOCK_H
#define TM_TESTS_FAKE_CLOCK_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Thread_local struct {
    bool     on;
    int      slow; /* where it is not started: the system's clock is read as many times more for a reading */
    int64_t  now_ns, read_ns, region_ns;
    uint64_t readings, regions, naps;
    int64_t (*takes)(uint64_t region); /* of each region, by its number from 0 on; NULL: region_ns, see below */
} fake_clock;

enum { FAKE_BEGIN_S = 1000000, FAKE_WALL_S = 1769860800 }; /* 2026-01-31T12:00:00Z */

/* From now on a reading takes read_ns, and a parallel region region_ns and up to a sixth more, by how many
 * readings there were. */
static inline void fake_clock_start(int64_t read_ns, int64_t region_ns)
{
    fake_clock.on = true;
    fake_clock.now_ns = (int64_t)FAKE_BEGIN_S * 1000000000;
    fake_clock.read_ns = read_ns;
    fake_clock.region_ns = region_ns;
    fake_clock.readings = fake_clock.regions = fake_clock.naps = 0;
    fake_clock.takes = NULL;
}

static inline void fake_clock_stop(void)
{
    fake_clock.on = false;
}

static inline void fake_clock_pass(int64_t ns)
{
    fake_clock.now_ns += ns;
}

/* Since the start. */
static inline int64_t fake_clock_passed(void)
{
    return fake_clock.now_ns - (int64_t)FAKE_BEGIN_S * 1000000000;
}

/* Is the code at this place the program's, not that of a sanitizer, which looks at the clock when it likes? */
static inline bool fake_clock_is_for(const void *place)
{
    static _Thread_local struct {
        const void *place;
        bool        ours;
    } known[32];
    Dl_info info;
    int     i = 0;
    while (i < 31 && known[i].place && known[i].place != place) i++;
    if (known[i].place == place) return known[i].ours;
    known[i].place = place;
    known[i].ours = !dladdr(place, &info) || !info.dli_fname || !strstr(info.dli_fname, "san.so");
    return known[i].ours;
}

int clock_gettime(clockid_t id, struct timespec *t)
{
    for (int i = 0; i < fake_clock.slow; i++) syscall(SYS_clock_gettime, id, t);
    bool ours = id == CLOCK_MONOTONIC || id == CLOCK_MONOTONIC_RAW || id == CLOCK_REALTIME;
    if (!fake_clock.on || !ours || !fake_clock_is_for(__builtin_return_address(0)))
        return (int)syscall(SYS_clock_gettime, id, t);
    fake_clock.now_ns += fake_clock.read_ns;
    fake_clock.readings++;
    t->tv_sec = (time_t)(fake_clock.now_ns / 1000000000) + (id == CLOCK_REALTIME ? FAKE_WALL_S : 0);
    t->tv_nsec = (long)(fake_clock.now_ns % 1000000000);
    return 0;
}

int usleep(useconds_t us)
{
    if (!fake_clock.on) return nanosleep(&(struct timespec){ us / 1000000, (long)(us % 1000000) * 1000 }, NULL);
    fake_clock.naps++;
    fake_clock_pass((int64_t)us * 1000);
    return 0;
}

void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags);
void GOMP_parallel(void (*function)(void *), void *data, unsigned threads, unsigned flags)
{
    static void (*real)(void (*)(void *), void *, unsigned, unsigned);
    if (!real) *(void **)(void *)&real = dlsym(RTLD_NEXT, "GOMP_parallel");
    real(function, data, threads, flags);
    if (!fake_clock.on) return;
    uint64_t number = fake_clock.regions++;
    fake_clock_pass(fake_clock.takes ? fake_clock.takes(number)
                                     : fake_clock.region_ns * (int64_t)(36 + fake_clock.readings % 7) / 36);
}

#endif
