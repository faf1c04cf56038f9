/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/split_head.h - private to the room: an output layer that the ranks of a pipeline divide (model/pieces.c).
 * Every rank has one piece, in its last stage: each beside a stage of blocks, or all blocks in front of the first.
 *
 * Forward, the parts of the pieces so far follow the hidden state from stage to stage; backward, those of all pieces
 * follow its gradient. A table that is looked up, too, is whole on the first rank; its pieces are copies of some of its
 * rows (tm_tensor.twin): the program "table", behind the micro-batches of a step, adds the gradients of both.
 */
#ifndef TM_TRAIN_STEP_SPLIT_HEAD_H
#define TM_TRAIN_STEP_SPLIT_HEAD_H

#include "graph/gradient.h"
#include "train/step/step.h"

/* TM_INVALID: a schedule without room for the pieces. */
TM_MUST_USE tm_status split_head_check(const tm_step_options *options, tm_error *err);

/* Of a stage with a piece; the others do nothing. Behind stages_receive: model->link; behind the hidden state that goes
 * on; behind its gradient: what e's gradient is, a seed (returns 0 or 1); behind the gradient that is sent back. */
void   split_head_receive(tm_step *step, tm_model *model, int64_t rows, bool held_out);
void   split_head_pass(tm_step *step, const tm_model *model, bool held_out);
size_t split_head_turn(tm_step *step, const tm_model *model, tm_seed *seed);
void   split_head_return(tm_step *step, const tm_model *model);

/* In front of the update. */
void split_head_share_table(tm_step *step);

#endif
