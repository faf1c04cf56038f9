/* SPDX-License-Identifier: Apache-2.0 */
/* comm/far.c - calls among ranks of several hosts, and messages to one rank.
 *
 * Everybody sends everybody a notice of the call first: so ranks that call different things find out, and a rank that
 * is late is known by all. Then data goes straight from rank to rank. A sum is made by the owner of each slice, who
 * gets that slice of every rank and adds in the order of the ranks; then everybody gets the slices.
 */
#include "comm/far.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 28 }; /* bytes of a message at most */
_Static_assert(4 * TM_COMM_GROUPS <= TM_COMM_TAGS, "a tag for collectives, and one for each channel of messages");

/* --- messages -------------------------------------------------------------------------------- */

static tm_status broken(tm_far_call *f, int peer, const char *why)
{
    char text[256];
    return tm_comm_fail(f->comm, TM_IO, f->err, "the connection to rank %d failed in %s: %.500s", f->comm->member[peer],
                        tm_comm_notice_text(&f->notice, text), why);
}

static tm_comm_message *next(tm_comm *comm, int peer, int label)
{
    if (comm->n_messages == comm->room) {
        comm->room = comm->room ? 2 * comm->room : 32;
        comm->message = tm_realloc(comm->message, (size_t)comm->room * sizeof *comm->message);
    }
    comm->message[comm->n_messages] = (tm_comm_message){ .peer = peer, .label = label };
    return &comm->message[comm->n_messages++];
}

tm_status tm_far_send(tm_far_call *f, int peer, const void *data, size_t bytes, int label)
{
    const tm_comm_ports *ports = &f->comm->world->ports;
    int                  to = f->comm->member[peer];
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t           part = bytes - at < PIECE ? bytes - at : PIECE;
        tm_comm_message *m = next(f->comm, peer, label);
        const char      *why = ports->engine->send(ports->own, to, f->tag, (const char *)data + at, part, &m->request);
        m->done = why != NULL;
        if (why) return broken(f, peer, why);
        tm_comm_count(f->comm->world, to, part);
    }
    return TM_OK;
}

tm_status tm_far_receive(tm_far_call *f, int peer, void *data, size_t bytes, int label)
{
    const tm_comm_ports *ports = &f->comm->world->ports;
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t           part = bytes - at < PIECE ? bytes - at : PIECE;
        tm_comm_message *m = next(f->comm, peer, label);
        const char      *why =
            ports->engine->receive(ports->own, f->comm->member[peer], f->tag, (char *)data + at, part, &m->request);
        m->done = why != NULL;
        if (why) return broken(f, peer, why);
    }
    return TM_OK;
}

/* The ranks whose messages with this label have not ended. */
static tm_status late(tm_far_call *f, int label)
{
    int *ranks = tm_alloc((size_t)f->comm->size * sizeof *ranks), n = 0;
    for (int r = 0; r < f->comm->size; r++) {
        bool open = false;
        for (int i = 0; i < f->comm->n_messages; i++) {
            const tm_comm_message *m = &f->comm->message[i];
            open |= !m->done && m->peer == r && (label == 0 || m->label == label);
        }
        if (open) ranks[n++] = r;
    }
    tm_status st = tm_comm_late(f->comm, &f->notice, ranks, n, f->err);
    free(ranks);
    return st;
}

/* Tests all messages, and forgets those that have ended. *left: those with this label that have not. */
static tm_status look(tm_far_call *f, int label, int *left, bool *moved)
{
    const tm_comm_ports *ports = &f->comm->world->ports;
    tm_comm             *comm = f->comm;
    int                  kept = 0;
    *left = 0;
    for (int i = 0; i < comm->n_messages; i++) {
        tm_comm_message *m = &comm->message[i];
        const char      *why = ports->engine->test(ports->own, &m->request, &m->done);
        if (why) {
            int peer = m->peer;
            while (i < comm->n_messages) comm->message[kept++] = comm->message[i++];
            comm->n_messages = kept;
            return broken(f, peer, why);
        }
        *moved |= m->done;
        if (m->done) continue;
        *left += label == 0 || m->label == label;
        comm->message[kept++] = *m;
    }
    comm->n_messages = kept;
    return TM_OK;
}

tm_status tm_far_wait(tm_far_call *f, int label)
{
    tm_comm_patience patience = { 0 };
    tm_comm         *inner = f->comm->inner;
    for (;;) {
        bool moved = false;
        int  left;
        TM_TRY(look(f, label, &left, &moved));
        if (left == 0) return TM_OK;
        if (inner) atomic_fetch_add_explicit(&inner->post[inner->rank]->beat, 1, memory_order_relaxed);
        if (moved)
            patience = (tm_comm_patience){ 0 };
        else if (patience.turn % 16 == 15)
            TM_TRY(tm_comm_failed(f->comm, f->err));
        if (!tm_comm_wait_turn(f->comm, &patience)) return late(f, label);
    }
}

static tm_status settle(tm_far_call *f)
{
    return tm_far_wait(f, 0);
}

static void give_up(tm_far_call *f)
{
    const tm_comm_ports *ports = &f->comm->world->ports;
    for (int i = 0; i < f->comm->n_messages; i++)
        if (!f->comm->message[i].done) ports->engine->cancel(ports->own, &f->comm->message[i].request);
    f->comm->n_messages = 0;
}

/* --- parts ----------------------------------------------------------------------------------- */

/* All ranks call the same? */
static tm_status greet(tm_far_call *f)
{
    tm_comm        *comm = f->comm;
    tm_comm_notice *theirs = comm->notices;
    theirs[comm->rank] = f->notice;
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank) TM_TRY(tm_far_receive(f, r, &theirs[r], sizeof theirs[r], 0));
    for (int d = 1; d < comm->size; d++)
        TM_TRY(tm_far_send(f, (comm->rank + d) % comm->size, &f->notice, sizeof f->notice, 0));
    TM_TRY(settle(f));
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank && theirs[r].hash != f->notice.hash)
            return tm_comm_mismatch(comm, &f->notice, r, &theirs[r], f->err);
    return TM_OK;
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes > 0 && to != from) memcpy(to, from, bytes);
}

static void *scratch_of(const tm_far_call *f, int rank)
{
    return (char *)f->comm->scratch + TM_COMM_SCRATCH / (size_t)f->comm->size / 64 * 64 * (size_t)rank;
}

/* The elements [first[r], first[r + 1]) of everybody's `send` go to rank r, which puts the sum of its own into `out`.
 */
static tm_status reduce_slices(tm_far_call *f, const size_t *first, char *out)
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
            if (r != me) TM_TRY(tm_far_receive(f, r, scratch_of(f, r), own * f->element, 0));
        for (int d = 1; d < size; d++) {
            int    r = (me + d) % size;
            size_t all = first[r + 1] - first[r], part = all <= i ? 0 : all - i < m ? all - i : m;
            TM_TRY(tm_far_send(f, r, send + (first[r] + i) * f->element, part * f->element, 0));
        }
        TM_TRY(settle(f));
        for (int r = 0; r < size; r++)
            comm->parts[r] = r == me ? send + (first[me] + i) * f->element : scratch_of(f, r);
        if (own > 0) tm_comm_reduce(f->call->op, f->call->format, comm->parts, size, out + i * f->element, own);
    }
    return TM_OK;
}

/* Rank r has the elements [first[r], first[r + 1]) at their place in `all`; afterwards everybody has all of them. */
static tm_status gather_slices(tm_far_call *f, const size_t *first, char *all)
{
    int size = f->comm->size, me = f->comm->rank;
    for (int r = 0; r < size; r++)
        if (r != me)
            TM_TRY(tm_far_receive(f, r, all + first[r] * f->element, (first[r + 1] - first[r]) * f->element, 0));
    for (int d = 1; d < size; d++)
        TM_TRY(
            tm_far_send(f, (me + d) % size, all + first[me] * f->element, (first[me + 1] - first[me]) * f->element, 0));
    return settle(f);
}

/* --- kinds ----------------------------------------------------------------------------------- */

static tm_status all_reduce(tm_far_call *f, size_t *first)
{
    char  *receive = f->call->receive;
    size_t size = (size_t)f->comm->size, end;
    for (size_t r = 0; r < size; r++) tm_comm_slice(f->call->count, f->element, r, size, &first[r], &end);
    first[size] = f->call->count;
    TM_TRY(reduce_slices(f, first, receive + first[f->comm->rank] * f->element));
    return gather_slices(f, first, receive);
}

static tm_status all_gather(tm_far_call *f, const size_t *first)
{
    char *receive = f->call->receive;
    copy(receive + first[f->comm->rank] * f->element, f->call->send, f->call->count * f->element);
    return gather_slices(f, first, receive);
}

static tm_status broadcast(tm_far_call *f)
{
    size_t bytes = f->call->count * f->element;
    int    root = f->call->peer;
    if (f->comm->rank != root) {
        TM_TRY(tm_far_receive(f, root, f->call->receive, bytes, 0));
        return settle(f);
    }
    for (int d = 1; d < f->comm->size; d++) TM_TRY(tm_far_send(f, (root + d) % f->comm->size, f->call->send, bytes, 0));
    copy(f->call->receive, f->call->send, bytes);
    return settle(f);
}

/* `matrix`: elements from each for each; NULL: count. */
static tm_status all_to_all(tm_far_call *f, const size_t *matrix)
{
    size_t      size = (size_t)f->comm->size, me = (size_t)f->comm->rank, out_at = 0, in_at = 0;
    const char *send = f->call->send;
    char       *receive = f->call->receive;
    for (size_t r = 0; r < size; r++) {
        size_t in = (matrix ? matrix[r * size + me] : f->call->count) * f->element;
        if (r != me)
            TM_TRY(tm_far_receive(f, (int)r, receive + in_at, in, 0));
        else
            for (size_t k = out_at = 0; k < me; k++) out_at += (matrix ? matrix[me * size + k] : f->call->count);
        if (r == me) copy(receive + in_at, send + out_at * f->element, in);
        in_at += in;
    }
    out_at = 0;
    for (size_t r = 0; r < size; r++) {
        size_t out = (matrix ? matrix[me * size + r] : f->call->count) * f->element;
        if (r != me) TM_TRY(tm_far_send(f, (int)r, send + out_at, out, 0));
        out_at += out;
    }
    return settle(f);
}

static tm_status run(tm_far_call *f)
{
    size_t *first = f->comm->first;
    TM_TRY(greet(f));
    f->comm->way = "from rank to rank";
    if (tm_far_shared_fits(f)) return tm_far_shared_run(f);
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

static void begin(tm_far_call *f, tm_comm *comm, const tm_collective *call, int tag, tm_error *err)
{
    f->comm = comm;
    f->call = call;
    f->tag = tag;
    f->err = err;
    f->element = tm_comm_bytes_of(call->format);
    tm_comm_notice_fill(call, &f->notice);
}

/* Where this rank's memory is, for those of its host. */
static void announce(tm_far_call *f)
{
    size_t sends, receives;
    f->notice.direct = f->comm->direct;
    if (!f->comm->hosts || f->call->kind == TM_COMM_ALL_TO_ALL) return;
    tm_comm_extents(f->comm, f->call, &sends, &receives);
    tm_comm_locate(f->comm->world, f->call->send, sends, &f->notice.send_window, &f->notice.send_at);
    tm_comm_locate(f->comm->world, f->call->receive, receives, &f->notice.receive_window, &f->notice.receive_at);
}

tm_status tm_comm_run_far(tm_comm *comm, const tm_collective *call, tm_error *err)
{
    if (call->send_counts) TM_TRY(tm_comm_counts(comm, call, err));
    tm_far_call f;
    begin(&f, comm, call, 2 * comm->slot, err);
    announce(&f);
    tm_status st = run(&f);
    comm->grace_s = 0;
    give_up(&f); /* of a call that failed */
    return st;
}

/* --- messages to one rank -------------------------------------------------------------------- */

static tm_status run_send(tm_far_call *f)
{
    TM_TRY(tm_far_send(f, f->call->peer, &f->notice, sizeof f->notice, 0));
    TM_TRY(tm_far_send(f, f->call->peer, f->call->send, f->call->count * f->element, 0));
    return settle(f);
}

static tm_status run_receive(tm_far_call *f)
{
    int             peer = f->call->peer;
    tm_comm_notice *theirs = &f->comm->notices[peer];
    TM_TRY(tm_far_receive(f, peer, theirs, sizeof *theirs, 0));
    TM_TRY(settle(f));
    if (theirs->hash != f->notice.hash) return tm_comm_mismatch(f->comm, &f->notice, peer, theirs, f->err);
    TM_TRY(tm_far_receive(f, peer, f->call->receive, f->call->count * f->element, 0));
    return settle(f);
}

tm_status tm_comm_run_pair(tm_comm *comm, const tm_collective *call, tm_error *err)
{
    int         tag = 2 * comm->slot + 1 + 2 * TM_COMM_GROUPS * call->channel;
    tm_far_call f;
    begin(&f, comm, call, tag, err);
    if (call->kind == TM_COMM_SEND && call->posted && call->count * f.element <= PIECE)
        return tm_comm_post_message(comm, &f.notice, call, tag, err);
    comm->way = "a message";
    bool      local = tm_comm_is_local(comm->world, comm->member[call->peer]);
    tm_status st = local ? tm_comm_mail_run(&f) : call->kind == TM_COMM_SEND ? run_send(&f) : run_receive(&f);
    give_up(&f);
    return st;
}
