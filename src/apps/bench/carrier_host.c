/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/carrier_host.c - collective calls on the memory of processes. */
#include "base/arena.h"
#include "base/clock.h"
#include "apps/bench/carrier.h"

#include <stdlib.h>
#include <string.h>

/* Of a sample, for ranks begin and end it up to a microsecond apart. */
#define LEAST_NS 200000

static tm_status call_host(tm_carrier *c, const tm_collective *call, tm_error *err)
{
    return tm_comm_run(c->world, call, err);
}

static tm_status copy_host(tm_carrier *c, void *to, const void *from, size_t bytes, tm_error *err)
{
    (void)c, (void)err;
    memcpy(to, from, bytes);
    __asm__ volatile("" : : "r"(to) : "memory"); /* it is made, also if nobody reads it */
    return TM_OK;
}

static tm_status begin_host(tm_carrier *c, tm_error *err)
{
    (void)err;
    c->begin_ns = tm_now_ns();
    return TM_OK;
}

static tm_status end_host(tm_carrier *c, double *seconds, tm_error *err)
{
    (void)err;
    *seconds = (double)(tm_now_ns() - c->begin_ns) * 1e-9;
    return TM_OK;
}

static tm_status put_host(tm_carrier *c, size_t send_bytes, size_t receive_bytes, tm_error *err)
{
    (void)c, (void)send_bytes, (void)receive_bytes, (void)err; /* they are there */
    return TM_OK;
}

static tm_status get_host(tm_carrier *c, size_t bytes, tm_error *err)
{
    (void)c, (void)bytes, (void)err;
    return TM_OK;
}

static void close_host(tm_carrier *c)
{
    free(c->spare);
    if (c->shared)
        tm_comm_free(c->world, c->send);
    else
        free(c->send);
}

tm_status tm_carrier_open_host(const tm_bench *bench, size_t room, tm_carrier *out, tm_error *err)
{
    const char *buffers = tm_config_text(bench->options, "buffers");
    void       *memory = NULL;
    int64_t     ticks = tm_clock_tick_ns() * TM_LEAST_TICKS;
    *out = (tm_carrier){ .world = bench->world,
                         .engine = tm_comm_engine_name(bench->world),
                         .buffers = buffers,
                         .shared = strcmp(buffers, "shared") == 0,
                         .least_ns = ticks > LEAST_NS ? ticks : LEAST_NS,
                         .least_judged = 64 << 10,
                         .call = call_host,
                         .copy = copy_host,
                         .begin = begin_host,
                         .end = end_host,
                         .put = put_host,
                         .get = get_host,
                         .close = close_host };
    if (out->shared)
        TM_TRY(tm_comm_alloc(out->world, 2 * room, &memory, err));
    else if (!(memory = aligned_alloc(4096, 2 * room)))
        return tm_fail(err, TM_NOMEM, "no memory for two buffers of %zu bytes", room);
    memset(memory, 0, 2 * room);
    out->send = out->host_send = memory;
    out->receive = out->host_receive = out->send + room;
    out->spare = tm_alloc(room);
    return TM_OK;
}
