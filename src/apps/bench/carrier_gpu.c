/* SPDX-License-Identifier: Apache-2.0 */
/* apps/bench/carrier_gpu.c - collective calls on the memory of GPUs, by NCCL or RCCL; the GPU's events are the clock.
 */
#include "base/arena.h"
#include "apps/bench/carrier.h"
#include "comm/coll/nccl.h"

#include <stdlib.h>
#include <string.h>

static tm_status call_gpu(tm_carrier *c, const tm_collective *call, tm_error *err)
{
    return tm_nccl_run(c->nccl, call, err);
}

static tm_status copy_gpu(tm_carrier *c, void *to, const void *from, size_t bytes, tm_error *err)
{
    return tm_gpu_queue_copy(c->gpu, tm_nccl_stream(c->nccl), to, from, bytes, err);
}

static tm_status begin_gpu(tm_carrier *c, tm_error *err)
{
    return tm_gpu_event_record(c->gpu, c->event[0], tm_nccl_stream(c->nccl), err);
}

static tm_status end_gpu(tm_carrier *c, double *seconds, tm_error *err)
{
    TM_TRY(tm_gpu_event_record(c->gpu, c->event[1], tm_nccl_stream(c->nccl), err));
    TM_TRY(tm_nccl_wait(c->nccl, err));
    return tm_gpu_event_seconds(c->gpu, c->event[0], c->event[1], seconds, err);
}

static tm_status put_gpu(tm_carrier *c, size_t send_bytes, size_t receive_bytes, tm_error *err)
{
    TM_TRY(tm_gpu_write(c->gpu, c->send, c->host_send, send_bytes, err));
    return tm_gpu_write(c->gpu, c->receive, c->host_receive, receive_bytes, err);
}

static tm_status get_gpu(tm_carrier *c, size_t bytes, tm_error *err)
{
    return tm_gpu_read(c->gpu, c->host_receive, c->receive, bytes, err);
}

static void close_gpu(tm_carrier *c)
{
    free(c->host_send);
    free(c->host_receive);
    if (!c->gpu) return;
    tm_gpu_free(c->gpu, c->send);
    tm_gpu_free(c->gpu, c->receive);
    tm_gpu_free(c->gpu, c->spare);
    for (int i = 0; i < 2; i++) tm_gpu_event_close(c->gpu, c->event[i]);
    tm_nccl_close(c->nccl);
}

/* What was measured: files, versions, GPUs. */
static void note_facts(tm_bench *bench, const tm_carrier *c)
{
    const tm_nccl_facts *nccl = tm_nccl_facts_of(c->nccl);
    const tm_gpu_facts  *gpu = tm_gpu_facts_of(c->gpu);
    tm_bench_note(bench, "%s %s, loaded from %s%s", nccl->name, nccl->version, nccl->library,
                  nccl->blocking ? "" : " (NCCL_COMM_BLOCKING=0: its calls do not wait)");
    tm_bench_note(bench, "%s %d.%d, loaded from %s; rank 0 is on GPU %d of %d: %s, %.1f GiB, %s", gpu->runtime,
                  gpu->version / 1000, gpu->version % 1000 / 10, gpu->library, gpu->index, gpu->count, gpu->name,
                  (double)gpu->memory / (1 << 30), gpu->bus);
}

static tm_status take_memory(tm_carrier *c, size_t room, tm_error *err)
{
    char **blocks[] = { &c->send, &c->receive, &c->spare };
    for (size_t i = 0; i < sizeof blocks / sizeof blocks[0]; i++) {
        void *memory;
        TM_TRY(tm_gpu_alloc(c->gpu, room, &memory, err));
        *blocks[i] = memory;
    }
    for (int i = 0; i < 2; i++) TM_TRY(tm_gpu_event_open(c->gpu, &c->event[i], err));
    c->host_send = tm_alloc(room);
    c->host_receive = tm_alloc(room);
    memset(c->host_send, 0, room);
    return TM_OK;
}

tm_status tm_carrier_open_gpu(tm_bench *bench, size_t room, tm_carrier *out, tm_error *err)
{
    const tm_config *o = bench->options;
    *out = (tm_carrier){ .world = bench->world,
                         .buffers = "device",
                         .on_gpu = true,
                         .least_ns = 1000000,      /* the events count in steps of buffer a microsecond */
                         .least_judged = 32 << 20, /* a copy of less takes as long as it takes to begin one */
                         .call = call_gpu,
                         .copy = copy_gpu,
                         .begin = begin_gpu,
                         .end = end_gpu,
                         .put = put_gpu,
                         .get = get_gpu,
                         .close = close_gpu };
    if (strcmp(tm_config_text(o, "buffers"), "shared") != 0)
        return tm_fail(err, TM_USAGE,
                       "--buffers says where processes have their memory; --engine nccl has it on the "
                       "GPU: leave one out");
    TM_TRY(tm_nccl_open(out->world, tm_config_text(o, "library"), tm_config_f64(o, "deadline"), &out->nccl, err));
    out->gpu = tm_nccl_gpu(out->nccl);
    out->engine = tm_nccl_facts_of(out->nccl)->name;
    note_facts(bench, out);
    tm_status st = take_memory(out, room, err);
    if (st != TM_OK) close_gpu(out);
    return st;
}
