/* SPDX-License-Identifier: Apache-2.0 */
/* op/exchange.h - which rows of which rank go where in a round of an exchange (op/exchange.c): the same for its
 * reference and for every kernel. */
#ifndef TM_OP_EXCHANGE_H
#define TM_OP_EXCHANGE_H

#include "op/attrs.h"

#include <stdbool.h>

/* Of the round: `rows` of the rows that rank `from` has for expert `expert` of rank `to`. The first of them is row `at`
 * of what `from` sends in all (its rows by expert), and row `place` of what `to` receives in this round. */
typedef struct {
    int64_t expert, from, to, at, place, rows;
} tm_exchange_run;

/* Goes through the runs of a round that have rows: by `to`, then by expert, then by `from`, so that `place` ascends. */
typedef struct {
    const tm_exchange_attr *attr;
    const int32_t          *counts;       /* (ranks, experts) */
    int64_t                 experts;      /* of all ranks */
    int64_t                 only_to;      /* -1: to all ranks */
    int64_t                 expert, from; /* the next ones */
    int64_t                 before;       /* rows that the rank of `expert` gets in all rounds in front of them */
    int64_t                 at[TM_MAX_EXCHANGE]; /* rows that each rank has for experts below `expert` */
} tm_exchange_walk;

/* only_to: -1: runs to all ranks. */
void tm_exchange_begin(tm_exchange_walk *walk, const tm_exchange_attr *attr, const int32_t *counts, int64_t experts,
                       int64_t only_to);
bool tm_exchange_next(tm_exchange_walk *walk, tm_exchange_run *run); /* false: there are no more */

/* places (rounds, E / R + 1) of exchange_counts. */
void tm_exchange_places(const tm_exchange_attr *attr, const int32_t *counts, int64_t experts, int32_t *places);

/* Rows that a rank gets in this round if the experts get equally many: what costs are counted with. */
int64_t tm_exchange_even(const tm_exchange_attr *attr);

#endif
