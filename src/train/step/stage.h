/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/stage.h - private to the room: where a pipeline cuts a model, and messages between its ranks. */
#ifndef TM_TRAIN_STEP_STAGE_H
#define TM_TRAIN_STEP_STAGE_H

#include "train/pipeline/pipeline.h"
#include "train/step/step.h"

enum { TM_STAGE_AXES = 1U << TM_AXIS_PP };

/* Is the model cut into stages? What follows is for such steps only. */
static inline bool stages_cut(const tm_step *step)
{
    return tm_layout_size(&step->options.layout, 1U << TM_AXIS_PP) > 1;
}
tm_pipeline stages_pipeline(const tm_step_options *options);

/* All stages: out[ranks x chunks]. */
TM_MUST_USE tm_status stages_cut_all(const tm_step_options *options, tm_stage *out, tm_error *err);
/* Sends x to the rank `peer` of the pipeline, or receives what is given, so many `times` in a step. */
enum { STAGES_FORWARD, STAGES_BACKWARD };
void stages_message(tm_step *step, bool sends, int peer, int channel, int64_t times, const char *what, tm_tensor_id x);

#endif
