/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "base/version.h"
#include "system/environment.h"

tm_status tm_command_version(int argc, char **argv, tm_error *err)
{
    if (tm_cli_wants_help(argc, argv))
        return tm_cli_print_help(
            "usage: trainmark version\n\nPrints the version, the build, the libraries and the machine.\n", err);
    if (argc > 1) return tm_fail(err, TM_USAGE, "unexpected '%s'; usage: trainmark version", argv[1]);
    tm_text         out = { 0 };
    tm_environment *environment = tm_environment_read("");
    tm_text_add(&out, "trainmark " TM_VERSION "\n");
    tm_json json = { .out = &out, .indent = true };
    tm_environment_print_json(environment, &json, NULL);
    tm_text_add(&out, "\n");
    tm_environment_destroy(environment);
    tm_status st = tm_cli_print(&out, err);
    tm_text_fini(&out);
    return st;
}
