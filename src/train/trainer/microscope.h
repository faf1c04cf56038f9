/* SPDX-License-Identifier: Apache-2.0 */
/* train/trainer/microscope.h - what the microscope saw, worked out: errors, cosines, shares. */
#ifndef TM_TRAIN_TRAINER_MICROSCOPE_H
#define TM_TRAIN_TRAINER_MICROSCOPE_H

#include "train/trainer/trainer.h"

/* One look. */
typedef struct {
    tm_look         look; /* points into what is below */
    double         *record;
    tm_look_tensor *tensors;
    tm_arena       *names;
} tm_looked;

/* By tm_trainer_look, for the step that it was begun for. `batch`: the first micro-batch of this rank, and the target
 * tokens of that one alone: losses are means over those of all ranks, 0 if there is none. `bound`: of the relative
 * error. The caller ends *out with tm_looked_fini, also after a failure; {0} before the first call. */
TM_MUST_USE tm_status tm_looked_take(tm_looked *out, tm_trainer *trainer, const tm_micro_batch *batch, int64_t step,
                                     double bound, tm_error *err);
void                  tm_looked_fini(tm_looked *looked);

#endif
