/* SPDX-License-Identifier: Apache-2.0 */
/* comm/coll/intra.c - calls among ranks of one host, in shared memory.
 *
 * Three ways, chosen alike by all ranks:
 * - small (SMALL bytes from each): each rank copies its data into a staging buffer of its slot and arrives; all read.
 * One step.
 * - direct: everybody says where its buffers lie and arrives; data moves straight between buffers of
 *   tm_comm_share and tm_comm_alloc; a second step says that nobody touches another's memory any more.
 * - in blocks, where a rank's memory is out of reach: through the two staging buffers in turn, a step for each.
 *
 * A staging buffer is written again two steps after it was read: whoever has arrived at the step between has done its
 * reading. So no step is needed behind the last block.
 */
#include "comm/coll/coll.h"

#include <string.h>
#include <time.h>

typedef struct {
    tm_comm             *comm;
    const tm_collective *call;
    tm_comm_header       header;
    size_t               element; /* bytes */
    const size_t        *matrix;  /* all-to-all with counts of its own: elements from each rank for each; else NULL */
    tm_error            *err;
} intra_call;

/* --- steps ----------------------------------------------------------------------------------- */

static uint32_t beat_of(const tm_comm *comm, int rank)
{
    return atomic_load_explicit(&comm->slots[rank]->beat, memory_order_relaxed);
}

/* `rank` has not come, and perhaps others; but those that wait for another host are not late. */
static tm_status late(intra_call *n, int rank, uint32_t step)
{
    tm_comm *comm = n->comm;
    int      count = 0, ranks[TM_COMM_LOCAL];
    uint32_t beat[TM_COMM_LOCAL];
    for (int r = 0; r < comm->size; r++) beat[r] = beat_of(comm, r);
    if (comm->inside) nanosleep(&(struct timespec){ .tv_nsec = 20000000 }, NULL);
    for (int r = 0; r < comm->size; r++) {
        uint64_t flag = atomic_load_explicit(&comm->slots[r]->flag, memory_order_acquire);
        bool     waits = beat[r] != beat_of(comm, r) && r != rank;
        if ((int32_t)((uint32_t)(flag >> 32) - step) < 0 && !waits) ranks[count++] = r;
    }
    /* It came at the last moment: late all the same, for this world has a rank that gave up. */
    if (count == 0) ranks[count++] = comm->rank;
    return tm_comm_late(comm, &n->header, ranks, count, n->err);
}

/* In a call between hosts: this rank's messages move on, and `rank` has time while it waits for another host itself. */
static void wait_on(const tm_comm *comm, int rank, uint32_t *beat, tm_comm_backoff *backoff)
{
    const tm_comm_ports *ports = &comm->world->ports;
    uint32_t             now = beat_of(comm, rank);
    if (ports->engine->move_on) ports->engine->move_on(ports->own);
    if (now != *beat) backoff->since_ns = 0;
    *beat = now;
}

/* Has `rank` arrived at `step`, with the same call? *st: it has, with another one. */
static bool has_arrived(const intra_call *n, int rank, uint32_t step, uint32_t hash, tm_status *st)
{
    const tm_comm_slot *slot = n->comm->slots[rank];
    uint64_t            flag = atomic_load_explicit(&slot->flag, memory_order_acquire);
    int32_t             ahead = (int32_t)((uint32_t)(flag >> 32) - step);
    if (ahead != 0) return ahead > 0; /* then it has seen us, and found us alike */
    if (((uint32_t)flag & ~1u) != hash)
        *st = tm_comm_mismatch(n->comm, &n->header, rank, &slot->header[flag & 1], n->err);
    return true;
}

/* Until `rank` has arrived at `step` with the same call. */
static tm_status wait_for(intra_call *n, int rank, uint32_t step, uint32_t hash)
{
    tm_comm        *comm = n->comm;
    tm_status       st = TM_OK;
    tm_comm_backoff backoff = { .event = &comm->slots[0]->all_arrived };
    uint32_t        beat = beat_of(comm, rank);
    while (!has_arrived(n, rank, step, hash, &st)) {
        if (backoff.turn % 16 == 15) TM_TRY(tm_comm_failed(comm, n->err));
        if (comm->inside && backoff.turn % 4 == 3) wait_on(comm, rank, &beat, &backoff);
        if (!tm_comm_wait_turn(comm, &backoff)) return late(n, rank, step);
    }
    tm_comm_wait_over(comm, &backoff);
    return st;
}

/* In a oversubscribed world the rank that finds all others arrived wakes them, once. That ranks differ, they find when
 * the rest has come, or their sleep ends. */
static void signal_if_last(const intra_call *n, uint32_t step)
{
    tm_comm *comm = n->comm;
    for (int r = 0; r < comm->size; r++)
        if ((int32_t)((uint32_t)(atomic_load(&comm->slots[r]->flag) >> 32) - step) < 0) return;
    tm_comm_event_signal(&comm->slots[0]->all_arrived);
}

/* Arrives at the next step and waits for all. */
static tm_status barrier(intra_call *n)
{
    tm_comm *comm = n->comm;
    uint32_t step = ++comm->step, hash = (uint32_t)n->header.hash & ~1u;
    uint64_t flag = (uint64_t)step << 32 | hash | (unsigned)comm->header;
    if (comm->world->oversubscribed) {
        atomic_store(&comm->slots[comm->rank]->flag, flag);
        signal_if_last(n, step);
    } else {
        atomic_store_explicit(&comm->slots[comm->rank]->flag, flag, memory_order_release);
    }
    for (int d = 1; d < comm->size; d++) TM_TRY(wait_for(n, (comm->rank + d) % comm->size, step, hash));
    return TM_OK;
}

/* Where this rank's data goes in the step to come, and where that of others is in the one that was. */
static unsigned char *buffer_of(const tm_comm *comm, int rank)
{
    return comm->slots[rank]->buffer[comm->buffer];
}

/* --- what lies where ------------------------------------------------------------------------- */

static size_t elements_from(const intra_call *n, int from, int to)
{
    return n->matrix ? n->matrix[(size_t)from * (size_t)n->comm->size + (size_t)to] : n->call->count;
}

/* Elements before the piece of `rank` in what this rank sends; in what it receives. */
static size_t send_first(const intra_call *n, int from, int to)
{
    size_t first = 0;
    if (!n->matrix) return n->call->count * (size_t)to;
    for (int r = 0; r < to; r++) first += elements_from(n, from, r);
    return first;
}

static size_t receive_first(const intra_call *n, int from)
{
    size_t first = 0;
    if (!n->matrix) return n->call->count * (size_t)from;
    for (int r = 0; r < from; r++) first += elements_from(n, r, n->comm->rank);
    return first;
}

static void extents(const intra_call *n, size_t *sends, size_t *receives)
{
    tm_comm_extents(n->comm, n->call, sends, receives);
    if (n->call->kind != TM_COMM_ALL_TO_ALL) return;
    *sends = send_first(n, n->comm->rank, n->comm->size) * n->element;
    *receives = receive_first(n, n->comm->size) * n->element;
}

static const char *sent_by(const intra_call *n, int rank)
{
    const tm_comm_slot   *slot = n->comm->slots[rank];
    const tm_comm_header *header = &slot->header[atomic_load_explicit(&slot->flag, memory_order_relaxed) & 1];
    return rank == n->comm->rank ? n->call->send : tm_comm_reach(n->comm, rank, header->send_window, header->send_at);
}

static char *received_by(const intra_call *n, int rank)
{
    const tm_comm_slot   *slot = n->comm->slots[rank];
    const tm_comm_header *header = &slot->header[atomic_load_explicit(&slot->flag, memory_order_relaxed) & 1];
    return rank == n->comm->rank ? n->call->receive
                                 : tm_comm_reach(n->comm, rank, header->receive_window, header->receive_at);
}

/* Tells the others about this call; read once this rank has arrived. */
static void announce(intra_call *n)
{
    tm_comm *comm = n->comm;
    size_t   sends, receives;
    extents(n, &sends, &receives);
    tm_comm_locate(comm->world, n->call->send, sends, &n->header.send_window, &n->header.send_at);
    tm_comm_locate(comm->world, n->call->receive, receives, &n->header.receive_window, &n->header.receive_at);
    comm->header ^= 1;
    comm->slots[comm->rank]->header[comm->header] = n->header;
}

/* Can every rank reach what it has to? Only an all-reduce writes into others' memory; of a broadcast only the root's is
 * read. After a step, so that all headers are there. */
static bool all_in_reach(const intra_call *n)
{
    const tm_comm *comm = n->comm;
    for (int r = 0; r < comm->size; r++) {
        const tm_comm_slot   *slot = comm->slots[r];
        const tm_comm_header *header = &slot->header[atomic_load_explicit(&slot->flag, memory_order_relaxed) & 1];
        if (header->send_window < 0 && (n->call->kind != TM_COMM_BROADCAST || r == n->call->peer)) return false;
        if (header->receive_window < 0 && n->call->kind == TM_COMM_ALL_REDUCE) return false;
    }
    return true;
}

static void copy(void *to, const void *from, size_t bytes)
{
    if (bytes > 0 && to != from) memcpy(to, from, bytes);
}

/* --- the part of `rank` of a sum ------------------------------------------------------------- */

static void slice(const intra_call *n, size_t count, int rank, size_t *first, size_t *end)
{
    tm_comm_slice(count, n->element, (size_t)rank, (size_t)n->comm->size, first, end);
}

static void reduce(const intra_call *n, const void *const *in, void *out, size_t count)
{
    tm_comm_reduce(n->call->op, n->call->format, in, n->comm->size, out, count);
}

/* --- direct ---------------------------------------------------------------------------------- */

/* Is it a sum of float32 that goes to other places than the addends, and more than caches hold? Lines that are about to
 * be overwritten as a whole are then not worth fetching. */
static bool goes_past(const intra_call *n, size_t bytes)
{
    enum { PAST = 16 << 20 };
    bool apart = bytes >= PAST && n->call->op == TM_COMM_SUM && n->call->format == TM_COMM_FLOAT32;
    for (int r = 0; r < n->comm->size && apart && n->call->kind == TM_COMM_ALL_REDUCE; r++)
        apart = sent_by(n, r) != received_by(n, r);
    return apart;
}

/* Every rank sums its slice and writes it to all: each reads and writes the whole once, whatever their number. */
static void direct_all_reduce(intra_call *n)
{
    enum { BYTES = 16384 }; /* stays in the cache between the sum and its copies */
    const tm_comm *comm = n->comm;
    const void    *in[TM_COMM_LOCAL];
    void          *out[TM_COMM_LOCAL];
    size_t         first, end, m = BYTES / n->element;
    slice(n, n->call->count, comm->rank, &first, &end);
    for (int r = 0; r < comm->size; r++) in[r] = sent_by(n, r) + first * n->element;
    for (int r = 0; r < comm->size; r++) out[r] = received_by(n, r) + first * n->element;
    if (goes_past(n, n->call->count * n->element) &&
        tm_comm_add_past((const float *const *)in, comm->size, (float *const *)out, comm->size, end - first))
        return;
    for (size_t i = first; i < end; i += m) {
        size_t count = end - i < m ? end - i : m, at = i * n->element;
        char  *own = (char *)n->call->receive + at;
        for (int r = 0; r < comm->size; r++) in[r] = sent_by(n, r) + at;
        reduce(n, in, own, count);
        for (int d = 1; d < comm->size; d++)
            memcpy(received_by(n, (comm->rank + d) % comm->size) + at, own, count * n->element);
    }
}

static void direct_reduce_scatter(intra_call *n)
{
    const tm_comm *comm = n->comm;
    const void    *in[TM_COMM_LOCAL];
    size_t         at = (size_t)comm->rank * n->call->count * n->element;
    void          *out = n->call->receive;
    for (int r = 0; r < comm->size; r++) in[r] = sent_by(n, r) + at;
    if (out != in[comm->rank] && goes_past(n, n->call->count * n->element * (size_t)comm->size) &&
        tm_comm_add_past((const float *const *)in, comm->size, (float *const *)&out, 1, n->call->count))
        return;
    reduce(n, in, out, n->call->count);
}

/* Beginning with the next rank, so that not all read from the same. */
static void direct_all_gather(intra_call *n)
{
    const tm_comm *comm = n->comm;
    size_t         bytes = n->call->count * n->element;
    for (int d = 0; d < comm->size; d++) {
        int r = (comm->rank + d) % comm->size;
        copy((char *)n->call->receive + (size_t)r * bytes, sent_by(n, r), bytes);
    }
}

static void direct_all_to_all(intra_call *n)
{
    const tm_comm *comm = n->comm;
    for (int d = 0; d < comm->size; d++) {
        int r = (comm->rank + d) % comm->size;
        copy((char *)n->call->receive + receive_first(n, r) * n->element,
             sent_by(n, r) + send_first(n, r, comm->rank) * n->element, elements_from(n, r, comm->rank) * n->element);
    }
}

static tm_status direct(intra_call *n)
{
    switch (n->call->kind) {
    case TM_COMM_ALL_REDUCE:
        direct_all_reduce(n);
        break;
    case TM_COMM_REDUCE_SCATTER:
        direct_reduce_scatter(n);
        break;
    case TM_COMM_ALL_GATHER:
        direct_all_gather(n);
        break;
    case TM_COMM_ALL_TO_ALL:
        direct_all_to_all(n);
        break;
    case TM_COMM_BROADCAST:
        copy(n->call->receive, sent_by(n, n->call->peer), n->call->count * n->element);
        break;
    default:
        TM_ASSERT(!"a kind that moves data");
    }
    return barrier(n);
}

/* --- in blocks ------------------------------------------------------------------------------- */

/* Small: everybody adds everything. Else each its slice of a block, and all fetch the slices. */
static tm_status blocks_all_reduce(intra_call *n)
{
    tm_comm    *comm = n->comm;
    const void *in[TM_COMM_LOCAL];
    size_t      m = TM_COMM_BUFFER / n->element, count = n->call->count;
    bool        small = count * n->element <= TM_COMM_SMALL;
    for (size_t i = 0; i < count; i += m) {
        size_t part = count - i < m ? count - i : m, first, end;
        char  *receive = (char *)n->call->receive + i * n->element;
        memcpy(buffer_of(comm, comm->rank), (const char *)n->call->send + i * n->element, part * n->element);
        TM_TRY(barrier(n));
        slice(n, part, comm->rank, &first, &end);
        if (small) first = 0, end = part;
        for (int r = 0; r < comm->size; r++) in[r] = buffer_of(comm, r) + first * n->element;
        comm->buffer ^= 1;
        reduce(n, in, small ? receive : (char *)buffer_of(comm, comm->rank) + first * n->element, end - first);
        if (small) continue;
        TM_TRY(barrier(n));
        for (int r = 0; r < comm->size; r++) {
            slice(n, part, r, &first, &end);
            memcpy(receive + first * n->element, buffer_of(comm, r) + first * n->element, (end - first) * n->element);
        }
        comm->buffer ^= 1;
    }
    return TM_OK;
}

static tm_status blocks_reduce_scatter(intra_call *n)
{
    tm_comm    *comm = n->comm;
    const void *in[TM_COMM_LOCAL];
    size_t      size = (size_t)comm->size, m = TM_COMM_BUFFER / size / n->element, count = n->call->count;
    for (size_t i = 0; i < count; i += m) {
        size_t part = count - i < m ? count - i : m, bytes = part * n->element;
        for (size_t r = 0; r < size; r++)
            memcpy(buffer_of(comm, comm->rank) + r * bytes, (const char *)n->call->send + (r * count + i) * n->element,
                   bytes);
        TM_TRY(barrier(n));
        for (int r = 0; r < comm->size; r++) in[r] = buffer_of(comm, r) + (size_t)comm->rank * bytes;
        reduce(n, in, (char *)n->call->receive + i * n->element, part);
        comm->buffer ^= 1;
    }
    return TM_OK;
}

static tm_status blocks_all_gather(intra_call *n)
{
    tm_comm    *comm = n->comm;
    size_t      bytes = n->call->count * n->element;
    const char *send = n->call->send;
    for (size_t i = 0; i < bytes; i += TM_COMM_BUFFER) {
        size_t part = bytes - i < TM_COMM_BUFFER ? bytes - i : TM_COMM_BUFFER;
        memcpy(buffer_of(comm, comm->rank), send + i, part);
        TM_TRY(barrier(n));
        for (int d = 1; d < comm->size; d++) {
            size_t r = (size_t)(comm->rank + d) % (size_t)comm->size;
            memcpy((char *)n->call->receive + r * bytes + i, buffer_of(comm, (int)r), part);
        }
        comm->buffer ^= 1;
    }
    copy((char *)n->call->receive + (size_t)comm->rank * bytes, send, bytes);
    return TM_OK;
}

static tm_status blocks_broadcast(intra_call *n)
{
    tm_comm *comm = n->comm;
    int      root = n->call->peer;
    size_t   bytes = n->call->count * n->element;
    for (size_t i = 0; i < bytes; i += TM_COMM_BUFFER) {
        size_t part = bytes - i < TM_COMM_BUFFER ? bytes - i : TM_COMM_BUFFER;
        if (comm->rank == root) memcpy(buffer_of(comm, root), (const char *)n->call->send + i, part);
        TM_TRY(barrier(n));
        if (comm->rank != root) memcpy((char *)n->call->receive + i, buffer_of(comm, root), part);
        comm->buffer ^= 1;
    }
    if (comm->rank == root) copy(n->call->receive, n->call->send, bytes);
    return TM_OK;
}

/* The buffer is cut into a piece for each rank. */
static tm_status blocks_all_to_all(intra_call *n)
{
    tm_comm *comm = n->comm;
    size_t   m = TM_COMM_BUFFER / (size_t)comm->size / n->element, most = 0;
    for (int a = 0; a < comm->size; a++)
        for (int b = 0; b < comm->size; b++)
            if (elements_from(n, a, b) > most) most = elements_from(n, a, b);
    for (size_t i = 0; i < most; i += m) {
        for (int r = 0; r < comm->size; r++) {
            size_t all = elements_from(n, comm->rank, r), part = all <= i ? 0 : all - i < m ? all - i : m;
            copy(buffer_of(comm, comm->rank) + (size_t)r * m * n->element,
                 (const char *)n->call->send + (send_first(n, comm->rank, r) + i) * n->element, part * n->element);
        }
        TM_TRY(barrier(n));
        for (int r = 0; r < comm->size; r++) {
            size_t all = elements_from(n, r, comm->rank), part = all <= i ? 0 : all - i < m ? all - i : m;
            copy((char *)n->call->receive + (receive_first(n, r) + i) * n->element,
                 buffer_of(comm, r) + (size_t)comm->rank * m * n->element, part * n->element);
        }
        comm->buffer ^= 1;
    }
    return TM_OK;
}

static tm_status in_blocks(intra_call *n)
{
    switch (n->call->kind) {
    case TM_COMM_ALL_REDUCE:
        return blocks_all_reduce(n);
    case TM_COMM_REDUCE_SCATTER:
        return blocks_reduce_scatter(n);
    case TM_COMM_ALL_GATHER:
        return blocks_all_gather(n);
    case TM_COMM_ALL_TO_ALL:
        return blocks_all_to_all(n);
    case TM_COMM_BROADCAST:
        return blocks_broadcast(n);
    default:
        TM_ASSERT(!"a kind that moves data");
        return TM_INTERNAL;
    }
}

/* --- calls ----------------------------------------------------------------------------------- */

/* By what all ranks know: the same for all. */
static bool is_small(const intra_call *n)
{
    size_t one = n->call->count * n->element, size = (size_t)n->comm->size;
    bool   pieces = n->call->kind == TM_COMM_REDUCE_SCATTER || n->call->kind == TM_COMM_ALL_TO_ALL;
    size_t most = n->call->kind == TM_COMM_BROADCAST ? 2 * TM_COMM_SMALL : TM_COMM_SMALL;
    return !n->matrix && (pieces ? one * size : one) <= most;
}

static bool moves_nothing(const intra_call *n)
{
    size_t all = 0, pairs = (size_t)n->comm->size * (size_t)n->comm->size;
    if (n->call->kind == TM_COMM_BARRIER || (int)n->call->kind == TM_COMM_CLOSE) return true;
    if (!n->matrix) return n->call->count == 0;
    for (size_t i = 0; i < pairs; i++) all |= n->matrix[i];
    return all == 0;
}

static tm_status run(intra_call *n)
{
    announce(n);
    if (moves_nothing(n)) return barrier(n);
    n->comm->way = "in blocks";
    if (is_small(n)) return in_blocks(n);
    TM_TRY(barrier(n));
    if (!all_in_reach(n)) return in_blocks(n);
    n->comm->way = "in place";
    return direct(n);
}

tm_status tm_comm_run_intra(tm_comm *comm, const tm_collective *call, tm_error *err)
{
    intra_call n = { .comm = comm, .call = call, .err = err };
    tm_comm_header_fill(call, &n.header);
    n.element = tm_comm_bytes_of(call->format);
    if (call->send_counts) {
        TM_TRY(tm_comm_counts(comm, call, err));
        n.matrix = comm->matrix;
    }
    return run(&n);
}
