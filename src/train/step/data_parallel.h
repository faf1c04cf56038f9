/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/data_parallel.h - private to the room: what ranks that train together add to a step's programs. */
#ifndef TM_TRAIN_STEP_DATA_PARALLEL_H
#define TM_TRAIN_STEP_DATA_PARALLEL_H

#include "train/step/step.h"

/* What of low precision goes by the tensors and micro-batches of all ranks. */
void share_scales(const tm_layout *layout, int64_t accumulation, tm_quantize *quantize);
/* Sizes that the ranks of tensor parallelism do not divide: TM_INVALID, with the keys. */
TM_MUST_USE tm_status share_check_tensor(const tm_step *step, tm_error *err);
/* The programs of micro-batches are there: units get their places, and these programs their collectives. */
void share_begin(tm_step *step);
/* The current segment, behind share_begin: weights that are shared are gathered for it. */
void share_segment(tm_step *step);
/* All programs are there. */
void share_end(tm_step *step);
/* In front of an update: sums over ranks, or over the parts of one rank. */
void share_reduce(tm_step *step);
/* One rank with parts: the programs that put the sums of a part away ("part.first", "part.further"). */
void share_parts(tm_step *step);
/* The sum of squares of all gradients of the model, wherever they are. Parameters are among the first `n` tensors. */
void share_square_sum(tm_step *step, size_t n, tm_tensor_id square_sum);
/* Has the last of several micro-batches a program of its own ("last"), which reduces gradients on its way? */
bool share_overlaps(const tm_step *step);
/* Is the update that of units, by shares? */
bool share_updates(const tm_step *step);
/* Then: the updates of this rank's share. */
void share_update(tm_step *step);

#endif
