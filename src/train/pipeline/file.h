/* SPDX-License-Identifier: Apache-2.0 */
/* train/pipeline/file.h - private to the room: the order of a step in a file, as PyTorch's _PipelineScheduleRuntime
 * reads and writes it (format compute_only): a row of comma-separated cells for each rank of the pipeline.
 *
 *   2F0   forward of micro-batch 0 of stage 2        2I0   gradients of its inputs
 *   2B0   its whole backward                         2W0   gradients of its weights
 *   (2F4;3B0)OVERLAP_F_B   one after the other       empty: nothing
 *
 * Nothing of a file is believed. Each micro-batch goes through each stage once, forward and then backward; rank r has
 * the stages r, r + p, ... (a loop), or r and 2 p - 1 - r (a V); stages that follow each other have the micro-batches
 * in the same order, for a message has no number; and no rank waits for ever.
 */
#ifndef TM_TRAIN_PIPELINE_FILE_H
#define TM_TRAIN_PIPELINE_FILE_H

#include "base/arena.h"
#include "train/pipeline/pipeline.h"

/* `name`: of the file, for messages, kept in the arena with everything else. TM_INVALID: with row and column, from 1.
 */
TM_MUST_USE tm_status pipeline_file_parse(const char *text, const char *name, int ranks, tm_arena *arena,
                                          const tm_pipeline_list **out, tm_error *err);
/* The same of a file. */
TM_MUST_USE tm_status pipeline_file_read(const char *path, int ranks, tm_arena *arena, const tm_pipeline_list **out,
                                         tm_error *err);

#endif
