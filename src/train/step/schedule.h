/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/schedule.h - private to the room. */
#ifndef TM_TRAIN_STEP_SCHEDULE_H
#define TM_TRAIN_STEP_SCHEDULE_H

#include "train/step/step.h"

/* The programs are planned: fills in the schedules and the pointers to programs. */
void step_schedule(tm_step *step);

#endif
