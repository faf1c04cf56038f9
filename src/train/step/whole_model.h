/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/whole_model.h - private to the room: what of a stage of a pipeline goes by the whole model, which is
 * declared for it once more, in a graph that is not kept: names of parameter groups, what lies below all that is
 * trained, the rows of the tables of low precision.
 */
#ifndef TM_TRAIN_STEP_WHOLE_MODEL_H
#define TM_TRAIN_STEP_WHOLE_MODEL_H

#include "train/step/step.h"

/* The step's tensors are declared: its parameters come into their groups, it knows in front of which block nothing is
 * trained, and its tables have their rows. TM_INVALID, TM_UNSUPPORTED: as one rank with these options says. */
TM_MUST_USE tm_status stage_whole(tm_step *step, const tm_chooser *chooser, tm_error *err);

#endif
