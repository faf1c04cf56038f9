/* SPDX-License-Identifier: Apache-2.0 */
/* data/preview.h - samples for fine-tuning as text, with what a model learns from them and what it only reads. */
#ifndef TM_DATA_PREVIEW_H
#define TM_DATA_PREVIEW_H

#include "base/status.h"
#include "base/text.h"
#include "data/source.h"

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    const char    *path; /* as of data.source sft */
    tm_sft_options sft;
    int64_t        seq;   /* samples are cut to seq + 1 tokens; 0: they are not */
    int64_t        first; /* row to begin with, from 1 */
    int64_t        n;     /* how many */
    bool           json, colour;
} tm_preview_options;

/* Appends n samples. For people: a line on each, then its text, what is no target between [[ and ]] (with colour: what
 * is one in green instead); special tokens by their names. Of a pair first the chosen answer, then the rejected one.
 * JSON: {format, samples: [{place, [answer,] tokens, targets, truncated, parts:
 * [{target, text}], ids, mask}]}. The same errors as tm_source_open; TM_INVALID: there is no row `first`. */
TM_MUST_USE tm_status tm_data_preview(const tm_preview_options *options, tm_text *out, tm_error *err);

#endif
