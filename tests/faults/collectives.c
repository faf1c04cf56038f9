/* SPDX-License-Identifier: Apache-2.0 */
/* tests/faults/collectives.c - faults of what ranks tell each other, and the made-up time that it takes.
 *
 * By the made-up clock a call begins when its last rank has come: their times go ahead of it, as a real call. Then it
 * takes `latency_us` and its bytes at `wire` GB/s; a message begins when it was sent. Only calls from outside comm/
 * come here. Faults change what this rank receives, or sends; what comes into a copy is never longer than the call. */
#include "faults.h"

#include "base/arena.h"
#include "comm/group.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tm_status __real_tm_comm_run(tm_comm *comm, const tm_collective *call, tm_error *err);
tm_status __wrap_tm_comm_run(tm_comm *comm, const tm_collective *call, tm_error *err);

static const char *name_of(tm_comm_kind kind)
{
    static const char *const names[] = { "barrier",   "all_reduce", "reduce_scatter", "all_gather",
                                         "broadcast", "all_to_all", "send",           "receive" };
    return names[kind];
}

/* --- what a call moves -------------------------------------------------------------------------------------------- */

static size_t sum_of(const size_t *counts, size_t n)
{
    size_t sum = 0;
    for (size_t r = 0; r < n; r++) sum += counts[r];
    return sum;
}

/* Elements that this rank sends and receives. */
static size_t sent(const tm_comm *comm, const tm_collective *call)
{
    size_t n = (size_t)comm->size;
    switch (call->kind) {
    case TM_COMM_BARRIER:
    case TM_COMM_RECEIVE:
        return 0;
    case TM_COMM_BROADCAST:
        return call->peer == comm->rank ? call->count : 0;
    case TM_COMM_REDUCE_SCATTER:
        return n * call->count;
    case TM_COMM_ALL_TO_ALL:
        return call->send_counts ? sum_of(call->send_counts, n) : n * call->count;
    default:
        return call->count;
    }
}

static size_t received(const tm_comm *comm, const tm_collective *call)
{
    size_t n = (size_t)comm->size;
    switch (call->kind) {
    case TM_COMM_BARRIER:
    case TM_COMM_SEND:
        return 0;
    case TM_COMM_ALL_GATHER:
        return n * call->count;
    case TM_COMM_ALL_TO_ALL:
        return call->receive_counts ? sum_of(call->receive_counts, n) : n * call->count;
    default:
        return call->count;
    }
}

/* The elements of what was received that are rank r's: its part of a gather, its piece, its slice of a sum, or all of
 * what it sent. False: there are none. */
static bool part_of(const tm_comm *comm, const tm_collective *call, size_t r, size_t *first, size_t *count)
{
    size_t n = (size_t)comm->size;
    *first = 0;
    *count = call->count;
    if (r >= n) return false;
    switch (call->kind) {
    case TM_COMM_ALL_GATHER:
        *first = r * call->count;
        break;
    case TM_COMM_ALL_TO_ALL:
        *first = call->receive_counts ? sum_of(call->receive_counts, r) : r * call->count;
        if (call->receive_counts) *count = call->receive_counts[r];
        break;
    case TM_COMM_ALL_REDUCE:
        *first = call->count * r / n;
        *count = call->count * (r + 1) / n - *first;
        break;
    case TM_COMM_REDUCE_SCATTER:
        return call->count > 0 && r == (size_t)comm->rank;
    case TM_COMM_BROADCAST:
    case TM_COMM_RECEIVE:
        return call->count > 0 && r == (size_t)call->peer;
    default:
        return false;
    }
    return *count > 0;
}

/* --- time --------------------------------------------------------------------------------------------------------- */

/* The place of a rank of the world in the group; the group's size: it has none. */
static size_t place_in(const tm_comm *comm, int64_t rank)
{
    int r = 0;
    while (r < comm->size && comm->member[r] != rank) r++;
    return (size_t)r;
}

static bool has_rank(const tm_comm *comm, int64_t rank)
{
    return place_in(comm, rank) < (size_t)comm->size;
}

/* Does the call use the link? A message uses that of its ranks, a collective those between all of its group. */
static bool uses(const fault *f, const tm_comm *comm, const tm_collective *call)
{
    int64_t a = f->rank >= 0 ? f->rank : f->a, own = comm->member[comm->rank];
    bool    pair = call->kind == TM_COMM_SEND || call->kind == TM_COMM_RECEIVE;
    if (!pair) return comm->size > 1 && has_rank(comm, a) && (f->rank >= 0 || has_rank(comm, f->b));
    int64_t other = comm->member[call->peer];
    if (f->rank >= 0) return own == a || other == a;
    return (own == f->a && other == f->b) || (own == f->b && other == f->a);
}

/* How much longer its bytes are on their way: 1 / the fraction of the rate. 1: as long. *f: the slowest link. */
static double stretch(const tm_comm *comm, const tm_collective *call, const fault **slowest)
{
    const faults *all = faults_planted();
    double        most = 1;
    for (int i = 0; i < all->n; i++) {
        const fault *f = &all->all[i];
        if (f->kind != FAULT_LINK || !fault_is_here(f) || !uses(f, comm, call) || 1 / f->rate <= most) continue;
        most = 1 / f->rate;
        *slowest = f;
    }
    return most;
}

/* The bytes of a call that pass this rank's links. */
static double moved(const tm_comm *comm, const tm_collective *call)
{
    size_t out = sent(comm, call), in = received(comm, call);
    return (double)(out > in ? out : in) * (double)tm_comm_bytes_of(call->format);
}

/* The times of all ranks of the call, before it: this one's becomes the latest. */
static tm_status come_together(tm_comm *comm, const tm_collective *call, tm_error *err)
{
    fault_rank   *own = faults_rank();
    int64_t       latest = own->now_ns;
    tm_collective times = { .kind = TM_COMM_ALL_REDUCE,
                            .op = TM_COMM_MAX,
                            .format = TM_COMM_INT64,
                            .send = &latest,
                            .receive = &latest,
                            .count = 1,
                            .peer = call->peer,
                            .channel = call->channel,
                            .buffered = call->buffered,
                            .what = "the made-up clock",
                            .step = -1 };
    if (call->kind == TM_COMM_SEND || call->kind == TM_COMM_RECEIVE) {
        times.kind = call->kind;
        if (call->kind == TM_COMM_SEND) times.receive = NULL;
        if (call->kind == TM_COMM_RECEIVE) times.send = NULL;
    }
    TM_TRY(__real_tm_comm_run(comm, &times, err));
    clock_wait(latest);
    return TM_OK;
}

/* After the call. A link that is slow on the machine's clock makes who receives wait. */
static void take_time(const tm_comm *comm, const tm_collective *call)
{
    const faults *all = faults_planted();
    fault_rank   *own = faults_rank();
    const fault  *slow = NULL;
    double        longer = stretch(comm, call, &slow), bytes = moved(comm, call);
    if (own->made)
        own->now_ns +=
            llround(all->clock.latency_us * 1e3 + (call->kind == TM_COMM_SEND ? 0 : bytes / all->clock.wire * longer));
    else if (slow && call->kind != TM_COMM_SEND)
        clock_sleep(bytes / slow->gigabytes * (longer - 1) * 1e-9);
}

/* --- faults of contents ------------------------------------------------------------------------------------------- */

/* A call with its faults. */
typedef struct {
    const tm_comm *comm;
    tm_collective  call; /* as it is made */
    char          *copy; /* of what is sent; NULL: it is sent as it lies */
    char          *tail; /* what was there before the call; NULL: all arrives */
    size_t         element, tail_bytes;
} altered;

static bool is_reached(const fault *f, const tm_collective *call)
{
    if (f->op[0] && strcmp(f->op, name_of(call->kind)) != 0) return false;
    return !f->name[0] || (call->what && strstr(call->what, f->name));
}

static bool sends_in_place(const altered *a)
{
    const char *out = a->call.send, *in = a->call.receive;
    size_t      bytes = sent(a->comm, &a->call) * a->element, room = received(a->comm, &a->call) * a->element;
    return in && out < in + room && in < out + bytes;
}

/* What is sent, to be changed: in its place where the call writes there, else a copy. */
static char *sent_data(altered *a)
{
    size_t bytes = sent(a->comm, &a->call) * a->element;
    bool   scatter = a->call.kind == TM_COMM_REDUCE_SCATTER; /* its result may come to a copy's place anyhow */
    if (sends_in_place(a) && !scatter) return (char *)(uintptr_t)a->call.send;
    if (!a->copy) a->copy = memcpy(tm_alloc(bytes), a->call.send, bytes);
    a->call.send = a->copy;
    return a->copy;
}

static void flip(altered *a, const fault *f, char *data, size_t count)
{
    int64_t  bits = 8 * (int64_t)a->element;
    uint64_t element = fault_draw(f, 0, count), bit;
    bit = f->bit >= 0 ? (uint64_t)(f->bit % bits) : fault_draw(f, 1, (uint64_t)bits);
    data[element * a->element + bit / 8] ^= (char)(1U << bit % 8);
    fault_tell(f, "\"where\": \"message\", \"call\": \"%s\", \"side\": \"%s\", \"element\": %llu, \"bit\": %llu",
               name_of(a->call.kind), f->side, (unsigned long long)element, (unsigned long long)bit);
}

/* Exchanges two parts, as far as the smaller one goes; `first` and `count` in elements. */
static void exchange(const altered *a, char *data, const size_t first[2], const size_t count[2])
{
    size_t bytes = (count[0] < count[1] ? count[0] : count[1]) * a->element;
    char  *x = data + first[0] * a->element, *y = data + first[1] * a->element,
         *kept = memcpy(tm_alloc(bytes), x, bytes);
    memcpy(x, y, bytes);
    memcpy(y, kept, bytes);
    free(kept);
}

static void swap(altered *a, const fault *f, bool sums)
{
    size_t first[2], count[2], pair[2] = { place_in(a->comm, f->a), place_in(a->comm, f->b) };
    for (int i = 0; i < 2; i++) {
        if (sums) first[i] = pair[i] * a->call.count;
        if (sums) count[i] = a->call.count;
        if (!sums && !part_of(a->comm, &a->call, pair[i], &first[i], &count[i])) return;
    }
    exchange(a, sums ? sent_data(a) : a->call.receive, first, count);
    fault_tell(f, "\"call\": \"%s\", \"parts\": [%zu, %zu]", name_of(a->call.kind), pair[0], pair[1]);
}

/* Whether the fault has something to do with this call. */
static bool concerns(const altered *a, const fault *f)
{
    const tm_comm *comm = a->comm;
    size_t         first, count;
    if (!fault_is_here(f) || !is_reached(f, &a->call)) return false;
    switch (f->kind) {
    case FAULT_FLIP:
        if (strcmp(f->where, "message") != 0) return false;
        return (f->side[0] == 's' ? sent(comm, &a->call) : received(comm, &a->call)) > 0;
    case FAULT_STALE:
        if (f->of == comm->member[comm->rank] && a->call.kind != TM_COMM_ALL_REDUCE &&
            a->call.kind != TM_COMM_REDUCE_SCATTER)
            return false; /* its own part comes from nobody else */
        return part_of(comm, &a->call, place_in(comm, f->of), &first, &count);
    case FAULT_SWAP:
        return has_rank(comm, f->a) && has_rank(comm, f->b) && a->call.count > 0 &&
               (a->call.kind == TM_COMM_ALL_GATHER || a->call.kind == TM_COMM_ALL_TO_ALL ||
                a->call.kind == TM_COMM_ALL_REDUCE || a->call.kind == TM_COMM_REDUCE_SCATTER);
    case FAULT_TAIL:
        return received(comm, &a->call) > 0;
    case FAULT_HANG:
        return strcmp(f->before, "call") == 0;
    default:
        return false;
    }
}

static void keep_tail(altered *a, const fault *f)
{
    size_t count = received(a->comm, &a->call), n = (size_t)f->elements < count ? (size_t)f->elements : count;
    if (a->tail) return;
    a->tail_bytes = n * a->element;
    a->tail = memcpy(tm_alloc(a->tail_bytes), (char *)a->call.receive + (count - n) * a->element, a->tail_bytes);
    fault_tell(f, "\"call\": \"%s\", \"elements\": %zu", name_of(a->call.kind), n);
}

static void zero(const altered *a, const fault *f)
{
    size_t first, count;
    if (!part_of(a->comm, &a->call, place_in(a->comm, f->of), &first, &count)) return;
    memset((char *)a->call.receive + first * a->element, 0, count * a->element);
    fault_tell(f, "\"call\": \"%s\", \"of\": %lld, \"first\": %zu, \"elements\": %zu", name_of(a->call.kind),
               (long long)f->of, first, count);
}

/* Whose turn it is: bit i for fault i. What is done before the call is done. */
static unsigned before_call(altered *a)
{
    const faults *all = faults_planted();
    unsigned      due = 0;
    for (int i = 0; i < all->n; i++) {
        const fault *f = &all->all[i];
        if (!concerns(a, f) || !fault_turn(f)) continue;
        due |= 1U << i;
        if (f->kind == FAULT_HANG) fault_hang(f);
        if (f->kind == FAULT_TAIL) keep_tail(a, f);
        if (f->kind == FAULT_FLIP && f->side[0] == 's') flip(a, f, sent_data(a), sent(a->comm, &a->call));
        if (f->kind == FAULT_SWAP && a->call.kind == TM_COMM_REDUCE_SCATTER) swap(a, f, true);
    }
    return due;
}

static void after_call(altered *a, unsigned due)
{
    const faults *all = faults_planted();
    char         *data = a->call.receive;
    size_t        count = received(a->comm, &a->call);
    for (int i = 0; i < all->n; i++) {
        const fault *f = &all->all[i];
        if (!(due >> i & 1U)) continue;
        if (f->kind == FAULT_STALE) zero(a, f);
        if (f->kind == FAULT_SWAP && a->call.kind != TM_COMM_REDUCE_SCATTER) swap(a, f, false);
        if (f->kind == FAULT_FLIP && f->side[0] == 'r') flip(a, f, data, count);
        if (f->kind == FAULT_TAIL && a->tail) memcpy(data + count * a->element - a->tail_bytes, a->tail, a->tail_bytes);
    }
}

tm_status __wrap_tm_comm_run(tm_comm *comm, const tm_collective *call, tm_error *err)
{
    fault_rank *own = faults_rank();
    altered     a = { .comm = comm, .call = *call, .element = tm_comm_bytes_of(call->format) };
    own->rank = comm->member[comm->rank];
    own->called = true;
    fault_place *outer = own->place;
    own->place = NULL;
    unsigned  due = before_call(&a);
    tm_status st = own->made ? come_together(comm, call, err) : TM_OK;
    if (st == TM_OK) st = __real_tm_comm_run(comm, &a.call, err);
    if (st == TM_OK) {
        take_time(comm, call);
        after_call(&a, due);
    }
    own->place = outer;
    free(a.copy);
    free(a.tail);
    return st;
}
