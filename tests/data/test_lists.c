/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of the files below a folder: in order, to a depth. */
#include "support/folder.h"

#include "base/file.h"
#include "base/file_list.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/test.h"

#include <sys/stat.h>
#include <unistd.h>

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
