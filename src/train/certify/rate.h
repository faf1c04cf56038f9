/* SPDX-License-Identifier: Apache-2.0 */
/* train/certify/rate.h - the learning rate that a configuration asks for in a step, worked out apart from the schedule
 * that training uses (train/optimizer/schedule.h), by the formulas of the programs whose schedules they are. Private to
 * the room. */
#ifndef TM_TRAIN_CERTIFY_RATE_H
#define TM_TRAIN_CERTIFY_RATE_H

#include "train/optimizer/schedule.h"

/* Part of the peak, of step `number`, counted from 1. */
double tm_certified_factor(const tm_schedule *schedule, int64_t number);

#endif
