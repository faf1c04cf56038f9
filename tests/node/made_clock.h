/* SPDX-License-Identifier: Apache-2.0 */
/* tests/node/made_clock.h - the clock of a made-up node: time passes for a thread by the work that a test says it does
 * (made_work). It takes the place of base/clock.c; to be included by one file of a program. */
#ifndef TESTS_NODE_MADE_CLOCK_H
#define TESTS_NODE_MADE_CLOCK_H

#include "support/looked_clock.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Thread_local double made_used_ns; /* of a processor, by this thread */

/* Work of so many seconds of a processor, of which the thread has this part. */
static inline void made_work(double seconds, double share)
{
    made_used_ns += seconds * 1e9;
    now_ns += (int64_t)(seconds / share * 1e9);
}

int clock_gettime(clockid_t id, struct timespec *t)
{
    if (id != CLOCK_THREAD_CPUTIME_ID) return (int)syscall(SYS_clock_gettime, id, t);
    *t = (struct timespec){ (time_t)(made_used_ns / 1e9), (long)((int64_t)made_used_ns % 1000000000) };
    return 0;
}

#endif
