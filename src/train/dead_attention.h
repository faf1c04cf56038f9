/* SPDX-License-Identifier: Apache-2.0 */
/* train/dead_attention.h - private to the room: layers whose attention sees one token only. */
#ifndef TM_TRAIN_DEAD_ATTENTION_H
#define TM_TRAIN_DEAD_ATTENTION_H

#include "base/text.h"
#include "train/run_state.h"

/* After the last step: the layers, of all ranks, in which no gradient but rounding reached wq and wk, although one did
 * reach wv ("0, 2"; empty: none). Every rank calls it. The caller frees the text. */
TM_MUST_USE tm_status run_find_dead_attention(const run *r, tm_text *layers, tm_error *err);

#endif
