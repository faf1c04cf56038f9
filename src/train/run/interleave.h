/* SPDX-License-Identifier: Apache-2.0 */
/* train/run/interleave.h - a run that takes turns with other programs: it pauses exactly between two steps.
 *
 * Lines over a socket whose number is in TRAINMARK_TURN_FD. The run says
 *
 *     trainmark-turns 1                  once, before its first step
 *     step NUMBER SECONDS TOKENS         for each step of a turn, when the turn ends (while it runs nobody is woken)
 *     pause                              and then waits
 *
 * and hears `turn SECONDS`: do whole steps until that many seconds of steps have passed; `inf` means to the end of the
 * run. A pause belongs to no step. With TRAINMARK_TURN_ENDLESS the run does a million steps and neither evaluates nor
 * stops at a target nor writes checkpoints, whatever its configuration says (cli/run.c). When the other side closes the
 * socket the run ends (TM_INTERRUPTED), without a checkpoint.
 */
#ifndef TM_TRAIN_RUN_INTERLEAVE_H
#define TM_TRAIN_RUN_INTERLEAVE_H

#include "base/status.h"

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#define TM_TURN_VARIABLE "TRAINMARK_TURN_FD"
#define TM_TURN_ENDLESS "TRAINMARK_TURN_ENDLESS"
#define TM_TURN_HELLO "trainmark-turns 1"

typedef struct tm_turn tm_turn;

/* Says hello on `fd`, which stays the caller's. TM_INVALID if that is no open descriptor. */
TM_MUST_USE tm_status tm_turn_open(int fd, tm_turn **out, tm_error *err);
/* Reports what is not reported yet; NULL is fine. */
void tm_turn_close(tm_turn *turn);

/* Waits for the first turn. TM_INTERRUPTED when the other side is gone or *stop is set. */
TM_MUST_USE tm_status tm_turn_begin(tm_turn *turn, const volatile sig_atomic_t *stop, tm_error *err);
/* A step is done. At the end of a turn: reports, waits for the next one and sets *waited. */
TM_MUST_USE tm_status tm_turn_step(tm_turn *turn, int64_t step, double seconds, int64_t tokens,
                                   const volatile sig_atomic_t *stop, bool *waited, tm_error *err);

#endif
