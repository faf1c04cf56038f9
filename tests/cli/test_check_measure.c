/* SPDX-License-Identifier: Apache-2.0 */
/* The short measurement of `trainmark check --perf` when it does not come to its end. The figures: test_check.sh. */
#include "cli/cli.h"
#include "cli/check.h"
#include "support/fake_clock.h"
#include "support/training.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

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

static bool one_part; /* the child ends with its first part */

static ssize_t tell_one_part(void *cookie, const char *text, size_t n)
{
    ssize_t told = write(*(int *)cookie, text, n);
    if (told > 0 && (text[0] == 'D' || text[0] == 'E')) _exit(0);
    return told;
}

/* The child's first call. */
FILE *fdopen(int fd, const char *mode)
{
    static int own;
    char       path[40];
    own = fd;
    if (one_part) return fopencookie(&own, mode, (cookie_io_functions_t){ .write = tell_one_part });
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

static double figure(const check_measurement *m, const char *name)
{
    for (size_t i = 0; i < m->n; i++)
        if (strcmp(m->metrics[i].name, name) == 0) return m->metrics[i].value;
    fail_msg("no figure %s", name);
    return (double)NAN;
}

/* By a clock by which every kernel takes the same time, but for a sixth: so do the steps. */
TEST(figures_of_a_training)
{
    tm_arena         *arena = tm_arena_create();
    check_measurement m;
    one_part = true;
    fake_clock_start(2000000, 1000000);
    check_measure(3000, arena, &m);
    fake_clock_stop();
    one_part = false;
    assert_int_equal(m.n, 8);
    assert_null(m.problem[TM_PERF_TRAINING]);
    double rate = figure(&m, "training.tokens_per_sec_per_gpu"), p50 = figure(&m, "training.step_time_p50_ms");
    double mean = figure(&m, "training.step_time_mean_ms"), p95 = figure(&m, "training.step_time_p95_ms");
    double loss = figure(&m, "training.final_loss"), used = figure(&m, "training.mem_usage");
    assert_true(figure(&m, "training.tokens_per_sec_total") == rate);
    assert_true(p50 > 1 && p50 < 1000 && p95 >= p50 && p95 < 1.2 * p50 && mean > 0.83 * p50 && mean < 1.2 * p50);
    assert_true(fabs(rate * p50 / 512e3 - 1) < 0.17); /* 8 sequences of 64 tokens */
    assert_true(figure(&m, "training.loss_decreased") == 1);
    assert_true(loss > 1 && loss < 4.5 && used > 0 && used < 1);
    tm_arena_destroy(arena);
}

TESTS_ALONE
