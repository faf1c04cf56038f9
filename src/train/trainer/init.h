/* SPDX-License-Identifier: Apache-2.0 */
/* train/trainer/init.h - initial values: element i of a piece is f(seed, stream(name), i). */
#ifndef TM_TRAIN_TRAINER_INIT_H
#define TM_TRAIN_TRAINER_INIT_H

#include "device/device.h"

/* Fills weights and constants, by way of a few MiB of the host's memory; moments and gradients are left as
 * they are. Done when it returns. */
TM_MUST_USE tm_status tm_init_fill(const tm_plan *plan, tm_device *device, const tm_arenas *memory, uint64_t seed,
                                   int threads, tm_error *err);
/* The constants alone. */
TM_MUST_USE tm_status tm_init_constants(const tm_plan *plan, tm_device *device, const tm_arenas *memory, int threads,
                                        tm_error *err);

#endif
