/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"

#include <stdlib.h>
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

tm_status tm_cli_read_bytes(const char *text, const char *option, int64_t *bytes, tm_error *err)
{
    static const struct {
        const char *name;
        double      bytes;
    } units[] = { { "", 1 },         { "B", 1 },    { "KiB", 0x1p10 }, { "MiB", 0x1p20 }, { "GiB", 0x1p30 },
                  { "TiB", 0x1p40 }, { "KB", 1e3 }, { "MB", 1e6 },     { "GB", 1e9 },     { "TB", 1e12 } };
    char  *unit;
    double number = strtod(text, &unit);
    while (unit > text && *unit == ' ') unit++;
    for (size_t i = 0; unit > text && i < sizeof units / sizeof units[0]; i++) {
        double all = number * units[i].bytes;
        if (!tm_names_equal(unit, units[i].name) || !(all >= 1 && all < 9e18)) continue;
        *bytes = (int64_t)all;
        return TM_OK;
    }
    return tm_fail(err, TM_INVALID, "%s: '%.60s' is not a size; wanted a number and a unit, 192GiB", option, text);
}
