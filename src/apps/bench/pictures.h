/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/pictures.h - ops of pictures at the shapes of an autoencoder, call by call: no training step has them
 * (private to bench/; docs/hardware-files.md). */
#ifndef TM_BENCH_PICTURES_H
#define TM_BENCH_PICTURES_H

#include "apps/bench/bench.h"
#include "op/op.h"

/* Told once for each case: the call, what it costs, the median of its seconds. */
typedef void tm_picture_sample(void *context, const tm_call *call, tm_cost cost, double seconds);

/* Convolutions and group norms of the autoencoder of FLUX.1 at 256 x 256 pixels, with operands in `dtype`:
 * at least `least` passes over each, at most `most`, until `share` seconds of the budget are used. Does nothing on a
 * device that has no fast kernels for them. TM_INTERRUPTED when stopped; TM_NOMEM; TM_DEVICE. */
TM_MUST_USE tm_status tm_pictures_time(tm_bench *bench, tm_dtype dtype, size_t least, size_t most, double share,
                                       tm_picture_sample *sample, void *context, tm_error *err);

#endif
