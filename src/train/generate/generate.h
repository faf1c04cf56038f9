/* SPDX-License-Identifier: Apache-2.0 */
/* train/generate/generate.h - a sample of what the model has learnt: tokens drawn one after another at temperature 0.8.
 */
#ifndef TM_TRAIN_GENERATE_H
#define TM_TRAIN_GENERATE_H

#include "data/source.h"
#include "train/trainer/trainer.h"

/* Continues the first tokens of the validation split (of the training split without one) by up to `n` tokens, for at
 * most `seconds`; appends prompt and continuation, decoded, to *out and sets *text to out->data; NULL for sources that
 * are no text. The step must have been made with `sample`. The same weights and seed give the same tokens. */
TM_MUST_USE tm_status tm_generate(tm_trainer *trainer, const tm_source *source, uint64_t seed, int64_t n,
                                  double seconds, tm_text *out, char **text, tm_error *err);

#endif
