/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/part.h - a model with some of its layers, trained for real: everything but their number is the model's own
 * (width, heads, vocabulary, batch, length), and a step is a whole optimizer step as `run` does it, with its data
 * fetched ahead. What a part says of the whole model is apps/bench/slices.h's business.
 */
#ifndef TM_BENCH_PART_H
#define TM_BENCH_PART_H

#include "train/run/run.h"

typedef struct {
    const tm_run_options *run; /* of the whole model; must outlive the part */
    tm_step_options       step;
    int64_t               layers, parameters;
    size_t                arena_bytes; /* what the plan takes, to the byte */
    double                flops;       /* executed by the programs of a step */
    bool                  judged;
} tm_part;

/* Plans the step of a model with `layers` layers; takes no memory for it. */
TM_MUST_USE tm_status tm_part_plan(const tm_run_options *run, int64_t layers, tm_device *device, tm_part *out,
                                   tm_error *err);

typedef struct tm_live_part tm_live_part;

/* Takes the arena and sets the weights. The part and the device must outlive it. TM_NOMEM when it does not fit. */
TM_MUST_USE tm_status tm_part_open(const tm_part *part, tm_device *device, tm_live_part **out, tm_error *err);
void                  tm_part_close(tm_live_part *live); /* NULL is fine */

/* One optimizer step; *seconds is its wall time, waiting for data included. TM_NUMBERS when loss or gradient norm is no
 * number, or the first loss is not that of a model that knows nothing: 0.9 to 1.5 times ln of the vocabulary. (The
 * device that computes nothing is not judged.) */
TM_MUST_USE tm_status tm_part_step(tm_live_part *live, double *seconds, tm_error *err);
/* Programs of the step that is trained: to be looked at. */
const tm_step *tm_part_step_of(const tm_live_part *live);
/* One optimizer step, instruction by instruction: seconds of each, in the order of the schedule's programs. A host's
 * device of one thread is timed by the processor time of the calling thread, others by the clock. */
TM_MUST_USE tm_status tm_part_step_apart(tm_live_part *live, double *seconds, tm_error *err);
/* Mean loss of a token in the first step and in the last one; NaN: there was none. */
void tm_part_losses(const tm_live_part *live, double *first, double *last);

#endif
