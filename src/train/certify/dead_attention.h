/* SPDX-License-Identifier: Apache-2.0 */
/* train/certify/dead_attention.h - private to the room: layers whose attention sees one token only. */
#ifndef TM_TRAIN_CERTIFY_DEAD_ATTENTION_H
#define TM_TRAIN_CERTIFY_DEAD_ATTENTION_H

#include "base/text.h"
#include "train/trainer/trainer.h"

/* After the last step: the layers, of all ranks, in which no gradient but rounding reached wq and wk, although one did
 * reach wv ("0, 2"; empty: none). `shape`: of the whole model. Every rank of `world` calls it (NULL: there is one). The
 * caller frees the text. */
TM_MUST_USE tm_status dead_attention_find(const tm_trainer *trainer, const tm_model_shape *shape, tm_comm *world,
                                          tm_text *layers, tm_error *err);

#endif
