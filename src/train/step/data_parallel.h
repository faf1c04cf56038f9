/* SPDX-License-Identifier: Apache-2.0 */
/* train/step/data_parallel.h - private to the room: what ranks that train together add to a step's programs. */
#ifndef TM_TRAIN_STEP_DATA_PARALLEL_H
#define TM_TRAIN_STEP_DATA_PARALLEL_H

#include "train/step/step.h"

/* What of low precision goes by the tensors and micro-batches of all ranks. */
void data_parallel_scales(const tm_layout *layout, int64_t accumulation, tm_quantize *quantize);
/* The programs of micro-batches are there: units get their places, and these programs their collectives. */
void data_parallel_begin(tm_step *step);
/* The current segment, behind data_parallel_begin: weights that are shared are gathered for it. */
void data_parallel_segment(tm_step *step);
/* All programs are there. */
void data_parallel_end(tm_step *step);
/* In front of an update: sums over ranks, or over the parts of one rank. */
void data_parallel_reduce(tm_step *step);
/* One rank with parts: the programs that put the sums of a part away ("part.first", "part.further"). */
void data_parallel_parts(tm_step *step);
/* The sum of squares of all gradients of the model, wherever they are. Parameters are among the first `n` tensors. */
void data_parallel_square_sum(tm_step *step, size_t n, tm_tensor_id square_sum);
/* Has the last of several micro-batches a program of its own ("last"), which reduces gradients on its way? */
bool data_parallel_overlaps(const tm_step *step);
/* Is the update that of units, by shares? */
bool data_parallel_updates(const tm_step *step);
/* Then: the updates of this rank's share. */
void data_parallel_update(tm_step *step);

#endif
