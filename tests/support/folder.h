/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/folder.h - folders for the files of a test, below TMPDIR or /tmp; files that were built for tests. */
#ifndef TM_TESTS_FOLDER_H
#define TM_TESTS_FOLDER_H

/* A fresh folder; the name is the caller's. test_tree_remove removes it with all that is in it, and frees the name. */
char *test_tree_make(void);
void  test_tree_remove(char *folder);

/* Writes a text into the file root/path, and makes the folders above it. */
void test_put(const char *root, const char *path, const char *content);

/* One folder for the whole test program, made when it is first asked for. */
const char *test_folder(void);
/* A path below it, in a static buffer (one of eight in turn). */
const char *test_in_folder(const char *name);
/* A file beside the directory of this test program, as "standins/hip.so", in such a buffer. */
const char *test_built(const char *name);
/* The test works in it, so that paths are short, until it is left or removed. */
void test_folder_enter(void);
void test_folder_leave(void);
/* Removes it; the next use makes another. The second form is a teardown for cmocka. */
void test_folder_remove(void);
int  test_folder_teardown(void **state);

#endif
