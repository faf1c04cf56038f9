/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/sequence.h - sequences that the ranks of the axis cp have in parts (model/parallel.h). Private to the
 * room. */
#ifndef TM_TRAIN_STEP_SEQUENCE_H
#define TM_TRAIN_STEP_SEQUENCE_H

#include "device/device.h"
#include "train/step/step.h"

/* TM_INVALID, TM_UNSUPPORTED: with the key and the way out. */
TM_MUST_USE tm_status sequence_check(const tm_step_options *options, tm_error *err);

/* Does this rank have a part only of the field of a sample of `seq` tokens? */
bool sequence_cuts(const tm_step_options *options, const tm_field *field, int64_t seq);

/* Queues this rank's part of a field of `samples` samples, which lie one behind the other at `from`: of a language the
 * two chunks of each sample, the first ones of all samples, then the second ones; of images run number `rank` of equal
 * ones of each sample. `bytes` together. */
TM_MUST_USE tm_status sequence_feed(tm_device *device, const tm_step_options *options, tm_address to, size_t bytes,
                                    int64_t samples, const void *from, tm_error *err);

#endif
