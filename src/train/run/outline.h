/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/outline.h - private to the room: a step in a few numbers, from its plan: the work of each line of the
 * ledger, and the live bytes of each memory class from its first instruction to its last. */
#ifndef TM_TRAIN_RUN_OUTLINE_H
#define TM_TRAIN_RUN_OUTLINE_H

#include "base/arena.h"
#include "base/event.h"
#include "device/device.h"
#include "train/step/step.h"

enum { OUTLINE_POINTS = 128 };

typedef struct {
    tm_line_work   work[TM_LEDGER_LINES];
    size_t         n_work;
    tm_class_bytes classes[TM_MEMORY_CLASSES];
    size_t         n_classes, n_points;
} step_outline;

/* Of a step whose plan is loaded: every program of the schedule once, in its order; a point is the fullest instruction
 * of a stretch. Work counts every micro-batch. The bytes are taken from the arena. */
void step_outline_make(const tm_step *step, tm_arena *arena, step_outline *out);

#endif
