/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/mlperf.h"

#include "cli/cli.h"

#include <string.h>

/* Is argv[*i] the option `name`, with its value behind "=" or in the next word? Then *value is it (NULL: missing). */
static bool has_value(int argc, char **argv, int *i, const char *name, const char **value)
{
    size_t n = strlen(name);
    if (strncmp(argv[*i], name, n) != 0 || (argv[*i][n] != '=' && argv[*i][n] != '\0')) return false;
    *value = argv[*i][n] == '=' ? argv[*i] + n + 1 : *i + 1 < argc ? argv[++*i] : NULL;
    return true;
}

static tm_status read_word(int argc, char **argv, int *i, unsigned takes, tm_arena *arena, tm_mlperf_options *o,
                           tm_error *err)
{
    const char *word = argv[*i], *value;
    if (strcmp(word, "--json") == 0) {
        o->json = true;
    } else if ((takes & TM_MLPERF_FULL) && strcmp(word, "--full") == 0) {
        o->full = true;
    } else if ((takes & TM_MLPERF_WERROR) && strcmp(word, "--werror") == 0) {
        o->werror = true;
    } else if ((takes & TM_MLPERF_NO_WRITE) && strcmp(word, "--no-write") == 0) {
        o->no_write = true;
    } else if (has_value(argc, argv, i, "--ruleset", &value)) {
        if (!value) return tm_fail(err, TM_USAGE, "--ruleset wants a value: 5.1.0, 6.0.0 or 6.1.0");
        TM_TRY(tm_ruleset_find(value, &o->ruleset, err));
    } else if ((takes & TM_MLPERF_REFERENCE) && has_value(argc, argv, i, "--reference", &value)) {
        if (!value)
            return tm_fail(err, TM_USAGE, "--reference wants a file of reference records (docs/mlperf-score.md)");
        TM_TRY(tm_reference_read(value, arena, &o->reference, err));
    } else if (word[0] == '-' && word[1]) {
        return tm_fail(err, TM_USAGE, "unknown option '%.100s'; `trainmark mlperf %s --help` lists all", word, argv[0]);
    } else {
        o->folders[o->n++] = argv[*i];
    }
    return TM_OK;
}

tm_status tm_mlperf_read_options(int argc, char **argv, unsigned takes, tm_arena *arena, tm_mlperf_options *out,
                                 tm_error *err)
{
    *out = (tm_mlperf_options){ .ruleset = TM_RULESET_5_1_0 };
    out->folders = tm_arena_take(arena, (size_t)argc * sizeof *out->folders);
    for (int i = 1; i < argc; i++) TM_TRY(read_word(argc, argv, &i, takes, arena, out, err));
    if (out->n == 0) return tm_fail(err, TM_USAGE, "nothing to judge is named; `trainmark mlperf %s --help` tells more", argv[0]);
    if (out->n > 1 && !(takes & TM_MLPERF_MANY))
        return tm_fail(err, TM_USAGE, "one at a time: '%.100s' and '%.100s'", out->folders[0], out->folders[1]);
    return TM_OK;
}

tm_status tm_mlperf_print(tm_text *text, tm_error *err)
{
    for (size_t i = 0; i < text->length; i++)
        if (((unsigned char)text->data[i] < 0x20 && text->data[i] != '\n') || text->data[i] == 0x7F)
            text->data[i] = '?';
    return tm_cli_print(text, err);
}
