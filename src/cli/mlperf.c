/* SPDX-License-Identifier: Apache-2.0 */
/* cli/mlperf.c - `trainmark mlperf COMMAND`: finds the command in its table (mlperf.def). */
#include "cli/mlperf.h"

#include "cli/cli.h"

#include <string.h>

static const struct {
    const char *name, *summary;
    tm_status (*run)(int argc, char **argv, tm_error *err);
} commands[] = {
#define TM_MLPERF_COMMAND(name, summary) { #name, summary, tm_mlperf_command_##name },
#include "cli/mlperf.def"
#undef TM_MLPERF_COMMAND
    { NULL, NULL, NULL },
};

static tm_status print_help(tm_error *err)
{
    tm_text text = { 0 };
    tm_text_add(&text, "usage: trainmark mlperf COMMAND [options]\n\n"
                       "MLPerf-style logs, rules, convergence and score (docs/mlperf.md). Commands:\n");
    for (size_t i = 0; commands[i].name; i++)
        tm_text_printf(&text, "  %-9s %s\n", commands[i].name, commands[i].summary);
    tm_text_add(&text, "\n`trainmark mlperf COMMAND --help` tells more. What these commands say is not verified by "
                       "MLCommons Association.\n");
    tm_status st = tm_cli_print(&text, err);
    tm_text_fini(&text);
    return st;
}

static tm_status unknown(const char *name, tm_error *err)
{
    const char *nearest = NULL;
    int         best = 3; /* farther is no help */
    for (size_t i = 0; commands[i].name; i++) {
        int distance = tm_edit_distance(name, commands[i].name);
        if (distance >= best) continue;
        best = distance;
        nearest = commands[i].name;
    }
    return tm_fail(err, TM_USAGE, "unknown command 'mlperf %.200s'; %s%s%s`trainmark mlperf --help` lists all", name,
                   nearest ? "did you mean '" : "", nearest ? nearest : "", nearest ? "'? " : "");
}

tm_status tm_command_mlperf(int argc, char **argv, tm_error *err)
{
    if (argc < 2) return tm_fail(err, TM_USAGE, "which command? `trainmark mlperf --help` lists all");
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) return print_help(err);
    for (size_t i = 0; commands[i].name; i++)
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1, err);
    return unknown(argv[1], err);
}
