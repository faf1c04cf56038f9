/* SPDX-License-Identifier: Apache-2.0 */
/* train/trainer/preference.h - runs that learn from pairs of answers; private to this room. What is told goes by TRL's
 * names.
 */
#ifndef TM_TRAIN_TRAINER_PREFERENCE_H
#define TM_TRAIN_TRAINER_PREFERENCE_H

#include "base/event.h"
#include "op/attrs.h"

/* rewards/chosen, rewards/rejected, rewards/accuracies, rewards/margins, logps/chosen, logps/rejected: means over pairs
 * of what preference_loss has added up; NAN without a pair. */
enum { TM_PREFERENCE_MEASURES = 6 };
void tm_preference_measure(const double record[TM_PREFERRED_COUNT], tm_named_f64 out[TM_PREFERENCE_MEASURES]);

/* The loss of a pair that the model likes no better than the reference does: where training begins. */
double tm_preference_start(const tm_preference_attr *attr);

#endif
