/* SPDX-License-Identifier: Apache-2.0 */
/* train/init.h - initial values: element i of a piece is f(seed, stream(name), i). */
#ifndef TM_TRAIN_INIT_H
#define TM_TRAIN_INIT_H

#include "graph/plan.h"

/* Fills weights and constants; moments and gradients are left as they are (zero). */
void tm_init_fill(const tm_plan *plan, const tm_arenas *memory, uint64_t seed, int threads);

#endif
