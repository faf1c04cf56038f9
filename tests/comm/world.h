/* SPDX-License-Identifier: Apache-2.0 */
/* tests/comm/world.h - runs a function on every rank of a world of threads; values that are not alike in any two
 * places.
 */
#ifndef TM_TESTS_COMM_WORLD_H
#define TM_TESTS_COMM_WORLD_H

#include "support/test.h"

#include "comm/coll/coll.h"

#include <pthread.h>

typedef struct {
    tm_comm *comm;
    void    *context;
    void (*body)(tm_comm *comm, void *context);
    bool keeps; /* the body closes the world */
} world_rank;

static void *world_thread(void *argument)
{
    world_rank *r = argument;
    r->body(r->comm, r->context);
    if (!r->keeps) tm_comm_close(r->comm);
    return NULL;
}

/* host: of each rank; NULL: one. The body runs in a thread for each rank. */
static inline void run_world(int ranks, const int *host, double deadline, bool keeps,
                             void (*body)(tm_comm *comm, void *context), void *context)
{
    tm_comm   *comm[TM_COMM_LOCAL];
    pthread_t  thread[TM_COMM_LOCAL];
    world_rank rank[TM_COMM_LOCAL];
    assert_ok(tm_comm_open_threads_on(ranks, host, deadline, comm, err));
    for (int r = 0; r < ranks; r++) {
        rank[r] = (world_rank){ comm[r], context, body, keeps };
        assert_int_equal(pthread_create(&thread[r], NULL, world_thread, &rank[r]), 0);
    }
    for (int r = 0; r < ranks; r++) pthread_join(thread[r], NULL);
}

/* Threads cannot fail a test of cmocka: they end the program. */
#define CHECK(condition)                                                                                               \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                    \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

#define CHECK_OK(call)                                                                                                 \
    do {                                                                                                               \
        tm_error  check_error = { 0 };                                                                                 \
        tm_error *err = &check_error;                                                                                  \
        if ((call) != TM_OK) {                                                                                         \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, check_error.text);                                      \
            abort();                                                                                                   \
        }                                                                                                              \
    } while (0)

/* A call of a group, from rank 0 if it has a root. */
static inline tm_collective collective_of(tm_comm_kind kind, tm_comm_format format, const void *send, void *receive,
                                          size_t count, const char *what, int64_t step)
{
    return (tm_collective){
        .kind = kind, .format = format, .send = send, .receive = receive, .count = count, .what = what, .step = step
    };
}

/* To or from the other one of two ranks. */
static inline tm_collective message_of(tm_comm *world, bool sends, void *data, size_t bytes)
{
    tm_collective call = collective_of(sends ? TM_COMM_SEND : TM_COMM_RECEIVE, TM_COMM_BYTES, sends ? data : NULL,
                                       sends ? NULL : data, bytes, "letter", -1);
    call.peer = !tm_comm_rank(world);
    return call;
}

static inline uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline size_t format_bytes(tm_comm_format format)
{
    return format == TM_COMM_BYTES ? 1 : format == TM_COMM_BFLOAT16 ? 2 : format == TM_COMM_FLOAT32 ? 4 : 8;
}

/* Element i of rank r: of many sizes, so that the order of a sum shows. */
static inline void put_value(tm_comm_format format, uint64_t seed, int rank, size_t i, void *out)
{
    uint64_t bits = mix(seed * 1000003 + (uint64_t)rank * 7919 + i + 1);
    double   value = ((double)(bits >> 40) / 16777216.0 - 0.5) * (double)(1 << (bits & 15));
    float    single = (float)value;
    int64_t  whole = (int64_t)bits;
    switch (format) {
    case TM_COMM_BYTES:
        *(unsigned char *)out = (unsigned char)bits;
        break;
    case TM_COMM_INT64:
        memcpy(out, &whole, 8);
        break;
    case TM_COMM_FLOAT64:
        memcpy(out, &value, 8);
        break;
    case TM_COMM_FLOAT32:
        memcpy(out, &single, 4);
        break;
    case TM_COMM_BFLOAT16:
        memcpy(out, (char *)&single + 2, 2);
        break;
    }
}

static inline float widened(uint16_t buffer)
{
    uint32_t bits = (uint32_t)buffer << 16;
    float    value;
    memcpy(&value, &bits, 4);
    return value;
}

/* The nearer of the two neighbours, the even one of equals. */
static inline uint16_t nearest_bfloat16(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, 4);
    uint16_t low = (uint16_t)(bits >> 16), high = (uint16_t)(low + 1);
    double   down = (double)value - (double)widened(low), up = (double)widened(high) - (double)value;
    down = down < 0 ? -down : down;
    up = up < 0 ? -up : up;
    return down < up ? low : up < down ? high : (low & 1) ? high : low;
}

/* Element i of the reduction over the values of `ranks`, in that order. */
static inline void put_reduced(tm_comm_op op, tm_comm_format format, uint64_t seed, const int *ranks, int n, size_t i,
                               void *out)
{
    char     first[8] = { 0 }, x[8] = { 0 };
    double   d = 0, dx;
    float    f = 0, fx;
    int64_t  k = 0, kx;
    uint16_t h;
    for (int r = 0; r < n; r++) {
        put_value(format, seed, ranks[r], i, r ? x : first);
        const void *from = r ? x : first;
        memcpy(&dx, from, 8), memcpy(&fx, from, 4), memcpy(&kx, from, 8), memcpy(&h, from, 2);
        if (format == TM_COMM_BFLOAT16) fx = widened(h);
        if (r == 0)
            d = dx, f = fx, k = kx;
        else if (op == TM_COMM_SUM) {
            if (format == TM_COMM_FLOAT64) d = d + dx;
            f = f + fx;
            k = (int64_t)((uint64_t)k + (uint64_t)kx);
        } else if (op == TM_COMM_MAX) {
            d = dx > d ? dx : d, f = fx > f ? fx : f, k = kx > k ? kx : k;
        } else {
            d = dx < d ? dx : d, f = fx < f ? fx : f, k = kx < k ? kx : k;
        }
    }
    h = nearest_bfloat16(f);
    if (format == TM_COMM_FLOAT64) memcpy(out, &d, 8);
    if (format == TM_COMM_FLOAT32) memcpy(out, &f, 4);
    if (format == TM_COMM_BFLOAT16) memcpy(out, &h, 2);
    if (format == TM_COMM_INT64) memcpy(out, &k, 8);
}

#endif
