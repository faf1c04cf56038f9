/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/calls.h - every kind of call against plain loops, bit for bit: all formats, buffers that others reach and
 * buffers that they do not, in place and not. */
#ifndef TM_TESTS_COMM_CALLS_H
#define TM_TESTS_COMM_CALLS_H

#include "support/test.h"

#include "world.h"

typedef struct {
    const size_t *counts;
    int           n_counts;
} sizes;

/* Where buffers lie: in the world's memory, in private memory, only those of even ranks in the world's, only what is
 * sent, or (not among those that take turns) only what is received. */
enum { SHARED, PRIVATE, MIXED, SENT_SHARED, PLACES, RECEIVED_SHARED };

typedef struct {
    tm_comm *comm;
    char    *shared, *own[2]; /* each with room for two buffers, send and receive */
    size_t   room;
    int      place, all[TM_COMM_LOCAL];
    bool     in_place;
} bench;

static char *memory(const bench *b, int which)
{
    bool shared = b->place == SHARED || (b->place == MIXED && tm_comm_rank(b->comm) % 2 == 0) ||
                  (b->place == SENT_SHARED && which == 0) || (b->place == RECEIVED_SHARED && which == 1);
    return shared ? b->shared + (size_t)which * b->room : b->own[which];
}

static void fill(tm_comm_format format, uint64_t seed, int rank, char *out, size_t first, size_t n)
{
    for (size_t i = 0; i < n; i++) put_value(format, seed, rank, first + i, out + i * format_bytes(format));
}

/* Behind what a call receives nothing is written. */
enum { GUARD_BYTES = 24 };
static void guard(char *end)
{
    memset(end, 0x5a, GUARD_BYTES);
}
static bool guarded(const char *end)
{
    for (int i = 0; i < GUARD_BYTES; i++)
        if (end[i] != 0x5a) return false;
    return true;
}

/* Of the pieces from a to b, all with other counts: some are empty. */
static size_t piece(size_t count, size_t a, size_t b)
{
    return (a * 5 + b * 3) % 4 == 0 ? 0 : count * ((a + 2 * b) % 3) / 2 + (a ^ b);
}

/* One call of this rank. `pieces`: of an all-to-all, each of its own length. */
typedef struct {
    tm_collective call;
    size_t        sent, received, out[TM_COMM_LOCAL], in[TM_COMM_LOCAL]; /* elements */
    uint64_t      seed;
} one_call;

static one_call call_of(const bench *b, tm_comm_kind kind, tm_comm_op op, tm_comm_format format, size_t count, int root,
                        bool pieces, uint64_t seed)
{
    size_t   rank = (size_t)tm_comm_rank(b->comm), size = (size_t)tm_comm_size(b->comm);
    one_call o = { .call = collective_of(kind, format, memory(b, 0), memory(b, 1), count, "numbers", 1), .seed = seed };
    size_t   part = rank * count * format_bytes(format);
    o.call.op = op, o.call.peer = root;
    o.sent = kind == TM_COMM_REDUCE_SCATTER ? size * count : count;
    o.received = kind == TM_COMM_ALL_GATHER ? size * count : count;
    if (kind == TM_COMM_BROADCAST && (int)rank != root) o.sent = 0;
    for (size_t r = 0; r < size && kind == TM_COMM_ALL_TO_ALL; r++) {
        if (r == 0) o.sent = o.received = 0;
        o.sent += o.out[r] = pieces ? piece(count, rank, r) : count;
        o.received += o.in[r] = pieces ? piece(count, r, rank) : count;
    }
    if (b->in_place && kind == TM_COMM_ALL_GATHER)
        o.call.send = (char *)o.call.receive + part;
    else if (b->in_place)
        o.call.receive = memory(b, 0) + (kind == TM_COMM_REDUCE_SCATTER ? part : 0);
    return o;
}

/* Element i that plain loops would have received. */
static void wanted_at(const bench *b, const one_call *o, size_t i, void *want)
{
    const tm_collective *c = &o->call;
    size_t               rank = (size_t)tm_comm_rank(b->comm), from = 0;
    switch (c->kind) {
    case TM_COMM_ALL_GATHER:
        put_value(c->format, o->seed, (int)(i / c->count), i % c->count, want);
        break;
    case TM_COMM_ALL_TO_ALL:
        while (i >= o->in[from]) i -= o->in[from++];
        put_value(c->format, o->seed + rank, (int)from, i, want);
        break;
    case TM_COMM_BROADCAST:
        put_value(c->format, o->seed, c->peer, i, want);
        break;
    default:
        if (c->kind == TM_COMM_REDUCE_SCATTER) i += rank * c->count;
        put_reduced(c->op, c->format, o->seed, b->all, tm_comm_size(b->comm), i, want);
    }
}

/* Nothing is written behind what is received, and what was sent is as it was. */
static void check_call(const bench *b, tm_comm_kind kind, tm_comm_op op, tm_comm_format format, size_t count, int root,
                       bool pieces, uint64_t seed)
{
    one_call      o = call_of(b, kind, op, format, count, root, pieces, seed);
    size_t        bytes = format_bytes(format), at = 0;
    int           rank = tm_comm_rank(b->comm);
    char         *send = (char *)(uintptr_t)o.call.send, *receive = o.call.receive, want[8] = { 0 };
    tm_collective call = o.call;
    memset(receive, 0, o.received * bytes);
    guard(receive + o.received * bytes);
    for (size_t r = 0; r < (size_t)tm_comm_size(b->comm) && kind == TM_COMM_ALL_TO_ALL; at += o.out[r++])
        fill(format, seed + r, rank, send + at * bytes, 0, o.out[r]);
    if (kind != TM_COMM_ALL_TO_ALL) fill(format, seed, rank, send, 0, o.sent);
    if (kind == TM_COMM_BROADCAST && rank != root) call.send = NULL;
    call.send_counts = pieces ? o.out : NULL, call.receive_counts = pieces ? o.in : NULL;
    CHECK_OK(tm_comm_run(b->comm, &call, err));
    CHECK(guarded(receive + o.received * bytes) || (b->in_place && kind == TM_COMM_REDUCE_SCATTER));
    for (size_t i = 0; i < o.received; i++) {
        wanted_at(b, &o, i, want);
        CHECK(memcmp(receive + i * bytes, want, bytes) == 0);
    }
    for (size_t i = 0; i < o.sent && !b->in_place && kind != TM_COMM_ALL_TO_ALL; i++) {
        put_value(format, seed, rank, i, want);
        CHECK(memcmp(send + i * bytes, want, bytes) == 0);
    }
}

static void every_kind(const bench *b, tm_comm_format format, size_t count, uint64_t seed)
{
    int root = (int)(seed % (uint64_t)tm_comm_size(b->comm));
    for (int op = TM_COMM_SUM; op <= TM_COMM_MIN && format != TM_COMM_BYTES; op++) {
        if (op != TM_COMM_SUM && count > 3000) continue;
        check_call(b, TM_COMM_ALL_REDUCE, (tm_comm_op)op, format, count, 0, false, seed + 1);
        check_call(b, TM_COMM_REDUCE_SCATTER, (tm_comm_op)op, format, count, 0, false, seed + 2);
    }
    check_call(b, TM_COMM_ALL_GATHER, TM_COMM_SUM, format, count, 0, false, seed + 3);
    check_call(b, TM_COMM_BROADCAST, TM_COMM_SUM, format, count, root, false, seed + 4);
    for (int pieces = 0; pieces < 2 && !b->in_place; pieces++)
        check_call(b, TM_COMM_ALL_TO_ALL, TM_COMM_SUM, format, count, 0, pieces, seed + 5);
}

/* Every rank of a world calls it; context: the counts. */
static inline void all_calls(tm_comm *comm, void *context)
{
    const sizes *s = context;
    bench        b = { .comm = comm };
    size_t       most = 0;
    void        *shared;
    for (int i = 0; i < s->n_counts; i++)
        if (s->counts[i] > most) most = s->counts[i];
    b.room = ((most + 64) * 8 * (size_t)tm_comm_size(comm) + 4095) / 4096 * 4096;
    CHECK_OK(tm_comm_alloc(comm, 2 * b.room, &shared, err));
    b.shared = shared;
    for (int i = 0; i < 2; i++) CHECK((b.own[i] = malloc(b.room)) != NULL);
    for (int r = 0; r < tm_comm_size(comm); r++) b.all[r] = r;
    for (int i = 0; i < s->n_counts; i++)
        for (int format = TM_COMM_BYTES; format <= TM_COMM_BFLOAT16; format++) {
            b.place = (i + format) % PLACES;
            for (int in_place = 0; in_place < 2; in_place++) {
                b.in_place = in_place;
                every_kind(&b, (tm_comm_format)format, s->counts[i], (uint64_t)(i * 100 + format * 10));
                b.place = (b.place + 1) % PLACES;
            }
        }
    tm_comm_free(comm, shared);
    for (int i = 0; i < 2; i++) free(b.own[i]);
}

#define OF(counts) (&(sizes){ counts, sizeof counts / sizeof counts[0] })

#endif
