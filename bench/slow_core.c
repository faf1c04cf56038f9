/* SPDX-License-Identifier: Apache-2.0 */
/* bench/slow_core.c - takes a part of one processor from whatever runs on it, until it is killed.
 *
 *   slow_core CORE busy PERCENT       a program bound to the processor is busy for PERCENT of each 10 ms
 *   slow_core CORE interrupts MICROS  a timer interrupts the processor every MICROS (10 or more): the kernel's work for
 * it is counted as time of the program that it interrupts, as with a device that raises too many interrupts, so the
 * processor itself is slower for it (perf_event_open(2))
 */
#define _GNU_SOURCE
#include <linux/perf_event.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static int64_t now_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static _Noreturn void be_busy(double percent)
{
    const int64_t period = 10000000, busy = (int64_t)(percent / 100 * (double)period);
    for (;;) {
        /* Of its own processor time: it takes its part also where it has to wait for it. */
        int64_t begun = now_ns(CLOCK_MONOTONIC), mine = now_ns(CLOCK_THREAD_CPUTIME_ID);
        while (now_ns(CLOCK_THREAD_CPUTIME_ID) - mine < busy) continue;
        int64_t         left = period - (now_ns(CLOCK_MONOTONIC) - begun);
        struct timespec rest = { 0, left > 0 ? left : 0 };
        nanosleep(&rest, NULL);
    }
}

static _Noreturn void interrupt(int core, double micros)
{
    struct perf_event_attr event = { .type = PERF_TYPE_SOFTWARE,
                                     .size = sizeof event,
                                     .config = PERF_COUNT_SW_CPU_CLOCK,
                                     .sample_period = (uint64_t)(micros * 1000) };
    if (syscall(SYS_perf_event_open, &event, -1, core, -1, 0UL) < 0) {
        perror("slow_core: perf_event_open");
        exit(4);
    }
    for (;;) pause();
}

int main(int argc, char **argv)
{
    cpu_set_t mask;
    if (argc != 4) {
        fprintf(stderr, "usage: slow_core CORE busy PERCENT | slow_core CORE interrupts MICROS\n");
        return 2;
    }
    CPU_ZERO(&mask);
    CPU_SET((size_t)atoi(argv[1]), &mask);
    if (strcmp(argv[2], "interrupts") == 0) interrupt(atoi(argv[1]), atof(argv[3]));
    if (sched_setaffinity(0, sizeof mask, &mask) != 0) {
        perror("slow_core: sched_setaffinity");
        return 4;
    }
    be_busy(atof(argv[3]));
}
