/* SPDX-License-Identifier: Apache-2.0 */
/* Which checks are run, what is known of the machine, reports of others, and what becomes of a check whose process
 * dies, hangs or cannot be started. */
#include "base/file.h"
#include "support/folder.h"
#include "support/fake_clock.h"
#include "support/refusal.h"
#include "apps/check/check.h"
#include "apps/check/report.h"

#include "support/test.h"

#include <errno.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

/* --- names of checks ------------------------------------------------------------------------------ */

static tm_status choose(const char *only, tm_checks *checks, tm_error *err)
{
    tm_check_options options = tm_check_options_default();
    *checks = (tm_checks){ 0 };
    options.sysroot = test_folder();
    options.only = only;
    return tm_checks_run(&options, checks, err);
}

TEST(names_that_are_none)
{
    static const char *const names[] = {
        "zzz",       "memery", "klogg", "-GPUS",
        "thp,perfs", "",       ", ,",   "x123456789012345678901234567890123456789012345678901234567890123456789"
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        tm_checks checks;
        tm_error  err = { 0 };
        assert_int_equal(choose(names[i], &checks, &err), TM_USAGE);
        assert_int_equal(checks.n, 0);
        refusal_is_sound(&err);
        tm_checks_fini(&checks);
    }
}

TEST(lists_add_and_take)
{
    static const struct {
        const char *only, *ids;
    } rows[] = { { "thp,-thp", "" },
                 { "Memory", "memory " },
                 { "MEM", "memory hugepages memlock shm numa_layout " },
                 { "mem,-shm, -memory,smt", "smt hugepages memlock numa_layout " },
                 { "-settings,-cpu,-mem,-system,-pci,-left,-gpu,-net,-job,klog", "klog " },
                 { "perf,smt", "smt " } };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        tm_checks checks;
        tm_text   ids = { 0 };
        tm_error  err = { 0 };
        if (choose(rows[i].only, &checks, &err) != TM_OK) fail_msg("%s", err.text);
        tm_text_add(&ids, "");
        for (size_t k = 0; k < checks.n; k++) tm_text_printf(&ids, "%s ", checks.results[k].id);
        assert_string_equal(ids.data, rows[i].ids);
        tm_text_fini(&ids);
        tm_checks_fini(&checks);
    }
    test_folder_remove();
}

TEST(reports_of_others)
{
    static const char head[] =
        "{\"format\": \"trainmark.check/1\", \"host\": \"a\", \"wall_ms\": 5, \"seconds\": 2.5, ";
    static const char *const refused[] = {
        "",
        "{\n\"a\": 1,\n\"a\": 2}",
        "{\"format\": \"trainmark.check/2\", \"host\": \"a\", \"checks\": [{}]}",
        "{\"format\": \"trainmark.check/1\", \"checks\": [{}]}",
        "{\"format\": \"trainmark.check/1\", \"host\": \"a\", \"checks\": []}",
        "{\"format\": \"trainmark.check/1\", \"host\": \"a\", \"checks\": [{\"id\": \"x\", \"status\": \"PASS\"}, "
        "{\"id\": \"x\"}]}",
        "{\"format\": \"trainmark.check/1\", \"host\": \"a\", \"checks\": [{\"id\": \"x\", \"status\": \"PASSED\"}, "
        "{}]}",
        "{\"format\": \"trainmark.check/1\", \"host\": \"a\", \"checks\": [{\"status\": \"PASS\"}]}"
    };
    tm_text   text = { 0 };
    tm_checks checks = { 0 };
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        tm_error err = { 0 };
        assert_int_equal(tm_checks_parse(refused[i], strlen(refused[i]), "n.json", &checks, &err), TM_FORMAT);
        refusal_is_sound(&err);
        tm_checks_fini(&checks);
    }
    tm_text_printf(&text, "%s\"checks\": [{\"id\": \"x\", \"status\": \"SKIP\", \"observed\": \"o\"}]}", head);
    assert_int_equal(tm_checks_parse(text.data, text.length, "n.json", &checks, NULL), TM_OK);
    assert_true(checks.n == 1 && checks.wall_ms == 5 && checks.seconds == 2.5);
    assert_string_equal(checks.host, "a");
    assert_string_equal(checks.results[0].observed, "o");
    assert_int_equal(checks.results[0].status, TM_CHECK_SKIP);
    tm_text_fini(&text);
    tm_checks_fini(&checks);
}

/* --- processes ------------------------------------------------------------------------------------ */

/* What becomes of the next processes. */
static enum { LIVES, DIES, ENDS, HANGS, NONE } fate;
static FILE *written; /* its buffer is written by each process that starts, as it is before a command is run */
static pid_t born[8];
static int   births;

pid_t fork(void)
{
    static pid_t (*real)(void);
    if (!real) *(void **)(void *)&real = dlsym(RTLD_NEXT, "fork");
    if (fate == NONE) {
        errno = EAGAIN;
        return -1;
    }
    pid_t pid = real();
    if (pid == 0 && written) fflush(written);
    if (pid == 0 && fate == DIES) raise(SIGKILL);
    if (pid == 0 && fate == ENDS) _exit(7);
    if (pid == 0 && fate == HANGS)
        for (alarm(5);;) pause();
    if (pid > 0 && births < 8) born[births++] = pid;
    return pid;
}

static void isolated(const char *only, double seconds, tm_checks *checks)
{
    tm_check_options options = tm_check_options_default();
    options.sysroot = test_folder();
    options.only = only;
    options.isolate = true;
    options.timeout_seconds = seconds;
    births = 0;
    *checks = (tm_checks){ 0 };
    assert_int_equal(tm_checks_run(&options, checks, NULL), TM_OK);
}

static void each_says(int of, double seconds, const char *observed)
{
    tm_checks checks;
    fate = of;
    isolated("thp,smt", seconds, &checks);
    fate = LIVES;
    assert_int_equal(checks.n, 2);
    for (size_t i = 0; i < 2; i++) {
        const tm_check_result *r = &checks.results[i];
        assert_string_equal(r->observed, observed);
        assert_int_equal(r->status, TM_CHECK_FAIL);
        assert_string_equal(r->id, i ? "smt" : "thp");
        assert_string_equal(r->group, i ? "cpu" : "settings");
        assert_string_equal(r->expected, i ? "0" : "always or madvise, both");
        assert_true(*r->source && *r->remedy);
    }
    tm_checks_fini(&checks);
}

TEST(a_process_that_ends_otherwise)
{
    each_says(DIES, 5, "the check ended with signal 9 (Killed)");
    each_says(ENDS, 5, "the check gave no answer (exit code 7)");
    each_says(NONE, 5, "the check could not be started: no process");
    test_folder_remove();
}

TEST(a_process_that_hangs)
{
    each_says(HANGS, 0.03, "no answer within 0.03 s: a driver or file system hangs");
    assert_int_equal(births, 2);
    for (int i = 0; i < 2; i++) { /* it was told to end */
        int   status = 0;
        pid_t ended = 0;
        for (int k = 0; k < 6000 && ended == 0; k++) {
            ended = waitpid(born[i], &status, WNOHANG);
            if (ended == 0) usleep(10000);
        }
        if (ended == 0) kill(born[i], SIGKILL);
        assert_true(ended == -1 || (ended == born[i] && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    }
    test_folder_remove();
}

TESTS_ALONE
TESTS_IN_ORDER
