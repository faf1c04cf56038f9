/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/carrier.h - where the data of measured collective calls lie, who carries them, and whose clock it is: the
 * memory of processes, or that of GPUs. */
#ifndef TM_BENCH_CARRIER_H
#define TM_BENCH_CARRIER_H

#include "apps/bench/bench.h"
#include "comm/comm.h"

typedef struct tm_carrier tm_carrier;

struct tm_carrier {
    tm_comm    *world;
    const char *engine, *buffers;         /* as the columns have them */
    char       *send, *receive, *spare;   /* as calls take them; spare: of this rank alone, for copies */
    char       *host_send, *host_receive; /* what is filled and checked: the same, or behind tm_carrier.put, get */
    int64_t     least_ns;                 /* a shorter sample is looped */
    size_t      least_judged;             /* of smaller messages, steps count, not bytes */
    bool        on_gpu;

    tm_status (*call)(tm_carrier *c, const tm_collective *call, tm_error *err);
    tm_status (*copy)(tm_carrier *c, void *to, const void *from, size_t bytes, tm_error *err);
    /* The time from `begin` to `end`, which waits for all that lies between. */
    tm_status (*begin)(tm_carrier *c, tm_error *err);
    tm_status (*end)(tm_carrier *c, double *seconds, tm_error *err);
    /* host_send and host_receive to send and receive; receive to host_receive. */
    tm_status (*put)(tm_carrier *c, size_t send_bytes, size_t receive_bytes, tm_error *err);
    tm_status (*get)(tm_carrier *c, size_t bytes, tm_error *err);
    void (*close)(tm_carrier *c);

    int64_t         begin_ns;
    bool            shared;
    struct tm_nccl *nccl;
    struct tm_gpu  *gpu;
    void           *event[2]; /* of that GPU: around what is timed */
};

/* Buffers of `room` bytes, a multiple of a page. All ranks call it; closed by all, before the world is. */
TM_MUST_USE tm_status tm_carrier_open_host(const tm_bench *bench, size_t room, tm_carrier *out, tm_error *err);
TM_MUST_USE tm_status tm_carrier_open_gpu(tm_bench *bench, size_t room, tm_carrier *out, tm_error *err);

#endif
