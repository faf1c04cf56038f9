/* SPDX-License-Identifier: Apache-2.0 */
#include "data/verify.h"

#include "base/md5.h"
#include "cli/cli.h"
#include "cli/data.h"

#include <string.h>

static const char help[] =
    "usage: trainmark data verify PATH [--expect MD5] [--json]\n\n"
    "Compares a file, or everything below a folder, with what is known of it: lists of md5sum (PATH.md5, or all *.md5 "
    "of\n"
    "the folder), published sizes of the benchmarks' files (by name), and the published hash of a folder.\n\n"
    "  --expect MD5   of the file; of a folder: the MD5 of the sorted MD5s of all its files\n\n"
    "Exit code 5 when a comparison fails, 4 when a file cannot be read or nothing is known of it.\n";

static tm_status verify(const char *path, const char *expected, bool json, tm_error *err)
{
    bool      passed = false;
    tm_table *table = tm_data_verify_table();
    tm_status st = tm_data_verify(path, expected, table, &passed, err);
    if (st == TM_OK) st = tm_data_print(table, json, err);
    tm_table_destroy(table);
    if (st == TM_OK && !passed) st = tm_fail(err, TM_NEGATIVE, "'%s' is not what was published", path);
    return st;
}

tm_status tm_data_command_verify(int argc, char **argv, tm_error *err)
{
    bool                 json = false;
    const char          *path, *expected = NULL;
    const tm_cli_option options[] = { { "--expect", &expected, NULL },
                                       { "--json", NULL, &json },
                                       { NULL, NULL, NULL } };
    if (tm_cli_wants_help(argc, argv)) return tm_cli_print_help(help, err);
    TM_TRY(tm_data_arguments(argc, argv, options, &path, err));
    if (expected && (strlen(expected) != TM_MD5_HEX - 1 || strspn(expected, "0123456789abcdef") != TM_MD5_HEX - 1))
        return tm_fail(err, TM_USAGE, "--expect wants 32 hexadecimal digits in lower case, found '%.100s'", expected);
    return verify(path, expected, json, err);
}
