/* SPDX-License-Identifier: Apache-2.0 */
#include "data/inspect.h"

#include "cli/cli.h"
#include "cli/data.h"

typedef struct {
    bool json;
} inspect_options;

static tm_status inspect(tm_cli_line *line, tm_error *err)
{
    const inspect_options *o = line->options;
    const char            *path = line->words[0];
    TM_TRY(tm_cli_find_hub(line, TM_HUB_DATASET, &path, err));
    tm_table *table = tm_data_inspect_table();
    tm_status st = tm_data_inspect(path, table, err);
    if (st == TM_OK) st = tm_data_print(table, o->json, line->verbose, err);
    tm_table_destroy(table);
    return st;
}

static const tm_option rows[] = { TM_OPTION_JSON(inspect_options) };

const tm_cli_command tm_data_command_inspect = {
    .name = "inspect",
    .summary = "describe files of training data: rows, tokens, ids, masks",
    .words = "PATH",
    .least = 1,
    .most = 1,
    .about = "Describes files of training data. PATH is a packed file (.npy) or a directory of them, an indexed data "
             "set (PREFIX, PREFIX.idx or PREFIX.bin), or text (a file or directory, read as bytes).\n\n"
             "  counted    share of the tokens whose mask is 1\n"
             "  id_max     a model needs a vocabulary of one more\n",
    TM_CLI_OPTIONS(rows, inspect_options),
    .run = inspect,
};
