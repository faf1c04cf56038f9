/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/replay_step.h - one step of a run again, alone: the last checkpoint before it (or the first weights), the
 * steps up to it in silence, then that step with a look at every instruction.
 */
#ifndef TM_TRAIN_RUN_REPLAY_STEP_H
#define TM_TRAIN_RUN_REPLAY_STEP_H

#include "train/run/run.h"
#include "train/trainer/locate.h"

typedef struct {
    int64_t     step;  /* from 1 */
    const char *batch; /* folder of the saved batch of this step; NULL: the source has it */
    bool        twice; /* the step a second time from the same state, as a run computes it; all bits are compared */
} tm_step_replay;

/* A trained weight and its gradient, as this rank reads them. */
typedef struct {
    const char *name; /* lives with tm_step_replayed */
    int         layer;
    uint64_t    weight, gradient; /* XXH3-64 of the bytes, behind the step */
    double      weight_norm, gradient_norm, weight_largest, gradient_largest; /* L2, and largest magnitudes */
} tm_step_replayed_tensor;

typedef struct {
    int64_t  step, from; /* from: the step of the checkpoint that it went on from; 0: the first weights */
    double   loss, grad_norm, learning_rate;
    uint64_t weights_before, weights; /* tm_trainer_weights_hash */
    tm_step_replayed_tensor *tensors;
    size_t                   n_tensors;
    bool                     any; /* a value was not finite: */
    tm_nonfinite             found;
    bool                     twice, same;                /* the step was done twice; to the same bits */
    char                     differs[TM_NONFINITE_NAME]; /* else what first differs: "loss", the name of a tensor */
    tm_arena                *arena;
} tm_step_replayed;

/* The step of the latest checkpoint in `folder` (NULL: none) that is before `step`; 0: there is none. */
TM_MUST_USE tm_status tm_step_replay_from(const char *folder, int64_t step, int64_t *from, tm_error *err);

/* Every rank of the run calls it. `source` NULL: only with a batch, and a checkpoint of the step before. TM_INVALID:
 * the run has no such step, or the batch is of another one; as tm_run. The caller ends *out, also after a failure. */
TM_MUST_USE tm_status tm_run_replay(const tm_run_options *options, tm_device *device, const tm_source *source,
                                    const tm_step_replay *replay, const volatile sig_atomic_t *stop,
                                    tm_step_replayed *out, tm_error *err);
void                  tm_step_replayed_fini(tm_step_replayed *replayed);

#endif
