/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/test.h - what a file of tests has, for the program that runs it (tests/support/runner.c).
 *
 *     TEST(adds)
 *     {
 *         assert_int_equal(add(1, 1), 2);
 *     }
 *
 * All files of a room are linked into one program, build/release/tests/ROOM/all, with a link to it per file. Each test
 * runs in a process of its own.
 */
#ifndef TM_TESTS_TEST_H
#define TM_TESTS_TEST_H

/* Of C and the system, what most tests use. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/status.h"

/* Fail unless a call, whose last argument is `err`, comes to TM_OK, or to `wanted` with a sound message (refusal.h)
 * that has these words. */
#define assert_ok(call) assert_refused(call, TM_OK, "")
#define assert_refused(call, wanted, words)                                                                            \
    do {                                                                                                               \
        tm_error  test_error = { 0 };                                                                                  \
        tm_error *err = &test_error;                                                                                   \
        test_status((call), wanted, words, err, __FILE__, __LINE__);                                                   \
    } while (0)
void test_status(tm_status is, tm_status wanted, const char *words, const tm_error *err, const char *file, int line);

typedef struct tm_test_role {
    const char *name;
    int (*run)(int argc, char **argv);
    struct tm_test_role *next;
} tm_test_role;

void test_add(const char *path, struct CMUnitTest test);
void test_set_fixture(const char *path, CMFixtureFunction set_up, CMFixtureFunction tear_down);
void test_set_in_order(const char *path);
void test_add_role(tm_test_role *role);

/* A test that only `make test-full` runs: it takes more than 2 seconds, measures, kills, or tries every combination. */
#define TM_FULL "full: "
/* Is this `make test-full`? For a test that then tries more. */
bool test_is_full(void);

/* Done before main(). */
#define TM_TEST_BEFORE(f, what)                                                                                        \
    __attribute__((constructor)) static void f(void)                                                                   \
    {                                                                                                                  \
        what;                                                                                                          \
    }
#define TM_TEST_CALLED(f, called, set_up, tear_down)                                                                   \
    static void f(void **state);                                                                                       \
    TM_TEST_BEFORE(adds_test_##f, test_add(__FILE__, (struct CMUnitTest){ called, f, set_up, tear_down, NULL }))       \
    static void f(__attribute__((unused)) void **test_state)

#define TEST(f) TM_TEST_CALLED(f, #f, NULL, NULL)
#define FULL_TEST(f) TM_TEST_CALLED(f, TM_FULL #f, NULL, NULL)
/* With a fixture of its own (NULL: none of the two). */
#define TEST_WITH(f, set_up, tear_down) TM_TEST_CALLED(f, #f, set_up, tear_down)
#define FULL_TEST_WITH(f, set_up, tear_down) TM_TEST_CALLED(f, TM_FULL #f, set_up, tear_down)

/* Tests that are rows of a table: an array of struct CMUnitTest. */
#define TEST_TABLE(rows)                                                                                               \
    TM_TEST_BEFORE(adds_table_##rows,                                                                                  \
                   for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) test_add(__FILE__, rows[i]))
#define full_test(f)                                                                                                   \
    {                                                                                                                  \
        TM_FULL #f, f, NULL, NULL, NULL                                                                                \
    }

/* What the tests of this file begin and end with, each in its process. */
#define TEST_FIXTURE(set_up, tear_down) TM_TEST_BEFORE(sets_fixture, test_set_fixture(__FILE__, set_up, tear_down))
/* Each test uses what those before it have left: one process for all. */
#define TESTS_IN_ORDER TM_TEST_BEFORE(sets_order, test_set_in_order(__FILE__))
/* The file takes the place of functions of the system or of trainmark: it is a program of its own (Makefile). */
#define TESTS_ALONE

/* What the program does when a test starts it as `PROGRAM name ...`, instead of running tests: its exit status. */
#define TM_TEST_ROLE(name, run)                                                                                        \
    static tm_test_role                      role_of_tests = { name, run, NULL };                                      \
    __attribute__((constructor)) static void add_role_of_tests(void)                                                   \
    {                                                                                                                  \
        test_add_role(&role_of_tests);                                                                                 \
    }

/* argv[0] of this program. */
extern const char *test_program;

/* In a child that runs tests: what is open now is not left over (tests/support/leftovers.c). */
void test_leftovers_begin(void);

#endif
