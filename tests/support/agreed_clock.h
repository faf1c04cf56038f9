/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/agreed_clock.h - a clock that some threads share: it goes on by a step when each of them has looked at
 * it since the last step, or has left. So who has less patience is the first to lose it, however late the system lets a
 * thread run. Other threads have the system's clock. It takes the place of base/clock.c in its program: it defines all
 * that base/clock.h declares. To be included by one file of a program.
 */
#ifndef TM_TESTS_AGREED_CLOCK_H
#define TM_TESTS_AGREED_CLOCK_H

#include "base/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static struct {
    pthread_mutex_t lock;
    int64_t         now_ns, step_ns;
    uint64_t        step; /* from 1 on */
    int             threads, looked;
} agreed = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Thread_local struct {
    bool     in;
    uint64_t step; /* at which it has looked */
} own_look;

/* Time stands still until `threads` threads have entered. */
static inline void agreed_clock_start(int threads, int64_t step_ns)
{
    agreed.now_ns = 1000000000;
    agreed.step_ns = step_ns;
    agreed.step = 1;
    agreed.threads = threads;
    agreed.looked = 0;
}

/* With the lock. */
static inline void agreed_clock_step(void)
{
    if (agreed.looked < agreed.threads) return;
    agreed.now_ns += agreed.step_ns;
    agreed.step++;
    agreed.looked = 0;
}

/* This thread has it from now on. */
static inline void agreed_clock_enter(void)
{
    own_look.in = true;
    own_look.step = 0;
}

static inline void agreed_clock_leave(void)
{
    own_look.in = false;
    pthread_mutex_lock(&agreed.lock);
    agreed.threads--;
    if (own_look.step == agreed.step) agreed.looked--;
    agreed_clock_step();
    pthread_mutex_unlock(&agreed.lock);
}

int64_t tm_now_ns(void)
{
    if (!own_look.in) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
    }
    pthread_mutex_lock(&agreed.lock);
    int64_t now = agreed.now_ns;
    if (own_look.step != agreed.step) agreed.looked++;
    own_look.step = agreed.step;
    agreed_clock_step();
    pthread_mutex_unlock(&agreed.lock);
    return now;
}

/* Giving the processor away takes long where programs of others are waiting for it. */
int sched_yield(void)
{
    return own_look.in ? 0 : (int)syscall(SYS_sched_yield);
}

int64_t tm_thread_delayed_ns(void)
{
    return 0;
}

int64_t tm_wall_ms(void)
{
    return 1769860800000;
}

int64_t tm_process_age_ns(void)
{
    return -1;
}

char *tm_wall_text(char out[32])
{
    strcpy(out, "2026-01-31T12:00:00Z");
    return out;
}

#endif
