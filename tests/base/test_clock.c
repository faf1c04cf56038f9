/* SPDX-License-Identifier: Apache-2.0 */
/* The clocks are the system's, and the age of a process is counted from its start. */
#include "support/test.h"

#include "base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

static int64_t read_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

TEST(times_are_those_of_the_system)
{
    int64_t before = read_ns(CLOCK_MONOTONIC), now = tm_now_ns(), after = read_ns(CLOCK_MONOTONIC);
    assert_true(before <= now && now <= after);
    before = read_ns(CLOCK_REALTIME) / 1000000, now = tm_wall_ms(), after = read_ns(CLOCK_REALTIME) / 1000000;
    assert_true(before <= now && now <= after);
}

TEST(the_wall_is_told_in_utc)
{
    char   text[32], wanted[32];
    time_t from;
    do { /* within one second */
        from = time(NULL);
        memset(text, 'x', sizeof text);
        assert_ptr_equal(tm_wall_text(text), text);
    } while (time(NULL) != from);
    strftime(wanted, sizeof wanted, "%Y-%m-%dT%H:%M:%SZ", gmtime(&from));
    assert_string_equal(text, wanted);
}

TEST(a_process_is_as_old_as_it_is)
{
    static const char *const names[] = { "plain", "a b c", "x) R 1 (y", ")))" };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        int64_t tick = 1000000000 / sysconf(_SC_CLK_TCK), from = read_ns(CLOCK_BOOTTIME);
        int     ends[2];
        assert_int_equal(pipe(ends), 0);
        pid_t child = fork();
        if (child == 0) {
            prctl(PR_SET_NAME, names[i]);
            usleep(30000);
            int64_t told[2] = { tm_process_age_ns(), 0 };
            told[1] = read_ns(CLOCK_BOOTTIME);
            _exit(write(ends[1], told, sizeof told) != sizeof told);
        }
        int64_t told[2];
        close(ends[1]);
        assert_int_equal(read(ends[0], told, sizeof told), sizeof told);
        close(ends[0]);
        assert_int_equal(waitpid(child, NULL, 0), child);
        assert_true(told[0] >= 30000000 && told[0] <= told[1] - from + tick);
    }
    int64_t age = tm_process_age_ns();
    usleep(30000);
    assert_true(tm_process_age_ns() - age >= 30000000);
}

/* Spins for so much time of its processor; *on_processor of its begin and end, and what lies between on the wall. */
static void *spin(void *delayed)
{
    int64_t begin = read_ns(CLOCK_MONOTONIC), own = read_ns(CLOCK_THREAD_CPUTIME_ID), late = tm_thread_delayed_ns();
    while (read_ns(CLOCK_THREAD_CPUTIME_ID) - own < 30000000) {
    }
    late = tm_thread_delayed_ns() - late;
    int64_t off = read_ns(CLOCK_MONOTONIC) - begin - (read_ns(CLOCK_THREAD_CPUTIME_ID) - own);
    *(int64_t *)delayed = late >= 0 && late <= off + 1000000 ? late : -1;
    return NULL;
}

/* Of two threads that want the same processor all the time, each waits for the other; one that rests does not. */
TEST(a_thread_is_delayed_by_others)
{
    pthread_t thread[2];
    int64_t   delayed[2];
    cpu_set_t all, one;
    if (access("/proc/thread-self/schedstat", R_OK) != 0) skip();
    assert_int_equal(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (int c = 0; c < CPU_SETSIZE && CPU_COUNT(&one) == 0; c++)
        if (CPU_ISSET(c, &all)) CPU_SET(c, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    for (int i = 0; i < 2; i++) assert_int_equal(pthread_create(&thread[i], NULL, spin, &delayed[i]), 0);
    for (int i = 0; i < 2; i++) pthread_join(thread[i], NULL);
    assert_int_equal(sched_setaffinity(0, sizeof all, &all), 0);
    assert_true(delayed[0] >= 0 && delayed[1] >= 0 && delayed[0] + delayed[1] > 20000000);
}
