/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/among.h - what the checks between ranks share; private to the room. */
#ifndef TM_NODE_AMONG_H
#define TM_NODE_AMONG_H

#include "apps/node/node.h"

/* Fewer ranks than `least`: the check is skipped, with the way to get them. */
bool tm_node_alone(const tm_node_task *task, int least, tm_node_outcome *out);

/* Round-robin tournament of n: with whom `rank` is paired in a turn, -1 with nobody (of odd numbers one rank a turn).
 * In tm_node_turns(n) turns everybody has met everybody once. */
int tm_node_turns(int n);
int tm_node_partner(int n, int turn, int rank);

/* Does the world go on? Rank 0 alone decides; the others' `more` is not looked at. It travels as the color of a split
 * (a group without rank 0 is the sign to stop), so wrong data of the calls that are checked does not lead ranks apart.
 */
TM_MUST_USE tm_status tm_node_goes_on(tm_comm *world, bool more, bool *goes_on, tm_error *err);

/* How a check makes its calls and what its clock is; NULL: tm_comm_run, tm_now_ns. For tests that plant what is wrong
 * or slow. */
typedef struct {
    tm_status (*run)(void *data, tm_comm *comm, const tm_collective *call, tm_error *err);
    void *data;
    int64_t (*now)(void *data);
} tm_node_calls;

TM_MUST_USE tm_status tm_node_call_run(const tm_node_calls *calls, tm_comm *comm, const tm_collective *call,
                                       tm_error *err);

int64_t tm_node_calls_now(const tm_node_calls *calls);

/* The checks with calls of their own. */
TM_MUST_USE tm_status tm_node_collectives(const tm_node_task *task, const tm_node_calls *calls, tm_node_outcome *out,
                                          tm_error *err);
TM_MUST_USE tm_status tm_node_links(const tm_node_task *task, const tm_node_calls *calls, tm_node_outcome *out,
                                    tm_error *err);
TM_MUST_USE tm_status tm_node_pairs(const tm_node_task *task, const tm_node_calls *calls, tm_node_outcome *out,
                                    tm_error *err);

#endif
