/* SPDX-License-Identifier: Apache-2.0 */
/* The short measurement of `trainmark check --perf` when it does not come to its end. The figures: test_check.sh. */
#include "cli/cli.h"
#include "cli/check.h"
#include "support/fake_clock.h"
#include "support/training.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "support/test.h"

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

TEST(what_takes_too_long_is_killed)
{
    expect_problem(0.001, "killed after 0.001 s (--per-gpu-timeout-sec)");
    expect_problem(0.0125, "killed after 0.0125 s (--per-gpu-timeout-sec)");
}

/* --- what the child says -------------------------------------------------------------------------------------------
 */

static const char *said; /* by the child instead of measuring */
static int         ends_by;

/* The child's first call. */
FILE *fdopen(int fd, const char *mode)
{
    char path[40];
    if (said && write(fd, said, strlen(said)) != (ssize_t)strlen(said)) _exit(9);
    if (said && ends_by) raise(ends_by);
    if (said) _exit(0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return fopen(path, mode);
}

/* Figures as "name value, " and problems as "what | ". */
static void expect_heard(const char *words, int signal_, const char *figures, const char *problems)
{
    tm_arena         *arena = tm_arena_create();
    check_measurement found;
    tm_text           all = { 0 }, wrong = { 0 };
    memset(&found, 0xff, sizeof found);
    said = words, ends_by = signal_;
    check_measure(60, arena, &found);
    said = NULL;
    tm_text_add(&all, "");
    for (size_t i = 0; i < found.n; i++) tm_text_printf(&all, "%s %g, ", found.metrics[i].name, found.metrics[i].value);
    for (int i = 0; i < TM_PERF_PARTS; i++) tm_text_printf(&wrong, "%s | ", found.problem[i] ? found.problem[i] : "");
    assert_string_equal(all.data, figures);
    assert_string_equal(wrong.data, problems);
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1); /* it was waited for */
    tm_text_fini(&all);
    tm_text_fini(&wrong);
    tm_arena_destroy(arena);
}

TEST(what_the_child_has_said_counts)
{
    expect_heard("", 0, "",
                 "the measurement ended early | the measurement ended early | the measurement ended early | ");
    expect_heard("", SIGTERM, "",
                 "the measurement ended with signal 15 | the measurement ended with signal 15 | the measurement ended "
                 "with signal 15 | ");
    expect_heard("M a.b 1.5\nM c -2e3\nD\nE no figure for it: why\nM d 7\nM e 8", SIGKILL, "a.b 1.5, c -2000, d 7, ",
                 " | no figure for it: why | the measurement ended with signal 9 | ");
    expect_heard("M a 1\nD\nM b 2\nD\nM c 3\nD\n", 0, "a 1, b 2, c 3, ", " |  |  | ");
    expect_heard("E one\nE two\nE three\nE four\nM a 1\n", SIGTERM, "a 1, ", "one | two | three | ");
    expect_heard("N a 1\nM 3\nM\nM b 3\nD\n\nM c 4\n", 0, "b 3, c 4, ",
                 " | the measurement ended early | the measurement ended early | ");
}

TESTS_ALONE
