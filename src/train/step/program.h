/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/program.h - private to the room: the programs of a step that go forward and backward. */
#ifndef TM_TRAIN_STEP_PROGRAM_H
#define TM_TRAIN_STEP_PROGRAM_H

#include "train/step/step.h"

typedef struct {
    const char  *name;
    tm_model     model; /* with what it counts */
    tm_tensor_id loss;
    bool         accumulate; /* gradients, loss and counts are added to */
    bool         records;    /* what the next steps need of this one: scales, counters */
    bool         offloads;
    bool         plain;    /* no products in low precision */
    bool         together; /* of a stage: forward and backward stay one segment, with counts of its own */
    int          chunk;    /* stage of this rank */
} training_program;

/* A segment with all passes done, but for those of what ranks share. */
TM_MUST_USE tm_status step_add_program(tm_step *step, const tm_chooser *chooser, const training_program *p,
                                       tm_error *err);

/* A step whose tensors are declared and in their groups: for programs to be added. The caller destroys it. */
TM_MUST_USE tm_status step_declare(const tm_step_options *options, const tm_chooser *chooser, tm_step **out,
                                   tm_error *err);
/* The program "first". */
TM_MUST_USE tm_status step_add_first(tm_step *step, const tm_chooser *chooser, tm_error *err);

/* The passes of a segment that goes forward only. */
TM_MUST_USE tm_status step_forward_only(tm_step *step, const tm_chooser *chooser, tm_tensor_id first_row,
                                        tm_error *err);
/* The program "sample", if the options ask for one. */
TM_MUST_USE tm_status step_add_sample(tm_step *step, const tm_chooser *chooser, tm_error *err);

/* The program "microscope". */
TM_MUST_USE tm_status step_add_look(tm_step *step, const tm_chooser *chooser, tm_error *err);

#endif
