/* SPDX-License-Identifier: Apache-2.0 */
/* train/trainer/shards.h - private to the room: which tensors of a run this rank holds, and which parts of them, for
 * checkpoints.
 */
#ifndef TM_TRAIN_TRAINER_SHARDS_H
#define TM_TRAIN_TRAINER_SHARDS_H

#include "train/checkpoint/checkpoint.h"
#include "train/step/step.h"

/* Elements of a shared tensor that a rank has, of those from `first` on: the first of them, and in *at its place in the
 * flat tensor. Returns how many there are, at most n. */
int64_t tm_held_run(const tm_shared *shared, int rank, int64_t first, int64_t n, int64_t *from, int64_t *at);

/* The same in bytes. Formats of blocks are cut between groups only, so that all of theirs count. */
int64_t tm_held_bytes(const tm_shared *shared, tm_dtype dtype, int rank, int64_t first, int64_t n, int64_t *from,
                      int64_t *at);

/* A weight of the model that adapters stand beside. */
bool tm_held_base(const tm_step *step, const tm_tensor *tensor);

/* Parameters, moments and state, as whole tensors or as parts of them, where they lie in memory; reached through
 * `copies`, which must outlive them. The caller frees them. */
tm_checkpoint_tensor *tm_held_list(const tm_step *step, const tm_arenas *memory, const tm_checkpoint_memory *copies,
                                   size_t *n);

#endif
