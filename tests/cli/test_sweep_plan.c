/* SPDX-License-Identifier: Apache-2.0 */
/* What a run of a sweep needs, and that run as a process, which is this program: what is told of each way to end. */
#include "support/test.h"
#include "base/cpu.h"
#include "base/log.h"
#include "cli/sweep_plan.h"
#include "told.h"

#include <signal.h>

/* --- the program that is started ---------------------------------------------------------------------------------- */

static int be_run(int argc, char **argv)
{
    const char *how = argc > 2 ? argv[2] : "";
    for (int i = 0; i < argc; i++) printf("%s%s", i ? " " : "", i ? argv[i] : "program");
    printf("\n");
    fflush(stdout);
    if (strcmp(how, "long") == 0)
        for (int i = 0; i < 3000; i++)
            printf("%d of so many lines that they do not fit into what is read at a time\n", i);
    if (strcmp(how, "nomem") == 0) fprintf(stderr, "a note\ntrainmark: does not fit in memory: 3 bytes");
    if (strcmp(how, "starved") == 0) fprintf(stderr, "trainmark: out of memory: cannot allocate 3 bytes\n");
    if (strcmp(how, "words") == 0) fprintf(stderr, "the reason\n");
    fflush(NULL);
    if (strcmp(how, "kill") == 0) raise(SIGKILL);
    if (strcmp(how, "term") == 0) raise(SIGTERM);
    if (strcmp(how, "sleep") == 0) sleep(100);
    return argc > 3 ? atoi(argv[3]) : 0;
}

/* --- tests -------------------------------------------------------------------------------------------------------- */

/* A run that ends like this: its code, whether memory lacked, the last words, and what its log has behind the command
 * line. */
static void ends(const char *how, const char *code, int wanted, bool nomem, const char *words, const char *log,
                 const char *logged)
{
    tm_error         err = { 0 };
    child_end        end;
    char            *argv[] = { (char *)how, (char *)code }, *more[] = { (char *)"--more", (char *)"--most" };
    tm_sweep_options o = { .argc = code ? 2 : 1, .argv = argv };
    char             text[400];
    memset(&end, 0xff, sizeof end);
    told_begin();
    tm_status st = sweep_start(&o, more, 2, "folder", log, &end, &err);
    told_end(st, &err);
    assert_int_equal(st, TM_OK);
    if (end.code != wanted || end.nomem != nomem || strcmp(end.words, words) != 0)
        fail_msg("%s: code %d, memory %d, '%s'", how, end.code, end.nomem, end.words);
    assert_true(end.seconds > 0 && end.seconds < 60);
    assert_string_equal(told.data, "-> ok\n\n"); /* nothing else is printed */
    told.length = 0;
    if (!log) return;
    snprintf(text, sizeof text, "program run %s%s%s --more --most --out folder\n%s", how, code ? " " : "",
             code ? code : "", logged);
    tm_text is = fake_read(log);
    assert_string_equal(is.data, text);
    tm_text_fini(&is);
}

/* It is not begun, or not ended. */
static void fails(const char *how, const char *log, tm_status wanted, const char *words)
{
    tm_error         err = { 0 };
    child_end        end = { 0 };
    char            *argv[] = { (char *)how, (char *)"130" };
    tm_sweep_options o = { .argc = 2, .argv = argv };
    assert_int_equal(sweep_start(&o, NULL, 0, "folder", log, &end, &err), wanted);
    assert_non_null(strstr(err.text, words));
    assert_false(tm_file_exists(log));
}

TEST(every_end_of_a_run)
{
    static const char lacks[] = "trainmark: does not fit in memory: 3 bytes",
                      starves[] = "trainmark: out of memory: cannot allocate 3 bytes";
    ends("well", NULL, 0, false, "", "log", "");
    ends("words", "3", 3, false, "the reason", "log3", "the reason");
    ends("words", "4", 4, false, "the reason", NULL, "");
    ends("nomem", "4", 4, true, lacks, "log4", "a note\ntrainmark: does not fit in memory: 3 bytes");
    ends("nomem", "3", 3, false, lacks, NULL, "");
    ends("starved", "1", 1, true, starves, NULL, "");
    ends("starved", "4", 4, false, starves, NULL, "");
    ends("kill", NULL, -1, true, "", "logk", "");
    ends("term", NULL, -1, false, "", NULL, "");
    fails("well", "no/where/log", TM_INVALID, "cannot create 'no/where/log': directory 'no/where'");
    tm_cli_stop = 1;
    fails("sleep", "stopped", TM_INTERRUPTED, "interrupted; the same command continues from here");
    tm_cli_stop = 0;
    tm_error         err = { 0 };
    child_end        end;
    char            *argv[] = { (char *)"long" };
    tm_sweep_options o = { .argc = 1, .argv = argv };
    assert_int_equal(sweep_start(&o, NULL, 0, "folder", "long", &end, &err), TM_OK);
    tm_text text = fake_read("long");
    int     lines = 0;
    for (const char *at = text.data; (at = strchr(at, '\n')); at++) lines++;
    assert_int_equal(lines, 3001);
    tm_text_fini(&text);
}

TM_TEST_ROLE("run", be_run)

TEST_FIXTURE(told_enter, told_leave)
