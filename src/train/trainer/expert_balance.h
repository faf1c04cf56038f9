/* SPDX-License-Identifier: Apache-2.0 */
/* train/trainer/expert_balance.h - how evenly experts were loaded in a step (private to train/). */
#ifndef TM_TRAIN_TRAINER_EXPERT_BALANCE_H
#define TM_TRAIN_TRAINER_EXPERT_BALANCE_H

#include "base/event.h"

#include <stdint.h>

enum { TM_LOAD_MEASURES = 4 };

/* counts (mixtures, experts): rows that each expert had; pairs: rows times experts per row that each mixture was given.
 * out, means over the mixtures: moe_load_largest and moe_load_smallest, the most and least rows of an expert over the
 * mean; moe_load_entropy, of the shares, 1 where all are equal, 0 where one has all; and moe_dropped, pairs that no
 * expert computed, of all mixtures together. */
void tm_load_measure(const double *counts, int64_t mixtures, int64_t experts, double pairs,
                     tm_named_f64 out[TM_LOAD_MEASURES]);

#endif
