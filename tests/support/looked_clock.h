/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/looked_clock.h - a clock of each thread that goes on whenever the thread looks at it, by as much as the
 * thread has said, and by what the test adds. It takes the place of base/clock.c in its program: it defines all that
 * base/clock.h declares. To be included by one file of a program.
 */
#ifndef TM_TESTS_LOOKED_CLOCK_H
#define TM_TESTS_LOOKED_CLOCK_H

#include "base/clock.h"

#include <stdint.h>
#include <string.h>

/* look_ns: 0, as in threads of the program's own: time stands still. */
static _Thread_local int64_t now_ns, look_ns;

int64_t tm_now_ns(void)
{
    return now_ns += look_ns;
}

int64_t tm_thread_delayed_ns(void)
{
    return 0;
}

int64_t tm_wall_ms(void)
{
    return 1700000000000;
}

int64_t tm_process_age_ns(void)
{
    return tm_now_ns();
}

char *tm_wall_text(char out[32])
{
    strcpy(out, "2026-01-31T12:00:00Z");
    return out;
}

#endif
