/* SPDX-License-Identifier: Apache-2.0 */
#include "data/inspect.h"

#include "cli/cli.h"
#include "cli/data.h"

static const char help[] =
    "usage: trainmark data inspect PATH [--json]\n\n"
    "Says what is in files of training data. PATH is a packed file (.npy) or a folder of them, an indexed data set\n"
    "(PREFIX, PREFIX.idx or PREFIX.bin), or text (a file or folder, read as bytes).\n\n"
    "  counted    share of the tokens whose mask is 1\n"
    "  id_max     a model needs a vocabulary of one more\n";

tm_status tm_data_command_inspect(int argc, char **argv, tm_error *err)
{
    bool                 json = false;
    const char          *path;
    const tm_cli_option options[] = { { "--json", NULL, &json }, { NULL, NULL, NULL } };
    if (tm_cli_wants_help(argc, argv)) return tm_cli_print_help(help, err);
    TM_TRY(tm_data_arguments(argc, argv, options, &path, err));
    tm_table *table = tm_data_inspect_table();
    tm_status st = tm_data_inspect(path, table, err);
    if (st == TM_OK) st = tm_data_print(table, json, err);
    tm_table_destroy(table);
    return st;
}
