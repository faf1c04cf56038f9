/* SPDX-License-Identifier: Apache-2.0 */
/* Which trainmark is it? What it says for `version`, what other programs say, and programs that cannot be asked. */
#include "support/test.h"

#include "../support/fake_clock.h"

#include "base/clock.h"
#include "apps/bench/ab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char usual[] =
    "trainmark 0.1.0\n{\"cpu\": {}, \"build\": {\"compiler\": \"gcc\", \"commit\": \"42fbcc046832\"}}\n";

TEST(a_trainmark_is_known)
{
    static const char *const cases[][2] = {
        { usual, "trainmark 0.1.0, commit 42fbcc046832" },
        { "trainmark 12.34.5-rc1\n{\"build\": {\"commit\": null}}", "trainmark 12.34.5-rc1, commit unknown" },
        { "trainmark 0.2.0 (commit 42fbcc046832-dirty, clang 19.1.7 of a distribution whose name is quite long)\n"
          "{\"build\": {\"commit\": \"42fbcc046832-dirty\"}}",
          "trainmark 0.2.0, commit 42fbcc046832-dirty" },
        { "trainmark 2\n{\"build\": {}}", "trainmark 2, commit unknown" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tm_text out = { 0 };
        assert_true(tm_ab_build_parse(cases[i][0], &out));
        assert_string_equal(out.data, cases[i][1]);
        tm_text_fini(&out);
    }
}

/* A script of that text in a file of its own; the name is the caller's to remove and to free. */
static char *script(const char *text)
{
    char *path = strdup("/tmp/ab-binary-XXXXXX");
    int   fd = mkstemp(path);
    FILE *file = fdopen(fd, "w");
    fprintf(file, "#!/bin/sh\n%s\n", text);
    fclose(file);
    assert_int_equal(chmod(path, 0755), 0);
    return path;
}

/* Asks a script; returns the error's text, "" if there is none, and adds the build to *out. */
static tm_status ask(const char *text, tm_text *out, tm_error *err)
{
    char     *path = script(text);
    tm_status st = tm_ab_build_read(path, "--b-binary", NULL, out, err);
    unlink(path);
    free(path);
    return st;
}

TEST(programs_are_asked)
{
    tm_text  out = { 0 };
    tm_error err = { 0 };
    assert_int_equal(ask("[ \"$1$2\" = version-v ] && echo trainmark 3.2.1 && sleep 0.05 && "
                         "echo '{\"build\": {\"commit\": \"abc\"}}'",
                         &out, &err),
                     TM_OK);
    assert_string_equal(out.data, "trainmark 3.2.1, commit abc");
    tm_text_fini(&out);
    static const char *const strangers[] = {
        "exit 0",
        "echo trainmark 3.2.1; echo '{\"build\": {}}'; exit 3",
        "kill -9 $$",
        "echo usage: version; exit 0",
        "echo trainmark 3.2.1; yes trainmark",
    };
    for (size_t i = 0; i < sizeof strangers / sizeof strangers[0]; i++) {
        err = (tm_error){ 0 };
        int64_t begin = tm_now_ns();
        if (ask(strangers[i], &out, &err) != TM_INVALID) fail_msg("'%s' passes", strangers[i]);
        assert_non_null(strstr(err.text, "--b-binary: '/tmp/ab-binary-"));
        assert_non_null(strstr(err.text, "is not a trainmark"));
        assert_non_null(strstr(err.text, "--b-command"));
        assert_true(tm_now_ns() - begin < 9000000000);
        tm_text_fini(&out);
    }
    err = (tm_error){ 0 };
    assert_int_equal(tm_ab_build_read("/no/such/file", "--a-binary", NULL, &out, &err), TM_INVALID);
    assert_string_equal(err.text, "--a-binary: cannot execute '/no/such/file': No such file or directory");
    err = (tm_error){ 0 };
    assert_int_equal(tm_ab_build_read("/tmp", "--a-binary", NULL, &out, &err), TM_INVALID);
    assert_non_null(strstr(err.text, "Permission denied"));
}

/* It says the right words and closes its output, but does not end: after ten seconds, of which each look at the clock
 * takes a tenth. */
TEST(an_answer_that_does_not_end)
{
    tm_text  out = { 0 };
    tm_error err = { 0 };
    fake_clock_start(100000000, 0);
    tm_status st = ask("echo trainmark 3.2.1; echo '{\"build\": {}}'; exec >/dev/null; exec sleep 100", &out, &err);
    int64_t   passed = fake_clock_passed();
    fake_clock_stop();
    assert_int_equal(st, TM_INVALID);
    assert_non_null(strstr(err.text, "is not a trainmark"));
    assert_int_equal(out.length, 0);
    assert_true(passed >= 10000000000 && passed < 12000000000);
}

TESTS_ALONE
