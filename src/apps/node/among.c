/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/among.c - what the checks between ranks share: who is alone, who meets whom, who says when it ends. */
#include "apps/node/among.h"

#include "base/clock.h"

bool tm_node_alone(const tm_node_task *task, int least, tm_node_outcome *out)
{
    if (task->ranks >= least) return false;
    tm_node_skip(out,
                 "it takes %d ranks, and there %s %d: --ranks N starts them here; with --all-ranks mpirun or srun do",
                 least, task->ranks == 1 ? "is" : "are", task->ranks);
    return true;
}

int tm_node_turns(int n)
{
    return n % 2 ? n : n - 1;
}

/* The circle method: all but one of an even number go round, and the sum of two that meet is the turn. */
int tm_node_partner(int n, int turn, int rank)
{
    const int round = tm_node_turns(n), last = round; /* of odd numbers nobody has the last place */
    int       partner;
    if (rank == last) {
        for (partner = 0; (2 * partner) % round != turn; partner++)
            ;
        return partner;
    }
    partner = (turn - rank + round) % round;
    if (partner == rank) partner = last;
    return partner < n ? partner : -1;
}

tm_status tm_node_goes_on(tm_comm *world, bool more, bool *goes_on, tm_error *err)
{
    const int rank = tm_comm_rank(world);
    tm_comm  *group = NULL;
    TM_TRY(tm_comm_split(world, rank > 0 || more ? 1 : 0, 0, "who goes on", &group, err));
    *goes_on = rank == 0 ? more : tm_comm_size(group) == tm_comm_size(world);
    tm_comm_close(group);
    return TM_OK;
}

tm_status tm_node_call_run(const tm_node_calls *calls, tm_comm *comm, const tm_collective *call, tm_error *err)
{
    return calls && calls->run ? calls->run(calls->data, comm, call, err) : tm_comm_run(comm, call, err);
}

int64_t tm_node_calls_now(const tm_node_calls *calls)
{
    return calls && calls->now ? calls->now(calls->data) : tm_now_ns();
}
