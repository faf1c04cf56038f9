/* SPDX-License-Identifier: Apache-2.0 */
/* Where messages go: stderr from a level on, and files of a folder, each with its level and those above, until it is
 * closed. */
#include "base/log.h"
#include "support/fake_run.h"
#include "support/folder.h"

#include <fcntl.h>

#include "support/test.h"

static const char *const names[] = { "debug", "info", "warning", "error" };

static void say_all(const char *when)
{
    tm_log(TM_LOG_DEBUG, "%s %d", when, 1);
    tm_note("%s", when);
    tm_warn("%s", when);
    tm_log(TM_LOG_ERROR, "%s\nsecond \033[1mline", when);
}

/* What `say` writes to stderr. */
static tm_text stderr_of(void (*say)(const char *), const char *when)
{
    int file = open(test_in_folder("stderr"), O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0666), old = dup(STDERR_FILENO);
    assert_true(file >= 0 && old >= 0);
    assert_int_equal(dup2(file, STDERR_FILENO), STDERR_FILENO);
    say(when);
    fflush(stderr);
    assert_int_equal(dup2(old, STDERR_FILENO), STDERR_FILENO);
    close(old);
    close(file);
    return fake_read(test_in_folder("stderr"));
}

/* A file's lines without their times, whose form is checked. */
static void check_file(int level, const char *wanted)
{
    const char form[] = "0000-00-00T00:00:00Z ";
    tm_text    all = fake_read(test_in_folder(names[level])), found = { 0 };
    for (const char *line = all.data; *line;) {
        size_t length = strcspn(line, "\n");
        assert_true(length >= strlen(form) && line[length] == '\n');
        for (size_t i = 0; form[i]; i++)
            assert_true(form[i] == '0' ? line[i] >= '0' && line[i] <= '9' : line[i] == form[i]);
        tm_text_printf(&found, "%.*s\n", (int)(length - strlen(form)), line + strlen(form));
        line += length + 1;
    }
    assert_string_equal(found.data ? found.data : "", wanted);
    tm_text_fini(&all);
    tm_text_fini(&found);
}

#define DEBUG(when) "debug: " when " 1\n"
#define NOTE(when) "note: " when "\n"
#define WARNING(when) "warning: " when "\n"
#define ERROR(when) "error: " when "\n  second \\x1b[1mline\n"

static void check_stderr(tm_log_level lowest, const char *when, const char *wanted)
{
    tm_log_set_level(lowest);
    tm_text found = stderr_of(say_all, when);
    assert_string_equal(found.data, wanted);
    tm_text_fini(&found);
}

static int lowest_free(void)
{
    int fd = dup(STDERR_FILENO);
    close(fd);
    return fd;
}

TEST(messages_go_to_files_of_their_levels)
{
    int before = lowest_free();
    check_stderr(TM_LOG_WARN, "early", "trainmark: " WARNING("early") "trainmark: " ERROR("early"));
    assert_ok(tm_log_open_folder(test_folder(), err));
    check_stderr(TM_LOG_ERROR, "open", "trainmark: " ERROR("open"));
    check_stderr(TM_LOG_DEBUG, "again",
                 "trainmark: " DEBUG("again") "trainmark: " NOTE("again") "trainmark: " WARNING(
                     "again") "trainmark: " ERROR("again"));
    tm_log_record(TM_LOG_INFO, "one\n\n two\nthree");
    check_file(TM_LOG_DEBUG, DEBUG("open") NOTE("open") WARNING("open") ERROR("open") DEBUG("again") NOTE("again")
                                 WARNING("again") ERROR("again") "one\n two\nthree\n");
    check_file(TM_LOG_INFO, NOTE("open") WARNING("open") ERROR("open") NOTE("again") WARNING("again")
                                ERROR("again") "one\n two\nthree\n");
    check_file(TM_LOG_WARN, WARNING("open") ERROR("open") WARNING("again") ERROR("again"));
    check_file(TM_LOG_ERROR, ERROR("open") ERROR("again"));
    assert_ok(tm_log_open_folder(test_folder(), err)); /* goes on in the same files */
    tm_log_record(TM_LOG_ERROR, "more");
    tm_log_close_folder();
    assert_int_equal(lowest_free(), before);
    tm_log_record(TM_LOG_ERROR, "late");
    check_stderr(TM_LOG_INFO, "late",
                 "trainmark: " NOTE("late") "trainmark: " WARNING("late") "trainmark: " ERROR("late"));
    check_file(TM_LOG_ERROR, ERROR("open") ERROR("again") "more\n");
    check_file(TM_LOG_WARN, WARNING("open") ERROR("open") WARNING("again") ERROR("again") "more\n");
}

TESTS_IN_ORDER
TEST_FIXTURE(NULL, test_folder_teardown)
