/* SPDX-License-Identifier: Apache-2.0 */
/* train/trainer/replay.h - the gradients of a step computed again on the same inputs, and compared to the bit.
 *
 * What the programs of a step before the update write and what outlives them is compared: gradients, losses, counts,
 * the state of low precision. Gradients are overwritten by the first micro-batch, so they need no copy; what a program
 * reads before it writes it is put aside and put back. So a repeated step leaves the bits of one that was not.
 *
 *   begin     before the gradients: state aside
 *   compare   behind them: hashes, state back, the gradients again, hashes
 *   decide    only after a difference: a third time, which says which of the two was wrong
 *
 * Every rank of a run makes the same calls: programs may contain collectives. */
#ifndef TM_TRAIN_TRAINER_REPLAY_H
#define TM_TRAIN_TRAINER_REPLAY_H

#include "train/trainer/checksum.h"
#include "train/trainer/trainer.h"

typedef struct tm_replay tm_replay;

enum { TM_REPLAY_NAME_BYTES = 96, TM_REPLAY_PART_BYTES = 4096 };

/* Which of the two computations the third one contradicts. */
typedef enum { TM_REPLAY_UNDECIDED, TM_REPLAY_FIRST_WRONG, TM_REPLAY_SECOND_WRONG } tm_replay_wrong;

/* Where two computations differ on this rank; the rest is 0 where they do not. Tensors are in the order in which the
 * step first writes them; parts of a tensor are TM_REPLAY_PART_BYTES long. */
typedef struct {
    bool    differs;
    int64_t place;                                             /* of the first tensor in that order */
    char    tensor[TM_REPLAY_NAME_BYTES], op[32], program[32]; /* its name, and what writes it first */
    int     layer;                                             /* -1: outside the blocks */
    /* What it received from other ranks was equal both times, until it gave others something else or kept it: the fault
     * is on this rank, even if it does not differ itself. traced: false: what ranks exchange could not be looked at. */
    bool            own, traced;
    int64_t         first, end;     /* elements [first, end) of it: the first part that differs */
    int             bits;           /* that differ in this part, at least: those of its 8-byte words xored */
    int64_t         tensors, parts; /* that differ, of all that are compared */
    tm_replay_wrong wrong;
} tm_replay_difference;

/* A product that is not that of its factors, in the second computation (train/trainer/checksum.h). */
typedef struct {
    int64_t           products, wrong;                      /* checked; of these, those that are wrong */
    char              tensor[TM_REPLAY_NAME_BYTES], op[32]; /* of the first of them */
    int               layer;
    tm_checksum_wrong how;
} tm_replay_products;

/* Bytes that are compared in a step, and those of all that could be. */
typedef struct {
    int64_t            bytes, of_bytes;
    double             computed; /* seconds that the second computation took, without checks of products */
    tm_replay_products products;
} tm_replay_compared;

/* most_bytes: of a step's tensors that are compared, drawn by `seed` and the step in pieces of 1 MiB; 0: all. The
 * trainer must outlive it. */
tm_replay            *tm_replay_create(tm_trainer *trainer, uint64_t seed, int64_t most_bytes);
void                  tm_replay_destroy(tm_replay *replay); /* NULL is fine */
TM_MUST_USE tm_status tm_replay_begin(tm_replay *replay, int64_t step, tm_error *err);
/* The gradients are there afterwards, as before. TM_DEVICE as of tm_trainer_gradients. */
TM_MUST_USE tm_status tm_replay_compare(tm_replay *replay, const tm_micro_batch *batch, tm_replay_compared *compared,
                                        tm_replay_difference *difference, tm_error *err);
/* Fills difference->wrong. The gradients are those of the third computation. */
TM_MUST_USE tm_status tm_replay_decide(tm_replay *replay, const tm_micro_batch *batch, tm_replay_difference *difference,
                                       tm_error *err);

/* For tests: bytes that are put aside in each repeated step. */
int64_t tm_replay_kept_bytes(const tm_replay *replay);

#endif
