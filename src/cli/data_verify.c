/* SPDX-License-Identifier: Apache-2.0 */
#include "data/verify.h"

#include "base/md5.h"
#include "cli/cli.h"
#include "cli/data.h"

#include <string.h>

typedef struct {
    const char *expected;
    bool        json;
} verify_options;

static tm_status verify(const char *path, const char *expected, bool json, bool verbose, tm_error *err)
{
    bool      passed = false;
    tm_table *table = tm_data_verify_table();
    tm_status st = tm_data_verify(path, expected, table, &passed, err);
    if (st == TM_OK) st = tm_data_print(table, json, verbose, err);
    tm_table_destroy(table);
    if (st == TM_OK && !passed) st = tm_fail(err, TM_NEGATIVE, "'%s' differs from what was published", path);
    return st;
}

static tm_status run(tm_cli_line *line, tm_error *err)
{
    const verify_options *o = line->options;
    const char           *hex = o->expected;
    if (hex && (strlen(hex) != TM_MD5_HEX - 1 || strspn(hex, "0123456789abcdef") != TM_MD5_HEX - 1))
        return tm_fail(err, TM_USAGE, "option '--expect' must be 32 hexadecimal digits in lower case, found '%.100s'",
                       hex);
    return verify(line->words[0], hex, o->json, line->verbose, err);
}

static const tm_option rows[] = {
    { "expect", 0, TM_OPTION_TEXT, offsetof(verify_options, expected), .value = "MD5",
      .help = "MD5 of the file; for a directory: the MD5 of the sorted MD5s of all its files" },
    TM_OPTION_JSON(verify_options),
};

const tm_cli_command tm_data_command_verify = {
    .name = "verify",
    .summary = "compare files with published sizes and checksums",
    .words = "PATH",
    .least = 1,
    .most = 1,
    .about = "Compares a file, an indexed data set (PREFIX of PREFIX.idx and PREFIX.bin), or everything below a "
             "directory, with what is known of it: lists of md5sum (PATH.md5, or all "
             "*.md5 of the directory), published sizes of the benchmarks' files (by name), and the published hash of a "
             "directory.\n\n"
             "Exit code 5 when a comparison fails, 4 when a file cannot be read or nothing is known of it.",
    TM_CLI_OPTIONS(rows, verify_options),
    .run = run,
};
