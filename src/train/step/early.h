/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/early.h - weights that are updated within the backward pass (private to train/step/).
 *
 * A weight whose update follows the last use of it in the backward pass needs its gradient no longer: gradients then
 * live for a moment, and those of all weights never lie in memory together. Known as optimizer steps in the backward
 * pass, in torchtune and torchtitan; Lv et al. 2023 (LOMO) fuse the two for the same reason. It takes a step of one
 * micro-batch on one rank, without clipping: the norm of all gradients is known only behind all updates. */
#ifndef TM_TRAIN_STEP_EARLY_H
#define TM_TRAIN_STEP_EARLY_H

#include "train/step/step.h"

/* Nodes [from, end) of the segment "update": all that updates a parameter. */
typedef struct {
    tm_tensor_id parameter;
    size_t       from, end;
} early_update;

/* The clip that such updates read in the place of step->clip: norm unknown (0), coefficient 1. */
tm_tensor_id early_clip(tm_graph *graph);
/* Moves updates, and the squares of their gradients that a norm adds up, from the current segment "update" into
 * `backward`, the program of the step's one micro-batch, each behind the last node that uses the weight or its
 * gradient. Gradients become transient. Moments there are offloaded as step->options.offload says. */
void early_move(tm_step *step, tm_segment *backward, const early_update *updates, size_t n);

#endif
