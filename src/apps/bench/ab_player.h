/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/ab_player.h - private to the room: one process that takes turns. */
#ifndef TM_BENCH_AB_PLAYER_H
#define TM_BENCH_AB_PLAYER_H

#include "base/process.h"
#include "apps/bench/ab.h"

#include <regex.h>

typedef struct {
    const tm_ab_program *program;
    const char          *name; /* "A", "B", "A again" */
    tm_process          *process;
    regex_t             *pattern;      /* NULL: every line */
    tm_text              input;        /* of which no whole line was read yet */
    int64_t              steps;        /* done */
    bool                 greeted, cut; /* said hello; was stopped within a step */
} ab_player;

/* How a turn ended. */
typedef enum { AB_TURN_DONE, AB_TURN_OUT_OF_TIME, AB_TURN_INTERRUPTED } ab_turn_end;

/* What a turn needs besides the player. */
typedef struct {
    tm_process *const           *all; /* living processes, some NULL: their standard error is taken in */
    int                          n_all;
    int64_t                      until_ns; /* the budget ends */
    const volatile sig_atomic_t *stop;
} ab_table;

/* Starts the program; "--out folder/NAME" is added for one that knows turns. The player waits for its first turn.
 * live: it goes on for as long as the session wants; else it does what its configuration says. */
TM_MUST_USE tm_status ab_player_start(ab_player *player, const char *folder, bool live, tm_error *err);
void                  ab_player_end(ab_player *player);

/* Lets the player do whole steps for at least `seconds`, or to its end if that is INFINITY, and stops it again. Fills
 * first_step, n, seconds (appended to `room`, the caller's), work and cut of *turn. TM_INVALID, with its last words, if
 * it ends when it should not. */
TM_MUST_USE tm_status ab_player_turn(ab_player *player, double seconds, const ab_table *table, tm_text *room,
                                     tm_ab_turn *turn, ab_turn_end *end, tm_error *err);

#endif
