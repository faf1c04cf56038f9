/* SPDX-License-Identifier: Apache-2.0 */
/* train/generate/scheduler.h - which times a drawing goes through, as a folder of diffusers says it. */
#ifndef TM_TRAIN_GENERATE_SCHEDULER_H
#define TM_TRAIN_GENERATE_SCHEDULER_H

#include "train/generate/euler.h"

/* Of scheduler_config.json in `folder`, a FlowMatchEulerDiscreteScheduler; what a file does not say is diffusers'
 * default. TM_INVALID: no such file, or a number that is none; TM_UNSUPPORTED: another scheduler, or a rule that
 * changes the times and is not computed here, by name. */
TM_MUST_USE tm_status tm_scheduler_read(const char *folder, tm_euler_times *out, tm_error *err);

#endif
