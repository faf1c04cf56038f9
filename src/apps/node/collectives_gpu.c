/* SPDX-License-Identifier: Apache-2.0 */
/* apps/node/collectives_gpu.c - calls between GPUs: data goes to the GPU before each call and comes back behind it. */
#include "apps/node/collectives_gpu.h"

#include "base/arena.h"
#include "comm/coll/nccl.h"
#include "apps/node/payload_value.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEADLINE_S = 120 };

struct tm_node_gpus {
    tm_nccl *nccl;
    tm_gpu  *gpu;
    char    *host, *device; /* the same places */
    size_t   bytes, behind;
};

/* Has any host a GPU that ranks should take? Its first rank looks: looking changes the environment of the process. */
static tm_status any_gpu(const tm_node_options *o, bool *any, tm_error *err)
{
    const bool          named = !o->devices || strstr(o->devices, "cuda") || strstr(o->devices, "hip");
    const bool          first = tm_comm_place_of(o->world, tm_comm_rank(o->world)).local_rank == 0;
    int64_t             mine = named && first ? tm_gpu_count(TM_GPU_ANY) : 0, most = 0;
    const tm_collective call = { .kind = TM_COMM_ALL_REDUCE,
                                 .op = TM_COMM_MAX,
                                 .format = TM_COMM_INT64,
                                 .send = &mine,
                                 .receive = &most,
                                 .count = 1,
                                 .what = "GPUs",
                                 .step = -1 };
    TM_TRY(tm_comm_run(o->world, &call, err));
    *any = most > 0;
    return TM_OK;
}

tm_status tm_node_gpus_open(const tm_node_options *options, tm_node_gpus **out, char why[TM_NODE_TEXT], tm_error *err)
{
    bool     any;
    tm_error own = { 0 };
    tm_nccl *nccl = NULL;
    *out = NULL;
    why[0] = 0;
    TM_TRY(any_gpu(options, &any, err));
    if (!any) return TM_OK;
    const tm_status st = tm_nccl_open(options->world, NULL, DEADLINE_S, &nccl, &own);
    if (st != TM_OK && tm_comm_broken(options->world)) return tm_fail(err, st, "%s", own.text);
    snprintf(why, TM_NODE_TEXT, "%.255s", own.text);
    if (st != TM_OK) return TM_OK;
    *out = tm_alloc(sizeof **out);
    **out = (tm_node_gpus){ .nccl = nccl, .gpu = tm_nccl_gpu(nccl) };
    return TM_OK;
}

void tm_node_gpus_close(tm_node_gpus *gpus)
{
    if (!gpus) return;
    if (gpus->device) tm_gpu_free(gpus->gpu, gpus->device);
    tm_nccl_close(gpus->nccl);
    free(gpus);
}

char *tm_node_gpus_library(const tm_node_gpus *gpus, char out[48])
{
    const tm_nccl_facts *facts = tm_nccl_facts_of(gpus->nccl);
    snprintf(out, 48, "%s %s", facts->name, facts->version);
    return out;
}

tm_status tm_node_gpus_lend(tm_node_gpus *gpus, void *host, size_t bytes, size_t behind, tm_error *err)
{
    void *device;
    TM_TRY(tm_gpu_alloc(gpus->gpu, bytes, &device, err));
    gpus->device = device, gpus->host = host, gpus->bytes = bytes, gpus->behind = behind;
    return TM_OK;
}

static size_t sum_of(const size_t *counts, int n)
{
    size_t sum = 0;
    for (int i = 0; i < n; i++) sum += counts[i];
    return sum;
}

/* Elements that a call reads, or writes. */
static size_t elements(const tm_comm *comm, const tm_collective *c, bool sends)
{
    const int    size = tm_comm_size(comm);
    const size_t all = c->count * (size_t)size;
    switch (c->kind) {
    case TM_COMM_SEND:
        return sends ? c->count : 0;
    case TM_COMM_RECEIVE:
        return sends ? 0 : c->count;
    case TM_COMM_ALL_TO_ALL:
        if (c->send_counts) return sum_of(sends ? c->send_counts : c->receive_counts, size);
        return all;
    case TM_COMM_REDUCE_SCATTER:
        return sends ? all : c->count;
    case TM_COMM_ALL_GATHER:
        return sends ? c->count : all;
    case TM_COMM_BROADCAST:
        return sends && c->peer != tm_comm_rank(comm) ? 0 : c->count;
    default:
        return c->count;
    }
}

static void *on_device(const tm_node_gpus *g, const void *host)
{
    return host ? g->device + ((const char *)host - g->host) : NULL;
}

tm_status tm_node_gpus_run(void *data, tm_comm *comm, const tm_collective *call, tm_error *err)
{
    tm_node_gpus *g = data;
    tm_collective c = *call;
    const char   *place = call->send ? call->send : call->receive;
    const size_t  each = tm_payload_bytes(c.format), sends = elements(comm, &c, true) * each;
    const size_t  receives = elements(comm, &c, false) * each, written = receives > 0 ? receives + g->behind : 0;
    if (!g->host || place < g->host || place >= g->host + g->bytes) return tm_comm_run(comm, call, err);
    c.send = on_device(g, call->send), c.receive = on_device(g, call->receive);
    if (written > 0) TM_TRY(tm_gpu_write(g->gpu, c.receive, call->receive, written, err));
    if (sends > 0) TM_TRY(tm_gpu_write(g->gpu, on_device(g, call->send), call->send, sends, err));
    TM_TRY(tm_nccl_run(g->nccl, &c, err));
    TM_TRY(tm_nccl_wait(g->nccl, err));
    if (sends > 0)
        TM_TRY(tm_gpu_read(g->gpu, (char *)g->host + ((const char *)call->send - g->host), c.send, sends, err));
    return written > 0 ? tm_gpu_read(g->gpu, call->receive, c.receive, written, err) : TM_OK;
}
