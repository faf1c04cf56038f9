/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <string.h>

/* *used is the number of words of the option at argv[i], 0 if there is no such option. */
static tm_status take_option(int argc, char **argv, int i, const tm_cli_option *options, int *used, tm_error *err)
{
    *used = 0;
    for (const tm_cli_option *o = options; o->name; o++) {
        if (strcmp(argv[i], o->name) != 0) continue;
        *used = 1;
        if (o->flag) *o->flag = true;
        if (o->flag) return TM_OK;
        if (i + 1 >= argc) return tm_fail(err, TM_USAGE, "option '%s' needs a value", o->name);
        *o->value = argv[i + 1];
        *used = 2;
        return TM_OK;
    }
    return TM_OK;
}

tm_status tm_cli_arguments(int argc, char **argv, const char *command, const tm_cli_option *options, const char **path,
                           tm_error *err)
{
    *path = NULL;
    for (int i = 1, used; i < argc; i += used) {
        TM_TRY(take_option(argc, argv, i, options, &used, err));
        if (used > 0) continue;
        if (argv[i][0] == '-' || *path)
            return tm_fail(err, TM_USAGE, "unexpected '%.200s'; `trainmark %s --help` tells what it takes", argv[i],
                           command);
        *path = argv[i];
        used = 1;
    }
    if (*path && **path) return TM_OK;
    return tm_fail(err, TM_USAGE, "which file or folder? `trainmark %s --help` tells what it takes", command);
}
