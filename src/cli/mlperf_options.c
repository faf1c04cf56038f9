/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "cli/mlperf.h"

tm_status tm_mlperf_read_options(tm_cli_line *line, const tm_mlperf_options **out, tm_error *err)
{
    tm_mlperf_options *o = line->options;
    *out = o;
    o->folders = line->words;
    o->n = (size_t)line->n_words;
    TM_TRY(tm_ruleset_find(o->ruleset_name, &o->ruleset, err));
    return o->reference_path ? tm_reference_read(o->reference_path, line->arena, &o->reference, err) : TM_OK;
}

tm_status tm_mlperf_print(tm_text *text, tm_error *err)
{
    for (size_t i = 0; i < text->length; i++)
        if (((unsigned char)text->data[i] < 0x20 && text->data[i] != '\n') || text->data[i] == 0x7F)
            text->data[i] = '?';
    return tm_cli_print(text, err);
}
