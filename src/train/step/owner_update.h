/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/owner_update.h - private to the room: updates that need whole tensors (Muon, Adafactor, AdamW8bit), where
 * ranks share weights. Each tensor has one rank that updates it and alone has its moments: tensors are dealt out, the
 * largest first, to the rank that has the least so far. Of a unit
 *
 *   gradients   are gathered on all ranks                                       (ZeRO-1: reduced there)
 *   weights     are gathered, too                                               (ZeRO-1, ZeRO-2: they are whole)
 *   each rank   updates its tensors with the ops of a run alone; the others become zeros
 *   weights     are summed over the ranks into the shares: one rank's and zeros (ZeRO-1, ZeRO-2: everywhere)
 *
 * so bits are those of whole tensors that are updated on every rank (copies), if the gradients' are and nothing is
 * clipped: the norm is summed by shares. */
#ifndef TM_TRAIN_STEP_OWNER_UPDATE_H
#define TM_TRAIN_STEP_OWNER_UPDATE_H

#include "train/step/step.h"

bool owner_update_wanted(const tm_step_options *options);
/* Gives every trained member of units that ranks share its owner. */
void owner_update_assign(tm_units *units);
/* Is the unit dealt out? */
bool owner_update_is(const tm_unit *unit);
/* Appends the update of a unit that is; its gradients are reduced. */
void owner_update_emit(tm_step *step, const tm_unit *unit);

#endif
