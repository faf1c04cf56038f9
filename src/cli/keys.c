/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <string.h>

static const char help[] = "usage: trainmark keys [SECTION] [--markdown]\n\n"
                           "Lists the configuration keys with type, default, range and help; those of a section "
                           "(`trainmark keys training`), or all.\n";

tm_status tm_command_keys(int argc, char **argv, tm_error *err)
{
    if (tm_cli_wants_help(argc, argv)) return tm_cli_print_help(help, err);
    bool        markdown = false;
    const char *section = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--markdown") == 0)
            markdown = true;
        else if (argv[i][0] != '-' && !section)
            section = argv[i];
        else
            return tm_fail(err, TM_USAGE, "unexpected '%s'; usage: trainmark keys [SECTION] [--markdown]", argv[i]);
    }
    tm_config *config = tm_cli_config();
    tm_text    out = { 0 };
    if (markdown)
        tm_config_print_reference(config, &out);
    else
        tm_config_print_help(config, section, &out);
    tm_status st = out.length ? tm_cli_print(&out, err)
                              : tm_fail(err, TM_USAGE, "no key begins with '%s.'; `trainmark keys` lists all", section);
    tm_text_fini(&out);
    tm_config_destroy(config);
    return st;
}
