/* SPDX-License-Identifier: Apache-2.0 */
/* comm/p2p/transfer.c - messages by the engine, and calls that are a message to one rank. */
#include "comm/p2p/p2p.h"

#include "base/arena.h"

#include <stdlib.h>
#include <string.h>

enum { PIECE = 1 << 28 }; /* bytes of a message at most */
_Static_assert(4 * TM_COMM_GROUPS <= TM_COMM_TAGS, "a tag for collectives, and one for each channel of messages");

/* --- messages -------------------------------------------------------------------------------- */

static tm_status broken(tm_comm_transfer *f, int peer, const char *why)
{
    char text[256];
    return tm_comm_fail(f->comm, TM_IO, f->err, "the connection to rank %d failed in %s: %.500s", f->comm->member[peer],
                        tm_comm_header_text(&f->header, text), why);
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

tm_status tm_comm_transfer_send(tm_comm_transfer *f, int peer, const void *data, size_t bytes, int label)
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

tm_status tm_comm_transfer_receive(tm_comm_transfer *f, int peer, void *data, size_t bytes, int label)
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
static tm_status late(tm_comm_transfer *f, int label)
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
    tm_status st = tm_comm_late(f->comm, &f->header, ranks, n, f->err);
    free(ranks);
    return st;
}

/* Tests all messages, and forgets those that have ended. *left: those with this label that have not. */
static tm_status look(tm_comm_transfer *f, int label, int *left, bool *moved)
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

static tm_status wait_for(tm_comm_transfer *f, int label, tm_comm_backoff *backoff)
{
    tm_comm *inner = f->comm->inner;
    for (;;) {
        bool moved = false;
        int  left;
        TM_TRY(look(f, label, &left, &moved));
        if (left == 0) return TM_OK;
        if (inner) atomic_fetch_add_explicit(&inner->slots[inner->rank]->beat, 1, memory_order_relaxed);
        if (moved)
            *backoff = (tm_comm_backoff){ .counted_ns = backoff->counted_ns };
        else if (backoff->turn % 16 == 15)
            TM_TRY(tm_comm_failed(f->comm, f->err));
        if (!tm_comm_wait_turn(f->comm, backoff)) return late(f, label);
    }
}

tm_status tm_comm_transfer_wait(tm_comm_transfer *f, int label)
{
    return wait_for(f, label, &(tm_comm_backoff){ .counted_ns = -1 });
}

tm_status tm_comm_transfer_meet(tm_comm_transfer *f)
{
    tm_comm_backoff backoff = { 0 };
    TM_TRY(wait_for(f, 0, &backoff));
    tm_comm_wait_over(f->comm, &backoff);
    return TM_OK;
}

void tm_comm_transfer_cancel(tm_comm_transfer *f)
{
    const tm_comm_ports *ports = &f->comm->world->ports;
    for (int i = 0; i < f->comm->n_messages; i++)
        if (!f->comm->message[i].done) ports->engine->cancel(ports->own, &f->comm->message[i].request);
    f->comm->n_messages = 0;
}

void tm_comm_transfer_begin(tm_comm_transfer *f, tm_comm *comm, const tm_collective *call, int tag, tm_error *err)
{
    f->comm = comm;
    f->call = call;
    f->tag = tag;
    f->err = err;
    f->element = tm_comm_bytes_of(call->format);
    tm_comm_header_fill(call, &f->header);
}

/* --- messages to one rank -------------------------------------------------------------------- */

static tm_status run_send(tm_comm_transfer *f)
{
    TM_TRY(tm_comm_transfer_send(f, f->call->peer, &f->header, sizeof f->header, 0));
    TM_TRY(tm_comm_transfer_send(f, f->call->peer, f->call->send, f->call->count * f->element, 0));
    return tm_comm_transfer_wait(f, 0);
}

static tm_status run_receive(tm_comm_transfer *f)
{
    int             peer = f->call->peer;
    tm_comm_header *theirs = &f->comm->headers[peer];
    TM_TRY(tm_comm_transfer_receive(f, peer, theirs, sizeof *theirs, 0));
    TM_TRY(tm_comm_transfer_meet(f));
    if (theirs->hash != f->header.hash) return tm_comm_mismatch(f->comm, &f->header, peer, theirs, f->err);
    TM_TRY(tm_comm_transfer_receive(f, peer, f->call->receive, f->call->count * f->element, 0));
    return tm_comm_transfer_wait(f, 0);
}

tm_status tm_comm_run_pair(tm_comm *comm, const tm_collective *call, tm_error *err)
{
    int              tag = 2 * comm->slot + 1 + 2 * TM_COMM_GROUPS * call->channel;
    tm_comm_transfer f;
    tm_comm_transfer_begin(&f, comm, call, tag, err);
    if (call->kind == TM_COMM_SEND && call->buffered && call->count * f.element <= PIECE)
        return tm_comm_send_buffered(comm, &f.header, call, tag, err);
    comm->way = "a message";
    bool      local = tm_comm_is_local(comm->world, comm->member[call->peer]);
    tm_status st = local ? tm_comm_ring_run(&f) : call->kind == TM_COMM_SEND ? run_send(&f) : run_receive(&f);
    tm_comm_transfer_cancel(&f);
    return st;
}
