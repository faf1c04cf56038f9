/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/checks.h - private to the room: refusals that need a step's numbers (rounds of experts, sums of parts)
 * or its programs. Pairs of options that cannot be combined: supported.h. */
#ifndef TM_TRAIN_STEP_CHECKS_H
#define TM_TRAIN_STEP_CHECKS_H

#include "train/step/step.h"

/* Tensors and adapters are declared: TM_UNSUPPORTED where an option is not supported with them. */
TM_MUST_USE tm_status step_check_declared(const tm_step *step, tm_error *err);
/* The programs are there: every adapter has a gradient. */
TM_MUST_USE tm_status step_check_built(const tm_step *step, tm_error *err);
/* Sums of parts (training.separate_sums): TM_INVALID where they cannot be equal, or other ranks sum as well. */
TM_MUST_USE tm_status step_check_parts(const tm_step_options *options, tm_error *err);
/* Sizes that the ranks of tensor parallelism do not divide: TM_INVALID, with the keys. */
TM_MUST_USE tm_status step_check_tensor(const tm_step *step, tm_error *err);

#endif
