/* SPDX-License-Identifier: Apache-2.0 */
/* Failures: the first one stays; checks that go on tell all of theirs, each once, in a text of bounded length. */
#include "support/test.h"

#include "base/status.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

TEST(the_first_failure_stays)
{
    tm_error err = { 0 };
    size_t   n;
    assert_null(tm_error_next(&err, NULL, &n));
    assert_int_equal(tm_fail(&err, TM_INVALID, "one of %d", 2), TM_INVALID);
    assert_int_equal(tm_fail(&err, TM_IO, "another"), TM_IO);
    assert_int_equal(err.status, TM_INVALID);
    assert_string_equal(err.text, "one of 2");
    const char *line = tm_error_next(&err, NULL, &n);
    assert_ptr_equal(line, err.text);
    assert_int_equal(n, strlen("one of 2"));
    assert_null(tm_error_next(&err, line, &n));
}

TEST(several_are_told_each_once)
{
    tm_error err = { 0 };
    assert_int_equal(tm_also(&err, TM_UNSUPPORTED, "first"), TM_UNSUPPORTED);
    assert_string_equal(err.text, "first");
    assert_int_equal(tm_also(&err, TM_INVALID, "second\nline"), TM_INVALID);
    assert_int_equal(tm_also(&err, TM_INVALID, "first"), TM_INVALID);
    assert_int_equal(tm_also(&err, TM_INVALID, "sec"), TM_INVALID);
    assert_int_equal(err.status, TM_UNSUPPORTED);
    assert_int_equal(err.n, 3);
    assert_string_equal(err.text, "3 problems\n  first\n  second line\n  sec");
    assert_int_equal(tm_also(NULL, TM_INVALID, "nobody listens"), TM_INVALID);
}

TEST(those_of_a_call_join_the_others)
{
    tm_error err = { 0 }, own = { 0 };
    assert_int_equal(tm_also_of(&err, TM_OK, &own), TM_OK);
    assert_int_equal(err.status, TM_OK);
    tm_fail(&own, TM_FORMAT, "a");
    tm_also(&own, TM_INVALID, "b");
    assert_int_equal(tm_also_of(&err, TM_FORMAT, &own), TM_FORMAT);
    assert_int_equal(own.status, TM_OK);
    assert_string_equal(err.text, "2 problems\n  a\n  b");
    tm_fail(&own, TM_INVALID, "b");
    tm_also(&own, TM_INVALID, "c");
    tm_also_of(&err, TM_INVALID, &own);
    assert_string_equal(err.text, "3 problems\n  a\n  b\n  c");
    assert_int_equal(err.status, TM_FORMAT);
}

/* What has no room is counted, also when it comes from a list that has no room itself. */
TEST(the_text_is_bounded)
{
    tm_error err = { 0 }, whole = { 0 };
    size_t   n;
    int      lines = 0, told = 0;
    for (int i = 0; i < 100; i++) tm_also(&err, TM_INVALID, "problem %3d of a hundred: %60s", i, "words");
    assert_int_equal(err.n, 100);
    assert_true(strlen(err.text) < sizeof err.text - 1);
    for (const char *line = NULL; (line = tm_error_next(&err, line, &n)); lines++)
        assert_int_equal(atoi(line + strlen("problem ")), lines);
    assert_true(lines > 30 && lines < 100);
    const char *rest = strstr(err.text, "\n  ... and ");
    assert_non_null(rest);
    told = atoi(rest + strlen("\n  ... and "));
    assert_int_equal(lines + told, 100);
    tm_fail(&whole, TM_INVALID, "one more");
    tm_also_of(&whole, TM_INVALID, &err);
    assert_int_equal(whole.n, 101);
    char long_one[6000];
    memset(long_one, 'x', sizeof long_one - 1);
    long_one[sizeof long_one - 1] = '\0';
    tm_fail(&err, TM_INVALID, "%s", long_one);
    tm_also(&err, TM_INVALID, "%s", long_one + 1);
    tm_also(&err, TM_INVALID, "short");
    assert_true(strlen(err.text) < sizeof err.text);
    assert_int_equal(strncmp(err.text, "3 problems\n  xxx", 16), 0);
}

/* What cannot be says where, and ends the program. */
TEST(bugs_are_told)
{
    int  ends[2], status;
    char said[200] = "";
    assert_int_equal(pipe(ends), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        static const struct rlimit none = { 0, 0 };
        setrlimit(RLIMIT_CORE, &none);
        dup2(ends[1], STDERR_FILENO);
        signal(SIGABRT, SIG_DFL);
        tm_assert_failed("one == two", "a/b.c", 7);
    }
    close(ends[1]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_true(read(ends[0], said, sizeof said - 1) > 0);
    close(ends[0]);
    assert_string_equal(said, "trainmark: bug: a/b.c:7: one == two\n");
}
