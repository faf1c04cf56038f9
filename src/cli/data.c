/* SPDX-License-Identifier: Apache-2.0 */
/* cli/data.c - `trainmark data COMMAND`; the commands are those of data.def. */
#include "cli/data.h"

#include "cli/cli.h"
#include "record/table.h"

tm_status tm_data_print(const tm_table *table, bool json, bool verbose, tm_error *err)
{
    tm_text text = { 0 };
    tm_cli_add_table(table, json, verbose, &text);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

#define TM_DATA_COMMAND(name) extern const tm_cli_command tm_data_command_##name;
#include "cli/data.def"
#undef TM_DATA_COMMAND

static const tm_cli_command *const commands[] = {
#define TM_DATA_COMMAND(name) &tm_data_command_##name,
#include "cli/data.def"
#undef TM_DATA_COMMAND
    NULL,
};

const tm_cli_command tm_command_data = {
    .name = "data",
    .summary = "inspect, verify and make files of training data",
    .commands = commands,
};
