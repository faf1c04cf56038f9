/* SPDX-License-Identifier: Apache-2.0 */
/* comm/event.c - event counts in memory that ranks share, over futexes of Linux.
 *
 * A waiter reads the word, looks for what it waits for, and sleeps unless the word has changed since. A publisher
 * counts the word on first and looks for sleepers then, a waiter counts itself in first and has the kernel compare the
 * word then: one of the two sees the other, so that no wake-up is missed. A rank that is killed in its sleep stays
 * counted, which costs the others calls of the kernel that wake nobody.
 */
#include "comm/group.h"

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Not the private operations: ranks may be processes. */
static void futex(tm_comm_event *event, int operation, uint32_t value, const struct timespec *most)
{
    (void)syscall(SYS_futex, &event->word, operation, value, most, NULL, 0);
}

void tm_comm_event_signal(tm_comm_event *event)
{
    atomic_fetch_add(&event->word, 1);
    if (atomic_load(&event->sleepers) != 0) futex(event, FUTEX_WAKE, INT_MAX, NULL);
}

void tm_comm_event_sleep(tm_comm_event *event, uint32_t seen, int64_t most_ns)
{
    struct timespec most = { .tv_sec = most_ns / 1000000000, .tv_nsec = most_ns % 1000000000 };
    atomic_fetch_add(&event->sleepers, 1);
    futex(event, FUTEX_WAIT, seen, &most);
    atomic_fetch_sub(&event->sleepers, 1);
}
