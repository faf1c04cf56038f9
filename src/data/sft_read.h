/* SPDX-License-Identifier: Apache-2.0 */
/* data/sft_read.h - the rows of files as tokens, encoded by several threads; private to this room. */
#ifndef TM_DATA_SFT_READ_H
#define TM_DATA_SFT_READ_H

#include "data/sft_tokens.h"

/* The tokens of a row (tm_sft_encode: two lists), in the order of the rows. They and `place` are valid during the call.
 */
typedef tm_status (*tm_sft_sink)(void *context, const tm_ids *ids, const char *place, tm_error *err);

typedef struct {
    int64_t rows, nothing; /* nothing: of them without a text */
} tm_sft_counts;

/* Adds to *counts. What comes of it does not depend on the number of threads; of several wrong rows the first is told.
 */
TM_MUST_USE tm_status tm_sft_read(const char *path, tm_sft_form *form, tm_sft_coder *coder, tm_sft_counts *counts,
                                  tm_sft_sink sink, void *context, tm_error *err);

#endif
