/* SPDX-License-Identifier: Apache-2.0 */
/* support/members.h - a small reader of JSON that shares nothing with the program. What is not there fails the test.
 *
 * A text is one value of JSON; a path is names of members and numbers of elements: "steps/0/loss".
 */
#ifndef TM_TEST_MEMBERS_H
#define TM_TEST_MEMBERS_H

#include <stddef.h>

char       *test_folder_text(const char *name);            /* a file of the test's folder, less than 1 MiB; free() it */
const char *test_member(const char *at, const char *name); /* of an object, or an element; NULL: there is none */

/* Behind blanks; behind the value that begins at `at`. */
const char *test_blank(const char *at);
const char *test_behind(const char *at);

/* The value at a path, and its number. */
const char *test_value_at(const char *text, const char *path);
double      test_number_at(const char *text, const char *path);
size_t      test_elements(const char *text, const char *path); /* of a list */

/* Within 1e-9 of `wanted`. */
void test_is(const char *text, const char *path, double wanted);
/* As it is written: strings with their quotes. */
void test_is_text(const char *text, const char *path, const char *wanted);

#endif
