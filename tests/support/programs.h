/* SPDX-License-Identifier: Apache-2.0 */
/* tests/support/programs.h - small files of other programs, and lines that are added to them or above them. */
#ifndef TM_TESTS_PROGRAMS_H
#define TM_TESTS_PROGRAMS_H

#include "support/foreign.h"

/* A program whose files are read, as `trainmark keys --framework` calls it, and the list of its defaults
 * (tests/config/defaults/LIST.txt). */
typedef struct {
    const char *framework, *list, *name, *text;
} test_foreign_program;

enum { TEST_PROGRAMS = 7 };
extern const test_foreign_program test_foreign_programs[TEST_PROGRAMS];

enum { TEST_MAX_WORDS = 32 };

/* Words of a command line. */
typedef struct {
    char        text[1000];
    const char *words[TEST_MAX_WORDS];
    int         n;
} test_words;

/* "a: 1; b: [2, 3]" as "--a", "1", "--b", "[2, 3]". Fails where that is no such line. */
void test_words_read(test_words *out, const char *lines);
/* Writes a small file of the program, with a line more ("key: value") unless that is "". Returns its path. */
const char *test_foreign_program_put(test_foreign *f, const test_foreign_program *program, const char *line);

#endif
