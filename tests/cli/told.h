/* SPDX-License-Identifier: Apache-2.0 */
/* tests/cli/told.h - commands called inside of a test program, which works in a folder of its own so that paths are
 * short: what they print is one text. */
#ifndef TM_TESTS_CLI_TOLD_H
#define TM_TESTS_CLI_TOLD_H

#include "base/file.h"
#include "cli/cli.h"
#include "base/status.h"
#include "base/text.h"
#include "support/fake_run.h"
#include "support/folder.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static tm_text told;
static int     told_root = -1, told_out, told_err;

/* cmocka's set-up and teardown of the program. */
static inline int told_enter(void **state)
{
    static const char *const variables[] = {
        "RANK",         "WORLD_SIZE", "LOCAL_RANK",          "EXP", "MAD_MODEL_BATCH_SIZE", "SEED",
        "SLURM_PROCID", "PMI_RANK",   "OMPI_COMM_WORLD_RANK"
    };
    (void)state;
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++) unsetenv(variables[i]);
    setenv("USER", "somebody", 1);
    told_root = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return told_root < 0 || chdir(test_folder()) != 0;
}

static inline int told_leave(void **state)
{
    int status = fchdir(told_root);
    close(told_root);
    return status != 0 || test_folder_teardown(state) != 0;
}

/* Both outputs go into the text, from begin to end. */
static inline void told_begin(void)
{
    fflush(NULL);
    told_out = dup(STDOUT_FILENO), told_err = dup(STDERR_FILENO);
    int file = open(test_in_folder("captured"), O_CREAT | O_TRUNC | O_RDWR | O_APPEND, 0600);
    assert_true(file >= 0 && told_out >= 0 && told_err >= 0);
    dup2(file, STDOUT_FILENO), dup2(file, STDERR_FILENO);
    close(file);
}

static inline void told_end(tm_status st, const tm_error *err)
{
    fflush(NULL);
    dup2(told_out, STDOUT_FILENO), dup2(told_err, STDERR_FILENO);
    close(told_out), close(told_err);
    tm_text said = fake_read(test_in_folder("captured"));
    tm_text_add_n(&told, said.data, said.length);
    tm_text_fini(&said);
    tm_text_printf(&told, "-> %s%s%s\n\n", tm_status_text(st), st == TM_OK ? "" : ": ", st == TM_OK ? "" : err->text);
}

/* The command with these words, of which '' is an empty one, between separators; what it prints is added to the text.
 */
static inline tm_status told_call(const tm_cli_command *command, const char *words, const char *separators)
{
    char     copy[700], *rest = copy, *argv[40] = { (char *)(size_t)command->name };
    int      argc = 1;
    tm_error err = { 0 };
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word; (word = strsep(&rest, separators));) argv[argc++] = strcmp(word, "''") == 0 ? word + 2 : word;
    told_begin();
    tm_status st = tm_cli_call(command, command->name, argc, argv, &err);
    told_end(st, &err);
    return st;
}

#endif
