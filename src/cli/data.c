/* SPDX-License-Identifier: Apache-2.0 */
/* cli/data.c - `trainmark data COMMAND`: finds the command in its table (data.def), and what these commands share. */
#include "cli/data.h"

#include "cli/cli.h"
#include "record/table.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *summary;
    tm_status (*run)(int argc, char **argv, tm_error *err);
} commands[] = {
#define TM_DATA_COMMAND(name, summary) { #name, summary, tm_data_command_##name },
#include "cli/data.def"
#undef TM_DATA_COMMAND
};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

static tm_status print_help(tm_error *err)
{
    tm_text text = { 0 };
    tm_text_add(&text, "usage: trainmark data COMMAND [options] PATH\n\n"
                       "Files of training data (docs/data-mlperf.md). Commands:\n");
    for (int i = 0; i < COMMANDS; i++) tm_text_printf(&text, "  %-9s %s\n", commands[i].name, commands[i].summary);
    tm_text_add(&text, "\n`trainmark data COMMAND --help` tells more.\n");
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

tm_status tm_command_data(int argc, char **argv, tm_error *err)
{
    if (argc < 2) return tm_fail(err, TM_USAGE, "which command? `trainmark data --help` lists all");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return print_help(err);
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1, err);
    return tm_fail(err, TM_USAGE, "unknown command 'data %.200s'; wanted inspect, verify, pack or tokenize", argv[1]);
}

tm_status tm_data_arguments(int argc, char **argv, const tm_cli_option *options, const char **path, tm_error *err)
{
    char command[64];
    snprintf(command, sizeof command, "data %s", argv[0]);
    return tm_cli_arguments(argc, argv, command, options, path, err);
}

tm_status tm_data_print(const tm_table *table, bool json, tm_error *err)
{
    tm_text text = { 0 };
    tm_table_print(table, json ? TM_TABLE_JSON : TM_TABLE_MARKDOWN, &text);
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}
