/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/test.h - what a file of tests has, for the program that runs it (tests/support/runner.c).
 *
 *     static const struct CMUnitTest tests[] = { cmocka_unit_test(adds), full_test(adds_for_a_minute) };
 *     TM_TESTS(tests, NULL, NULL)
 *
 * All files of a room are linked into one program, build/release/tests/ROOM/all, with a link to it per file. Each test
 * runs in a process of its own, after `set_up` and before `tear_down` (NULL: none).
 */
#ifndef TM_TESTS_TEST_H
#define TM_TESTS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

typedef struct tm_test_file {
    const char              *path;
    const struct CMUnitTest *tests;
    size_t                   count;
    CMFixtureFunction        set_up, tear_down;
    bool                     in_order; /* all in one process */
    struct tm_test_file     *next;
} tm_test_file;

typedef struct tm_test_role {
    const char *name;
    int (*run)(int argc, char **argv);
    struct tm_test_role *next;
} tm_test_role;

void test_add_file(tm_test_file *file);
void test_add_role(tm_test_role *role);

#define TM_TEST_FILE(tests, set_up, tear_down, in_order)                                                               \
    static tm_test_file file_of_tests = { __FILE__, tests, sizeof tests / sizeof tests[0], set_up, tear_down,          \
                                          in_order, NULL };                                                            \
    __attribute__((constructor)) static void add_file_of_tests(void)                                                   \
    {                                                                                                                  \
        test_add_file(&file_of_tests);                                                                                 \
    }

#define TM_TESTS(tests, set_up, tear_down) TM_TEST_FILE(tests, set_up, tear_down, false)

/* The same, of tests that use what those before them have left: one process for all. */
#define TM_TESTS_IN_ORDER(tests, set_up, tear_down) TM_TEST_FILE(tests, set_up, tear_down, true)

/* The same, of a file that takes the place of functions of the system or of trainmark: a program of its own. */
#define TM_TESTS_ALONE(tests, set_up, tear_down) TM_TESTS(tests, set_up, tear_down)
#define TM_TESTS_ALONE_IN_ORDER(tests, set_up, tear_down) TM_TESTS_IN_ORDER(tests, set_up, tear_down)

/* What the program does when a test starts it as `PROGRAM name ...`, instead of running tests: its exit status. */
#define TM_TEST_ROLE(name, run)                                                                                        \
    static tm_test_role                      role_of_tests = { name, run, NULL };                                      \
    __attribute__((constructor)) static void add_role_of_tests(void)                                                   \
    {                                                                                                                  \
        test_add_role(&role_of_tests);                                                                                 \
    }

/* A test that only `make test-full` runs: it takes more than 2 seconds, measures, kills, or tries every combination. */
#define TM_FULL "full: "
#define full_test(f)                                                                                                   \
    {                                                                                                                  \
        TM_FULL #f, f, NULL, NULL, NULL                                                                                \
    }
/* Is this `make test-full`? For a test that then tries more. */
bool test_is_full(void);
#define full_test_setup_teardown(f, set_up, tear_down)                                                                 \
    {                                                                                                                  \
        TM_FULL #f, f, set_up, tear_down, NULL                                                                         \
    }

/* argv[0] of this program. */
extern const char *test_program;

/* In a child that runs tests: what is open now is not left over (tests/support/leftovers.c). */
void test_leftovers_begin(void);

#endif
