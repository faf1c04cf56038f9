/* SPDX-License-Identifier: Apache-2.0 */
/* stats/stragglers.h - which rank do the others wait for? A sequential test on the times of steps of all ranks.
 *
 * Ranks of the same role do the same work. x = ln(own work of a rank / median of the others' of its role) is compared
 * with a tolerance d of 1 % in every block of steps: the wealth of a bet that the rank is slower is multiplied by
 * 1 + b max(-1, min(1, (x - d) / d)). Where the rank is as likely above d as below, whatever the size of what disturbs
 * it, the wealth reaches w with a probability of at most 1 / w (Ville 1939), in a run of any length. docs/stragglers.md
 * has the levels, and what else is asked for.
 */
#ifndef TM_STATS_STRAGGLERS_H
#define TM_STATS_STRAGGLERS_H

#include "base/event.h"

/* Parts of a step in which ranks work by themselves. */
#define TM_RANK_PHASE_LIST(X)                                                                                          \
    X(DATA, "data")                                                                                                    \
    X(FORWARD, "forward")                                                                                              \
    X(BACKWARD, "backward")                                                                                            \
    X(LOSS, "loss")                                                                                                    \
    X(UPDATE, "update")                                                                                                \
    X(OTHER, "other work")
typedef enum {
#define X(id, name) TM_RANK_##id,
    TM_RANK_PHASE_LIST(X)
#undef X
        TM_RANK_PHASES
} tm_rank_phase;

/* What a rank did in a block of steps, in seconds. */
typedef struct {
    double busy[TM_RANK_PHASES]; /* without waiting for other ranks, nor communication */
    double delayed;              /* the rank was ready to run and its processor ran something else: in `busy`, or in
                                  * `waited`, which nobody knows */
    double waited;               /* for other ranks */
    double seconds;              /* of the whole block */
} tm_rank_times;

typedef struct tm_stragglers tm_stragglers;

/* role: (ranks) any numbers; a rank is compared with those of the same one, alone with nobody. Never NULL. */
tm_stragglers *tm_stragglers_open(int ranks, const int *role);
void           tm_stragglers_close(tm_stragglers *s); /* NULL is fine */

/* A block of steps, the last of which is `step`; times: (ranks). The first block of a run is not counted. Returns how
 * many ranks it names, or names anew because their numbers have changed by much: named[ranks], without their hosts. */
int tm_stragglers_feed(tm_stragglers *s, int64_t step, const tm_rank_times *times, tm_straggler *named);

/* Those that were named so far, by what is known now. Returns their number; out: (ranks), without hosts. */
int tm_stragglers_found(tm_stragglers *s, tm_straggler *out);

enum { TM_STRAGGLER_TEXT = 300 };
/* "rank 5 on b is slow: 10.2 % (9.6 .. 10.9) behind the others, most in forward; each waited 4.1 s since step 12". */
char *tm_straggler_text(const tm_straggler *s, char out[TM_STRAGGLER_TEXT]);

#endif
