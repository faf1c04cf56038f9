/* SPDX-License-Identifier: Apache-2.0 */
/* comm/far.c - calls among ranks of several hosts, and messages to one rank.
 *
 * Everybody sends everybody a notice of the call first: so ranks that call different things find out, and a rank that
 * is late is known by all. Then data goes straight from rank to rank. A sum is made by the owner of each slice, who
 * gets that slice of every rank and adds in the order of the ranks; then everybody gets the slices.
 */
#include "comm/group.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 28 }; /* bytes of a message at most */
_Static_assert(4 * TM_COMM_GROUPS <= TM_COMM_TAGS, "a tag for collectives, and one for each channel of messages");

typedef struct {
    tm_comm             *comm;
    const tm_collective *call;
    tm_comm_notice       notice;
    size_t               element; /* bytes */
    int                  tag;
    tm_error            *err;
} far_call;

/* --- messages -------------------------------------------------------------------------------- */

static tm_status broken(far_call *f, int peer, const char *why)
{
    char text[256];
    return tm_comm_fail(f->comm, TM_IO, f->err, "the connection to rank %d failed in %s: %.500s", f->comm->member[peer],
                        tm_comm_notice_text(&f->notice, text), why);
}

static tm_comm_message *next(tm_comm *comm, int peer)
{
    if (comm->n_messages == comm->room) {
        comm->room = comm->room ? 2 * comm->room : 32;
        comm->message = tm_realloc(comm->message, (size_t)comm->room * sizeof *comm->message);
    }
    comm->message[comm->n_messages] = (tm_comm_message){ .peer = peer };
    comm->left++;
    return &comm->message[comm->n_messages++];
}

static tm_status post_send(far_call *f, int peer, const void *data, size_t bytes)
{
    const tm_comm_ports *ports = &f->comm->world->ports;
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t           part = bytes - at < PIECE ? bytes - at : PIECE;
        tm_comm_message *m = next(f->comm, peer);
        const char      *why =
            ports->engine->send(ports->own, f->comm->member[peer], f->tag, (const char *)data + at, part, &m->request);
        m->done = why != NULL;
        if (why) return broken(f, peer, why);
    }
    return TM_OK;
}

static tm_status post_receive(far_call *f, int peer, void *data, size_t bytes)
{
    const tm_comm_ports *ports = &f->comm->world->ports;
    for (size_t at = 0; at < bytes; at += PIECE) {
        size_t           part = bytes - at < PIECE ? bytes - at : PIECE;
        tm_comm_message *m = next(f->comm, peer);
        const char      *why =
            ports->engine->receive(ports->own, f->comm->member[peer], f->tag, (char *)data + at, part, &m->request);
        m->done = why != NULL;
        if (why) return broken(f, peer, why);
    }
    return TM_OK;
}

static tm_status late(far_call *f)
{
    int *ranks = tm_alloc((size_t)f->comm->size * sizeof *ranks), n = 0;
    for (int r = 0; r < f->comm->size; r++) {
        bool open = false;
        for (int i = 0; i < f->comm->n_messages; i++)
            open |= !f->comm->message[i].done && f->comm->message[i].peer == r;
        if (open) ranks[n++] = r;
    }
    tm_status st = tm_comm_late(f->comm, &f->notice, ranks, n, f->err);
    free(ranks);
    return st;
}

/* Until all messages have ended. The deadline begins anew whenever one does. */
static tm_status settle(far_call *f)
{
    const tm_comm_ports *ports = &f->comm->world->ports;
    tm_comm_patience     patience = { 0 };
    while (f->comm->left > 0) {
        bool moved = false;
        for (int i = 0; i < f->comm->n_messages; i++) {
            tm_comm_message *m = &f->comm->message[i];
            if (m->done) continue;
            const char *why = ports->engine->test(ports->own, &m->request, &m->done);
            if (why) return broken(f, m->peer, why);
            if (m->done) f->comm->left--, moved = true;
        }
        if (moved)
            patience = (tm_comm_patience){ 0 };
        else if (patience.turn % 16 == 15)
            TM_TRY(tm_comm_failed(f->comm, f->err));
        if (f->comm->left > 0 && !tm_comm_wait_turn(f->comm, &patience)) return late(f);
    }
    f->comm->n_messages = 0;
    return TM_OK;
}

static void give_up(far_call *f)
{
    const tm_comm_ports *ports = &f->comm->world->ports;
    for (int i = 0; i < f->comm->n_messages; i++)
        if (!f->comm->message[i].done) ports->engine->cancel(ports->own, &f->comm->message[i].request);
    f->comm->n_messages = f->comm->left = 0;
}

/* --- parts ----------------------------------------------------------------------------------- */

/* All ranks call the same? */
static tm_status greet(far_call *f)
{
    tm_comm        *comm = f->comm;
    tm_comm_notice *theirs = comm->notices;
    for (int r = 0; r < comm->size; r++)
        if (r != comm->rank) TM_TRY(post_receive(f, r, &theirs[r], sizeof theirs[r]));
    for (int d = 1; d < comm->size; d++)
        TM_TRY(post_send(f, (comm->rank + d) % comm->size, &f->notice, sizeof f->notice));
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

static void *scratch_of(const far_call *f, int rank)
{
    return (char *)f->comm->scratch + TM_COMM_SCRATCH / (size_t)f->comm->size / 64 * 64 * (size_t)rank;
}

/* The elements [first[r], first[r + 1]) of everybody's `send` go to rank r, which puts the sum of its own into `out`.
 */
static tm_status reduce_slices(far_call *f, const size_t *first, char *out)
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
            if (r != me) TM_TRY(post_receive(f, r, scratch_of(f, r), own * f->element));
        for (int d = 1; d < size; d++) {
            int    r = (me + d) % size;
            size_t all = first[r + 1] - first[r], part = all <= i ? 0 : all - i < m ? all - i : m;
            TM_TRY(post_send(f, r, send + (first[r] + i) * f->element, part * f->element));
        }
        TM_TRY(settle(f));
        for (int r = 0; r < size; r++)
            comm->parts[r] = r == me ? send + (first[me] + i) * f->element : scratch_of(f, r);
        if (own > 0) tm_comm_reduce(f->call->op, f->call->format, comm->parts, size, out + i * f->element, own);
    }
    return TM_OK;
}

/* Rank r has the elements [first[r], first[r + 1]) at their place in `all`; afterwards everybody has all of them. */
static tm_status gather_slices(far_call *f, const size_t *first, char *all)
{
    int size = f->comm->size, me = f->comm->rank;
    for (int r = 0; r < size; r++)
        if (r != me) TM_TRY(post_receive(f, r, all + first[r] * f->element, (first[r + 1] - first[r]) * f->element));
    for (int d = 1; d < size; d++)
        TM_TRY(post_send(f, (me + d) % size, all + first[me] * f->element, (first[me + 1] - first[me]) * f->element));
    return settle(f);
}

/* --- kinds ----------------------------------------------------------------------------------- */

static tm_status all_reduce(far_call *f, size_t *first)
{
    char  *receive = f->call->receive;
    size_t size = (size_t)f->comm->size, line = 64 / f->element, lines = (f->call->count + line - 1) / line;
    for (size_t r = 0; r <= size; r++) {
        first[r] = lines * r / size * line;
        if (first[r] > f->call->count) first[r] = f->call->count;
    }
    TM_TRY(reduce_slices(f, first, receive + first[f->comm->rank] * f->element));
    return gather_slices(f, first, receive);
}

static tm_status all_gather(far_call *f, const size_t *first)
{
    char *receive = f->call->receive;
    copy(receive + first[f->comm->rank] * f->element, f->call->send, f->call->count * f->element);
    return gather_slices(f, first, receive);
}

static tm_status broadcast(far_call *f)
{
    size_t bytes = f->call->count * f->element;
    int    root = f->call->peer;
    if (f->comm->rank != root) {
        TM_TRY(post_receive(f, root, f->call->receive, bytes));
        return settle(f);
    }
    for (int d = 1; d < f->comm->size; d++) TM_TRY(post_send(f, (root + d) % f->comm->size, f->call->send, bytes));
    copy(f->call->receive, f->call->send, bytes);
    return settle(f);
}

/* `matrix`: elements from each for each; NULL: count. */
static tm_status all_to_all(far_call *f, const size_t *matrix)
{
    size_t      size = (size_t)f->comm->size, me = (size_t)f->comm->rank, out_at = 0, in_at = 0;
    const char *send = f->call->send;
    char       *receive = f->call->receive;
    for (size_t r = 0; r < size; r++) {
        size_t in = (matrix ? matrix[r * size + me] : f->call->count) * f->element;
        if (r != me)
            TM_TRY(post_receive(f, (int)r, receive + in_at, in));
        else
            for (size_t k = out_at = 0; k < me; k++) out_at += (matrix ? matrix[me * size + k] : f->call->count);
        if (r == me) copy(receive + in_at, send + out_at * f->element, in);
        in_at += in;
    }
    out_at = 0;
    for (size_t r = 0; r < size; r++) {
        size_t out = (matrix ? matrix[me * size + r] : f->call->count) * f->element;
        if (r != me) TM_TRY(post_send(f, (int)r, send + out_at, out));
        out_at += out;
    }
    return settle(f);
}

static tm_status run(far_call *f)
{
    size_t *first = f->comm->first;
    TM_TRY(greet(f));
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

static far_call begin(tm_comm *comm, const tm_collective *call, int tag, tm_error *err)
{
    far_call f = { .comm = comm, .call = call, .tag = tag, .err = err };
    tm_comm_notice_fill(call, &f.notice);
    f.element = tm_comm_bytes_of(call->format);
    return f;
}

tm_status tm_comm_run_far(tm_comm *comm, const tm_collective *call, tm_error *err)
{
    if (call->send_counts) TM_TRY(tm_comm_counts(comm, call, err));
    far_call  f = begin(comm, call, 2 * comm->slot, err);
    tm_status st = run(&f);
    give_up(&f); /* of a call that failed */
    return st;
}

/* --- messages to one rank -------------------------------------------------------------------- */

static tm_status run_send(far_call *f)
{
    TM_TRY(post_send(f, f->call->peer, &f->notice, sizeof f->notice));
    TM_TRY(post_send(f, f->call->peer, f->call->send, f->call->count * f->element));
    return settle(f);
}

static tm_status run_receive(far_call *f)
{
    int             peer = f->call->peer;
    tm_comm_notice *theirs = &f->comm->notices[peer];
    TM_TRY(post_receive(f, peer, theirs, sizeof *theirs));
    TM_TRY(settle(f));
    if (theirs->hash != f->notice.hash) return tm_comm_mismatch(f->comm, &f->notice, peer, theirs, f->err);
    TM_TRY(post_receive(f, peer, f->call->receive, f->call->count * f->element));
    return settle(f);
}

tm_status tm_comm_run_pair(tm_comm *comm, const tm_collective *call, tm_error *err)
{
    int      tag = 2 * comm->slot + 1 + 2 * TM_COMM_GROUPS * call->channel;
    far_call f = begin(comm, call, tag, err);
    if (call->kind == TM_COMM_SEND && call->posted && call->count * f.element <= PIECE)
        return tm_comm_post_message(comm, &f.notice, call, tag, err);
    tm_status st = call->kind == TM_COMM_SEND ? run_send(&f) : run_receive(&f);
    give_up(&f);
    return st;
}
