/* SPDX-License-Identifier: Apache-2.0 */
/* The short measurement of `trainmark check --perf` when it does not come to its end. The figures: test_check.sh. */
#include "cli/check.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include <cmocka.h>

volatile sig_atomic_t tm_cli_stop; /* main.c has it */

/* All parts lack their figures, for this reason; no child is left: one that has begun to work is killed. */
static void expect_problem(double seconds, const char *why)
{
    tm_arena         *arena = tm_arena_create();
    check_measurement found;
    memset(&found, 0xff, sizeof found);
    check_measure(seconds, arena, &found);
    assert_int_equal(found.n, 0);
    for (int i = 0; i < TM_PERF_PARTS; i++) assert_string_equal(found.problem[i], why);
    assert_ptr_equal(check_measurement_problem(&found), found.problem[0]);
    tm_arena_destroy(arena);
    for (int status; waitpid(-1, &status, 0) > 0;) assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

static void what_takes_too_long_is_killed(void **state)
{
    (void)state;
    expect_problem(0.001, "killed after 0.001 s (--per-gpu-timeout-sec)");
    expect_problem(0.0125, "killed after 0.0125 s (--per-gpu-timeout-sec)");
}

static void a_signal_ends_it(void **state)
{
    (void)state;
    tm_cli_stop = 1;
    expect_problem(100, "stopped by a signal");
    tm_cli_stop = 0;
}

static void no_process(void **state)
{
    (void)state;
    struct rlimit before, none;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    none = before;
    none.rlim_cur = 3;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
    expect_problem(100, "cannot start a process: Too many open files");
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* The first that is there; of none, nothing. */
static void the_first_problem_counts(void **state)
{
    check_measurement m = { 0 };
    (void)state;
    assert_null(check_measurement_problem(&m));
    m.problem[TM_PERF_PARTS - 1] = "the last";
    assert_string_equal(check_measurement_problem(&m), "the last");
    m.problem[1] = "the second";
    assert_string_equal(check_measurement_problem(&m), "the second");
}

static void no_time_is_no_figure(void **state)
{
    double   gflops = -1;
    tm_error err = { 0 };
    (void)state;
    assert_int_equal(check_gemm(1e-9, &gflops, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "'budget' (command line) is out of range: found 1e-09"));
    assert_true(gflops >= 0 && gflops <= 0);
    err = (tm_error){ 0 };
    if (check_gemm(0.01, &gflops, &err) == TM_OK) {
        assert_true(gflops > 0);
        return;
    }
    assert_int_equal(err.status, TM_NUMBERS);
    assert_non_null(strstr(err.text, " "));
    assert_true(gflops >= 0 && gflops <= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(what_takes_too_long_is_killed),
                                        cmocka_unit_test(a_signal_ends_it), cmocka_unit_test(no_process),
                                        cmocka_unit_test(the_first_problem_counts),
                                        cmocka_unit_test(no_time_is_no_figure) };
    return cmocka_run_group_tests_name("cli/check_measure", tests, NULL, NULL);
}
