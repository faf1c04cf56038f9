/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/words.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static tm_status take(int argc, char **argv, int i, const tm_cli_option *options, int *used, tm_error *err)
{
    size_t n = strcspn(argv[i], "=");
    *used = 0;
    for (const tm_cli_option *o = options; o->name; o++) {
        if (strlen(o->name) != n || strncmp(argv[i], o->name, n) != 0) continue;
        *used = 1;
        if (o->flag && argv[i][n]) return tm_fail(err, TM_USAGE, "option '%s' takes no value", o->name);
        if (o->flag) *o->flag = true;
        if (o->flag) return TM_OK;
        const char *value = argv[i][n] ? argv[i] + n + 1 : i + 1 < argc ? argv[i + 1] : NULL;
        *used = argv[i][n] ? 1 : 2;
        if (!value || !*value) return tm_fail(err, TM_USAGE, "option '%s' needs a value", o->name);
        *o->value = value;
        return TM_OK;
    }
    return TM_OK;
}

tm_status tm_cli_words(int argc, char **argv, const char *command, const tm_cli_option *options, char **words, int *n,
                       int least, int most, tm_error *err)
{
    *n = 0;
    for (int i = 1, used; i < argc; i += used) {
        TM_TRY(take(argc, argv, i, options, &used, err));
        if (used > 0) continue;
        if (argv[i][0] == '-' && argv[i][1])
            return tm_fail(err, TM_USAGE, "unknown option '%.200s'; `trainmark %s --help` lists those there are", argv[i],
                           command);
        words[(*n)++] = argv[i];
        used = 1;
    }
    if (*n >= least && (most < 0 || *n <= most)) return TM_OK;
    return tm_fail(err, TM_USAGE, "`trainmark %s` takes %s%d argument%s, found %d; see `trainmark %s --help`", command,
                   most == least ? "" : *n < least ? "at least " : "at most ", *n < least ? least : most,
                   (*n < least ? least : most) == 1 ? "" : "s", *n, command);
}

tm_status tm_cli_whole(const char *text, const char *option, int64_t least, int64_t *out, tm_error *err)
{
    char *end;
    if (!text) return TM_OK;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (*end || errno || value < least)
        return tm_fail(err, TM_USAGE, "%s must be a whole number of at least %lld, found '%.40s'", option,
                       (long long)least, text);
    *out = value;
    return TM_OK;
}

tm_status tm_cli_positive(const char *text, const char *option, double *out, tm_error *err)
{
    char *end;
    if (!text) return TM_OK;
    double value = strtod(text, &end);
    if (*end || !(value > 0) || !isfinite(value))
        return tm_fail(err, TM_USAGE, "%s must be a number above 0, found '%.40s'", option, text);
    *out = value;
    return TM_OK;
}
