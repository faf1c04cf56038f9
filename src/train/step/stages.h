/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/stages.h - private to the room: what pipeline parallel training adds to a step's programs. Orders and cuts
 * are in train/pipeline/pipeline.h.
 *
 * A rank has for each of its stages the programs
 *
 *   forward.first,  backward.first    of the first micro-batch: gradients are overwritten
 *   forward,        backward          of the others: gradients are added to
 *
 * (with a number behind a dot where there are several stages; in orders that part the backward, `input` and `weight` in
 * the place of `backward`). What a forward leaves for its backward lies in a slot. A forward begins with receiving what
 * the stage before sent, and ends with sending; a backward likewise, the other way. No send waits for its receiver, so
 * no order of valid schedules can block.
 *
 * Counts (loss, rows of experts) begin a step with zeros on every rank, and are summed over the stages before the
 * update; so is the square of the gradient norm. A table that the first stage looks up and the last one multiplies with
 * is on both: they exchange their gradients. Stages that divide the output layer: train/step/split_head.h.
 */
#ifndef TM_TRAIN_STEP_STAGES_H
#define TM_TRAIN_STEP_STAGES_H

#include "graph/gradient.h"
#include "train/step/stage.h"

/* Fills in which parts this rank has; TM_INVALID where there are not so many. */
TM_MUST_USE tm_status stages_find(const tm_step_options *options, tm_parallel *parallel, tm_error *err);
/* Behind tm_model_declare: what the programs need besides. */
void stages_declare(tm_step *step);

/* The name of a program of chunk `chunk`. */
const char *stages_program(const tm_step *step, const char *what, bool first, int chunk);

/* The current segment is the first one of this rank in which it counts: with zeros, which all that follow add to. */
void stages_count_anew(tm_step *step, tm_model *model);
/* Begins the current segment: the model's `received` is there. `held_out`: of an evaluation; `rows`: of the program. */
void stages_receive(tm_step *step, tm_model *model, int64_t rows, bool held_out);
/* Sends what the stage passes on. */
void stages_pass(tm_step *step, const tm_model *model, tm_tensor_id passed, bool held_out);
/* The same, and receives its gradient: the seeds of the backward pass, whose number is returned. (One without a
 * cotangent where nothing is trained up to here.) */
enum { STAGES_SEEDS = 2 };
size_t stages_turn(tm_step *step, const tm_model *model, tm_tensor_id passed, tm_seed seeds[STAGES_SEEDS]);
/* Does the stage give back the gradient of what it received? Not where nothing before it is trained. */
bool stages_returns(const tm_step *step, const tm_model *model);
/* Sends the gradient of what was received. */
void stages_return(tm_step *step, const tm_model *model, tm_tensor_id gradient);
/* The current segment, all passes done, becomes the programs of forward and backward. */
void stages_split(tm_step *step, bool first, int chunk);
/* A table that is looked up and multiplied with in two stages of this rank has two gradients in the segment. */
void stages_table_apart(tm_step *step, bool first);
/* Ends the last evaluating segment of this rank: all ranks have the loss. Of pairs also what is told of them, and the
 * last stage's losses of tokens, of whole sequences and of the rank's rows (TM_NONE: not here), stay in `kept`. */
void stages_evaluated(tm_step *step, const tm_model *model, const tm_tensor_id losses[2], tm_tensor_id kept[2]);

/* The programs of micro-batches are there, and what they count is one tensor: it begins with zeros. */
void stages_clear_counts(tm_step *step);
/* In front of the update, before gradients are summed over copies; behind that; the square of the norm. */
void stages_exchange(tm_step *step);
void stages_count(tm_step *step);
void stages_square_sum(tm_step *step, tm_tensor_id square_sum);
/* Zeros in a tensor of float64: of a stage that has nothing of what is summed. */
void stages_clear(tm_step *step, tm_tensor_id what);

/* All programs are there: how many slots they need. They are planned: what a step runs before the update. */
void stages_slots(tm_step *step);
void stages_schedule(tm_step *step);

#endif
