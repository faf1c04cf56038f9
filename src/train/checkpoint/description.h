/* SPDX-License-Identifier: Apache-2.0 */
/* train/checkpoint/description.h - what a model is, in lines of a checkpoint: a run goes on only with the model that
 * made it. Shapes of tensors are not enough: heads, norms and positions leave no trace in them. Private to the room. */
#ifndef TM_TRAIN_CHECKPOINT_DESCRIPTION_H
#define TM_TRAIN_CHECKPOINT_DESCRIPTION_H

#include "model/shape.h"

#include "base/text.h"

/* Appends "family llama", then a line "name value" per member that is not 0 ("n_heads 4"). The initial values and the
 * longest sequence are no part of it: they do not matter when a run goes on. */
void tm_description_print(const tm_model_shape *shape, tm_text *out);

/* TM_INVALID naming the first member that differs, and both values; one without a line is 0. An empty `found` is not
 * known, and fits. */
TM_MUST_USE tm_status tm_description_check(const char *found, const char *wanted, tm_error *err);

#endif
