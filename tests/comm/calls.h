/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/calls.h - every kind of call against plain loops, bit for bit: all formats, buffers that others reach and
 * buffers that they do not, in place and not. */
#ifndef TM_TESTS_COMM_CALLS_H
#define TM_TESTS_COMM_CALLS_H

#include "world.h"

#include <stdio.h>
#include <stdlib.h>

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

static void check_all_reduce(const bench *b, tm_comm_op op, tm_comm_format format, size_t count, uint64_t seed)
{
    int    rank = tm_comm_rank(b->comm), size = tm_comm_size(b->comm);
    size_t bytes = format_bytes(format);
    char  *send = memory(b, 0), *receive = b->in_place ? send : memory(b, 1), want[8] = { 0 };
    fill(format, seed, rank, send, 0, count);
    guard(receive + count * bytes);
    tm_collective call = collective_of(TM_COMM_ALL_REDUCE, format, send, receive, count, "sums", 1);
    call.op = op;
    CHECK_OK(tm_comm_run(b->comm, &call, err));
    CHECK(guarded(receive + count * bytes));
    for (size_t i = 0; i < count; i++) {
        put_reduced(op, format, seed, b->all, size, i, want);
        CHECK(memcmp(receive + i * bytes, want, bytes) == 0);
    }
    /* What was sent is as it was. */
    for (size_t i = 0; i < count && !b->in_place; i++) {
        put_value(format, seed, rank, i, want);
        CHECK(memcmp(send + i * bytes, want, bytes) == 0);
    }
}

static void check_reduce_scatter(const bench *b, tm_comm_op op, tm_comm_format format, size_t count, uint64_t seed)
{
    size_t rank = (size_t)tm_comm_rank(b->comm), size = (size_t)tm_comm_size(b->comm), bytes = format_bytes(format);
    char  *send = memory(b, 0), *receive = b->in_place ? send + rank * count * bytes : memory(b, 1), want[8] = { 0 };
    fill(format, seed, (int)rank, send, 0, count * size);
    tm_collective call = collective_of(TM_COMM_REDUCE_SCATTER, format, send, receive, count, "slices", -1);
    call.op = op;
    CHECK_OK(tm_comm_run(b->comm, &call, err));
    for (size_t i = 0; i < count; i++) {
        put_reduced(op, format, seed, b->all, (int)size, rank * count + i, want);
        CHECK(memcmp(receive + i * bytes, want, bytes) == 0);
    }
}

static void check_all_gather(const bench *b, tm_comm_format format, size_t count, uint64_t seed)
{
    size_t rank = (size_t)tm_comm_rank(b->comm), size = (size_t)tm_comm_size(b->comm), bytes = format_bytes(format);
    char  *receive = memory(b, 1), *send = b->in_place ? receive + rank * count * bytes : memory(b, 0), want[8] = { 0 };
    memset(receive, 0, size * count * bytes);
    guard(receive + size * count * bytes);
    fill(format, seed, (int)rank, send, 0, count);
    tm_collective call = {
        .kind = TM_COMM_ALL_GATHER, .format = format, .send = send, .receive = receive, .count = count, .what = "parts"
    };
    CHECK_OK(tm_comm_run(b->comm, &call, err));
    CHECK(guarded(receive + size * count * bytes));
    for (size_t r = 0; r < size; r++)
        for (size_t i = 0; i < count; i++) {
            put_value(format, seed, (int)r, i, want);
            CHECK(memcmp(receive + (r * count + i) * bytes, want, bytes) == 0);
        }
}

static void check_broadcast(const bench *b, tm_comm_format format, size_t count, int root, uint64_t seed)
{
    size_t bytes = format_bytes(format);
    char  *send = memory(b, 0), *receive = b->in_place ? send : memory(b, 1), want[8] = { 0 };
    bool   is_root = tm_comm_rank(b->comm) == root;
    memset(receive, 0, count * bytes);
    guard(receive + count * bytes);
    if (is_root) fill(format, seed, root, send, 0, count);
    tm_collective call = collective_of(TM_COMM_BROADCAST, format, is_root ? send : NULL, receive, count, "weights", 0);
    call.peer = root;
    CHECK_OK(tm_comm_run(b->comm, &call, err));
    CHECK(guarded(receive + count * bytes));
    for (size_t i = 0; i < count; i++) {
        put_value(format, seed, root, i, want);
        CHECK(memcmp(receive + i * bytes, want, bytes) == 0);
    }
}

/* Of the pieces from a to b, all with other counts: some are empty. */
static size_t piece(size_t count, size_t a, size_t b)
{
    return (a * 5 + b * 3) % 4 == 0 ? 0 : count * ((a + 2 * b) % 3) / 2 + (a ^ b);
}

static void check_all_to_all(const bench *b, tm_comm_format format, size_t count, bool pieces, uint64_t seed)
{
    size_t rank = (size_t)tm_comm_rank(b->comm), size = (size_t)tm_comm_size(b->comm), bytes = format_bytes(format);
    size_t out[TM_COMM_LOCAL], in[TM_COMM_LOCAL], at = 0, all = 0;
    char  *send = memory(b, 0), *receive = memory(b, 1), want[8] = { 0 };
    for (size_t r = 0; r < size; r++) {
        out[r] = pieces ? piece(count, rank, r) : count;
        in[r] = pieces ? piece(count, r, rank) : count;
        fill(format, seed + r, (int)rank, send + at, 0, out[r]);
        at += out[r] * bytes;
        all += in[r] * bytes;
    }
    guard(receive + all);
    tm_collective call = collective_of(TM_COMM_ALL_TO_ALL, format, send, receive, count, "tokens", 0);
    call.send_counts = pieces ? out : NULL, call.receive_counts = pieces ? in : NULL;
    CHECK_OK(tm_comm_run(b->comm, &call, err));
    CHECK(guarded(receive + all));
    at = 0;
    for (size_t r = 0; r < size; r++)
        for (size_t i = 0; i < in[r]; i++, at += bytes) {
            put_value(format, seed + rank, (int)r, i, want);
            CHECK(memcmp(receive + at, want, bytes) == 0);
        }
}

static void every_kind(const bench *b, tm_comm_format format, size_t count, uint64_t seed)
{
    int size = tm_comm_size(b->comm);
    if (format != TM_COMM_BYTES)
        for (int op = TM_COMM_SUM; op <= TM_COMM_MIN; op++) {
            if (op != TM_COMM_SUM && count > 3000) continue;
            check_all_reduce(b, (tm_comm_op)op, format, count, seed + 1);
            check_reduce_scatter(b, (tm_comm_op)op, format, count, seed + 2);
        }
    check_all_gather(b, format, count, seed + 3);
    check_broadcast(b, format, count, (int)(seed % (uint64_t)size), seed + 4);
    if (!b->in_place) check_all_to_all(b, format, count, false, seed + 5);
    if (!b->in_place) check_all_to_all(b, format, count, true, seed + 6);
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
