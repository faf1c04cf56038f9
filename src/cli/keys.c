/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <string.h>

static const char help[] = "usage: trainmark keys [SECTION] [--markdown] [--framework NAME]\n\n"
                           "Lists the configuration keys with type, default, range and help; those of a section "
                           "(`trainmark keys training`), or all.\n\n"
                           "--framework torchtitan, megatron, torchtune or pytorch-training-benchmark: the keys of that program's\n"
                           "files, and what becomes of each: mapped to ours, harmless, performance only, must equal, not built.\n";

tm_status tm_command_keys(int argc, char **argv, tm_error *err)
{
    if (tm_cli_wants_help(argc, argv)) return tm_cli_print_help(help, err);
    bool        markdown = false;
    const char *section = NULL, *framework = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--markdown") == 0)
            markdown = true;
        else if (strncmp(argv[i], "--framework=", 12) == 0)
            framework = argv[i] + 12;
        else if (strcmp(argv[i], "--framework") == 0 && i + 1 < argc)
            framework = argv[++i];
        else if (argv[i][0] != '-' && !section)
            section = argv[i];
        else
            return tm_fail(err, TM_USAGE, "unexpected '%s'; usage: trainmark keys [SECTION] [--markdown] [--framework NAME]", argv[i]);
    }
    tm_config *config = tm_cli_config();
    tm_text    out = { 0 };
    tm_status st = framework ? tm_config_print_framework(framework, &out, err) : TM_OK;
    if (framework)
        section = framework;
    else if (markdown)
        tm_config_print_reference(config, &out);
    else
        tm_config_print_help(config, section, &out);
    if (st == TM_OK) st = out.length ? tm_cli_print(&out, err)
                              : tm_fail(err, TM_USAGE, "no key begins with '%s.'; `trainmark keys` lists all", section);
    tm_text_fini(&out);
    tm_config_destroy(config);
    return st;
}
