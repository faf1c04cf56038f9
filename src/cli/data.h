/* SPDX-License-Identifier: Apache-2.0 */
/* cli/data.h - the commands behind `trainmark data`. One is a file cli/data_NAME.c and a line in data.def. */
#ifndef TM_CLI_DATA_H
#define TM_CLI_DATA_H

#include "base/status.h"
#include "base/table.h"
#include "cli/cli.h"

#include <stdbool.h>

/* argv[0] is the command's name ("verify"). Results go to stdout; the status becomes the exit code. */
#define TM_DATA_COMMAND(name, summary) tm_status tm_data_command_##name(int argc, char **argv, tm_error *err);
#include "cli/data.def"
#undef TM_DATA_COMMAND

/* Reads options and exactly one PATH, in any order; TM_USAGE. */
TM_MUST_USE tm_status tm_data_arguments(int argc, char **argv, const tm_cli_option *options, const char **path,
                                        tm_error *err);
/* The table on stdout, as JSON or for people. */
TM_MUST_USE tm_status tm_data_print(const tm_table *table, bool json, tm_error *err);

#endif
