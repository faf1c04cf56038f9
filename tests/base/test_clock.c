/* SPDX-License-Identifier: Apache-2.0 */
/* The clocks are the system's, and the age of a process is counted from its start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include "support/test.h"

#include "base/clock.h"

#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static int64_t read_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void times_are_those_of_the_system(void **state)
{
    (void)state;
    int64_t before = read_ns(CLOCK_MONOTONIC), now = tm_now_ns(), after = read_ns(CLOCK_MONOTONIC);
    assert_true(before <= now && now <= after);
    before = read_ns(CLOCK_REALTIME) / 1000000, now = tm_wall_ms(), after = read_ns(CLOCK_REALTIME) / 1000000;
    assert_true(before <= now && now <= after);
}

static void the_wall_is_told_in_utc(void **state)
{
    char   text[32], wanted[32];
    time_t from;
    (void)state;
    do { /* within one second */
        from = time(NULL);
        memset(text, 'x', sizeof text);
        assert_ptr_equal(tm_wall_text(text), text);
    } while (time(NULL) != from);
    strftime(wanted, sizeof wanted, "%Y-%m-%dT%H:%M:%SZ", gmtime(&from));
    assert_string_equal(text, wanted);
}

static void a_process_is_as_old_as_it_is(void **state)
{
    static const char *const names[] = { "plain", "a b c", "x) R 1 (y", ")))" };
    (void)state;
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

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(times_are_those_of_the_system),
    cmocka_unit_test(the_wall_is_told_in_utc),
    cmocka_unit_test(a_process_is_as_old_as_it_is),
};

TM_TESTS(tests, NULL, NULL)
