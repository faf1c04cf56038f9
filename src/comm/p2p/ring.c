/* SPDX-License-Identifier: Apache-2.0 */
/* comm/p2p/ring.c - messages between two ranks of a host.
 *
 * Each rank has a ring buffer of packets for each other rank in shared memory. A packet has the header of the message;
 * the data goes by one of four protocols:
 * - eager: in the packet; the sender is done once it is in the ring;
 * - rendezvous: in the sender's shared memory; the receiver copies it from there, and the sender waits until it has;
 * - staged: a copy in a staging file of the sender (stage.c), which the packet names; the sender goes on;
 * - by the engine: as a message of its own.
 *
 * Packets of all groups and channels (tags) go through one ring, in order. A rank that finds another
 * call's packet in front of its own puts it aside.
 */
#include "comm/p2p/p2p.h"

#include "base/arena.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LINE = 64, EAGER = 8192, AHEAD = 2048, FEW = 12288, MANY = 32768, PAUSES = 128 };

/* What is said of a message: a header with what two ranks can differ in, its name and its data behind it. */
typedef struct packet {
    _Atomic uint64_t there; /* where it ends in all that was ever put, once all of it is there; before, 0 */
    uint32_t         bytes; /* of the packet, with its data: whole lines */
    int32_t          tag;   /* -1: the rest of the ring is left out */
    uint64_t         hash, count, send_at;
    int64_t          step;
    int32_t          send_window;
    uint8_t          how, format;
    uint16_t         named; /* bytes of the name, with zeros behind */
    unsigned char    rest[];
} packet;

/* One that was put aside. */
typedef struct kept {
    struct kept *next;
    packet      *packet;
} kept;

_Static_assert(sizeof(packet) + TM_COMM_WHAT + EAGER + LINE < TM_COMM_RING / 2,
               "a letter always finds room in an empty ring");
_Static_assert(TM_COMM_RING % LINE == 0, "a ring of whole lines");

/* What this process knows of the packets to and from one rank. */
struct tm_comm_ring_ends {
    _Atomic int    sends, receives; /* locks of what follows; groups may be called by different threads */
    uint64_t       put;             /* to it */
    uint64_t       seen;            /* of those, taken by it when it was looked last */
    uint64_t       taken;           /* from it */
    kept          *aside;           /* put aside, with all of their data */
    tm_comm_stage *stages;          /* of the other rank, as far as they are mapped */
    uint64_t       empty;           /* taken, when there was no other one */
    int            pauses;          /* to wait then */
    _Atomic bool   answered;        /* one was put in since */
    int            why;             /* errno: a staging file could not be opened */
};

/* Held for as long as a packet is copied. A mutex is given back only when all that was written before has reached the
 * other processors, which takes as long as a small message. In a oversubscribed world who holds it may not run for
 * long. */
static void enter(const tm_comm_world *world, _Atomic int *lock)
{
    enum { YIELDS = 16, NAP_NS = 50000 };
    for (int turn = 0; atomic_exchange_explicit(lock, 1, memory_order_acquire); turn++)
        if (turn < YIELDS || !world->oversubscribed)
            sched_yield();
        else
            nanosleep(&(struct timespec){ .tv_nsec = NAP_NS }, NULL);
}

static void leave(_Atomic int *lock)
{
    atomic_store_explicit(lock, 0, memory_order_release);
}

size_t tm_comm_segment_bytes(int local_size)
{
    return sizeof(tm_comm_segment) + (size_t)local_size * sizeof(tm_comm_ring);
}

void tm_comm_ring_open(tm_comm_world *world)
{
    size_t bytes = (size_t)world->local_size * sizeof *world->ring_ends;
    world->ring_ends = memset(tm_alloc(bytes), 0, bytes);
}

void tm_comm_ring_close(tm_comm_world *world)
{
    for (int r = 0; r < world->local_size; r++) {
        tm_comm_ring_ends *own = &world->ring_ends[r];
        while (own->aside) {
            kept *first = own->aside;
            own->aside = first->next;
            free(first->packet);
            free(first);
        }
        tm_comm_stages_unmap(own->stages);
    }
    free(world->ring_ends);
    world->ring_ends = NULL;
}

bool tm_comm_is_local(const tm_comm_world *world, int rank)
{
    return world->ports.host[rank] == world->ports.host[world->ports.rank];
}

static tm_comm_ring *ring_to(const tm_comm_world *world, int rank)
{
    return &world->segment[world->local[world->ports.rank]]->ring[world->local[rank]];
}

static tm_comm_ring *ring_from(const tm_comm_world *world, int rank)
{
    return &world->segment[world->local[rank]]->ring[world->local[world->ports.rank]];
}

/* --- to put packets in ----------------------------------------------------------------------- */

tm_comm_protocol tm_comm_protocol_of(const tm_comm_header *header, size_t bytes, bool buffered)
{
    if (bytes <= EAGER) return TM_COMM_EAGER;
    return !buffered && header->send_window >= 0 ? TM_COMM_RENDEZVOUS : TM_COMM_BY_ENGINE;
}

/* Whether so many bytes can follow what is in the ring and has not been taken, and the line behind them. */
static bool is_free(const tm_comm_ring *ring, tm_comm_ring_ends *own, uint64_t bytes)
{
    if (own->put + bytes + LINE - own->seen > TM_COMM_RING)
        own->seen = atomic_load_explicit(&ring->taken, memory_order_acquire);
    return own->put + bytes + LINE - own->seen <= TM_COMM_RING;
}

static packet *packet_at(tm_comm_ring *ring, uint64_t place)
{
    return (packet *)(void *)&ring->data[place % TM_COMM_RING];
}

/* The packet is there: all of it can be read. What follows is not. */
static void hand_in(tm_comm_ring *ring, tm_comm_ring_ends *own, packet *l)
{
    own->put += l->bytes;
    atomic_store_explicit(&packet_at(ring, own->put)->there, 0, memory_order_relaxed);
    atomic_store_explicit(&l->there, own->put, memory_order_release);
}

/* Room for so many bytes in one piece behind what is in the ring; the rest of the ring is left out if they do not fit
 * there. */
static bool find_room(tm_comm_ring *ring, tm_comm_ring_ends *own, size_t bytes)
{
    uint64_t rest = TM_COMM_RING - own->put % TM_COMM_RING;
    if (bytes <= rest) return is_free(ring, own, bytes);
    if (!is_free(ring, own, rest + bytes)) return false;
    packet *end = packet_at(ring, own->put);
    end->bytes = (uint32_t)rest;
    end->tag = -1;
    hand_in(ring, own, end);
    return true;
}

/* Asks for the lines of a packet like this one behind it, as the receiver has them from the round before. Long ones
 * are written so fast that asking takes longer. */
static void fetch_lines(const tm_comm_ring *ring, uint64_t at, size_t bytes)
{
    if (bytes > AHEAD) return;
    for (size_t i = LINE; i < bytes; i += LINE) __builtin_prefetch(&ring->data[(at + i) % TM_COMM_RING], 1);
}

bool tm_comm_ring_put(tm_comm_world *world, int to, int tag, const tm_comm_header *header, tm_comm_protocol how,
                      const void *data, size_t bytes, uint64_t *end)
{
    tm_comm_ring      *ring = ring_to(world, to);
    tm_comm_ring_ends *own = &world->ring_ends[world->local[to]];
    size_t             inside = how == TM_COMM_EAGER || how == TM_COMM_STAGED ? bytes : 0;
    size_t             named = (strnlen(header->what, TM_COMM_WHAT - 1) + 7) / 8 * 8;
    size_t             whole = (sizeof(packet) + named + inside + LINE - 1) / LINE * LINE;
    enter(world, &own->sends);
    bool fits = find_room(ring, own, whole);
    if (fits) {
        packet *l = packet_at(ring, own->put);
        if (inside > 0) memcpy(l->rest + named, data, inside);
        memcpy(l->rest, header->what, named);
        l->bytes = (uint32_t)whole;
        l->tag = tag;
        l->hash = header->hash;
        l->count = header->count;
        l->send_at = header->send_at;
        l->step = header->step;
        l->send_window = header->send_window;
        l->how = (uint8_t)how;
        l->format = header->format;
        l->named = (uint16_t)named;
        hand_in(ring, own, l);
        atomic_store_explicit(&own->answered, true, memory_order_relaxed);
        *end = own->put;
        if (world->oversubscribed) tm_comm_event_signal(&ring->changed);
        fetch_lines(ring, own->put, whole);
    }
    leave(&own->sends);
    return fits;
}

bool tm_comm_ring_taken(const tm_comm_world *world, int to, uint64_t end)
{
    return atomic_load_explicit(&ring_to(world, to)->taken, memory_order_acquire) >= end;
}

/* One turn of waiting for the rank. Messages that the engine has not brought on their way move on. */
static tm_status wait_turn(tm_comm_transfer *f, tm_comm_backoff *backoff)
{
    const tm_comm_ports *ports = &f->comm->world->ports;
    if (backoff->turn % 16 == 15) TM_TRY(tm_comm_failed(f->comm, f->err));
    if (backoff->turn % 64 == 63 && ports->engine->move_on) ports->engine->move_on(ports->own);

    return tm_comm_wait_turn(f->comm, backoff) ? TM_OK : tm_comm_late(f->comm, &f->header, &f->call->peer, 1, f->err);
}

static tm_status run_send(tm_comm_transfer *f)
{
    tm_comm_world  *world = f->comm->world;
    int             to = f->comm->member[f->call->peer];
    size_t          bytes = f->call->count * f->element;
    tm_comm_backoff backoff = { .event = &ring_to(world, to)->changed };
    uint64_t        end;
    if (bytes > EAGER) tm_comm_locate(world, f->call->send, bytes, &f->header.send_window, &f->header.send_at);
    tm_comm_protocol how = tm_comm_protocol_of(&f->header, bytes, false);
    while (tm_comm_send_queue_waits(world, to) ||
           !tm_comm_ring_put(world, to, f->tag, &f->header, how, f->call->send, bytes, &end))
        TM_TRY(wait_turn(f, &backoff));
    tm_comm_wait_over(f->comm, &backoff);
    if (how == TM_COMM_EAGER) return TM_OK;
    if (how == TM_COMM_BY_ENGINE) {
        TM_TRY(tm_comm_transfer_send(f, f->call->peer, f->call->send, bytes, 0));
        return tm_comm_transfer_wait(f, 0);
    }
    backoff = (tm_comm_backoff){ .event = backoff.event };
    while (!tm_comm_ring_taken(world, to, end)) TM_TRY(wait_turn(f, &backoff));
    tm_comm_wait_over(f->comm, &backoff);
    return TM_OK;
}

/* --- to take them out ------------------------------------------------------------------------ */

/* Where the data of a packet lies, if not with the engine. NULL: out of reach, for a reason. */
static const void *data_of(const tm_comm_transfer *f, tm_comm_ring_ends *own, const packet *l)
{
    const unsigned char *inside = l->rest + l->named;
    if (l->how == TM_COMM_EAGER) return inside;
    if (l->how == TM_COMM_STAGED) {
        tm_comm_file file;
        memcpy(&file, inside, sizeof file);
        const tm_comm_world *world = f->comm->world;
        int64_t              pid = world->segment[world->local[f->comm->member[f->call->peer]]]->pid;
        return tm_comm_stage_map(&own->stages, &file, pid, &own->why);
    }
    return tm_comm_reach(f->comm, f->call->peer, l->send_window, l->send_at);
}

/* The message's, if it is what this rank calls. */
static void read_packet(tm_comm_transfer *f, tm_comm_ring_ends *from, const packet *l, tm_comm_header *theirs,
                        tm_comm_protocol *how)
{
    size_t bytes = f->call->count * f->element;
    *how = (tm_comm_protocol)l->how;
    theirs->hash = l->hash;
    if (l->hash != f->header.hash) {
        *theirs = (tm_comm_header){
            .hash = l->hash, .count = l->count, .step = l->step, .format = l->format, .kind = TM_COMM_SEND, .peer = -1
        };
        memcpy(theirs->what, l->rest, l->named);
    }
    if (theirs->hash != f->header.hash || l->how == TM_COMM_BY_ENGINE || bytes == 0) return;
    const void *data = data_of(f, from, l);
    if (data) memcpy(f->call->receive, data, bytes);
}

static void put_aside(const tm_comm_transfer *f, tm_comm_ring_ends *from, const packet *l)
{
    size_t  bytes = l->how == TM_COMM_BY_ENGINE ? 0 : l->count * tm_comm_bytes_of((tm_comm_format)l->format);
    packet *own = tm_alloc(sizeof *own + l->named + bytes);
    memcpy(own, l, sizeof *l + l->named);
    const void *data = bytes > 0 ? data_of(f, from, l) : NULL;
    if (data) memcpy(own->rest + l->named, data, bytes);
    if (own->how != TM_COMM_BY_ENGINE) own->how = TM_COMM_EAGER;
    kept **list = &from->aside;
    while (*list) list = &(*list)->next;
    *list = tm_alloc(sizeof **list);
    **list = (kept){ NULL, own };
}

/* Takes the next packet with this tag, if it has come. With the lock. */
static bool take(tm_comm_transfer *f, tm_comm_ring *ring, tm_comm_ring_ends *own, tm_comm_header *theirs,
                 tm_comm_protocol *how)
{
    for (kept **at = &own->aside; *at; at = &(*at)->next) {
        kept *k = *at;
        if (k->packet->tag != f->tag) continue;
        read_packet(f, own, k->packet, theirs, how);
        *at = k->next;
        free(k->packet);
        free(k);
        return true;
    }
    for (bool found = false; !found;) {
        const packet *l = packet_at(ring, own->taken);
        if (atomic_load_explicit(&l->there, memory_order_acquire) == 0) return false;
        found = l->tag == f->tag;
        if (found)
            read_packet(f, own, l, theirs, how);
        else if (l->tag >= 0)
            put_aside(f, own, l);
        own->taken += l->bytes;
        atomic_store_explicit(&ring->taken, own->taken, memory_order_release);
        if (f->comm->world->oversubscribed) tm_comm_event_signal(&ring->changed);
    }
    return true;
}

/* Packets of a row come sooner if nobody looks for them: each look takes the line where the sender writes. So who has
 * taken all of them waits until some have come, unless the other one waits for an answer. */
static int pauses_of(tm_comm_ring_ends *own)
{
    uint64_t came = own->taken - own->empty;
    own->empty = own->taken;
    if (atomic_exchange_explicit(&own->answered, false, memory_order_relaxed))
        own->pauses = 0;
    else if (came < FEW)
        own->pauses = own->pauses == 0 ? 8 : own->pauses < PAUSES ? 2 * own->pauses : PAUSES;
    else if (came > MANY)
        own->pauses /= 2;
    return own->pauses;
}

static tm_status run_receive(tm_comm_transfer *f)
{
    tm_comm_world     *world = f->comm->world;
    int                peer = f->call->peer, from = f->comm->member[peer];
    tm_comm_ring      *ring = ring_from(world, from);
    tm_comm_ring_ends *own = &world->ring_ends[world->local[from]];
    tm_comm_header    *theirs = &f->comm->headers[peer];
    tm_comm_protocol   how = TM_COMM_EAGER;
    for (tm_comm_backoff backoff = { .event = &ring->changed };;) {
        enter(world, &own->receives);
        bool came = take(f, ring, own, theirs, &how);
        int  why = own->why, pauses = came || backoff.turn > 0 ? 0 : pauses_of(own);
        leave(&own->receives);
        if (why)
            return tm_comm_fail(f->comm, TM_IO, f->err, "rank %d cannot open what rank %d has for it: %s",
                                world->ports.rank, from, strerror(why));
        if (came) tm_comm_wait_over(f->comm, &backoff);
        if (came) break;
        if (!world->oversubscribed) tm_comm_pause(pauses);
        TM_TRY(wait_turn(f, &backoff));
    }
    if (theirs->hash != f->header.hash) return tm_comm_mismatch(f->comm, &f->header, peer, theirs, f->err);
    if (how != TM_COMM_BY_ENGINE) return TM_OK;
    TM_TRY(tm_comm_transfer_receive(f, peer, f->call->receive, f->call->count * f->element, 0));
    return tm_comm_transfer_wait(f, 0);
}

tm_status tm_comm_ring_run(tm_comm_transfer *f)
{
    return f->call->kind == TM_COMM_SEND ? run_send(f) : run_receive(f);
}
