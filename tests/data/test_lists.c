/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of checksums as md5sum writes them, and of the files below a folder: what is read, and each refusal whole. */
#include "support/folder.h"

#include "base/file.h"
#include "base/file_list.h"
#include "data/md5_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#include <sys/stat.h>
#include <unistd.h>

#define SUM "0123456789abcdef0123456789ABCDEF"

TEST(checksums_are_read)
{
    static const char        text[] = SUM "  a b\n" SUM " *b\n\\" SUM "  c\\\\d\\ne\n"
                                          "fedcba9876543210fedcba9876543210  \\n"; /* the last line has no end */
    static const char *const names[] = { "a b", "b", "c\\d\ne", "\\n" };
    tm_md5_list              list;
    tm_error                 err = { 0 };
    if (tm_md5_list_parse("x", text, strlen(text), &list, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(list.count, 4);
    for (int i = 0; i < 4; i++) {
        assert_string_equal(list.lines[i].name, names[i]);
        assert_string_equal(list.lines[i].md5,
                            i < 3 ? "0123456789abcdef0123456789abcdef" : "fedcba9876543210fedcba9876543210");
    }
    tm_md5_list_free(&list);
    tm_md5_list_free(&(tm_md5_list){ 0 });
}

TEST(other_lines_are_refused)
{
    static const char *const wrong[] = { "0123456789abcdef0123456789abcde  a",
                                         "0123456789abcdef0123456789abcdeg  a",
                                         "0123456789abcdef0123456789abcde@  a",
                                         "0123456789abcdef0123456789abcde:  a",
                                         "0123456789abcdef0123456789abcde`  a",
                                         "0123456789abcdef0123456789abcde/  a",
                                         "0123456789abcdef0123456789abcdeG  a",
                                         SUM "  ",
                                         SUM " ",
                                         SUM "",
                                         "",
                                         SUM "a a",
                                         SUM " xa",
                                         "\\" SUM "  a\\x",
                                         "\\" SUM "  a\\",
                                         "\\",
                                         "\\" SUM "  " };
    tm_md5_list              list;
    char                     text[200];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        tm_error err = { 0 };
        size_t   n = (size_t)snprintf(text, sizeof text, SUM "  a\n%s", wrong[i]);
        text[n++] = '\n';
        assert_int_equal(tm_md5_list_parse("x", text, n, &list, &err), TM_FORMAT);
        assert_string_equal(err.text,
                            "'x': line 2 is not '<32 hexadecimal digits>  <name>' as md5sum writes it (at most "
                            "1048576 lines)");
        assert_int_equal(list.count, 0);
    }
    tm_error err = { 0 };
    assert_int_equal(tm_md5_list_parse("x", "", 0, &list, &err), TM_FORMAT);
    assert_string_equal(err.text, "'x' lists no files");
}

TEST(files_are_listed_in_order)
{
    static const char *const names[] = { ".hidden", "B", "a/1", "a/10", "a/2", "b" };
    tm_file_list             list = { 0 };
    tm_error                 err = { 0 };
    char                     wanted[400];
    assert_int_equal(mkdir(test_in_folder("a"), 0777), 0);
    assert_int_equal(mkdir(test_in_folder("empty"), 0777), 0);
    for (int i = 5; i >= 0; i--) assert_int_equal(tm_file_write(test_in_folder(names[i]), "x", 1, &err), TM_OK);
    if (tm_file_list_read(test_folder(), &list, &err) != TM_OK) fail_msg("%s", err.text);
    assert_int_equal(list.count, 6);
    for (int i = 0; i < 6; i++) assert_string_equal(list.paths[i], test_in_folder(names[i]));
    tm_file_list_free(&list);
    assert_string_equal(tm_file_name("a/b/c"), "c");
    assert_string_equal(tm_file_name("c"), "c");
    assert_true(tm_is_folder(test_folder()) && !tm_is_folder(test_in_folder("b")) && !tm_is_folder("/no"));
    list = (tm_file_list){ 0 };
    assert_int_equal(mkfifo(test_in_folder("fifo"), 0600), 0);
    snprintf(wanted, sizeof wanted, "'%s' is neither a regular file nor a directory; remove it",
             test_in_folder("fifo"));
    assert_int_equal(tm_file_list_read(test_folder(), &list, &err), TM_INVALID);
    assert_string_equal(err.text, wanted);
    tm_file_list_free(&list);
    list = (tm_file_list){ 0 }, err = (tm_error){ 0 };
    assert_int_equal(unlink(test_in_folder("fifo")), 0);
    assert_int_equal(symlink("nowhere", test_in_folder("lost")), 0);
    snprintf(wanted, sizeof wanted, "cannot reach '%s': No such file or directory", test_in_folder("lost"));
    assert_int_equal(tm_file_list_read(test_folder(), &list, &err), TM_INVALID);
    assert_string_equal(err.text, wanted);
    tm_file_list_free(&list);
}

TEST_FIXTURE(NULL, test_folder_teardown)
