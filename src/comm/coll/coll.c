/* SPDX-License-Identifier: Apache-2.0 */
/* comm/coll/coll.c - what all collective calls have in common: slices, and the counts of an all-to-all. */
#include "comm/coll/coll.h"

void tm_comm_slice(size_t count, size_t element, size_t part, size_t parts, size_t *first, size_t *end)
{
    size_t line = 64 / element, lines = (count + line - 1) / line;
    *first = lines * part / parts * line;
    *end = lines * (part + 1) / parts * line;
    if (*first > count) *first = count;
    if (*end > count) *end = count;
}

tm_status tm_comm_counts(tm_comm *comm, const tm_collective *call, tm_error *err)
{
    size_t        n = (size_t)comm->size, me = (size_t)comm->rank, *matrix = comm->matrix;
    tm_collective gather = { .kind = TM_COMM_ALL_GATHER,
                             .format = TM_COMM_INT64,
                             .send = call->send_counts,
                             .receive = matrix,
                             .count = n,
                             .what = call->what,
                             .step = call->step };
    TM_TRY(tm_comm_run(comm, &gather, err));
    for (size_t r = 0; r < n; r++)
        if (matrix[r * n + me] != call->receive_counts[r])
            return tm_comm_fail(comm, TM_INVALID, err,
                                "all-to-all '%s' of group %s: rank %d sends %zu elements to rank %d, which expects "
                                "%zu",
                                call->what ? call->what : "", comm->name, comm->member[r], matrix[r * n + me],
                                comm->member[me], call->receive_counts[r]);
    return TM_OK;
}
