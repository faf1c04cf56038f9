/* SPDX-License-Identifier: Apache-2.0 */
/* comm/coll/inter.c - calls among ranks of several hosts, from rank to rank.
 *
 * Every rank sends every other a header of the call first: so ranks that call different things find out, and a rank
 * that is late is known by all. Then data goes straight from rank to rank. A sum is made by the owner of each slice,
 * who gets that slice of every rank and adds in the order of the ranks; then everybody gets the slices.
 */
#include "comm/coll/coll.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

/* --- parts ----------------------------------------------------------------------------------- */

/* All ranks call the same? */
static tm_status exchange_headers(tm_comm_transfer *f)
{
    tm_comm        *comm = f->comm;
    tm_comm_header *theirs = comm->headers;
    theirs[comm->rank] = f->header;
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank) TM_TRY(tm_comm_transfer_receive(f, r, &theirs[r], sizeof theirs[r], 0));
    for (int d = 1; d < comm->size; d++)
        TM_TRY(tm_comm_transfer_send(f, (comm->rank + d) % comm->size, &f->header, sizeof f->header, 0));
    TM_TRY(tm_comm_transfer_meet(f));
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank && theirs[r].hash != f->header.hash)
            return tm_comm_mismatch(comm, &f->header, r, &theirs[r], f->err);
    return TM_OK;
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes > 0 && to != from) memcpy(to, from, bytes);
}

static void *scratch_of(const tm_comm_transfer *f, int rank)
{
    return (char *)f->comm->scratch + TM_COMM_SCRATCH / (size_t)f->comm->size / 64 * 64 * (size_t)rank;
}

/* The elements [first[r], first[r + 1]) of everybody's `send` go to rank r, which puts the sum of its own into `out`.
 */
static tm_status reduce_slices(tm_comm_transfer *f, const size_t *first, char *out)
{
    tm_comm *comm = f->comm;
    int      size = comm->size, me = comm->rank;
    size_t   m = TM_COMM_SCRATCH / (size_t)size / 64 * 64 / f->element, longest = 0, mine = first[me + 1] - first[me];
    const char *send = f->call->send;
    for (int r = 0; r < size; r++)
        if (first[r + 1] - first[r] > longest) longest = first[r + 1] - first[r];
    for (size_t i = 0; i < longest; i += m) {
        size_t own = mine <= i ? 0 : mine - i < m ? mine - i : m;
        for (int r = 0; r < size; r++)
            if (r != me) TM_TRY(tm_comm_transfer_receive(f, r, scratch_of(f, r), own * f->element, 0));
        for (int d = 1; d < size; d++) {
            int    r = (me + d) % size;
            size_t all = first[r + 1] - first[r], part = all <= i ? 0 : all - i < m ? all - i : m;
            TM_TRY(tm_comm_transfer_send(f, r, send + (first[r] + i) * f->element, part * f->element, 0));
        }
        TM_TRY(tm_comm_transfer_wait(f, 0));
        for (int r = 0; r < size; r++)
            comm->parts[r] = r == me ? send + (first[me] + i) * f->element : scratch_of(f, r);
        if (own > 0) tm_comm_reduce(f->call->op, f->call->format, comm->parts, size, out + i * f->element, own);
    }
    return TM_OK;
}

/* Rank r has the elements [first[r], first[r + 1]) at their place in `all`; afterwards everybody has all of them. */
static tm_status gather_slices(tm_comm_transfer *f, const size_t *first, char *all)
{
    int size = f->comm->size, me = f->comm->rank;
    for (int r = 0; r < size; r++)
        if (r != me)
            TM_TRY(
                tm_comm_transfer_receive(f, r, all + first[r] * f->element, (first[r + 1] - first[r]) * f->element, 0));
    for (int d = 1; d < size; d++)
        TM_TRY(tm_comm_transfer_send(f, (me + d) % size, all + first[me] * f->element,
                                     (first[me + 1] - first[me]) * f->element, 0));
    return tm_comm_transfer_wait(f, 0);
}

/* --- kinds ----------------------------------------------------------------------------------- */

static tm_status all_reduce(tm_comm_transfer *f, size_t *first)
{
    char  *receive = f->call->receive;
    size_t size = (size_t)f->comm->size, end;
    for (size_t r = 0; r < size; r++) tm_comm_slice(f->call->count, f->element, r, size, &first[r], &end);
    first[size] = f->call->count;
    TM_TRY(reduce_slices(f, first, receive + first[f->comm->rank] * f->element));
    return gather_slices(f, first, receive);
}

static tm_status all_gather(tm_comm_transfer *f, const size_t *first)
{
    char *receive = f->call->receive;
    copy(receive + first[f->comm->rank] * f->element, f->call->send, f->call->count * f->element);
    return gather_slices(f, first, receive);
}

static tm_status broadcast(tm_comm_transfer *f)
{
    size_t bytes = f->call->count * f->element;
    int    root = f->call->peer;
    if (f->comm->rank != root) {
        TM_TRY(tm_comm_transfer_receive(f, root, f->call->receive, bytes, 0));
        return tm_comm_transfer_wait(f, 0);
    }
    for (int d = 1; d < f->comm->size; d++)
        TM_TRY(tm_comm_transfer_send(f, (root + d) % f->comm->size, f->call->send, bytes, 0));
    copy(f->call->receive, f->call->send, bytes);
    return tm_comm_transfer_wait(f, 0);
}

/* `matrix`: elements from each for each; NULL: count. */
static tm_status all_to_all(tm_comm_transfer *f, const size_t *matrix)
{
    size_t      size = (size_t)f->comm->size, me = (size_t)f->comm->rank, out_at = 0, in_at = 0;
    const char *send = f->call->send;
    char       *receive = f->call->receive;
    for (size_t r = 0; r < size; r++) {
        size_t in = (matrix ? matrix[r * size + me] : f->call->count) * f->element;
        if (r != me)
            TM_TRY(tm_comm_transfer_receive(f, (int)r, receive + in_at, in, 0));
        else
            for (size_t k = out_at = 0; k < me; k++) out_at += (matrix ? matrix[me * size + k] : f->call->count);
        if (r == me) copy(receive + in_at, send + out_at * f->element, in);
        in_at += in;
    }
    out_at = 0;
    for (size_t r = 0; r < size; r++) {
        size_t out = (matrix ? matrix[me * size + r] : f->call->count) * f->element;
        if (r != me) TM_TRY(tm_comm_transfer_send(f, (int)r, send + out_at, out, 0));
        out_at += out;
    }
    return tm_comm_transfer_wait(f, 0);
}

static tm_status run(tm_comm_transfer *f)
{
    size_t *first = f->comm->first;
    TM_TRY(exchange_headers(f));
    f->comm->way = "from rank to rank";
    if (tm_comm_hierarchical_fits(f)) return tm_comm_hierarchical_run(f);
    for (size_t r = 0; r <= (size_t)f->comm->size; r++) first[r] = r * f->call->count;
    switch ((int)f->call->kind) {
    case TM_COMM_ALL_REDUCE:
        return all_reduce(f, first);
    case TM_COMM_REDUCE_SCATTER:
        return reduce_slices(f, first, f->call->receive);
    case TM_COMM_ALL_GATHER:
        return all_gather(f, first);
    case TM_COMM_BROADCAST:
        return broadcast(f);
    case TM_COMM_ALL_TO_ALL:
        return all_to_all(f, f->call->send_counts ? f->comm->matrix : NULL);
    case TM_COMM_BARRIER:
    case TM_COMM_CLOSE:
        return TM_OK;
    default:
        TM_ASSERT(!"a kind of a group");
        return TM_INTERNAL;
    }
}

/* Where this rank's memory is, for those of its host. */
static void announce(tm_comm_transfer *f)
{
    size_t sends, receives;
    f->header.direct = f->comm->direct;
    if (!f->comm->hosts || f->call->kind == TM_COMM_ALL_TO_ALL) return;
    tm_comm_extents(f->comm, f->call, &sends, &receives);
    tm_comm_locate(f->comm->world, f->call->send, sends, &f->header.send_window, &f->header.send_at);
    tm_comm_locate(f->comm->world, f->call->receive, receives, &f->header.receive_window, &f->header.receive_at);
}

tm_status tm_comm_run_inter(tm_comm *comm, const tm_collective *call, tm_error *err)
{
    if (call->send_counts) TM_TRY(tm_comm_counts(comm, call, err));
    tm_comm_transfer f;
    tm_comm_transfer_begin(&f, comm, call, 2 * comm->slot, err);
    announce(&f);
    tm_status st = run(&f);
    comm->grace_s = 0;
    tm_comm_transfer_cancel(&f); /* of a call that failed */
    return st;
}
