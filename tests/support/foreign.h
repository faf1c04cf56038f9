/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/foreign.h - configurations from files of other programs: a folder for such files, and loading one. */
#ifndef TM_TESTS_FOREIGN_H
#define TM_TESTS_FOREIGN_H

#include "config/config.h"

typedef struct {
    tm_config *config; /* of the file that was loaded last */
    char      *folder;
    tm_error   err;
} test_foreign;

/* Of cmocka. */
int test_foreign_set_up(void **state);
int test_foreign_tear_down(void **state);

/* Begins with another, empty configuration. */
void test_foreign_renew(test_foreign *f);
/* Loads a file, then arguments of the command line. `plan`: what is not supported may be left out. */
tm_status test_foreign_load(test_foreign *f, const char *path, bool plan, int argc, const char *const *argv);
/* Fails unless a key of ours has the value; NULL: null. */
void test_foreign_has(test_foreign *f, const char *key, const char *wanted);

/* A file below the fixture's folder, with the folders on its way. Returns its path. */
const char *test_foreign_put(test_foreign *f, const char *name, const char *text);
/* Fail unless it loads; unless it is refused with exit code 4 and these words. */
void test_foreign_take(test_foreign *f, const char *path);
void test_foreign_refuse(test_foreign *f, const char *path, const char *says);

#endif
